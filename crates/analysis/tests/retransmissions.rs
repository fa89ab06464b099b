//! Requests that their clients had to send again, and responses that the server had to.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::common::last_segment;
use crate::common::talk::Talk;
use taillab_analysis::matched::SentAgain;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisOptions, Framing, MatchOptions, Matched, Window, match_events,
};
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
    RequestKey::hashed(1, 40_000 + connection, id)
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
    let out = last_segment(tid, key);
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

/// How the requests of a connection are told apart.
fn framings() -> [Framing; 2] {
    [Framing::OneInTurn, "fixed:8".parse().unwrap()]
}

fn matched(events: &[Event], framing: Framing) -> Matched {
    let options = MatchOptions {
        framing,
        ..MatchOptions::default()
    };
    let matched = match_events(events.iter().copied(), &options);
    assert_eq!(matched.unmatched, []);
    assert_eq!(matched.without_request, []);
    matched
}

#[test]
fn a_response_that_is_sent_again_keeps_its_t6_and_is_counted_once() {
    for framing in framings() {
        let mut talk = Talk::opened(7);
        let mut left = Vec::new();
        let mut again = Vec::new();
        for round in 0..6 {
            talk.asks(b"question");
            left.push(talk.answers(b"response"));
            // the last one after the client's next time-out, too
            for n in 0..(round % 3) {
                talk.wait(TIMEOUT << n);
                again.push(talk.answers_again(b"response"));
            }
        }
        let matched = matched(&talk.events, framing);
        let t6 = matched.requests.iter().map(|request| request.server.t6);
        assert_eq!(t6.collect::<Vec<_>>(), left);
        let one = |round: usize, last, segments| SentAgain {
            left: left[round],
            last: again[last],
            segments,
        };
        let wanted = [one(1, 0, 1), one(2, 2, 2), one(4, 3, 1), one(5, 5, 2)];
        assert_eq!(matched.sent_again, wanted, "{framing}");
    }
}

#[test]
fn a_client_that_opens_its_connection_again_has_not_asked_twice() {
    let mut talk = Talk::opened(7);
    let came = talk.sends(b"question");
    talk.tells(EventKind::SegmentIn {
        key: RequestKey {
            id: 70_000_u32 as u16,
            ..key_of(7)
        },
        bytes: 0,
        push: false,
    });
    talk.reads();
    let left = talk.answers(b"response");
    let matched = matched(&talk.events, Framing::OneInTurn);
    let found = matched.requests.iter().map(|request| request.server);
    let found: Vec<_> = found.map(|stamps| (stamps.t1, stamps.t6)).collect();
    assert_eq!(found, [(came, left)]);
}

#[test]
fn a_response_leaves_when_the_driver_takes_it_from_its_queue() {
    for framing in framings() {
        let mut talk = Talk::opened(7);
        let mut left = Vec::new();
        for _ in 0..4 {
            // the server reads and answers both before the first response leaves
            talk.asks(b"question");
            let first = talk.hands_down(b"response");
            if framing == Framing::OneInTurn {
                talk.wait(TIMEOUT);
                left.push(talk.leaves(first.1));
            }
            talk.asks(b"question");
            let second = talk.hands_down(b"response");
            talk.wait(TIMEOUT);
            if framing != Framing::OneInTurn {
                left.push(talk.leaves(first.1));
            }
            left.push(talk.leaves(second.1));
        }
        let matched = matched(&talk.events, framing);
        let stamps = matched.requests.iter().map(|request| request.server);
        let stamps: Vec<_> = stamps.collect();
        let t6: Vec<Monotonic> = stamps.iter().map(|stamps| stamps.t6).collect();
        assert_eq!(t6, left, "{framing}");
        assert!(stamps.iter().all(|stamps| stamps.t5 < Some(stamps.t6)));
    }
}

#[test]
fn a_datagram_that_its_queue_drops_answers_nothing() {
    let mut events = Vec::new();
    let key = |id| RequestKey { id, ..key(0, 0) };
    let mut now = 1_000_000;
    let mut left = Vec::new();
    for id in 0..20 {
        now += 1_000_000;
        let (packet, key, tid) = (taillab_model::PacketId(id.into()), key(id), SERVER);
        let number = u32::from(id);
        let passes = |left| EventKind::DeviceQueue { key, number, left };
        add(&mut events, now, EventKind::PacketIn { packet, key });
        let returned = 8;
        add(
            &mut events,
            now + 1_000,
            EventKind::ReadReturned { tid, returned },
        );
        add(&mut events, now + 2_000, EventKind::WriteCalled { tid });
        add(&mut events, now + 3_000, passes(false));
        add(&mut events, now + 3_000, EventKind::PacketOut { tid, key });
        // each leaves while the next one is served
        if id % 5 != 3 {
            left.push((now + 1_002_500, id));
            add(&mut events, now + 1_002_500, passes(true));
        }
    }
    events.sort_by_key(|event| event.at);
    let options = MatchOptions::for_client(Nanos::from_millis(100), Nanos::from_secs(9));
    let matched = match_events(events, &options);
    let t6 = matched.requests.iter().map(|request| request.server.t6);
    let ids = matched.keys.iter().map(|key| key.id);
    let found: Vec<(u64, u16)> = t6.map(|t6| t6.nanos_since_boot()).zip(ids).collect();
    assert_eq!(found, left);
    assert_eq!(matched.unmatched.len(), 4);
    for request in matched.requests.iter() {
        let stamps = request.server;
        assert_eq!(stamps.t5, Some(stamps.t1 + Nanos::new(2_000)));
    }
}

#[test]
fn what_another_process_reads_is_none_of_the_servers_requests() {
    for framing in framings() {
        let mut own = Talk::opened(7);
        let mut others = Talk::opened(8);
        for round in 0..6 {
            own.asks(b"question");
            own.answers(b"response");
            others.sends(b"question");
            // once is enough
            if round < 2 {
                let (tid, key) = (99, RequestKey { id: 0, ..key_of(8) });
                others.tells(EventKind::ReadByOther { tid, key });
            }
            others.answers(b"response");
        }
        let mut events = [own.events, others.events].concat();
        events.sort_by_key(|event| event.at);
        let matched = matched(&events, framing);
        let found = (matched.requests.len(), matched.other_processes);
        assert_eq!(found, (6, 6), "{framing}");
        assert!(
            matched
                .keys
                .iter()
                .all(|key| key.connection == key_of(7).connection)
        );
    }
}

fn key_of(port: u16) -> RequestKey {
    RequestKey::hashed(0, port, 0)
}
