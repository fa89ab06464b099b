//! How the generator waits for the next send.

use taillab_model::Nanos;

/// How the generator waits for the next send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Spins all the time: the most exact, but it needs a CPU of its own.
    #[default]
    Spin,
    /// Sleeps until shortly before the next send, then spins: for low rates on busy
    /// machines. An answer wakes it, so a received time by its own clock includes the wake-up
    /// (the kernel's stamps do not). Lateness is measured as usual.
    Hybrid,
}

/// The initial margin: longer than a wake-up from most CPUs' idle states.
const FIRST_MARGIN: Nanos = Nanos::from_micros(60);
const SMALLEST_MARGIN: Nanos = Nanos::from_micros(20);
const LARGEST_MARGIN: Nanos = Nanos::from_millis(1);

/// A shorter sleep costs more than it saves.
const SHORTEST_NAP: Nanos = Nanos::from_micros(30);

/// The hooks must be called in between.
const LONGEST_NAP: Nanos = Nanos::from_millis(2);

/// Decides how long to sleep. The margin left for spinning should be 1.5 times the delay of a
/// wake-up. After a wake-up that needs more, it grows at once; each one that needs less shrinks it by
/// a 256th of the difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naps {
    waiting: Waiting,
    margin: Nanos,
}

impl Naps {
    pub(super) fn new(waiting: Waiting) -> Self {
        Self {
            waiting,
            margin: FIRST_MARGIN,
        }
    }

    /// How long to sleep when the next send is `until_due` away; `None` means spin.
    #[inline]
    pub(super) fn next(&self, until_due: Nanos) -> Option<Nanos> {
        if self.waiting == Waiting::Spin {
            return None;
        }
        let nap = until_due.saturating_sub(self.margin).min(LONGEST_NAP);
        (nap >= SHORTEST_NAP).then_some(nap)
    }

    /// Learns that a nap of `nap` took `slept`. A shorter one was ended by an
    /// answer and says nothing about wake-ups.
    pub(super) fn woke(&mut self, nap: Nanos, slept: Nanos) {
        if slept < nap {
            return;
        }
        let late = slept - nap;
        let needed = Nanos::new(late.get() + late.get() / 2);
        self.margin = if needed > self.margin {
            needed.min(LARGEST_MARGIN)
        } else {
            let step = (self.margin - needed).get() / 256;
            (self.margin - Nanos::new(step)).max(SMALLEST_MARGIN)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    #[test]
    fn spinning_never_sleeps() {
        assert_eq!(Naps::new(Waiting::Spin).next(Nanos::from_secs(1)), None);
    }

    #[test]
    fn a_nap_ends_a_margin_before_the_send() {
        let naps = Naps::new(Waiting::Hybrid);
        assert_eq!(naps.next(MS), Some(MS - FIRST_MARGIN));
        assert_eq!(naps.next(Nanos::from_secs(1)), Some(LONGEST_NAP));
        assert_eq!(naps.next(FIRST_MARGIN + SHORTEST_NAP - Nanos::new(1)), None);
        assert_eq!(naps.next(Nanos::ZERO), None);
    }

    #[test]
    fn the_margin_follows_the_wake_ups() {
        let mut naps = Naps::new(Waiting::Hybrid);
        naps.woke(MS, MS + Nanos::from_micros(200));
        assert_eq!(naps.margin, Nanos::from_micros(300));
        // an answer came early
        naps.woke(MS, Nanos::from_micros(3));
        assert_eq!(naps.margin, Nanos::from_micros(300));
        for _ in 0..10_000 {
            naps.woke(MS, MS + Nanos::from_micros(5));
        }
        assert_eq!(naps.margin, SMALLEST_MARGIN);
        naps.woke(MS, MS + Nanos::from_secs(1));
        assert_eq!(naps.margin, LARGEST_MARGIN);
    }
}
