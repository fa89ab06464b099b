//! Requests that their clients had to send again.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::timeline::Timeline;
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Window, match_events};
use taillab_model::explanation::Cause;
use taillab_model::{
    Asleep, Event, EventKind, Monotonic, Nanos, RecordingContext, RequestKey, ThreadName,
};

const SERVER: u32 = 9;
const SERVICE: u64 = 20_000;
const REQUEST: u16 = 100;
const TIMEOUT: u64 = 200_000_000;

/// Position `id` on the first or the second connection.
fn key(connection: u16, id: u16) -> RequestKey {
    RequestKey {
        address: 1,
        port: 40_000 + connection,
        id,
    }
}

/// A connection whose requests come 1 ms apart. Request `lost` is dropped behind the driver and
/// comes in again after `TIMEOUT`; halfway through, a request comes on another connection.
fn events(lost: u16) -> Vec<Event> {
    let mut events = Vec::new();
    let mut now = 1_000_000;
    for connection in 0..2 {
        let opened = EventKind::SegmentIn {
            key: key(connection, 0),
            bytes: 0,
            push: false,
        };
        add(&mut events, now, opened);
    }
    for i in 1..=40 {
        now += 1_000_000;
        let key_i = key(0, i * REQUEST);
        let came = EventKind::SegmentIn {
            key: key_i,
            bytes: REQUEST.into(),
            push: true,
        };
        add(&mut events, now, came);
        if i == lost {
            let between = EventKind::SegmentIn {
                key: key(1, REQUEST),
                bytes: REQUEST.into(),
                push: true,
            };
            add(&mut events, now + TIMEOUT / 2, between);
            serve(&mut events, now + TIMEOUT / 2, key(1, REQUEST));
            now += TIMEOUT;
            add(&mut events, now, came);
        }
        now = serve(&mut events, now, key_i);
    }
    events
}

fn add(events: &mut Vec<Event>, at: u64, kind: EventKind) {
    let at = Monotonic::from_nanos_since_boot(at);
    events.push(Event { at, cpu: 0, kind });
}

/// What the server does with a request that came at `now`; returns when it is done.
fn serve(events: &mut Vec<Event>, mut now: u64, key: RequestKey) -> u64 {
    let switched = |prev, next| EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: (prev == SERVER).then_some(Asleep {
            call: Some(0),
            uninterruptible: false,
            stopped: false,
        }),
    };
    add(events, now + 2_000, EventKind::SegmentQueued { key });
    let tid = SERVER;
    add(events, now + 2_500, EventKind::Woken { tid, by: 0 });
    add(events, now + 4_000, switched(0, tid));
    let read = EventKind::SegmentRead {
        tid,
        key,
        bytes_mod_1024: REQUEST,
    };
    add(events, now + 5_000, read);
    now += SERVICE;
    add(events, now, EventKind::SegmentWritten { tid, key });
    let out = EventKind::SegmentOut {
        tid,
        key,
        more: false,
        resent: false,
    };
    add(events, now + 1_000, out);
    add(events, now + 2_000, switched(tid, 0));
    now
}

/// The excess of all requests, by cause.
fn excess(events: &[Event]) -> BTreeMap<Cause, u64> {
    let context = RecordingContext {
        threads: vec![ThreadName {
            tid: SERVER,
            pid: SERVER,
            comm: "server".to_owned(),
            real_time: None,
            server: true,
        }],
        ..RecordingContext::default()
    };
    let matched = match_events(events.iter().copied(), &MatchOptions::default());
    assert!(matched.requests.len() >= 40 && matched.unmatched.is_empty());
    let timeline = Timeline::build(events.iter().copied(), &context);
    let from = Monotonic::from_nanos_since_boot(0);
    let options = AnalysisOptions::new(Nanos::new(SERVICE), NonZeroU32::MIN, from);
    let window = Arc::new(Window::whole(matched, timeline));
    let mut charged = BTreeMap::new();
    Analysis::new(&context, options).push(&window, |entry, labels| {
        for &(label, ns) in entry.excess {
            *charged.entry(labels.cause(label)).or_default() += ns;
        }
    });
    charged
}

#[test]
fn the_wait_for_a_request_that_comes_in_again_is_for_its_retransmission() {
    let charged = excess(&events(20));
    let all: u64 = charged.values().sum();
    let again = charged.get(&Cause::Retransmit).copied().unwrap_or(0);
    assert!(all >= TIMEOUT, "{charged:?}");
    assert!(again as f64 >= 0.99 * all as f64, "{charged:?}");
}

#[test]
fn that_nobody_saw_it_at_the_socket_changes_nothing() {
    let mut events = events(20);
    let read = EventKind::SegmentRead {
        tid: SERVER,
        key: key(0, 20 * REQUEST),
        bytes_mod_1024: REQUEST,
    };
    let read = events.iter().position(|event| event.kind == read).unwrap();
    let queued = (events[..read].iter())
        .rposition(|event| matches!(event.kind, EventKind::SegmentQueued { .. }));
    events.remove(queued.unwrap());
    let charged = excess(&events);
    let all: u64 = charged.values().sum();
    let again = charged.get(&Cause::Retransmit).copied().unwrap_or(0);
    assert!(all >= TIMEOUT, "{charged:?}");
    assert!(again as f64 >= 0.99 * all as f64, "{charged:?}");
}

#[test]
fn without_one_nothing_is() {
    let charged = excess(&events(0));
    assert_eq!(charged.get(&Cause::Retransmit), None, "{charged:?}");
}
