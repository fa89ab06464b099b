//! Causes count what happened, however many requests it delayed and pieces it was charged in.

use taillab_model::EventKind;
use taillab_model::explanation::{Cause, CauseShare};

use super::explained;
use super::kernel::{Plan, Trouble, WORKER, What};

fn whole(causes: &[CauseShare], cause: Cause) -> &CauseShare {
    let mut wholes = causes.iter();
    let share = wholes.find(|share| share.cause == cause && share.culprit.is_none());
    share.unwrap_or_else(|| panic!("{cause:?} in {causes:#?}"))
}

/// A quota that stopped a server 78 times for 33 ms was told as 16,660 times for 123 µs: packets come in
/// meanwhile, and softirqs run.
#[test]
fn a_throttle_is_one_event_with_its_own_length() {
    for what in [What::HeldBack, What::HeldBackInSoftirqs] {
        let plan = Plan {
            gaps: vec![20_000.0],
            disturbances: vec![(what, 50_000_000, 5_000_000)],
            real_time: true,
            ..Plan::default()
        };
        let traffic = plan.run();
        let stopped = |kind: &EventKind| {
            matches!(
                kind,
                EventKind::Switched {
                    prev: WORKER,
                    next: 0,
                    preempted: true,
                    ..
                }
            )
        };
        let events = traffic.events.iter();
        let truth = events.filter(|event| stopped(&event.kind)).count() as u64;
        assert!(truth > 3, "{truth}");
        let found = explained(&plan, &traffic.events);
        let throttled = whole(&found.causes, Cause::Throttled);
        assert_eq!(throttled.events, truth, "{throttled:?}");
        assert!(
            (4.8e6..7.5e6).contains(&throttled.mean_event_ns),
            "{throttled:?}"
        );
        let (median, longest) = (throttled.median_event_ns, throttled.longest_event_ns);
        assert!(median.is_some() && median <= longest, "{throttled:?}");
        assert!(throttled.requests > 20 * truth, "{throttled:?}");
    }
}

/// 81 requests that wait 30 ms each were `blocked 7,867 times, 273 µs`: each arrival cut the sleep.
#[test]
fn a_sleep_is_one_event_whoever_arrives_meanwhile() {
    let (every, length) = (300, 400_000);
    let trouble = Trouble::Sleep {
        call: Some(202),
        uninterruptible: false,
        length,
    };
    let plan = Plan {
        trouble: Some((every, trouble)),
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let blocked = whole(&found.causes, Cause::BlockedLock);
    assert_eq!(blocked.events, plan.requests.div_ceil(every) as u64);
    let length = length as f64;
    assert!(
        (length..1.2 * length).contains(&blocked.mean_event_ns),
        "{blocked:?}"
    );
}

/// Twelve scripts were `9,110 times, 56 µs`.
#[test]
fn a_slow_service_is_one_event_and_has_a_shadow() {
    let (every, length) = (500, 500_000);
    let plan = Plan {
        trouble: Some((every, Trouble::Slow(length))),
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let slow = whole(&found.causes, Cause::SlowService);
    // as far as it is beyond t
    let longest = slow.longest_event_ns.expect("a longest").get();
    assert!((length * 9 / 10..2 * length).contains(&longest), "{slow:?}");
    let requests = (found.explanation.slow_requests).expect("some take far longer than the others");
    assert_eq!(requests.requests, plan.requests.div_ceil(every) as u64);
    assert!(requests.mean_own_ns.get() >= length && requests.others_own_ns.get() < 50_000);
    assert!(requests.delayed > requests.requests, "{requests:?}");
    assert!(
        (10_000..length).contains(&requests.mean_delay_ns.get()),
        "{requests:?}"
    );
}

/// Each stay of a thread on the core is one event, and the bursts that it makes have it as their root.
#[test]
fn bursts_begin_with_the_thread_that_made_them() {
    let plan = Plan {
        gaps: vec![21_000.0],
        disturbances: vec![(What::Thread, 60_000_000, 2_000_000)],
        ..Plan::default()
    };
    let traffic = plan.run();
    let stays = traffic.events.iter().filter(|event| {
        matches!(
            event.kind,
            EventKind::Switched {
                next: super::kernel::BURST,
                ..
            }
        )
    });
    let stays = stays.count() as u64;
    let found = explained(&plan, &traffic.events);
    let burst = Some(super::thread("burst", super::kernel::BURST));
    let background = found.causes.iter().find(|share| share.culprit == burst);
    let background = background.expect("the thread");
    assert_eq!(background.events, stays, "{background:?}");
    let roots = &found.explanation.burst_roots;
    let chief = roots.first().expect("a root");
    assert_eq!(chief.cause, Cause::Background);
    assert!(
        chief.bursts as f64 > 0.8 * found.explanation.bursts as f64,
        "{roots:?}"
    );
    assert!(chief.longest_ns.get() > 1_500_000, "{roots:?}");
}
