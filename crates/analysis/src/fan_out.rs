//! The latency of a user who waits for the slowest of several servers like this one.

use taillab_model::explanation::FanOut;
use taillab_model::{Nanos, Quantile};
use taillab_queueing::fanout;

use crate::statistics::{Observations, Values};

/// Servers asked at once.
const SERVERS: [u32; 6] = [1, 10, 50, 100, 500, 1_000];

/// The median and p99 over users, for each number of servers; the servers are independent and have
/// these sojourns.
pub fn fan_out(sojourns: &Observations) -> Vec<FanOut> {
    let share = sojourns.answered_share();
    match sojourns.values() {
        Values::Sorted(sorted) => all(sojourns.factors(), share, |servers, q, inflation| {
            let at = |rank: u64| sorted[rank as usize];
            fanout::largest(sorted.len() as u64, servers, q, inflation, at)
        }),
        Values::Counted(histogram) => {
            let ranked = histogram.ranked();
            let at = |rank| ranked.at(rank).map_or(Nanos::ZERO, |cell| cell.middle);
            all(sojourns.factors(), share, |servers, q, inflation| {
                fanout::largest(histogram.count(), servers, q, inflation, at)
            })
        }
    }
}

fn all(
    factors: &[(f64, f64)],
    answered_share: f64,
    largest: impl Fn(u32, f64, f64) -> Option<Quantile>,
) -> Vec<FanOut> {
    let at = |servers: u32, q: f64| {
        // with F of the answered requests, a user has all answers by x with probability (share × F(x))^servers
        let q = q / answered_share.powi(servers.cast_signed());
        if q >= 1.0 {
            return None;
        }
        // the quantile of one server that corresponds to it
        let one = (q.ln() / f64::from(servers)).exp();
        let known = factors.iter().rfind(|(level, _)| *level <= one);
        let inflation = known.map_or(1.0, |(_, factor)| *factor);
        largest(servers, q, inflation)?.value
    };
    let of = |&servers: &u32| FanOut {
        servers,
        p50_ns: at(servers, 0.5),
        p99_ns: at(servers, 0.99),
    };
    SERVERS.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Series;

    fn of(lengths: impl Iterator<Item = u64>) -> Vec<FanOut> {
        let mut series = Series::new(usize::MAX);
        series.extend(&lengths.map(Nanos::new).collect::<Vec<_>>());
        let mut observations = series.finish();
        observations.assume_independent();
        fan_out(&observations)
    }

    #[test]
    fn a_hundred_servers_make_the_median_a_p993() {
        let found = of(1..=1_000_000);
        assert_eq!(found[0].p50_ns, Some(Nanos::new(500_000)));
        let hundred = found.iter().find(|f| f.servers == 100).unwrap();
        let p50 = hundred.p50_ns.unwrap().get();
        assert!((993_000..993_200).contains(&p50), "{p50}");
        // one answer in a thousand is missing: with a hundred servers a tenth of the users wait
        let mut series = Series::new(usize::MAX);
        series.extend(&(1..=999_000).map(Nanos::new).collect::<Vec<_>>());
        let mut observations = series.finish().with_unanswered(1_000);
        observations.assume_independent();
        let lacking = fan_out(&observations);
        let hundred = lacking.iter().find(|f| f.servers == 100).unwrap();
        assert_eq!(hundred.p99_ns, None);
        let p50 = hundred.p50_ns.unwrap().get();
        assert!((993_000..993_300).contains(&p50), "{p50}");
        assert!(of(0..0).iter().all(|f| f.p50_ns.is_none()));
    }
}
