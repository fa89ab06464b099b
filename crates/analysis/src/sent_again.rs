//! How many responses were sent again, and how much later.

use taillab_model::Nanos;
use taillab_model::summary::ResentResponses;

use crate::matched::SentAgain;

/// The most that are remembered; a recording with more has lost nearly everything.
pub(crate) const MOST: usize = 1 << 20;

/// `None` if there are none.
pub(crate) fn resent_responses(all: &[SentAgain]) -> Option<ResentResponses> {
    let mut later: Vec<Nanos> = (all.iter())
        .map(|again| again.last.saturating_since(again.left))
        .collect();
    later.sort_unstable();
    Some(ResentResponses {
        responses: all.len() as u64,
        segments: all.iter().map(|again| u64::from(again.segments)).sum(),
        median_ns: *later.get(later.len() / 2)?,
        longest_ns: *later.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Monotonic;

    #[test]
    fn the_time_is_that_from_the_first_departure_to_the_last() {
        let again = |ms: u64, segments| SentAgain {
            left: Monotonic::from_nanos_since_boot(7_000_000),
            last: Monotonic::from_nanos_since_boot(7_000_000 + 1_000_000 * ms),
            segments,
        };
        assert_eq!(resent_responses(&[]), None);
        let all = [again(600, 2), again(200, 1), again(204, 1)];
        let found = resent_responses(&all).unwrap();
        assert_eq!((found.responses, found.segments), (3, 4));
        assert_eq!(found.median_ns, Nanos::from_millis(204));
        assert_eq!(found.longest_ns, Nanos::from_millis(600));
    }
}
