//! Kernel events to requests with their stamps T1..T6.
//!
//! [`match_events`] reads a stream of events in order of time and holds no more than
//! the requests that are open, besides its result. How each stamp is found:
//!
//! - **T1** `PacketIn` opens a request.
//! - **T2** `Enqueued` belongs to the latest `PacketIn` with that packet id: buffers are
//!   recycled at once, so an id names a packet only until its next use.
//! - **T6** `PacketOut` names its request by key; see `open.rs` for keys that are used again.
//!   A further datagram with the key of the response that the thread has just sent, before
//!   it reads again or sleeps, is the rest of that response: T6 is the last one's.
//! - **T4, T5** are the last `ReadReturned` and `WriteCalled` of the thread before its T6,
//!   adjacent in the thread's own sequence: each T6 uses them up.
//! - **T3** is the moment from which the reading thread could serve the request:
//!   max(T2, the thread's last switch onto a core before T4, its previous T6). Until its
//!   previous T6 the thread was busy with an earlier request, and waiting for that is
//!   queueing, so it belongs to T2–T3. A thread that is preempted in its own read gets
//!   T3 after the preemption: that wait is for the core too. See `threads.rs` for when
//!   T3 cannot be known; it is then left out and never guessed.
//!
//! Streams (TCP) say more: T2 and T4 name the connection and the position in it, and so
//! does T6; see `stream.rs`. T5 and T3 come from the thread as above.
//!
//! A missing middle stamp never drops a request: T1 and T6 suffice. A response that more
//! than one request could have caused is counted as ambiguous and matched to none.

mod id_map;
mod open;
mod order;
mod stream;
mod streams;
mod threads;

use taillab_model::{
    Event, EventKind, Monotonic, Nanos, PacketId, Request, RequestKey, Stamps, Tid,
};

use crate::matched::{BlindWindow, Matched, Unmatched};
pub(crate) use id_map::{IdMap, packed};
use open::{Answer, OpenRequests};
pub use order::InOrder;
use stream::Leaving;
use streams::Streams;
use threads::{Cores, Sent, Thread};

/// What the matcher must know of the client and of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions {
    /// How far an event may stand from its place in the order of time; such events are
    /// put back. An event that comes later than that is counted ([`Matched::late_events`]).
    pub disorder: Nanos,
    /// A response that leaves longer than this after a request came in is not taken for
    /// its own. Longer than any sojourn to be measured (and than the client's time-out),
    /// shorter than the time in which a request id comes round again.
    pub stale_after: Nanos,
    /// A thread that has answered a request which arrived this much later than another
    /// will not answer that other one any more: threads take requests in the order of
    /// arrival, so its response was lost to the probe, or never sent.
    pub overtaken_after: Nanos,
    /// Each connection's requests are handled in their order, and all that was read of a
    /// connection is answered before more of it is read, as memcached, nginx, Redis and
    /// every loop of blocking reads and writes do. It lets pipelined requests be told
    /// apart that were read together; without it they are ambiguous.
    pub sequential: bool,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self {
            disorder: Nanos::from_millis(1),
            stale_after: Nanos::from_secs(1),
            overtaken_after: Nanos::from_millis(50),
            sequential: false,
        }
    }
}

impl MatchOptions {
    /// For a client that waits `timeout` for a response and uses each of its request
    /// ids again after `key_period` (ports × 65,536 ÷ rate).
    ///
    /// A request then goes stale after four time-outs, but before its id comes round
    /// again, except where the client itself uses it sooner than its time-out.
    pub fn for_client(timeout: Nanos, key_period: Nanos) -> Self {
        let before_reuse = Nanos::new(key_period.get() / 10 * 9);
        Self {
            stale_after: (timeout * 4).min(before_reuse).max(timeout),
            ..Self::default()
        }
    }

    /// For a client of connections (TCP) that waits `timeout` for a response.
    ///
    /// When keys come round again does not matter there: a connection's requests are told
    /// apart by their order.
    pub fn for_streams(timeout: Nanos, sequential: bool) -> Self {
        Self {
            stale_after: timeout * 4,
            sequential,
            ..Self::default()
        }
    }
}

/// Joins kernel events to requests.
///
/// `events` come in order of time, merged over the CPUs, or out of it by no more than
/// [`MatchOptions::disorder`]. Memory grows with the open requests and with the result,
/// not with the events.
pub fn match_events(events: impl IntoIterator<Item = Event>, options: &MatchOptions) -> Matched {
    let mut events = InOrder::new(events.into_iter(), options.disorder);
    let mut matcher = Matcher::new(*options);
    for event in events.by_ref() {
        matcher.observe(&event);
    }
    let late_events = events.late();
    let mut matched = matcher.finish();
    matched.late_events = late_events;
    matched
}

/// The place of a request in the matcher's own list, in order of T1.
type Slot = u32;

/// The matcher itself, one event at a time, for a caller that has its own loop.
pub struct Matcher {
    options: MatchOptions,
    /// Every request seen; `t6` is meaningless until the request is answered.
    requests: Vec<Request>,
    keys: Vec<RequestKey>,
    answered: Vec<bool>,
    open: OpenRequests,
    streams: Streams,
    /// Packets that wait for their T2.
    packets: IdMap<Slot>,
    threads: IdMap<Thread>,
    cores: Cores,
    blind: Vec<BlindWindow>,
    ambiguous: Vec<Monotonic>,
    without_request: Vec<Monotonic>,
    events: u64,
    last: Option<Monotonic>,
}

impl Matcher {
    /// A matcher that has seen nothing.
    pub fn new(options: MatchOptions) -> Self {
        Self {
            options,
            requests: Vec::new(),
            keys: Vec::new(),
            answered: Vec::new(),
            open: OpenRequests::default(),
            streams: Streams::default(),
            packets: IdMap::default(),
            threads: IdMap::default(),
            cores: Cores::default(),
            blind: Vec::new(),
            ambiguous: Vec::new(),
            without_request: Vec::new(),
            events: 0,
            last: None,
        }
    }

    /// Takes the next event, in order of time.
    pub fn observe(&mut self, event: &Event) {
        self.events += 1;
        self.last = self.last.max(Some(event.at));
        let Event { at, cpu, kind } = *event;
        match kind {
            EventKind::PacketIn { packet, key } => self.packet_in(at, packet, key),
            EventKind::Enqueued { packet } => self.enqueued(at, packet),
            EventKind::ReadReturned { tid, .. } => {
                let on_core = self.running(cpu, tid, at);
                self.thread(tid).read_returned(at, on_core);
            }
            EventKind::WriteCalled { tid } => {
                self.running(cpu, tid, at);
                let thread = self.thread(tid);
                thread.write_called(at);
                if let Some(client) = thread.answered_client {
                    self.wrote_again(client);
                }
            }
            EventKind::PacketOut { tid, key } => {
                self.running(cpu, tid, at);
                self.packet_out(at, tid, key);
            }
            EventKind::SegmentIn { key, bytes, push } => self.segment_in(at, key, bytes, push),
            EventKind::SegmentQueued { key } => self.segment_queued(at, key),
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            } => {
                let on_core = self.running(cpu, tid, at);
                let thread = self.thread(tid);
                let read = thread.stream_read(at, on_core, Some(bytes_mod_1024));
                self.segment_read(tid, key, read);
            }
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
            } => {
                self.running(cpu, tid, at);
                let segment = Leaving {
                    at,
                    tid,
                    more,
                    resent,
                };
                self.segment_out(key, segment);
            }
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep: _,
            } => {
                self.blind.extend(self.cores.switched(cpu, prev, next, at));
                if !preempted && let Some(thread) = self.threads.get_mut(&prev) {
                    thread.slept(at);
                }
            }
            // they say why a request was slow, not which one it is
            EventKind::Woken { .. }
            | EventKind::Migrated { .. }
            | EventKind::Interrupt { .. }
            | EventKind::Softirq { .. }
            | EventKind::IdleLeft { .. }
            | EventKind::PageFault { .. }
            | EventKind::LockTaken { .. }
            | EventKind::Frequency { .. }
            | EventKind::Retransmitted { .. }
            | EventKind::Stolen { .. }
            | EventKind::Stalled { .. }
            | EventKind::Throttled { .. }
            | EventKind::Payload { .. } => {}
        }
    }

    /// The result, when there are no more events.
    pub fn finish(mut self) -> Matched {
        self.end_of_streams();
        let Self {
            mut requests,
            mut keys,
            answered,
            open,
            streams,
            blind,
            ambiguous,
            without_request,
            events,
            last,
            ..
        } = self;
        let mut unmatched = Vec::new();
        let mut kept = 0;
        for slot in 0..requests.len() {
            if answered[slot] {
                requests[kept] = requests[slot];
                keys[kept] = keys[slot];
                kept += 1;
            } else if !streams.is_part(slot as Slot) {
                unmatched.push(Unmatched {
                    key: keys[slot],
                    t1: requests[slot].server.t1,
                    t2: requests[slot].server.middle[0],
                    ambiguous: open.is_ambiguous(slot as Slot)
                        || streams.is_ambiguous(slot as Slot),
                });
            }
        }
        requests.truncate(kept);
        keys.truncate(kept);
        let mut matched = Matched {
            requests,
            keys,
            unmatched,
            ambiguous,
            without_request,
            blind,
            client: None,
            events,
            late_events: 0,
            last,
        };
        matched.restore_order();
        matched
    }

    fn thread(&mut self, tid: Tid) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// Notes that `tid` is the thread on `cpu`, and says since when.
    fn running(&mut self, cpu: u16, tid: Tid, at: Monotonic) -> Option<threads::Since> {
        let (since, blind) = self.cores.called(cpu, tid, at);
        self.blind.extend(blind);
        since
    }

    fn open_request(&mut self, at: Monotonic, key: RequestKey) -> Option<Slot> {
        // four thousand million requests: 340 GB of them came before the last
        let slot = Slot::try_from(self.requests.len()).ok()?;
        self.requests.push(Request {
            server: Stamps {
                t1: at,
                middle: [None; 4],
                t6: at,
            },
            client: None,
            operation: None,
        });
        self.keys.push(key);
        self.answered.push(false);
        Some(slot)
    }

    fn packet_in(&mut self, at: Monotonic, packet: PacketId, key: RequestKey) {
        let Some(slot) = self.open_request(at, key) else {
            return;
        };
        self.packets.insert(packet.0, slot);
        self.open.insert(key, slot);
    }

    fn enqueued(&mut self, at: Monotonic, packet: PacketId) {
        if let Some(slot) = self.packets.remove(&packet.0)
            && !self.answered[slot as usize]
        {
            self.requests[slot as usize].server.middle[0] = Some(at);
        }
    }

    fn packet_out(&mut self, at: Monotonic, tid: Tid, key: RequestKey) {
        let thread = self.threads.entry(tid).or_default();
        let Sent { read, write, .. } = thread.packet_out(at);
        let answered_up_to = thread.answered_up_to;
        let (requests, options) = (&self.requests, &self.options);
        let t1 = |slot: Slot| requests[slot as usize].server.t1;
        let answer = self.open.answer(
            key,
            |slot| answered_up_to >= Some(t1(slot) + options.overtaken_after),
            // before T1 only in a stream that is out of order: no response of this request
            |slot| at < t1(slot) || at.saturating_since(t1(slot)) > options.stale_after,
        );
        match answer {
            Answer::None => match thread.answered {
                Some((answered, slot))
                    if answered == key && at.saturating_since(t1(slot)) <= options.stale_after =>
                {
                    self.requests[slot as usize].server.t6 = at;
                }
                _ => self.without_request.push(at),
            },
            Answer::Ambiguous => self.ambiguous.push(at),
            Answer::One(slot) => {
                let stamps = &mut self.requests[slot as usize].server;
                stamps.t6 = at;
                let [t2, t3, t4, t5] = &mut stamps.middle;
                *t3 = read.and_then(|read| read.could_serve_from(stamps.t1, *t2, &self.blind));
                *t4 = read.map(|read| read.at);
                *t5 = write;
                self.answered[slot as usize] = true;
                thread.answered_up_to = thread.answered_up_to.max(Some(stamps.t1));
                thread.answered = Some((key, slot));
            }
        }
    }
}
