//! From the requests of a simulated load to its result, its verdict and its objective.

use std::sync::LazyLock;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::load::{
    LoadAnalysis, LoadClients, LoadFacts, LoadedRequest, found, objective_at, of_closed_loop,
    summarise,
};
use taillab_analysis::verdict::{
    ClientSide, Evidence, Growth, SentLoad, client_failed, is_overload, judge_client,
};
use taillab_model::Objective;
use taillab_model::load_result::{ClosedLoop, LoadStep};
use taillab_model::summary::{
    ArrivalsReference, ArrivalsVerdict, Claim, ClaimName, ClientCost, ClientKind, Closing,
    DispersionAt, LoadErrors, LoadSummary, Reason, ValidPercentiles, Verdict,
};
use taillab_model::{ClientTimes, ConnectEnd, Connecting, Monotonic, Nanos, WireTimes};

use crate::common::facts::{load_facts, poisson};

const RATE: f64 = 10_000.0;

/// A queue with a service of `service_ns`, behind a sender that is 200 ns late and a network that
/// takes 25 µs.
fn requests(n: usize, service_ns: u64) -> Vec<LoadedRequest> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let (mut due, mut free) = (1_000_000_000.0, 0);
    (0..n)
        .map(|_| {
            let gap: f64 = Exp1.sample(&mut rng);
            due += gap * 1e9 / RATE;
            let intended = due as u64;
            let sent = intended + 200;
            free = free.max(sent) + service_ns;
            let at = Monotonic::from_nanos_since_boot;
            LoadedRequest {
                times: ClientTimes {
                    intended: at(intended),
                    sent: at(sent),
                    received: Some(at(free + 25_000)),
                },
                wire: WireTimes {
                    sent: Some(at(sent + 3_000)),
                    received: Some(at(free + 20_000)),
                },
                waited: Nanos::ZERO,
                connecting: None,
            }
        })
        .collect()
}

fn facts() -> LoadFacts {
    let idc = [1, 10, 100].map(|ms| DispersionAt {
        window_ns: Nanos::from_millis(ms),
        value: Some(1.01),
        expected: Some(1.0),
    });
    LoadFacts {
        arrivals: ArrivalsVerdict {
            idc: idc.to_vec(),
            ..poisson()
        },
        ..load_facts(RATE)
    }
}

fn analysed(requests: &[LoadedRequest]) -> LoadAnalysis {
    summarise(|| requests.iter().copied(), facts())
}

fn good() -> LoadAnalysis {
    static GOOD: LazyLock<LoadAnalysis> = LazyLock::new(|| analysed(&requests(100_000, 40_000)));
    GOOD.clone()
}

fn evidence(analysis: &LoadAnalysis) -> Evidence<'_> {
    Evidence {
        load: Some(SentLoad {
            summary: &analysis.summary,
            evidence: Some(&analysis.evidence),
            floor: None,
        }),
        ..Evidence::default()
    }
}

/// The verdict in words.
fn judge(evidence: &Evidence<'_>) -> Verdict {
    judge_client(evidence).1
}

fn judged(analysis: &LoadAnalysis) -> Verdict {
    judge(&evidence(analysis))
}

/// A verdict with one warning, which withdraws all percentiles or none.
fn warned(key: &str, text: &str, withdraws: bool) -> Verdict {
    let claim = |claim| Claim {
        claim,
        valid: !withdraws,
        because: withdraws.then(|| key.to_owned()).into_iter().collect(),
    };
    Verdict {
        valid: true,
        warnings: vec![Reason::new(key, text)],
        claims: ClaimName::PERCENTILES.map(claim).to_vec(),
        ..Verdict::default()
    }
}

#[test]
fn the_three_clocks_give_three_distributions() {
    let requests = requests(100_000, 40_000);
    let found = analysed(&requests);
    let load = &found.summary;
    assert_eq!(load.requests, 100_000);
    assert_eq!(load.lateness.max, Some(Nanos::new(200)));
    // response time = lateness + service time, request by request, hence in the mean
    let mean = |d: &taillab_model::Distribution| d.mean.unwrap();
    let sum = mean(&load.service_time) + mean(&load.lateness);
    assert!((mean(&load.response_time) - sum).abs() < 1e-6);
    assert_eq!(load.service_time.min, Some(Nanos::new(65_000)));
    // rates count gaps: those of the schedule, and those of the sends, which come 200 ns later
    let first = requests[0].times.intended;
    let last = requests[99_999].times.intended;
    let planned = 99_999.0 / last.saturating_since(first).as_secs_f64();
    assert!((found.evidence.planned_rate_per_s - planned).abs() < 1e-6);
    assert!((load.sent_rate_per_s - planned).abs() < 1e-6);
    assert_eq!(load.duration_ns, last.saturating_since(first));
    let wire = found.wire.unwrap();
    assert_eq!(wire.stamped, 100_000);
    assert_eq!(wire.lateness.max, Some(Nanos::new(3_200)));
    assert_eq!(wire.service_time.min, Some(Nanos::new(57_000)));
    assert_eq!(
        found.curves.response_time.last().unwrap().0,
        load.response_time.max.unwrap()
    );
    assert_eq!(found.evidence.growth, None);
}

/// Each request has a connection of its own, which takes 30 µs; one in a hundred is refused, one in fifty late.
#[test]
fn connecting_is_between_the_wait_and_the_service_time() {
    let took = Nanos::from_micros(30);
    let mut requests = requests(100_000, 40_000);
    for (i, request) in requests.iter_mut().enumerate() {
        let end = match i % 100 {
            0 => ConnectEnd::Refused,
            1 | 2 => ConnectEnd::TimedOut,
            _ => ConnectEnd::Connected,
        };
        let took = match end {
            ConnectEnd::TimedOut => Nanos::from_secs(1),
            _ => took,
        };
        request.connecting = Some(Connecting { took, end });
        request.times.sent = request.times.sent + took;
        let received = request.times.received.map(|at| at + took);
        request.times.received = received.filter(|_| end == ConnectEnd::Connected);
    }
    let facts = LoadFacts {
        clients: Some(LoadClients {
            kind: ClientKind::Independent,
            connections: 64,
            pipeline: None,
            closing: Some(Closing::Reset),
        }),
        ..facts()
    };
    let load = summarise(|| requests.iter().copied(), facts).summary;
    // the generator was never late by more than without them
    assert_eq!(load.lateness.max, Some(Nanos::new(200)));
    let found = load.clients.unwrap().connecting.unwrap();
    assert_eq!((found.connected, found.refused), (97_000, 1_000));
    assert_eq!((found.timed_out, found.failed), (2_000, 0));
    assert_eq!(found.closing, Closing::Reset);
    let quantile = |q| found.time.quantile(q);
    // those that never came up count as longer than all others
    assert_eq!((quantile(0.9), quantile(0.99)), (Some(took), None));
    let least = |of: &taillab_model::Distribution| of.min.unwrap();
    let parts = least(&load.lateness) + took + least(&load.service_time);
    assert_eq!(least(&load.response_time), parts);
}

/// One request in fifty waits 100 µs for its connection.
#[test]
fn a_wait_for_a_connection_is_between_lateness_and_service_time() {
    let wait = Nanos::from_micros(100);
    let mut requests = requests(100_000, 40_000);
    for request in requests.iter_mut().step_by(50) {
        request.times.sent = request.times.sent + wait;
        request.times.received = request.times.received.map(|at| at + wait);
        request.waited = wait;
    }
    let clients = LoadClients {
        kind: ClientKind::Independent,
        connections: 64,
        pipeline: Some(1),
        closing: None,
    };
    let facts = LoadFacts {
        clients: Some(clients),
        ..facts()
    };
    let load = summarise(|| requests.iter().copied(), facts).summary;
    // the generator was never late by more than before
    assert_eq!(load.lateness.max, Some(Nanos::new(200)));
    let found = load.clients.unwrap();
    assert_eq!(
        (found.kind, found.connections),
        (ClientKind::Independent, 64)
    );
    assert_eq!((found.waited, found.waited_share), (2_000, 0.02));
    let waited = found.wait.unwrap();
    assert_eq!(
        (waited.quantile(0.9), waited.quantile(0.99)),
        (Some(Nanos::ZERO), Some(wait))
    );
    let mean = |d: &taillab_model::Distribution| d.mean.unwrap();
    let sum = mean(&load.lateness) + mean(&waited) + mean(&load.service_time);
    assert!((mean(&load.response_time) - sum).abs() < 1e-6);
    // nobody waits: there is nothing to show
    let good = summarise(
        || requests[1..50].iter().copied(),
        LoadFacts {
            clients: Some(clients),
            ..self::facts()
        },
    );
    let clients = good.summary.clients.unwrap();
    assert_eq!((clients.waited, clients.wait), (0, None));
}

/// Twice as many requests as the server can answer: each of 16 clients sends its next one when the last is answered, so
/// that the queue is in the clients, and the server takes no longer for each.
#[test]
fn a_queue_in_the_clients_is_one_that_grows() {
    let mut requests = requests(20_000, 40_000);
    let service = Nanos::from_micros(640);
    for (k, request) in requests.iter_mut().enumerate() {
        let answered = Nanos::from_micros(40) * 5 * (k as u64 + 1);
        let received = request.times.intended + answered;
        let sent = Monotonic::from_nanos_since_boot(received.nanos_since_boot() - service.get());
        let turn = request.times.sent;
        request.times.sent = sent.max(turn);
        request.times.received = Some(received);
        request.waited = request.times.sent.saturating_since(turn);
    }
    let found = analysed(&requests);
    assert!(found.evidence.growth.is_some());
    assert!(is_overload(&judged(&found)));
}

#[test]
fn requests_without_answer_or_stamps_stay_in_the_lateness() {
    let mut requests = requests(1_000, 40_000);
    for request in requests.iter_mut().step_by(10) {
        request.times.received = None;
    }
    for request in &mut requests {
        request.wire = WireTimes::default();
    }
    let found = analysed(&requests);
    assert_eq!(found.summary.response_time.count, 900);
    assert_eq!(found.summary.service_time.count, 900);
    assert_eq!(found.summary.lateness.count, 1_000);
    assert_eq!(found.wire, None);
    let nothing = analysed(&[]);
    assert_eq!(nothing.summary.sent_rate_per_s, 0.0);
    assert_eq!(nothing.summary.response_time.count, 0);
}

#[test]
fn a_good_load_is_valid() {
    let verdict = judged(&good());
    assert_eq!(verdict.reasons, []);
    let expected = |w: &Reason| w.key == "unsupported_percentile";
    assert!(verdict.warnings.iter().all(expected), "{verdict:?}");
}

#[test]
fn each_reason_against_a_load_is_found_alone() {
    type Spoil = fn(&mut LoadAnalysis);
    let cases: [(&str, Spoil); 2] = [
        ("none of 100,000 requests was answered", |a| {
            a.summary.response_time = taillab_model::Distribution::from_sorted(&[]);
        }),
        ("was answered without an error", |a| {
            a.summary.errors.server_errors = 100_000;
        }),
    ];
    for (line, spoil) in cases {
        let mut analysis = good();
        spoil(&mut analysis);
        let verdict = judged(&analysis);
        assert_eq!(verdict.reasons.len(), 1, "{line}: {verdict:?}");
        assert!(!verdict.valid);
        let Reason { key, text } = &verdict.reasons[0];
        assert_eq!(key, "no_answer");
        assert!(text.contains(line) && text.contains(": "), "{line}: {text}");
    }
}

/// What a generator that is the limit measures are its own times. An overload is what the server does with it.
#[test]
fn only_a_generator_that_is_the_limit_withdraws_the_percentiles() {
    type Spoil = fn(&mut LoadAnalysis);
    let cases: [(&str, &str, bool, Spoil); 6] = [
        ("late_client", "late at p50", true, |a| {
            a.summary.lateness = a.summary.response_time.clone();
        }),
        (
            "client_busy",
            "the generator was busy 96.00 % of the time",
            true,
            |a| a.summary.client.busy_share = 0.96,
        ),
        ("rate_missed", "of the 12,000 that were due", true, |a| {
            a.evidence.planned_rate_per_s = 12_000.0;
        }),
        // only the last sends were late
        ("rate_missed", "of the 10,400 that were due", false, |a| {
            a.evidence.planned_rate_per_s = 10_400.0;
        }),
        (
            "overload",
            "the load is 120.00 % of the capacity",
            false,
            |a| a.summary.target_utilization = Some(1.2),
        ),
        (
            "growing",
            "10,000 requests per second were due and 6,000",
            false,
            |a| {
                a.evidence.planned_rate_per_s = 10_000.0;
                a.evidence.growth = Some(growth());
            },
        ),
    ];
    for (key, line, withdraws, spoil) in cases {
        let mut analysis = good();
        spoil(&mut analysis);
        let verdict = judged(&analysis);
        assert_eq!(verdict.reasons, [], "{line}");
        let said = verdict.warnings.iter().find(|warning| warning.key == key);
        let text = said.map_or("", |warning| &warning.text);
        assert!(text.contains(line) && text.contains(": "), "{line}: {text}");
        assert_eq!(!verdict.claims[0].valid, withdraws, "{line}: {verdict:?}");
        // it is the server that a client in front of a growing queue measures
        analysis.evidence.growth = Some(growth());
        let overloaded = judged(&analysis);
        assert!(is_overload(&overloaded), "{overloaded:?}");
        assert!(overloaded.claims[0].valid, "{line}: {overloaded:?}");
    }
}

fn growth() -> Growth {
    Growth {
        first: Nanos::from_micros(100),
        last: Nanos::from_millis(90),
        answered_per_s: 6_000.0,
    }
}

/// A generator that is late all the time makes response times grow: that is not the server's queue.
#[test]
fn a_late_generator_is_no_overload() {
    let late = |mut request: LoadedRequest| {
        let ClientTimes {
            intended,
            sent,
            received,
        } = request.times;
        let behind = Nanos::new(intended.nanos_since_boot() / 10);
        request.times.sent = sent + behind;
        request.times.received = received.map(|at| at + behind);
        request
    };
    let requests: Vec<LoadedRequest> = requests(50_000, 40_000).into_iter().map(late).collect();
    assert_eq!(analysed(&requests).evidence.growth, None);
}

/// A network that loses 2 % of the datagrams and doubles as many: what is known reaches up to the share of the
/// unanswered, and no further.
#[test]
fn lost_requests_and_doubled_answers_leave_the_percentiles_below_the_lost() {
    let mut requests = requests(50_000, 40_000);
    for request in requests.iter_mut().step_by(50) {
        request.times.received = None;
    }
    let judged = |unanswered: u64, unexpected_responses, on_stream| {
        let mut analysis = match unanswered {
            0 => good(),
            _ => analysed(&requests),
        };
        analysis.summary.errors = LoadErrors {
            timeouts: unanswered,
            unexpected_responses,
            ..LoadErrors::default()
        };
        let verdict = judge(&Evidence {
            on_stream,
            ..evidence(&analysis)
        });
        let holds = |q| !verdict.withdraws(q);
        (verdict.valid, [0.5, 0.9, 0.99].map(holds))
    };
    assert_eq!(judged(1_000, 0, false), (true, [true, true, false]));
    assert_eq!(judged(1_000, 1_000, false), (true, [true, true, false]));
    assert_eq!(judged(0, 1_000, false), (true, [true; 3]));
    // an answer too many can have been taken for the next request's
    assert_eq!(judged(0, 500, true), (true, [true, true, false]));
}

#[test]
fn each_warning_is_found_and_does_not_spoil_the_load() {
    type Spoil = fn(&mut LoadAnalysis);
    let cases: [(&str, &str, Spoil); 11] = [
        (
            "arrivals",
            "in windows of 10.0 ms is 9.00 and should be near 1",
            |a| {
                a.summary.arrivals.idc[1].value = Some(9.0);
            },
        ),
        (
            "errors",
            "30 time-outs, 1 unexpected response in 100,000",
            |a| {
                a.summary.errors.timeouts = 30;
                a.summary.errors.unexpected_responses = 1;
            },
        ),
        ("errors", "2 error responses in 100,000 requests", |a| {
            a.summary.errors.server_errors = 2;
        }),
        ("misses", "50,000 of 100,000 requests found nothing", |a| {
            a.summary.errors.misses = 50_000;
        }),
        (
            "connections_ended",
            "closed 3 connections and 1 was reset",
            |a| {
                a.summary.errors.connections_closed = 3;
                a.summary.errors.connections_reset = 1;
            },
        ),
        ("lateness", "the client sends 30.0 µs late at p99.9", |a| {
            a.summary.lateness =
                taillab_model::Distribution::from_sorted(&[Nanos::new(30_000); 5_000]);
            a.summary.response_time =
                taillab_model::Distribution::from_sorted(&[Nanos::new(100_000); 5_000]);
        }),
        (
            "arrival_gaps",
            "individual gaps between sends are not exactly poisson",
            |a| {
                a.summary.arrivals.passed = false;
            },
        ),
        ("arrival_gaps", "Anderson–Darling A² 3.10", |a| {
            a.summary.arrivals.ad_a2 = 3.1
        }),
        (
            "gaps_not_judged",
            "individual gaps of trace arrivals are not judged",
            |a| {
                a.summary.arrivals.process = "trace".into();
                a.summary.arrivals.reference = ArrivalsReference::Schedule;
            },
        ),
        (
            "bursts_not_judged",
            "fewer than ten of the shortest windows",
            |a| {
                for at in &mut a.summary.arrivals.idc {
                    at.value = None;
                }
            },
        ),
        (
            "unsupported_percentile",
            "too few samples for p99.999",
            |_| {},
        ),
    ];
    for (key, line, spoil) in cases {
        let mut analysis = good();
        spoil(&mut analysis);
        let verdict = judged(&analysis);
        assert!(verdict.valid, "{line}: {verdict:?}");
        let found = (verdict.warnings.iter()).any(|w| w.key == key && w.text.contains(line));
        assert!(found, "{line}: {verdict:?}");
    }
    let analysis = good();
    let mut evidence = evidence(&analysis);
    (evidence.partial, evidence.hypervisor) = (true, Some("kvm"));
    evidence.load.as_mut().unwrap().floor = Some(&analysis.summary);
    let verdict = judge(&evidence);
    for line in [
        "ended early",
        "the client and its network alone take",
        "(kvm)",
    ] {
        assert!(
            verdict.warnings.iter().any(|w| w.text.contains(line)),
            "{line}"
        );
    }
}

/// At p99 the client alone took 149 µs, and the response 100 µs.
#[test]
fn a_floor_above_the_response_is_remarked_on() {
    let spread = |p50: u64, p99: u64| {
        let mut times = vec![Nanos::from_micros(p50); 9_800];
        times.extend(vec![Nanos::from_micros(p99); 200]);
        taillab_model::Distribution::from_sorted(&times)
    };
    let mut analysis = good();
    analysis.summary.response_time = spread(80, 100);
    let mut floor = analysis.summary.clone();
    let mut said = |p99| {
        floor.response_time = spread(20, p99);
        let mut evidence = evidence(&analysis);
        evidence.load.as_mut().unwrap().floor = Some(&floor);
        let warnings = judge(&evidence).warnings.into_iter();
        let floors = warnings.filter(|warning| warning.key == "floor");
        floors.map(|warning| warning.text).collect::<Vec<_>>()
    };
    assert_eq!(said(99), Vec::<String>::new());
    let said = said(149);
    assert!(
        said[0].contains("149 µs") && said[0].contains("at p99"),
        "{said:?}"
    );
}

/// Bursts that the schedule planned are no objection; other bursts are.
#[test]
fn bursts_are_held_against_the_schedule() {
    let mut analysis = good();
    let arrivals = &mut analysis.summary.arrivals;
    arrivals.reference = ArrivalsReference::Schedule;
    arrivals.idc[1] = DispersionAt {
        window_ns: Nanos::from_millis(10),
        value: Some(20.5),
        expected: Some(20.0),
    };
    assert_eq!(judged(&analysis).reasons, []);
    analysis.summary.arrivals.idc[1].value = Some(30.0);
    let verdict = judged(&analysis);
    assert_eq!(
        (&verdict.reasons, verdict.valid_percentiles()),
        (&Vec::new(), ValidPercentiles::UpTo(ClaimName::P50))
    );
    let arrivals = verdict
        .warnings
        .iter()
        .find(|reason| reason.key == "arrivals");
    assert!(arrivals.unwrap().text.contains("near 20.00"), "{verdict:?}");
}

#[test]
fn a_queue_that_only_grows_is_found_and_one_that_does_not_is_not() {
    // 10,000 a second at 105 µs each: 5 % are left over
    let over = analysed(&requests(50_000, 105_000));
    assert!(over.evidence.growth.is_some());
    let verdict = judged(&over);
    assert!(
        is_overload(&verdict) && !client_failed(&verdict, 0.99),
        "{verdict:?}"
    );
    // percentiles of this load, however correlated its requests are
    let p99 = over.summary.response_time.quantile(0.99);
    assert!(verdict.claims[2].valid && p99.is_some(), "{verdict:?}");
    // 90 % of the capacity: queues are long, but become empty again
    assert_eq!(analysed(&requests(50_000, 90_000)).evidence.growth, None);
}

/// A server of four connections that answers one request of each at a time, 20 ms each, at 75 % of its capacity: its
/// queue comes and goes.
#[test]
fn four_slow_servers_below_their_capacity_are_no_overload() {
    const RATE: f64 = 150.0;
    const SERVICE_NS: u64 = 20_000_000;
    let mut p99_ms = 0.0;
    for seed in 1..=5 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut due, mut free) = (1e9, [0_u64; 4]);
        let requests: Vec<LoadedRequest> = (0..60 * RATE as usize)
            .map(|_| {
                let gap: f64 = Exp1.sample(&mut rng);
                due += gap * 1e9 / RATE;
                let at = due as u64;
                let first = free.iter_mut().min().unwrap();
                *first = at.max(*first) + SERVICE_NS;
                let [sent, received] = [at, *first].map(Monotonic::from_nanos_since_boot);
                LoadedRequest {
                    times: ClientTimes {
                        intended: sent,
                        sent,
                        received: Some(received),
                    },
                    wire: WireTimes {
                        sent: Some(sent),
                        received: Some(received),
                    },
                    waited: Nanos::ZERO,
                    connecting: None,
                }
            })
            .collect();
        let facts = LoadFacts {
            target_rate_per_s: RATE,
            ..facts()
        };
        let found = summarise(|| requests.iter().copied(), facts);
        assert_eq!(found.evidence.growth, None, "seed {seed}");
        let verdict = judged(&found);
        assert!(verdict.valid, "seed {seed}: {:?}", verdict.reasons);
        let p99 = found.summary.response_time.quantile(0.99).unwrap();
        p99_ms += p99.as_secs_f64() * 1e3 / 5.0;
    }
    // 57 ms, by a simulation of M/D/4 at this load
    assert!((57.0 * 0.9..57.0 * 1.1).contains(&p99_ms), "{p99_ms}");
}

/// Every service time below `n` ns once, in no order that shows.
fn service_times(n: u64) -> Vec<Nanos> {
    (0..n).map(|i| Nanos::new(i * 997 % n)).collect()
}

#[test]
fn a_closed_loop_claims_no_percentile_that_it_was_too_short_for() {
    let (service_time, evidence) = of_closed_loop(&service_times(5_000), 0);
    let verdict = judge(&Evidence {
        closed_loop: Some(ClientSide {
            requests: 5_000,
            service_time: &service_time,
            cost: good().summary.client,
            errors: &LoadErrors::default(),
            evidence: Some(&evidence),
        }),
        ..Evidence::default()
    });
    assert_eq!(service_time.quantile(0.9999), None);
    assert!(verdict.valid && !verdict.withdraws(0.9999), "{verdict:?}");
    assert_eq!(verdict.warnings[0].key, "unsupported_percentile");
    for claim in &verdict.claims {
        let known = service_time.quantile(claim.claim.quantile().unwrap());
        assert_eq!(claim.valid, known.is_some(), "{claim:?}");
    }
}

/// A request without an answer has waited for longer than any answer took: one in 20 is beyond p90.
#[test]
fn time_outs_of_a_closed_loop_are_longer_than_its_answers() {
    let (service_time, evidence) = of_closed_loop(&service_times(9_500), 500);
    assert_eq!(service_time.unanswered, 500);
    assert!(service_time.quantile(0.9).is_some());
    assert_eq!(service_time.quantile(0.99), None);
    assert_eq!(evidence.unsupported, [], "more requests would not help");
    let closed = ClosedLoop {
        outstanding: 1,
        requests: 10_000,
        duration_ns: Nanos::from_secs(1),
        answered_rate_per_s: 9_500.0,
        service_time,
        client: good().summary.client,
        errors: LoadErrors {
            timeouts: 500,
            ..LoadErrors::default()
        },
    };
    let (supported, verdict) = judge_client(&Evidence {
        closed_loop: Some(ClientSide {
            requests: closed.requests,
            service_time: &closed.service_time,
            cost: closed.client,
            errors: &closed.errors,
            evidence: Some(&evidence),
        }),
        ..Evidence::default()
    });
    let closed = supported.closed_loop(closed.clone());
    assert!(closed.service_time.quantile(0.9).is_some(), "{verdict:?}");
    assert_eq!(closed.service_time.quantile(0.99), None, "{verdict:?}");
    assert!(verdict.claims[1].valid && !verdict.claims[2].valid);
}

#[test]
fn a_closed_loop_is_judged_by_its_answers() {
    let load = good().summary;
    let judged = |errors: LoadErrors, busy_share: f64, answers| {
        let client = ClientCost {
            busy_share,
            ..load.client
        };
        judge(&Evidence {
            closed_loop: Some(ClientSide {
                requests: load.requests,
                service_time: answers,
                cost: client,
                errors: &errors,
                evidence: None,
            }),
            ..Evidence::default()
        })
    };
    let answers = &load.service_time;
    let fine = judged(LoadErrors::default(), 0.5, answers);
    assert_eq!((fine.reasons, fine.warnings), (Vec::new(), Vec::new()));
    assert!(fine.claims.iter().all(|claim| claim.valid));
    let clients = judged(LoadErrors::default(), 0.99, answers);
    assert!(
        clients.valid
            && clients.warnings[0]
                .text
                .contains("this is the client's peak")
    );
    let lost = LoadErrors {
        timeouts: 1_000,
        ..LoadErrors::default()
    };
    let some_lost = judged(lost, 0.5, answers).warnings;
    assert!(
        some_lost[0].text.contains("1,000 time-outs"),
        "{some_lost:?}"
    );
    let none = taillab_model::Distribution::from_sorted(&[]);
    assert!(
        judged(lost, 0.5, &none).reasons[0]
            .text
            .contains("was answered")
    );
}

fn step(rate: f64, requests: &[LoadedRequest], objective: Objective) -> LoadStep {
    let mut analysis = analysed(requests);
    analysis.summary.target_rate_per_s = rate;
    analysis.summary.target_utilization = Some(rate / 20_000.0);
    let verdict = judged(&analysis);
    LoadStep {
        partial: false,
        objective: Some(objective_at(objective, requests.iter().copied(), &verdict)),
        overloaded: is_overload(&verdict),
        verdict,
        load: analysis.summary,
    }
}

#[test]
fn an_objective_is_held_against_any_percentile_with_its_interval() {
    let requests = requests(100_000, 40_000);
    let analysis = analysed(&requests);
    let none = Verdict::default();
    let at = |text: &str| objective_at(text.parse().unwrap(), requests.iter().copied(), &none);
    let p99 = analysis.summary.response_time.quantiles[2];
    let found = at("p99<=10s");
    // the same series, the same percentile, the same correlation
    assert_eq!(found.value_ns, p99.value);
    assert!(found.held && found.sure);
    let limit = format!("p99<={}ns", p99.value.unwrap().get());
    let near = at(&limit);
    assert!(near.held && !near.sure, "{near:?}");
    let limit = format!("p99<={}ns", p99.lo.unwrap().get() - 1);
    let below = at(&limit);
    assert!(!below.held && below.sure, "{below:?}");
    // a percentile that no result reports, and one that the sample does not support
    assert!(at("p97.5<=10s").held);
    let far = at("p99.9999<=10s");
    assert_eq!((far.value_ns, far.held, far.sure), (None, false, false));
}

/// A load that the client spoiled neither meets nor surely misses an objective, whatever its figures.
#[test]
fn a_spoiled_measurement_decides_nothing() {
    let requests = requests(50_000, 40_000);
    let spoiled = warned("client_busy", "the client was busy", true);
    for limit in ["p99<=10s", "p99<=1ns"] {
        let at = objective_at(limit.parse().unwrap(), requests.iter().copied(), &spoiled);
        assert!(
            !at.held && !at.sure && at.value_ns.is_some(),
            "{limit}: {at:?}"
        );
    }
}

/// A server that answers only the fast requests does not meet an objective that way.
#[test]
fn requests_without_an_answer_count_against_the_objective() {
    let mut requests = requests(100_000, 40_000);
    for request in requests.iter_mut().step_by(50) {
        request.times.received = None;
    }
    let objective = |text: &str| {
        objective_at(
            text.parse().unwrap(),
            requests.iter().copied(),
            &Verdict::default(),
        )
    };
    let p99 = objective("p99<=10s");
    assert_eq!((p99.held, p99.sure, p99.value_ns), (false, true, None));
    assert!(objective("p90<=10s").held);
}

#[test]
fn the_answer_of_a_search_lies_below_every_rate_that_fails() {
    let objective: Objective = "p99<=300us".parse().unwrap();
    let (fast, slow) = (requests(50_000, 30_000), requests(50_000, 92_000));
    let steps = [
        step(4_000.0, &fast, objective),
        step(16_000.0, &slow, objective),
        step(8_000.0, &fast, objective),
        step(12_000.0, &slow, objective),
        // by chance: higher than one that failed
        step(14_000.0, &fast, objective),
    ];
    let answer = found(objective, &steps);
    assert!(answer.held);
    assert_eq!(answer.rate_per_s, Some(8_000.0));
    assert_eq!(answer.utilization, Some(0.4));
    assert_eq!(answer.fails_at_per_s, Some(12_000.0));
    assert_eq!(answer.surely_holds_per_s, Some(8_000.0));
    assert_eq!(answer.surely_fails_per_s, Some(12_000.0));
    let nothing = found(objective, &steps[1..2]);
    assert_eq!((nothing.held, nothing.rate_per_s), (false, None));
}

#[test]
fn only_what_the_client_did_spoils_a_sweep() {
    let load = good().summary;
    let judged = |steps: &[(f64, &Verdict)], partial| {
        let steps: Vec<LoadStep> = (steps.iter())
            .map(|(target_rate_per_s, verdict)| LoadStep {
                partial: false,
                objective: None,
                overloaded: is_overload(verdict),
                verdict: (*verdict).clone(),
                load: LoadSummary {
                    target_rate_per_s: *target_rate_per_s,
                    ..load.clone()
                },
            })
            .collect();
        judge(&Evidence {
            partial,
            sweep: Some(&steps),
            ..Evidence::default()
        })
    };
    let overload = warned("overload", "the load is 110.00 % of the capacity", false);
    let busy = warned("client_busy", "the client was busy", true);
    let failing = Verdict {
        reasons: vec![Reason::new("no_answer", "none of 7 requests was answered")],
        ..Verdict::default()
    };
    let failed = judged(&[(3e4, &failing)], false);
    assert!(failed.valid && failed.warnings[0].text.starts_with("at 30000/s: none of 7"));
    let good = Verdict::default();
    let fine = judged(&[(1e4, &good), (2e4, &overload)], false);
    assert!(
        fine.valid && fine.warnings[0].text.contains("20000/s"),
        "{fine:?}"
    );
    let spoiled = judged(&[(1e4, &good), (2e4, &busy)], true);
    assert!(spoiled.valid);
    assert!((spoiled.warnings[0].text).starts_with("at 20000/s: the client"));
    assert!(spoiled.warnings[1].text.contains("missing or short"));
    assert!(!judged(&[], false).valid);
}
