//! From the windows of a recording to its report.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use taillab_analysis::streaming::{self, ServerFacts};
use taillab_analysis::verdict::{
    self, Evidence, NAME_THE_PROTOCOL, ONE_AT_A_TIME, ScheduleEvidence, SentLoad, Supported,
    TraceFacts, VirtualWorkers,
};
use taillab_analysis::{Analysis, AnalysisError, AnalysisOptions, Matched, Window, scaling};
use taillab_console::args::AnalysisArgs;
use taillab_console::exit::{Exit, Failure};
use taillab_host::CpuUsage;
use taillab_model::interval::Interval;
use taillab_model::summary::{
    Calibration, LoadSummary, Observer, Overhead, Reason, Report, SCHEMA_VERSION, Scheduled,
    ServiceTimeSource,
};
use taillab_model::threshold::Threshold;
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
    /// The limits that the result must meet.
    pub limits: Vec<Threshold>,
}

/// What was measured before the load.
pub struct BeforeLoad {
    /// How the peak was measured.
    pub calibration: Calibration,
    /// What the probe costs.
    pub overhead: Overhead,
    /// The interval of the calibrated t.
    pub interval: Option<Interval<Nanos>>,
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
}

/// A report with the data of its figures.
pub struct Analysed {
    /// The report.
    pub report: Report,
    /// The curves of the ideal and of the measurement and, if the client is ours, of what it saw.
    pub curves: Vec<Curve>,
    /// What the files with a row for each request may have.
    pub supported: Supported,
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
        let sums = self.analysis.finish(end.lost).map_err(no_result)?;
        let observer = facts.cost.map(|cost| cost.per_request(sums.all_arrivals()));
        let (load, client_curve) = facts.load.unzip();
        let before = facts.before_load.as_ref();
        let nothing_cut = ScheduleEvidence::default();
        let partial = facts.partial || end.damage.is_some();
        let recording = TraceFacts {
            observer,
            shares_cpus: facts.shares_cpus,
            damage: end.damage.as_deref(),
            cut_off: end.cut_off,
            framed: context.framing.is_some(),
            datagrams: context.transport == "udp",
        };
        let circumstances = Evidence {
            partial,
            hypervisor: context.hypervisor.as_deref(),
            conditions: &facts.conditions,
            scheduled: load.is_some().then_some(&nothing_cut),
            recording: load.is_none().then_some(recording),
            calibration: before.map(|before| &before.calibration),
            overhead: before.map(|before| &before.overhead),
            virtual_workers: before.and_then(|before| before.virtual_workers),
            load: load.as_ref().map(|summary| SentLoad {
                summary,
                evidence: None,
                floor: None,
            }),
            on_stream: context.transport != "udp",
            ..Evidence::default()
        };
        let judgement = verdict::judge(&circumstances.with_server(sums.evidence()));
        let of_programs = observer.and_then(|observer| observer.program_ns_per_request);
        let mut overhead = before.map_or_else(Overhead::default, |before| before.overhead.clone());
        overhead.cpu_ns_per_request = of_programs.or(overhead.cpu_ns_per_request);
        let found = sums.build(
            &judgement,
            ServerFacts {
                service_time_source: self.ideal_server.service_time.source,
                workers_source: self.ideal_server.workers_source,
                busy_periods_by_cpu: self.ideal_server.busy_periods_by_cpu,
                server_cpu_busy_share: facts.server_cpus.map(|usage| usage.busy_share),
                overhead,
                virtual_workers: before.is_some_and(|before| before.virtual_workers.is_some()),
            },
        );
        let evidence = circumstances.with_server(&found.evidence);
        let verdict = judgement.verdict(&evidence, found.built());
        let of_schedule = judgement.claims_on_schedule(&evidence);
        let (supported, on_schedule) = (judgement.supported(), judgement.on_schedule());
        let calibration = before.map(|before| Calibration {
            scaling: scaling::of(&found.server, &before.calibration),
            ..before.calibration.clone()
        });
        let curve = |series, points| Curve { series, points };
        let mut curves = vec![
            curve(Series::Ideal, found.ideal_ccdf),
            curve(Series::Measured, found.measured_ccdf),
        ];
        curves.extend(client_curve.map(|points| curve(Series::Client, on_schedule.curve(points))));
        // a generator that was held up takes longer than its schedule
        let duration = end.last.unwrap_or(self.from).saturating_since(self.from);
        let same = load.is_some().then(Scheduled::same_as_measured);
        let at_worst = facts.at_worst.map(|all| supported.distribution(all));
        let scheduled = (found.scheduled.or(same)).map(|view| Scheduled {
            claims: of_schedule,
            ..view.with_worst(at_worst)
        });
        let target = facts.target;
        let load = load.map(|all| on_schedule.load(all));
        let sojourn = &found.server.measured.sojourn;
        let assertions = limits::of_server(&facts.limits, sojourn, load.as_ref(), &verdict);
        let report = Report {
            schema_version: SCHEMA_VERSION,
            command: facts.command.to_owned(),
            target: target.unwrap_or_else(|| named(context, facts.path.as_deref())),
            started_unix_s: context.started_unix_s,
            partial,
            duration_ns: duration,
            arrival_rate_per_s: found.arrivals as f64 / duration.as_secs_f64().max(1e-9),
            load,
            client_minus_server: found.client_minus_server,
            calibration,
            scheduled,
            server: found.server,
            observer,
            fixes: Vec::new(),
            factorial: None,
            verdict,
            assertions,
        };
        Ok(Analysed {
            report,
            curves,
            supported: *supported,
        })
    }
}

impl Analysed {
    /// The exit code of the command that shows this.
    pub fn exit(&self) -> Exit {
        match self.report.verdict.valid {
            true => limits::exit(&self.report.assertions),
            false => Exit::Invalid,
        }
    }
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
                 could be matched{}",
                matched_by(matched, context)
            ),
        ),
    }
}

/// By what the responses were matched in vain, as far as that was chosen, and what may help.
fn matched_by(matched: &Matched, context: &RecordingContext) -> String {
    let Some(framing) = &context.framing else {
        return match context.transport == "udp" {
            true => format!(": {ONE_AT_A_TIME}"),
            false => format!(": {NAME_THE_PROTOCOL}"),
        };
    };
    match matched.beginnings.mostly() {
        Some(other) => format!(" by {framing}: {}", other.advice()),
        None => {
            format!(" by {framing}: check that the server speaks it, or record for longer (-d)")
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_analysis::Unmatched;
    use taillab_analysis::spoken::OtherProtocol;
    use taillab_model::RequestKey;

    use super::*;

    /// What is said of responses none of which was matched.
    fn said(framing: Option<&str>, transport: &str, speaks: Option<OtherProtocol>) -> String {
        let request = Unmatched {
            key: RequestKey::default(),
            t1: Monotonic::from_nanos_since_boot(1),
            ambiguous: true,
            early: false,
            queued: true,
        };
        let mut matched = Matched {
            ambiguous: vec![Monotonic::from_nanos_since_boot(1); 9],
            unmatched: vec![request; 7],
            ..Matched::default()
        };
        matched.beginnings.add(speaks);
        let context = RecordingContext {
            server: "nginx".to_owned(),
            transport: transport.to_owned(),
            framing: framing.map(str::to_owned),
            ..RecordingContext::default()
        };
        nothing(&matched, &context).to_string()
    }

    /// A recording that was made with its protocol was to be recorded with its protocol.
    #[test]
    fn advice_is_never_what_was_done_or_cannot_work() {
        let begins = "7 requests reached nginx and 9 responses left, but none could be matched";
        let with = said(Some("http"), "tcp", None);
        let wanted = "by http: check that the server speaks it, or record for longer (-d)";
        assert_eq!(with, format!("{begins} {wanted}"));
        let tls = said(Some("http"), "tcp", Some(OtherProtocol::Tls));
        assert!(
            tls.contains("speaks TLS") && tls.ends_with("leave --protocol out"),
            "{tls}"
        );
        let without = said(None, "tcp", None);
        assert!(without.starts_with(&format!("{begins}: if the server speaks HTTP/1,")));
        assert!(
            without.contains("in the clear, name that with --protocol"),
            "{without}"
        );
        // the content of datagrams is not read
        let datagrams = said(None, "udp", None);
        assert!(!datagrams.contains("--protocol"), "{datagrams}");
    }
}
