//! Streams of events, each in order of time, merged into one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::PackedEvent;

/// One of the streams that are merged.
pub(super) trait Stream {
    /// The next event, if it is there already.
    fn peek(&mut self) -> Option<PackedEvent>;
    /// Moves past the event that `peek` returned last.
    fn advance(&mut self);
}

/// The streams, merged by time; of events at the same time, those of earlier streams come first.
pub(super) struct Merge<S> {
    streams: Vec<S>,
    /// The next time of each stream that has an event and is not the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream that is read while its events are earlier than `limit`.
    current: usize,
    limit: u64,
}

/// The value of `current` when no stream is the current one.
const NONE: usize = usize::MAX;

impl<S: Stream> Merge<S> {
    pub(super) fn new(streams: Vec<S>) -> Self {
        let mut merge = Self {
            waiting: BinaryHeap::with_capacity(streams.len()),
            streams,
            current: NONE,
            limit: 0,
        };
        merge.look_again();
        merge
    }

    pub(super) fn streams(&self) -> &[S] {
        &self.streams
    }

    /// The streams, to add events or streams to; [`Merge::look_again`] must follow.
    pub(super) fn streams_mut(&mut self) -> &mut Vec<S> {
        &mut self.streams
    }

    /// Looks at all streams again; must be called after events were added.
    pub(super) fn look_again(&mut self) {
        self.current = NONE;
        self.waiting.clear();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            if let Some(event) = stream.peek() {
                self.waiting
                    .push(Reverse((event.since_base().get(), index)));
            }
        }
    }

    /// The next event and its stream's index, if it is earlier than `bound`, which is in
    /// nanoseconds since the base.
    #[inline]
    pub(super) fn next_before(&mut self, bound: u64) -> Option<(PackedEvent, usize)> {
        let index = self.current;
        if let Some(stream) = self.streams.get_mut(index)
            && let Some(event) = stream.peek()
            && event.since_base().get() < self.limit.min(bound)
        {
            stream.advance();
            return Some((event, index));
        }
        self.change_stream(bound)
    }

    fn change_stream(&mut self, bound: u64) -> Option<(PackedEvent, usize)> {
        let current = self.streams.get_mut(self.current);
        let turn = current.and_then(|stream| {
            let at = stream.peek()?.since_base().get();
            Some(Reverse((at, self.current)))
        });
        let next = match (turn, self.waiting.peek_mut()) {
            (turn, None) => turn?,
            (None, Some(first)) => PeekMut::pop(first),
            // both in one operation: the streams take turns often
            (Some(turn), Some(mut first)) if *first > turn => std::mem::replace(&mut *first, turn),
            (Some(turn), Some(_)) => turn,
        };
        let Reverse((at, index)) = next;
        if at >= bound {
            self.current = NONE;
            self.waiting.push(next);
            return None;
        }
        self.current = index;
        self.limit = match self.waiting.peek() {
            None => u64::MAX,
            // at the same time the earlier stream comes first
            Some(&Reverse((other, behind))) if index < behind => other.saturating_add(1),
            Some(&Reverse((other, _))) => other,
        };
        let stream = self.streams.get_mut(index)?;
        let event = stream.peek()?;
        stream.advance();
        Some((event, index))
    }
}
