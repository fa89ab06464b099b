//! Limits that a result must hold, and whether it holds them: `p99.9<=2ms`, `errors<0.1%`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interval::share_of_events;
use crate::objective::{Objective, ParseObjectiveError};
use crate::quantile_ratio::compared;
use crate::{Distribution, Nanos, ParseNanosError, REPORTED_QUANTILES};

/// A limit on one figure of a result, and whether the figure may be equal to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    bound: Bound,
    /// Written with `<`: a figure that is equal to the limit is beyond it.
    is_strict: bool,
}

/// Which figure, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// On a percentile of the latency.
    Quantile(Objective),
    /// On a percentile, as a share of its value in another result (`taillab compare`).
    Ratio {
        /// The probability of the percentile.
        q: f64,
        /// The largest share.
        most: f64,
    },
    /// On the longest latency.
    Max(Nanos),
    /// On the share of requests without a good answer.
    Errors(f64),
}

/// Why a text is not a threshold.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseThresholdError {
    /// Neither a percentile nor `max` nor `errors`.
    #[error("`{0}` is not an assertion; write e.g. p99.9<=2ms, max<=20ms or errors<0.1%")]
    Form(String),
    /// A percentile that results do not have.
    #[error("results have p50, p90, p99, p99.9, p99.99 and p99.999, not p{0}; assert one of these")]
    Percentile(f64),
    /// A percentile with an error in it.
    #[error(transparent)]
    Objective(#[from] ParseObjectiveError),
    /// `max` without a valid length of time.
    #[error("the limit of max: {0}")]
    Limit(#[from] ParseNanosError),
    /// `errors` without a valid share.
    #[error("`{0}` is not a share of the requests; write e.g. errors<0.1%")]
    Share(String),
    /// No share is below 0.
    #[error("no share of the requests is below 0; write errors<=0%")]
    BelowZero,
}

impl FromStr for Threshold {
    type Err = ParseThresholdError;

    /// Reads `p99.9<=2ms`, `max<=20ms`, `errors<0.1%`; `≤` means the same as `<=`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseThresholdError::Form(text.to_owned());
        let signs = [("<=", false), ("≤", false), ("<", true)];
        let parts = |(sign, is_strict): (&str, bool)| Some((text.split_once(sign)?, is_strict));
        let ((figure, limit), is_strict) = (signs.into_iter().find_map(parts)).ok_or_else(form)?;
        let bound = match (figure.trim(), limit.trim()) {
            ("max", limit) => Bound::Max(limit.parse()?),
            ("errors", limit) => {
                let number = limit.strip_suffix('%').unwrap_or_default().trim();
                let percent: Option<f64> = number.parse().ok();
                match percent.filter(|percent| (0.0..100.0).contains(percent)) {
                    None => return Err(ParseThresholdError::Share(limit.to_owned())),
                    Some(percent) if is_strict && percent <= 0.0 => {
                        return Err(ParseThresholdError::BelowZero);
                    }
                    Some(percent) => Bound::Errors(percent / 100.0),
                }
            }
            (figure, limit) if figure.starts_with(['p', 'P']) => {
                of_percentile(text, figure, limit)?
            }
            _ => return Err(form()),
        };
        Ok(Self { bound, is_strict })
    }
}

/// A limit on a percentile: a length of time, or a share of what it was.
fn of_percentile(text: &str, figure: &str, limit: &str) -> Result<Bound, ParseThresholdError> {
    let most = limit
        .strip_suffix('%')
        .and_then(|of| of.trim().parse().ok());
    let most = most.filter(|percent: &f64| percent.is_finite() && *percent > 0.0);
    let objective: Objective = match most {
        // the length does not matter: only the percentile is used
        Some(_) => format!("{figure}<=1s").parse()?,
        None => text.parse()?,
    };
    let q = objective.q;
    match (REPORTED_QUANTILES.contains(&q), most) {
        (true, Some(percent)) => Ok(Bound::Ratio {
            q,
            most: percent / 100.0,
        }),
        (true, None) => Ok(Bound::Quantile(objective)),
        (false, _) => Err(ParseThresholdError::Percentile(percentile(q))),
    }
}

impl fmt::Display for Threshold {
    /// As it was written, in the form that [`Threshold::from_str`] reads back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_strict { "<" } else { "<=" };
        match self.bound {
            Bound::Quantile(Objective { q, limit_ns }) => {
                write!(f, "p{}{sign}{}", percentile(q), limit_ns.to_exact_string())
            }
            Bound::Ratio { q, most } => write!(f, "p{}{sign}{}%", percentile(q), percent(most)),
            Bound::Max(limit) => write!(f, "max{sign}{}", limit.to_exact_string()),
            Bound::Errors(share) => write!(f, "errors{sign}{}%", percent(share)),
        }
    }
}

/// A probability in per cent, to nine decimals.
fn percentile(q: f64) -> f64 {
    (q * 1e11).round() / 1e9
}

/// A share in per cent, to six decimals.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

/// Whether a limit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AssertionOutcome {
    /// The whole interval of the figure is within the limit. With `max` and `errors<=0%`, what was
    /// measured is.
    Pass,
    /// The whole interval is beyond it, or the server did not keep up with the load.
    Fail,
    /// The interval contains the limit, the figure is not known, the generator was the limit, or the result is
    /// invalid.
    Undecided,
}

/// A limit, and whether the result is within it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assertion {
    /// The limit: `p99.9<=2ms`.
    pub assertion: String,
    /// Whether it is held.
    pub outcome: AssertionOutcome,
    /// One line for people: the figure with its interval, or why nothing is decided.
    pub text: String,
}

/// How many requests failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCount {
    /// Requests without a good answer.
    pub failed: u64,
    /// All requests.
    pub all: u64,
}

/// The figures of a result that thresholds are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    /// The sojourn of all requests, where the server was recorded; otherwise the client's response time.
    pub latency: &'a Distribution,
    /// What that is called: `sojourn`, `response time`.
    pub latency_name: &'static str,
    /// The latency of the result that it is compared with.
    pub before: Option<&'a Distribution>,
    /// How many requests had no good answer.
    pub errors: ErrorCount,
    /// What the result's verdict says of them.
    pub standing: Standing,
}

/// Which figures of a result a limit can be held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// All of them.
    #[default]
    Sound,
    /// The server did not keep up with the load, so it does not hold any latency at this load.
    Overloaded,
    /// The generator was the limit, so the latency at the load that was asked for is not known.
    GeneratorLimited,
    /// None of them.
    Invalid,
}

impl Threshold {
    /// Compares the figures with this limit.
    pub fn hold(&self, figures: &Figures<'_>) -> Assertion {
        let said = |held, text: &str| (held, text.to_owned());
        let is_of_errors = matches!(self.bound, Bound::Errors(_));
        let (outcome, text) = match figures.standing {
            Standing::Invalid => said(AssertionOutcome::Undecided, "the result is invalid"),
            Standing::Overloaded if !is_of_errors => {
                let (_, text) = self.judge(figures);
                let why = "but the server did not keep up with the load: see the verdict";
                (AssertionOutcome::Fail, format!("{text}, {why}"))
            }
            Standing::GeneratorLimited if !is_of_errors => said(
                AssertionOutcome::Undecided,
                "not known at this load: the generator was the limit, see the verdict",
            ),
            _ => self.judge(figures),
        };
        Assertion {
            assertion: self.to_string(),
            outcome,
            text,
        }
    }

    fn judge(&self, figures: &Figures<'_>) -> (AssertionOutcome, String) {
        match &self.bound {
            Bound::Quantile(objective) => self.quantile(figures, objective),
            Bound::Ratio { q, most } => self.ratio(figures, *q, *most),
            Bound::Max(limit) => self.longest(figures, *limit),
            Bound::Errors(limit) => self.errors(figures.errors, *limit),
        }
    }

    /// Whether a figure is beyond its limit.
    fn is_beyond<T: PartialOrd>(&self, figure: T, limit: T) -> bool {
        match self.is_strict {
            true => figure >= limit,
            false => figure > limit,
        }
    }

    /// Whether an interval lies within a limit.
    fn held<T: PartialOrd + Copy>(
        &self,
        lo: Option<T>,
        hi: Option<T>,
        limit: T,
    ) -> AssertionOutcome {
        match (lo, hi) {
            (_, Some(hi)) if !self.is_beyond(hi, limit) => AssertionOutcome::Pass,
            (Some(lo), _) if self.is_beyond(lo, limit) => AssertionOutcome::Fail,
            _ => AssertionOutcome::Undecided,
        }
    }

    /// Requests without an answer took longer than all others, so the longest answer is a lower bound.
    fn longest(&self, figures: &Figures<'_>, limit: Nanos) -> (AssertionOutcome, String) {
        let (latency, name) = (figures.latency, figures.latency_name);
        let is_open = latency.unanswered > 0;
        match latency.max {
            Some(max) if self.is_beyond(max, limit) && is_open => {
                (AssertionOutcome::Fail, format!("{name} {max} or more"))
            }
            Some(max) if self.is_beyond(max, limit) => {
                (AssertionOutcome::Fail, format!("{name} {max}"))
            }
            _ if is_open => {
                let text =
                    format!("the longest {name} is not known: some requests were not answered");
                (AssertionOutcome::Undecided, text)
            }
            Some(max) => (AssertionOutcome::Pass, format!("{name} {max}")),
            None => (
                AssertionOutcome::Undecided,
                "there was no request".to_owned(),
            ),
        }
    }

    fn quantile(&self, figures: &Figures<'_>, objective: &Objective) -> (AssertionOutcome, String) {
        let limit = objective.limit_ns;
        let found = figures.latency.at(objective.q);
        let Some((found, value)) = found.and_then(|found| Some((found, found.value?))) else {
            let text = "this percentile is not known: see the verdict";
            return (AssertionOutcome::Undecided, text.to_owned());
        };
        let interval = interval(found.lo, found.hi, |end| end.to_string());
        let outcome = self.held(found.lo, found.hi, limit);
        (
            outcome,
            format!("{} {value}{interval}", figures.latency_name),
        )
    }

    fn ratio(&self, figures: &Figures<'_>, q: f64, most: f64) -> (AssertionOutcome, String) {
        let Some(before) = figures.before else {
            let text = "there is nothing to compare with: such a limit needs `taillab compare`";
            return (AssertionOutcome::Undecided, text.to_owned());
        };
        let all = compared(before, figures.latency);
        let found = all.iter().find(|at| at.before.q == q);
        let Some((at, value)) = found.and_then(|at| Some((at, at.ratio?))) else {
            let text = "this percentile is not known in one of the results: see its verdict";
            return (AssertionOutcome::Undecided, text.to_owned());
        };
        let share = |x: f64| format!("{:.0} %", 100.0 * x);
        let interval = interval(at.lo, at.hi, share);
        let text = format!("{} of what it was{interval}", share(value));
        (self.held(at.lo, at.hi, most), text)
    }

    fn errors(
        &self,
        ErrorCount { failed, all }: ErrorCount,
        limit: f64,
    ) -> (AssertionOutcome, String) {
        if all == 0 {
            return (
                AssertionOutcome::Undecided,
                "there was no request".to_owned(),
            );
        }
        let found = share_of_events(failed, all);
        let (lo, hi) = (found.lo.unwrap_or(0.0), found.hi.unwrap_or(1.0));
        let share = |x: f64| format!("{:.3} %", 100.0 * x);
        let text = format!(
            "{failed} of {all}, {} ({} to {})",
            share(failed as f64 / all as f64),
            share(lo),
            share(hi)
        );
        if failed == 0 && limit == 0.0 {
            // no sample proves a share of 0, so this limit is on the measured requests
            let text =
                format!("{text}; none of these failed, and the interval says what that proves");
            return (AssertionOutcome::Pass, text);
        }
        (self.held(Some(lo), Some(hi), limit), text)
    }
}

/// ` (1.20 ms to 1.40 ms)`; nothing without an interval.
fn interval<T>(lo: Option<T>, hi: Option<T>, write: impl Fn(T) -> String) -> String {
    match (lo.map(&write), hi.map(&write)) {
        (Some(lo), Some(hi)) => format!(" ({lo} to {hi})"),
        (Some(lo), None) => format!(" ({lo} or more)"),
        (None, Some(hi)) => format!(" ({hi} or less)"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lacking;

    fn errors(failed: u64, all: u64) -> ErrorCount {
        ErrorCount { failed, all }
    }

    #[test]
    fn thresholds_are_read_and_written_back() {
        for (text, again) in [
            ("p99.9<=2ms", "p99.9<=2ms"),
            ("p50 < 80us", "p50<80us"),
            ("max ≤ 20ms", "max<=20ms"),
            ("max < 20ms", "max<20ms"),
            ("errors<0.1%", "errors<0.1%"),
            ("errors<=0.1%", "errors<=0.1%"),
            ("errors<=0%", "errors<=0%"),
            ("p99.9 <= 110%", "p99.9<=110%"),
            ("p99.9 < 110%", "p99.9<110%"),
        ] {
            let threshold: Threshold = text.parse().unwrap();
            assert_eq!(threshold.to_string(), again);
            assert_eq!(again.parse(), Ok(threshold));
        }
        for (text, part) in [
            ("", "p99.9<=2ms"),
            ("p99.9", "p99.9<=2ms"),
            ("p95<=2ms", "p90"),
            ("p95<=110%", "p90"),
            ("p99<=-5%", "a number and a unit"),
            ("p99<=2", "a number and a unit"),
            ("errors<0.1", "errors<0.1%"),
            ("errors<150%", "errors<0.1%"),
            ("errors<0%", "errors<=0%"),
            ("latency<1ms", "max<=20ms"),
        ] {
            let error = text.parse::<Threshold>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn outcome(text: &str, figures: &Figures<'_>) -> AssertionOutcome {
        text.parse::<Threshold>().unwrap().hold(figures).outcome
    }

    #[test]
    fn the_interval_decides_not_the_estimate() {
        let sorted: Vec<Nanos> = (1..=10_000).map(|us| Nanos::new(us * 1_000)).collect();
        let latency = Distribution::from_sorted(&sorted);
        let figures = Figures {
            latency: &latency,
            latency_name: "sojourn",
            before: None,
            errors: errors(5, 10_000),
            standing: Standing::Sound,
        };
        for (text, held) in [
            ("p50<=6ms", AssertionOutcome::Pass),
            ("p50<=4ms", AssertionOutcome::Fail),
            ("p50<=5001us", AssertionOutcome::Undecided),
            ("p99.999<=1s", AssertionOutcome::Undecided),
            ("max<=10ms", AssertionOutcome::Pass),
            ("max<10ms", AssertionOutcome::Fail),
            ("max<=9ms", AssertionOutcome::Fail),
            ("errors<1%", AssertionOutcome::Pass),
            ("errors<0.01%", AssertionOutcome::Fail),
            ("errors<0.06%", AssertionOutcome::Undecided),
        ] {
            assert_eq!(outcome(text, &figures), held, "{text}");
            let at = |standing| {
                let figures = Figures {
                    standing,
                    ..figures
                };
                outcome(text, &figures)
            };
            assert_eq!(at(Standing::Invalid), AssertionOutcome::Undecided, "{text}");
            let is_of_errors = text.starts_with("errors");
            let of_latency = |other| if is_of_errors { held } else { other };
            assert_eq!(
                at(Standing::Overloaded),
                of_latency(AssertionOutcome::Fail),
                "{text}"
            );
            let limited = at(Standing::GeneratorLimited);
            assert_eq!(limited, of_latency(AssertionOutcome::Undecided), "{text}");
        }
    }

    /// The interval of a share always ends above 0.
    #[test]
    fn no_error_at_all_is_a_limit_on_the_measured_requests() {
        let latency = Distribution::from_sorted(&[]);
        let held = |failed| {
            let figures = Figures {
                latency: &latency,
                latency_name: "sojourn",
                before: None,
                errors: errors(failed, 10_000),
                standing: Standing::Sound,
            };
            "errors<=0%".parse::<Threshold>().unwrap().hold(&figures)
        };
        let none = held(0);
        assert_eq!(none.outcome, AssertionOutcome::Pass);
        assert!(none.text.contains("(0.000 % to 0.038 %)"), "{}", none.text);
        assert_eq!(held(1).outcome, AssertionOutcome::Fail);
    }

    #[test]
    fn requests_without_an_answer_do_not_excuse_a_long_one() {
        let answered: Vec<Nanos> = (1..=1_000).map(Nanos::from_micros).collect();
        let lacking = Lacking::unanswered(1);
        let latency = Distribution::from_sorted_censored(&answered, lacking, |_| 1.0);
        let figures = Figures {
            latency: &latency,
            latency_name: "sojourn",
            before: None,
            errors: errors(1, 1_001),
            standing: Standing::Sound,
        };
        assert_eq!(outcome("max<=2ms", &figures), AssertionOutcome::Undecided);
        assert_eq!(outcome("max<=999us", &figures), AssertionOutcome::Fail);
    }

    #[test]
    fn a_ratio_is_held_against_what_was_before() {
        let of = |from: u64| -> Distribution {
            let sorted: Vec<Nanos> = (0..10_000)
                .map(|us| Nanos::from_micros(from + us))
                .collect();
            Distribution::from_sorted(&sorted)
        };
        let (before, after) = (of(100_000), of(150_000));
        let figures = Figures {
            latency: &after,
            latency_name: "sojourn",
            before: Some(&before),
            errors: errors(0, 10_000),
            standing: Standing::Sound,
        };
        assert_eq!(outcome("p99<=160%", &figures), AssertionOutcome::Pass);
        assert_eq!(outcome("p99<=110%", &figures), AssertionOutcome::Fail);
        assert_eq!(
            outcome("p99.999<=160%", &figures),
            AssertionOutcome::Undecided
        );
        let alone = Figures {
            before: None,
            ..figures
        };
        assert_eq!(outcome("p99<=160%", &alone), AssertionOutcome::Undecided);
    }

    /// An interval that is open at one end can decide, too.
    #[test]
    fn an_interval_is_shown_where_it_has_an_end() {
        let shown = |lo: Option<u32>, hi| interval(lo, hi, |end| end.to_string());
        assert_eq!(shown(Some(1), Some(2)), " (1 to 2)");
        assert_eq!(shown(Some(1), None), " (1 or more)");
        assert_eq!(shown(None, Some(2)), " (2 or less)");
        assert_eq!(shown(None, None), "");
    }
}
