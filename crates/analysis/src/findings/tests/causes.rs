//! How causes and culprits are told.

use super::*;

/// Eleven loops of a shell, each a process of its own, were named one by one.
#[test]
fn processes_of_one_name_are_one_culprit() {
    let shell = |pid| {
        Some(Culprit::Thread {
            name: "sh".to_owned(),
            pid: Some(pid),
            tid: Some(pid),
        })
    };
    let mut causes = vec![
        share(Cause::Background, None, 0.87),
        share(Cause::Background, thread("kdamond.0"), 0.05),
        share(Cause::Background, thread("dpkg"), 0.04),
    ];
    causes.extend((0..11).map(|i| share(Cause::Background, shell(20_100 + i), 0.07)));
    let case = Case {
        causes,
        ..Case::default()
    };
    let text = &case.findings()[0].text;
    let named = "11 processes named `sh` and 2 others on the core: 212 × 2.10 ms, delayed";
    assert!(text.starts_with(named), "{text}");
}

/// Clients that wait for their answers: there is no ideal and no forecast, and still somebody held the server up.
#[test]
fn without_an_ideal_the_main_cause_is_still_the_first_finding() {
    let case = Case {
        withdrawn: Some(Withdrawn::ClientsWait { at_once: 8 }),
        ideal: distribution(&[]),
        causes: vec![share(Cause::Throttled, None, 0.9)],
        ..Case::default()
    };
    assert_eq!(
        case.texts(),
        [
            "The server being held back by a quota: 212 × 2.10 ms, delayed 40,280 requests, 90 % of the \
             excess above p99."
        ]
    );
}

/// Work without a beginning and an end has as many times as requests.
#[test]
fn what_happens_to_each_request_is_counted_by_requests() {
    let receiving = CauseShare {
        episodes: 40_280,
        mean_episode_ns: 3_100.0,
        ..share(Cause::StackRx, None, 0.4)
    };
    let case = Case {
        causes: vec![receiving],
        ..Case::default()
    };
    let text = &case.findings()[0].text;
    let said = "Receiving in the network stack: delayed 40,280 requests by 3.10 µs each, 40 %";
    assert!(text.starts_with(said), "{text}");
}
