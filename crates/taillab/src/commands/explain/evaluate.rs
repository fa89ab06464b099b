//! From a recording to its summary, its curves and its rows.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

use taillab_analysis::ideal::IdealRun;
use taillab_analysis::ledger::Usual;
use taillab_analysis::long::{Account, Survey};
use taillab_analysis::matcher::{InOrder, MatchOptions};
use taillab_analysis::trace_verdict::{TraceFacts, judge_trace};
use taillab_analysis::{
    AnalyseOptions, Analysis, Evidence, ExplainOptions, Explained, Matched, Part, Parts, analyse,
    explain, parts,
};
use taillab_host::CpuUsage;
use taillab_model::summary::{
    Observer, Overhead, SCHEMA_VERSION, ServerResult, TraceSummary, Verdict,
};
use taillab_model::{Event, HISTOGRAM_ERROR, Monotonic, Nanos, RecordingContext, RecordingReader};
use taillab_queueing::ideal::IdealQueue;
use taillab_report::requests::RequestRow;
use taillab_report::{Curve, Series};

use super::rows::Known;
use super::service_time::IdealServer;
use crate::cli::AnalysisArgs;
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
    summary: TraceSummary,
    /// Ideal and measured.
    pub curves: Vec<Curve>,
    requests: Requests,
    from: Monotonic,
    evidence: Evidence,
    facts: TraceFacts,
}

/// The requests behind it.
enum Requests {
    /// Of a recording that fits into one part.
    Held { matched: Box<Matched>, known: Known },
    /// Of a longer one they are read again.
    InFile {
        file: File,
        arrivals: u64,
        ideal: IdealQueue,
    },
}

/// Reads and analyses a recording; of a damaged one, what can be read.
pub fn file(file: File, args: &AnalysisArgs, beside: Beside) -> Result<Evaluated, Failure> {
    let named = |error: &dyn std::fmt::Display| match &beside.path {
        Some(path) => Failure::new(Exit::Failed, format!("{}: {error}", path.display())),
        None => Failure::new(Exit::Failed, error),
    };
    let again = file.try_clone().map_err(|error| named(&error))?;
    let mut reader = RecordingReader::open_whole(file).map_err(|error| named(&error))?;
    let context = reader.context().clone();
    let base = reader.base();
    let mut reading = Reading::of(&mut reader, &context)?;
    let Some(first) = reading.next_part() else {
        return Err(named(&"it cannot be read"));
    };
    let from = reading.measured_from(&context, base);
    let (found, last) = if first.is_last() {
        (First::All(Box::new(first)), reading.last)
    } else {
        let survey = Surveying::begin(args, &context, from, &first)?;
        drop(first);
        let (survey, last) = survey.rest(reading);
        (First::Surveyed(Box::new(survey)), last)
    };
    if let Some(error) = reader.failure() {
        return Err(named(error));
    }
    let damage = reader.damage().map(|damage| damage.to_string());
    let lost = reader.lost().total();
    let read = Read {
        from,
        duration: last.unwrap_or(from).saturating_since(from),
        lost,
        context,
    };
    let nothing_read = matches!(&found, First::All(part) if part.matched.events == 0);
    if let (Some(damage), true) = (&damage, nothing_read) {
        return Err(named(damage));
    }
    let mut beside = beside;
    beside.partial |= damage.is_some();
    match found {
        First::All(part) => whole(*part, read, damage, args, beside),
        First::Surveyed(survey) => {
            let mut analysed = survey.account(again, &read, args)?;
            analysed.damage = damage;
            Ok(conclude(analysed, read, beside))
        }
    }
}

/// What a first reading gives.
enum First {
    All(Box<Part>),
    Surveyed(Box<Surveying>),
}

/// Analyses events that are here, in order of time.
pub fn events(
    events: Vec<Event>,
    context: RecordingContext,
    args: &AnalysisArgs,
    beside: Beside,
) -> Result<Evaluated, Failure> {
    let base = (events.first()).map_or(Monotonic::from_nanos_since_boot(1), |event| event.at);
    let options = MatchOptions::of(&context).or_exit(Exit::Failed)?;
    let mut events = InOrder::new(events.into_iter(), options.disorder);
    let mut parts = Parts::new(options, &context, usize::MAX);
    let (mut first, mut last) = (None, None);
    for event in events.by_ref() {
        first = first.or(Some(event.at));
        last = Some(event.at);
        parts.observe(&event);
    }
    let from = measured_from(&context, base, first);
    let read = Read {
        from,
        duration: last.unwrap_or(from).saturating_since(from),
        lost: 0,
        context,
    };
    whole(parts.finish(events.late()), read, None, args, beside)
}

/// Where the measurement begins.
fn measured_from(
    context: &RecordingContext,
    base: Monotonic,
    first: Option<Monotonic>,
) -> Monotonic {
    let begins = context.measure_from_ns;
    let begins = begins.map_or(base, Monotonic::from_nanos_since_boot);
    begins.max(first.unwrap_or(base))
}

/// The parts of a recording, one after the other.
struct Reading<I> {
    events: InOrder<I>,
    /// `None` after the last part.
    parts: Option<Parts>,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
}

impl<I: Iterator<Item = Event>> Reading<I> {
    fn of(events: I, context: &RecordingContext) -> Result<Self, Failure> {
        let options = MatchOptions::of(context).or_exit(Exit::Failed)?;
        Ok(Self {
            events: InOrder::new(events, options.disorder),
            parts: Some(Parts::new(options, context, parts::REQUESTS)),
            first: None,
            last: None,
        })
    }

    fn next_part(&mut self) -> Option<Part> {
        let parts = self.parts.as_mut()?;
        for event in self.events.by_ref() {
            self.first = self.first.or(Some(event.at));
            self.last = Some(event.at);
            if let Some(part) = parts.observe(&event) {
                return Some(part);
            }
        }
        let parts = self.parts.take()?;
        Some(parts.finish(self.events.late()))
    }

    /// Only requests are wanted from now on.
    fn leave_lines_out(&mut self) {
        if let Some(parts) = &mut self.parts {
            parts.leave_lines_out();
        }
    }

    fn measured_from(&self, context: &RecordingContext, base: Monotonic) -> Monotonic {
        measured_from(context, base, self.first)
    }
}

/// A recording as it was read.
struct Read {
    from: Monotonic,
    duration: Nanos,
    lost: u64,
    context: RecordingContext,
}

/// What is known of a recording, however long.
struct Analysed {
    analysis: Analysis,
    explained: Explained,
    ideal_server: IdealServer,
    requests: Requests,
    /// Requests that came in during the measurement.
    arrivals: u64,
    disturbances: bool,
    damage: Option<String>,
}

/// The first reading of a recording of several parts.
struct Surveying {
    survey: Survey,
    ideal_server: IdealServer,
    usual: Usual,
    /// So many showed it.
    requests: usize,
}

impl Surveying {
    fn begin(
        args: &AnalysisArgs,
        context: &RecordingContext,
        from: Monotonic,
        first: &Part,
    ) -> Result<Self, Failure> {
        let (matched, timeline) = (&first.matched, &first.timeline);
        let ideal_server = IdealServer::of(args, context, matched, timeline, from)?;
        let mut survey = Survey::new(AnalyseOptions {
            service_time: ideal_server.service_time,
            workers: ideal_server.workers,
            measure_from: from,
            lost_events: 0,
        });
        survey.add(first);
        Ok(Self {
            survey,
            usual: Usual::of(matched, timeline, ideal_server.service_time),
            ideal_server,
            requests: matched.requests.len(),
        })
    }

    fn rest<I: Iterator<Item = Event>>(
        mut self,
        mut reading: Reading<I>,
    ) -> (Self, Option<Monotonic>) {
        reading.leave_lines_out();
        while let Some(part) = reading.next_part() {
            self.survey.add(&part);
        }
        (self, reading.last)
    }

    /// Reads it again.
    fn account(
        self,
        mut file: File,
        read: &Read,
        args: &AnalysisArgs,
    ) -> Result<Analysed, Failure> {
        let surveyed = self.survey.finish(read.lost).or_exit(Exit::Failed)?;
        let (arrivals, all_arrivals) = (surveyed.arrivals, surveyed.all_arrivals);
        let slowest = args.slowest.unwrap_or(SLOWEST);
        let mut account = Account::new(surveyed, &read.context, slowest, self.usual);
        let again = file.try_clone().or_exit(Exit::Failed)?;
        file.rewind().or_exit(Exit::Failed)?;
        let reader = RecordingReader::open_whole(file).or_exit(Exit::Failed)?;
        let mut reading = Reading::of(reader, &read.context)?;
        let mut disturbances = false;
        while let Some(part) = reading.next_part() {
            disturbances |= part.timeline.has_disturbances();
            account.add(&part, |_, _| {});
        }
        let (analysis, mut explained) = account.finish();
        explained.explanation.limits.push(format!(
            "The recording was read in parts: percentiles are within {:.2} %, and what is usual \
             of this server (t and the number of its workers, unless they were given) is what \
             its first {} requests show.",
            100.0 * HISTOGRAM_ERROR,
            self.requests
        ));
        let IdealServer {
            service_time,
            workers,
            ..
        } = self.ideal_server;
        Ok(Analysed {
            analysis,
            explained,
            ideal_server: self.ideal_server,
            requests: Requests::InFile {
                file: again,
                arrivals: all_arrivals,
                ideal: IdealQueue::new(service_time, workers),
            },
            arrivals,
            disturbances,
            damage: None,
        })
    }
}

/// A recording that is held as a whole.
fn whole(
    part: Part,
    read: Read,
    damage: Option<String>,
    args: &AnalysisArgs,
    beside: Beside,
) -> Result<Evaluated, Failure> {
    let Part {
        matched, timeline, ..
    } = part;
    let Read { from, context, .. } = &read;
    let from = *from;
    if matched.requests.is_empty() {
        return Err(nothing(&matched, context));
    }
    let ideal_server = IdealServer::of(args, context, &matched, &timeline, from)?;
    let options = AnalyseOptions {
        service_time: ideal_server.service_time,
        workers: ideal_server.workers,
        measure_from: from,
        lost_events: read.lost,
    };
    let analysis = analyse(&matched, &options).or_exit(Exit::Failed)?;
    let explain_options = ExplainOptions {
        service_time: options.service_time,
        workers: options.workers,
        measure_from: from,
        slowest: args.slowest.unwrap_or(SLOWEST),
    };
    let disturbances = timeline.has_disturbances();
    let mut explained = match disturbances {
        true => explain(&matched, &timeline, context, &explain_options),
        false => Explained::default(),
    };
    let known = Known {
        ideal: IdealRun::of(&matched, options.service_time, options.workers, from).ideal,
        main_causes: std::mem::take(&mut explained.main_causes),
        from,
    };
    let arrivals = matched.arrivals().filter(|arrival| arrival.t1 >= from);
    let analysed = Analysed {
        analysis,
        explained,
        ideal_server,
        arrivals: arrivals.count() as u64,
        disturbances,
        damage,
        requests: Requests::Held {
            matched: Box::new(matched),
            known,
        },
    };
    Ok(conclude(analysed, read, beside))
}

fn conclude(analysed: Analysed, read: Read, beside: Beside) -> Evaluated {
    let Analysed {
        analysis,
        explained,
        ideal_server,
        requests,
        arrivals,
        disturbances,
        damage,
    } = analysed;
    let Read {
        from,
        duration,
        context,
        ..
    } = read;
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
    matching.hooks = context.hooks.clone();
    let facts = TraceFacts {
        hypervisor: context.hypervisor.clone(),
        shares_cpus: beside.shares_cpus,
        damage,
        framed: context.framing.is_some(),
    };
    let summary = TraceSummary {
        schema_version: SCHEMA_VERSION,
        command: beside.command.to_owned(),
        target: beside
            .target
            .unwrap_or_else(|| named(&context, beside.path.as_deref())),
        started_unix_s: context.started_unix_s,
        partial: beside.partial,
        duration_ns: duration,
        arrival_rate_per_s: arrivals as f64 / duration.as_secs_f64().max(1e-9),
        result: ServerResult {
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
        requests,
        from,
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
    pub fn summary(&self) -> &TraceSummary {
        &self.summary
    }

    /// Whether it can be believed.
    pub fn is_valid(&self) -> bool {
        self.summary.verdict.valid
    }

    /// Requests that came in, while it settled too.
    pub fn arrivals(&self) -> u64 {
        match &self.requests {
            Requests::Held { matched, .. } => {
                (matched.requests.len() + matched.unmatched.len()) as u64
            }
            Requests::InFile { arrivals, .. } => *arrivals,
        }
    }

    /// Adds what watching cost.
    pub fn observed(&mut self, observer: Observer) {
        self.summary.observer = Some(observer);
        if let Some(cost) = observer.program_ns_per_request {
            self.summary.result.overhead.cpu_ns_per_request = Some(cost);
        }
        self.judge();
    }

    fn judge(&mut self) {
        let judgement = judge_trace(&self.summary, &self.evidence, &self.facts);
        self.summary.verdict = Verdict::from(&judgement);
    }

    /// The sojourns of the measured requests, in order of T1.
    pub fn sojourns(&self) -> impl Iterator<Item = Nanos> {
        let rows = self.rows().filter(|row| !row.warm_up);
        rows.filter_map(|row| row.server?.sojourn())
    }

    /// Where the rows' time begins.
    pub fn from(&self) -> Monotonic {
        self.from
    }

    /// One row for each matched request, in order of T1. Of a recording that was not held they
    /// are read from its file again, as far as that can be read.
    pub fn rows(&self) -> Box<dyn Iterator<Item = RequestRow> + '_> {
        match &self.requests {
            Requests::Held { matched, known } => Box::new(known.rows(matched)),
            Requests::InFile { file, ideal, .. } => Box::new(
                rows_of_file(file, self.from, ideal.clone())
                    .into_iter()
                    .flatten(),
            ),
        }
    }
}

fn rows_of_file(
    file: &File,
    from: Monotonic,
    mut queue: IdealQueue,
) -> Option<impl Iterator<Item = RequestRow>> {
    let mut file = file.try_clone().ok()?;
    file.rewind().ok()?;
    let reader = RecordingReader::open_whole(file).ok()?;
    let context = reader.context().clone();
    let mut reading = Reading::of(reader, &context).ok()?;
    reading.leave_lines_out();
    Some(
        std::iter::from_fn(move || reading.next_part()).flat_map(move |part| {
            let matched = part.matched;
            let ideal: Vec<Nanos> = matched
                .arrivals()
                .map(|arrival| {
                    let sojourn = queue.sojourn(Nanos::new(arrival.t1.nanos_since_boot()));
                    (
                        arrival
                            .matched
                            .filter(|place| matched.is_measured(*place, from)),
                        sojourn,
                    )
                })
                .filter_map(|(place, sojourn)| place.map(|_| sojourn))
                .collect();
            let known = Known {
                ideal,
                main_causes: Vec::new(),
                from,
            };
            known.rows(&matched).collect::<Vec<_>>()
        }),
    )
}
