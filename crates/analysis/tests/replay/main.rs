//! The replay and its forecasts against simulated servers about which everything is known.

mod simulator;

use proptest::prelude::*;
use simulator::Server;
use taillab_analysis::predict::{Basis, Predicted, predict};
use taillab_analysis::replay::Observed;
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::untouched::ReplayedBlock;
use taillab_model::explanation::{Cause, CauseShare, PredictedPoint, Prediction, Share};
use taillab_model::mitigation::{MITIGATIONS, Mitigation};
use taillab_model::{Distribution, Monotonic, Nanos, RecordingContext};

fn sojourn(matched: &taillab_analysis::Matched) -> Distribution {
    let all = 0..matched.requests.len();
    let sojourns: Vec<Nanos> = all.map(|place| matched.requests.sojourn(place)).collect();
    distribution_of(&sojourns)
}

/// What is forecast of the causes that the queue itself shows.
fn predicted(server: &Server) -> Predicted {
    predicted_of(server, &[])
}

/// What is forecast where the ledger has found these causes; without any, of those that the queue shows.
fn predicted_of(server: &Server, causes: &[CauseShare]) -> Predicted {
    let (matched, track) = server.run();
    let context = RecordingContext::default();
    let from = Monotonic::from_nanos_since_boot(0);
    let observed = Observed::build(&matched, &track, &context, from);
    let evidence = Basis {
        sojourn: &sojourn(&matched),
        causes,
        service_time: Nanos::new(server.work_ns.1),
        process: None,
    };
    predict(&observed, &evidence)
}

/// A cause that matters.
fn share_of(cause: Cause) -> CauseShare {
    let share = Share {
        value: 0.5,
        lo: None,
        hi: None,
    };
    CauseShare {
        cause,
        culprit: None,
        share,
        excess_share_above_p99: share,
        excess_ns: Nanos::ZERO,
        requests: 0,
        events: 0,
        mean_event_ns: 0.0,
        median_event_ns: None,
        longest_event_ns: None,
        long_events: None,
        requests_per_event: 0.0,
    }
}

fn find<'a>(predicted: &'a Predicted, change: &str) -> &'a Prediction {
    let mut all = predicted.predictions.iter();
    all.find(|p| p.change == change)
        .unwrap_or_else(|| panic!("no forecast `{change}` in {:#?}", predicted.predictions))
}

/// Compares the forecast of `change` with what really happens in `without`.
fn holds(server: &Server, change: &str, without: &Server) {
    comes_true(&predicted(server), change, without);
}

/// The same of what is forecast already.
fn comes_true(predicted: &Predicted, change: &str, without: &Server) {
    let truth = sojourn(&without.run().0);
    let prediction = find(predicted, change);
    assert!(prediction.points.len() >= 2, "{prediction:?}");
    let mut compared = 0;
    for point in &prediction.points {
        let known = truth.quantiles.iter().find(|known| known.q == point.q);
        let Some(truth) = known.and_then(|known| known.value) else {
            continue;
        };
        let ratio = point.predicted_ns.get() as f64 / truth.get() as f64;
        assert!(
            (0.8..1.2).contains(&ratio),
            "{change}, p{}: predicted {} and was {truth}",
            100.0 * point.q,
            point.predicted_ns
        );
        compared += 1;
    }
    assert!(compared > 0, "{prediction:?}");
}

/// With one worker, the recorded queue is known to the nanosecond.
#[test]
fn an_unchanged_replay_is_exact_for_one_worker() {
    for seed in 1..4 {
        let server = Server {
            seed,
            ..Server::default()
        };
        let fit = predicted(&server).model_fit.unwrap();
        assert!(fit.model.starts_with("1 worker, first come first served"));
        for point in &fit.points {
            assert_eq!(point.measured_ns, point.replayed_ns, "{fit:?}");
        }
        assert!(fit.good && fit.points.len() >= 3);
    }
}

#[test]
fn several_workers_on_one_cpu_are_replayed_in_their_own_order() {
    let server = Server {
        workers: 4,
        ..Server::default()
    };
    let fit = predicted(&server).model_fit.unwrap();
    assert!(fit.largest_error < 0.05, "{fit:?}");
    assert!(fit.model.starts_with("4 workers on 1 CPU"), "{}", fit.model);
}

/// A thread that only runs while no worker wants the CPU takes nothing away from the workers.
#[test]
fn a_thread_that_fills_idle_time_holds_nobody_up() {
    for (workers, blocked_one_in) in [(1, 0), (1, 3), (4, 3)] {
        let server = Server {
            workers,
            gap_ns: 400.0,
            filled: true,
            blocked_one_in,
            blocked_ns: 300,
            background_every_ns: 0,
            ..Server::default()
        };
        let fit = predicted(&server).model_fit.unwrap();
        assert!(fit.largest_error < 0.01, "{workers} workers: {fit:?}");
    }
}

/// Workers sleep in requests and wait for the CPU afterwards, and another thread takes it at times.
#[test]
fn workers_that_sleep_in_requests_and_share_a_cpu_are_replayed() {
    for (workers, gap_ns, blocked_ns) in [(2, 400.0, 600), (4, 200.0, 800), (8, 130.0, 1_000)] {
        let server = Server {
            workers,
            gap_ns,
            blocked_one_in: 2,
            blocked_ns,
            ..Server::default()
        };
        let fit = predicted(&server).model_fit.unwrap();
        assert!(fit.points.len() >= 2, "{fit:?}");
        assert!(fit.largest_error < 0.01, "{workers} workers: {fit:?}");
    }
}

#[test]
fn without_background_it_is_as_it_then_is() {
    for workers in [1, 3] {
        let server = Server {
            workers,
            ..Server::default()
        };
        let without = Server {
            background_every_ns: 0,
            ..server.clone()
        };
        holds(&server, "without background", &without);
        holds(&server, "rt-priority", &without);
    }
}

/// A mitigation treats a cause only if it affects the culprits of most of it.
#[test]
fn mitigations_are_chosen_by_culprit() {
    let server = Server {
        kernel_one_in: 4,
        ..Server::default()
    };
    let predicted = predicted(&server);
    let removes = |change| find(&predicted, change).removes.clone();
    assert_eq!(removes("others-idle"), [Cause::Background]);
    assert_eq!(removes("rt-priority"), [Cause::Background]);
}

#[test]
fn a_mitigation_of_programs_does_not_treat_what_the_kernel_does() {
    let server = Server {
        kernel_one_in: 1,
        ..Server::default()
    };
    let predicted = predicted(&server);
    let has_forecast = |change| predicted.predictions.iter().any(|p| p.change == change);
    assert!(!has_forecast("others-idle"));
    assert_eq!(find(&predicted, "rt-priority").removes, [Cause::Background]);
}

#[test]
fn without_locks_it_is_as_it_then_is() {
    for workers in [1, 3] {
        let server = Server {
            workers,
            background_every_ns: 0,
            blocked_one_in: 300,
            blocked_ns: 5_000,
            ..Server::default()
        };
        let without = Server {
            blocked_one_in: 0,
            ..server.clone()
        };
        holds(&server, "without blocked_lock", &without);
        holds(&server, "finer-locks", &without);
    }
}

/// Four workers on one CPU that share it in turn, or one of which yields to the others: requests overtake others that
/// came earlier. One worker for the CPU serves them as they come.
#[test]
fn with_no_more_workers_than_cpus_it_is_as_it_then_is() {
    for first_yields in [false, true] {
        let server = Server {
            workers: 4,
            gap_ns: 135.0,
            background_every_ns: 0,
            first_yields,
            ..Server::default()
        };
        let without = Server {
            workers: 1,
            ..server.clone()
        };
        let predicted = predicted_of(&server, &[share_of(Cause::OwnThreads)]);
        for change in ["without own_threads", "server-threads"] {
            comes_true(&predicted, change, &without);
            assert_eq!(find(&predicted, change).removes, [Cause::OwnThreads]);
        }
        if first_yields {
            let p99 = |server: &Server| sojourn(&server.run().0).quantile(0.99).unwrap();
            let (four, one) = (p99(&server), p99(&without));
            assert!(four.get() * 5 > one.get() * 6, "{four} and {one}");
        }
    }
}

/// No change of the replay and no mitigation takes away a time in which the whole server stands still.
#[test]
fn no_forecast_removes_a_pause() {
    let server = Server {
        background_every_ns: 0,
        blocked_one_in: 300,
        blocked_ns: 5_000,
        blocked_by: Cause::Pause,
        ..Server::default()
    };
    let all = Cause::ALL.map(share_of);
    let forecasts = predicted_of(&server, &all).predictions;
    let names: Vec<&str> = forecasts.iter().map(|p| p.change.as_str()).collect();
    for expected in ["without softirq", "without all of these", "softirq-cpu"] {
        assert!(names.contains(&expected), "{names:?}");
    }
    for forecast in &forecasts {
        assert!(!forecast.removes.contains(&Cause::Pause), "{forecast:?}");
        let p99 = forecast.points.iter().find(|point| point.q == 0.99);
        let p99 = p99.unwrap_or_else(|| panic!("{forecast:?}"));
        assert!(p99.measured_ns.get() > 2_500, "{p99:?}");
        // pauses make the tail, and stay
        assert!(
            p99.predicted_ns.get() * 2 > p99.measured_ns.get(),
            "{forecast:?}"
        );
    }
    let treats = |row: &Mitigation| row.treats.contains(&Cause::Pause);
    assert!(!MITIGATIONS.iter().any(treats));
}

#[test]
fn without_softirqs_it_is_as_it_then_is() {
    let server = Server::default();
    let without = Server {
        softirq_here: false,
        ..server.clone()
    };
    holds(&server, "softirq-cpu", &without);
}

#[test]
fn without_all_of_these_it_is_as_it_then_is() {
    let server = Server::default();
    let without = Server {
        softirq_here: false,
        background_every_ns: 0,
        wake_ns: (0, 0),
        ..server.clone()
    };
    holds(&server, "without all of these", &without);
}

/// Another thread keeps the CPU awake for most of the time, and it is faster to wait for it than to wake the
/// CPU. Without the thread, every request wakes the CPU, which the forecast says; a thread that only gives way
/// still keeps it awake.
#[test]
fn what_kept_the_cpu_awake_costs_wake_ups_where_it_is_gone_and_none_where_it_gives_way() {
    let server = Server {
        requests: 3_000,
        gap_ns: 3_000.0,
        wake_ns: (800, 1_200),
        background_every_ns: 1_000,
        background_ns: 800,
        softirq_here: false,
        ..Server::default()
    };
    let predicted = predicted(&server);
    let p50 = |change| *find(&predicted, change).points.first().unwrap();
    let gone = find(&predicted, "dedicated-cpus");
    let median = p50("dedicated-cpus");
    assert!(median.predicted_ns > median.measured_ns, "{gone:?}");
    let cost = gone.cost.as_deref().unwrap();
    let (worse, why) = cost.split_once(" worse: ").unwrap();
    assert!(worse.contains("p50"), "{cost}");
    assert!(
        why.starts_with("with nothing else to run, the CPU sleeps"),
        "{cost}"
    );
    for gives_way in ["rt-priority", "others-idle"] {
        let median = p50(gives_way);
        assert!(
            median.predicted_ns < median.measured_ns,
            "{gives_way}: {median:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A change that takes something away makes no percentile worse, unless it says why.
    #[test]
    fn no_forecast_is_worse_than_now_without_a_reason(
        seed in 1_u64..1_000,
        workers in 1_usize..4,
        gap_ns in 150.0_f64..1_500.0,
        wake_ns in 0_u64..1_500,
        (background_every_ns, background_ns) in (1_000_u64..40_000, 100_u64..900),
        (filled, softirq_here) in any::<(bool, bool)>(),
        (blocked_one_in, blocked_ns) in (0_usize..5, 100_u64..1_000),
    ) {
        let server = Server {
            requests: 1_500,
            seed,
            workers,
            gap_ns,
            wake_ns: (wake_ns, wake_ns + 300),
            background_every_ns,
            background_ns,
            filled,
            softirq_here,
            blocked_one_in: 10 * blocked_one_in,
            blocked_ns,
            ..Server::default()
        };
        for forecast in predicted(&server).predictions {
            let worse = |point: &PredictedPoint| point.predicted_ns > point.measured_ns;
            let text = forecast.cost.as_ref().unwrap_or(&forecast.description);
            let says = text.contains("gets worse: ") || text.contains("get worse: ");
            prop_assert_eq!(forecast.points.iter().any(worse), says, "{:?}", forecast);
        }
    }
}

/// What a winner has removed is gone from the blocks that were measured with it, so another
/// mitigation of the same cause has nothing left to gain there.
#[test]
fn what_is_left_to_gain_is_told_by_blocks_without_it() {
    let block = |server: &Server| {
        let (matched, track) = server.run();
        let context = RecordingContext::default();
        let from = Monotonic::from_nanos_since_boot(0);
        let observed = Observed::build(&matched, &track, &context, from);
        ReplayedBlock::of(observed, Nanos::new(server.work_ns.1)).unwrap()
    };
    let p99 = |sojourns: &[Nanos]| {
        let mut sorted = sojourns.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() * 99 / 100]
    };
    let disturbed = Server::default();
    let calm = Server {
        background_every_ns: 0,
        ..disturbed.clone()
    };
    let (before, after) = (block(&disturbed), block(&calm));
    let with = |block: &ReplayedBlock, name| p99(&block.sojourns_with(name).unwrap());
    let promised = with(&before, "rt-priority");
    assert!(promised.get() * 10 < p99(before.sojourns()).get() * 9);
    for name in ["rt-priority", "dedicated-cpus", "others-idle"] {
        assert_eq!(with(&after, name), p99(after.sojourns()), "{name}");
    }
    // softirqs are still there
    assert!(with(&after, "softirq-cpu") < p99(after.sojourns()));
    assert!(after.sojourns_with("governor").is_none());
    assert!(after.has_model_of(&[Cause::Background]) && !after.has_model_of(&[Cause::StackTx]));
    let without = p99(&before.sojourns_without(&[Cause::Background]));
    assert!(without < p99(before.sojourns()));
}
