//! From the windows of a recording to its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use taillab_analysis::verdict::{self, Evidence, TraceFacts, VirtualWorkers};
use taillab_analysis::{
    Analysis, AnalysisError, AnalysisOptions, Matched, Window, findings, ratio, scaling, streaming,
};
use taillab_console::args::AnalysisArgs;
use taillab_console::exit::{Exit, Failure};
use taillab_host::CpuUsage;
use taillab_model::summary::{
    Calibration, LoadSummary, Observer, Overhead, Reason, Report, SCHEMA_VERSION, Scheduled,
    ServerResult, ServiceTimeSource, Verdict,
};
use taillab_model::{Distribution, Monotonic, Nanos, RecordingContext, Tid};
use taillab_report::{Curve, Series};

use super::limits;
use super::rows::Rows;
use super::service_time::{IdealServer, ServiceTime};

/// What is known about a measurement besides its recording.
#[derive(Default)]
pub struct MeasurementFacts {
    /// The command that shows the result.
    pub command: &'static str,
    /// The recording's file, for messages.
    pub path: Option<PathBuf>,
    /// The name of what was measured, if the caller knows a better one than the recording.
    pub target: Option<String>,
    /// The server's process, if it still runs.
    pub process: Option<Tid>,
    /// Whether the recording ended early.
    pub partial: bool,
    /// Whether the observer had no CPU to itself.
    pub shares_cpus: bool,
    /// Use of the server's CPUs.
    pub server_cpus: Option<CpuUsage>,
    /// What was measured before the load.
    pub before_load: Option<BeforeLoad>,
    /// The load as the client saw it, with its curve, where the client is ours.
    pub load: Option<(LoadSummary, Vec<(Nanos, f64)>)>,
    /// What it waited from when each request was due, also while something held it up; `None` where nothing did.
    pub at_worst: Option<Distribution>,
    /// Conditions of the testbed and the machine that affect the result.
    pub conditions: Vec<Reason>,
    /// The cost of recording; only `trace` measures it.
    pub cost: Option<RecordingCost>,
}

/// What was measured before the load.
pub struct BeforeLoad {
    /// How the peak was measured.
    pub calibration: Calibration,
    /// What the probe costs.
    pub overhead: Overhead,
    /// The interval of the calibrated t.
    pub interval: Option<(Nanos, Nanos)>,
    /// The workers, where they wait on a timer instead of using a CPU.
    pub virtual_workers: Option<VirtualWorkers>,
}

impl BeforeLoad {
    /// What a request would cost without the probe, where `with` includes its cost.
    fn without_probe(&self, with: ServiceTime) -> Option<Nanos> {
        let loss = self.overhead.throughput_loss?;
        let t = with.t.as_secs_f64() * (1.0 - loss.clamp(0.0, 1.0));
        let has_probe = with.source == ServiceTimeSource::BusyPeriods;
        Nanos::try_from_secs_f64(t).filter(|t| has_probe && *t > Nanos::ZERO)
    }

    /// Removes what does not describe virtual workers.
    fn describe(&self, server: &mut ServerResult) {
        server.ideal.virtual_workers = self.virtual_workers.is_some();
        if self.virtual_workers.is_some() {
            // they wait without using a CPU, so CPU time does not say how busy they are
            server.measured.utilization = None;
            server.measured.busy_ns_per_request = None;
        }
    }
}

impl IdealServer {
    /// Fills in where t and the workers come from.
    fn describe(&self, server: &mut ServerResult) {
        let t = self.service_time;
        server.service_time_source = t.source;
        server.service_time_lo_ns = t.interval.map(|(lo, _)| lo);
        server.service_time_hi_ns = t.interval.map(|(_, hi)| hi);
        server.ideal.workers_source = self.workers_source;
        server
            .busy_periods_by_cpu
            .clone_from(&self.busy_periods_by_cpu);
        if !self.is_known() {
            server.service_time_ns = Nanos::ZERO;
            server.ideal.utilization = 0.0;
        }
    }
}

/// A report with the data of its figures.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// The curves of the ideal and of the measurement and, if the client is ours, of what it saw.
    pub curves: Vec<Curve>,
}

/// What recording cost, measured while it ran.
#[derive(Clone, Copy)]
pub struct RecordingCost {
    /// Events recorded.
    pub events: u64,
    /// CPU time of taillab's own threads, as a share of one CPU.
    pub cpu_share: f64,
    /// Time in the eBPF programs per event, where it was counted.
    pub program_ns_per_event: Option<f64>,
    /// Bytes written to disk per second.
    pub written_bytes_per_s: f64,
    /// taillab's peak resident memory, in bytes.
    pub peak_memory_bytes: u64,
}

impl RecordingCost {
    fn per_request(self, requests: u64) -> Observer {
        let events_per_request = self.events as f64 / requests.max(1) as f64;
        let of_programs = |ns_per_event: f64| ns_per_event * events_per_request;
        Observer {
            cpu_share: self.cpu_share,
            program_ns_per_request: self.program_ns_per_event.map(of_programs),
            events_per_request,
            written_bytes_per_s: self.written_bytes_per_s,
            peak_memory_bytes: self.peak_memory_bytes,
        }
    }
}

/// How the reading of a recording ended.
#[derive(Default)]
pub struct End {
    /// The time of the last event.
    pub last: Option<Monotonic>,
    /// Events that are missing from the recording.
    pub lost: u64,
    /// What is damaged in the file, in words.
    pub damage: Option<String>,
    /// Whether the end of the file is missing.
    pub cut_off: bool,
}

/// The analysis of a recording while its windows arrive.
pub struct Pass<'c> {
    context: &'c RecordingContext,
    from: Monotonic,
    ideal_server: IdealServer,
    analysis: Analysis<'c>,
    /// The rows of the requests, where they are written.
    pub rows: Option<Rows>,
    /// Whether disturbances were recorded, without which requests have no accounts.
    has_accounts: bool,
}

impl<'c> Pass<'c> {
    /// Determines the ideal server from the first window, and from what was measured `before` the load.
    /// `process` is the server's process, if it still runs.
    ///
    /// # Errors
    /// When the recording does not show what the analysis needs.
    pub fn begin(
        args: &AnalysisArgs,
        context: &'c RecordingContext,
        first: &Window,
        from: Monotonic,
        exact: usize,
        (process, before): (Option<Tid>, Option<&BeforeLoad>),
    ) -> Result<Self, Failure> {
        let (matched, timeline) = (&first.matched, &first.timeline);
        // if t is known, the analysis itself reports why there is nothing
        if matched.requests.is_empty() && context.service_time_ns.is_none() {
            return Err(nothing(matched, context));
        }
        let calibrated = before.and_then(|before| before.interval);
        let ideal_server = IdealServer::of(args, context, (matched, timeline), from, calibrated)?;
        let service_time = ideal_server.service_time;
        let unprobed = before.and_then(|before| before.without_probe(service_time));
        let options = AnalysisOptions {
            slowest: args.slowest.unwrap_or(streaming::SLOWEST),
            exact,
            process,
            service_time_known: ideal_server.is_known(),
            interval: service_time.interval,
            after_response: service_time.after_response,
            unprobed,
            busy_periods: ideal_server.busy_periods,
            ..AnalysisOptions::new(service_time.t, ideal_server.workers, from)
        };
        Ok(Self {
            context,
            from,
            ideal_server,
            analysis: Analysis::new(context, options),
            rows: None,
            has_accounts: false,
        })
    }

    /// Takes the next window.
    pub fn push(&mut self, window: &Arc<Window>) {
        match &mut self.rows {
            Some(rows) => {
                self.has_accounts |= window.timeline.has_disturbances();
                rows.came(&window.matched, self.has_accounts);
                let ideal =
                    (self.analysis).push(window, |entry, labels| rows.account(entry, labels));
                rows.write(&window.matched, ideal);
            }
            None => {
                self.analysis.push(window, |_, _| {});
            }
        }
    }

    /// The report, after the last window.
    ///
    /// # Errors
    /// When no request of the measurement was matched.
    pub fn conclude(self, end: End, facts: MeasurementFacts) -> Result<Analysed, Failure> {
        let context = self.context;
        let found = self.analysis.finish(end.lost).map_err(no_result)?;
        let mut server = found.server;
        self.ideal_server.describe(&mut server);
        server.measured.server_cpu_busy_share = facts.server_cpus.map(|usage| usage.busy_share);
        let (mut calibration, mut virtual_workers) = (None, None);
        if let Some(before) = facts.before_load {
            before.describe(&mut server);
            server.overhead = before.overhead;
            calibration = Some(Calibration {
                scaling: scaling::of(&server, &before.calibration),
                ..before.calibration
            });
            virtual_workers = before.virtual_workers;
        }
        let observer = facts.cost.map(|cost| cost.per_request(found.all_arrivals));
        if let Some(ns) = observer.and_then(|observer| observer.program_ns_per_request) {
            server.overhead.cpu_ns_per_request = Some(ns);
        }
        let (load, client_curve) = facts.load.unzip();
        // a generator that was held up takes longer than its schedule
        let duration = end.last.unwrap_or(self.from).saturating_since(self.from);
        let on_schedule = load.is_some().then(Scheduled::same_as_measured);
        let scheduled = found.scheduled.or(on_schedule);
        let target = facts.target;
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            command: facts.command.to_owned(),
            target: target.unwrap_or_else(|| named(context, facts.path.as_deref())),
            started_unix_s: context.started_unix_s,
            partial: facts.partial || end.damage.is_some(),
            duration_ns: duration,
            arrival_rate_per_s: found.arrivals as f64 / duration.as_secs_f64().max(1e-9),
            load,
            client_minus_server: found.client_minus_server,
            calibration,
            scheduled: scheduled.map(|view| view.with_worst(facts.at_worst)),
            server,
            observer,
            fixes: Vec::new(),
            factorial: None,
            verdict: Verdict::default(),
            assertions: Vec::new(),
        };
        let curve = |series, points| Curve { series, points };
        let mut curves = vec![
            curve(Series::Ideal, found.ideal_ccdf),
            curve(Series::Measured, found.measured_ccdf),
        ];
        curves.extend(client_curve.map(|points| curve(Series::Client, points)));
        let recording = TraceFacts {
            observer: report.observer,
            shares_cpus: facts.shares_cpus,
            damage: end.damage.as_deref(),
            cut_off: end.cut_off,
            framed: context.framing.is_some(),
        };
        let evidence = Evidence {
            hypervisor: context.hypervisor.as_deref(),
            conditions: &facts.conditions,
            virtual_workers,
            on_stream: context.transport != "udp",
            recording: report.load.is_none().then_some(recording),
            ..Evidence::of_report(&report, &found.evidence)
        };
        let verdict = verdict::judge(&evidence);
        let of_schedule = verdict::judge_schedule(&evidence, &verdict);
        report.verdict = verdict;
        if let Some(view) = &mut report.scheduled {
            view.claims = of_schedule;
        }
        let ideal = &found.ideal_as_independent;
        Ok(Analysed::without_withdrawn(
            (report, curves),
            ideal,
            found.disturbances,
        ))
    }
}

impl Analysed {
    /// A judged report with its curves, without what its verdict withdraws. Every output is made from this: none has
    /// to know what is withdrawn. `ideal` and `disturbances`: see [`findings::renew`].
    pub(super) fn without_withdrawn(
        (mut report, mut curves): (Report, Vec<Curve>),
        ideal: &Distribution,
        disturbances: bool,
    ) -> Self {
        let of_client = |curve: &&mut Curve| curve.series == Series::Client;
        let (client, server): (Vec<&mut Curve>, Vec<&mut Curve>) =
            curves.iter_mut().partition(of_client);
        verdict::withdraw(&mut report, points(server), points(client));
        // only now is it known where t comes from, what the probe cost, and what is withdrawn
        findings::renew(&mut report.server, ideal, disturbances);
        report.server.ratio = ratio::divided(&report.server);
        Self { report, curves }
    }

    /// The exit code of the command that shows this.
    pub fn exit(&self) -> Exit {
        match self.report.verdict.valid {
            true => limits::exit(&self.report.assertions),
            false => Exit::Invalid,
        }
    }
}

fn points(curves: Vec<&mut Curve>) -> impl Iterator<Item = &mut Vec<(Nanos, f64)>> {
    curves.into_iter().map(|curve| &mut curve.points)
}

/// The name of the server, or else of the file.
fn named(context: &RecordingContext, path: Option<&Path>) -> String {
    match (context.server.as_str(), path) {
        ("", Some(path)) => path.display().to_string(),
        (server, _) => server.to_owned(),
    }
}

/// Why there is no result. Requests that came in and were not answered are a result of the server, if a poor one.
fn no_result(error: AnalysisError) -> Failure {
    let exit = match error {
        AnalysisError::OnlyWarmUp { .. } | AnalysisError::NothingMatched { .. } => Exit::Invalid,
        _ => Exit::Failed,
    };
    Failure::new(exit, error)
}

/// Why there is nothing to analyse.
fn nothing(matched: &Matched, context: &RecordingContext) -> Failure {
    let server = match context.server.as_str() {
        "" => "the server",
        name => name,
    };
    let of_no_request = matched.without_request.len() + matched.from_before as usize;
    let responses = matched.ambiguous.len() + of_no_request;
    let arrivals = matched.unmatched.len();
    match (arrivals, responses) {
        (0, 0) => Failure::failed(format!(
            "no request reached {server}: check that clients use this port, or trace for longer \
             (-d)"
        )),
        (_, 0) => Failure::new(
            Exit::Invalid,
            format!(
                "{arrivals} requests reached {server} and none was answered: check that it works, \
                 or trace for longer (-d)"
            ),
        ),
        _ => Failure::new(
            Exit::Invalid,
            format!(
                "{arrivals} requests reached {server} and {responses} responses left, but none \
                 could be matched: record it with its protocol (taillab trace --protocol NAME)"
            ),
        ),
    }
}
