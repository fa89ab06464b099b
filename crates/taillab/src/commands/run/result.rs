//! From what was recorded to the summary, the curves and the rows: pure from here on.

use std::net::IpAddr;

use taillab_analysis::timeline::Timeline;
use taillab_analysis::verdict::{self, Evidence, VirtualWorkers};
use taillab_analysis::{
    AnalyseOptions, ClientRecord, ExplainOptions, MatchOptions, Matched, analyse, explain,
    ideal::IdealRun, match_events, statistics,
};
use taillab_load::{FleetRun, Outcome, arrivals_verdict};
use taillab_model::explanation::Cause;
use taillab_model::summary::{
    Hook, LoadSummary, Reason, Report, SCHEMA_VERSION, ServerResult, ServiceTimeSource, Verdict,
};
use taillab_model::{Monotonic, Nanos, Recording, RequestKey, address_hash};
use taillab_report::requests::RequestRow;
use taillab_report::{Curve, Series};

use super::super::explain::rows::Known;
use super::calibrate::Calibrated;
use super::measure::Recorded;
use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::{Experiment, ServerKind, Transport};

/// So many of the slowest requests are taken apart.
const SLOWEST: usize = 20;

/// Everything that the outputs need.
pub struct RunResult {
    /// The summary.
    pub summary: Report,
    /// Ideal, measured and client.
    pub curves: Vec<Curve>,
    rows: Rows,
}

/// What is known beside the recording.
pub struct Context<'a> {
    /// The settings.
    pub experiment: &'a Experiment,
    /// t and the probe's cost.
    pub calibrated: Calibrated,
    /// Which hooks gave the stamps.
    pub hooks: Vec<Hook>,
    /// The hypervisor, if the machine is virtual.
    pub hypervisor: Option<String>,
    /// Conditions of the testbed and the machine that affect the result.
    pub conditions: Vec<Reason>,
    /// Number of CPUs that the server may use.
    pub server_cpus: usize,
}

/// Matches, compares with the ideal, judges.
pub fn evaluate(recorded: Recorded, context: Context<'_>) -> Result<RunResult, Failure> {
    let Recorded {
        load,
        client,
        events,
        measure_from,
        rate_per_s,
        started_unix_s,
        server_cpus,
    } = recorded;
    let experiment = context.experiment;
    let calibrated = context.calibrated;
    let capacity = calibrated.capacity;
    let lost = events.lost;
    let recording = events.context.clone();
    let timeline = Timeline::build(events.events(), &recording);
    let mut matched = match_recording(events, &load, experiment, rate_per_s);
    matched.join_client(client_records(&load, client), measure_from);
    let service_time_source = match capacity.waits {
        Some(_) => ServiceTimeSource::VirtualWait,
        None if experiment.calibration.service_time.is_some() => ServiceTimeSource::Given,
        None => ServiceTimeSource::Calibrated,
    };
    let options = AnalyseOptions {
        service_time: calibrated.service_time,
        workers: capacity.workers,
        measure_from,
        lost_events: lost.total(),
    };
    let analysis = analyse(&matched, &options).or_exit(Exit::Failed)?;
    let explained = timeline.has_disturbances().then(|| {
        let options = ExplainOptions {
            service_time: options.service_time,
            workers: options.workers,
            measure_from,
            slowest: SLOWEST,
            is_repeated: false,
        };
        explain(&matched, &timeline, &recording, &options)
    });
    drop(timeline);
    let client_minus_server: Vec<Nanos> = matched.client_minus_server(measure_from).collect();
    let client_minus_server = statistics::distribution_of(&client_minus_server);
    let (load_summary, client_curve) = load_summary(&load, &calibrated, rate_per_s)?;
    let arrivals = matched
        .arrivals()
        .filter(|arrival| arrival.t1 >= measure_from);
    let arrival_rate_per_s =
        arrivals.count() as f64 / load_summary.duration_ns.as_secs_f64().max(1e-9);
    let mut measured = analysis.measured;
    measured.server_cpu_busy_share = server_cpus.map(|usage| usage.busy_share);
    let mut ideal = analysis.ideal;
    ideal.virtual_workers = capacity.waits.is_some();
    let mut matching = analysis.matching;
    matching.hooks = context.hooks;
    let (causes, model_fit, predictions, explanation, main_causes) = match explained {
        Some(explained) => (
            explained.causes,
            explained.model_fit,
            explained.predictions,
            Some(explained.explanation),
            explained.main_causes,
        ),
        None => Default::default(),
    };
    let mut summary = Report {
        schema_version: SCHEMA_VERSION,
        command: "run".to_owned(),
        target: experiment.server.title(),
        started_unix_s,
        partial: load.stopped.is_some(),
        duration_ns: load_summary.duration_ns,
        arrival_rate_per_s,
        observer: None,
        load: Some(load_summary),
        client_minus_server: Some(client_minus_server),
        calibration: Some(calibrated.calibration),
        server: ServerResult {
            service_time_ns: calibrated.service_time,
            service_time_source,
            measured,
            ideal,
            excess: analysis.excess,
            stages: analysis.stages,
            stages_at: analysis.stages_at,
            matching,
            overhead: calibrated.overhead,
            causes,
            model_fit,
            predictions,
            explanation,
        },
        verdict: Verdict::default(),
    };
    summary.verdict = verdict::judge(&Evidence {
        hypervisor: context.hypervisor.as_deref(),
        conditions: &context.conditions,
        virtual_workers: capacity.waits.map(|wait| VirtualWorkers {
            workers: capacity.workers.get(),
            wait,
            cpus: context.server_cpus,
        }),
        ..Evidence::of_report(&summary, &analysis.evidence)
    });
    let curve = |series, points| Curve { series, points };
    Ok(RunResult {
        summary,
        curves: vec![
            curve(Series::Ideal, analysis.ideal_ccdf),
            curve(Series::Measured, analysis.measured_ccdf),
            curve(Series::Client, client_curve),
        ],
        rows: Rows::new(matched, load, main_causes, &options),
    })
}

/// The requests that the events of a run tell of.
pub fn match_recording(
    events: Recording,
    load: &FleetRun,
    experiment: &Experiment,
    rate_per_s: f64,
) -> Matched {
    let timeout = experiment.client.timeout;
    let options = match experiment.server.transport {
        Transport::Udp => {
            // A thread's share of the keys and its share of the rate are the same.
            let keys: f64 = load
                .runs
                .iter()
                .map(|run| run.record.key_period() as f64)
                .sum();
            let period = keys / rate_per_s;
            let period = Nanos::try_from_secs_f64(period).unwrap_or(Nanos::MAX);
            MatchOptions::for_client(timeout, period)
        }
        // The servers that we know answer what they have read before they read more.
        Transport::Tcp => {
            MatchOptions::for_streams(timeout, experiment.server.kind != ServerKind::Custom)
        }
    };
    match_events(events.into_events(), &options)
}

/// All requests that left the client, in order of the actual send.
fn client_records(load: &FleetRun, client: IpAddr) -> impl Iterator<Item = ClientRecord> {
    let address = address_hash(client);
    let mut sent: Vec<ClientRecord> = load
        .iter()
        .filter(|entry| entry.outcome != Outcome::SendFailed)
        .filter_map(|entry| {
            Some(ClientRecord {
                key: RequestKey {
                    address,
                    ..entry.key?
                },
                times: entry.times,
                operation: entry.operation,
            })
        })
        .collect();
    // Each thread sends in order of intention; between threads the order may differ.
    sent.sort_by_key(|record| record.times.sent);
    sent.into_iter()
}

fn load_summary(
    load: &FleetRun,
    calibrated: &Calibrated,
    rate_per_s: f64,
) -> Result<(LoadSummary, Vec<(Nanos, f64)>), Failure> {
    let entries = || load.iter_measured();
    let response: Vec<Nanos> = entries().filter_map(|e| e.response_time()).collect();
    let (response_time, sorted) = statistics::distribution_and_sorted(&response);
    drop(response);
    let client_curve = statistics::ccdf(&sorted);
    drop(sorted);
    let service: Vec<Nanos> = entries().filter_map(|e| e.service_time()).collect();
    let service_time = statistics::distribution_of(&service);
    drop(service);
    let lateness: Vec<Nanos> = entries().map(|e| e.lateness()).collect();
    let lateness = statistics::distribution_of(&lateness);
    let duration = span(load);
    let requests = entries().count() as u64;
    let summary = LoadSummary {
        target_rate_per_s: rate_per_s,
        target_utilization: Some(
            (calibrated.capacity).utilization(rate_per_s, calibrated.service_time),
        ),
        sent_rate_per_s: requests as f64 / duration.as_secs_f64().max(1e-9),
        duration_ns: duration,
        requests,
        response_time,
        service_time,
        lateness,
        arrivals: arrivals_verdict(load.measured_sends(), rate_per_s)?,
        client: load.cpu().cost(),
        errors: load.errors(),
    };
    Ok((summary, client_curve))
}

/// From the first to the last intended send of the measurement.
fn span(load: &FleetRun) -> Nanos {
    let mut due = load.iter_measured().map(|e| e.times.intended);
    let Some(first) = due.next() else {
        return Nanos::ZERO;
    };
    due.last().unwrap_or(first).saturating_since(first)
}

impl RunResult {
    /// One row for each request, in order of T1, then those that the probe did not see whole.
    pub fn rows(&self) -> impl Iterator<Item = RequestRow> {
        self.rows.iter()
    }

    /// Where the rows' time begins.
    pub fn started(&self) -> Monotonic {
        self.rows.known.from
    }
}

/// The requests as rows.
struct Rows {
    matched: Matched,
    load: FleetRun,
    known: Known,
    /// Intended sends of the matched requests, sorted: what the probe saw.
    seen: Vec<Monotonic>,
}

impl Rows {
    fn new(
        matched: Matched,
        load: FleetRun,
        main_causes: Vec<Option<Cause>>,
        options: &AnalyseOptions,
    ) -> Self {
        let ideal = IdealRun::of(
            &matched,
            options.service_time,
            options.workers,
            options.measure_from,
        )
        .ideal;
        let mut seen: Vec<Monotonic> = matched
            .requests
            .iter()
            .filter_map(|request| request.client.map(|client| client.intended))
            .collect();
        seen.sort_unstable();
        Self {
            matched,
            load,
            known: Known {
                ideal,
                main_causes,
                from: options.measure_from,
            },
            seen,
        }
    }

    fn iter(&self) -> impl Iterator<Item = RequestRow> {
        let unseen = self
            .load
            .iter()
            .filter(|entry| self.seen.binary_search(&entry.times.intended).is_err())
            .map(|entry| RequestRow {
                server: None,
                ideal: None,
                worker: None,
                main_cause: None,
                client: Some(entry.times),
                operation: Some(entry.operation),
                warm_up: entry.warm_up,
            });
        self.known.rows(&self.matched).chain(unseen)
    }
}
