//! From a recording to its summary and its curves; its rows go to their files meanwhile.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread::available_parallelism;

use taillab_analysis::ideal::IdealRun;
use taillab_analysis::ledger::Baseline;
use taillab_analysis::long::Account;
use taillab_analysis::matcher::{InOrder, MatchOptions, Timed};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{self, Evidence, ServerEvidence};
use taillab_analysis::{
    AnalyseOptions, Analysis, ExplainOptions, Explained, Matched, Window, Windows, analyse,
    explain, window as windows,
};
use taillab_host::CpuUsage;
use taillab_model::summary::{Observer, Overhead, Report, SCHEMA_VERSION, ServerResult, Verdict};
use taillab_model::{Event, HISTOGRAM_ERROR, Monotonic, Nanos, RecordingContext, RecordingReader};
use taillab_report::{Curve, Series};

use super::rows::{Known, RowFiles, Rows};
use super::service_time::IdealServer;
use crate::cli::AnalysisArgs;
use crate::commands::run::rundir::RunDir;
use crate::exit::{Exit, Failure, OrExit};

/// So many of the slowest requests are taken apart unless asked otherwise.
const SLOWEST: usize = 20;

/// What is known beside the recording.
#[derive(Default)]
pub struct Beside {
    /// The command that shows the result.
    pub command: &'static str,
    /// Its file, for messages.
    pub path: Option<PathBuf>,
    /// What was traced, where it is better known than the recording says.
    pub target: Option<String>,
    /// The recording ended before its time.
    pub partial: bool,
    /// The observer had no CPU of its own.
    pub shares_cpus: bool,
    /// What the server's CPUs did.
    pub server_cpus: Option<CpuUsage>,
}

/// What came out.
pub struct Evaluated {
    summary: Report,
    /// Ideal and measured.
    pub curves: Vec<Curve>,
    /// Requests that came in, while it settled too.
    all_arrivals: u64,
    evidence: ServerEvidence,
    facts: Facts,
}

/// What the verdict needs and the summary does not carry.
struct Facts {
    hypervisor: Option<String>,
    /// The observer had no CPU that is not the server's.
    shares_cpus: bool,
    damage: Option<String>,
    /// Requests are identified by their content.
    framed: bool,
}

/// Reads and analyses a recording; of a damaged one, what can be read. The files with a row for
/// each request go to `dir`.
pub fn file(
    file: File,
    args: &AnalysisArgs,
    beside: Beside,
    mut dir: Option<&mut RunDir>,
) -> Result<Evaluated, Failure> {
    let named = |error: &dyn std::fmt::Display| match &beside.path {
        Some(path) => Failure::new(Exit::Failed, format!("{}: {error}", path.display())),
        None => Failure::new(Exit::Failed, error),
    };
    let mut reader = RecordingReader::open_whole(file).map_err(|error| named(&error))?;
    let context = reader.context().clone();
    let base = reader.base();
    let mut reading = Reading::of(reader.recorded(), &context)?;
    let Some(first) = reading.next_part() else {
        return Err(named(&"it cannot be read"));
    };
    let from = reading.measured_from(&context, base);
    let files = match &dir {
        Some(dir) => Some(RowFiles::begin(dir, from, context.started_unix_s)?),
        None => None,
    };
    let (found, last) = if first.is_last() {
        (Found::Whole(Box::new(first), files), reading.last)
    } else {
        let rows = files.map(|files| Rows::new(from, files));
        let mut long = Long::begin(args, &context, from, &first, rows)?;
        drop(first);
        let last = reading.beside(|part| long.add(&part));
        (Found::Long(Box::new(long)), last)
    };
    if let Some(error) = reader.failure() {
        return Err(named(error));
    }
    let damage = reader.damage().map(|damage| damage.to_string());
    let nothing_read = matches!(&found, Found::Whole(part, _) if part.matched.events == 0);
    if let (Some(damage), true) = (&damage, nothing_read) {
        return Err(named(damage));
    }
    let lost = reader.lost().total();
    let mut analysed = match found {
        Found::Whole(part, files) => {
            let Window {
                matched, timeline, ..
            } = *part;
            let (mut analysed, ideal) = whole(&matched, &timeline, &context, from, lost, args)?;
            if let (Some(mut files), Some(dir)) = (files, &mut dir) {
                let known = Known {
                    ideal,
                    main_causes: std::mem::take(&mut analysed.explained.main_causes),
                    from,
                };
                known.rows(&matched).for_each(|row| files.push(row));
                files.finish(dir)?;
            }
            analysed
        }
        Found::Long(long) => long.finish(lost, dir)?,
    };
    analysed.damage = damage;
    let mut beside = beside;
    beside.partial |= analysed.damage.is_some();
    let read = Read {
        duration: last.unwrap_or(from).saturating_since(from),
        context: &context,
    };
    Ok(conclude(analysed, read, beside))
}

/// What a recording turned out to be.
enum Found<'c> {
    /// It fits into one part.
    Whole(Box<Window>, Option<RowFiles>),
    /// It does not.
    Long(Box<Long<'c>>),
}

/// Analyses a part of events that go on coming; also the sojourns of the measured requests.
pub(super) fn window(
    part: &Window,
    from: Monotonic,
    context: &RecordingContext,
    args: &AnalysisArgs,
    beside: Beside,
) -> Result<(Evaluated, Vec<Nanos>), Failure> {
    let matched = &part.matched;
    let (analysed, _) = whole(matched, &part.timeline, context, from, 0, args)?;
    let read = Read {
        duration: part.upto.saturating_since(from),
        context,
    };
    let sojourns = matched.measured_places(from);
    let sojourns = sojourns.map(|place| matched.requests.sojourn(place));
    Ok((conclude(analysed, read, beside), sojourns.collect()))
}

/// The parts of a recording, one after the other.
struct Reading<I: Iterator> {
    events: InOrder<I>,
    /// `None` after the last part.
    parts: Option<Windows>,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
}

impl<I: Iterator<Item: Timed + Copy + Into<Event> + Send>> Reading<I> {
    fn of(events: I, context: &RecordingContext) -> Result<Self, Failure> {
        let options = MatchOptions::of(context).or_exit(Exit::Failed)?;
        Ok(Self {
            events: InOrder::new(events, options.disorder),
            parts: Some(Windows::new(options, context, windows::REQUESTS)),
            first: None,
            last: None,
        })
    }

    fn next_part(&mut self) -> Option<Window> {
        let parts = self.parts.as_mut()?;
        for event in self.events.by_ref() {
            let event: Event = event.into();
            self.first = self.first.or(Some(event.at));
            self.last = Some(event.at);
            if let Some(part) = parts.observe(&event) {
                return Some(part);
            }
        }
        let parts = self.parts.take()?;
        Some(parts.finish(self.events.late()))
    }

    /// Reads the other parts, each while the one before it is taken where there is a CPU for it;
    /// when the last event was.
    fn beside(mut self, mut take: impl FnMut(Window)) -> Option<Monotonic>
    where
        I: Send,
    {
        if available_parallelism().is_ok_and(|cpus| cpus == NonZeroUsize::MIN) {
            while let Some(part) = self.next_part() {
                take(part);
            }
            return self.last;
        }
        let (found, parts) = sync_channel(0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                while let Some(part) = self.next_part()
                    && found.send(part).is_ok()
                {}
                self.last
            });
            parts.iter().for_each(&mut take);
            match reader.join() {
                Ok(last) => last,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Where the measurement begins.
    fn measured_from(&self, context: &RecordingContext, base: Monotonic) -> Monotonic {
        let begins = context.measure_from_ns;
        let begins = begins.map_or(base, Monotonic::from_nanos_since_boot);
        begins.max(self.first.unwrap_or(base))
    }
}

/// A recording as it was read.
struct Read<'c> {
    duration: Nanos,
    context: &'c RecordingContext,
}

/// What is known of a recording, however long.
struct Analysed {
    analysis: Analysis,
    explained: Explained,
    ideal_server: IdealServer,
    /// Requests that came in during the measurement.
    arrivals: u64,
    /// The same while the server settled too.
    all_arrivals: u64,
    disturbances: bool,
    damage: Option<String>,
}

/// A recording of several parts.
struct Long<'c> {
    account: Account<'c>,
    rows: Option<Rows>,
    ideal_server: IdealServer,
    /// So many requests showed it.
    shown_by: usize,
    disturbances: bool,
}

impl<'c> Long<'c> {
    fn begin(
        args: &AnalysisArgs,
        context: &'c RecordingContext,
        from: Monotonic,
        first: &Window,
        rows: Option<Rows>,
    ) -> Result<Self, Failure> {
        let (matched, timeline) = (&first.matched, &first.timeline);
        let ideal_server = IdealServer::of(args, context, matched, timeline, from)?;
        let options = AnalyseOptions {
            service_time: ideal_server.service_time,
            workers: ideal_server.workers,
            measure_from: from,
            lost_events: 0,
        };
        let usual = Baseline::of(matched, timeline, ideal_server.service_time);
        let slowest = args.slowest.unwrap_or(SLOWEST);
        let mut long = Self {
            account: Account::new(options, context, slowest, usual),
            rows,
            ideal_server,
            shown_by: matched.requests.len(),
            disturbances: false,
        };
        long.add(first);
        Ok(long)
    }

    fn add(&mut self, part: &Window) {
        self.disturbances |= part.timeline.has_disturbances();
        match &mut self.rows {
            Some(rows) => {
                rows.came(&part.matched);
                let ideal = (self.account).add(part, |entry, labels| rows.account(entry, labels));
                rows.write(&part.matched, ideal);
            }
            None => {
                self.account.add(part, |_, _| {});
            }
        }
    }

    fn finish(self, lost: u64, dir: Option<&mut RunDir>) -> Result<Analysed, Failure> {
        if let (Some(rows), Some(dir)) = (self.rows, dir) {
            rows.finish(dir)?;
        }
        let arrivals = (self.account.arrivals(), self.account.all_arrivals());
        let (analysis, mut explained) = self.account.finish(lost).or_exit(Exit::Failed)?;
        if !self.disturbances {
            explained = Explained::default();
        }
        explained.explanation.limits.push(format!(
            "The recording was read in parts: percentiles are within {:.2} %, and what is usual \
             of this server (t and the number of its workers, unless they were given) is what \
             its first {} requests show.",
            100.0 * HISTOGRAM_ERROR,
            self.shown_by
        ));
        Ok(Analysed {
            analysis,
            explained,
            ideal_server: self.ideal_server,
            arrivals: arrivals.0,
            all_arrivals: arrivals.1,
            disturbances: self.disturbances,
            damage: None,
        })
    }
}

/// A recording that is held as a whole; also the ideal sojourns of its measured requests.
fn whole(
    matched: &Matched,
    timeline: &Timeline,
    context: &RecordingContext,
    from: Monotonic,
    lost: u64,
    args: &AnalysisArgs,
) -> Result<(Analysed, Vec<Nanos>), Failure> {
    if matched.requests.is_empty() {
        return Err(nothing(matched, context));
    }
    let ideal_server = IdealServer::of(args, context, matched, timeline, from)?;
    let options = AnalyseOptions {
        service_time: ideal_server.service_time,
        workers: ideal_server.workers,
        measure_from: from,
        lost_events: lost,
    };
    let analysis = analyse(matched, &options).or_exit(Exit::Failed)?;
    let explain_options = ExplainOptions {
        service_time: options.service_time,
        workers: options.workers,
        measure_from: from,
        slowest: args.slowest.unwrap_or(SLOWEST),
        is_repeated: false,
    };
    let disturbances = timeline.has_disturbances();
    let explained = match disturbances {
        true => explain(matched, timeline, context, &explain_options),
        false => Explained::default(),
    };
    let ideal = IdealRun::of(matched, options.service_time, options.workers, from).ideal;
    let arrivals = matched.arrivals().filter(|arrival| arrival.t1 >= from);
    let analysed = Analysed {
        analysis,
        explained,
        ideal_server,
        arrivals: arrivals.count() as u64,
        all_arrivals: (matched.requests.len() + matched.unmatched.len()) as u64,
        disturbances,
        damage: None,
    };
    Ok((analysed, ideal))
}

fn conclude(analysed: Analysed, read: Read<'_>, beside: Beside) -> Evaluated {
    let Analysed {
        analysis,
        explained,
        ideal_server,
        arrivals,
        all_arrivals,
        disturbances,
        damage,
    } = analysed;
    let Read { duration, context } = read;
    let Explained {
        causes,
        model_fit,
        predictions,
        explanation,
        main_causes: _,
    } = explained;
    let mut measured = analysis.measured;
    measured.server_cpu_busy_share = beside.server_cpus.map(|usage| usage.busy_share);
    let mut matching = analysis.matching;
    matching.hooks.clone_from(&context.hooks);
    let facts = Facts {
        hypervisor: context.hypervisor.clone(),
        shares_cpus: beside.shares_cpus,
        damage,
        framed: context.framing.is_some(),
    };
    let summary = Report {
        schema_version: SCHEMA_VERSION,
        command: beside.command.to_owned(),
        target: beside
            .target
            .unwrap_or_else(|| named(context, beside.path.as_deref())),
        started_unix_s: context.started_unix_s,
        partial: beside.partial,
        duration_ns: duration,
        arrival_rate_per_s: arrivals as f64 / duration.as_secs_f64().max(1e-9),
        load: None,
        client_minus_server: None,
        calibration: None,
        server: ServerResult {
            service_time_ns: ideal_server.service_time,
            service_time_source: ideal_server.source,
            measured,
            ideal: analysis.ideal,
            excess: analysis.excess,
            stages: analysis.stages,
            stages_at: analysis.stages_at,
            matching,
            overhead: NOT_MEASURED,
            causes,
            model_fit,
            predictions,
            explanation: disturbances.then_some(explanation),
        },
        observer: None,
        verdict: Verdict::default(),
    };
    let curve = |series, points| Curve { series, points };
    let mut evaluated = Evaluated {
        summary,
        curves: vec![
            curve(Series::Ideal, analysis.ideal_ccdf),
            curve(Series::Measured, analysis.measured_ccdf),
        ],
        all_arrivals,
        evidence: analysis.evidence,
        facts,
    };
    evaluated.judge();
    evaluated
}

/// A trace cannot be compared with the same server without the probe.
const NOT_MEASURED: Overhead = Overhead {
    pairs: 0,
    throughput_loss: None,
    throughput_loss_lo: None,
    throughput_loss_hi: None,
    cpu_ns_per_request: None,
};

/// What was recorded, or else the file.
fn named(context: &RecordingContext, path: Option<&Path>) -> String {
    match (context.server.as_str(), path) {
        ("", Some(path)) => path.display().to_string(),
        (server, _) => server.to_owned(),
    }
}

/// Why there is nothing to analyse.
fn nothing(matched: &Matched, context: &RecordingContext) -> Failure {
    let server = match context.server.as_str() {
        "" => "the server",
        name => name,
    };
    let responses = matched.ambiguous.len() + matched.without_request.len();
    let arrivals = matched.unmatched.len();
    let why = match (arrivals, responses) {
        (0, 0) => format!(
            "no request came in to {server}: see that clients reach it on this port, or trace \
             longer (-d)"
        ),
        (_, 0) => format!(
            "{arrivals} requests came in to {server} and none was answered: see that it works, or \
             trace longer (-d)"
        ),
        _ => format!(
            "{arrivals} requests came in to {server} and {responses} responses left, and none \
             could be matched: name its protocol with --protocol"
        ),
    };
    Failure::new(Exit::Failed, why)
}

impl Evaluated {
    /// The summary.
    pub fn summary(&self) -> &Report {
        &self.summary
    }

    /// Whether it can be believed.
    pub fn is_valid(&self) -> bool {
        self.summary.verdict.valid
    }

    /// Requests that came in, while it settled too.
    pub fn arrivals(&self) -> u64 {
        self.all_arrivals
    }

    /// Adds what watching cost.
    pub fn observed(&mut self, observer: Observer) {
        self.summary.observer = Some(observer);
        if let Some(cost) = observer.program_ns_per_request {
            self.summary.server.overhead.cpu_ns_per_request = Some(cost);
        }
        self.judge();
    }

    fn judge(&mut self) {
        self.summary.verdict = verdict::judge(&Evidence {
            hypervisor: self.facts.hypervisor.as_deref(),
            recording: Some(verdict::TraceFacts {
                observer: self.summary.observer,
                shares_cpus: self.facts.shares_cpus,
                damage: self.facts.damage.as_deref(),
                framed: self.facts.framed,
            }),
            ..Evidence::of_report(&self.summary, &self.evidence)
        });
    }
}
