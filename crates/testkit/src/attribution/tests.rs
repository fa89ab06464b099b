use taillab_load::ground_truth::{InjectedInterval, InjectedSource};

use proptest::prelude::*;
use taillab_model::explanation::Cause;

use super::*;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(1_000_000 + ns)
}

/// Longer than any demand here.
const LONG: Nanos = Nanos::new(1_000);

fn span(t1: u64, t6: u64, worker: Tid) -> Span {
    Span {
        t1: at(t1),
        t2: at(t1),
        t6: at(t6),
        worker,
    }
}

fn source(cause: Cause, culprit: Option<Culprit>) -> InjectedSource {
    InjectedSource {
        injected: cause.key().to_owned(),
        cause,
        culprit,
    }
}

fn held(source: u16, from: u64, to: u64, held: Option<Tid>) -> InjectedInterval {
    InjectedInterval {
        source,
        cpu: None,
        held,
        from_ns: at(from),
        to_ns: at(to),
        times: 1,
    }
}

fn raw(delays: &[Nanos]) -> Vec<u64> {
    delays.iter().map(|delay| delay.get()).collect()
}

/// The service takes 10. The worker is held back from 5 to 35: the first request loses 30, and the
/// next two inherit what no idle time absorbs.
#[test]
fn a_delay_is_inherited_until_an_idle_time_swallows_it() {
    let spans = [
        span(0, 40, 1),
        span(15, 50, 1),
        span(45, 60, 1),
        span(200, 210, 1),
    ];
    let truth = GroundTruth {
        sources: vec![source(Cause::Background, None)],
        intervals: vec![held(0, 5, 35, None), held(0, 100, 150, None)],
        unrecorded: 0,
    };
    // undisturbed: 10, 25, 55
    assert_eq!(raw(&delays(&spans, &truth, LONG)[0]), [30, 25, 5, 0]);
}

#[test]
fn a_thread_that_is_held_back_delays_its_own_requests_only() {
    let spans = [span(0, 30, 1), span(0, 30, 2), span(5, 40, 2)];
    let truth = GroundTruth {
        sources: vec![source(Cause::BlockedLock, None)],
        intervals: vec![held(0, 2, 12, Some(2))],
        unrecorded: 0,
    };
    assert_eq!(raw(&delays(&spans, &truth, LONG)[0]), [0, 10, 10]);
}

#[test]
fn the_way_to_the_worker_is_no_delay_where_only_a_thread_is_held_back() {
    let queued = |t2, span| Span { t2: at(t2), ..span };
    let truth = |held_back| GroundTruth {
        sources: vec![source(Cause::Background, None)],
        intervals: vec![held(0, 5, 35, held_back)],
        unrecorded: 0,
    };
    // the second took 15 to reach the worker, while the first was held back
    let spans = [span(0, 40, 1), queued(30, span(15, 50, 1))];
    let delays_by = |held_back| raw(&delays(&spans, &truth(held_back), LONG)[0]);
    assert_eq!(delays_by(Some(1)), [30, 10]);
    // an injection that takes the CPU also holds up its packets
    assert_eq!(delays_by(None), [30, 25]);
}

#[test]
fn what_another_disturbance_made_is_not_claimed() {
    // the service takes 10; the first lost 100 to another disturbance, then 30 to this one
    let spans = [span(0, 140, 1), span(15, 150, 1), span(16, 160, 1)];
    let truth = GroundTruth {
        sources: vec![source(Cause::Background, None)],
        intervals: vec![held(0, 105, 135, None)],
        unrecorded: 0,
    };
    // alone: 40, 50, 60 instead of 10, 25, 35
    let alone = delays(&spans, &truth, Nanos::new(10));
    assert_eq!(raw(&alone[0]), [30, 25, 25]);
}

/// The second source delays the third request only because the first has left a queue.
#[test]
fn two_sources_share_what_neither_costs_alone() {
    let spans = [span(0, 40, 1), span(15, 70, 1), span(50, 80, 1)];
    let truth = GroundTruth {
        sources: vec![
            source(Cause::Background, None),
            source(Cause::SlowService, None),
        ],
        intervals: vec![held(0, 5, 35, None), held(1, 45, 65, Some(1))],
        unrecorded: 0,
    };
    // ends: 10, 25, 60 undisturbed; 40, 50, 60 and 10, 45, 60 with one of them
    let found = delays(&spans, &truth, Nanos::new(10));
    assert_eq!(raw(&found[0]), [30, 25, 10]);
    assert_eq!(raw(&found[1]), [0, 20, 10]);
}

proptest! {
    /// A server that only the injection disturbs is delayed by all the time that it lost.
    #[test]
    fn alone_an_injection_costs_what_it_took(
        gaps in prop::collection::vec(0_u64..40, 1..60),
        losses in prop::collection::vec(0_u64..60, 60),
    ) {
        let (mut spans, mut intervals, mut expected) = (vec![], vec![], vec![]);
        let (mut came, mut free, mut ideal) = (0_u64, 0_u64, 0_u64);
        for (gap, loss) in gaps.iter().zip(&losses) {
            came += gap;
            let begin = came.max(free);
            free = begin + 10 + loss;
            ideal = came.max(ideal) + 10;
            intervals.push(held(0, begin, begin + loss, Some(1)));
            spans.push(span(came, free, 1));
            expected.push(free - ideal);
        }
        let truth = GroundTruth {
            sources: vec![source(Cause::BlockedIo, None)],
            intervals,
            unrecorded: 0,
        };
        prop_assert_eq!(raw(&delays(&spans, &truth, Nanos::new(10))[0]), expected);
    }
}

#[test]
fn a_lost_request_is_the_one_that_was_under_way_all_the_while() {
    let spans = [
        span(0, 10, 1),
        span(5, 500, 1),
        span(480, 495, 1),
        span(490, 510, 1),
    ];
    let truth = GroundTruth {
        sources: vec![source(Cause::Retransmit, None)],
        intervals: vec![held(0, 7, 487, None)],
        unrecorded: 0,
    };
    assert_eq!(raw(&lost(&spans, &truth)), [0, 480, 0, 0]);
}

#[test]
fn a_culprit_is_known_by_its_thread_or_else_by_its_name() {
    let thread = |name: &str, tid| {
        Some(Culprit::Thread {
            name: name.to_owned(),
            pid: Some(7),
            tid,
            process: None,
        })
    };
    assert!(is_meant(&thread("a", Some(1)), &thread("b", Some(1))));
    assert!(!is_meant(&thread("a", Some(1)), &thread("a", Some(2))));
    assert!(is_meant(&thread("a", Some(1)), &thread("a", None)));
    assert!(!is_meant(&thread("a", Some(1)), &None));
    assert!(is_meant(&None, &thread("a", None)));
}
