//! Counts by bin; only the bins from the first to the last one in use take memory.

use crate::coarsening::Coarsen;

/// Counts of neighbouring bins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bins {
    first: usize,
    counts: Vec<u32>,
}

impl Bins {
    /// Counts an observation in this bin.
    #[inline]
    pub(crate) fn count(&mut self, bin: usize) {
        match bin
            .checked_sub(self.first)
            .and_then(|at| self.counts.get_mut(at))
        {
            Some(count) => *count += 1,
            None => self.widen(bin, bin + 1)[0] += 1,
        }
    }

    /// The counts from `from` up to `to`, which is larger.
    #[cold]
    fn widen(&mut self, from: usize, to: usize) -> &mut [u32] {
        if self.counts.is_empty() {
            self.first = from;
        } else if from < self.first {
            let missing = self.first - from;
            self.counts.splice(..0, std::iter::repeat_n(0, missing));
            self.first = from;
        }
        let length = (to - self.first).max(self.counts.len());
        self.counts.resize(length, 0);
        &mut self.counts[from - self.first..to - self.first]
    }

    /// The sum of the counts up to this bin.
    pub(crate) fn up_to(&self, bin: usize) -> u64 {
        let bins = (bin + 1).saturating_sub(self.first).min(self.counts.len());
        self.counts[..bins].iter().map(|n| u64::from(*n)).sum()
    }

    /// The number of the first bin in use.
    pub(crate) const fn first(&self) -> usize {
        self.first
    }

    /// The counts from the first bin on.
    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// The number of the bin after the last one in use.
    pub(crate) const fn end(&self) -> usize {
        self.first + self.counts.len()
    }
}

impl Coarsen for Bins {
    fn add(&mut self, next: Self) {
        if next.counts.is_empty() {
            return;
        }
        let own = self.widen(next.first, next.end());
        for (count, more) in own.iter_mut().zip(next.counts) {
            *count += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_cell_are_those_of_its_observations() {
        let mut bins = Bins::default();
        for bin in [7, 9, 7, 3, 12] {
            bins.count(bin);
        }
        let mut more = Bins::default();
        more.count(1);
        more.add(Bins::default());
        bins.add(more);
        let counts: Vec<u64> = (0..14).map(|bin| bins.up_to(bin)).collect();
        assert_eq!(counts, [0, 1, 1, 2, 2, 2, 2, 4, 4, 5, 5, 5, 6, 6]);
    }
}
