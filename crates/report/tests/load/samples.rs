//! Results to show: the client's side of the simulated run.

use taillab_model::Objective;
use taillab_model::load_result::{
    Capacity, ClientOnly, ClosedLoop, Floor, Generator, LoadReport, LoadStep, Mode, ObjectiveAt,
    SearchResult, Wire,
};
use taillab_model::summary::{LoadSummary, Reason, SCHEMA_VERSION, Verdict};
use taillab_model::{Distribution, Nanos, Operation, Outcome, WireTimes};
use taillab_report::load::{LoadCurve, LoadDocument, LoadRow, LoadSeries};

use crate::common;

pub(crate) struct Sample {
    pub(crate) report: LoadReport,
    pub(crate) curves: Vec<LoadCurve>,
    pub(crate) rows: Vec<LoadRow>,
}

impl Sample {
    pub(crate) fn document(&self) -> LoadDocument<'_> {
        LoadDocument {
            report: &self.report,
            curves: &self.curves,
            needs: &[(0.9999, 400_000), (0.99999, 4_000_000)],
        }
    }
}

fn generator(mode: Mode) -> Generator {
    Generator {
        mode,
        protocol: "memcached-ascii".to_owned(),
        transport: "udp".to_owned(),
        connections: 16,
        threads: 1,
        ..Generator::default()
    }
}

/// A valid report of this load and this generator.
fn report(load: Option<LoadSummary>, generator: Generator) -> LoadReport {
    LoadReport {
        schema_version: SCHEMA_VERSION,
        command: "load".to_owned(),
        target: "memcached+udp://127.0.0.1:11211".to_owned(),
        started_unix_s: 1_795_183_401,
        partial: false,
        duration_ns: Nanos::from_secs(2),
        arrival_rate_per_s: 20_000.0,
        load,
        client_minus_server: None,
        calibration: None,
        scheduled: None,
        server: ClientOnly { generator },
        observer: None,
        assertions: Vec::new(),
        fixes: Vec::new(),
        factorial: None,
        verdict: valid(),
    }
}

const fn capacity() -> Capacity {
    Capacity {
        peak_per_s: 22_989.0,
        peak_lo_per_s: Some(22_870.0),
        peak_hi_per_s: Some(23_100.0),
        blocks: 6,
    }
}

fn valid() -> Verdict {
    Verdict {
        valid: true,
        ..Verdict::default()
    }
}

/// The distribution with all its times multiplied by `factor`.
pub(crate) fn scaled(distribution: &Distribution, factor: f64) -> Distribution {
    let scale = |x: Option<Nanos>| x.map(|x| Nanos::new((x.get() as f64 * factor) as u64));
    let mut scaled = distribution.clone();
    scaled.mean = scaled.mean.map(|mean| mean * factor);
    (scaled.min, scaled.max) = (scale(scaled.min), scale(scaled.max));
    for quantile in &mut scaled.quantiles {
        quantile.value = scale(quantile.value);
        quantile.lo = scale(quantile.lo);
        quantile.hi = scale(quantile.hi);
    }
    scaled
}

fn floor(load: &LoadSummary) -> Floor {
    let mut load = load.clone();
    load.response_time = scaled(&load.response_time, 0.4);
    load.service_time = scaled(&load.service_time, 0.4);
    Floor {
        responder: "built-in null responder over udp on 127.0.0.1".to_owned(),
        load: Some(load),
        closed_loop: None,
    }
}

/// One load of `length`.
pub(crate) fn sample(length: Nanos) -> Sample {
    let run = common::sample(length);
    let rows: Vec<LoadRow> = run
        .rows
        .iter()
        .enumerate()
        .map(|(k, row)| {
            let times = row.client.expect("every simulated request has a client");
            LoadRow {
                times,
                wire: WireTimes {
                    sent: Some(times.sent + Nanos::new(2_000)),
                    received: row.server.map(|stamps| stamps.t6 + Nanos::new(9_000)),
                },
                waited: Nanos::ZERO,
                connecting: Nanos::ZERO,
                operation: row
                    .operation
                    .expect("every simulated request is a get or a set"),
                outcome: match row.operation {
                    Some(Operation::Set) => Outcome::Stored,
                    _ => Outcome::Hit,
                },
                connection: k as u32 % 16,
                thread: 0,
                port: None,
                id: None,
                warm_up: false,
            }
        })
        .collect();
    let load = run.summary.load.expect("a run has a load");
    let points = |points: &[(Nanos, f64)], part: u64| {
        let shorter = points.iter().map(|(x, p)| (Nanos::new(x.get() / part), *p));
        shorter.collect::<Vec<_>>()
    };
    let client = &run.curves[2].points;
    let curves = [
        (LoadSeries::ResponseTime, points(client, 1)),
        (LoadSeries::Lateness, points(client, 100)),
        (LoadSeries::Floor, points(client, 3)),
    ];
    let generator = Generator {
        capacity: Some(capacity()),
        wire: Some(Wire {
            stamped: load.requests,
            lateness: scaled(&load.lateness, 3.0),
            service_time: scaled(&load.service_time, 0.9),
        }),
        floor: Some(floor(&load)),
        ..generator(Mode::OpenLoop)
    };
    Sample {
        report: LoadReport {
            started_unix_s: run.summary.started_unix_s,
            ..report(Some(load), generator)
        },
        curves: curves
            .into_iter()
            .map(|(series, points)| LoadCurve { series, points })
            .collect(),
        rows,
    }
}

/// The search for p99.9 ≤ 1 ms: five probes.
pub(crate) fn search() -> LoadReport {
    let load = load_of(Nanos::from_secs(2));
    let at = |share: f64, factor: f64, held, sure| {
        let mut load = load.clone();
        load.target_utilization = Some(share);
        load.target_rate_per_s = 22_989.0 * share;
        load.sent_rate_per_s = load.target_rate_per_s * 1.001;
        load.response_time = scaled(&load.response_time, factor);
        let p999 = load.response_time.quantiles[3];
        let overloaded = share > 1.0;
        LoadStep {
            partial: false,
            overloaded,
            objective: Some(ObjectiveAt {
                value_ns: p999.value,
                lo_ns: p999.lo,
                hi_ns: p999.hi,
                held,
                sure,
            }),
            verdict: Verdict {
                valid: true,
                warnings: if overloaded {
                    vec![Reason::new(
                        "overload",
                        "the load is 110.00 % of the capacity: lower it",
                    )]
                } else {
                    Vec::new()
                },
                ..Verdict::default()
            },
            load,
        }
    };
    let generator = Generator {
        capacity: Some(capacity()),
        steps: vec![
            at(0.4, 0.3, true, true),
            at(1.1, 90.0, false, true),
            at(0.8, 1.0, false, true),
            at(0.6, 0.45, true, true),
            at(0.7, 0.52, false, false),
        ],
        found: Some(SearchResult {
            objective: Objective {
                q: 0.999,
                limit_ns: Nanos::from_millis(1),
            },
            held: true,
            rate_per_s: Some(22_989.0 * 0.6),
            utilization: Some(0.6),
            fails_at_per_s: Some(22_989.0 * 0.7),
            surely_holds_per_s: Some(22_989.0 * 0.6),
            surely_fails_per_s: Some(22_989.0 * 0.8),
        }),
        floor: Some(floor(&load)),
        ..generator(Mode::Search)
    };
    report(None, generator)
}

/// The same as a sweep of rates, without capacity and floor.
pub(crate) fn sweep() -> LoadReport {
    let mut report = search();
    let sweep = &mut report.server.generator;
    sweep.mode = Mode::Sweep;
    (sweep.found, sweep.capacity, sweep.floor) = (None, None, None);
    sweep.floor_absent_because = Some("--no-floor".to_owned());
    for step in &mut sweep.steps {
        step.objective = None;
        step.load.target_utilization = None;
    }
    report
}

/// A load and a sweep with this text wherever text comes from outside.
pub(crate) fn hostile(text: &str) -> (Sample, LoadReport) {
    let mut sample = sample(Nanos::from_millis(100));
    let report = &mut sample.report;
    let generator = &mut report.server.generator;
    generator.protocol = text.to_owned();
    generator.transport = text.to_owned();
    generator.floor.as_mut().expect("a floor").responder = text.to_owned();
    let load = report.load.as_mut().expect("a load by a schedule");
    load.arrivals.process = text.to_owned();
    report.verdict.reasons = vec![Reason::new("hostile", text)];
    let mut sweep = sweep();
    sweep.server.generator.floor_absent_because = Some(text.to_owned());
    for report in [&mut sample.report, &mut sweep] {
        report.target = text.to_owned();
        report.verdict.warnings = vec![Reason::new("hostile", text)];
    }
    (sample, sweep)
}

fn load_of(length: Nanos) -> LoadSummary {
    sample(length).report.load.expect("a load by a schedule")
}

pub(crate) fn closed_loop(mode: Mode) -> LoadReport {
    let load = load_of(Nanos::from_secs(1));
    let closed = ClosedLoop {
        outstanding: if mode == Mode::PingPong { 16 } else { 32 },
        requests: load.requests,
        duration_ns: load.duration_ns,
        answered_rate_per_s: 64_120.0,
        service_time: load.service_time.clone(),
        client: load.client,
        errors: load.errors,
    };
    let floor = Floor {
        responder: "built-in null responder over udp on 127.0.0.1".to_owned(),
        load: None,
        closed_loop: Some(ClosedLoop {
            requests: 2 * load.requests,
            answered_rate_per_s: 180_000.0,
            service_time: scaled(&load.service_time, 0.4),
            ..closed.clone()
        }),
    };
    let generator = Generator {
        closed_loop: Some(closed),
        floor: Some(floor),
        ..generator(mode)
    };
    report(None, generator)
}
