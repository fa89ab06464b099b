use taillab_model::{ClientTimes, Event, EventKind, Request, RequestKey, Stamps, ThreadName};

use super::*;
use crate::matched::Unmatched;
use crate::timeline::Timeline;

fn at(us: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(5_000_000_000 + us * 1_000)
}

/// One worker that needs 100 µs, or `slow_us` between two instants; requests every `gap_us`.
fn found(gap_us: u64, slow_us: u64, slow: Range<u64>) -> Option<Overload> {
    let requests = requests(gap_us, slow_us, slow);
    // two windows give the same result as one
    in_windows(requests, &Timeline::default(), &[4_321_000])
}

fn requests(gap_us: u64, slow_us: u64, slow: Range<u64>) -> Vec<Request> {
    let (mut free, mut requests) = (0, Vec::new());
    for i in 0..10_000_000 / gap_us {
        let t1 = i * gap_us;
        let begin = free.max(t1);
        free = begin + if slow.contains(&begin) { slow_us } else { 100 };
        requests.push(Stamps::new(at(t1), [None; 4], at(free)).into());
    }
    requests
}

/// The same in windows that end at these times.
fn in_windows(requests: Vec<Request>, timeline: &Timeline, ends_us: &[u64]) -> Option<Overload> {
    ended(queue(requests, timeline, ends_us), 0)
}

/// The worst overload from this time on.
fn ended(queue: Queue, from_us: u64) -> Option<Overload> {
    let context = RecordingContext {
        threads: vec![thread(7, "server", true), thread(8, "hog", false)],
        ..RecordingContext::default()
    };
    queue.finish(1, Some(Nanos::from_micros(100)), at(from_us), &context)
}

fn thread(tid: Tid, comm: &str, server: bool) -> ThreadName {
    ThreadName {
        tid,
        pid: tid,
        comm: comm.to_owned(),
        server,
        real_time: None,
    }
}

fn matched(requests: Vec<Request>) -> Matched {
    Matched {
        keys: vec![RequestKey::default(); requests.len()],
        workers: vec![7; requests.len()],
        requests: requests.into_iter().collect(),
        ..Matched::default()
    }
}

fn queue(requests: Vec<Request>, timeline: &Timeline, ends_us: &[u64]) -> Queue {
    queue_of(matched(requests), timeline, ends_us)
}

fn queue_of(mut matched: Matched, timeline: &Timeline, ends_us: &[u64]) -> Queue {
    let mut queue = Queue::default();
    let mut from = Monotonic::from_nanos_since_boot(0);
    let ends = ends_us.iter().map(|us| at(*us));
    for upto in ends.chain([Monotonic::MAX]) {
        let later = matched.split_off(upto);
        let window = Window {
            matched: std::mem::replace(&mut matched, later),
            timeline: timeline.clone(),
            from,
            upto,
        };
        queue.add(&window, 1);
        from = upto;
    }
    queue
}

#[test]
fn an_overload_that_ends_with_the_warm_up_is_none() {
    // its queue is gone after 6.5 s
    let requests = requests(150, 200, 2_000_000..5_000_000);
    let queue = queue(requests, &Timeline::default(), &[]);
    let found = |from_us| ended(queue.clone(), from_us);
    assert!(found(6_000_000).is_some_and(|overload| overload.from_ns == Nanos::ZERO));
    assert_eq!(found(7_000_000), None);
}

#[test]
fn cpu_time_is_counted_once_however_many_windows_there_are() {
    let context = RecordingContext {
        threads: vec![thread(7, "server", true), thread(8, "hog", false)],
        ..RecordingContext::default()
    };
    let switch = |us, prev, next| Event {
        at: at(us),
        cpu: 0,
        kind: EventKind::Switched {
            prev,
            next,
            preempted: true,
            asleep: None,
        },
    };
    // another thread has a fifth of the CPU
    let events = (0..1_100).flat_map(|i| {
        let us = i * 10_000;
        [switch(us, 8, 7), switch(us + 8_000, 7, 8)]
    });
    let timeline = Timeline::build(events, &context);
    let found = |ends_us: &[u64]| {
        let requests = requests(150, 200, 2_000_000..5_000_000);
        in_windows(requests, &timeline, ends_us)
    };
    let one = found(&[]);
    let cpu = one.clone().and_then(|overload| overload.cpu).unwrap();
    assert!((cpu.others_share - 0.2).abs() < 0.01, "{cpu:?}");
    assert!((cpu.server_share - 0.8).abs() < 0.01, "{cpu:?}");
    assert!((cpu.busy_share() - 1.0).abs() < 0.01, "{cpu:?}");
    assert_eq!(cpu.others[0].name, "hog");
    assert_eq!(cpu.others[0].share, cpu.others_share);
    let ends: Vec<u64> = (1..100).map(|i| i * 133_000).collect();
    assert_eq!(found(&ends), one);
}

#[test]
fn a_queue_that_grows_for_seconds_is_an_overload() {
    // from 2 s on for 3 s it needs 200 µs, and a request comes every 150 µs
    let overload = found(150, 200, 2_000_000..5_000_000).unwrap();
    let near = |ns: Nanos, ms: u64| {
        let off = ns.as_secs_f64() - Nanos::from_millis(ms).as_secs_f64();
        assert!(off.abs() < 0.21, "{ns} is not about {ms} ms: {overload:?}");
    };
    near(overload.from_ns, 2_000);
    near(overload.worst_ns, 5_000);
    assert!(overload.to_ns.is_some_and(|to| to > overload.worst_ns));
    let rates = (overload.came_per_s, overload.done_per_s);
    assert!(
        (rates.0 - 6_667.0).abs() < 100.0 && (rates.1 - 5_000.0).abs() < 200.0,
        "{rates:?}"
    );
    assert_eq!(overload.capacity_per_s, Some(10_000.0));
    assert!(!overload.outlasts_load);
    assert!((4_500..5_200).contains(&overload.waiting), "{overload:?}");
}

#[test]
fn more_than_the_capacity_lasts_until_nothing_comes() {
    let overload = found(80, 100, 0..0).unwrap();
    assert!(overload.outlasts_load);
    // it needs another 2.5 s for what came in 10 s
    let to = overload.to_ns.unwrap().as_secs_f64();
    assert!((12.4..12.6).contains(&to), "{overload:?}");
    assert!(
        (9.9..10.2).contains(&overload.worst_ns.as_secs_f64()),
        "{overload:?}"
    );
}

#[test]
fn a_busy_server_and_a_short_stall_are_none() {
    assert_eq!(found(101, 100, 0..0), None);
    // half a second without service makes a queue that takes two seconds to work off
    assert_eq!(found(125, 500_000, 3_000_000..3_000_100), None);
    assert_eq!(ended(Queue::default(), 0), None);
}

#[test]
fn an_overload_is_found_without_t() {
    let queue = queue(requests(80, 100, 0..0), &Timeline::default(), &[]);
    let found = queue.finish(1, None, at(0), &RecordingContext::default());
    let overload = found.unwrap();
    assert_eq!(overload.capacity_per_s, None);
    assert!(
        (overload.done_per_s - 10_000.0).abs() < 100.0,
        "{overload:?}"
    );
}

#[test]
fn a_recording_of_less_than_a_second_can_be_an_overload() {
    let short = |gap_us| {
        let begin = at(500_000);
        let early = requests(gap_us, 100, 0..0).into_iter();
        let early = early.filter(|request| request.server.t1 < begin).collect();
        in_windows(early, &Timeline::default(), &[])
    };
    assert!(short(80).is_some_and(|overload| overload.outlasts_load));
    assert_eq!(short(101), None);
}

/// The queue never has more than 20 requests, as with a full buffer of datagrams: a third is dropped.
#[test]
fn a_server_that_drops_what_it_cannot_do_is_overloaded() {
    let every_third = |dropped: bool| {
        let (mut kept, mut lost) = (Vec::new(), Vec::new());
        for i in 0..100_000_u64 {
            // one comes every 66 2/3 µs, and one that is kept every 100 µs
            let t1 = 200 * i / 3;
            if i % 3 == 2 {
                lost.push(Unmatched {
                    key: RequestKey::default(),
                    t1: at(t1),
                    ambiguous: !dropped,
                    early: false,
                    queued: !dropped,
                });
            } else {
                let t6 = t1 / 100 * 100 + 2_000;
                kept.push(Stamps::new(at(t1), [None; 4], at(t6)).into());
            }
        }
        let matched = Matched {
            unmatched: lost,
            ..matched(kept)
        };
        ended(queue_of(matched, &Timeline::default(), &[3_000_000]), 0)
    };
    let overload = every_third(true).unwrap();
    assert!(
        (overload.came_per_s - 15_000.0).abs() < 300.0,
        "{overload:?}"
    );
    assert!(
        (overload.done_per_s - 10_000.0).abs() < 300.0,
        "{overload:?}"
    );
    assert!(overload.unanswered > 30_000 && overload.waiting <= 20);
    // responses that could be those of several requests are none that are missing
    assert_eq!(every_third(false), None);
}

/// More comes than it can do. Every other request is matched; the responses of the others could be those of several.
#[test]
fn requests_whose_responses_are_unsure_are_counted() {
    let (mut kept, mut unsure, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for (i, request) in requests(80, 100, 0..0).into_iter().enumerate() {
        if i % 2 == 0 {
            kept.push(request);
            continue;
        }
        unsure.push(Unmatched {
            key: RequestKey::default(),
            t1: request.server.t1,
            ambiguous: true,
            early: false,
            queued: true,
        });
        answers.push(request.server.t6);
    }
    let matched = Matched {
        unmatched: unsure,
        ambiguous: answers,
        ..matched(kept)
    };
    let found = ended(queue_of(matched, &Timeline::default(), &[]), 0).unwrap();
    assert!((found.came_per_s - 12_500.0).abs() < 200.0, "{found:?}");
    assert!((found.done_per_s - 10_000.0).abs() < 200.0, "{found:?}");
    assert!((23_000..25_100).contains(&found.waiting), "{found:?}");
}

/// A request comes every 80 µs; 16 connections have one request in the server each, and the rest waits for
/// them in the client.
#[test]
fn what_waits_in_the_client_is_a_part_of_the_queue() {
    let request = |i: u64| {
        let (due, begins) = (80 * i, 100 * i);
        let came = due.max(begins.saturating_sub(1_600));
        Request {
            client: Some(ClientTimes {
                intended: at(due),
                sent: at(due),
                received: None,
            }),
            ..Stamps::new(at(came), [None; 4], at(begins + 100)).into()
        }
    };
    let requests: Vec<Request> = (0..100_000).map(request).collect();
    let overload = in_windows(requests.clone(), &Timeline::default(), &[2_000_000]).unwrap();
    assert!(
        (overload.came_per_s - 12_500.0).abs() < 200.0,
        "{overload:?}"
    );
    assert!(
        (15_000..20_100).contains(&overload.waiting) && overload.outlasts_load,
        "{overload:?}"
    );
    // without the client's times, 16 requests are all that waits
    let alone = requests.into_iter().map(|request| Request {
        client: None,
        ..request
    });
    let alone = in_windows(alone.collect(), &Timeline::default(), &[]);
    assert_eq!(alone, None);
}
