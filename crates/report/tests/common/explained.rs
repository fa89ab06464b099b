//! The simulated server with everything that an explanation can say about it. The figures are
//! consistent with each other; they are not computed from the sample.

#![allow(dead_code, reason = "each test uses its own part")]

use taillab_model::explanation::{
    Activity, ApplicationAt, ApplicationPart, Band, BandPart, Cause, CauseShare, Clustering,
    Culprit, DividedRatio, Explanation, FanOut, Finding, FitPoint, HeatMap, Inversions, LongEvents,
    ModelFit, NamedCurve, PredictedPoint, Prediction, RatioPart, Share, SlowRequest, Stretch,
    ThreadActivity, UpstreamAnswers, WorkerShare,
};
use taillab_model::summary::{Observer, Report, SCHEMA_VERSION, ServerResult, ServiceTimeSource};
use taillab_model::{Distribution, Monotonic, Nanos, Tid};
use taillab_report::{Curve, Document, Series};

use super::Sample;

/// Everything that the outputs of a trace take.
pub(crate) struct TraceSample {
    pub(crate) summary: Report,
    pub(crate) environment: serde_json::Value,
    pub(crate) curves: Vec<Curve>,
}

impl TraceSample {
    pub(crate) fn report(&self) -> Document<'_> {
        Document {
            report: &self.summary,
            environment: Some(&self.environment),
            experiment_toml: None,
            curves: &self.curves,
        }
    }

    pub(crate) fn explanation(&mut self) -> &mut Explanation {
        self.summary
            .server
            .explanation
            .as_mut()
            .expect("a sample has one")
    }
}

const WORKER: Tid = 4_713;

/// A server that waits for another one where it is slow.
fn application() -> Vec<ApplicationAt> {
    let at = |q, requests, on_cpu: f64, upstream: f64| {
        let parts = [
            (ThreadActivity::OnCpu, on_cpu),
            (ThreadActivity::Upstream, upstream),
        ];
        let parts = parts.into_iter().filter(|(_, mean_ns)| *mean_ns > 0.0);
        ApplicationAt {
            q,
            requests,
            mean_ns: on_cpu + upstream,
            parts: parts
                .map(|(doing, mean_ns)| ApplicationPart { doing, mean_ns })
                .collect(),
        }
    };
    vec![
        at(0.5, 700, 9_400.0, 0.0),
        at(0.99, 14, 11_200.0, 240_000.0),
    ]
}

/// The one that it waits for: one of a hundred answers takes long.
fn upstreams() -> Vec<UpstreamAnswers> {
    let took = |n: u64| {
        Nanos::new(if n < 3_900 {
            90_000 + n
        } else {
            240_000 + 50 * n
        })
    };
    let took: Vec<Nanos> = (0..4_000).map(took).collect();
    vec![UpstreamAnswers {
        server: "10.0.0.7:5432".to_owned(),
        answers: Distribution::from_sorted(&took),
    }]
}

/// A trace of `length`, explained.
pub(crate) fn trace(length: Nanos) -> TraceSample {
    let sample = run(length);
    let mut result = sample.summary.server;
    result.service_time_source = ServiceTimeSource::BusyTime;
    result.overhead.pairs = 0;
    result.overhead.throughput_loss = None;
    result.overhead.throughput_loss_lo = None;
    result.overhead.throughput_loss_hi = None;
    result.overhead.cpu_ns_per_request = None;
    result.matching.client_responses = 0;
    result.matching.client_matched = 0;
    result.matching.hooks[3].lost_precision =
        Some("the return to user space is taken at the system call’s exit".to_owned());
    let requests = result.matching.responses as f64;
    TraceSample {
        summary: Report {
            schema_version: SCHEMA_VERSION,
            command: "trace".to_owned(),
            target: "pid 4711 (memcached), port 11211 over UDP".to_owned(),
            started_unix_s: sample.summary.started_unix_s,
            partial: false,
            duration_ns: length,
            arrival_rate_per_s: requests / length.as_secs_f64(),
            load: None,
            client_minus_server: None,
            calibration: None,
            scheduled: None,
            server: result,
            observer: Some(Observer {
                cpu_share: 0.071,
                program_ns_per_request: Some(812.0),
                events_per_request: 11.4,
                written_bytes_per_s: 4_310_000.0,
                peak_memory_bytes: 142_000_000,
            }),
            fixes: Vec::new(),
            factorial: None,
            verdict: sample.summary.verdict,
            assertions: Vec::new(),
        },
        environment: sample.environment,
        curves: (sample.curves.into_iter())
            .filter(|curve| curve.series != Series::Client)
            .collect(),
    }
}

/// A run of `length`, explained.
pub(crate) fn run(length: Nanos) -> Sample {
    let mut sample = super::sample(length);
    let measured = points_of(&sample, Series::Measured);
    let ideal = points_of(&sample, Series::Ideal);
    let started = sample.started;
    explain(&mut sample.summary.server, &measured, &ideal, started);
    sample
}

fn points_of(sample: &Sample, series: Series) -> Vec<(Nanos, f64)> {
    let found = sample.curves.iter().find(|curve| curve.series == series);
    found.expect("every curve is there").points.clone()
}

pub(crate) fn kworker() -> Culprit {
    Culprit::Thread {
        name: "kworker/0:1".to_owned(),
        pid: Some(12),
        tid: None,
        process: None,
    }
}

pub(crate) fn dpkg() -> Culprit {
    Culprit::Thread {
        name: "dpkg".to_owned(),
        pid: Some(30_122),
        tid: None,
        process: None,
    }
}

fn net_rx() -> Culprit {
    Culprit::Softirq {
        name: "NET_RX".to_owned(),
    }
}

fn timer() -> Culprit {
    Culprit::Interrupt {
        name: "local timer".to_owned(),
        number: None,
    }
}

fn worker() -> Culprit {
    Culprit::Worker {
        name: "memcached".to_owned(),
        tid: WORKER,
    }
}

fn share(value: f64) -> Share {
    let (one, other) = (value * 0.93, (value * 1.06).min(1.0));
    Share {
        value,
        lo: Some(one.min(other)),
        hi: Some(one.max(other)),
    }
}

fn explain(
    result: &mut ServerResult,
    measured: &[(Nanos, f64)],
    ideal: &[(Nanos, f64)],
    started: Monotonic,
) {
    let n = result.matching.matched;
    result.causes = causes(n);
    result.ratio = ratio(result);
    result.model_fit = Some(fit(result));
    result.predictions = predictions(result);
    let scaled = |points: &[(Nanos, f64)], by: f64| -> Vec<(Nanos, f64)> {
        (points.iter())
            .map(|&(ns, share)| (Nanos::new((ns.get() as f64 * by) as u64), share))
            .collect()
    };
    let curve = |name: &str, points| NamedCurve {
        name: name.to_owned(),
        points,
    };
    result.explanation = Some(Explanation {
        bands: bands(n),
        around: Vec::new(),
        findings: findings(),
        inversions: Inversions {
            overtaken: 412,
            share: 412.0 / n.max(1) as f64,
            pairs: vec![(WORKER, WORKER, 380), (WORKER, WORKER + 1, 32)],
        },
        workers: (0..2)
            .map(|i| WorkerShare {
                tid: WORKER + i,
                name: "memcached".to_owned(),
                requests: n / 2,
                busy_share: 0.38 - 0.02 * f64::from(i),
                mean_sojourn_ns: 141_000.0 + 9_000.0 * f64::from(i),
            })
            .collect(),
        slowest: (0..12).map(|i| slow_request(i, started)).collect(),
        heat_map: heat_map(),
        clustering: Some(Clustering {
            q: 0.99,
            autocorrelation: [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500]
                .map(|lag: u32| (lag, 0.93 * (-f64::from(lag) / 60.0).exp()))
                .to_vec(),
            in_runs_share: 0.94,
            episodes: 188,
            mean_episode_requests: 18.3,
        }),
        application: application(),
        upstreams: upstreams(),
        bursts: 0,
        burst_roots: Vec::new(),
        slow_requests: None,
        hypervisor: None,
        sleeping: None,
        fan_out: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000]
            .map(|servers: u32| {
                let at = |q: f64| {
                    let share = 1.0 - q.powf(1.0 / f64::from(servers));
                    measured.iter().find(|p| p.1 <= share).map(|p| p.0)
                };
                FanOut {
                    servers,
                    p50_ns: at(0.5),
                    p99_ns: at(0.99).filter(|_| servers <= 200),
                }
            })
            .to_vec(),
        curves: vec![
            curve("multi_queue_ideal", scaled(ideal, 1.35)),
            curve("replayed", scaled(measured, 1.02)),
            curve("rt-priority", scaled(ideal, 1.22)),
            curve("without background", scaled(ideal, 1.1)),
        ],
        limits: vec!["frequency changes: this CPU does not report them".to_owned()],
    });
}

fn causes(n: u64) -> Vec<CauseShare> {
    let of = |cause, culprit, above_p99: f64, all: f64, events: u64, mean_ns: f64, each: f64| {
        CauseShare {
            cause,
            culprit,
            share: share(all),
            excess_share_above_p99: share(above_p99),
            excess_ns: Nanos::new((all * 4.1e9) as u64),
            requests: ((events as f64 * each) as u64).min(n),
            events,
            mean_event_ns: mean_ns,
            median_event_ns: (events > 0).then_some(Nanos::new((0.8 * mean_ns) as u64)),
            longest_event_ns: (events > 0).then_some(Nanos::new((4.1 * mean_ns) as u64)),
            long_events: (events > 6).then_some(LongEvents {
                events: events / 6,
                mean_ns: 3.8 * mean_ns,
            }),
            requests_per_event: each,
        }
    };
    vec![
        of(
            Cause::Background,
            None,
            0.871,
            0.642,
            212,
            2_104_000.0,
            191.3,
        ),
        of(Cause::Softirq, None, 0.052, 0.118, 41_230, 8_400.0, 1.2),
        of(Cause::Irq, None, 0.021, 0.041, 18_220, 3_100.0, 1.1),
        of(Cause::Wakeup, None, 0.018, 0.094, 120_331, 4_700.0, 1.0),
        of(Cause::StackRx, None, 0.004, 0.031, 0, 0.0, 0.0),
        of(Cause::StackTx, None, 0.003, 0.028, 0, 0.0, 0.0),
        of(Cause::SlowService, None, 0.011, 0.021, 1_733, 31_000.0, 1.4),
        of(Cause::Unobserved, None, 0.007, 0.004, 12, 118_000.0, 2.6),
        of(Cause::Unexplained, None, 0.013, 0.021, 0, 0.0, 0.0),
        of(
            Cause::Background,
            Some(kworker()),
            0.702,
            0.511,
            168,
            2_310_000.0,
            201.0,
        ),
        of(
            Cause::Background,
            Some(dpkg()),
            0.169,
            0.131,
            44,
            1_318_000.0,
            154.2,
        ),
        of(
            Cause::Softirq,
            Some(net_rx()),
            0.052,
            0.118,
            41_230,
            8_400.0,
            1.2,
        ),
        of(
            Cause::Irq,
            Some(timer()),
            0.021,
            0.041,
            18_220,
            3_100.0,
            1.1,
        ),
        of(
            Cause::SlowService,
            Some(worker()),
            0.011,
            0.021,
            1_733,
            31_000.0,
            1.4,
        ),
    ]
}

fn bands(n: u64) -> Vec<Band> {
    let of = |from_q: f64, to_q: f64, sojourn: f64, ideal: f64, shares: [f64; 9]| {
        let causes = [
            Cause::Background,
            Cause::Softirq,
            Cause::Irq,
            Cause::Wakeup,
            Cause::StackRx,
            Cause::StackTx,
            Cause::SlowService,
            Cause::Unobserved,
            Cause::Unexplained,
        ];
        Band {
            from_q,
            to_q,
            requests: ((to_q - from_q) * n as f64).round() as u64,
            mean_sojourn_ns: sojourn,
            mean_ideal_ns: ideal,
            parts: (causes.into_iter().zip(shares))
                .map(|(cause, value)| BandPart {
                    cause,
                    mean_excess_ns: value * (sojourn - ideal),
                    share: share(value),
                })
                .collect(),
        }
    };
    vec![
        of(
            0.0,
            0.9,
            98_200.0,
            91_400.0,
            [0.06, 0.19, 0.08, 0.41, 0.14, 0.11, 0.03, 0.0, -0.02],
        ),
        of(
            0.9,
            0.99,
            402_000.0,
            254_000.0,
            [0.58, 0.14, 0.05, 0.11, 0.03, 0.03, 0.03, 0.01, 0.02],
        ),
        of(
            0.99,
            0.999,
            1_130_000.0,
            341_000.0,
            [0.85, 0.06, 0.02, 0.03, 0.01, 0.01, 0.01, 0.0, 0.01],
        ),
        of(
            0.999,
            1.0,
            2_150_000.0,
            397_000.0,
            [0.93, 0.03, 0.01, 0.01, 0.0, 0.0, 0.01, 0.01, 0.0],
        ),
    ]
}

fn findings() -> Vec<Finding> {
    vec![
        Finding {
            key: None,
            text: "`kworker/0:1` and `dpkg` on the core: 212 times, 2.10 ms each, delayed 40,555 requests, \
                   87 % of the excess above p99; p99.9 with `rt-priority`: 723 µs."
                .to_owned(),
            advice: Some("chrt -a -f -p 50 4711".to_owned()),
            cause: Some(Cause::Background),
            inconclusive: false,
        },
        Finding {
            key: None,
            text: "Slow requests come in bursts: 94 % of those above p99 come in runs.".to_owned(),
            advice: None,
            cause: None,
            inconclusive: false,
        },
        Finding {
            key: None,
            text: "Wake-ups take 41 % of the excess of the fast requests; whether power states \
                   are to blame cannot be told, because this kernel does not report them."
                .to_owned(),
            advice: Some("taillab trace --disturbances idle,wake -p 4711".to_owned()),
            cause: Some(Cause::Wakeup),
            inconclusive: true,
        },
    ]
}

fn scaled(ns: Nanos, by: f64) -> Nanos {
    Nanos::new((ns.get() as f64 * by).round() as u64)
}

fn fit(result: &ServerResult) -> ModelFit {
    let errors = [(0.5, 0.004), (0.9, -0.011), (0.99, 0.021), (0.999, 0.031)];
    ModelFit {
        model: "1 worker, FIFO by T2, 3 kinds of absence".to_owned(),
        largest_error: 0.031,
        points: errors
            .into_iter()
            .filter_map(|(q, error)| {
                let measured_ns = result.measured.sojourn.quantile(q)?;
                Some(FitPoint {
                    q,
                    measured_ns,
                    replayed_ns: scaled(measured_ns, 1.0 + error),
                    error,
                })
            })
            .collect(),
        largest_borne: 0.05,
        good: true,
    }
}

/// Measured ÷ ideal at p50 and p99, divided among three parts.
fn ratio(result: &ServerResult) -> Vec<DividedRatio> {
    let divided = |q: f64| {
        let measured = result.measured.sojourn.quantile(q)?.get() as f64;
        let ratio = measured / result.ideal.sojourn.quantile(q)?.get() as f64;
        let part = |what: &str, causes: &[Cause], share: f64| RatioPart {
            what: what.to_owned(),
            causes: causes.to_vec(),
            value: share * (ratio - 1.0),
        };
        let parts = vec![
            part(
                "wake-ups and idle exits",
                &[Cause::Wakeup, Cause::IdleExit],
                0.6,
            ),
            part("transmit", &[Cause::StackTx], 0.39),
            part("the probe", &[], 0.01),
        ];
        Some(DividedRatio { q, ratio, parts })
    };
    [0.5, 0.99].into_iter().filter_map(divided).collect()
}

fn predictions(result: &ServerResult) -> Vec<Prediction> {
    let points = |over_ideal: [f64; 3]| {
        ([0.5, 0.99, 0.999].into_iter().zip(over_ideal))
            .filter_map(|(q, factor)| {
                let measured_ns = result.measured.sojourn.quantile(q)?;
                let predicted_ns = scaled(result.ideal.sojourn.quantile(q)?, factor);
                Some(PredictedPoint {
                    q,
                    measured_ns,
                    predicted_ns,
                    lo_ns: Some(scaled(predicted_ns, 0.93)),
                    hi_ns: Some(scaled(predicted_ns, 1.08)),
                })
            })
            .collect()
    };
    let of = |change: &str, description: &str, over_ideal| Prediction {
        change: change.to_owned(),
        description: description.to_owned(),
        command: None,
        removes: vec![Cause::Background],
        cost: None,
        points: points(over_ideal),
    };
    vec![
        of(
            "without background",
            "no other thread on the server’s core",
            [1.01, 1.16, 1.18],
        ),
        Prediction {
            command: Some("chrt -a -f -p 50 4711".to_owned()),
            cost: Some(
                "a server that never sleeps would starve everything else on its core".to_owned(),
            ),
            ..of(
                "rt-priority",
                "the server’s threads under SCHED_FIFO",
                [1.01, 1.18, 1.22],
            )
        },
        Prediction {
            command: Some("taskset -a -c -p 3 4711".to_owned()),
            cost: Some("one core runs nothing but the server".to_owned()),
            ..of(
                "cpu-isolation",
                "all other threads moved to other cores",
                [1.01, 1.31, 1.52],
            )
        },
        of(
            "without softirq",
            "packets received on another core",
            [0.98, 1.92, 2.96],
        ),
        Prediction {
            command: Some("echo 2 > /proc/irq/26/smp_affinity_list".to_owned()),
            cost: Some("one core serves interrupts only".to_owned()),
            ..of(
                "irq-affinity",
                "the NIC’s interrupts on another core",
                [1.0, 1.96, 3.02],
            )
        },
        of("without wakeup", "the worker polls", [0.97, 2.0, 3.1]),
    ]
}

/// Length in µs, cause, culprit, inherited, who is on CPU 0 meanwhile.
type Piece = (u64, Cause, Option<Culprit>, bool, Option<Culprit>);

/// A request that found the core taken, with stretches and activities that fill T1 to T6.
pub(crate) fn slow_request(place: u64, started: Monotonic) -> SlowRequest {
    let us = Nanos::from_micros;
    let held = 2_700 - 90 * place;
    let pieces: Vec<Piece> = vec![
        (5, Cause::StackRx, None, false, Some(net_rx())),
        (
            held / 2,
            Cause::Background,
            Some(kworker()),
            true,
            Some(kworker()),
        ),
        (
            held - held / 2,
            Cause::Background,
            Some(dpkg()),
            true,
            Some(dpkg()),
        ),
        (9, Cause::Softirq, Some(net_rx()), true, Some(net_rx())),
        (140 + 10 * place, Cause::Queue, None, false, Some(worker())),
        (3, Cause::Irq, Some(timer()), false, Some(timer())),
        (12, Cause::Wakeup, None, false, None),
        (40, Cause::Service, None, false, Some(worker())),
        (6, Cause::SlowService, Some(worker()), false, Some(worker())),
        (22, Cause::StackTx, None, false, Some(worker())),
    ];
    let mut stretches = Vec::new();
    let mut activities = Vec::new();
    let mut from_ns = Nanos::ZERO;
    for (lasted, cause, culprit, inherited, who) in pieces {
        stretches.push(Stretch {
            from_ns,
            lasted_ns: us(lasted),
            cause,
            culprit,
            inherited,
        });
        activities.push(Activity {
            cpu: 0,
            from_ns,
            lasted_ns: us(lasted),
            who,
        });
        from_ns += us(lasted);
    }
    let sojourn_ns = from_ns;
    activities.push(Activity {
        cpu: 1,
        from_ns: Nanos::ZERO,
        lasted_ns: sojourn_ns,
        who: None,
    });
    let before_end = |micros: u64| Some(Nanos::new(sojourn_ns.get() - 1_000 * micros));
    SlowRequest {
        t1: started + us(1_450_000 * (place / 3) + 60 * (place % 3)),
        port: 40_112 + place as u16,
        sojourn_ns,
        ideal_ns: Some(us(182 + 10 * place)),
        stamps_ns: [
            Some(us(5)),
            before_end(68),
            before_end(60),
            before_end(22),
            Some(sojourn_ns),
        ],
        worker: Some(worker()),
        stretches,
        joined_stretches: 0,
        activities,
        omitted_activities: 0,
    }
}

fn heat_map() -> HeatMap {
    let row_edges_ns: Vec<Nanos> = (0..16)
        .map(|i| Nanos::new((20_000.0 * 1.45_f64.powi(i)) as u64))
        .collect();
    let counts = (0..400_u64)
        .map(|column| {
            let burst = column % 37 < 2;
            (0..16_u64)
                .map(|row| {
                    let body = (1_200.0 * (-0.5 * ((row as f64 - 4.0) / 1.6).powi(2)).exp()) as u64;
                    let tail = if burst && row > 6 { 24 - row } else { 0 };
                    let lone = u64::from(row == 9 && column % 11 == 0);
                    body + tail + lone
                })
                .collect()
        })
        .collect();
    HeatMap {
        column_ns: Nanos::from_millis(50),
        row_edges_ns,
        counts,
    }
}
