//! The search for the highest rate that meets an objective. It is pure: the caller measures.
//!
//! Doubling from a low rate brackets the answer, bisection narrows it. Each rate is measured until the
//! interval of its quantile lies on one side of the limit. A rate that is still undecided after the
//! longest measurement counts as not held, but not as failed.
//!
//! Short measurements are wrong now and then, and the search goes on from each. So a rate that fails is measured
//! once more, longer, before it bounds the answer: a stall of a second does not. And the answer is measured as long
//! as a measurement may last: if it does not hold then, the search goes on below it.

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
    /// How many shorter measurements of this rate were made before; this one replaces them.
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
        let mut seeds = 0;
        let mut numbered = |mut trial: RateTrial| {
            trial.seed = mixed(self.seed, seeds);
            seeds += 1;
            measure(&trial)
        };
        // the rates that held, ascending, and how long the last one was measured
        let (mut held, mut longest, mut open_above) = (Vec::new(), Nanos::ZERO, f64::INFINITY);
        loop {
            let last = held.last().copied();
            let trial = match (self.next_rate(last, open_above), last) {
                (Some(rate_per_s), _) => self.first(rate_per_s),
                (None, Some(rate_per_s)) if longest < self.longest => RateTrial {
                    length: self.longest,
                    earlier: 1,
                    ..self.first(rate_per_s)
                },
                (None, _) => return Ok(true),
            };
            match self.decide(trial, &mut numbered)? {
                None => return Ok(false),
                Some((true, length)) => {
                    longest = length;
                    if last != Some(trial.rate_per_s) {
                        held.push(trial.rate_per_s);
                    }
                }
                Some((false, _)) => {
                    open_above = trial.rate_per_s;
                    held.retain(|rate| *rate < open_above);
                    // what is left was found by a short measurement, as far as is known
                    longest = Nanos::ZERO;
                }
            }
        }
    }

    /// Whether a rate holds, and how long the measurement was that says so; `None` to end the search. What fails is
    /// measured once more, and what is undecided, until it is decided or the measurement is the longest.
    fn decide<E>(
        &self,
        mut trial: RateTrial,
        mut measure: impl FnMut(RateTrial) -> Result<Option<Decision>, E>,
    ) -> Result<Option<(bool, Nanos)>, E> {
        let mut has_failed = false;
        loop {
            let Some(decision) = measure(trial)? else {
                return Ok(None);
            };
            let is_last = trial.length >= self.longest;
            match decision {
                Decision::Held => return Ok(Some((true, trial.length))),
                Decision::Failed if has_failed || is_last => {
                    return Ok(Some((false, trial.length)));
                }
                Decision::Undecided if is_last => return Ok(Some((false, trial.length))),
                Decision::Failed => has_failed = true,
                Decision::Undecided => {}
            }
            trial.length = (trial.length * 2).min(self.longest);
            trial.earlier += 1;
        }
    }

    /// The first measurement of a rate.
    fn first(&self, rate_per_s: f64) -> RateTrial {
        RateTrial {
            rate_per_s,
            length: self.first_length(rate_per_s),
            seed: 0,
            earlier: 0,
        }
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
    use std::collections::{HashMap, HashSet};
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
            // what fails is measured twice, and the answer once more
            let rates: HashSet<u64> = trials.iter().map(|t| t.rate_per_s as u64).collect();
            assert!(rates.len() <= 14, "{limit}: {} rates", rates.len());
            assert!(trials.len() <= 24, "{limit}: {} measurements", trials.len());
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
        for (place, trial) in trials.iter().enumerate() {
            let mut before = trials[..place].iter().rev();
            let before = before.find(|other| other.rate_per_s == trial.rate_per_s);
            assert_eq!(before.is_some(), trial.earlier > 0);
            assert!(before.is_none_or(|before| trial.length > before.length));
        }
        assert!(trials.iter().all(|t| t.length <= SEARCH.longest));
    }

    /// What the search comes to where single measurements are wrong: `decision` of a trial below the limit or not, and
    /// how many trials there were at the same rate before.
    fn unlucky(limit: f64, decision: impl Fn(bool, &RateTrial) -> Decision) -> (f64, f64) {
        let mut last = HashMap::new();
        let whole = SEARCH.run(|trial| {
            let decision = decision(trial.rate_per_s <= limit, trial);
            last.insert(trial.rate_per_s as u64, decision);
            Ok::<_, Infallible>(Some(decision))
        });
        assert!(whole.unwrap());
        let with = |wanted| {
            last.iter()
                .filter(move |(_, decision)| **decision == wanted)
        };
        let failed = with(Decision::Failed).map(|(rate, _)| *rate).min().unwrap();
        let held = with(Decision::Held).map(|(rate, _)| *rate);
        let held = held.filter(|rate| *rate < failed).max().unwrap();
        (held as f64, failed as f64)
    }

    /// Each first measurement fails, as if the machine had stalled.
    #[test]
    fn a_second_that_fails_by_chance_does_not_bound_the_answer() {
        let (held, failed) = unlucky(7_777.0, |holds, trial| match holds && trial.earlier > 0 {
            true => Decision::Held,
            false => Decision::Failed,
        });
        assert!(held <= 7_777.0 && failed > 7_777.0, "{held} {failed}");
        assert!(failed <= held * 1.06, "{held} {failed}");
    }

    /// Short measurements hold by chance up to a fifth above the limit.
    #[test]
    fn an_answer_that_does_not_hold_for_long_is_not_the_answer() {
        let (held, failed) = unlucky(7_777.0, |holds, trial| {
            let short = trial.length < SEARCH.longest && trial.rate_per_s < 1.2 * 7_777.0;
            match holds || short {
                true => Decision::Held,
                false => Decision::Failed,
            }
        });
        assert!(held <= 7_777.0 && failed > 7_777.0, "{held} {failed}");
        assert!(failed <= held * 1.06, "{held} {failed}");
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
