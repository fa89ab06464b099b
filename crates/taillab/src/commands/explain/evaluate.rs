//! From a recording to its summary, its curves and its rows.

use std::fs::File;
use std::path::{Path, PathBuf};

use taillab_analysis::ideal::IdealRun;
use taillab_analysis::matcher::{InOrder, MatchOptions, Matcher};
use taillab_analysis::timeline::{Timeline, TimelineBuilder};
use taillab_analysis::trace_verdict::{TraceFacts, judge_trace};
use taillab_analysis::{
    AnalyseOptions, Evidence, ExplainOptions, Explained, Matched, analyse, explain,
};
use taillab_host::CpuUsage;
use taillab_model::summary::{
    Observer, Overhead, SCHEMA_VERSION, ServerResult, TraceSummary, Verdict,
};
use taillab_model::{Event, LostEvents, Monotonic, Nanos, RecordingContext, RecordingReader};
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
    matched: Matched,
    known: Known,
    evidence: Evidence,
    facts: TraceFacts,
}

/// Reads and analyses a recording; of a damaged one, what can be read.
pub fn file(file: File, args: &AnalysisArgs, mut beside: Beside) -> Result<Evaluated, Failure> {
    let named = |error: &dyn std::fmt::Display| match &beside.path {
        Some(path) => Failure::new(Exit::Failed, format!("{}: {error}", path.display())),
        None => Failure::new(Exit::Failed, error),
    };
    let mut reader = RecordingReader::open_whole(file).map_err(|error| named(&error))?;
    let context = reader.context().clone();
    let base = reader.base();
    let read = Read::of(&mut reader, &context)?;
    if let Some(error) = reader.failure() {
        return Err(named(error));
    }
    let damage = reader.damage().map(|damage| damage.to_string());
    if let (Some(damage), true) = (&damage, read.matched.events == 0) {
        return Err(named(damage));
    }
    beside.partial |= damage.is_some();
    let context = reader.context().clone();
    evaluate(read, context, base, reader.lost(), damage, args, beside)
}

/// Analyses events that are here, in order of time.
pub fn events(
    events: Vec<Event>,
    context: RecordingContext,
    args: &AnalysisArgs,
    beside: Beside,
) -> Result<Evaluated, Failure> {
    let base = (events.first()).map_or(Monotonic::from_nanos_since_boot(1), |event| event.at);
    let read = Read::of(events.into_iter(), &context)?;
    evaluate(
        read,
        context,
        base,
        LostEvents::default(),
        None,
        args,
        beside,
    )
}

/// What one pass over the events gives.
struct Read {
    matched: Matched,
    timeline: Timeline,
    first: Option<Monotonic>,
    last: Option<Monotonic>,
}

impl Read {
    fn of(
        events: impl Iterator<Item = Event>,
        context: &RecordingContext,
    ) -> Result<Self, Failure> {
        let options = MatchOptions::of(context).or_exit(Exit::Failed)?;
        let mut events = InOrder::new(events, options.disorder);
        let mut matcher = Matcher::new(options);
        let mut timeline = TimelineBuilder::new(context);
        let (mut first, mut last) = (None, None);
        for event in events.by_ref() {
            first = first.or(Some(event.at));
            last = Some(event.at);
            matcher.observe(&event);
            timeline.observe(&event);
        }
        let late_events = events.late();
        let mut matched = matcher.finish();
        matched.late_events = late_events;
        Ok(Self {
            matched,
            timeline: timeline.finish(),
            first,
            last,
        })
    }
}

fn evaluate(
    read: Read,
    context: RecordingContext,
    base: Monotonic,
    lost: LostEvents,
    damage: Option<String>,
    args: &AnalysisArgs,
    beside: Beside,
) -> Result<Evaluated, Failure> {
    let Read {
        matched,
        timeline,
        first,
        last,
    } = read;
    let begins = context
        .measure_from_ns
        .map_or(base, Monotonic::from_nanos_since_boot);
    let first = first.unwrap_or(base);
    let from = begins.max(first);
    let duration = last.unwrap_or(from).saturating_since(from);
    if matched.requests.is_empty() {
        return Err(nothing(&matched, &context));
    }
    let ideal_server = IdealServer::of(args, &context, &matched, &timeline, from)?;
    let options = AnalyseOptions {
        service_time: ideal_server.service_time,
        workers: ideal_server.workers,
        measure_from: from,
        lost_events: lost.total(),
    };
    let analysis = analyse(&matched, &options).or_exit(Exit::Failed)?;
    let explain_options = ExplainOptions {
        service_time: options.service_time,
        workers: options.workers,
        measure_from: from,
        slowest: args.slowest.unwrap_or(SLOWEST),
    };
    let explained = (timeline.has_disturbances())
        .then(|| explain(&matched, &timeline, &context, &explain_options));
    let is_explained = explained.is_some();
    let Explained {
        causes,
        model_fit,
        predictions,
        explanation,
        main_causes,
    } = explained.unwrap_or_default();
    let arrivals = matched
        .arrivals()
        .filter(|arrival| arrival.t1 >= from)
        .count();
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
            service_time_ns: options.service_time,
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
            explanation: is_explained.then_some(explanation),
        },
        observer: None,
        verdict: Verdict::default(),
    };
    let ideal = IdealRun::of(&matched, options.service_time, options.workers, from).ideal;
    let curve = |series, points| Curve { series, points };
    let mut evaluated = Evaluated {
        summary,
        curves: vec![
            curve(Series::Ideal, analysis.ideal_ccdf),
            curve(Series::Measured, analysis.measured_ccdf),
        ],
        matched,
        known: Known {
            ideal,
            main_causes,
            from,
        },
        evidence: analysis.evidence,
        facts,
    };
    evaluated.judge();
    Ok(evaluated)
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
        (self.matched.requests.len() + self.matched.unmatched.len()) as u64
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
        let places = self.matched.measured_places(self.known.from);
        places.map(|place| self.matched.requests.sojourn(place))
    }

    /// Where the rows' time begins.
    pub fn from(&self) -> Monotonic {
        self.known.from
    }

    /// One row for each matched request, in order of T1.
    pub fn rows(&self) -> impl Iterator<Item = RequestRow> {
        self.known.rows(&self.matched)
    }
}
