//! Where a ratio agrees with a statement.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use taillab_model::interval::Interval;

/// The ratios that agree with a statement: `above 1`, `below 3` or `0.9 to 1.1`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Region {
    /// The lowest that agrees.
    pub lo: f64,
    /// The highest that agrees.
    pub hi: f64,
}

impl Region {
    /// Whether all of an interval is inside.
    pub fn holds(self, of: Interval<f64>) -> bool {
        self.lo <= of.lo && of.hi <= self.hi
    }

    /// Whether all of an interval is outside.
    pub fn excludes(self, of: Interval<f64>) -> bool {
        of.hi < self.lo || of.lo > self.hi
    }
}

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.trim()
                .parse::<f64>()
                .ok()
                .filter(|x| x.is_finite() && *x > 0.0)
        };
        let region = match (text.strip_prefix("above "), text.strip_prefix("below ")) {
            (Some(lo), _) => number(lo).map(|lo| Self {
                lo,
                hi: f64::INFINITY,
            }),
            (_, Some(hi)) => number(hi).map(|hi| Self { lo: 0.0, hi }),
            _ => text.split_once(" to ").and_then(|(lo, hi)| {
                let (lo, hi) = (number(lo)?, number(hi)?);
                (lo < hi).then_some(Self { lo, hi })
            }),
        };
        region.ok_or_else(|| format!("`{text}` is none of: above 1, below 3, 0.9 to 1.1"))
    }
}

impl TryFrom<String> for Region {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lo, self.hi) {
            (lo, f64::INFINITY) => write!(f, "above {lo}"),
            (0.0, hi) => write!(f, "below {hi}"),
            (lo, hi) => write!(f, "{lo} to {hi}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_read_and_written() {
        for text in ["above 1", "below 0.33", "0.9 to 1.1"] {
            assert_eq!(text.parse::<Region>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "1",
            "above",
            "above x",
            "2 to 1",
            "-1 to 1",
            "above inf",
        ] {
            assert!(text.parse::<Region>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_interval_across_the_edge_is_neither_inside_nor_outside() {
        let region: Region = "2 to 4".parse().unwrap();
        let both = |lo, hi| {
            let of = Interval { lo, hi };
            (region.holds(of), region.excludes(of))
        };
        assert_eq!(both(2.0, 4.0), (true, false));
        assert_eq!(both(1.9, 3.0), (false, false));
        assert_eq!(both(3.0, 4.1), (false, false));
        assert_eq!(both(4.1, 9.0), (false, true));
        assert_eq!(both(0.1, 1.9), (false, true));
        assert_eq!(both(1.0, 9.0), (false, false));
    }
}
