//! What the server's own threads do to each other, and whom its workers wait for: small histories, written by
//! hand.

use taillab_model::explanation::{Cause, Culprit, ThreadActivity};
use taillab_model::{
    EventKind, Nanos, RecordingContext, RequestKey, ThreadName, Tid, UpstreamServer,
};

use super::Found;
use super::story::{
    COLLECTOR, DISPATCHER, EPOLL, FIRST, FUTEX, SECOND, Story, VM, culprits, of, whole,
};

/// Two workers with connections of their own have one CPU: the second takes it from the first in the middle of
/// its request, which came earlier. That is neither an order nor an imbalance.
#[test]
fn workers_that_share_a_cpu_compete_for_it() {
    let rounds = 200;
    let found = Story::of(rounds, 2_000_000, |story| {
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.comes(0, 200, SECOND);
        story.wakes(0, 1_300, SECOND, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.sleeps(0, 20_000, (FIRST, SECOND), None);
        story.reads(0, 21_000, SECOND);
        story.writes(0, 50_000, SECOND);
        story.leaves(0, 51_000, SECOND);
        story.sleeps(0, 52_000, (SECOND, FIRST), Some(EPOLL));
        story.writes(0, 65_000, FIRST);
        story.leaves(0, 66_000, FIRST);
        story.sleeps(0, 67_000, (FIRST, 0), Some(EPOLL));
    });
    assert_eq!(found.matched.requests.len(), 2 * rounds as usize);
    let competing = whole(&found, Cause::OwnThreads);
    assert!(competing.share.value > 0.6, "{:#?}", found.causes);
    let cpu = Culprit::SharedCpu { cpu: 0, threads: 2 };
    assert_eq!(culprits(&found, Cause::OwnThreads), [cpu]);
    // each waits once for the other
    let events = u64::from(2 * rounds);
    assert!(
        (events - 4..=events).contains(&competing.events),
        "{competing:?}"
    );
    for other in [Cause::Order, Cause::Imbalance, Cause::Background] {
        assert_eq!(of(&found, other), 0, "{other:?} {:#?}", found.charged);
    }
    assert_eq!(found.explanation.inversions.overtaken, 0);
}

/// A collection stops a worker in the middle of its request, and another one before it has read its own.
#[test]
fn a_collection_has_one_name_for_all_requests() {
    let rounds = 50;
    let found = Story::of(rounds, 20_000_000, |story| {
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.sleeps(0, 10_000, (FIRST, VM), Some(FUTEX));
        story.sleeps(1, 12_000, (0, COLLECTOR), None);
        story.comes(1, 1_000_000, SECOND);
        story.wakes(1, 1_001_100, SECOND, 0);
        story.wakes(0, 5_009_000, FIRST, VM);
        story.sleeps(0, 5_010_000, (VM, FIRST), Some(FUTEX));
        story.sleeps(1, 5_010_400, (COLLECTOR, SECOND), Some(FUTEX));
        story.reads(1, 5_013_000, SECOND);
        story.writes(0, 5_030_000, FIRST);
        story.leaves(0, 5_031_000, FIRST);
        story.sleeps(0, 5_032_000, (FIRST, 0), Some(EPOLL));
        story.writes(1, 5_040_000, SECOND);
        story.leaves(1, 5_041_000, SECOND);
        story.sleeps(1, 5_042_000, (SECOND, 0), Some(EPOLL));
    });
    assert_eq!(found.matched.requests.len(), 2 * rounds as usize);
    let pause = whole(&found, Cause::Pause);
    assert!(pause.share.value > 0.95, "{:#?}", found.causes);
    let numbers = (pause.events, pause.requests);
    assert_eq!(numbers, (rounds.into(), u64::from(2 * rounds)));
    assert!((4.9e6..5.1e6).contains(&pause.mean_event_ns), "{pause:?}");
    let runtime = Culprit::Runtime {
        task: "garbage collection".to_owned(),
        threads: vec!["GC Thread".to_owned(), "VM Thread".to_owned()],
    };
    assert_eq!(culprits(&found, Cause::Pause), [runtime]);
    for other in [Cause::BlockedLock, Cause::Background, Cause::Order] {
        assert_eq!(of(&found, other), 0, "{other:?} {:#?}", found.charged);
    }
}

/// A worker has answered a later request first. What then holds up the earlier one is charged to the order, since it
/// should have left: so is a millisecond of another program, but not a collection, in which no order would have helped.
#[test]
fn a_collection_is_no_order_for_who_was_overtaken() {
    let rounds = 50;
    let found = Story::of(rounds, 20_000_000, |story| {
        let later = RequestKey::hashed(0, 50_000, story.round as u16);
        let stranger = 77;
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.comes_with(later, 0, 5_000, FIRST);
        story.reads(0, 8_000, FIRST);
        story.writes(0, 15_000, FIRST);
        story.leaves_with(later, 0, 16_000, FIRST);
        story.sleeps(0, 20_000, (FIRST, stranger), None);
        story.sleeps(0, 1_020_000, (stranger, FIRST), None);
        story.sleeps(0, 1_021_000, (FIRST, VM), Some(FUTEX));
        story.sleeps(1, 1_022_000, (0, COLLECTOR), None);
        story.sleeps(1, 6_000_000, (COLLECTOR, 0), Some(FUTEX));
        story.wakes(0, 6_020_000, FIRST, VM);
        story.sleeps(0, 6_021_000, (VM, FIRST), Some(FUTEX));
        story.writes(0, 6_031_000, FIRST);
        story.leaves(0, 6_032_000, FIRST);
        story.sleeps(0, 6_033_000, (FIRST, 0), Some(EPOLL));
    });
    assert_eq!(found.matched.requests.len(), 2 * rounds as usize);
    let each = |cause| of(&found, cause) as f64 / f64::from(rounds);
    let (order, pause) = (each(Cause::Order), each(Cause::Pause));
    assert!((0.9e6..1.1e6).contains(&order), "{:#?}", found.charged);
    assert!((4.9e6..5.1e6).contains(&pause), "{:#?}", found.charged);
}

/// A worker asks elsewhere in the middle of its request, and sleeps for 3 ms where it waits for sockets. What
/// wakes it, and when it has begun to answer, tell what it waits for.
fn asks(woken_by: Tid, answers_first: bool) -> Found {
    Story::of(100, 10_000_000, |story| {
        asks_once(story, woken_by, answers_first);
    })
}

fn asks_once(story: &mut Story, woken_by: Tid, answers_first: bool) {
    story.comes(0, 0, FIRST);
    story.wakes(0, 1_100, FIRST, 0);
    story.sleeps(0, 2_000, (0, FIRST), None);
    story.reads(0, 3_000, FIRST);
    if answers_first {
        story.writes(0, 5_000, FIRST);
    }
    story.sleeps(0, 10_000, (FIRST, 0), Some(EPOLL));
    // another of the server's threads is on its CPU when the worker is woken
    story.sleeps(1, 2_900_000, (0, DISPATCHER), None);
    story.wakes(1, 3_010_000, FIRST, woken_by);
    story.sleeps(0, 3_011_000, (0, FIRST), None);
    story.sleeps(1, 3_050_000, (DISPATCHER, 0), Some(EPOLL));
    if !answers_first {
        story.writes(0, 3_020_000, FIRST);
    }
    story.leaves(0, 3_030_000, FIRST);
    story.sleeps(0, 3_031_000, (FIRST, 0), Some(EPOLL));
}

/// The recording knows to which servers this one had connections.
#[test]
fn the_upstream_has_a_name() {
    let told = |upstreams: Vec<UpstreamServer>| {
        let found = Story::told(asking(upstreams), (100, 10_000_000), |story| {
            asks_once(story, 0, false)
        });
        assert!(whole(&found, Cause::Upstream).share.value > 0.95);
        let culprits = culprits(&found, Cause::Upstream);
        culprits.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let cache = || upstream(11_211, "memcached", 0);
    assert_eq!(told(vec![cache()]), ["127.0.0.1:11211 (memcached)"]);
    let one_of = ["one of 127.0.0.1:11211 (memcached) and 127.0.0.1:5432"];
    assert_eq!(told(vec![cache(), upstream(5_432, "", 0)]), one_of);
}

fn upstream(port: u16, program: &str, number: u16) -> UpstreamServer {
    UpstreamServer {
        address: [127, 0, 0, 1].into(),
        port,
        program: program.to_owned(),
        connections: 1,
        number,
    }
}

/// What is known of a server with one worker that asks these.
fn asking(upstreams: Vec<UpstreamServer>) -> RecordingContext {
    RecordingContext {
        threads: vec![ThreadName {
            tid: FIRST,
            pid: FIRST,
            comm: "worker".to_owned(),
            server: true,
            real_time: Some(false),
        }],
        upstreams,
        ..RecordingContext::default()
    }
}

/// For each request the worker asks a cache, which answers after 1 ms, and then a database, after 2 ms. Its answer comes in
/// two parts, 3 ms apart.
#[test]
fn of_several_upstreams_the_one_that_was_asked_is_named() {
    let servers = vec![upstream(11_211, "memcached", 1), upstream(5_432, "", 2)];
    let found = Story::told(asking(servers), (100, 20_000_000), |story| {
        let answers = |story: &mut Story, server, at_ns: u64, waited_ns| {
            let waited = Nanos::new(waited_ns);
            let kind = EventKind::UpstreamAnswered {
                tid: FIRST,
                server,
                waited,
            };
            story.emit(1, at_ns, kind);
        };
        let is_woken = |story: &mut Story, at_ns: u64| {
            story.wakes(1, at_ns, FIRST, 0);
            story.sleeps(0, at_ns + 1_000, (0, FIRST), None);
        };
        story.comes(0, 0, FIRST);
        is_woken(story, 1_100);
        story.reads(0, 3_000, FIRST);
        story.sleeps(0, 10_000, (FIRST, 0), Some(EPOLL));
        answers(story, 1, 1_009_000, 1_000_000);
        is_woken(story, 1_010_000);
        story.sleeps(0, 1_020_000, (FIRST, 0), Some(EPOLL));
        answers(story, 2, 3_019_000, 2_000_000);
        is_woken(story, 3_020_000);
        story.sleeps(0, 3_030_000, (FIRST, 0), Some(EPOLL));
        is_woken(story, 6_030_000);
        story.writes(0, 6_040_000, FIRST);
        story.leaves(0, 6_041_000, FIRST);
        story.sleeps(0, 6_042_000, (FIRST, 0), Some(EPOLL));
    });
    let waited: Vec<(String, u64, f64)> = (found.causes.iter())
        .filter(|share| share.cause == Cause::Upstream)
        .filter_map(|share| Some((share.culprit.as_ref()?, share)))
        .map(|(culprit, share)| (culprit.to_string(), share.events, share.share.value))
        .collect();
    let names: Vec<&str> = waited.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["127.0.0.1:5432", "127.0.0.1:11211 (memcached)"]);
    // a question each, though the worker slept twice for the database
    assert_eq!([waited[0].1, waited[1].1], [100, 100], "{waited:?}");
    let [database, cache] = [waited[0].2, waited[1].2];
    assert!((4.7..5.3).contains(&(database / cache)), "{waited:?}");

    let upstreams = &found.explanation.upstreams;
    let told: Vec<(&str, u64, Option<Nanos>)> = (upstreams.iter())
        .map(|at| (at.server.as_str(), at.answers.count, at.answers.max))
        .collect();
    let wanted = [
        ("127.0.0.1:5432", 100, Some(Nanos::from_millis(2))),
        (
            "127.0.0.1:11211 (memcached)",
            100,
            Some(Nanos::from_millis(1)),
        ),
    ];
    assert_eq!(told, wanted);

    // T4 to T5: until the first data of the answers, and until the rest of one
    let parts = found.explanation.application[0].parts.iter();
    let of = |doing| {
        let part = parts.clone().find(|part| part.doing == doing);
        part.map_or(0.0, |part| part.mean_ns)
    };
    let sleeps = [ThreadActivity::Upstream, ThreadActivity::Sockets].map(of);
    assert_eq!(
        sleeps,
        [999_000.0 + 1_999_000.0, 1_000.0 + 1_000.0 + 3_000_000.0]
    );
}

#[test]
fn a_worker_that_a_packet_wakes_in_the_middle_waited_for_an_upstream() {
    let found = asks(0, false);
    let upstream = whole(&found, Cause::Upstream);
    assert!(upstream.share.value > 0.95, "{:#?}", found.causes);
    assert_eq!((upstream.events, upstream.requests), (100, 100));
    assert!(
        (2.99e6..3.01e6).contains(&upstream.mean_event_ns),
        "{upstream:?}"
    );

    // T4 to T5: 3 ms of sockets, 1 µs until it is on the CPU, the rest on it
    let application = &found.explanation.application[0];
    let parts = application
        .parts
        .iter()
        .map(|part| (part.doing, part.mean_ns));
    let wanted = [
        (ThreadActivity::OnCpu, 16_000.0),
        (ThreadActivity::WaitingForCpu, 1_000.0),
        (ThreadActivity::Sockets, 3_000_000.0),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), wanted);
    assert_eq!(application.mean_ns, 3_017_000.0);

    // a thread of its own process woke it: it is named
    let found = asks(DISPATCHER, false);
    assert_eq!(of(&found, Cause::Upstream), 0);
    let waker = &culprits(&found, Cause::BlockedOther)[0];
    assert!(waker.to_string().starts_with("dispatcher"), "{waker}");

    // it has begun to answer: the client is waited for
    let found = asks(0, true);
    assert_eq!(of(&found, Cause::Upstream), 0);
    assert!(of(&found, Cause::Client) > 0);
}

/// A proxy with one thread has asked for a request, and serves a later one before the answer comes: the first is not
/// overtaken, it is away.
#[test]
fn a_request_that_waits_elsewhere_is_not_served_out_of_order() {
    let found = Story::of(100, 10_000_000, |story| {
        let later = RequestKey::hashed(0, 50_000, story.round as u16);
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.sleeps(0, 10_000, (FIRST, 0), Some(EPOLL));
        story.comes_with(later, 0, 1_000_000, FIRST);
        story.wakes(0, 1_001_100, FIRST, 0);
        story.sleeps(0, 1_002_000, (0, FIRST), None);
        story.reads(0, 1_003_000, FIRST);
        story.writes(0, 1_020_000, FIRST);
        story.leaves_with(later, 0, 1_021_000, FIRST);
        story.sleeps(0, 1_030_000, (FIRST, 0), Some(EPOLL));
        story.wakes(0, 3_010_000, FIRST, 0);
        story.sleeps(0, 3_011_000, (0, FIRST), None);
        story.writes(0, 3_020_000, FIRST);
        story.leaves(0, 3_030_000, FIRST);
        story.sleeps(0, 3_031_000, (FIRST, 0), Some(EPOLL));
    });
    assert_eq!(found.matched.requests.len(), 200);
    assert_eq!(of(&found, Cause::Order), 0, "{:#?}", found.charged);
    let upstream_ns = of(&found, Cause::Upstream);
    assert!(upstream_ns > 100 * 2_950_000, "{:#?}", found.charged);
    assert!(
        found
            .explanation
            .findings
            .iter()
            .all(|finding| !finding.text.contains("overtaken"))
    );
}

/// A thread of a pool sleeps in `futex` until the dispatcher, which has work of its own to do first, hands it a
/// request: it is idle, and waits for no lock.
#[test]
fn an_idle_thread_of_a_pool_is_not_blocked() {
    let found = Story::of(100, 2_000_000, |story| {
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, DISPATCHER, 0);
        story.sleeps(0, 2_000, (0, DISPATCHER), None);
        story.wakes(0, 302_000, FIRST, DISPATCHER);
        story.sleeps(0, 303_000, (DISPATCHER, FIRST), Some(EPOLL));
        story.reads(0, 305_000, FIRST);
        story.writes(0, 320_000, FIRST);
        story.leaves(0, 321_000, FIRST);
        story.sleeps(0, 322_000, (FIRST, 0), Some(FUTEX));
    });
    assert_eq!(found.matched.requests.len(), 100);
    assert_eq!(of(&found, Cause::BlockedLock), 0, "{:#?}", found.charged);
    assert!(
        of(&found, Cause::OwnThreads) > 100 * 200_000,
        "{:#?}",
        found.charged
    );
}
