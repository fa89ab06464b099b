//! The search for the highest rate that holds an objective: pure, the measuring is the caller's.
//!
//! Doubling from a low rate brackets the answer, bisection narrows it. Each rate is measured
//! until its quantile's interval lies on one side of the limit, or as long as allowed: then
//! it stays undecided, and the search goes on below it without calling it failed.

use taillab_model::Nanos;

/// What one measurement says of the objective.
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
pub struct Trial {
    /// Requests per second.
    pub rate_per_s: f64,
    /// How long.
    pub length: Nanos,
    /// Its own seed.
    pub seed: u64,
    /// How often this rate was measured before, each time for too short.
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
    /// The search ends when the lowest rate that is not held is at most this share above the
    /// highest that is.
    pub within: f64,
    /// Requests that a first measurement needs for its quantile.
    pub requests: f64,
    /// No measurement is shorter.
    pub shortest: Nanos,
    /// No measurement is longer.
    pub longest: Nanos,
    /// Seeds of the measurements are made of it.
    pub seed: u64,
}

/// What the search came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// The highest rate that held, below every one that did not.
    pub held_per_s: Option<f64>,
    /// The lowest rate that failed.
    pub failed_per_s: Option<f64>,
    /// Some rate could not be decided.
    pub undecided: bool,
    /// The caller ended it early.
    pub interrupted: bool,
}

impl Search {
    /// Searches; `measure` makes one measurement and says what it means, or `None` to end
    /// the search.
    ///
    /// # Errors
    /// The first error of `measure`.
    pub fn run<E>(
        &self,
        mut measure: impl FnMut(&Trial) -> Result<Option<Decision>, E>,
    ) -> Result<Answer, E> {
        let mut state = State {
            search: self,
            measure: &mut measure,
            answer: Answer::default(),
            open_above: f64::INFINITY,
            trials: 0,
        };
        state.bracket()?;
        state.bisect()?;
        Ok(state.answer)
    }

    /// How long a rate is measured first.
    fn first_length(&self, rate_per_s: f64) -> Nanos {
        let wanted = Nanos::try_from_secs_f64(self.requests / rate_per_s).unwrap_or(Nanos::MAX);
        wanted.clamp(self.shortest, self.longest)
    }
}

struct State<'a, E> {
    search: &'a Search,
    #[allow(clippy::type_complexity, reason = "a closure that may fail, once")]
    measure: &'a mut dyn FnMut(&Trial) -> Result<Option<Decision>, E>,
    answer: Answer,
    /// The lowest rate that is not held: failed or undecided.
    open_above: f64,
    trials: u64,
}

impl<E> State<'_, E> {
    /// Finds a rate that holds and, above it, one that does not.
    fn bracket(&mut self) -> Result<(), E> {
        let search = *self.search;
        let mut rate = search
            .start_per_s
            .clamp(search.lowest_per_s, search.highest_per_s);
        let held = self.decide(rate)?;
        while held && !self.answer.interrupted && rate < search.highest_per_s {
            rate = (2.0 * rate).min(search.highest_per_s);
            if !self.decide(rate)? {
                return Ok(());
            }
        }
        while !held
            && !self.answer.interrupted
            && self.answer.held_per_s.is_none()
            && rate > search.lowest_per_s
        {
            rate = (0.5 * rate).max(search.lowest_per_s);
            self.decide(rate)?;
        }
        Ok(())
    }

    fn bisect(&mut self) -> Result<(), E> {
        while let Some(held) = self.answer.held_per_s
            && self.open_above.is_finite()
            && self.open_above > held * (1.0 + self.search.within)
            && !self.answer.interrupted
        {
            self.decide(0.5 * (held + self.open_above))?;
        }
        Ok(())
    }

    /// Measures a rate until it is decided or the longest measurement is made; whether it holds.
    fn decide(&mut self, rate_per_s: f64) -> Result<bool, E> {
        let mut length = self.search.first_length(rate_per_s);
        let mut earlier = 0;
        loop {
            let trial = Trial {
                rate_per_s,
                length,
                seed: mixed(self.search.seed, self.trials),
                earlier,
            };
            self.trials += 1;
            match (self.measure)(&trial)? {
                None => {
                    self.answer.interrupted = true;
                    return Ok(false);
                }
                Some(Decision::Held) => {
                    let best = self
                        .answer
                        .held_per_s
                        .map_or(rate_per_s, |r| r.max(rate_per_s));
                    self.answer.held_per_s = Some(best);
                    return Ok(true);
                }
                Some(Decision::Failed) => {
                    self.open_above = self.open_above.min(rate_per_s);
                    let lowest = self
                        .answer
                        .failed_per_s
                        .map_or(rate_per_s, |r| r.min(rate_per_s));
                    self.answer.failed_per_s = Some(lowest);
                    return Ok(false);
                }
                Some(Decision::Undecided) if length < self.search.longest => {
                    length = (length * 2).min(self.search.longest);
                    earlier += 1;
                }
                Some(Decision::Undecided) => {
                    self.open_above = self.open_above.min(rate_per_s);
                    self.answer.undecided = true;
                    return Ok(false);
                }
            }
        }
    }
}

/// A seed that has nothing to do with its neighbours' (SplitMix64's finaliser; Steele, Lea,
/// Flood 2014); the first one is the seed itself.
pub fn mixed(seed: u64, n: u64) -> u64 {
    if n == 0 {
        return seed;
    }
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
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

    /// A server that holds below `limit`; near it a measurement must be long to decide.
    fn server(limit: f64, blur: f64, trials: &mut Vec<Trial>) -> Answer {
        SEARCH
            .run(|trial| {
                trials.push(*trial);
                let off = (trial.rate_per_s / limit - 1.0).abs();
                let visible = blur / trial.length.as_secs_f64().sqrt();
                Ok::<_, Infallible>(Some(match trial.rate_per_s <= limit {
                    _ if off < visible => Decision::Undecided,
                    true => Decision::Held,
                    false => Decision::Failed,
                }))
            })
            .unwrap()
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
            assert!(!answer.undecided && !answer.interrupted);
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
        let inside = |t: &Trial| (100.0..=50_000.0).contains(&t.rate_per_s);
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
        let mut left = 3;
        let answer = SEARCH.run(|_| {
            left -= 1;
            Ok::<_, Infallible>((left > 0).then_some(Decision::Held))
        });
        let answer = answer.unwrap();
        assert!(answer.interrupted && left == 0);
        assert_eq!(answer.held_per_s, Some(2_000.0));
        assert_eq!(SEARCH.run(|_| Err("gone")), Err("gone"));
    }
}
