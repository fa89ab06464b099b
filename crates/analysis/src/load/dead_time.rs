//! How far apart two requests are sent that are due together.

use taillab_model::summary::DeadTime;
use taillab_model::{ClientTimes, Nanos, quantile_ranks};

/// Two requests are due together if the second is due within this time of the first: much less than a send
/// takes. Where too few are, the longer time counts, which is still less than a send takes.
const TOGETHER: [Nanos; 2] = [Nanos::from_micros(1), Nanos::from_micros(3)];

/// With fewer pairs, the longer of [`TOGETHER`] is used.
const ENOUGH: usize = 100;

/// With fewer pairs, the median is not reported.
const FEWEST: usize = 20;

/// The median time between the sends of requests that were due together, with its interval; `None` where
/// too few were due together.
///
/// `requests` come in order of the intended time, those of all threads together: it does not matter which
/// thread sends which. So with several threads the later request may be sent first.
pub(super) fn dead_time(requests: impl IntoIterator<Item = ClientTimes>) -> Option<DeadTime> {
    let [short, long] = TOGETHER;
    let mut pairs = pairs_due_within(requests, long);
    let due_within_ns = match pairs.iter().filter(|pair| pair.due < short).count() {
        ENOUGH.. => short,
        _ => long,
    };
    pairs.retain(|pair| pair.due < due_within_ns);
    if pairs.len() < FEWEST {
        return None;
    }
    let mut sent: Vec<Nanos> = pairs.into_iter().map(|pair| pair.sent).collect();
    sent.sort_unstable();
    let ranks = quantile_ranks(sent.len() as u64, 0.5, 1.0)?;
    let at = |rank: u64| sent[rank as usize];
    Some(DeadTime {
        median_ns: at(ranks.value),
        lo_ns: at(ranks.lo),
        hi_ns: ranks.hi.map(at),
        count: sent.len() as u64,
        due_within_ns,
    })
}

/// Two requests of which one is due right after the other.
struct Pair {
    /// From one intended time to the other.
    due: Nanos,
    /// From one send to the other, whichever came first.
    sent: Nanos,
}

fn pairs_due_within(requests: impl IntoIterator<Item = ClientTimes>, longest: Nanos) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut before: Option<ClientTimes> = None;
    for times in requests {
        let pair = before.replace(times).map(|before| Pair {
            due: times.intended.saturating_since(before.intended),
            sent: times
                .sent
                .saturating_since(before.sent)
                .max(before.sent.saturating_since(times.sent)),
        });
        pairs.extend(pair.filter(|pair| pair.due < longest));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use taillab_model::Monotonic;

    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    /// `pairs` pairs, one each 100 µs, due `apart_ns` apart, the second sent `dead_ns(i)` after the first.
    fn requests(pairs: u64, apart_ns: u64, dead_ns: impl Fn(u64) -> u64) -> Vec<ClientTimes> {
        let one = |intended: u64, sent: u64| ClientTimes {
            intended: at(intended),
            sent: at(sent),
            received: None,
        };
        (0..pairs)
            .flat_map(|i| {
                let due = 1_000_000 + i * 100_000;
                [
                    one(due, due + 50),
                    one(due + apart_ns, due + 50 + dead_ns(i)),
                ]
            })
            .collect()
    }

    #[test]
    fn the_median_of_pairs_due_together_is_found() {
        let found = dead_time(requests(101, 300, |i| 9_950 + i)).unwrap();
        assert_eq!(found.median_ns, Nanos::new(10_000));
        assert_eq!((found.count, found.due_within_ns), (101, TOGETHER[0]));
        // by the score interval: 101 · (½ ± 1.96 · ½/√101) = 40.7 to 60.3 observations from below
        assert_eq!(found.lo_ns, Nanos::new(9_950 + 40));
        assert_eq!(found.hi_ns, Some(Nanos::new(9_950 + 60)));
    }

    #[test]
    fn where_few_are_due_together_the_time_is_longer() {
        let mut few = requests(30, 300, |_| 9_000);
        assert_eq!(dead_time(few.clone()).unwrap().due_within_ns, TOGETHER[1]);
        // these are due within 3 µs, and sent further apart
        let later = requests(31, 2_500, |_| 11_000).into_iter();
        few.extend(later.map(|times| ClientTimes {
            intended: times.intended + Nanos::from_secs(1),
            sent: times.sent + Nanos::from_secs(1),
            ..times
        }));
        let found = dead_time(few).unwrap();
        assert_eq!((found.count, found.median_ns), (61, Nanos::new(11_000)));
    }

    #[test]
    fn another_thread_may_send_the_later_one_first() {
        let mut swapped = requests(40, 500, |_| 2_000);
        for pair in swapped.chunks_exact_mut(2) {
            (pair[0].sent, pair[1].sent) = (pair[1].sent, pair[0].sent);
        }
        assert_eq!(dead_time(swapped).unwrap().median_ns, Nanos::new(2_000));
    }

    #[test]
    fn too_few_say_nothing() {
        assert_eq!(dead_time(requests(19, 300, |_| 9_000)), None);
        assert_eq!(dead_time(requests(500, 4_000, |_| 9_000)), None);
        assert_eq!(dead_time([]), None);
    }
}
