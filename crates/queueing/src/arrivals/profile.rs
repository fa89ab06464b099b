//! Rates that change with time: an arrival process on a clock whose speed follows the rate.
//!
//! The base process is stationary in *operational time*, which passes in proportion to the wanted rate.
//! Its arrivals are converted to real time (Çinlar 1975, *Introduction to Stochastic Processes*, 4.7: the
//! inverse of the expectation function). With Poisson arrivals, this gives exactly the non-homogeneous
//! Poisson process, without rejecting any arrival. With others, it gives a process whose gaps keep their
//! law, stretched by the rate.

use std::fmt;
use std::str::FromStr;

use taillab_model::Nanos;

use super::{ArrivalError, ArrivalProcess};

/// A piecewise constant rate over a finite time.
#[derive(Clone, Debug, PartialEq)]
pub struct RateProfile {
    pieces: Vec<Piece>,
    length: Nanos,
    expected: f64,
}

/// A stretch of time with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    /// Where it begins.
    from_ns: f64,
    /// Arrivals per nanosecond.
    rate_per_ns: f64,
    /// Arrivals expected before it.
    expected_before: f64,
}

/// Why rates are not a profile.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// It cannot be read.
    #[error("`{0}` is not a rate profile; write e.g. {example}", example = RateProfile::EXAMPLE)]
    Notation(String),
    /// A rate is negative or no number.
    #[error(
        "the rate {0} cannot be sent: it must be a number of requests per second, 0 for a pause"
    )]
    Rate(f64),
    /// A step takes no time.
    #[error("step {0} of the rate profile takes no time; give each a length above 0")]
    Length(usize),
    /// There is nothing to send.
    #[error("the rate profile never sends anything; at least one rate must be above 0")]
    Nothing,
    /// Times that do not rise.
    #[error(
        "the rate profile is not in order of time: entry {0} is not later than the one before it"
    )]
    Unsorted(usize),
    /// Too few times to know how long a rate holds.
    #[error("a rate profile needs at least two times, so that it is known how long a rate holds")]
    TooShort,
}

impl RateProfile {
    /// A valid text.
    pub const EXAMPLE: &str = "step:10s@5000,10s@20000";

    /// From steps, each with its length and its rate in requests per second.
    ///
    /// # Errors
    /// [`ProfileError`] names the invalid step.
    pub fn steps(steps: &[(Nanos, f64)]) -> Result<Self, ProfileError> {
        let mut pieces = Vec::with_capacity(steps.len());
        let (mut at, mut expected) = (Nanos::ZERO, 0.0);
        for (i, &(length, rate_per_s)) in steps.iter().enumerate() {
            if !(rate_per_s >= 0.0 && rate_per_s.is_finite()) {
                return Err(ProfileError::Rate(rate_per_s));
            }
            if length == Nanos::ZERO {
                return Err(ProfileError::Length(i + 1));
            }
            let rate_per_ns = rate_per_s / 1e9;
            pieces.push(Piece {
                from_ns: at.get() as f64,
                rate_per_ns,
                expected_before: expected,
            });
            expected += rate_per_ns * length.get() as f64;
            at += length;
        }
        if expected <= 0.0 {
            return Err(ProfileError::Nothing);
        }
        Ok(Self {
            pieces,
            length: at,
            expected,
        })
    }

    /// From recorded rates: each holds from its time until the next one; the last holds as long as the one
    /// before it. The profile begins at the first time.
    ///
    /// # Errors
    /// [`ProfileError`] names the invalid entry.
    pub fn recorded(entries: &[(Nanos, f64)]) -> Result<Self, ProfileError> {
        if entries.len() < 2 {
            return Err(ProfileError::TooShort);
        }
        let mut steps = Vec::with_capacity(entries.len());
        for (i, pair) in entries.windows(2).enumerate() {
            let length = pair[1]
                .0
                .checked_sub(pair[0].0)
                .filter(|l| *l > Nanos::ZERO);
            steps.push((length.ok_or(ProfileError::Unsorted(i + 2))?, pair[0].1));
        }
        let last_length = steps[steps.len() - 1].0;
        steps.push((last_length, entries[entries.len() - 1].1));
        Self::steps(&steps)
    }

    /// Its length.
    pub fn length(&self) -> Nanos {
        self.length
    }

    /// Requests per second over its whole length.
    pub fn mean_rate_per_s(&self) -> f64 {
        self.expected / self.length.as_secs_f64()
    }

    /// The steps, each with its length and its rate in requests per second.
    pub fn to_steps(&self) -> Vec<(Nanos, f64)> {
        let ends = self.pieces.iter().skip(1).map(|p| p.from_ns);
        self.pieces
            .iter()
            .zip(ends.chain([self.length.get() as f64]))
            .map(|(p, end)| (Nanos::new((end - p.from_ns) as u64), p.rate_per_ns * 1e9))
            .collect()
    }

    /// The same profile with all rates multiplied by `factor`, which must be above 0 and finite.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        debug_assert!(factor > 0.0 && factor.is_finite());
        let mut profile = self.clone();
        for piece in &mut profile.pieces {
            piece.rate_per_ns *= factor;
            piece.expected_before *= factor;
        }
        profile.expected *= factor;
        profile
    }

    /// The due times, as offsets from the start, of all arrivals within the profile.
    ///
    /// With a constant rate, the schedule is exactly that of [`ArrivalProcess::schedule`].
    ///
    /// # Errors
    /// [`ArrivalError`] when a parameter of the process is out of range.
    pub fn schedule(
        &self,
        process: &ArrivalProcess,
        seed: u64,
    ) -> Result<Vec<Nanos>, ArrivalError> {
        let mut due = process.schedule(self.mean_rate_per_s(), self.length, seed)?;
        let mut clock = self.clock();
        for at in &mut due {
            *at = clock.real(*at);
        }
        Ok(due)
    }

    fn mean_per_ns(&self) -> f64 {
        self.expected / self.length.get() as f64
    }

    fn clock(&self) -> Clock<'_> {
        Clock {
            mean_per_ns: self.mean_per_ns(),
            profile: self,
            piece: 0,
        }
    }
}

/// Converts operational times, which must not decrease, to real ones.
struct Clock<'a> {
    mean_per_ns: f64,
    profile: &'a RateProfile,
    /// The piece of the last time.
    piece: usize,
}

impl Clock<'_> {
    fn real(&mut self, operational: Nanos) -> Nanos {
        let pieces = &self.profile.pieces;
        let expected = operational.get() as f64 * self.mean_per_ns;
        // a request that is due at the very beginning of a pause is due at its end
        while let Some(next) = pieces.get(self.piece + 1)
            && (next.expected_before <= expected)
        {
            self.piece += 1;
        }
        let piece = &pieces[self.piece];
        let into = match piece.rate_per_ns {
            // only rounding can lead into a pause at the end
            0.0 => 0.0,
            rate => (expected - piece.expected_before) / rate,
        };
        let end = self.profile.length.get() - 1;
        Nanos::new(((piece.from_ns + into).round() as u64).min(end))
    }
}

impl FromStr for RateProfile {
    type Err = ProfileError;

    /// `step:10s@5000,10s@20000`: lengths and rates; `k` and `M` multiply a rate.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ProfileError::Notation(text.trim().to_owned());
        let steps = text.trim().strip_prefix("step:").ok_or_else(error)?;
        let read = |step: &str| {
            let (length, rate) = step.split_once('@')?;
            Some((length.parse().ok()?, rate_per_s(rate)?))
        };
        let steps: Vec<_> = steps
            .split(',')
            .map(|step| read(step).ok_or_else(error))
            .collect::<Result<_, _>>()?;
        Self::steps(&steps)
    }
}

impl fmt::Display for RateProfile {
    /// The notation that reads back as this profile, with the rates rounded to three decimals, those below
    /// 1 to twelve digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("step:")?;
        for (i, (length, rate)) in self.to_steps().into_iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // a low rate is no pause; the rate per nanosecond has lost the last digits
            let decimals = match rate > 0.0 && rate < 1.0 {
                true => 12 + (-rate.log10()) as usize,
                false => 3,
            };
            let rate = format!("{rate:.decimals$}");
            let rate = rate.trim_end_matches('0').trim_end_matches('.');
            write!(f, "{comma}{}@{rate}", length.to_exact_string())?;
        }
        Ok(())
    }
}

/// Requests per second as people write them: `5000`, `5k`, `1.2M`, `1e4`.
pub fn rate_per_s(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'M') => (&text[..at], 1e6),
        _ => (text, 1.0),
    };
    let rate = number.trim().parse::<f64>().ok()? * unit;
    rate.is_finite().then_some(rate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const S: Nanos = Nanos::from_secs(1);

    fn read(text: &str) -> RateProfile {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn text_is_read_and_written_back() {
        for (text, written) in [
            ("step:10s@5000,10s@20000", "step:10s@5000,10s@20000"),
            (
                "step:500ms@5k,1m@1.2M,1s@0",
                "step:500ms@5000,60s@1200000,1s@0",
            ),
            (" step:7ns@0.125 ", "step:7ns@0.125"),
            ("step:1s@0.0004,1s@1", "step:1s@0.0004,1s@1"),
            (
                "step:1s@0.0123456789,1s@1e-20",
                "step:1s@0.0123456789,1s@0.00000000000000000001",
            ),
        ] {
            assert_eq!(read(text).to_string(), written);
            assert_eq!(read(written).to_string(), written);
        }
        for text in [
            "",
            "10s@5",
            "step:",
            "step:10s",
            "step:5@10s",
            "step:1s@5,",
            "step:1s@NaN",
        ] {
            let error = text.parse::<RateProfile>().unwrap_err().to_string();
            assert!(error.contains(RateProfile::EXAMPLE), "{text}: {error}");
        }
        for (text, part) in [
            ("step:1s@-5", "-5"),
            ("step:1s@5,0s@5", "step 2"),
            ("step:1s@0", "never sends"),
        ] {
            let error = text.parse::<RateProfile>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_recorded_rate_holds_until_the_next() {
        let at = |s: u64| S * s;
        let profile = RateProfile::recorded(&[(at(5), 10.0), (at(7), 30.0), (at(8), 20.0)]);
        assert_eq!(profile.unwrap(), read("step:2s@10,1s@30,1s@20"));
        let error = |e: &[(Nanos, f64)]| RateProfile::recorded(e).unwrap_err();
        assert_eq!(error(&[(at(1), 1.0)]), ProfileError::TooShort);
        assert_eq!(
            error(&[(at(1), 1.0), (at(1), 1.0)]),
            ProfileError::Unsorted(2)
        );
        assert_eq!(
            error(&[(at(1), 1.0), (at(2), -1.0)]),
            ProfileError::Rate(-1.0)
        );
    }

    #[test]
    fn the_mean_is_that_of_the_steps() {
        let profile = read("step:3s@1000,1s@5000");
        assert_eq!(profile.length(), S * 4);
        assert!((profile.mean_rate_per_s() - 2000.0).abs() < 1e-6);
        assert!((profile.scaled(0.5).mean_rate_per_s() - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn one_rate_is_the_stationary_process_itself() {
        for process in ["poisson", "lognormal:cv=2", "deterministic"] {
            let process: ArrivalProcess = process.parse().unwrap();
            let flat = read("step:1s@20000,1s@20000")
                .schedule(&process, 3)
                .unwrap();
            let stationary = process.schedule(20_000.0, S * 2, 3).unwrap();
            let same = flat
                .iter()
                .zip(&stationary)
                .all(|(a, b)| a.get().abs_diff(b.get()) <= 1);
            assert!(same && flat.len() == stationary.len());
        }
    }

    /// Counts of each step over many seeds: they have the mean and the variance of a Poisson variable,
    /// and are uncorrelated with those of the next step.
    #[test]
    fn counts_in_each_step_are_poisson_and_independent() {
        let profile = read("step:200ms@1000,100ms@8000,50ms@0,300ms@300");
        let seeds = 2000;
        let edges = [0, 200, 300, 350, 650].map(Nanos::from_millis);
        let wanted = [200.0, 800.0, 0.0, 90.0];
        let mut counts = vec![[0.0; 4]; seeds];
        for (seed, counts) in counts.iter_mut().enumerate() {
            let due = profile
                .schedule(&ArrivalProcess::Poisson, seed as u64)
                .unwrap();
            assert!(due.is_sorted() && due.last().is_none_or(|t| *t < profile.length()));
            for (step, count) in counts.iter_mut().enumerate() {
                let below = |edge| due.partition_point(|t| *t < edge);
                *count = (below(edges[step + 1]) - below(edges[step])) as f64;
            }
        }
        let n = seeds as f64;
        let moment = |f: &dyn Fn(&[f64; 4]) -> f64| counts.iter().map(f).sum::<f64>() / n;
        for (step, wanted) in wanted.into_iter().enumerate() {
            let mean = moment(&|c| c[step]);
            let variance = moment(&|c| (c[step] - wanted).powi(2));
            let z = if wanted > 0.0 {
                (mean - wanted) / (wanted / n).sqrt()
            } else {
                mean
            };
            assert!(z.abs() < 4.0, "step {step}: mean {mean}, not {wanted}");
            // the sample variance of a Poisson variable has a relative error of √(2/n)
            let z = (variance / wanted.max(1e-9) - 1.0) / (2.0 / n).sqrt();
            assert!(
                wanted == 0.0 || z.abs() < 4.0,
                "step {step}: variance {variance}"
            );
        }
        let covariance = moment(&|c| (c[0] - wanted[0]) * (c[1] - wanted[1]));
        let z = covariance / (wanted[0] * wanted[1] / n).sqrt();
        assert!(z.abs() < 4.0, "covariance of neighbours {covariance}");
    }

    /// The operational time at the real offset `at`.
    fn operational(profile: &RateProfile, at: Nanos) -> u64 {
        let at_ns = at.get() as f64;
        let pieces = &profile.pieces;
        let piece = pieces[pieces.partition_point(|p| p.from_ns <= at_ns) - 1];
        let expected = piece.expected_before + piece.rate_per_ns * (at_ns - piece.from_ns);
        (expected / profile.mean_per_ns()).round() as u64
    }

    /// Converted back to operational time, the gaps have the law of the base process: their variation,
    /// and for Poisson their whole distribution (Kolmogorov–Smirnov at 0.1 %).
    #[test]
    fn the_change_of_time_keeps_the_law_of_the_gaps() {
        let profile = read("step:3s@20000,2s@60000,5s@5000");
        let mean_gap_ns = 1e9 / profile.mean_rate_per_s();
        for text in [
            "poisson",
            "gamma:cv=0.5",
            "lognormal:cv=0.7",
            "deterministic",
        ] {
            let process: ArrivalProcess = text.parse().unwrap();
            let due = profile.schedule(&process, 11).unwrap();
            let operational: Vec<_> = due.iter().map(|t| operational(&profile, *t)).collect();
            let mut gaps: Vec<f64> = operational
                .windows(2)
                .map(|w| (w[1] - w[0]) as f64 / mean_gap_ns)
                .collect();
            let n = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / n;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n;
            assert!((mean - 1.0).abs() < 0.02, "{text}: mean {mean}");
            let cv = variance.sqrt();
            assert!((cv - process.cv()).abs() < 0.06, "{text}: cv {cv}");
            if process == ArrivalProcess::Poisson {
                gaps.sort_by(f64::total_cmp);
                let d = gaps.iter().enumerate().fold(0.0_f64, |d, (i, gap)| {
                    let wanted = -(-gap).exp_m1();
                    d.max((wanted - i as f64 / n).abs())
                        .max((wanted - (i + 1) as f64 / n).abs())
                });
                assert!(d < 1.95 / n.sqrt(), "KS distance {d} of {n} gaps");
            }
        }
    }

    #[test]
    fn nothing_is_sent_in_a_pause() {
        let profile = read("step:1s@0,1s@1000,2s@0,1s@1000,1s@0");
        let due = profile.schedule(&ArrivalProcess::Deterministic, 1).unwrap();
        let in_step = |n: u64| due.iter().filter(|t| t.get() / 1_000_000_000 == n).count();
        let counts: Vec<usize> = (0..6).map(in_step).collect();
        assert_eq!(counts, [0, 999, 0, 0, 1000, 0]);
    }

    proptest! {
        #[test]
        fn both_clocks_rise_and_agree(
            steps in proptest::collection::vec((1..2_000_u64, 0..50_000_u32), 1..8),
            seed: u64,
        ) {
            let steps: Vec<_> = steps
                .into_iter()
                .map(|(ms, rate)| (Nanos::from_millis(ms), f64::from(rate)))
                .collect();
            let Ok(profile) = RateProfile::steps(&steps) else {
                prop_assert!(steps.iter().all(|(_, rate)| *rate == 0.0));
                return Ok(());
            };
            let due = profile.schedule(&ArrivalProcess::Poisson, seed).unwrap();
            prop_assert!(due.is_sorted());
            let base = ArrivalProcess::Poisson
                .schedule(profile.mean_rate_per_s(), profile.length(), seed)
                .unwrap();
            prop_assert_eq!(due.len(), base.len());
            let peak_per_s = profile.to_steps().iter().fold(0.0, |peak, step| step.1.max(peak));
            for (real, wanted) in due.iter().zip(&base) {
                // the real time is rounded to a nanosecond, in which the operational clock may advance further
                let slack = 2.0 + peak_per_s / profile.mean_rate_per_s();
                let off = operational(&profile, *real).abs_diff(wanted.get());
                prop_assert!(off as f64 <= slack, "{} for {}", off, wanted);
            }
        }
    }
}
