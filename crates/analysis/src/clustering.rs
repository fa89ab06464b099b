//! Whether slow requests come in bursts or as single events.

use taillab_model::explanation::Clustering;
use taillab_model::{Monotonic, Nanos, quantile_ranks};

/// Requests above this quantile are slow.
pub(crate) const SLOW: f64 = 0.99;

/// Distances, in requests, at which correlation is looked for.
const LAGS: [u32; 12] = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000];

/// With fewer slow requests, nothing is reported.
const MIN_SLOW: u64 = 30;

/// The rank among `n` sojourns above which a request is slow; `None` if there are too few.
pub fn threshold_rank(n: u64) -> Option<u64> {
    Some(quantile_ranks(n, SLOW, 1.0)?.value)
}

/// Counts how close together slow requests are. Requests are added in order of T1. No request counts
/// as slow until [`Clusters::slow_is_above`] has set the threshold.
#[derive(Clone, Debug)]
pub struct Clusters {
    threshold: Nanos,
    n: u64,
    /// Which of the last requests were slow, one bit for each.
    recent: [u64; RECENT / 64],
    slow: u64,
    /// How often the request `lag` before a slow one was slow too, for each lag.
    both: [u64; LAGS.len()],
    in_runs: u64,
    /// The last slow request: its number, and whether it is known to be in a run.
    last: Option<(u64, bool)>,
    /// The latest T6 of the slow requests so far.
    until: Option<Monotonic>,
    episodes: u64,
}

/// The number of recent requests that are remembered: more than the largest lag.
const RECENT: usize = 8_192;

impl Default for Clusters {
    fn default() -> Self {
        Self {
            threshold: Nanos::MAX,
            n: 0,
            recent: [0; RECENT / 64],
            slow: 0,
            both: [0; LAGS.len()],
            in_runs: 0,
            last: None,
            until: None,
            episodes: 0,
        }
    }
}

impl Clusters {
    /// Requests above `threshold` count as slow from now on.
    pub const fn slow_is_above(&mut self, threshold: Nanos) {
        self.threshold = threshold;
    }

    /// Takes the next request; if it is slow, returns the number of its burst, from 1.
    #[inline]
    pub fn add(&mut self, t1: Monotonic, sojourn: Nanos) -> Option<u64> {
        let (word, bit) = place(self.n);
        self.recent[word] &= !bit;
        let is_slow = sojourn > self.threshold;
        if is_slow {
            self.recent[word] |= bit;
            self.add_slow(t1, t1 + sojourn);
        }
        self.n += 1;
        is_slow.then_some(self.episodes)
    }

    fn add_slow(&mut self, t1: Monotonic, t6: Monotonic) {
        self.slow += 1;
        for (both, lag) in self.both.iter_mut().zip(LAGS) {
            if let Some(before) = self.n.checked_sub(lag.into()) {
                let (word, bit) = place(before);
                *both += u64::from(self.recent[word] & bit != 0);
            }
        }
        let neighbour = self.last.filter(|(last, _)| last + 1 == self.n);
        if let Some((_, counted)) = neighbour {
            self.in_runs += 1 + u64::from(!counted);
        }
        // an event that delays several requests delays neighbours, and those that arrive during it
        let together = neighbour.is_some() || Some(t1) <= self.until;
        self.episodes += u64::from(!together);
        self.until = self.until.max(Some(t6));
        self.last = Some((self.n, neighbour.is_some()));
    }

    /// The result; `None` with fewer than 30 slow requests.
    pub fn finish(&self) -> Option<Clustering> {
        if self.slow < MIN_SLOW {
            return None;
        }
        let p = self.slow as f64 / self.n as f64;
        let lags = LAGS.into_iter().zip(self.both);
        let lags = lags.filter(|(lag, _)| u64::from(*lag) < self.n / 10);
        let correlation = |(lag, both): (u32, u64)| {
            let pairs = (self.n - u64::from(lag)) as f64;
            (lag, (both as f64 / pairs - p * p) / (p * (1.0 - p)))
        };
        Some(Clustering {
            q: SLOW,
            autocorrelation: lags.map(correlation).collect(),
            in_runs_share: self.in_runs as f64 / self.slow as f64,
            episodes: self.episodes,
            mean_episode_requests: self.slow as f64 / self.episodes as f64,
        })
    }
}

/// The word and the bit of a request.
const fn place(number: u64) -> (usize, u64) {
    let at = number as usize % RECENT;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request each microsecond; the sojourns in nanoseconds.
    fn of(sojourns: &[u64]) -> Option<Clustering> {
        let mut sorted: Vec<Nanos> = sojourns.iter().copied().map(Nanos::new).collect();
        sorted.sort_unstable();
        let rank = threshold_rank(sorted.len() as u64)?;
        let mut clusters = Clusters::default();
        clusters.slow_is_above(sorted[rank as usize]);
        for (i, &sojourn) in sojourns.iter().enumerate() {
            let t1 = Monotonic::from_nanos_since_boot(i as u64 * 1_000);
            clusters.add(t1, Nanos::new(sojourn));
        }
        clusters.finish()
    }

    #[test]
    fn bursts_and_single_events_are_told_apart() {
        let burst = |i: u64| if i % 5_000 < 45 { 9_000 + i % 45 } else { 500 };
        let bursts: Vec<u64> = (0..100_000).map(burst).collect();
        let found = of(&bursts).unwrap();
        assert!(found.in_runs_share > 0.99);
        assert!(found.autocorrelation[0].1 > 0.9, "{found:?}");
        assert_eq!((found.episodes, found.mean_episode_requests), (20, 45.0));
        let single = |i: u64| if i % 150 == 7 { 9_000 + i } else { 500 };
        let singles: Vec<u64> = (0..100_000).map(single).collect();
        let found = of(&singles).unwrap();
        assert_eq!(found.in_runs_share, 0.0);
        assert!(found.autocorrelation[0].1.abs() < 0.02);
        assert_eq!(found.mean_episode_requests, 1.0);
    }

    #[test]
    fn few_slow_requests_say_nothing() {
        assert_eq!(of(&[500; 1_000]), None);
        assert_eq!(of(&[]), None);
    }
}
