//! What the excess consists of: by cause, by culprit, and in each band of the tail.
//!
//! Everything is summed over the accounts of the ledger as they come; nothing is kept of
//! a single request. Shares have intervals by the jackknife over time: the measurement is cut
//! into equal blocks, each left out once, and the spread of the share over these says how
//! far it would have been off in another measurement of the same length (Efron and Stein
//! 1981; blocks because neighbours in time are correlated). The interval is ± t times
//! the standard error, with as many degrees of freedom as there are blocks less one.

use std::collections::HashMap;

use taillab_model::explanation::{Band, BandPart, Cause, CauseShare, Culprit, Share};
use taillab_model::{Monotonic, Nanos};

use crate::ledger::{Entry, GroupKey, Label, Labels, Ledger};

/// Where the bands begin; the last one ends with the slowest request.
pub const BANDS: [f64; 4] = [0.0, 0.9, 0.99, 0.999];

/// Blocks of time.
const BLOCKS: usize = 32;

/// Student's t with 31 degrees of freedom, 97.5 %.
const STUDENT: f64 = 2.039_5;

/// With requests in fewer blocks than this there is no interval.
const MIN_BLOCKS: usize = 8;

/// Culprits that are listed at most.
const MAX_CULPRITS: usize = 60;

const CAUSES: usize = Cause::ALL.len();

/// Which band begins p99.
const ABOVE_P99: usize = 2;

/// Sums over the requests of one culprit (or cause).
#[derive(Clone, Debug, Default)]
struct Sums {
    excess_ns: Vec<[u64; 2]>,
    requests: u64,
}

impl Sums {
    fn add(&mut self, block: usize, ns: u64, above_p99: bool) {
        if self.excess_ns.is_empty() {
            self.excess_ns = vec![[0; 2]; BLOCKS];
        }
        self.excess_ns[block][0] += ns;
        self.excess_ns[block][1] += if above_p99 { ns } else { 0 };
        self.requests += 1;
    }

    fn total(&self, which: usize) -> u64 {
        self.excess_ns.iter().map(|block| block[which]).sum()
    }
}

/// Sums over the requests of one band.
#[derive(Clone, Debug)]
struct BandSums {
    requests: u64,
    sojourn_ns: u64,
    ideal_ns: u64,
    gain_ns: u64,
    excess_ns: [[u64; CAUSES]; BLOCKS],
}

/// The composition while accounts come in.
#[derive(Clone, Debug)]
pub struct Composition {
    thresholds: [Nanos; 4],
    from_ns: u64,
    block_ns: u64,
    groups: Vec<(Cause, GroupKey)>,
    group_of: Vec<u32>,
    numbers: HashMap<(Cause, GroupKey), u32>,
    culprits: Vec<Sums>,
    causes: Vec<Sums>,
    bands: Vec<BandSums>,
    /// Of one request: groups with their excess.
    of_request: Vec<(u32, u64)>,
}

impl Composition {
    /// Nothing yet, of a measurement that lasts from `from` to `to`; `thresholds` are the
    /// sojourns at which the [`BANDS`] begin.
    pub fn new(thresholds: [Nanos; 4], from: Monotonic, to: Monotonic) -> Self {
        let band = BandSums {
            requests: 0,
            sojourn_ns: 0,
            ideal_ns: 0,
            gain_ns: 0,
            excess_ns: [[0; CAUSES]; BLOCKS],
        };
        Self {
            thresholds,
            from_ns: from.nanos_since_boot(),
            block_ns: to.saturating_since(from).get() / BLOCKS as u64 + 1,
            groups: Vec::new(),
            group_of: Vec::new(),
            numbers: HashMap::new(),
            culprits: Vec::new(),
            causes: vec![Sums::default(); CAUSES],
            bands: vec![band; BANDS.len()],
            of_request: Vec::new(),
        }
    }

    /// Takes the account of a request that came in at `t1`.
    pub fn add(&mut self, t1: Monotonic, entry: &Entry<'_>, labels: &Labels) {
        let since = t1.nanos_since_boot().saturating_sub(self.from_ns);
        let block = ((since / self.block_ns) as usize).min(BLOCKS - 1);
        let sojourn = Nanos::new(entry.sojourn_ns);
        let band = self.thresholds.iter().rposition(|&from| sojourn >= from);
        let band = band.unwrap_or(0);
        let above_p99 = band >= ABOVE_P99;
        let sums = &mut self.bands[band];
        sums.requests += 1;
        sums.sojourn_ns += entry.sojourn_ns;
        sums.ideal_ns += entry.ideal_ns;
        sums.gain_ns += entry.gain_ns;
        let mut by_cause = [0_u64; CAUSES];
        self.of_request.clear();
        for &(label, ns) in entry.excess {
            let group = self.group(label, labels);
            let cause = self.groups[group as usize].0 as usize;
            by_cause[cause] += ns;
            match self.of_request.iter_mut().find(|part| part.0 == group) {
                Some(part) => part.1 += ns,
                None => self.of_request.push((group, ns)),
            }
        }
        for &(group, ns) in &self.of_request {
            self.culprits[group as usize].add(block, ns, above_p99);
        }
        for (cause, &ns) in by_cause.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            self.causes[cause].add(block, ns, above_p99);
            self.bands[band].excess_ns[block][cause] += ns;
        }
    }

    fn group(&mut self, label: Label, labels: &Labels) -> u32 {
        while self.group_of.len() <= label as usize {
            let key = labels.group(self.group_of.len() as Label);
            let next = self.groups.len() as u32;
            let number = *self.numbers.entry(key.clone()).or_insert(next);
            if number == next {
                self.groups.push(key);
                self.culprits.push(Sums::default());
            }
            self.group_of.push(number);
        }
        self.group_of[label as usize]
    }

    /// The causes as wholes, the largest first, then their culprits, the largest first.
    pub fn shares(&self, ledger: &Ledger) -> Vec<CauseShare> {
        let mut wholes: Vec<CauseShare> = Vec::new();
        for cause in Cause::ALL {
            let sums = &self.causes[cause as usize];
            if sums.requests > 0 {
                let of = |label: Label| ledger.labels.cause(label) == cause;
                wholes.push(self.share(cause, None, sums, ledger, of));
            }
        }
        let mut culprits: Vec<CauseShare> = Vec::new();
        for (group, sums) in self.culprits.iter().enumerate() {
            let cause = self.groups[group].0;
            if sums.requests == 0 {
                continue;
            }
            let of = |label: Label| self.group_of.get(label as usize) == Some(&(group as u32));
            if let Some(culprit) = self.culprit(group, ledger) {
                culprits.push(self.share(cause, Some(culprit), sums, ledger, of));
            }
        }
        let largest_first = |shares: &mut Vec<CauseShare>| {
            shares.sort_by_key(|share| std::cmp::Reverse(share.excess_ns));
        };
        largest_first(&mut wholes);
        largest_first(&mut culprits);
        culprits.truncate(MAX_CULPRITS);
        wholes.extend(culprits);
        wholes
    }

    /// The name of a group; of several threads without one thread's id.
    fn culprit(&self, group: usize, ledger: &Ledger) -> Option<Culprit> {
        let is = |label: &Label| self.group_of[*label as usize] == group as u32;
        let mut labels = (0..self.group_of.len() as Label).filter(is);
        let first = labels.next()?;
        match labels.next() {
            Some(_) => ledger.labels.culprit_of_group(first),
            None => ledger.labels.culprit(first),
        }
    }

    fn share(
        &self,
        cause: Cause,
        culprit: Option<Culprit>,
        sums: &Sums,
        ledger: &Ledger,
        of: impl Fn(Label) -> bool,
    ) -> CauseShare {
        let labels = (0..ledger.labels.len() as Label).filter(|&label| of(label));
        let (mut episodes, mut held_up) = (0, 0);
        for label in labels {
            episodes += ledger.episodes[label as usize];
            held_up += ledger.held_up_ns[label as usize];
        }
        let excess_ns = sums.total(0);
        if episodes == 0 {
            // it has no beginning and end of its own: each request is one
            (episodes, held_up) = (sums.requests, excess_ns);
        }
        CauseShare {
            cause,
            culprit,
            share: self.ratio(&sums.excess_ns, 0),
            excess_share_above_p99: self.ratio(&sums.excess_ns, 1),
            excess_ns: Nanos::new(excess_ns),
            requests: sums.requests,
            episodes,
            mean_episode_ns: held_up as f64 / episodes.max(1) as f64,
            requests_per_episode: sums.requests as f64 / episodes.max(1) as f64,
        }
    }

    /// Of all excess, with its interval.
    fn ratio(&self, of: &[[u64; 2]], which: usize) -> Share {
        let mut pairs = [(0.0, 0.0); BLOCKS];
        for (block, pair) in pairs.iter_mut().enumerate() {
            let all: u64 = (self.causes.iter())
                .filter_map(|sums| Some(sums.excess_ns.get(block)?[which]))
                .sum();
            let part = of.get(block).map_or(0, |block| block[which]);
            *pair = (part as f64, all as f64);
        }
        share_of(&pairs)
    }

    /// The bands that have requests.
    pub fn bands(&self) -> Vec<Band> {
        let with = self.bands.iter().enumerate();
        with.filter(|(_, sums)| sums.requests > 0)
            .map(|(place, sums)| band(place, sums))
            .collect()
    }
}

fn band(place: usize, sums: &BandSums) -> Band {
    let n = sums.requests as f64;
    let mut parts = Vec::new();
    for cause in Cause::ALL {
        let total: u64 = sums.excess_ns.iter().map(|b| b[cause as usize]).sum();
        let mut mean_excess_ns = total as f64 / n;
        if cause == Cause::Service {
            // what requests were faster than their ideal
            mean_excess_ns -= sums.gain_ns as f64 / n;
        }
        if mean_excess_ns == 0.0 {
            continue;
        }
        let mut pairs = [(0.0, 0.0); BLOCKS];
        for (pair, block) in pairs.iter_mut().zip(&sums.excess_ns) {
            let all: u64 = block.iter().sum();
            *pair = (block[cause as usize] as f64, all as f64);
        }
        parts.push(BandPart {
            cause,
            mean_excess_ns,
            share: share_of(&pairs),
        });
    }
    parts.sort_by(|a, b| b.mean_excess_ns.total_cmp(&a.mean_excess_ns));
    Band {
        from_q: BANDS[place],
        to_q: BANDS.get(place + 1).copied().unwrap_or(1.0),
        requests: sums.requests,
        mean_sojourn_ns: sums.sojourn_ns as f64 / n,
        mean_ideal_ns: sums.ideal_ns as f64 / n,
        parts,
    }
}

/// Σ part ÷ Σ all over the blocks, with its jackknife interval.
fn share_of(pairs: &[(f64, f64); BLOCKS]) -> Share {
    let (part, all) = pairs
        .iter()
        .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    if all <= 0.0 {
        return Share::default();
    }
    let value = part / all;
    let full = pairs.iter().filter(|pair| pair.1 > 0.0).count();
    if full < MIN_BLOCKS {
        return Share {
            value,
            lo: None,
            hi: None,
        };
    }
    let without: Vec<f64> = pairs
        .iter()
        .filter(|pair| pair.1 > 0.0 && all > pair.1)
        .map(|pair| (part - pair.0) / (all - pair.1))
        .collect();
    let n = without.len() as f64;
    let mean = without.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = without.iter().map(|x| (x - mean) * (x - mean)).sum();
    let half = STUDENT * ((n - 1.0).max(0.0) / n.max(1.0) * squares).sqrt();
    Share {
        value,
        lo: Some((value - half).max(0.0)),
        hi: Some((value + half).min(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_the_same_everywhere_is_certain() {
        let share = share_of(&[(1.0, 4.0); BLOCKS]);
        assert_eq!(share.value, 0.25);
        let (lo, hi) = (share.lo.unwrap(), share.hi.unwrap());
        assert!((lo - 0.25).abs() < 1e-9 && (hi - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_share_that_comes_in_one_block_is_not() {
        let mut pairs = [(0.0, 1.0); BLOCKS];
        pairs[7] = (40.0, 41.0);
        let share = share_of(&pairs);
        assert!(share.hi.unwrap() - share.lo.unwrap() > 0.5);
        assert_eq!(share_of(&[(0.0, 0.0); BLOCKS]), Share::default());
    }

    #[test]
    fn few_blocks_support_no_interval() {
        let mut pairs = [(0.0, 0.0); BLOCKS];
        pairs[3] = (1.0, 2.0);
        let share = share_of(&pairs);
        assert_eq!((share.value, share.lo, share.hi), (0.5, None, None));
    }
}
