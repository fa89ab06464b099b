//! The blocks of one CPU, from which its events come in order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use super::PackedEvent;
use super::columns::decode;
use super::format::{BlockHeader, unpack};
use super::merge::Stream;
use crate::{EventKind, Nanos};

/// A block that has been read, but not unpacked.
struct ReadBlock {
    header: BlockHeader,
    payload: Vec<u8>,
    /// If events before it are missing: since when.
    lost: Option<u64>,
}

/// The blocks of one CPU that have been read and whose events have not been returned.
#[derive(Default)]
pub(super) struct BlockQueue {
    waiting: VecDeque<ReadBlock>,
    /// The earliest beginning of the blocks that wait: those of which no later block begins earlier, with their numbers.
    firsts: VecDeque<(u64, u64)>,
    /// The blocks that have been taken off the queue.
    taken: u64,
    /// The bytes of their payloads.
    pub(super) bytes: usize,
    /// Events in order of time.
    pub(super) events: Vec<PackedEvent>,
    next: usize,
    /// Events of blocks that begin before the end of an earlier one: where an event was overtaken by many others.
    /// They are merged with the others one by one, so that a file full of such blocks takes no longer.
    overlapping: BinaryHeap<Reverse<Overlapping>>,
    /// The latest time of an event that has been unpacked since there was none left.
    latest: u64,
    /// From this number of events on, no further block is unpacked to sort its events in.
    pub(super) most_unpacked: usize,
    unpacked: Vec<u8>,
    decoded: Vec<PackedEvent>,
    /// The last kind of event that the file may have.
    pub(super) last_kind: u8,
    /// Blocks whose contents could not be read.
    pub(super) unreadable: Vec<(BlockHeader, &'static str)>,
}

/// An event with its time and its place among those of its queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Overlapping {
    at: u64,
    place: u64,
    event: ByPlace,
}

/// An event that takes no part in a comparison.
#[derive(Clone, Copy)]
struct ByPlace(PackedEvent);

impl PartialEq for ByPlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ByPlace {}

impl PartialOrd for ByPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByPlace {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

impl BlockQueue {
    pub(super) fn push(&mut self, header: BlockHeader, payload: Vec<u8>, lost: Option<u64>) {
        self.bytes += payload.len();
        let number = self.taken + self.waiting.len() as u64;
        while self
            .firsts
            .back()
            .is_some_and(|(first, _)| *first >= header.first)
        {
            self.firsts.pop_back();
        }
        self.firsts.push_back((header.first, number));
        self.waiting.push_back(ReadBlock {
            header,
            payload,
            lost,
        });
        self.join_overlapping();
    }

    /// The time of the last event of its first block.
    pub(super) fn first_last(&self) -> Option<u64> {
        match self.has_unpacked() {
            true => Some(self.latest),
            false => self.waiting.front().map(|block| block.header.last),
        }
    }

    fn has_unpacked(&self) -> bool {
        self.next < self.events.len() || !self.overlapping.is_empty()
    }

    /// Unpacks the next block and takes its events.
    fn unpack_next(&mut self) -> Option<()> {
        let ReadBlock {
            header,
            payload,
            lost,
        } = self.waiting.pop_front()?;
        if self
            .firsts
            .front()
            .is_some_and(|(_, number)| *number == self.taken)
        {
            self.firsts.pop_front();
        }
        self.taken += 1;
        self.bytes -= payload.len();
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.extend(lost.map(|since| unreadable(since, header.first)));
        let before = decoded.len();
        let read = read_events(
            (&header, self.last_kind),
            &payload,
            &mut self.unpacked,
            &mut decoded,
        );
        if let Err(what) = read {
            decoded.truncate(before);
            decoded.push(unreadable(header.first, header.last));
            self.unreadable.push((header, what));
        }
        let is_in_order = decoded.is_sorted_by_key(|event| event.since_base());
        if !is_in_order {
            decoded.sort_by_key(|event| event.since_base());
        }
        let times = decoded.first().zip(decoded.last());
        if let Some((first, last)) =
            times.map(|(a, b)| (a.since_base().get(), b.since_base().get()))
        {
            match self.has_unpacked() && first <= self.latest {
                true => self.overlap(&decoded),
                false => self.events.extend_from_slice(&decoded),
            }
            self.latest = self.latest.max(last);
        }
        decoded.clear();
        self.decoded = decoded;
        Some(())
    }

    fn overlap(&mut self, events: &[PackedEvent]) {
        // of events at the same time, those of earlier blocks come first
        let place = self.taken;
        let events = events.iter().map(|event| {
            Reverse(Overlapping {
                at: event.since_base().get(),
                place,
                event: ByPlace(*event),
            })
        });
        self.overlapping.extend(events);
    }

    /// Unpacks blocks while one begins before the last unpacked event.
    fn join_overlapping(&mut self) {
        while self.has_unpacked()
            && self.events.len() - self.next + self.overlapping.len() < self.most_unpacked
            && self
                .firsts
                .front()
                .is_some_and(|(first, _)| *first < self.latest)
        {
            self.unpack_next();
        }
    }

    #[cold]
    fn refill(&mut self) -> Option<PackedEvent> {
        while !self.has_unpacked() {
            self.events.clear();
            (self.next, self.latest) = (0, 0);
            self.unpack_next()?;
        }
        self.join_overlapping();
        self.first()
    }

    /// The next event that is unpacked.
    fn first(&self) -> Option<PackedEvent> {
        match self.overlaps_next() {
            true => self.overlapping.peek().map(|Reverse(first)| first.event.0),
            false => self.events.get(self.next).copied(),
        }
    }

    /// Whether the next event is of those that overlap.
    #[inline]
    fn overlaps_next(&self) -> bool {
        let Some(Reverse(first)) = self.overlapping.peek() else {
            return false;
        };
        // at the same time it is of a later block
        let next = self.events.get(self.next);
        next.is_none_or(|next| first.at < next.since_base().get())
    }
}

impl Stream for BlockQueue {
    #[inline]
    fn peek(&mut self) -> Option<PackedEvent> {
        if self.overlapping.is_empty()
            && let Some(&event) = self.events.get(self.next)
        {
            return Some(event);
        }
        match self.has_unpacked() {
            true => self.first(),
            false => self.refill(),
        }
    }

    #[inline]
    fn advance(&mut self) {
        match self.overlaps_next() {
            true => drop(self.overlapping.pop()),
            false => self.next += 1,
        }
    }
}

/// An event that stands for the events of this time, which cannot be read.
fn unreadable(from: u64, to: u64) -> PackedEvent {
    let lasted = Nanos::new(to.saturating_sub(from));
    PackedEvent::new(Nanos::new(to), EventKind::Unreadable { lasted })
}

/// Appends the events of a block.
fn read_events(
    (header, last_kind): (&BlockHeader, u8),
    payload: &[u8],
    unpacked: &mut Vec<u8>,
    events: &mut Vec<PackedEvent>,
) -> Result<(), &'static str> {
    let columns = unpack(header, payload, unpacked)?;
    decode(
        columns,
        header.events as usize,
        header.first,
        last_kind,
        events,
    )
}
