//! Recordings in slices: T1 and T6 of every request, and everything else for stretches of time only.
//!
//! Within a slice, everything is as in a recording that begins and ends there. A request belongs to
//! the **sample** if it came in within a slice, but not in its first [`LEAD`], in which it is not known yet
//! who is on the CPUs, and not in its last [`TAIL`], so that it can still leave within the slice. One that
//! leaves later stays in the sample, so slow requests are not missing: what happened to it after the
//! slice is charged to `unobserved`, like what was before the slice. Stages, causes and the replay are those of
//! the sample; sojourn, ideal and excess are complete.
//!
//! The time between two slices is like a blind window: nothing is concluded from it, and CPUs and threads
//! are learnt anew in each slice.

use taillab_model::{Event, EventKind, MiddleStamps, Monotonic, Nanos};

use crate::spans::{Span, earlier};

/// The beginning of a slice that is not sampled.
pub const LEAD: Nanos = Nanos::from_millis(10);

/// The end of a slice that is not sampled.
pub const TAIL: Nanos = Nanos::from_millis(20);

/// The slices of a recording, or of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// The recording is in slices; otherwise the other fields are not used.
    are_used: bool,
    /// The number of slices before the first of these.
    before: u32,
    /// The slices that have ended, in order of time.
    slices: Vec<Span>,
    /// When the slice began that has not ended.
    open: Option<Monotonic>,
}

impl Slices {
    /// No slices yet, for a recording with these stamps.
    pub(crate) fn of(stamps: MiddleStamps) -> Self {
        Self {
            are_used: matches!(stamps, MiddleStamps::Sampled(_)),
            ..Self::default()
        }
    }

    /// Whether everything but T1 and T6 is recorded in slices.
    pub(crate) const fn are_used(&self) -> bool {
        self.are_used
    }

    /// Takes the next event; returns false if it must not be used, because it does not lie within a slice.
    #[inline]
    pub(crate) fn let_pass(&mut self, event: &Event) -> bool {
        if !self.are_used {
            return true;
        }
        if let EventKind::Slice { begins } = event.kind {
            self.end(event.at);
            self.open = begins.then_some(event.at);
            return true;
        }
        let begins = || earlier(event.at, event.kind.lasted());
        event.kind.is_always_recorded() || self.open.is_some_and(|open| open <= begins())
    }

    /// Ends the slice that has not ended, if there is one.
    pub(crate) fn end(&mut self, to: Monotonic) {
        self.slices
            .extend(self.open.take().map(|from| Span { from, to }));
    }

    /// Whether everything is recorded now.
    #[inline]
    pub(crate) const fn is_open(&self) -> bool {
        !self.are_used || self.open.is_some()
    }

    /// Forgets slices that ended before this.
    pub(crate) fn forget(&mut self, before: Monotonic) {
        let gone = self.slices.partition_point(|slice| slice.to < before);
        self.slices.drain(..gone);
        self.before += gone as u32;
    }

    /// Adds the slices of a later part that are not here yet.
    pub(crate) fn append(&mut self, later: &Self) {
        if !self.are_used {
            *self = later.clone();
            return;
        }
        let end = self.slices.last().map(|slice| slice.to);
        let new = (later.slices.iter()).filter(|slice| end.is_none_or(|end| slice.from >= end));
        self.slices.extend(new);
    }

    /// The slices with their numbers, counted from the beginning of the recording.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, Span)> {
        (self.before..).zip(self.slices.iter().copied())
    }

    /// The slice, and its number, whose sample has the requests that came in at `t1`.
    pub(crate) fn sampling(&self, t1: Monotonic) -> Option<(u32, Span)> {
        let next = self.slices.partition_point(|slice| slice.to <= t1);
        let slice = *self.slices.get(next)?;
        let sampled = slice.from + LEAD <= t1 && t1 + TAIL < slice.to;
        sampled.then_some((self.before + next as u32, slice))
    }

    /// Whether everything was recorded at this instant.
    pub(crate) fn contain(&self, at: Monotonic) -> bool {
        let next = self.slices.partition_point(|slice| slice.to <= at);
        !self.are_used || self.slices.get(next).is_some_and(|slice| slice.from <= at)
    }

    /// The sampled parts between two instants; all of that time where there are no slices.
    pub(crate) fn sampled(&self, from: Monotonic, to: Monotonic) -> Vec<Span> {
        if !self.are_used {
            let all = (from < to).then_some(Span { from, to });
            return all.into_iter().collect();
        }
        let part = |slice: &Span| Span {
            from: (slice.from + LEAD).max(from),
            to: earlier(slice.to, TAIL).min(to),
        };
        let parts = self.slices.iter().map(part);
        parts.filter(|part| part.from < part.to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ms * 1_000_000)
    }

    fn event(ms: u64, kind: EventKind) -> Event {
        Event {
            at: at(ms),
            cpu: 0,
            kind,
        }
    }

    fn slice(ms: u64, begins: bool) -> Event {
        event(ms, EventKind::Slice { begins })
    }

    fn softirq(ms: u64, lasted: u64) -> Event {
        let lasted = Nanos::from_millis(lasted);
        event(ms, EventKind::Softirq { vector: 3, lasted })
    }

    #[test]
    fn only_what_lies_within_a_slice_is_used() {
        let mut slices = Slices::of("sampled:1/4".parse().unwrap());
        let stolen = EventKind::Stolen {
            lasted: Nanos::ZERO,
        };
        assert!(!slices.let_pass(&softirq(5, 0)) && slices.let_pass(&event(5, stolen)));
        assert!(slices.let_pass(&slice(10, true)) && slices.is_open());
        // the first of these two had begun before the slice
        assert!(!slices.let_pass(&softirq(12, 3)) && slices.let_pass(&softirq(14, 3)));
        assert!(slices.let_pass(&slice(110, false)) && !slices.is_open());
        assert!(!slices.let_pass(&softirq(111, 0)));
        // without slices, everything
        let mut all = Slices::of(MiddleStamps::All);
        assert!(all.let_pass(&softirq(5, 3)) && all.is_open());
        assert_eq!(all.sampled(at(1), at(2)).len(), 1);
    }

    #[test]
    fn the_sample_leaves_out_the_edges() {
        let mut slices = Slices::of("sampled:1/4".parse().unwrap());
        for (from, to) in [(10, 110), (400, 500), (900, 930)] {
            slices.let_pass(&slice(from, true));
            slices.let_pass(&slice(to, false));
        }
        let sampled: Vec<(u64, u32)> = (0..1_000)
            .filter_map(|ms| Some((ms, slices.sampling(at(ms))?.0)))
            .collect();
        let expected = (20..90)
            .map(|ms| (ms, 0))
            .chain((410..480).map(|ms| (ms, 1)));
        assert_eq!(sampled, expected.collect::<Vec<_>>());
        assert_eq!(slices.sampling(at(450)).unwrap().1.to, at(500));
        let lengths = slices.sampled(at(50), at(1_000)).into_iter();
        let lengths: Vec<Nanos> = lengths
            .map(|part| part.to.saturating_since(part.from))
            .collect();
        assert_eq!(lengths, [40, 70].map(Nanos::from_millis));
        // numbers stay
        slices.forget(at(300));
        assert_eq!(slices.sampling(at(450)).unwrap().0, 1);
        assert_eq!(slices.sampling(at(50)), None);
    }

    #[test]
    fn parts_of_a_recording_join() {
        let mut slices = Slices::of("sampled:1/4".parse().unwrap());
        slices.let_pass(&slice(10, true));
        slices.let_pass(&slice(110, false));
        let mut all = Slices::default();
        all.append(&slices);
        slices.let_pass(&slice(400, true));
        // the recording ends
        slices.end(at(470));
        all.append(&slices);
        assert_eq!(all, slices);
        assert_eq!(all.numbered().count(), 2);
    }
}
