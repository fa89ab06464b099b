//! What a disturbance of one worker costs the requests of a queue that several share.

use std::fs::File;
use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::predict::{Basis, Predicted, predict};
use taillab_analysis::replay::{Cores, Observed};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Window, match_events};
use taillab_model::explanation::{Cause, CauseShare};
use taillab_model::summary::BusyPeriods;
use taillab_model::{Event, Monotonic, Nanos, Recording};

use super::crew::Crew;
use super::forecasts::{at, sojourns};
use super::kernel::{Traffic, WORKER, What};
use super::{Found, explained_in};

/// Bursts of another thread, as long as hundreds of requests.
const BURSTS: (What, u64, u64) = (What::Thread, 60_000_000, 2_000_000);

fn options(crew: &Crew) -> AnalysisOptions {
    let workers = NonZeroU32::new(crew.servers() as u32).unwrap();
    let from = Monotonic::from_nanos_since_boot(0);
    let t = crew.service_time();
    let busy = BusyPeriods {
        service_time_ns: t,
        lo_ns: t,
        hi_ns: t,
        receive_ns: t - Nanos::new(crew.service),
        after_response_ns: Nanos::ZERO,
        seen: 1_000,
        left_out: 0,
    };
    AnalysisOptions {
        // the time that virtual workers take is no time of a CPU
        busy_periods: Some(busy).filter(|_| crew.waits.is_none()),
        ..AnalysisOptions::new(t, workers, from)
    }
}

fn explained(crew: &Crew, traffic: &Traffic) -> Found {
    explained_in(&crew.context(), options(crew), &traffic.events)
}

/// What was found in a crew's requests, as shares.
#[derive(Debug)]
struct Shares {
    /// The part of the excess that nobody is to blame for.
    unexplained: f64,
    /// What the right causes are charged more with the disturbance than without, of what it cost the requests.
    right: f64,
    /// The same of all other causes.
    others: Vec<(Cause, f64)>,
}

/// The causes that are right: where each worker has a queue of its own, what waits after a disturbance would not in one
/// queue for all (imbalance), or waits for another worker on its CPU.
fn right(crew: &Crew, cause: Cause) -> Vec<Cause> {
    match crew.shared {
        true => vec![cause],
        false => vec![cause, Cause::Imbalance, Cause::OwnThreads],
    }
}

fn shares(crew: &Crew, cause: Cause) -> Shares {
    let traffic = crew.run();
    let calm = crew.without_disturbances();
    let undisturbed = calm.run();
    let sum = |traffic: &Traffic| -> u64 { traffic.truth.iter().map(|t| t.t6 - t.t1).sum() };
    let truth = (sum(&traffic) - sum(&undisturbed)) as f64;
    let found = explained(crew, &traffic);
    assert_eq!(found.matched.requests.len(), crew.requests);
    let (with, without) = (found.charged, explained(&calm, &undisturbed).charged);
    let change = |cause| {
        let of = |all: &super::Charged| all.causes.get(&cause).copied().unwrap_or(0) as f64;
        (of(&with) - of(&without)) / truth
    };
    let right = right(crew, cause);
    let others = Cause::ALL.iter().filter(|other| !right.contains(other));
    let unexplained = with.causes.get(&Cause::Unexplained).copied().unwrap_or(0);
    Shares {
        unexplained: unexplained as f64 / with.excess as f64,
        right: right.iter().map(|&cause| change(cause)).sum(),
        others: others
            .map(|&other| (other, change(other)))
            .filter(|(_, share)| share.abs() > 0.005)
            .collect(),
    }
}

/// What the disturbance cost is charged to it. At most a twentieth of the excess is nobody's, and at most a twentieth
/// of what it cost, and `more` of it for receive softirqs, goes to another cause. (More than what it cost, as far as it
/// saves something: workers that are always busy are not woken.)
fn assert_explained(cause: Cause, crews: &[Crew], more: f64) {
    for crew in crews {
        let found = shares(crew, cause);
        let (workers, cpus) = (crew.workers, crew.cpus);
        let of = if crew.shared {
            "one queue"
        } else {
            "own queues"
        };
        println!(
            "{cause:?}, {workers} workers on {cpus} CPUs, {of}: unexplained {:.4}, right {:.3}, {:.3?}",
            found.unexplained, found.right, found.others
        );
        assert!(found.unexplained <= 0.05, "{crew:?}: {found:?}");
        assert!(found.right > 0.9, "{crew:?}: {found:?}");
        for &(other, share) in &found.others {
            let most = match other {
                Cause::Softirq => 0.05 + more,
                _ => 0.05,
            };
            assert!(share <= most, "{crew:?}: {found:?}");
            let is_saved = matches!(
                other,
                Cause::Wakeup | Cause::Softirq | Cause::Imbalance | Cause::StackRx
            );
            assert!(share > -0.05 || is_saved, "{crew:?}: {found:?}");
        }
    }
}

/// One queue, on so many CPUs with a worker each.
fn shared(cpus: usize) -> Crew {
    Crew {
        requests: 16_000 * cpus,
        workers: cpus,
        cpus,
        disturbances: vec![BURSTS],
        ..Crew::default()
    }
}

#[test]
fn a_burst_is_charged_also_to_those_whom_other_workers_serve_later() {
    assert_explained(Cause::Background, &[1, 2, 4, 8].map(shared), 0.0);
}

#[test]
fn a_burst_delays_only_the_queue_of_its_worker() {
    let own = |cpus| Crew {
        shared: false,
        ..shared(cpus)
    };
    assert_explained(Cause::Background, &[2, 4].map(own), 0.0);
}

#[test]
fn two_workers_on_one_cpu_share_its_bursts() {
    let crew = |is_shared| Crew {
        workers: 2,
        shared: is_shared,
        ..shared(1)
    };
    assert_explained(Cause::Background, &[true, false].map(crew), 0.0);
}

#[test]
fn interrupts_on_one_cpu_are_charged_to_the_whole_queue() {
    let crew = |cpus| Crew {
        requests: 8_000 * cpus,
        disturbances: vec![(What::Interrupt, 2_000_000, 120_000)],
        ..shared(cpus)
    };
    // what an interrupt held up is received all at once
    assert_explained(Cause::Irq, &[2, 4, 8].map(crew), 0.07);
}

#[test]
fn a_slow_request_delays_the_whole_queue() {
    let crew = |cpus| Crew {
        requests: 8_000 * cpus,
        disturbances: Vec::new(),
        slow: Some((500, 1_000_000)),
        ..shared(cpus)
    };
    assert_explained(Cause::SlowService, &[2, 4, 8].map(crew), 0.0);
}

/// The golden of a shared queue on four CPUs: the thread that took one of them has nearly all of the excess, also of
/// the requests that the other workers served.
#[test]
fn the_golden_of_a_shared_queue_is_explained() {
    let place = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/simulated_shared_queue.tlc"
    );
    let recording = Recording::read(File::open(place).unwrap()).unwrap();
    let context = recording.context.clone();
    let events: Vec<Event> = recording.into_events().collect();
    let found = explained_in(&context, options(&Crew::of_golden()), &events).charged;
    let share = |cause| {
        let charged = found.causes.get(&cause).copied().unwrap_or(0);
        charged as f64 / found.excess as f64
    };
    assert!(share(Cause::Background) > 0.6, "{found:?}");
    assert!(share(Cause::Unexplained) < 0.01, "{found:?}");
}

/// A server as the benchmark of causes has it: the middle service has met a packet. With t divided as its busy periods
/// show it, all that interrupts cost is theirs; by the median service, a part would be the softirqs'.
#[test]
fn what_a_service_meets_hides_no_part_of_the_cost() {
    for utilization in [0.55, 0.75] {
        let crew = Crew {
            requests: 8_000,
            utilization,
            service: 300_000,
            disturbances: vec![(What::Interrupt, 400_000, 50_000)],
            ..shared(1)
        };
        let found = shares(&crew, Cause::Irq);
        assert!((0.97..1.05).contains(&found.right), "{found:?}");
        let traffic = crew.run();
        let charged = |options| {
            let found = explained_in(&crew.context(), options, &traffic.events);
            found.charged.causes[&Cause::Softirq]
        };
        let by_median = AnalysisOptions {
            busy_periods: None,
            ..options(&crew)
        };
        let (recorded, median) = (charged(options(&crew)), charged(by_median));
        assert!(median > 3 * recorded, "{median} and {recorded}");
    }
}

/// p99 of the sojourns of an undisturbed crew, of their ideals, and of their ideals with a queue for each worker.
fn p99_with_ideals(crew: &Crew) -> [f64; 3] {
    let (events, context) = (crew.run().events, crew.context());
    let matched = match_events(events.iter().copied(), &MatchOptions::default());
    let timeline = Timeline::build(events, &context);
    let mut lengths: [Vec<u64>; 3] = Default::default();
    let mut analysis = Analysis::new(&context, options(crew));
    analysis.push(&Arc::new(Window::whole(matched, timeline)), |entry, _| {
        let all = [entry.sojourn_ns, entry.ideal_ns, entry.own_queue_ideal_ns];
        for (lengths, ns) in lengths.iter_mut().zip(all) {
            lengths.push(ns);
        }
    });
    lengths.map(|mut lengths| {
        let rank = lengths.len() / 100 * 99;
        *lengths.select_nth_unstable(rank).1 as f64
    })
}

/// As memcached over UDP and over TCP: one socket is near the ideal queue, sockets of their own are near an ideal queue
/// each, and far from one for all.
#[test]
fn each_kind_of_queue_is_near_its_own_ideal() {
    for cpus in [2, 4] {
        let crew = |is_shared| Crew {
            requests: 20_000,
            shared: is_shared,
            disturbances: Vec::new(),
            ..shared(cpus)
        };
        let [one, ideal, _] = p99_with_ideals(&crew(true));
        let [own, one_ideal, own_ideal] = p99_with_ideals(&crew(false));
        assert!((1.0..1.6).contains(&(one / ideal)), "{one} and {ideal}");
        assert!(
            (0.9..1.3).contains(&(own / own_ideal)),
            "{own}, {own_ideal}"
        );
        assert!(own > 1.5 * one && own > 1.5 * one_ideal, "{own} and {one}");
    }
}

/// Of two workers with clients of their own, one has two of three clients. It has served their requests, and was busy
/// for as long as these need a worker; what the kernel needs to receive them is not the worker's.
#[test]
fn each_worker_has_its_own_requests_and_was_busy_with_them() {
    let crew = Crew {
        requests: 20_000,
        shared: false,
        clients: 3,
        utilization: 0.5,
        ..Crew::default()
    };
    let traffic = crew.run();
    let worker = |client: usize| client % crew.workers;
    let of = |w| {
        let clients = traffic.truth.iter();
        let clients = clients.map(|request| usize::from(request.key.connection as u16) - 40_000);
        clients.filter(|client| worker(*client) == w).count()
    };
    let [first, last] = [0, crew.requests - 1].map(|place| traffic.truth[place].t1);
    let listed = explained(&crew, &traffic).explanation.workers;
    assert_eq!(listed.len(), 2);
    for w in 0..2 {
        let mut all = listed.iter();
        let found = all.find(|listed| listed.tid == WORKER + w as u32).unwrap();
        assert_eq!(found.requests, of(w) as u64, "{found:?}");
        let busy_ns = of(w) as u64 * crew.service;
        let busy = busy_ns as f64 / (last - first) as f64;
        assert!(
            (found.busy_share / busy - 1.0).abs() < 0.03,
            "{busy} and {found:?}"
        );
    }
    assert!(of(0) > of(1) * 3 / 2, "one is busier than the other");
}

/// What is forecast; of the causes that the queue shows, if none are given.
fn forecast(crew: &Crew, traffic: &Traffic, causes: &[CauseShare]) -> Predicted {
    let context = crew.context();
    let timeline = Timeline::build(traffic.events.iter().copied(), &context);
    let matched = match_events(traffic.events.iter().copied(), &MatchOptions::default());
    let cores = Cores::new(&timeline, &context);
    let from = Monotonic::from_nanos_since_boot(0);
    let observed = Observed::build(&matched, &cores, &context, from);
    let basis = Basis {
        sojourn: &sojourns(&traffic.truth),
        causes,
        service_time: crew.service_time(),
        process: None,
    };
    predict(&observed, &basis)
}

/// The replay has the queues that the server has, and without the bursts it says what then is.
#[test]
fn without_bursts_a_shared_queue_is_as_it_then_is() {
    let own = Crew {
        shared: false,
        ..shared(2)
    };
    for crew in [shared(2), shared(4), own] {
        let traffic = crew.run();
        let calm = sojourns(&crew.without_disturbances().run().truth);
        let predicted = forecast(&crew, &traffic, &[]);
        let fit = predicted.model_fit.as_ref().unwrap();
        assert!(fit.good, "{fit:?}");
        assert_eq!(
            fit.model.contains("one queue for all"),
            crew.shared,
            "{fit:?}"
        );
        let mut forecasts = predicted.predictions.iter();
        let found = forecasts.find(|forecast| forecast.change == "without background");
        let points = &found.unwrap_or_else(|| panic!("{predicted:#?}")).points;
        assert!(points.len() >= 2, "{points:?}");
        for point in points {
            let ratio = point.predicted_ns.get() as f64 / at(&calm, point.q);
            assert!(
                (0.9..1.1).contains(&ratio),
                "p{}: {ratio} {crew:?}",
                100.0 * point.q
            );
        }
    }
}

/// Two workers that wait 5 ms for each request, exponential, at 200 requests per second from three clients.
fn uneven(cpus: usize) -> Crew {
    Crew {
        requests: 40_000,
        workers: 2,
        cpus,
        shared: false,
        clients: 3,
        utilization: 0.5,
        waits: Some(5_000_000),
        ..Crew::default()
    }
}

/// Of two workers, one has two of three clients. Without the imbalance, it is as one queue with the same arrivals and the
/// same waits. In theory, p99 is 63.1 ms with a queue each, and 28.3 ms in the one queue (M/M/2).
#[test]
fn without_its_imbalance_an_uneven_server_is_as_one_queue() {
    for cpus in [1, 2] {
        let own = uneven(cpus);
        let traffic = own.run();
        let one = Crew {
            shared: true,
            ..own.clone()
        };
        let (own_truth, one_truth) = (sojourns(&traffic.truth), sojourns(&one.run().truth));
        for (measured, exact_ns) in [(&own_truth, 63.1e6), (&one_truth, 28.33e6)] {
            let ratio = at(measured, 0.99) / exact_ns;
            assert!((0.9..1.1).contains(&ratio), "{ratio}");
        }
        let found = explained(&own, &traffic);
        let predicted = forecast(&own, &traffic, &found.causes);
        let fit = predicted.model_fit.as_ref().unwrap();
        assert!(fit.good, "{fit:?}");
        for change in ["without imbalance", "shared-queue"] {
            let mut forecasts = predicted.predictions.iter();
            let found = forecasts.find(|forecast| forecast.change == change);
            let points = &found
                .unwrap_or_else(|| panic!("{change}: {predicted:#?}"))
                .points;
            assert!(points.len() >= 2, "{points:?}");
            for point in points {
                let ratio = point.predicted_ns.get() as f64 / at(&one_truth, point.q);
                println!("{cpus} CPUs, {change}, p{}: {ratio:.3}", 100.0 * point.q);
                assert!((0.8..1.2).contains(&ratio), "{cpus}, {change}: {point:?}");
            }
        }
    }
}
