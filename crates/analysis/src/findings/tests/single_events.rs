//! One or two events that make the tail.

use super::*;
use crate::fmt::Counted;

/// A burst of 16 ms once in 20 s makes p99 five times what it is in other runs.
#[test]
fn one_event_that_makes_the_tail_is_told_with_what_is_left_without_it() {
    let once = CauseShare {
        events: 1,
        mean_event_ns: 16_200_000.0,
        ..share(Cause::Background, thread("dpkg"), 0.61)
    };
    let mut without = prediction("without dpkg", Cause::Background, 1_300_000);
    without.cost = None;
    without.points[0].q = 0.99;
    let case = Case {
        causes: vec![share(Cause::Background, None, 0.7), once.clone()],
        predictions: vec![without],
        ..Case::default()
    };
    let texts = case.texts();
    let is_told = |text: &str| text.contains("Another run of this length");
    let told = texts.iter().find(|text| is_told(text)).unwrap();
    let requests = Counted(once.requests, "request", "requests");
    assert_eq!(
        *told,
        format!(
            "`dpkg`: once, for 16.2 ms, delayed {requests}, 61 % of the excess above p99; p99 without it: \
             1.30 ms (1.29 ms to 1.32 ms). Another run of this length may have none of it."
        )
    );
    // its interval reaches 0: it is not said to be the cause
    let mut chance = once.clone();
    chance.excess_share_above_p99.lo = Some(-0.1);
    let case = Case {
        causes: vec![chance],
        ..Case::default()
    };
    let findings = case.findings();
    let told = (findings.iter()).find(|finding| is_told(&finding.text));
    let told = told.unwrap();
    let doubt = "61 % (0 to 64 %) of the excess above p99";
    assert!(told.inconclusive && told.text.contains(doubt), "{told:?}");
    let often = CauseShare {
        events: 40,
        ..once.clone()
    };
    // what was seen once in slices may have happened often between them
    let in_slices = Matching {
        stamps: "sampled:1/2".parse().unwrap(),
        ..Matching::default()
    };
    for (cause, matching) in [(often, Matching::default()), (once, in_slices)] {
        let case = Case {
            causes: vec![cause],
            matching,
            ..Case::default()
        };
        let texts = case.texts();
        let told = texts.iter().any(|text| text.contains("Another run"));
        assert!(!told, "{texts:?}");
    }
}
