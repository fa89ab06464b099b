//! The load: what was asked for, and what the client saw of it.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClientsSummary;
use crate::counts::counts;
use crate::{Distribution, Nanos};

/// The load as planned and as the client saw it. In a run, the times are those of the requests of `scheduled`;
/// rate, length and number are those of all requests.
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
    /// From the intended send until the generator came to it: its own delay. Where a request then waited for its
    /// connection, that is in `clients`.
    pub lateness: Distribution,
    /// Who sent the requests, and how long these waited for their connections. Absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsSummary>,
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
    /// Share of the time of the server's CPUs that was used, without programs that gave way to the server.
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
    /// The dead time: the median time between two sends that were due together.
    #[serde(rename = "dead_time_ns")]
    pub median_ns: Nanos,
    /// Lower end of the dead time's interval of 95 %.
    #[serde(rename = "dead_time_lo_ns")]
    pub lo_ns: Nanos,
    /// Upper end of the dead time's interval; absent where the sample has none.
    #[serde(rename = "dead_time_hi_ns")]
    pub hi_ns: Option<Nanos>,
    /// Number of sends that were due together with the one before: the dead time's sample.
    #[serde(rename = "dead_time_count")]
    pub count: u64,
    /// Two sends count as due together if the second was due within this time of the first.
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
    /// The dispersion in windows up to this length decides whether the sends had the bursts of the process
    /// wanted: such bursts create the queues. A usual run has too few longer windows.
    pub const MAX_JUDGED_WINDOW: Nanos = Nanos::from_millis(10);

    /// Bursts that add more than this to the index of dispersion come from the client, not from the
    /// workload. One pause of the client of about 10 ms in 20 s is enough, since everything that was due
    /// in it is then sent at once.
    pub const MAX_DISPERSION_ERROR: f64 = 0.25;

    /// If the index of dispersion is lower by more than this, the sends are more even than the process wanted.
    pub const MAX_EVENNESS: f64 = 0.1;

    /// Single gaps pass both tests at 5 %, Kolmogorov–Smirnov's and Anderson–Darling's.
    pub fn gaps_passed(&self) -> bool {
        self.passed && self.ad_a2 <= self.ad_critical
    }

    /// The first window whose counts, over a series of `length`, have bursts that the process wanted does
    /// not have, if there is one.
    pub fn foreign_bursts(&self, length: Nanos) -> Option<DispersionAt> {
        let mut judged = self.judged();
        judged.find(|at| {
            let found = at.against(self.reference, length, Self::MAX_DISPERSION_ERROR);
            found == Some(Ordering::Greater)
        })
    }

    /// In windows of this length and longer, the counts over a series of `length` are those of the process
    /// wanted; in shorter ones the sends are more even, because a send takes time. `None` where they are those
    /// of the process from the shortest window on.
    pub fn more_even_below(&self, length: Nanos) -> Option<Nanos> {
        let is_even = |at: &DispersionAt| {
            let found = at.against(self.reference, length, Self::MAX_EVENNESS);
            found == Some(Ordering::Less)
        };
        let even = self.judged().filter(is_even).last()?;
        let longer = self.idc.iter().map(|at| at.window_ns);
        longer.filter(|window| *window > even.window_ns).min()
    }

    /// The windows that are judged, the shortest first.
    fn judged(&self) -> impl Iterator<Item = DispersionAt> {
        let judged = |at: &&DispersionAt| at.window_ns <= Self::MAX_JUDGED_WINDOW;
        self.idc.iter().filter(judged).copied()
    }
}

impl DispersionAt {
    /// Whether the counts of a series of `length` are more even than those of the process wanted
    /// (`Less`), burstier (`Greater`), or, give or take `tolerance`, neither; `None` where there is no value.
    ///
    /// For a Poisson process, three standard errors are allowed too. The standard error of the index over n
    /// windows is √(2/(n−1)), because (n−1) times the index of Poisson counts is nearly χ² with n−1 degrees of
    /// freedom (Fisher's dispersion test; Cox and Lewis 1966, section 6.3). Against a schedule, no allowance
    /// for chance is needed, since both come from the same requests; there the tolerance is a share of the
    /// schedule's index, where that is above 1.
    pub fn against(
        &self,
        reference: ArrivalsReference,
        length: Nanos,
        tolerance: f64,
    ) -> Option<Ordering> {
        let value = self.value?;
        let (expected, allowed) = match reference {
            ArrivalsReference::Process => {
                let windows = (length.get() / self.window_ns.get().max(1)).max(2);
                let standard_error = (2.0 / (windows - 1) as f64).sqrt();
                (1.0, tolerance + 3.0 * standard_error)
            }
            ArrivalsReference::Schedule => {
                let expected = self.expected?;
                (expected, tolerance * expected.max(1.0))
            }
        };
        Some(match value - expected {
            off if off > allowed => Ordering::Greater,
            off if off < -allowed => Ordering::Less,
            _ => Ordering::Equal,
        })
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

counts! {
    /// Requests that did not end well, by kind. None of them leaves the record.
    LoadErrors named {
        /// No response within the time-out.
        timeouts: "time-out", "time-outs";
        /// The kernel refused the send.
        send_errors: "refused send", "refused sends";
        /// The server answered with an error.
        server_errors: "error response", "error responses";
        /// A response that no request asked for, that came twice, or that two requests with one id
        /// could have asked for.
        unexpected_responses: "unexpected response", "unexpected responses";
        /// A response that could not be read as the protocol's.
        malformed_responses: "malformed response", "malformed responses";
        /// Gets that found nothing.
        misses: "miss", "misses";
        /// Requests whose connection ended before their response.
        lost_with_connection: "request lost with its connection", "requests lost with their connection";
        /// Connections that the server's host reset or refused.
        connections_reset: "connection reset", "connections reset";
        /// Connections that the server closed, in or between responses.
        connections_closed: "connection closed", "connections closed";
    }
}

impl LoadErrors {
    /// Those of a server that left so many requests without a response. An answer that a client which was held up
    /// did not read in time is none.
    pub fn of_server(self, unanswered: u64) -> Self {
        Self {
            timeouts: self.timeouts.min(unanswered),
            ..self
        }
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(count, _)| count).sum()
    }

    /// Requests without any answer: none came in time, or the request did not leave.
    pub const fn unanswered_requests(&self) -> u64 {
        self.timeouts + self.send_errors + self.lost_with_connection
    }

    /// Requests without a good answer. A miss is an answer, and a connection that ended
    /// between two requests took none with it.
    pub const fn failed_requests(&self) -> u64 {
        self.unanswered_requests() + self.server_errors + self.malformed_responses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(window_us: u64, value: impl Into<Option<f64>>, expected: f64) -> DispersionAt {
        DispersionAt {
            window_ns: Nanos::from_micros(window_us),
            value: value.into(),
            expected: Some(expected),
        }
    }

    #[test]
    fn dispersion_is_judged_by_tolerance_and_chance() {
        let found = |value: Option<f64>, length| {
            at(10_000, value, 1.0).against(ArrivalsReference::Process, length, 0.05)
        };
        let (short, long) = (Nanos::from_secs(1), Nanos::from_secs(1000));
        // 100 windows: 0.05 + 3 · 0.142; 100,000 windows: 0.05 + 3 · 0.0045
        assert_eq!(found(Some(1.47), short), Some(Ordering::Equal));
        assert_eq!(found(Some(0.52), short), Some(Ordering::Less));
        assert_eq!(found(Some(1.06), long), Some(Ordering::Equal));
        assert_eq!(found(Some(1.47), long), Some(Ordering::Greater));
        assert_eq!(found(None, long), None);
    }

    #[test]
    fn a_schedule_is_held_against_itself() {
        let found = |value, expected| {
            at(1_000, value, expected).against(ArrivalsReference::Schedule, Nanos::ZERO, 0.25)
        };
        assert_eq!(found(24.0, 20.0), Some(Ordering::Equal));
        assert_eq!(found(26.0, 20.0), Some(Ordering::Greater));
        assert_eq!(found(14.0, 20.0), Some(Ordering::Less));
        assert_eq!(found(0.2, 0.0), Some(Ordering::Equal));
    }

    #[test]
    fn sends_that_are_too_even_are_no_foreign_bursts() {
        let mut arrivals = ArrivalsVerdict {
            process: "poisson".to_owned(),
            reference: ArrivalsReference::Process,
            cv: 1.0,
            ks_d: 0.1,
            ks_critical: 0.01,
            ad_a2: 100.0,
            ad_critical: 2.5,
            idc: vec![
                at(16, 0.4, 1.0),
                at(100, 0.7, 1.0),
                at(1_000, 0.98, 1.0),
                at(10_000, 1.01, 1.0),
                at(100_000, None, 1.0),
            ],
            passed: false,
            dead_time: None,
        };
        let length = Nanos::from_secs(100);
        let found = |a: &ArrivalsVerdict| (a.foreign_bursts(length), a.more_even_below(length));
        let ms = Nanos::from_millis(1);
        assert_eq!(found(&arrivals), (None, Some(ms)));
        arrivals.idc[1].value = Some(1.4);
        let (bursts, even) = found(&arrivals);
        assert_eq!(bursts.map(|at| at.window_ns.get()), Some(100_000));
        assert_eq!(even, Some(Nanos::from_micros(100)));
        arrivals.idc[0].value = Some(0.95);
        assert_eq!(found(&arrivals).1, None);
    }
}
