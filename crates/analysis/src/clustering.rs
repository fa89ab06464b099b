//! Whether slow requests come together: bursts, or single events?

use taillab_model::explanation::Clustering;
use taillab_model::{Nanos, quantile_ranks};

use crate::matched::Matched;

/// Slow is what is above this quantile.
const QUANTILE: f64 = 0.99;

/// Distances, in requests, at which correlation is looked for.
const LAGS: [u32; 12] = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000];

/// Fewer slow requests say nothing.
const MIN_SLOW: usize = 30;

/// How the slow ones among the requests at `places` (in order of T1) lie to each other;
/// `sorted` are the sojourns of these requests. `None` with fewer than 30 slow ones.
pub fn clustering(matched: &Matched, places: &[u32], sorted: &[Nanos]) -> Option<Clustering> {
    let n = sorted.len();
    let rank = quantile_ranks(n as u64, QUANTILE, 1.0)?.value as usize;
    let threshold = sorted[rank];
    let requests = &matched.requests;
    // places in the series
    let slow: Vec<u32> = (0..places.len() as u32)
        .filter(|&i| requests.sojourn(places[i as usize] as usize) > threshold)
        .collect();
    if slow.len() < MIN_SLOW {
        return None;
    }
    let p = slow.len() as f64 / n as f64;
    let lags = LAGS.iter().filter(|&&lag| (lag as usize) < n / 10);
    let autocorrelation = lags
        .map(|&lag| (lag, correlation(&slow, lag, p, n)))
        .collect();
    let beside = |i: usize| {
        let near = |a: u32, b: u32| b - a == 1;
        i > 0 && near(slow[i - 1], slow[i]) || i + 1 < slow.len() && near(slow[i], slow[i + 1])
    };
    let in_runs = (0..slow.len()).filter(|&i| beside(i)).count();
    let t1 = |i: u32| requests.t1(places[i as usize] as usize);
    let t6 = |i: u32| requests.t6(places[i as usize] as usize);
    let mut episodes = 1;
    let mut until = t6(slow[0]);
    for pair in slow.windows(2) {
        // what delays several at once delays neighbours, and those that came in meanwhile
        let together = pair[1] - pair[0] == 1 || t1(pair[1]) <= until;
        episodes += usize::from(!together);
        until = until.max(t6(pair[1]));
    }
    Some(Clustering {
        q: QUANTILE,
        autocorrelation,
        in_runs_share: in_runs as f64 / slow.len() as f64,
        episodes: episodes as u64,
        mean_episode_requests: slow.len() as f64 / episodes as f64,
    })
}

/// Correlation of the indicator "slow" with itself `lag` requests later.
fn correlation(slow: &[u32], lag: u32, p: f64, n: usize) -> f64 {
    let mut both = 0_usize;
    let mut later = 0;
    for &i in slow {
        while later < slow.len() && slow[later] < i + lag {
            later += 1;
        }
        both += usize::from(later < slow.len() && slow[later] == i + lag);
    }
    let pairs = (n - lag as usize) as f64;
    (both as f64 / pairs - p * p) / (p * (1.0 - p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::{Monotonic, Request, Stamps};

    /// One request each microsecond; the sojourns in nanoseconds.
    fn of(sojourns: &[u64]) -> Option<Clustering> {
        let request = |(i, &sojourn): (usize, &u64)| {
            let t1 = Monotonic::from_nanos_since_boot(i as u64 * 1_000);
            Request {
                server: Stamps {
                    t1,
                    middle: [None; 4],
                    t6: t1 + Nanos::new(sojourn),
                },
                client: None,
                operation: None,
            }
        };
        let matched = Matched {
            requests: sojourns.iter().enumerate().map(request).collect(),
            ..Matched::default()
        };
        let places: Vec<u32> = (0..sojourns.len() as u32).collect();
        let mut sorted: Vec<Nanos> = sojourns.iter().copied().map(Nanos::new).collect();
        sorted.sort_unstable();
        clustering(&matched, &places, &sorted)
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
