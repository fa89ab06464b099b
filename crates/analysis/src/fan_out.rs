//! What a user sees who waits for the slowest of several servers like this one.

use taillab_model::explanation::FanOut;
use taillab_model::{Nanos, Quantile};
use taillab_queueing::fanout::{FanoutError, largest_of_histogram, largest_of_sorted};

/// Servers asked at once.
const SERVERS: [u32; 6] = [1, 10, 50, 100, 500, 1_000];

/// The median and p99 over users for each number of servers, of independent servers with
/// the measured sojourns; `factors` are those of
/// [`crate::statistics::inflation_at_quantiles`].
pub fn fan_out(sorted: &[Nanos], factors: &[(f64, f64)]) -> Vec<FanOut> {
    let of = |servers, q, inflation| largest_of_sorted(sorted, servers, q, inflation);
    all(factors, of)
}

/// The same of sojourns that are known with how often each occurred, in rising order.
pub fn fan_out_of_counts(counts: &[(Nanos, u64)], factors: &[(f64, f64)]) -> Vec<FanOut> {
    let of = |servers, q, inflation| largest_of_histogram(counts, servers, q, inflation);
    all(factors, of)
}

fn all(
    factors: &[(f64, f64)],
    largest: impl Fn(u32, f64, f64) -> Result<Quantile, FanoutError>,
) -> Vec<FanOut> {
    let at = |servers: u32, q: f64| {
        // the quantile of one server that this takes
        let one = (q.ln() / f64::from(servers)).exp();
        let known = factors.iter().rfind(|(level, _)| *level <= one);
        let inflation = known.map_or(1.0, |(_, factor)| *factor);
        largest(servers, q, inflation).ok()?.value
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

    #[test]
    fn a_hundred_servers_make_the_median_a_p993() {
        let sorted: Vec<Nanos> = (1..=1_000_000).map(Nanos::new).collect();
        let found = fan_out(&sorted, &[]);
        assert_eq!(found[0].p50_ns, Some(Nanos::new(500_000)));
        let hundred = found.iter().find(|f| f.servers == 100).unwrap();
        let p50 = hundred.p50_ns.unwrap().get();
        assert!((993_000..993_200).contains(&p50), "{p50}");
        assert!(fan_out(&[], &[]).iter().all(|f| f.p50_ns.is_none()));
    }
}
