//! WeighedSums for things that come and go without end, such as the threads of a server that starts one for each connection:
//! those with the largest weights have their own, the rest are summed together.

use std::cmp::Reverse;
use std::hash::Hash;

use crate::id_map::IdMap;

/// So many have their own sums in the end.
const KEPT: usize = 1 << 12;

/// What was added for one key, or for several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WeighedSums {
    /// By which the largest are found.
    pub(crate) weight: u64,
    pub(crate) ns: u64,
}

impl WeighedSums {
    const fn add(&mut self, more: Self) {
        self.weight += more.weight;
        self.ns += more.ns;
    }
}

/// The sums of all keys with fewer than [`KEPT`] others, exactly. Of more, a key may lack what was added before it was
/// summed with the others for the first time: less than the total weight divided by `KEPT`.
#[derive(Clone, Debug)]
pub(crate) struct Heaviest<K> {
    sums: IdMap<WeighedSums, K>,
    others: Option<WeighedSums>,
}

impl<K> Default for Heaviest<K> {
    fn default() -> Self {
        Self {
            sums: IdMap::default(),
            others: None,
        }
    }
}

impl<K: Copy + Eq + Hash + Ord> Heaviest<K> {
    pub(crate) fn add(&mut self, key: K, sums: WeighedSums) {
        self.sums.entry(key).or_default().add(sums);
        if self.sums.len() > 2 * KEPT {
            self.keep_largest();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    fn keep_largest(&mut self) {
        let mut all: Vec<(K, WeighedSums)> = self.sums.drain().collect();
        all.sort_unstable_by_key(|(key, sums)| (Reverse(sums.weight), *key));
        for (_, sums) in all.drain(KEPT.min(all.len())..) {
            self.others.get_or_insert_default().add(sums);
        }
        self.sums.extend(all);
    }

    /// The largest, the largest first, and all others together; `None` where there are no others.
    pub(crate) fn finish(mut self) -> (Vec<(K, WeighedSums)>, Option<WeighedSums>) {
        if self.sums.len() > KEPT {
            self.keep_largest();
        }
        let mut largest: Vec<(K, WeighedSums)> = self.sums.into_iter().collect();
        largest.sort_unstable_by_key(|(key, sums)| (Reverse(sums.weight), *key));
        (largest, self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ns: u64) -> WeighedSums {
        WeighedSums { weight: 1, ns }
    }

    #[test]
    fn few_have_their_own_sums() {
        let mut sums = Heaviest::default();
        for key in [7_u32, 8, 7] {
            sums.add(key, one(10));
        }
        let twice = WeighedSums { weight: 2, ns: 20 };
        assert_eq!(sums.finish(), (vec![(7, twice), (8, one(10))], None));
    }

    #[test]
    fn of_too_many_the_largest_stay_and_nothing_is_lost() {
        const KEYS: u64 = 20 * KEPT as u64;
        let mut sums = Heaviest::default();
        for key in 0..KEYS {
            sums.add(key as u32, one(5));
            sums.add(u32::MAX, one(1));
            assert!(sums.len() <= 2 * KEPT);
        }
        let (largest, others) = sums.finish();
        assert_eq!(largest.len(), KEPT);
        let weight = KEYS;
        assert_eq!(largest[0], (u32::MAX, WeighedSums { weight, ns: KEYS }));
        let listed = largest.iter().fold(others.unwrap(), |mut all, (_, sums)| {
            all.add(*sums);
            all
        });
        assert_eq!((listed.weight, listed.ns), (2 * KEYS, 6 * KEYS));
    }
}
