//! The search for the highest rate that meets an objective. It is pure: the caller measures.
//!
//! Doubling from a low rate brackets the answer, bisection narrows it. Each rate is measured until the
//! interval of its quantile lies on one side of the limit. A rate that is still undecided after the
//! longest measurement counts as not held, but not as failed.

use taillab_model::Nanos;
use taillab_queueing::random::lanes::{GOLDEN, mix};

/// What one measurement says about the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The whole interval of the quantile is within the limit.
    Held,
    /// The whole interval is beyond it, or the server did not keep up.
    Failed,
    /// The limit lies within the interval: the sample is too small to say.
    Undecided,
}

/// One measurement to make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateTrial {
    /// Requests per second.
    pub rate_per_s: f64,
    /// How long.
    pub length: Nanos,
    /// A seed of its own.
    pub seed: u64,
    /// How many shorter measurements of this rate were made before and decided nothing.
    pub earlier: u32,
}

/// Where and how to search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// No rate below this is tried.
    pub lowest_per_s: f64,
    /// Where the doubling begins, not below the lowest.
    pub start_per_s: f64,
    /// No rate above this is tried.
    pub highest_per_s: f64,
    /// The search ends when the lowest rate that did not hold is at most this share above the highest
    /// that did.
    pub within: f64,
    /// Requests that a first measurement needs for its quantile.
    pub requests: f64,
    /// No measurement is shorter.
    pub shortest: Nanos,
    /// No measurement is longer.
    pub longest: Nanos,
    /// The seeds of the measurements are derived from it.
    pub seed: u64,
}

impl Search {
    /// Searches; `measure` makes one measurement and says what it means, or `None` to end the search
    /// early. Returns whether the search came to its end.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn run<E>(
        &self,
        mut measure: impl FnMut(&RateTrial) -> Result<Option<Decision>, E>,
    ) -> Result<bool, E> {
        let (mut held, mut open_above, mut trials) = (None, f64::INFINITY, 0);
        while let Some(rate_per_s) = self.next_rate(held, open_above) {
            let mut trial = RateTrial {
                rate_per_s,
                length: self.first_length(rate_per_s),
                seed: 0,
                earlier: 0,
            };
            loop {
                trial.seed = mixed(self.seed, trials);
                trials += 1;
                match measure(&trial)? {
                    None => return Ok(false),
                    Some(Decision::Held) => held = Some(rate_per_s),
                    Some(Decision::Undecided) if trial.length < self.longest => {
                        trial.length = (trial.length * 2).min(self.longest);
                        trial.earlier += 1;
                        continue;
                    }
                    Some(Decision::Failed | Decision::Undecided) => open_above = rate_per_s,
                }
                break;
            }
        }
        Ok(true)
    }

    /// The next rate to decide, given the highest that held and the lowest that did not: first doubled
    /// or halved until both are known, then half-way between them.
    fn next_rate(&self, held: Option<f64>, open_above: f64) -> Option<f64> {
        let (lowest, highest) = (self.lowest_per_s, self.highest_per_s);
        match held {
            None if open_above.is_infinite() => Some(self.start_per_s.clamp(lowest, highest)),
            None => (open_above > lowest).then(|| (0.5 * open_above).max(lowest)),
            Some(held) if open_above.is_infinite() => {
                (held < highest).then(|| (2.0 * held).min(highest))
            }
            Some(held) => {
                let is_wide = open_above > held * (1.0 + self.within);
                is_wide.then_some(0.5 * (held + open_above))
            }
        }
    }

    /// How long a rate is measured first.
    fn first_length(&self, rate_per_s: f64) -> Nanos {
        let wanted = Nanos::try_from_secs_f64(self.requests / rate_per_s).unwrap_or(Nanos::MAX);
        wanted.clamp(self.shortest, self.longest)
    }
}

/// The n-th of many unrelated seeds; the first one is the seed itself.
pub fn mixed(seed: u64, n: u64) -> u64 {
    match n {
        0 => seed,
        _ => mix(seed.wrapping_add(n.wrapping_mul(GOLDEN))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::convert::Infallible;

    use super::*;

    const SEARCH: Search = Search {
        lowest_per_s: 100.0,
        start_per_s: 1_000.0,
        highest_per_s: 50_000.0,
        within: 0.05,
        requests: 20_000.0,
        shortest: Nanos::from_secs(1),
        longest: Nanos::from_secs(30),
        seed: 7,
    };

    /// What a search came to.
    #[derive(Debug)]
    struct Answer {
        held_per_s: Option<f64>,
        failed_per_s: Option<f64>,
        /// Some rate could not be decided.
        undecided: bool,
    }

    /// A server that holds below `limit`; near it a measurement must be long to decide.
    fn server(limit: f64, blur: f64, trials: &mut Vec<RateTrial>) -> Answer {
        let mut answer = Answer {
            held_per_s: None,
            failed_per_s: None,
            undecided: false,
        };
        let whole = SEARCH.run(|trial| {
            trials.push(*trial);
            let rate = trial.rate_per_s;
            let off = (rate / limit - 1.0).abs();
            let visible = blur / trial.length.as_secs_f64().sqrt();
            let decision = match rate <= limit {
                _ if off < visible => Decision::Undecided,
                true => Decision::Held,
                false => Decision::Failed,
            };
            match decision {
                Decision::Held => {
                    let highest = answer.held_per_s.map_or(rate, |known| known.max(rate));
                    answer.held_per_s = Some(highest);
                }
                Decision::Failed => {
                    let lowest = answer.failed_per_s.map_or(rate, |known| known.min(rate));
                    answer.failed_per_s = Some(lowest);
                }
                Decision::Undecided => answer.undecided |= trial.length == SEARCH.longest,
            }
            Ok::<_, Infallible>(Some(decision))
        });
        assert!(whole.unwrap());
        answer
    }

    #[test]
    fn the_answer_is_bracketed_to_within_the_share() {
        for limit in [150.0, 999.0, 1_001.0, 7_777.0, 31_000.0, 49_000.0] {
            let mut trials = Vec::new();
            let answer = server(limit, 0.0, &mut trials);
            let (held, failed) = (answer.held_per_s.unwrap(), answer.failed_per_s.unwrap());
            assert!(held <= limit && limit < failed, "{limit}: {answer:?}");
            assert!(failed <= held * 1.05 + 1e-9, "{limit}: {answer:?}");
            assert!(trials.len() <= 14, "{limit}: {} measurements", trials.len());
            assert!(!answer.undecided);
        }
    }

    #[test]
    fn a_rate_that_cannot_be_decided_is_measured_longer_and_never_called_failed() {
        let mut trials = Vec::new();
        let answer = server(10_000.0, 0.6, &mut trials);
        let (held, failed) = (answer.held_per_s.unwrap(), answer.failed_per_s.unwrap());
        assert!(held <= 10_000.0 && 10_000.0 < failed, "{answer:?}");
        assert!(answer.undecided);
        for pair in trials.windows(2) {
            let same = pair[0].rate_per_s == pair[1].rate_per_s;
            assert_eq!(same, pair[1].earlier > 0);
            assert!(!same || pair[1].length > pair[0].length);
        }
        assert!(trials.iter().all(|t| t.length <= SEARCH.longest));
    }

    #[test]
    fn the_ends_of_the_range_are_tried_and_not_passed() {
        let mut trials = Vec::new();
        let all = server(1e9, 0.0, &mut trials);
        assert_eq!((all.held_per_s, all.failed_per_s), (Some(50_000.0), None));
        trials.clear();
        let none = server(1.0, 0.0, &mut trials);
        assert_eq!((none.held_per_s, none.failed_per_s), (None, Some(100.0)));
        let inside = |t: &RateTrial| (100.0..=50_000.0).contains(&t.rate_per_s);
        assert!(trials.iter().all(inside));
    }

    #[test]
    fn measurements_support_the_quantile_and_have_seeds_of_their_own() {
        let mut trials = Vec::new();
        server(7_777.0, 0.0, &mut trials);
        for trial in &trials {
            let enough = trial.rate_per_s * trial.length.as_secs_f64() >= 19_999.0;
            assert!(enough || trial.length == SEARCH.longest, "{trial:?}");
        }
        let seeds: HashSet<u64> = trials.iter().map(|t| t.seed).collect();
        assert_eq!(seeds.len(), trials.len());
    }

    #[test]
    fn the_caller_can_end_it_and_an_error_does() {
        let (mut left, mut highest) = (3, 0.0);
        let whole = SEARCH.run(|trial| {
            left -= 1;
            let decision = (left > 0).then_some(Decision::Held);
            if decision.is_some() {
                highest = trial.rate_per_s;
            }
            Ok::<_, Infallible>(decision)
        });
        assert!(!whole.unwrap() && left == 0);
        assert_eq!(highest, 2_000.0);
        assert_eq!(SEARCH.run(|_| Err("gone")), Err("gone"));
    }
}
