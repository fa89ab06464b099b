//! Responses that are written and do not leave: small histories, written by hand.

use taillab_model::explanation::{Cause, Culprit, SendWait};
use taillab_model::{EventKind, Nanos, RequestKey, SendLimit};

use super::Found;
use super::story::{ELSEWHERE, EPOLL, FIRST, FUTEX, Story, culprits, of, whole};

const SENDTO: u16 = 44;
const NET_TX: u8 = 2;
const NET_RX: u8 = 3;

fn waited_for(found: &Found, wait: SendWait) {
    let share = whole(found, Cause::Client);
    assert!(share.share.value > 0.95, "{:#?}", found.causes);
    let what = wait.what().to_owned();
    assert_eq!(culprits(found, Cause::Client), [Culprit::Sending { what }]);
    assert_eq!((share.events, share.requests), (50, 50));
    for other in [Cause::BlockedLock, Cause::BlockedOther, Cause::Order] {
        assert_eq!(of(found, other), 0, "{other:?} {:#?}", found.charged);
    }
}

/// A request comes, wakes the worker, and is read; the worker writes its response at 20 µs.
fn is_asked_and_writes(story: &mut Story) {
    story.comes(0, 0, FIRST);
    story.wakes(0, 1_100, FIRST, 0);
    story.sleeps(0, 2_000, (0, FIRST), None);
    story.reads(0, 3_000, FIRST);
    story.writes(0, 20_000, FIRST);
}

/// A thread of a pool writes a response at 20 µs and goes back to its pool. The last segment leaves so much
/// later, in this softirq on another CPU.
fn leaves_later(left_ns: u64, vector: u8) -> Found {
    Story::of(50, 100_000_000, |story| {
        is_asked_and_writes(story);
        story.sleeps(0, 22_000, (FIRST, 0), Some(FUTEX));
        story.leaves(ELSEWHERE, 20_000 + left_ns, FIRST);
        let lasted = Nanos::from_micros(10);
        let kind = EventKind::Softirq { vector, lasted };
        story.emit(ELSEWHERE, 23_000 + left_ns, kind);
    })
}

/// JDK's HTTP server without its option: 43 ms of each request, told as waiting for a lock.
#[test]
fn nagle_against_a_delayed_ack_has_a_name() {
    waited_for(&leaves_later(43_500_000, NET_RX), SendWait::Nagle);
    assert!(SendWait::Nagle.advice().contains("TCP_NODELAY"));
}

/// The client's next request comes on the same connection while the response to the first is kept back, and acknowledges
/// what has come: the first leaves at once, and so does the second when the delay is over.
#[test]
fn what_leaves_with_the_next_request_or_behind_another_response_waited_for_the_same() {
    let found = Story::of(50, 100_000_000, |story| {
        let next = RequestKey::hashed(0, 40_000 + FIRST as u16, 1 << 10 | story.round as u16);
        let lasted = Nanos::from_micros(10);
        let receives = EventKind::Softirq {
            vector: NET_RX,
            lasted,
        };
        is_asked_and_writes(story);
        story.sleeps(0, 22_000, (FIRST, 0), Some(FUTEX));
        story.comes_with(next, 0, 12_000_000, FIRST);
        story.leaves(ELSEWHERE, 12_010_000, FIRST);
        story.emit(ELSEWHERE, 12_020_000, receives);
        story.wakes(0, 12_021_100, FIRST, 0);
        story.sleeps(0, 12_022_000, (0, FIRST), None);
        story.reads(0, 12_023_000, FIRST);
        story.writes(0, 12_040_000, FIRST);
        story.sleeps(0, 12_042_000, (FIRST, 0), Some(FUTEX));
        story.leaves_with(next, ELSEWHERE, 53_540_000, FIRST);
        story.emit(ELSEWHERE, 53_550_000, receives);
    });
    assert_eq!(found.matched.requests.len(), 100);
    let what = SendWait::Nagle.what().to_owned();
    assert_eq!(culprits(&found, Cause::Client), [Culprit::Sending { what }]);
    assert_eq!(whole(&found, Cause::Client).requests, 100);
}

#[test]
fn a_response_that_leaves_with_any_other_acknowledgement_waited_for_a_window() {
    waited_for(&leaves_later(12_000_000, NET_RX), SendWait::Window);
}

#[test]
fn the_rest_of_a_long_response_leaves_with_the_acknowledgements_of_its_beginning() {
    waited_for(&leaves_later(700_000, NET_RX), SendWait::RoundTrips);
}

#[test]
fn a_response_that_the_device_sends_later_was_in_its_queue() {
    waited_for(&leaves_later(43_500_000, NET_TX), SendWait::Device);
}

/// The client reads slowly, and the server's thread sleeps in its write.
#[test]
fn a_slow_reader_holds_up_a_write() {
    let found = Story::of(50, 100_000_000, |story| {
        is_asked_and_writes(story);
        story.sleeps(0, 25_000, (FIRST, 0), Some(SENDTO));
        story.wakes(1, 45_000_000, FIRST, 0);
        story.sleeps(0, 45_001_000, (0, FIRST), None);
        story.leaves(0, 45_010_000, FIRST);
        story.sleeps(0, 45_020_000, (FIRST, 0), Some(EPOLL));
    });
    waited_for(&found, SendWait::Window);
}

/// A server with one thread for all connections: the rest of a response leaves so much later, since TCP had reached this
/// limit with its beginning, and the thread serves another client meanwhile.
fn goes_on_with_another(limit: Option<SendLimit>, left_ns: u64) -> Found {
    Story::of(50, 100_000_000, |story| {
        let key = |port, bytes: u32| RequestKey::hashed(0, port, bytes as u16);
        let [begin, end] = [100 * story.round, 100 * (story.round + 1)];
        let asks = |story: &mut Story, at_ns: u64, port| {
            let comes = |bytes, key| EventKind::SegmentIn {
                key,
                bytes,
                push: true,
            };
            if story.round == 0 {
                story.emit(ELSEWHERE, at_ns, comes(0, key(port, begin)));
            }
            let key = key(port, end);
            story.emit(ELSEWHERE, at_ns + 500, comes(100, key));
            story.emit(0, at_ns + 1_000, EventKind::SegmentQueued { key });
            story.wakes(0, at_ns + 1_100, FIRST, 0);
            story.sleeps(0, at_ns + 2_000, (0, FIRST), None);
            let read = EventKind::SegmentRead {
                tid: FIRST,
                key,
                bytes_mod_1024: 100,
            };
            story.emit(0, at_ns + 3_000, read);
            let tid = FIRST;
            story.emit(0, at_ns + 50_000, EventKind::SegmentWritten { tid, key });
            story.sleeps(0, at_ns + 60_000, (FIRST, 0), Some(EPOLL));
        };
        let leaves = |tid, port, more| EventKind::SegmentOut {
            tid,
            key: key(port, end),
            more,
            resent: false,
            limit: limit.filter(|_| tid == 0),
        };
        asks(story, 0, 40_001);
        story.emit(0, 55_000, leaves(FIRST, 40_001, true));
        asks(story, 5_000_000, 40_002);
        story.emit(0, 5_055_000, leaves(FIRST, 40_002, false));
        story.emit(ELSEWHERE, left_ns, leaves(0, 40_001, false));
        let lasted = Nanos::from_micros(10);
        let kind = EventKind::Softirq {
            vector: NET_RX,
            lasted,
        };
        story.emit(ELSEWHERE, left_ns + 3_000, kind);
    })
}

#[test]
fn a_limit_that_tcp_had_reached_is_what_the_rest_of_the_response_waited_for() {
    let cases = [
        // as long as a client delays an acknowledgement
        (SendLimit::ClientWindow, 45_000_000, SendWait::ClientWindow),
        (SendLimit::ClientWindow, 60_000_000, SendWait::ClientWindow),
        (
            SendLimit::CongestionWindow,
            60_000_000,
            SendWait::CongestionWindow,
        ),
    ];
    for (limit, left_ns, wait) in cases {
        waited_for(&goes_on_with_another(Some(limit), left_ns), wait);
    }
}

/// That is no order, and no slow service, and the other request is not touched.
#[test]
fn a_thread_that_goes_on_with_others_is_not_held_up() {
    let found = goes_on_with_another(None, 60_000_000);
    assert_eq!(found.matched.requests.len(), 100);
    waited_for(&found, SendWait::Window);
    let share = whole(&found, Cause::Client);
    assert!((59e6..61e6).contains(&share.mean_event_ns), "{share:?}");
    // each takes about 55 µs of 40
    let slow_ns = of(&found, Cause::SlowService);
    assert!(slow_ns < 100 * 20_000, "{:#?}", found.charged);
}
