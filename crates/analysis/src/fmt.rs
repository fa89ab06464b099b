//! How verdicts and findings write figures.

use std::fmt;

use taillab_model::Nanos;
use taillab_model::summary::{LoadErrors, Overload, Withdrawn};

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

/// `one` for a single thing, otherwise `many`: for nouns, and for the verbs that follow them.
pub(crate) const fn plural(n: u64, one: &'static str, many: &'static str) -> &'static str {
    if n == 1 { one } else { many }
}

/// `1234567` as `1,234,567`.
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// `1 window`, `1,234 windows`: a number with the words of one, or of many.
pub(crate) struct Counted(
    pub(crate) u64,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, one, many) = *self;
        write!(f, "{} {}", Count(n), plural(n, one, many))
    }
}

/// `0.9999` as `p99.99`.
pub(crate) struct Percentile(pub(crate) f64);

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // rounding to nine decimals hides what binary fractions add
        let percent = (self.0 * 1e11).round() / 1e9;
        write!(f, "p{percent}")
    }
}

/// Why a server cannot be compared with its ideal, without a full stop.
pub(crate) struct WhyNotCompared<'a>(pub(crate) &'a Withdrawn);

impl fmt::Display for WhyNotCompared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Withdrawn::ServiceTimeUnknown => f.write_str(
                "T1 and T6 alone do not show how long the server works on a request, so there is no \
                 comparison with an ideal server",
            ),
            Withdrawn::ClientsWait { at_once } => write!(
                f,
                "the clients wait for their answers before they ask again (never more than {at_once} \
                 requests or batches in the server, and fewer arrive while more are waiting), so a \
                 faster server would have had other arrivals"
            ),
            Withdrawn::ServiceTimeDisagrees {
                given_ns,
                recorded_ns,
            } => write!(
                f,
                "a request takes {given_ns} according to the service time that was given, and \
                 {recorded_ns} in the recording's busy periods"
            ),
            Withdrawn::IdealAboveMeasured {
                ideal_ns,
                measured_ns,
            } => write!(
                f,
                "the measured p50 of {measured_ns} is not above the ideal of {ideal_ns}, so the \
                 service time t is too long"
            ),
        }
    }
}

/// When and how fast a queue grew, without a full stop.
pub(crate) struct QueueGrowth<'a>(pub(crate) &'a Overload);

impl fmt::Display for QueueGrowth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overload = self.0;
        let seconds = |at: Nanos| format!("{:.1} s", at.as_secs_f64());
        let per_second = |rate: f64| Count(rate.round() as u64);
        write!(
            f,
            "from {} to {}, {} requests per second arrived and the server answered {} per second",
            seconds(overload.from_ns),
            seconds(overload.worst_ns),
            per_second(overload.came_per_s),
            per_second(overload.done_per_s),
        )?;
        write!(f, ", until {} were waiting", Count(overload.waiting))?;
        if overload.unanswered > 0 {
            write!(f, " and {} were not answered", Count(overload.unanswered))?;
        }
        match overload.to_ns.filter(|_| !overload.outlasts_load) {
            Some(to) => write!(f, "; the queue was gone at {}", seconds(to)),
            None => f.write_str("; the queue was still there when the last one came"),
        }
    }
}

/// The kinds that occurred: `3 time-outs, 1 refused send`.
pub(crate) struct Errors<'a>(pub(crate) &'a LoadErrors);

impl fmt::Display for Errors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (count, kind) in self.0.kinds().iter().filter(|(count, _)| *count > 0) {
            write!(f, "{between}{} {kind}", Count(*count))?;
            between = ", ";
        }
        Ok(())
    }
}
