//! Times in which the whole server stands still: small histories, written by hand.

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{RecordingContext, ThreadName, Tid};

use super::Found;
use super::story::{EPOLL, FIRST, FUTEX, Story, culprits, of, whole};

const HELPERS: [Tid; 2] = [31, 32];

/// The server stood still for this, and for nothing else.
fn stopped_for(found: &Found, task: &str, threads: &[&str]) {
    let pause = whole(found, Cause::Pause);
    assert!(pause.share.value > 0.9, "{:#?}", found.causes);
    let runtime = Culprit::Runtime {
        task: task.to_owned(),
        threads: threads.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(culprits(found, Cause::Pause), [runtime]);
    for other in [
        Cause::OwnThreads,
        Cause::BlockedLock,
        Cause::Background,
        Cause::Order,
    ] {
        assert_eq!(of(found, other), 0, "{other:?} {:#?}", found.charged);
    }
}

/// The main thread of Node.js and two threads of the same name, all on one CPU. In the middle of a request, the
/// main thread hands something to them, and one of them takes the CPU from it; then they do it together. In the
/// end it sleeps in this call, until the second of them wakes it.
fn of_node(call: u16) -> Found {
    let threads = [
        (FIRST, "node", FIRST),
        (31, "node", FIRST),
        (32, "node", FIRST),
    ];
    Story::of_threads(&threads, (100, 20_000_000), |story| {
        let [one, other] = HELPERS;
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.wakes(0, 10_000, one, FIRST);
        story.wakes(0, 11_000, other, FIRST);
        story.sleeps(0, 12_000, (FIRST, one), None);
        story.sleeps(0, 1_500_000, (one, FIRST), Some(FUTEX));
        story.sleeps(0, 1_600_000, (FIRST, other), Some(call));
        story.wakes(0, 3_000_000, FIRST, other);
        story.sleeps(0, 3_001_000, (other, FIRST), Some(FUTEX));
        story.writes(0, 3_020_000, FIRST);
        story.leaves(0, 3_030_000, FIRST);
        story.sleeps(0, 3_031_000, (FIRST, 0), Some(EPOLL));
    })
}

/// It was told as 4 threads named `node` that keep each other from the CPU.
#[test]
fn a_collection_of_v8_is_known_by_how_the_main_thread_waits_for_it() {
    let found = of_node(FUTEX);
    stopped_for(&found, "garbage collection (V8)", &[]);
    let pause = whole(&found, Cause::Pause);
    assert_eq!((pause.events, pause.requests), (100, 100));
    assert!((2.9e6..3.1e6).contains(&pause.mean_event_ns), "{pause:?}");
}

/// The same threads hash passwords, and the main thread goes on with others meanwhile.
#[test]
fn work_in_the_pool_of_node_is_no_collection() {
    let found = of_node(EPOLL);
    assert_eq!(of(&found, Cause::Pause), 0, "{:#?}", found.charged);
    let competing = of(&found, Cause::OwnThreads);
    assert!(competing > 100 * 1_000_000, "{:#?}", found.charged);
}

/// .NET collects with a thread for each CPU. Those that collect beside the others, or compile, go on meanwhile.
#[test]
fn a_collection_of_dotnet_is_known_by_its_threads() {
    let [one, other] = HELPERS;
    let threads = [
        (FIRST, "Kestrel", FIRST),
        (one, ".NET Server GC", FIRST),
        (other, ".NET Server GC", FIRST),
        (33, ".NET BGC", FIRST),
        (34, ".NET Tiered Com", FIRST),
    ];
    let found = Story::of_threads(&threads, (100, 20_000_000), |story| {
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        story.sleeps(0, 10_000, (FIRST, one), Some(FUTEX));
        story.sleeps(1, 12_000, (0, other), None);
        story.sleeps(3, 1_000_000, (0, 33), None);
        story.sleeps(3, 1_500_000, (33, 34), Some(FUTEX));
        story.sleeps(3, 2_000_000, (34, 0), Some(FUTEX));
        story.sleeps(1, 3_000_000, (other, 0), Some(FUTEX));
        story.wakes(0, 3_009_000, FIRST, one);
        story.sleeps(0, 3_010_000, (one, FIRST), Some(FUTEX));
        story.writes(0, 3_020_000, FIRST);
        story.leaves(0, 3_030_000, FIRST);
        story.sleeps(0, 3_031_000, (FIRST, 0), Some(EPOLL));
    });
    stopped_for(&found, "garbage collection", &[".NET Server GC"]);
    let pause = whole(&found, Cause::Pause);
    assert_eq!((pause.events, pause.requests), (100, 100));
    assert!((2.9e6..3.1e6).contains(&pause.mean_event_ns), "{pause:?}");
}

/// A process of this name, which has one thread.
fn process(tid: Tid, comm: &str, server: bool) -> ThreadName {
    ThreadName {
        tid,
        pid: tid,
        comm: comm.to_owned(),
        server,
        real_time: Some(false),
    }
}

/// The kernel copies a process for 8 ms, while a request is in its hands. A part of the recording is over
/// before it is certain that a process is a new one. The last child may still be there when the server's threads
/// are named, in the end.
#[test]
fn a_fork_ends_when_the_child_first_runs() {
    for last_is_named in [false, true] {
        let rounds = 100;
        let children = (0..rounds).map(|round| {
            let is_named = last_is_named && round == rounds - 1;
            process(1_000 + round, "redis-server", is_named)
        });
        let server = process(FIRST, "redis-server", true);
        let context = RecordingContext {
            threads: [server].into_iter().chain(children).collect(),
            ..RecordingContext::default()
        };
        let found = Story::told(context, (rounds, 20_000_000), |story| {
            let child = 1_000 + story.round;
            story.comes(0, 0, FIRST);
            story.wakes(0, 1_100, FIRST, 0);
            story.sleeps(0, 2_000, (0, FIRST), None);
            story.reads(0, 3_000, FIRST);
            story.sleeps(1, 8_003_000, (0, child), None);
            story.sleeps(1, 8_500_000, (child, 0), None);
            story.writes(0, 8_020_000, FIRST);
            story.leaves(0, 8_030_000, FIRST);
            story.sleeps(0, 8_031_000, (FIRST, 0), Some(EPOLL));
        });
        stopped_for(&found, "fork of a large process", &["redis-server"]);
        let pause = whole(&found, Cause::Pause);
        assert!((94..=96).contains(&pause.events), "{pause:?}");
        assert!((7.9e6..8.1e6).contains(&pause.mean_event_ns), "{pause:?}");
    }
}

/// Another process of the same server comes onto a CPU for the first time, woken by a packet of its own; or the
/// first process of a pool of two has started it, and not the one that serves.
#[test]
fn an_old_process_of_the_same_name_is_no_fork() {
    is_no_fork(true, &[1_000]);
    is_no_fork(false, &[1_000, 9]);
}

fn is_no_fork(is_woken: bool, others: &[Tid]) {
    let other = others[0];
    let context = RecordingContext {
        threads: [FIRST]
            .iter()
            .chain(others)
            .map(|tid| process(*tid, "nginx", true))
            .collect(),
        ..RecordingContext::default()
    };
    let found = Story::told(context, (60, 20_000_000), |story| {
        story.comes(0, 0, FIRST);
        story.wakes(0, 1_100, FIRST, 0);
        story.sleeps(0, 2_000, (0, FIRST), None);
        story.reads(0, 3_000, FIRST);
        if story.round == 0 {
            for old in &others[1..] {
                story.sleeps(1, 100_000, (0, *old), None);
                story.sleeps(1, 200_000, (*old, 0), Some(EPOLL));
            }
        }
        if story.round == 30 {
            if is_woken {
                story.wakes(1, 8_000_000, other, 0);
            }
            story.sleeps(1, 8_003_000, (0, other), None);
            story.sleeps(1, 8_500_000, (other, 0), Some(EPOLL));
        }
        story.writes(0, 8_020_000, FIRST);
        story.leaves(0, 8_030_000, FIRST);
        story.sleeps(0, 8_031_000, (FIRST, 0), Some(EPOLL));
    });
    assert_eq!(of(&found, Cause::Pause), 0, "{:#?}", found.charged);
}

/// A signal stops an idle server; a request comes 2 ms later, and the server goes on after 30 ms.
#[test]
fn a_signal_that_stops_the_server_is_told_as_such() {
    let threads = [(FIRST, "worker", FIRST)];
    let found = Story::of_threads(&threads, (50, 50_000_000), |story| {
        story.wakes(1, 0, FIRST, 77);
        story.sleeps(0, 1_000, (0, FIRST), None);
        story.is_stopped(0, 3_000, (FIRST, 0));
        story.comes(0, 2_000_000, FIRST);
        story.wakes(1, 30_000_000, FIRST, 77);
        story.sleeps(0, 30_002_000, (0, FIRST), None);
        story.reads(0, 30_010_000, FIRST);
        story.writes(0, 30_030_000, FIRST);
        story.leaves(0, 30_031_000, FIRST);
        story.sleeps(0, 30_032_000, (FIRST, 0), Some(EPOLL));
    });
    stopped_for(&found, "SIGSTOP or a debugger", &[]);
    let pause = whole(&found, Cause::Pause);
    assert_eq!((pause.events, pause.requests), (50, 50));
}
