//! The load: what was asked for, and what the client saw of it.

use std::iter::Sum;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Nanos};

/// The load as planned and as the client saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSummary {
    /// Rate of the schedule, requests per second.
    #[schemars(range(min = 0))]
    pub target_rate_per_s: f64,
    /// Target rate × t ÷ workers, where the capacity is known.
    #[schemars(range(min = 0))]
    pub target_utilization: Option<f64>,
    /// Requests sent per second of the measurement.
    #[schemars(range(min = 0))]
    pub sent_rate_per_s: f64,
    /// Length of the measurement.
    pub duration_ns: Nanos,
    /// Requests due in the measurement.
    pub requests: u64,
    /// From the intended send to the response: what a user waits.
    pub response_time: Distribution,
    /// From the actual send to the response.
    pub service_time: Distribution,
    /// From the intended to the actual send: the generator's own delay.
    pub lateness: Distribution,
    /// What the server did from one segment to the next, where the rate followed its capacity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<LoadSegment>,
    /// What the arrival process actually was.
    pub arrivals: ArrivalsVerdict,
    /// The client's own cost.
    pub client: ClientCost,
    /// What went wrong, by kind.
    pub errors: LoadErrors,
}

/// What the server did in a part of a measurement whose rate followed its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSegment {
    /// When it began, since the start of the measurement.
    pub from_ns: Nanos,
    /// How long it was.
    pub length_ns: Nanos,
    /// Requests answered per second.
    #[schemars(range(min = 0))]
    pub rate_per_s: f64,
    /// Share of the time of the server's CPUs that was used, by anyone.
    #[schemars(range(min = 0, max = 1))]
    pub busy_share: f64,
    /// Rate ÷ share: what the CPUs could answer.
    #[schemars(range(min = 0))]
    pub capacity_per_s: f64,
}

/// The arrival process as sent, compared with the one wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ArrivalsVerdict {
    /// The process wanted: `poisson`.
    pub process: String,
    /// What the sends are compared with.
    pub reference: ArrivalsReference,
    /// Coefficient of variation of the gaps (Poisson: 1).
    #[schemars(range(min = 0))]
    pub cv: f64,
    /// Kolmogorov–Smirnov distance of the gaps sent from the wanted distribution.
    #[schemars(range(min = 0, max = 1))]
    pub ks_d: f64,
    /// The distance that 5 % of true samples of this size exceed.
    #[schemars(range(min = 0))]
    pub ks_critical: f64,
    /// Anderson–Darling statistic A² of the gaps against the wanted distribution.
    #[schemars(range(min = 0))]
    pub ad_a2: f64,
    /// The A² that 5 % of true samples exceed.
    #[schemars(range(min = 0))]
    pub ad_critical: f64,
    /// Index of dispersion of counts (Poisson: 1) at several windows, the shortest first.
    pub idc: Vec<DispersionAt>,
    /// The gaps pass Kolmogorov–Smirnov at 5 %.
    pub passed: bool,
    /// How far apart requests that were due together were sent; absent where too few were due together.
    #[serde(flatten)]
    pub dead_time: Option<DeadTime>,
}

/// The time from a send to the next one when both were due together: what one send takes. It is a queue in
/// front of the server, which takes away queueing in the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadTime {
    /// The median of these times.
    #[serde(rename = "dead_time_ns")]
    pub median_ns: Nanos,
    /// Lower end of its interval of 95 %.
    #[serde(rename = "dead_time_lo_ns")]
    pub lo_ns: Nanos,
    /// Upper end of its interval; absent where the sample has none.
    #[serde(rename = "dead_time_hi_ns")]
    pub hi_ns: Option<Nanos>,
    /// Number of sends that were due together with the one before.
    #[serde(rename = "dead_time_count")]
    pub count: u64,
    /// They were due within this time of the one before.
    #[serde(rename = "dead_time_due_within_ns")]
    pub due_within_ns: Nanos,
}

/// What the sends of a run are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalsReference {
    /// The process itself, whose distribution of gaps is known: Poisson.
    #[default]
    Process,
    /// The sends that the schedule planned, for every other process: the distances are
    /// those of two samples, and single gaps are not judged.
    Schedule,
}

/// Variance over mean of the number of sends in windows of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DispersionAt {
    /// The window's length.
    pub window_ns: Nanos,
    /// Variance ÷ mean; `None` with fewer than ten windows.
    pub value: Option<f64>,
    /// What it should be: 1 for Poisson, else that of the schedule; `None` where `value` is.
    pub expected: Option<f64>,
}

impl ArrivalsVerdict {
    /// The dispersion in windows up to this length decides whether the sends were the process
    /// wanted: bursts of that length create the queues. A usual run has too few longer windows.
    pub const MAX_JUDGED_WINDOW: Nanos = Nanos::from_millis(10);

    /// Bursts that add more than this to the index of dispersion come from the client, not from the
    /// workload. One pause of the client of about 10 ms in 20 s is enough, since everything that was due
    /// in it is then sent at once.
    pub const MAX_DISPERSION_ERROR: f64 = 0.25;

    /// Single gaps pass both tests at 5 %, Kolmogorov–Smirnov's and Anderson–Darling's.
    pub fn gaps_passed(&self) -> bool {
        self.passed && self.ad_a2 <= self.ad_critical
    }

    /// The first window whose counts, over a series of `length`, are not those of the
    /// process wanted, if there is one.
    pub fn foreign_bursts(&self, length: Nanos) -> Option<DispersionAt> {
        let foreign = |at: &&DispersionAt| {
            let as_wanted = match self.reference {
                ArrivalsReference::Process => at.is_poisson(length, Self::MAX_DISPERSION_ERROR),
                ArrivalsReference::Schedule => at.is_as_planned(Self::MAX_DISPERSION_ERROR),
            };
            at.window_ns <= Self::MAX_JUDGED_WINDOW && as_wanted == Some(false)
        };
        self.idc.iter().find(foreign).copied()
    }
}

impl DispersionAt {
    /// Whether this is the index of a Poisson process observed for `length`, give or take
    /// `tolerance` and three standard errors; `None` where there is no value.
    ///
    /// The standard error of the index over n windows is √(2/(n−1)), because (n−1) times the
    /// index of Poisson counts is nearly χ² with n−1 degrees of freedom (Fisher's dispersion
    /// test; Cox and Lewis 1966, section 6.3).
    pub fn is_poisson(&self, length: Nanos, tolerance: f64) -> Option<bool> {
        let windows = (length.get() / self.window_ns.get().max(1)).max(2);
        let standard_error = (2.0 / (windows - 1) as f64).sqrt();
        let value = self.value?;
        Some((value - 1.0).abs() <= tolerance + 3.0 * standard_error)
    }

    /// Whether this is the index of the schedule, give or take `tolerance` (as a share of
    /// it, where it is above 1); `None` where there is no value.
    ///
    /// No allowance for chance is needed: both come from the same requests.
    pub fn is_as_planned(&self, tolerance: f64) -> Option<bool> {
        let (value, expected) = (self.value?, self.expected?);
        Some((value - expected).abs() <= tolerance * expected.max(1.0))
    }
}

/// What one request costs the client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientCost {
    /// CPU time of the client thread in sending and receiving, idle spinning left out.
    pub cpu_ns_per_request: Nanos,
    /// Share of the measurement in which the client was not waiting for its next send.
    #[schemars(range(min = 0, max = 1))]
    pub busy_share: f64,
}

/// Requests that did not end well, by kind. None of them leaves the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadErrors {
    /// No response within the time-out.
    pub timeouts: u64,
    /// The kernel refused the send.
    pub send_errors: u64,
    /// The server answered with an error.
    pub server_errors: u64,
    /// A response that no request asked for, that came twice, or that two requests with one id
    /// could have asked for.
    pub unexpected_responses: u64,
    /// A response that could not be read as the protocol's.
    pub malformed_responses: u64,
    /// Gets that found nothing.
    pub misses: u64,
    /// Requests whose connection ended before their response.
    pub lost_with_connection: u64,
    /// Connections that the server's host reset or refused.
    pub connections_reset: u64,
    /// Connections that the server closed, in or between responses.
    pub connections_closed: u64,
}

impl LoadErrors {
    /// Each kind with its count and its name after that count, in the order of weight.
    pub const fn kinds(&self) -> [(u64, &'static str); 9] {
        const fn named(n: u64, one: &'static str, many: &'static str) -> (u64, &'static str) {
            (n, if n == 1 { one } else { many })
        }
        [
            named(self.timeouts, "time-out", "time-outs"),
            named(self.send_errors, "refused send", "refused sends"),
            named(self.server_errors, "error response", "error responses"),
            named(
                self.unexpected_responses,
                "unexpected response",
                "unexpected responses",
            ),
            named(
                self.malformed_responses,
                "malformed response",
                "malformed responses",
            ),
            named(self.misses, "miss", "misses"),
            named(
                self.lost_with_connection,
                "request lost with its connection",
                "requests lost with their connection",
            ),
            named(
                self.connections_reset,
                "connection reset",
                "connections reset",
            ),
            named(
                self.connections_closed,
                "connection closed",
                "connections closed",
            ),
        ]
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(count, _)| count).sum()
    }

    /// Requests without a good answer. A miss is an answer, and a connection that ended
    /// between two requests took none with it.
    pub const fn failed_requests(&self) -> u64 {
        self.timeouts
            + self.send_errors
            + self.server_errors
            + self.malformed_responses
            + self.lost_with_connection
    }
}

impl Sum for LoadErrors {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |a, b| Self {
            timeouts: a.timeouts + b.timeouts,
            send_errors: a.send_errors + b.send_errors,
            server_errors: a.server_errors + b.server_errors,
            unexpected_responses: a.unexpected_responses + b.unexpected_responses,
            malformed_responses: a.malformed_responses + b.malformed_responses,
            misses: a.misses + b.misses,
            lost_with_connection: a.lost_with_connection + b.lost_with_connection,
            connections_reset: a.connections_reset + b.connections_reset,
            connections_closed: a.connections_closed + b.connections_closed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispersion_is_judged_by_tolerance_and_chance() {
        let passes = |value, length| {
            let window_ns = Nanos::from_millis(10);
            let at = DispersionAt {
                window_ns,
                value,
                expected: Some(1.0),
            };
            at.is_poisson(length, 0.05)
        };
        let (short, long) = (Nanos::from_secs(1), Nanos::from_secs(1000));
        // 100 windows: 0.05 + 3 · 0.142; 100,000 windows: 0.05 + 3 · 0.0045
        assert_eq!(passes(Some(1.47), short), Some(true));
        assert_eq!(passes(Some(0.52), short), Some(false));
        assert_eq!(passes(Some(1.06), long), Some(true));
        assert_eq!(passes(Some(1.47), long), Some(false));
        assert_eq!(passes(None, long), None);
    }
}
