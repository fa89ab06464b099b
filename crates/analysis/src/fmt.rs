//! How the lines of a verdict write their figures.

use std::fmt;

use taillab_model::summary::LoadErrors;

/// `0.99871` as `99.87 %`.
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} %", self.0 * 100.0)
    }
}

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// `one` of a single thing, else `many`: for nouns, and for the verbs that follow them.
pub(crate) const fn plural(n: u64, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

/// `0.9999` as `p99.99`.
pub(crate) struct Percentile(pub(crate) f64);

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // nine decimals hide what binary fractions add, and print no trailing zeros
        let percent = (self.0 * 1e11).round() / 1e9;
        write!(f, "p{percent}")
    }
}

/// The kinds that occurred: `3 time-outs, 1 refused send`.
pub(crate) struct Errors<'a>(pub(crate) &'a LoadErrors);

impl fmt::Display for Errors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (count, kind) in self.0.kinds().iter().filter(|(count, _)| *count > 0) {
            write!(f, "{between}{count} {kind}")?;
            between = ", ";
        }
        Ok(())
    }
}
