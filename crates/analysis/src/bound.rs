//! A bound on tables of things that come, are used for a while, and never say that they end: the connections
//! and threads of a recording.

use taillab_model::Monotonic;

/// A table with fewer entries is left alone.
const LEAST: usize = 1 << 14;

/// When a table of at most `MOST` entries is gone through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<const MOST: usize> {
    limit: usize,
}

impl<const MOST: usize> Default for Bound<MOST> {
    fn default() -> Self {
        Self { limit: LEAST }
    }
}

impl<const MOST: usize> Bound<MOST> {
    /// Whether a table with this many entries is to be gone through.
    #[inline]
    pub(crate) const fn is_exceeded(&self, entries: usize) -> bool {
        entries > self.limit
    }

    /// Whether a table has so many entries that it is worth going through it.
    pub(crate) const fn are_many(entries: usize) -> bool {
        entries > LEAST
    }

    /// Whether a table has as many entries as are held at most.
    pub(crate) const fn is_reached(entries: usize) -> bool {
        entries >= MOST
    }

    /// What was seen last at this time or before is to be forgotten: at `idle` or, where too much was seen
    /// after that, somewhat later. `seen` says when each entry was seen last.
    ///
    /// The table is gone through again when it has doubled, so that this takes a constant time per entry.
    pub(crate) fn forget_upto(
        &mut self,
        seen: impl Iterator<Item = Monotonic>,
        idle: Monotonic,
    ) -> Monotonic {
        let recent: Vec<Monotonic> = seen.filter(|&seen| seen > idle).collect();
        self.limit = recent.len().saturating_mul(2).clamp(LEAST, MOST);
        Self::upto(recent, idle)
    }

    /// The same for a table that is gone through anyway: of its entries, these were seen after `idle`.
    pub(crate) fn upto(mut recent: Vec<Monotonic>, idle: Monotonic) -> Monotonic {
        match recent.len().checked_sub(MOST / 2) {
            Some(over @ 1..) => *recent.select_nth_unstable(over - 1).1,
            _ => idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 2 * LEAST;

    fn at(ns: usize) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns as u64)
    }

    fn left(seen: &[usize], idle: usize) -> usize {
        let mut bound = Bound::<MOST>::default();
        let upto = bound.forget_upto(seen.iter().map(|&seen| at(seen)), at(idle));
        seen.iter().filter(|&&seen| at(seen) > upto).count()
    }

    #[test]
    fn what_is_idle_is_forgotten_and_what_is_used_is_not() {
        let seen: Vec<usize> = (0..10_000).collect();
        assert_eq!(left(&seen, 6_999), 3_000);
        assert_eq!(left(&seen, 20_000), 0);
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let seen: Vec<usize> = (1..=3 * MOST).rev().collect();
        assert_eq!(left(&seen, 0), MOST / 2);
        // all at the same moment
        assert_eq!(left(&vec![7; MOST], 0), 0);
    }

    #[test]
    fn a_table_is_gone_through_when_it_has_doubled() {
        let mut bound = Bound::<MOST>::default();
        assert!(!bound.is_exceeded(LEAST) && bound.is_exceeded(LEAST + 1));
        let seen = 1..=LEAST - 1;
        bound.forget_upto(seen.map(at), at(0));
        assert!(!bound.is_exceeded(2 * LEAST - 2) && bound.is_exceeded(2 * LEAST - 1));
    }
}
