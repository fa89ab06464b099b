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
            process: None,
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
    let named = "11 processes named `sh` and 2 others on the core: 212 times, 2.10 ms each";
    assert!(text.starts_with(named), "{text}");
}

/// Five other programs came for some microseconds each, and hid that each time of the loops took 0.65 ms. The table
/// below has all times: a finding of 719 beside a table with 1,423 said two things of one.
#[test]
fn short_times_of_others_do_not_hide_those_that_made_the_tail() {
    let times = |share: CauseShare, events, mean_event_ns| CauseShare {
        events,
        mean_event_ns,
        ..share
    };
    let whole = share(Cause::Background, None, 0.99);
    let stress = share(Cause::Background, thread("stress"), 0.96);
    let cron = share(Cause::Background, thread("cron"), 0.03);
    let mut case = Case {
        causes: vec![
            times(whole, 1_423, 333_000.0),
            times(stress, 719, 649_000.0),
            times(cron, 704, 10_000.0),
        ],
        ..Case::default()
    };
    let text = |case: &Case| case.texts().remove(0);
    let said = "`stress` on the core: 719 of 1,423 times, 649 µs each (up to 4.00 ms), delayed 40,280 requests, 99 %";
    assert!(text(&case).starts_with(said), "{}", text(&case));
    // where the others matter, the figures are theirs, too
    case.causes[2].excess_share_above_p99.value = 0.07;
    let said = "`stress` and 1 other on the core: 1,423 times, 333 µs each (up to 4.00 ms), delayed 40,280 requests, 99 %";
    assert!(text(&case).starts_with(said), "{}", text(&case));
}

/// HAProxy's 50 waits of 30 ms for its backend were "3,769 times, 578 µs each".
#[test]
fn the_few_long_times_are_told_apart_from_the_many_short_ones() {
    let long_events = Some(LongEvents {
        events: 50,
        mean_ns: 30.6e6,
    });
    let whole = CauseShare {
        events: 3_769,
        mean_event_ns: 578_000.0,
        long_events,
        ..share(Cause::Upstream, None, 0.97)
    };
    let mut case = Case {
        causes: vec![whole],
        ..Case::default()
    };
    let said = "3,769 times, 578 µs each (50 of them 30.6 ms), delayed";
    let text = case.texts().remove(0);
    assert!(text.contains(said), "{text}");
    case.causes[0].longest_event_ns = Some(Nanos::from_millis(2_000));
    let said = "(50 of them 30.6 ms, up to 2.00 s), delayed";
    let text = case.texts().remove(0);
    assert!(text.contains(said), "{text}");
    if let Some(long) = &mut case.causes[0].long_events {
        long.events = 1;
    }
    let text = case.texts().remove(0);
    assert!(
        text.contains("578 µs each (once 30.6 ms), delayed"),
        "{text}"
    );
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
            "The server being held back by a quota: 212 times, 2.10 ms each, delayed 40,280 \
             requests, 90 % of the delays above p99."
        ]
    );
}

/// Work without a beginning and an end has no times, only requests.
#[test]
fn what_happens_to_each_request_is_counted_by_requests() {
    let receiving = CauseShare {
        events: 0,
        mean_event_ns: 0.0,
        excess_ns: Nanos::new(40_280 * 3_100),
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

/// Each cause's share of the time was in doubt, and none was named, though each burst had a root.
#[test]
fn bursts_are_told_by_what_they_began_with_where_shares_are_in_doubt() {
    let mut doubtful = share(Cause::Background, None, 0.45);
    doubtful.excess_share_above_p99.lo = Some(0.0);
    let root = |cause, culprit, bursts, shortest, longest| BurstRoot {
        cause,
        culprit,
        bursts,
        share: Share {
            value: bursts as f64 / 27.0,
            lo: Some(0.28),
            hi: Some(0.63),
        },
        shortest_ns: Nanos::from_micros(shortest),
        longest_ns: Nanos::from_micros(longest),
    };
    let softirq = Some(Culprit::Softirq {
        name: "RCU".to_owned(),
    });
    let mut case = Case {
        causes: vec![doubtful],
        bursts: 27,
        burst_roots: vec![
            root(Cause::Background, thread("kdamond.0"), 12, 1_100, 14_600),
            root(Cause::Softirq, softirq, 9, 900, 900),
            root(Cause::Hypervisor, None, 6, 2_000, 4_000),
        ],
        ..Case::default()
    };
    let finding = case.findings().remove(0);
    assert_eq!(
        finding.text,
        "12 of 27 bursts of slow requests (95 % interval 28 % to 63 %): `kdamond.0` on the core, \
         1.10 ms to 14.6 ms; 9: softirqs `RCU` on the core, 900 µs; 6: the hypervisor, which took the \
         server's CPU away, 2.00 ms to 4.00 ms."
    );
    assert!(!finding.inconclusive);
    // two bursts say nothing of others
    case.bursts = 2;
    assert!(case.texts().iter().all(|text| !text.contains("bursts of")));
    case.bursts = 27;
    // where the shares are certain, the causes are told instead
    case.causes[0].excess_share_above_p99.lo = Some(0.4);
    assert!(case.texts().iter().all(|text| !text.contains("12 of 27")));
}

/// Twelve scripts of Redis were `9,110 times, 56 µs`, and whom they delayed was not said.
#[test]
fn slow_requests_are_told_with_their_shadow() {
    let of = |operations: &[(&str, u64)]| Case {
        causes: vec![share(Cause::SlowService, None, 0.62)],
        slow_requests: Some(SlowRequests {
            requests: 12,
            operations: (operations.iter())
                .map(|(name, requests)| SlowOperation {
                    name: (*name).to_owned(),
                    requests: *requests,
                })
                .collect(),
            mean_own_ns: Nanos::from_millis(33),
            others_own_ns: Nanos::from_micros(52),
            delayed: 4_100,
            mean_delay_ns: Nanos::from_millis(11),
        }),
        ..Case::default()
    };
    let told = |operations: &[(&str, u64)]| of(operations).texts().remove(0);
    assert_eq!(
        told(&[]),
        "12 requests whose own work takes 33.0 ms (that of the others 52.0 µs), delayed 4,100 others by \
         11.0 ms on average, 62 % of the excess above p99."
    );
    let named = told(&[("EVALSHA", 12)]);
    assert!(
        named.starts_with("12 × `EVALSHA` whose own work takes 33.0 ms (that"),
        "{named}"
    );
    let mixed = told(&[("EVALSHA", 7), ("KEYS", 2), ("SORT", 1)]);
    let who = "7 × `EVALSHA`, 2 × `KEYS` and 3 others whose own work";
    assert!(mixed.starts_with(who), "{mixed}");
}

/// A collector, a memcached and a delayed ACK were told as own threads, as sleeping and as a lock, and the advice
/// was to change the server.
#[test]
fn what_was_waited_for_is_told_with_what_would_help() {
    let told = |cause, culprit: Culprit| {
        let case = Case {
            causes: vec![share(cause, None, 0.62), share(cause, Some(culprit), 0.62)],
            ..Case::default()
        };
        let finding = case.findings().remove(0);
        (finding.text, finding.advice.unwrap_or_default())
    };
    let happened =
        "212 times, 2.10 ms each, delayed 40,280 requests, 62 % of the excess above p99.";
    let collection = Culprit::Runtime {
        task: "garbage collection (V8)".to_owned(),
        threads: Vec::new(),
    };
    let (text, advice) = told(Cause::Pause, collection);
    let what = "The whole server stopping for garbage collection (V8)";
    assert_eq!(text, format!("{what}: {happened}"));
    assert!(advice.contains("--max-semi-space-size"), "{advice}");
    let cache = Culprit::Upstream {
        servers: vec!["127.0.0.1:11211 (memcached)".to_owned()],
    };
    let (text, advice) = told(Cause::Upstream, cache);
    let what = "Workers waiting for an upstream, 127.0.0.1:11211 (memcached)";
    assert_eq!(text, format!("{what}: {happened}"));
    assert!(advice.contains("most of this time is theirs"), "{advice}");
    let nagle = Culprit::Sending {
        what: "a delayed ACK (Nagle's algorithm)".to_owned(),
    };
    let (text, advice) = told(Cause::Client, nagle);
    let what = "Written responses waiting for a delayed ACK (Nagle's algorithm)";
    assert_eq!(text, format!("{what}: {happened}"));
    assert!(advice.contains("TCP_NODELAY"), "{advice}");
    // fewer threads are no remedy for one that does other work, such as memcached's maintainers
    let maintainer = Culprit::OwnThread {
        name: "memcached".to_owned(),
        pid: Some(4_711),
        tid: 4_715,
    };
    let (_, advice) = told(Cause::OwnThreads, maintainer);
    assert!(advice.contains("other work than answering"), "{advice}");
    let sharing = Culprit::SharedCpu { cpu: 0, threads: 4 };
    let (_, advice) = told(Cause::OwnThreads, sharing);
    assert!(
        advice.contains("no more threads than it has CPUs"),
        "{advice}"
    );
}
