//! A worker that waits for a thread of its own server, which itself waits: each nanosecond goes to where the chain ends.

use taillab_model::explanation::{Cause, ThreadActivity};
use taillab_model::{RecordingContext, ThreadName, Tid, UpstreamServer};

use super::Found;
use super::story::{DISPATCHER, EPOLL, FIRST, FUTEX, SECOND, Story, culprits, of, whole};

/// Not the server's.
const DPKG: Tid = 77;
const PREAD: u16 = 17;
const NANOSLEEP: u16 = 230;
const RECV: u16 = 45;

/// In the middle of each of 100 requests, a worker waits for a lock, from 10 µs to 1.05 ms. `holds` says what the holder,
/// the dispatcher on CPU 1, does from 20 µs to 1.021 ms, when it must be on its CPU again.
fn waits(upstreams: Vec<UpstreamServer>, holds: impl Fn(&mut Story)) -> Found {
    let threads = [
        (FIRST, "worker", FIRST),
        (SECOND, "flusher", FIRST),
        (DISPATCHER, "dispatcher", FIRST),
        (DPKG, "dpkg", DPKG),
    ];
    let thread = |(tid, comm, pid): (Tid, &str, Tid)| ThreadName {
        tid,
        pid,
        comm: comm.to_owned(),
        server: pid == FIRST,
        real_time: Some(false),
    };
    let context = RecordingContext {
        threads: threads.map(thread).into(),
        upstreams,
        ..RecordingContext::default()
    };
    Story::told(context, (100, 10_000_000), |story| {
        story.sleeps(1, 500, (0, DISPATCHER), None);
        story.comes(0, 1_000, FIRST);
        story.wakes(0, 2_100, FIRST, 0);
        story.sleeps(0, 3_000, (0, FIRST), None);
        story.reads(0, 4_000, FIRST);
        story.sleeps(0, 10_000, (FIRST, 0), Some(FUTEX));
        holds(story);
        story.wakes(1, 1_050_000, FIRST, DISPATCHER);
        story.sleeps(0, 1_051_000, (0, FIRST), None);
        story.sleeps(1, 1_060_000, (DISPATCHER, 0), Some(EPOLL));
        story.writes(0, 1_075_000, FIRST);
        story.leaves(0, 1_080_000, FIRST);
        story.sleeps(0, 1_081_000, (FIRST, 0), Some(EPOLL));
    })
}

/// The holder sleeps in this call, and nobody of the server wakes it.
fn sleeps_in(call: u16) -> impl Fn(&mut Story) {
    move |story| {
        story.sleeps(1, 20_000, (DISPATCHER, 0), Some(call));
        story.wakes(1, 1_020_000, DISPATCHER, 0);
        story.sleeps(1, 1_021_000, (0, DISPATCHER), None);
    }
}

/// Of each request, 1.001 ms are charged to this cause and culprit, and what the holder itself did to the lock.
fn ends_at(found: &Found, cause: Cause, culprit: &str) {
    assert_eq!(found.matched.requests.len(), 100);
    let near = |cause, ns: u64| of(found, cause).abs_diff(100 * ns) <= 100 * ns / 50;
    assert!(near(cause, 1_001_000), "{:#?}", found.charged);
    let named: Vec<String> = culprits(found, cause)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(named, [culprit]);
    assert!(near(Cause::BlockedLock, 40_000), "{:#?}", found.charged);
    let held: Vec<String> = (culprits(found, Cause::BlockedLock).iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(held, ["dispatcher (thread 22)"]);
    let whole = whole(found, cause);
    assert_eq!((whole.events, whole.requests), (100, 100));
    assert!((0.99e6..1.01e6).contains(&whole.mean_event_ns), "{whole:?}");
}

#[test]
fn a_holder_that_reads_from_a_disk_makes_the_worker_wait_for_the_disk() {
    let found = waits(Vec::new(), sleeps_in(PREAD));
    ends_at(
        &found,
        Cause::BlockedIo,
        "pread64, for which dispatcher (thread 22) waited",
    );
    // T4 to T5 is told by what the thread itself did
    let parts = &found.explanation.application[0].parts;
    let locks = parts.iter().find(|part| part.doing == ThreadActivity::Lock);
    assert!(locks.is_some_and(|part| part.mean_ns > 1.0e6), "{parts:?}");
}

#[test]
fn a_holder_that_asks_another_server_makes_the_worker_wait_for_that() {
    let cache = UpstreamServer {
        address: [127, 0, 0, 1].into(),
        port: 11_211,
        program: "memcached".to_owned(),
        connections: 1,
        number: 0,
    };
    let found = waits(vec![cache], sleeps_in(RECV));
    ends_at(
        &found,
        Cause::Upstream,
        "127.0.0.1:11211 (memcached), for which dispatcher (thread 22) waited",
    );
}

#[test]
fn a_holder_that_another_program_keeps_from_its_cpu_makes_the_worker_wait_for_that() {
    let found = waits(Vec::new(), |story| {
        story.sleeps(1, 20_000, (DISPATCHER, DPKG), None);
        story.sleeps(1, 1_021_000, (DPKG, DISPATCHER), None);
    });
    ends_at(
        &found,
        Cause::Background,
        "dpkg (thread 77), for which dispatcher (thread 22) waited",
    );
}

#[test]
fn a_holder_that_waits_for_a_third_thread_makes_the_worker_wait_for_the_third() {
    let found = waits(Vec::new(), |story| {
        story.sleeps(2, 15_000, (0, SECOND), None);
        story.sleeps(1, 20_000, (DISPATCHER, 0), Some(FUTEX));
        story.wakes(2, 1_020_000, DISPATCHER, SECOND);
        story.sleeps(1, 1_021_000, (0, DISPATCHER), None);
        story.sleeps(2, 1_030_000, (SECOND, 0), Some(EPOLL));
    });
    let mut named: Vec<String> = (culprits(&found, Cause::BlockedLock).iter())
        .map(ToString::to_string)
        .collect();
    named.sort();
    assert_eq!(
        named,
        [
            "dispatcher (thread 22)",
            "flusher (thread 11), for which dispatcher (thread 22) waited",
        ]
    );
    let all = of(&found, Cause::BlockedLock);
    assert!(all.abs_diff(100 * 1_041_000) < 100 * 20_000, "{all}");
}

#[test]
fn a_holder_that_sleeps_by_a_timer_or_works_is_the_culprit() {
    let sleeps = waits(Vec::new(), sleeps_in(NANOSLEEP));
    let works = waits(Vec::new(), |_| ());
    for found in [sleeps, works] {
        let held: Vec<String> = (culprits(&found, Cause::BlockedLock).iter())
            .map(ToString::to_string)
            .collect();
        assert_eq!(held, ["dispatcher (thread 22)"]);
        let all = of(&found, Cause::BlockedLock);
        assert!(all.abs_diff(100 * 1_041_000) < 100 * 20_000, "{all}");
    }
}
