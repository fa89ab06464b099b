//! What is held does not grow with the length of a recording.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::last_segment;
use taillab_analysis::timeline::TimelineBuilder;
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Matched, Matcher, Windows};
use taillab_model::{
    Asleep, Event, EventKind, Monotonic, Nanos, RecordingContext, RequestKey, Tid,
};

fn options() -> MatchOptions {
    MatchOptions::for_streams(Nanos::from_secs(1), false)
}

fn switch(prev: Tid, next: Tid) -> EventKind {
    EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: (prev != 0).then_some(Asleep {
            call: None,
            uninterruptible: false,
            stopped: false,
        }),
    }
}

/// One request of 100 bytes on a connection, and its response by this thread, which begins at `from_ns`. The
/// connection is the n-th; the client has sent `sent` bytes before, or nothing, if it begins.
fn exchange(n: u32, tid: Tid, from_ns: u64, sent: Option<u16>) -> Vec<Event> {
    let key = |id| RequestKey::hashed((n >> 16) as u8, n as u16, id);
    let begins = EventKind::SegmentIn {
        key: key(0),
        bytes: 0,
        push: false,
    };
    let end = key(sent.unwrap_or(0) + 100);
    let kinds = [
        (1, begins),
        (
            1,
            EventKind::SegmentIn {
                key: end,
                bytes: 100,
                push: true,
            },
        ),
        (0, EventKind::SegmentQueued { key: end }),
        (0, switch(0, tid)),
        (
            0,
            EventKind::SegmentRead {
                tid,
                key: end,
                bytes_mod_1024: 100,
            },
        ),
        (0, EventKind::SegmentWritten { tid, key: end }),
        (0, last_segment(tid, end)),
        (0, switch(tid, 0)),
    ];
    let place = |place: usize| from_ns + 10_000 * place as u64;
    let events = kinds.into_iter().enumerate();
    let events = events.skip(usize::from(sent.is_some()));
    events
        .map(|(n, (cpu, kind))| Event {
            at: Monotonic::from_nanos_since_boot(place(n)),
            cpu,
            kind,
        })
        .collect()
}

/// What was found, and the most that was held.
#[derive(Default)]
struct Course {
    found: Vec<Matched>,
    connections: usize,
    threads: usize,
    lines: usize,
}

impl Course {
    fn sum(&self, of: impl Fn(&Matched) -> usize) -> usize {
        self.found.iter().map(of).sum()
    }
}

/// Analyses these exchanges as a long recording is, part by part.
fn analysed(exchanges: impl Iterator<Item = Vec<Event>>) -> Course {
    let mut course = Course::default();
    let mut matcher = Matcher::new(options());
    let mut timeline = TimelineBuilder::new(&RecordingContext::default());
    for (number, events) in exchanges.enumerate() {
        for event in &events {
            matcher.observe(event);
            timeline.observe(event);
        }
        let (connections, threads) = matcher.remembered();
        course.connections = course.connections.max(connections);
        course.threads = course.threads.max(threads);
        course.lines = course.lines.max(timeline.remembered());
        if number % 5_000 == 0
            && let Some(upto) = matcher.settled()
        {
            course.found.push(matcher.take_settled(upto));
            timeline.part(upto);
        }
    }
    course.found.push(matcher.finish());
    course
}

/// A server without keep-alive that starts a thread for each connection, for five minutes.
#[test]
fn connections_that_come_and_go_take_no_memory() {
    const CONNECTIONS: u32 = 300_000;
    let churn = (1..=CONNECTIONS).map(|n| exchange(n, 1_000 + n, u64::from(n) * 1_000_000, None));
    let course = analysed(churn);
    assert!(course.connections < 20_000, "{}", course.connections);
    assert!(course.threads < 20_000, "{}", course.threads);
    assert!(course.lines < 25_000, "{}", course.lines);
    // and nothing is lost by that
    let requests = course.sum(|found| found.requests.len());
    assert_eq!(requests, CONNECTIONS as usize);
    assert_eq!(course.sum(|found| found.unmatched.len()), 0);
    assert_eq!(course.sum(|found| found.forgotten as usize), 0);
}

/// What was found of a server that starts a thread for each of so many connections.
struct Explained {
    matched: u64,
    /// Requests by worker, of those that are listed and of the others together.
    by_worker: Vec<u64>,
    /// The most that was held.
    remembered: usize,
    took: Duration,
}

fn explained(connections: u32) -> Explained {
    let context = RecordingContext::default();
    let began = Instant::now();
    let from = Monotonic::from_nanos_since_boot(0);
    let options = AnalysisOptions::new(Nanos::from_micros(50), NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(&context, options);
    let mut windows = Windows::new(self::options(), &context, 5_000);
    let mut remembered = 0;
    for n in 1..=connections {
        let from_ns = u64::from(n) * 1_000_000;
        let mut events = exchange(n, 1_000 + n, from_ns, None);
        // with softirqs, it shows what the CPUs did
        let lasted = Nanos::from_micros(1);
        events.push(Event {
            at: Monotonic::from_nanos_since_boot(from_ns + 25_000),
            cpu: 1,
            kind: EventKind::Softirq { vector: 3, lasted },
        });
        events.sort_by_key(|event| event.at);
        for event in events {
            if let Some(window) = windows.observe(&event) {
                analysis.push(&Arc::new(window), |_, _| ());
                remembered = remembered.max(analysis.remembered());
            }
        }
    }
    analysis.push(&Arc::new(windows.finish(0)), |_, _| ());
    remembered = remembered.max(analysis.remembered());
    let found = analysis.finish(0).unwrap().unjudged();
    let workers = &found.server.explanation.unwrap().workers;
    Explained {
        matched: found.server.matching.matched,
        by_worker: workers.iter().map(|worker| worker.requests).collect(),
        remembered,
        took: began.elapsed(),
    }
}

/// The ledger follows each thread that serves. It forgets those that have ended, or it would fill memory, and go
/// through all of them in each window.
#[test]
fn connections_that_come_and_go_take_no_memory_in_the_ledger_and_no_more_time_each() {
    const FEW: u32 = 18_750;
    let few = explained(FEW);
    let many = explained(16 * FEW);
    let again = explained(FEW);
    for (found, connections) in [(&few, FEW), (&many, 16 * FEW)] {
        assert_eq!(found.matched, u64::from(connections));
        let listed: u64 = found.by_worker.iter().sum();
        assert_eq!(listed, u64::from(connections), "all requests have a worker");
        assert!(found.remembered < 25_000, "{}", found.remembered);
        assert!(found.by_worker.len() < 5_000, "{}", found.by_worker.len());
    }
    // the machine may have become slower meanwhile
    let (few, many) = (few.took.max(again.took), many.took);
    assert!(many < 64 * few, "{many:?} for 16 times {few:?}");
}

/// A client that says nothing for half a minute, while many others come and go.
#[test]
fn a_connection_that_was_forgotten_is_known_when_it_comes_back() {
    let first = exchange(0, 7, 0, None);
    let others = (1..=30_000).map(|n| exchange(n, 7, u64::from(n) * 1_000_000, None));
    let again = exchange(0, 7, 31_000_000_000, Some(100));
    let course = analysed([first].into_iter().chain(others).chain([again]));
    assert!(course.connections < 20_000, "{}", course.connections);
    assert_eq!(course.sum(|found| found.requests.len()), 30_002);
    assert_eq!(course.sum(|found| found.ambiguous.len()), 0);
}

/// A damaged recording, or one that was made to do harm, in which each event has another thread.
#[test]
fn unseen_thread_numbers_take_no_memory() {
    let mut matcher = Matcher::new(options());
    let mut timeline = TimelineBuilder::new(&RecordingContext::default());
    for tid in 1..=300_000 {
        let read = EventKind::ReadReturned { tid, returned: 1 };
        for kind in [switch(tid, tid + 1), read] {
            let at = Monotonic::from_nanos_since_boot(u64::from(tid));
            let event = Event { at, cpu: 0, kind };
            matcher.observe(&event);
            timeline.observe(&event);
        }
    }
    let (_, threads) = matcher.remembered();
    assert!(threads <= 1 << 17, "{threads}");
    assert!(
        timeline.remembered() <= 1 << 16,
        "{}",
        timeline.remembered()
    );
    // they were in use, so the result says so
    assert!(matcher.finish().forgotten > 100_000);
    assert!(timeline.finish().forgotten() > 100_000);
}
