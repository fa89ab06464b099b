//! Turns kernel events into requests with their stamps T1..T6.
//!
//! [`match_events`] reads a stream of events in time order. Besides its result, it holds only the
//! open requests. How each stamp is found:
//!
//! - **T1** `PacketIn` opens a request.
//! - **T2** `Enqueued` belongs to the latest `PacketIn` with that packet id: buffers are recycled
//!   at once, so an id names a packet only until its next use. It is stamped right after the packet
//!   is queued, so a reader that is awake on another CPU may read a datagram before that; T2 is
//!   then set to T4.
//! - **T6** `PacketOut` names its request by key; see `open.rs` for keys that are reused. If the
//!   thread sends another datagram with the same key before it reads again or sleeps, that is the
//!   rest of the response: T6 is that of the last datagram.
//! - **T4, T5** are the last `ReadReturned` and `WriteCalled` of the thread before its T6, adjacent
//!   in the thread's own sequence: each T6 uses them up. If a thread reads several datagrams before
//!   it answers, the first T6 gets the T4 of the first read, and so on; one write may then have
//!   sent all of the responses. With several such threads, each has the T4 of its own reads.
//! - **T3** is the moment from which the reading thread could serve the request: max(T2, the
//!   thread's last switch onto a core before T4, its previous T6 or T4). Until its previous T6 the
//!   thread was busy with an earlier request, and waiting for that is queueing, so it belongs to
//!   T2–T3. If a thread reads several requests before it answers (Redis reads all connections that
//!   are ready, then writes; a reader hands requests to workers), it was busy with the previous one
//!   only until it had read it, at its previous T4. A thread that is preempted in its own read gets
//!   T3 after the preemption: that wait is for the core too. See `threads.rs` for when T3 cannot be
//!   known; it is then left out and never guessed.
//!
//! Datagrams of a protocol without ids are matched by their order: see `datagrams.rs`.
//!
//! The events of streams (TCP) say more: T2, T4 and T6 name the connection and the position in it,
//! and so does T5 where the kernel lets the probe see it; see `stream.rs`. T3 comes from the thread
//! as above, and so does T5 otherwise.
//!
//! **Reading in one thread, writing in another.** T4 is the reader's, found by the connection, T5
//! and T6 are the writer's; T3 is when the reader could read. The worker ([`Matched::workers`]) is
//! the thread that wrote, or the reader where no write was seen. The read of a datagram does not
//! name the client, so T4 is then missing.
//!
//! Streams whose messages are separated by their content (HTTP, memcached, Redis, fixed
//! lengths): see `framed.rs`.
//!
//! **Queues of devices.** Where packets may wait in one, all of this is done when the response is
//! handed down, and T6 is when the driver took it: see `departures.rs`.
//!
//! A missing middle stamp never drops a request: T1 and T6 suffice. A response that more
//! than one request could have caused is counted as ambiguous and matched to none.

mod count;
mod datagrams;
mod departures;
mod doubt;
mod framed;
mod framer;
pub mod framing;
mod held;
mod open;
mod options;
mod order;
mod packet;
mod parts;
mod shared;
mod stream;
mod streams;
mod threads;

use taillab_model::{Event, EventKind, Monotonic, Recording, RecordingContext};

use crate::matched::Matched;
use datagrams::Datagrams;
pub use framing::{Framing, ParseFramingError};
use held::HeldRequest;
pub use options::MatchOptions;
pub use order::{InOrder, Timed};
use shared::Shared;
use streams::Streams;

/// Joins kernel events to requests.
///
/// `events` are merged over the CPUs. They are in time order, or out of order by no more than
/// [`MatchOptions::disorder`]. Memory grows with the open requests and with the result, not with
/// the number of events.
pub fn match_events(events: impl IntoIterator<Item = Event>, options: &MatchOptions) -> Matched {
    joined(events, options, Matcher::new(*options))
}

/// [`match_events`] for a whole recording, with what its context says ([`Matcher::of_recording`]).
///
/// # Errors
/// The recording names an unknown framing.
pub fn match_recording(recording: &Recording) -> Result<Matched, ParseFramingError> {
    let options = MatchOptions::of(&recording.context)?;
    let matcher = Matcher::of_recording(options, &recording.context);
    Ok(joined(recording.events(), &options, matcher))
}

fn joined(
    events: impl IntoIterator<Item = Event>,
    options: &MatchOptions,
    mut matcher: Matcher,
) -> Matched {
    let mut events = InOrder::new(events.into_iter(), options.disorder);
    for event in events.by_ref() {
        matcher.observe(&event);
    }
    let late_events = events.late();
    let mut matched = matcher.finish();
    matched.late_events = late_events;
    matched
}

/// The matcher itself, one event at a time, for a caller that has its own loop.
///
/// To get requests while events are still coming in, a caller asks [`Matcher::settled`] up to which
/// time everything is decided, and takes those requests with [`Matcher::take_settled`].
pub struct Matcher {
    shared: Shared,
    datagrams: Datagrams,
    streams: Streams,
}

impl Matcher {
    /// A matcher that has seen nothing.
    pub fn new(options: MatchOptions) -> Self {
        Self {
            shared: Shared::new(options),
            datagrams: Datagrams::new(options.datagram_ids),
            streams: Streams::default(),
        }
    }

    /// A matcher for a recording. The context says for which CPUs switches are recorded from the
    /// first event on.
    pub fn of_recording(options: MatchOptions, context: &RecordingContext) -> Self {
        let mut matcher = Self::new(options);
        if context.hooks.iter().any(|hook| hook.stamp == "switch") {
            matcher.shared.watched.clone_from(&context.server_cpus);
            if !matcher.shared.slices.are_used() {
                matcher.shared.cores.watch(&context.server_cpus);
            }
        }
        matcher
    }

    /// Takes the next event, in order of time.
    pub fn observe(&mut self, event: &Event) {
        let mut ready = None;
        if !self.datagrams.hold_back(event, &mut ready) {
            return self.note(event);
        }
        for event in ready.into_iter().flatten() {
            self.note(&event);
        }
    }

    fn note(&mut self, event: &Event) {
        let (shared, streams) = (&mut self.shared, &mut self.streams);
        // only now: an event that was held back belongs to the slice of its own time
        if !shared.slices.let_pass(event) {
            return;
        }
        shared.saw(event);
        if shared.options.framing != Framing::OneInTurn && streams.collect(shared, event) {
            return;
        }
        let (at, cpu) = (event.at, event.cpu);
        match event.kind {
            EventKind::Announced { connection, part } => {
                if shared.announced.take(connection, part) {
                    streams.announced(shared, connection, at);
                }
            }
            EventKind::PacketIn { packet, key } => {
                self.datagrams.packet_in(shared, at, packet, key);
            }
            EventKind::Enqueued { packet } => self.datagrams.enqueued(shared, at, packet),
            EventKind::Slice { begins } => {
                shared.slice(begins);
                self.datagrams.begin_anew();
            }
            EventKind::ReadReturned { tid, .. } => {
                let (thread, on_core) = shared.reader(cpu, tid, at);
                thread.read_returned(tid, at, on_core);
                self.datagrams.read_returned(tid, at);
            }
            EventKind::WriteCalled { tid } => {
                shared.running(cpu, tid, at);
                let thread = shared.thread(tid);
                thread.write_called(at);
                if let Some(client) = thread.answered_client {
                    streams.wrote_again(client);
                }
            }
            EventKind::PacketOut { tid, key } => {
                shared.running(cpu, tid, at);
                self.datagrams.packet_out(shared, at, tid, key);
            }
            EventKind::DeviceQueue { key, number, left } => {
                shared.passed_queue(key, number, left, at);
            }
            EventKind::SegmentIn { .. }
            | EventKind::SegmentQueued { .. }
            | EventKind::SegmentRead { .. }
            | EventKind::SegmentWritten { .. }
            | EventKind::SegmentOut { .. } => streams.note(shared, event),
            EventKind::ReadByOther { tid, .. } => {
                shared.others.insert(tid, ());
                streams.note(shared, event);
            }
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep,
            } => {
                shared.switched(cpu, prev, next, at);
                if !preempted && let Some(thread) = shared.threads.get_mut(&prev) {
                    thread.slept(at, asleep);
                    self.datagrams.slept(prev, asleep, at);
                }
            }
            EventKind::Unreadable { lasted } => shared.unreadable(at, lasted),
            // they say why a request was slow, not which one it is
            EventKind::CameOn { .. }
            | EventKind::Woken { .. }
            | EventKind::Migrated { .. }
            | EventKind::Interrupt { .. }
            | EventKind::Softirq { .. }
            | EventKind::IdleLeft { .. }
            | EventKind::PageFault { .. }
            | EventKind::MajorFault { .. }
            | EventKind::StorageWaited { .. }
            | EventKind::LockTaken { .. }
            | EventKind::UpstreamAnswered { .. }
            | EventKind::Frequency { .. }
            | EventKind::Retransmitted { .. }
            | EventKind::Stolen { .. }
            | EventKind::Stalled { .. }
            | EventKind::Throttled { .. }
            | EventKind::Payload { .. } => {}
        }
    }

    /// Whether there may be requests in events that wait until it is known how to match datagrams.
    pub const fn holds_back(&self) -> bool {
        self.datagrams.holds_back()
    }

    /// How many connections and threads are remembered.
    pub fn remembered(&self) -> (usize, usize) {
        (self.streams.len(), self.shared.threads.len())
    }

    /// How many requests have come in and have not been taken with [`Matcher::take_settled`].
    pub fn held(&self) -> usize {
        let Shared { found, held, .. } = &self.shared;
        found.requests.len() + found.unmatched.len() + held.len() + held.aside()
    }

    /// About how many of the held requests are decided, without a match, and came in before `upto`.
    pub fn unmatched_before(&self, upto: Monotonic) -> usize {
        let unmatched = &self.shared.found.unmatched;
        unmatched.partition_point(|request| request.t1 < upto)
    }

    /// About how many of the held requests are matched and came in before `upto`.
    pub fn found_before(&self, upto: Monotonic) -> usize {
        self.shared.found.requests.first_from(upto)
    }

    /// When the oldest undecided request came in; nothing changes any more about the requests
    /// before it. Requests without a response are given up after [`MatchOptions::stale_after`].
    pub fn settled(&mut self) -> Option<Monotonic> {
        let shared = &mut self.shared;
        let last = shared.last?;
        let stale_after = shared.options.stale_after;
        let stale = |request: &HeldRequest| last.saturating_since(request.t1) > stale_after;
        shared.give_out();
        self.datagrams.forget(&shared.held, shared.idle());
        while shared.held.front().is_some_and(|(_, front)| stale(front)) {
            shared.held.set_front_aside();
            shared.give_out();
        }
        for (slot, key) in shared.held.open_stragglers(stale) {
            self.datagrams.give_up(slot, key);
            self.streams.expire(shared, slot, key);
        }
        let oldest = shared.settle_stragglers(stale);
        let front = shared.held.front().map(|(_, request)| request.t1);
        Some(oldest.into_iter().chain(front).min().unwrap_or(last))
    }

    /// Takes the requests that came in before `upto`, in order of T1, and what else was found since
    /// the last call. `upto` must not be after [`Matcher::settled`]. The blind windows are those
    /// that had not ended before the last call's `upto`.
    pub fn take_settled(&mut self, upto: Monotonic) -> Matched {
        let shared = &mut self.shared;
        shared.found.restore_order();
        let later = shared.found.split_off(upto);
        let mut settled = std::mem::replace(&mut shared.found, later);
        settled.slices.clone_from(&shared.slices);
        shared.slices.forget(upto);
        settled.blind.clone_from(&shared.blind);
        shared.blind.retain(|window| window.to >= upto);
        settled.last = shared.last;
        settled
    }

    /// Returns everything that has not been taken, when there are no more events.
    pub fn finish(mut self) -> Matched {
        for event in self.datagrams.decide_ids() {
            self.note(&event);
        }
        self.streams.finish(&mut self.shared);
        self.shared.finish()
    }
}
