//! An invented run: a simulated server, so that every output has something realistic to show,
//! the same in every test.

#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod explained;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::summary::{
    ArrivalsReference, ArrivalsVerdict, Calibration, Claim, ClaimName, ClientCost, CutSummary,
    CutsForReason, DeadTime, DispersionAt, Exclusions, Hook, Ideal, LimitedBy, LoadErrors,
    LoadSummary, Matching, Measured, Overhead, Reason, Report, SCHEMA_VERSION, Scheduled,
    ServerResult, ServiceTimeSource, Stages, StagesAt, UnsettledAt, Verdict, WorkersSource,
};
use taillab_model::{
    ClientTimes, CutReason, Distribution, MiddleStamps, Monotonic, Nanos, Operation, Stamps,
};
use taillab_report::requests::RequestRow;
use taillab_report::{Curve, Document, Series};

/// Everything that the outputs take.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) summary: Report,
    pub(crate) environment: serde_json::Value,
    pub(crate) experiment_toml: String,
    pub(crate) curves: Vec<Curve>,
    pub(crate) rows: Vec<RequestRow>,
    pub(crate) started: Monotonic,
}

impl Sample {
    pub(crate) fn report(&self) -> Document<'_> {
        Document {
            report: &self.summary,
            environment: Some(&self.environment),
            experiment_toml: Some(&self.experiment_toml),
            curves: &self.curves,
        }
    }
}

const SERVICE_TIME: Nanos = Nanos::new(43_500);
const STARTED_UNIX_S: u64 = 1_795_183_401;

/// A run of `length` at 75 % of the capacity. It is made once for each length.
pub(crate) fn sample(length: Nanos) -> Sample {
    static MADE: Mutex<BTreeMap<Nanos, Arc<Sample>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let found = made
        .entry(length)
        .or_insert_with(|| Arc::new(simulated(length)));
    let found = Arc::clone(found);
    drop(made);
    Sample::clone(&found)
}

pub(crate) fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next();
    let others = parts.map(|part| part.split_once('m').expect("each colour ends with an m").1);
    first.into_iter().chain(others).collect()
}

fn simulated(length: Nanos) -> Sample {
    let capacity = 1e9 / SERVICE_TIME.get() as f64;
    let target = capacity * 0.75;
    let started = Monotonic::from_nanos_since_boot(86_400_000_000_000);
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(11));

    let mut rows = Vec::new();
    let mut arrivals = Vec::new();
    let mut free_at = Nanos::ZERO;
    let mut next_stall = dice.exponential(40_000_000.0);
    let mut intended = Nanos::ZERO;
    loop {
        intended += Nanos::new(dice.exponential(1e9 / target));
        if intended >= length {
            break;
        }
        let sent =
            intended + Nanos::new(60 + dice.exponential(250.0)) + dice.rarely(0.002, 9_000.0);
        let t1 = sent + Nanos::new(2_900 + dice.exponential(300.0));
        let t2 = t1 + Nanos::new(5_200 + dice.exponential(900.0)) + dice.rarely(0.001, 25_000.0);
        let mut wake = if free_at > t2 {
            free_at + Nanos::new(600)
        } else {
            t2 + Nanos::new(2_300 + dice.exponential(700.0))
        };
        if wake.get() > next_stall {
            wake += Nanos::new(dice.exponential(450_000.0));
            next_stall = wake.get() + dice.exponential(60_000_000.0);
        }
        let t3 = wake;
        let t4 = t3 + Nanos::new(1_400 + dice.exponential(200.0));
        let set = dice.share() < 0.1;
        let work = if set { 4_800 } else { 3_600 };
        let t5 = t4 + Nanos::new(work + dice.exponential(500.0)) + dice.rarely(0.004, 30_000.0);
        let t6 = t5 + Nanos::new(21_000 + dice.exponential(2_300.0)) + dice.rarely(0.003, 20_000.0);
        free_at = t6 + Nanos::new(14_600);
        let received = t6 + Nanos::new(14_500 + dice.exponential(2_000.0));
        let at = |offset: Nanos| started + offset;
        let middle = if dice.share() < 0.0011 {
            [Some(at(t2)), None, Some(at(t4)), Some(at(t5))]
        } else {
            [Some(at(t2)), Some(at(t3)), Some(at(t4)), Some(at(t5))]
        };
        arrivals.push(t1);
        rows.push(RequestRow {
            server: Some(Stamps::new(at(t1), middle, at(t6))),
            peer: None,
            id: None,
            ideal: None,
            worker: None,
            main_cause: None,
            client: Some(ClientTimes {
                intended: at(intended),
                sent: at(sent),
                received: Some(at(received)),
            }),
            operation: Some(if set { Operation::Set } else { Operation::Get }),
            warm_up: false,
        });
    }
    arrivals.sort_unstable();
    rows.sort_by_key(|row| row.server.map(|stamps| stamps.t1));
    let mut free_at = Nanos::ZERO;
    let ideals: Vec<Nanos> = arrivals
        .iter()
        .map(|&arrival| {
            free_at = arrival.max(free_at) + SERVICE_TIME;
            free_at - arrival
        })
        .collect();
    for (row, ideal) in rows.iter_mut().zip(&ideals) {
        row.ideal = Some(*ideal);
    }

    let sojourns = sorted(rows.iter().map(sojourn));
    let responses = sorted(rows.iter().filter_map(|row| {
        let client = row.client?;
        client.received?.checked_since(client.intended)
    }));
    let service = sorted(rows.iter().filter_map(|row| {
        let client = row.client?;
        client.received?.checked_since(client.sent)
    }));
    let beyond = sorted(rows.iter().filter_map(|row| {
        let client = row.client?;
        let service = client.received?.checked_since(client.sent)?;
        service.checked_sub(row.server?.sojourn()?)
    }));
    let lateness = sorted(
        rows.iter()
            .filter_map(|row| row.client?.sent.checked_since(row.client?.intended)),
    );
    let excess = sorted(
        rows.iter()
            .filter_map(|row| sojourn(row).checked_sub(row.ideal?)),
    );
    let ideals = sorted(ideals.into_iter());
    let curves = [
        (Series::Ideal, &ideals),
        (Series::Measured, &sojourns),
        (Series::Client, &responses),
    ]
    .into_iter()
    .map(|(series, sorted)| Curve {
        series,
        points: ccdf(sorted),
    })
    .collect();
    let complete: Vec<(Nanos, [Nanos; 5])> = {
        let mut of: Vec<_> = rows
            .iter()
            .filter_map(|row| Some((sojourn(row), row.server?.stages()?)))
            .collect();
        of.sort_unstable();
        of
    };
    let stage = |i: usize| Distribution::from_sorted(&sorted(complete.iter().map(|c| c.1[i])));
    // waiting times are correlated; the factor is only for show
    let correlated = |sorted: &[Nanos]| {
        Distribution::from_sorted_correlated(sorted, |q| if q < 0.99 { 30.0 } else { 4.0 })
    };
    let summary = Report {
        schema_version: SCHEMA_VERSION,
        command: "run".to_owned(),
        target: "memcached".to_owned(),
        started_unix_s: STARTED_UNIX_S,
        partial: false,
        duration_ns: length,
        arrival_rate_per_s: rows.len() as f64 / length.as_secs_f64(),
        observer: None,
        scheduled: Some(Scheduled::same_as_measured()),
        fixes: Vec::new(),
        factorial: None,
        load: Some(LoadSummary {
            target_rate_per_s: target,
            target_utilization: Some(0.75),
            sent_rate_per_s: rows.len() as f64 / length.as_secs_f64(),
            duration_ns: length,
            requests: rows.len() as u64,
            response_time: correlated(&responses),
            service_time: correlated(&service),
            lateness: Distribution::from_sorted(&lateness),
            clients: None,
            segments: Vec::new(),
            arrivals: ArrivalsVerdict {
                reference: ArrivalsReference::Process,
                process: "poisson".to_owned(),
                cv: 1.0012,
                ks_d: 0.00113,
                ks_critical: 0.00231,
                ad_a2: 0.82,
                ad_critical: 2.49,
                idc: vec![
                    DispersionAt {
                        window_ns: Nanos::from_millis(1),
                        value: Some(1.002),
                        expected: Some(1.0),
                    },
                    DispersionAt {
                        window_ns: Nanos::from_millis(100),
                        value: Some(0.987),
                        expected: Some(1.0),
                    },
                    DispersionAt {
                        window_ns: Nanos::from_secs(10),
                        value: None,
                        expected: None,
                    },
                ],
                passed: true,
                dead_time: Some(DeadTime {
                    median_ns: Nanos::new(10_312),
                    lo_ns: Nanos::new(10_204),
                    hi_ns: Some(Nanos::new(10_467)),
                    count: 1_382,
                    due_within_ns: Nanos::from_micros(1),
                }),
            },
            client: ClientCost {
                cpu_ns_per_request: Nanos::new(8_140),
                busy_share: 0.141,
            },
            errors: LoadErrors::default(),
        }),
        client_minus_server: Some(Distribution::from_sorted(&beyond)),
        calibration: Some(Calibration {
            peak_per_s: capacity,
            peak_lo_per_s: capacity * 0.995,
            peak_hi_per_s: capacity * 1.004,
            server_cpu_busy_share: 0.998,
            limited_by: LimitedBy::Server,
            outstanding: 64,
            blocks: 8,
            scaling: None,
        }),
        server: ServerResult {
            service_time_ns: SERVICE_TIME,
            service_time_source: ServiceTimeSource::Calibrated,
            service_time_lo_ns: Some(Nanos::new(43_326)),
            service_time_hi_ns: Some(Nanos::new(43_718)),
            busy_periods: None,
            busy_periods_by_cpu: Vec::new(),
            measured: Measured {
                sojourn: correlated(&sojourns),
                server_cpu_busy_share: Some(0.781),
                utilization: Some(0.774),
                busy_ns_per_request: Some(44_900.0),
                overload: None,
            },
            ideal: Ideal {
                sojourn: correlated(&ideals),
                of_schedule: None,
                own_work: None,
                workers: 1,
                by_service_time: Vec::new(),
                workers_source: WorkersSource::Known,
                virtual_workers: false,
                withdrawn: None,
                utilization: 0.7497,
            },
            excess: correlated(&excess),
            stages: Stages {
                t1_t2: stage(0),
                t2_t3: stage(1),
                t3_t4: stage(2),
                t4_t5: stage(3),
                t5_t6: stage(4),
            },
            stages_at: stages_at(&complete),
            matching: Matching {
                stamps: MiddleStamps::All,
                unasked: 0,
                slices: 0,
                left_late: 0,
                responses: rows.len() as u64,
                matched: rows.len() as u64,
                complete: complete.len() as u64,
                ambiguous: 0,
                client_responses: rows.len() as u64,
                client_matched: rows.len() as u64,
                unanswered: 2,
                out_of_order: 0,
                lost_events: 0,
                blind_ns: Nanos::new(1_420_000),
                blind_windows: 12,
                blind_requests: 31,
                missing_middle: [0, (rows.len() - complete.len()) as u64, 0, 0],
                hooks: [
                    ("T1", "tp_btf/netif_receive_skb"),
                    ("T2", "tp_btf/sock_rcvqueue"),
                    ("T3", "tp_btf/sched_switch"),
                    ("T4", "tp_btf/sys_exit"),
                    ("T5", "tp_btf/sys_enter"),
                    ("T6", "tp_btf/net_dev_start_xmit"),
                ]
                .into_iter()
                .map(|(stamp, hook)| Hook {
                    stamp: stamp.to_owned(),
                    hook: hook.to_owned(),
                    lost_precision: None,
                })
                .collect(),
            },
            left_out: Exclusions::default(),
            sent_again: None,
            overhead: Overhead {
                pairs: 6,
                throughput_loss: Some(0.061),
                throughput_loss_lo: Some(0.048),
                throughput_loss_hi: Some(0.075),
                throughput_loss_in_slices: None,
                cpu_ns_per_request: Some(2_710.0),
            },
            causes: Vec::new(),
            ratio: Vec::new(),
            model_fit: None,
            predictions: Vec::new(),
            explanation: None,
        },
        assertions: Vec::new(),
        verdict: Verdict {
            valid: true,
            reasons: Vec::new(),
            warnings: vec![Reason::new(
                "virtual_machine",
                "the machine is virtual: another guest can take the CPU without a trace",
            )],
            claims: claims(&[(ClaimName::P99999, "unsupported_percentile")]),
        },
    };
    Sample {
        summary,
        environment: environment(),
        experiment_toml: EXPERIMENT.to_owned(),
        curves,
        rows,
        started,
    }
}

/// What requests on schedule saw, where the generator was held up for an eighth of the time.
pub(crate) fn held_up(summary: &Report) -> Scheduled {
    Scheduled {
        same_as_measured: false,
        sojourn: Some(summary.server.measured.sojourn.clone()),
        ideal: Some(summary.server.ideal.sojourn.clone()),
        replayed: None,
        at_worst: None,
        cut: Some(CutSummary {
            share: 0.124,
            length_ns: Nanos::from_millis(2_480),
            requests: 43_120,
            unsettled: vec![UnsettledAt {
                q: 0.99,
                share: 0.07,
            }],
            by_reason: vec![CutsForReason {
                why: CutReason::GeneratorNotScheduled,
                who: "stress (pid 77) on CPU 0".to_owned(),
                times: 410,
                length_ns: Nanos::from_millis(2_480),
                requests: 43_120,
            }],
        }),
        claims: claims(&[(ClaimName::P999, "unsupported_percentile")]),
    }
}

/// All claims of a run; those of the list are withdrawn, each for its reason.
pub(crate) fn claims(withdrawn: &[(ClaimName, &str)]) -> Vec<Claim> {
    let all = ClaimName::PERCENTILES
        .into_iter()
        .chain(ClaimName::COMPARISON);
    let claim = |claim| {
        let because = withdrawn.iter().filter(|(name, _)| *name == claim);
        let because: Vec<String> = because.map(|(_, key)| (*key).to_owned()).collect();
        Claim {
            claim,
            valid: because.is_empty(),
            because,
        }
    };
    all.map(claim).collect()
}

const EXPERIMENT: &str = r#"server = "memcached"
command = ["memcached", "-u", "nobody", "-t", "1"]

[testbed]
server_cpu = 0
client_cpu = 1

[load]
process = "poisson"
utilization = 0.75
duration_ns = 20_000_000_000
warm_up_ns = 3_000_000_000
key_bytes = 64
value_bytes = 1024
get_share = 0.9
seed = 7
"#;

fn environment() -> serde_json::Value {
    serde_json::json!({
        "host": { "name": "lab1", "virtual": true, "hypervisor": "kvm" },
        "kernel": { "release": "6.1.0-27-amd64", "btf": true, "cmdline": "ro quiet" },
        "cpu": {
            "model": "AMD EPYC 7B13", "online": "0-1", "governor": "performance",
            "smt": false, "idle_states": ["POLL", "C1"]
        },
        "memory_bytes": 25_276_502_016_u64,
        "hazards": ["transparent huge pages are on", "the clock source is kvm-clock"]
    })
}

fn sojourn(row: &RequestRow) -> Nanos {
    row.server
        .and_then(|stamps| stamps.sojourn())
        .expect("every simulated request is answered")
}

fn sorted(times: impl Iterator<Item = Nanos>) -> Vec<Nanos> {
    let mut times: Vec<Nanos> = times.collect();
    times.sort_unstable();
    times
}

/// Points at ranks that are evenly spaced on a logarithmic axis of shares.
fn ccdf(sorted: &[Nanos]) -> Vec<(Nanos, f64)> {
    let n = sorted.len();
    let mut ranks: Vec<usize> = (0..=600)
        .map(|i| n - (n as f64).powf(1.0 - f64::from(i) / 600.0).round() as usize)
        .collect();
    ranks.dedup();
    ranks
        .into_iter()
        .map(|rank| (sorted[rank], (n - rank) as f64 / n as f64))
        .collect()
}

fn stages_at(complete: &[(Nanos, [Nanos; 5])]) -> Vec<StagesAt> {
    let n = complete.len();
    [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]
        .into_iter()
        .map(|q| {
            let half = (1.0 - q) / 10.0;
            let rank = |p: f64| ((p * n as f64) as usize).min(n - 1);
            let band = &complete[rank(q - half)..=rank(q + half)];
            let mean = |times: &mut dyn Iterator<Item = Nanos>| {
                times.sum::<Nanos>().get() as f64 / band.len() as f64
            };
            StagesAt {
                q,
                requests: band.len() as u64,
                mean_sojourn_ns: mean(&mut band.iter().map(|c| c.0)),
                mean_stage_ns: std::array::from_fn(|i| mean(&mut band.iter().map(|c| c.1[i]))),
            }
        })
        .collect()
}

struct Dice(Xoshiro256PlusPlus);

impl Dice {
    fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean_ns: f64) -> u64 {
        (-(1.0 - self.share()).ln() * mean_ns) as u64
    }

    fn rarely(&mut self, share: f64, mean_ns: f64) -> Nanos {
        if self.share() < share {
            Nanos::new(self.exponential(mean_ns))
        } else {
            Nanos::ZERO
        }
    }
}
