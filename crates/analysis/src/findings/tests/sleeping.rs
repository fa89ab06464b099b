//! Workers that fall asleep and are woken.

use super::*;

/// Half of the CPU time of this server was sleeping and waking, and nothing said so.
#[test]
fn workers_that_sleep_and_wake_are_told_with_what_it_costs() {
    let sleeping = Sleeping {
        wakes_per_s: 13_400.0,
        wakes_per_request: 0.8,
        found_asleep_share: 0.62,
        wait_asleep_ns: Some(Nanos::new(11_900)),
        wait_awake_ns: Some(Nanos::new(1_200)),
        at_p50_ns: 45_000.0,
        share_of_p50: 0.36,
        cpu_ns_each: Some(15_900.0),
        cpu_share: Some(0.44),
    };
    let mut poll = prediction("busy-poll", Cause::IdleExit, 80_000);
    poll.description = "workers that poll".to_owned();
    poll.points[0].q = 0.5;
    poll.points[0].measured_ns = Nanos::new(125_000);
    let mut case = Case {
        sojourn: distribution(&[(0.5, 125_000), (0.99, 760_000)]),
        sleeping: Some(sleeping),
        predictions: vec![poll],
        ..Case::default()
    };
    let found = &case.findings()[0];
    assert_eq!(found.key.as_deref(), Some("sleeping_and_waking"));
    assert_eq!(
        found.text,
        "Workers fall asleep and are woken 13,400 times a second, at 15.9 µs of CPU time each (44 % \
         of what they use): 62 % of the requests wait 11.9 µs for a sleeping worker; sleeping and waking make \
         45.0 µs (36 %) of p50; p50 with \
         `busy-poll`: 80.0 µs."
    );
    assert_eq!(
        found.advice.as_deref(),
        Some("sudo taillab tune apply rt-priority -p 4711")
    );
    // little of either is not worth a sentence
    let is_told = |case: &Case| case.texts().iter().any(|text| text.contains("asleep"));
    case.sleeping = Some(Sleeping {
        share_of_p50: 0.09,
        ..sleeping
    });
    assert!(is_told(&case));
    case.sleeping = Some(Sleeping {
        share_of_p50: 0.09,
        cpu_share: Some(0.14),
        ..sleeping
    });
    assert!(!is_told(&case));
    // where the CPU time is not known, the median still tells
    case.sleeping = Some(Sleeping {
        cpu_ns_each: None,
        cpu_share: None,
        ..sleeping
    });
    assert!(is_told(&case));
}
