//! Whether a load can be believed.
//!
//! What spoils a load spoils a run too: [`reasons_against_client`] is asked by both
//! verdicts, and both read the same limits in `taillab_model::summary`.

use std::fmt;

use taillab_model::summary::{
    ArrivalsReference, ClientCost, LoadErrors, LoadSummary, MAX_CLIENT_BUSY_SHARE, MAX_ERROR_SHARE,
    MAX_LATENESS_SHARE, MIN_SENT_SHARE, NOTABLE_LATENESS_SHARE,
};
use taillab_model::{Distribution, Nanos};

use super::{Growth, LoadEvidence};
use crate::judgement::{GeneralWarning, Judgement, general_warnings};
use crate::words::{Errors, Percent, Percentile, share};

/// A floor above this share of the response time at p50: the client measures itself.
pub const NOTABLE_FLOOR_SHARE: f64 = 0.5;

/// What the verdict needs and neither the summary nor the requests say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadContext<'a> {
    /// The measurement ended before its time.
    pub partial: bool,
    /// The same client against a responder that does nothing.
    pub floor: Option<&'a LoadSummary>,
    /// The hypervisor's name, on a virtual machine.
    pub hypervisor: Option<String>,
}

/// A reason why a load must not be believed.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadInvalid {
    /// Nothing was answered.
    NoAnswer {
        /// Requests sent.
        requests: u64,
    },
    /// The generator's own delay is as large as what it measures.
    LateClient {
        /// The percentile compared: p99.9, or the highest that the load supports.
        q: f64,
        /// That percentile of the lateness.
        lateness: Nanos,
        /// That percentile of the response time.
        response_time: Nanos,
    },
    /// The client's thread had no time left.
    ClientBusy {
        /// Share of the measurement in which it was not waiting.
        busy_share: f64,
    },
    /// Less was sent than was due.
    RateMissed {
        /// Requests per second sent.
        sent_per_s: f64,
        /// Requests per second due.
        planned_per_s: f64,
    },
    /// The sends came in other bursts than those of the process wanted.
    Arrivals {
        /// The process.
        process: String,
        /// Index of dispersion of counts.
        idc: f64,
        /// What it should be near.
        expected: f64,
        /// In windows of this length.
        window: Nanos,
    },
    /// Too many requests went wrong.
    Errors {
        /// By kind.
        errors: LoadErrors,
        /// Of.
        requests: u64,
    },
    /// The load is at or above the capacity.
    Overload {
        /// Target rate ÷ capacity.
        utilization: f64,
    },
    /// The server did not keep up.
    Growing(Growth),
}

/// What a reader should know that does not spoil the load.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadWarning {
    /// Of every measurement.
    General(GeneralWarning),
    /// The measurement ended before its time.
    Partial,
    /// Some requests went wrong.
    Errors {
        /// By kind.
        errors: LoadErrors,
        /// Of.
        requests: u64,
    },
    /// Gets found nothing, so that another workload was measured than one of hits.
    Misses {
        /// How many.
        misses: u64,
        /// Of.
        requests: u64,
    },
    /// Connections ended, whether or not with a request.
    ConnectionsEnded {
        /// Closed by the server.
        closed: u64,
        /// Reset or refused by the server's host.
        reset: u64,
    },
    /// The lateness is a notable part of the response time.
    Lateness {
        /// At this percentile.
        q: f64,
        /// Of the lateness.
        lateness: Nanos,
        /// Of the response time.
        response_time: Nanos,
    },
    /// The client's own floor is most of the result.
    Floor {
        /// p50 against a responder that does nothing.
        floor: Nanos,
        /// p50 of the response time.
        response_time: Nanos,
    },
    /// The peak is the client's own.
    ClientsPeak {
        /// Share of the measurement in which the client was not waiting.
        busy_share: f64,
    },
    /// Single gaps differ from the process where no queue can tell.
    ArrivalGaps {
        /// The process.
        process: String,
        /// Kolmogorov–Smirnov distance of the gaps.
        ks_d: f64,
        /// Anderson–Darling statistic of the gaps.
        ad_a2: f64,
    },
    /// Single gaps are not judged.
    GapsNotJudged {
        /// The process.
        process: String,
    },
    /// Bursts are not judged: too short.
    BurstsNotJudged,
}

/// Why a load cannot be believed, and what else should be known.
pub type LoadJudgement = Judgement<LoadInvalid, LoadWarning>;

impl Judgement<LoadInvalid, LoadWarning> {
    /// The server did not keep up with the load: a finding of a sweep, not a fault of it.
    pub fn is_overload(&self) -> bool {
        self.invalid.iter().any(LoadInvalid::is_overload)
    }

    /// Whether anything but the server speaks against the measurement.
    pub fn client_failed(&self) -> bool {
        self.invalid.iter().any(|reason| !reason.is_servers())
    }
}

impl LoadInvalid {
    pub(super) const fn is_overload(&self) -> bool {
        matches!(self, Self::Overload { .. } | Self::Growing(_))
    }

    /// The server's doing, at a rate that it cannot serve.
    pub(super) const fn is_servers(&self) -> bool {
        self.is_overload() || matches!(self, Self::Errors { .. } | Self::NoAnswer { .. })
    }
}

/// What speaks against the client of a load or of a run, of whose requests `wrong` went wrong.
pub fn reasons_against_client(load: &LoadSummary, wrong: u64) -> Vec<LoadInvalid> {
    let mut invalid = Vec::new();
    if let Some(at) = load.arrivals.foreign_bursts(load.duration_ns) {
        invalid.push(LoadInvalid::Arrivals {
            process: load.arrivals.process.clone(),
            idc: at.value.unwrap_or(f64::NAN),
            expected: at.expected.unwrap_or(1.0),
            window: at.window_ns,
        });
    }
    if load.client.busy_share > MAX_CLIENT_BUSY_SHARE {
        invalid.push(LoadInvalid::ClientBusy {
            busy_share: load.client.busy_share,
        });
    }
    if share(wrong, load.requests) > MAX_ERROR_SHARE {
        invalid.push(LoadInvalid::Errors {
            errors: load.errors,
            requests: load.requests,
        });
    }
    invalid
}

/// Judges a load.
///
/// A miss is an answer and does not spoil a load (in a run, whose server was filled, it
/// does); neither does a connection that ended between two requests.
pub fn judge_load(
    load: &LoadSummary,
    evidence: &LoadEvidence,
    context: &LoadContext<'_>,
) -> LoadJudgement {
    Judgement {
        invalid: reasons(load, evidence),
        warnings: warnings(load, evidence, context),
    }
}

/// Judges a load without a schedule.
///
/// A client that had no time left is only worth knowing: where the client is what is
/// measured, that is how it should be.
pub fn judge_closed_loop(
    requests: u64,
    service_time: &Distribution,
    client: &ClientCost,
    errors: &LoadErrors,
    context: &LoadContext<'_>,
) -> LoadJudgement {
    let mut judgement = Judgement::default();
    if service_time.count == 0 {
        judgement.invalid.push(LoadInvalid::NoAnswer { requests });
    }
    if share(wrong(errors), requests) > MAX_ERROR_SHARE {
        judgement.invalid.push(LoadInvalid::Errors {
            errors: *errors,
            requests,
        });
    }
    if context.partial {
        judgement.warnings.push(LoadWarning::Partial);
    }
    judgement.warnings.extend(about_errors(errors, requests));
    if client.busy_share > MAX_CLIENT_BUSY_SHARE {
        judgement.warnings.push(LoadWarning::ClientsPeak {
            busy_share: client.busy_share,
        });
    }
    let general = general_warnings(&[], 0, context.hypervisor.as_ref());
    (judgement.warnings).extend(general.into_iter().map(LoadWarning::General));
    judgement
}

/// Answers that were wrong, or not there, or not asked for.
const fn wrong(errors: &LoadErrors) -> u64 {
    errors.failed_requests() + errors.unexpected_responses
}

/// Lateness and response time at the highest percentile that both support, up to p99.9.
fn late(load: &LoadSummary) -> Option<(f64, Nanos, Nanos)> {
    [0.999, 0.99, 0.9, 0.5].into_iter().find_map(|q| {
        let (lateness, response) = (load.lateness.quantile(q)?, load.response_time.quantile(q)?);
        Some((q, lateness, response))
    })
}

fn exceeds(part: Nanos, limit: f64, whole: Nanos) -> bool {
    part.get() as f64 > limit * whole.get() as f64
}

fn reasons(load: &LoadSummary, evidence: &LoadEvidence) -> Vec<LoadInvalid> {
    let mut invalid = Vec::new();
    if load.response_time.count == 0 {
        invalid.push(LoadInvalid::NoAnswer {
            requests: load.requests,
        });
    }
    if let Some((q, lateness, response_time)) = late(load)
        && exceeds(lateness, MAX_LATENESS_SHARE, response_time)
    {
        invalid.push(LoadInvalid::LateClient {
            q,
            lateness,
            response_time,
        });
    }
    if load.sent_rate_per_s < MIN_SENT_SHARE * evidence.planned_rate_per_s {
        invalid.push(LoadInvalid::RateMissed {
            sent_per_s: load.sent_rate_per_s,
            planned_per_s: evidence.planned_rate_per_s,
        });
    }
    invalid.extend(reasons_against_client(load, wrong(&load.errors)));
    if let Some(utilization) = load.target_utilization.filter(|u| *u >= 1.0) {
        invalid.push(LoadInvalid::Overload { utilization });
    }
    invalid.extend(evidence.growth.map(LoadInvalid::Growing));
    invalid
}

fn warnings(
    load: &LoadSummary,
    evidence: &LoadEvidence,
    context: &LoadContext<'_>,
) -> Vec<LoadWarning> {
    let mut warnings = Vec::new();
    if context.partial {
        warnings.push(LoadWarning::Partial);
    }
    warnings.extend(about_errors(&load.errors, load.requests));
    if let Some((q, lateness, response_time)) = late(load)
        && exceeds(lateness, NOTABLE_LATENESS_SHARE, response_time)
        && !exceeds(lateness, MAX_LATENESS_SHARE, response_time)
    {
        warnings.push(LoadWarning::Lateness {
            q,
            lateness,
            response_time,
        });
    }
    let floor = context.floor.and_then(|f| f.response_time.quantile(0.5));
    if let (Some(floor), Some(response_time)) = (floor, load.response_time.quantile(0.5))
        && exceeds(floor, NOTABLE_FLOOR_SHARE, response_time)
    {
        warnings.push(LoadWarning::Floor {
            floor,
            response_time,
        });
    }
    let arrivals = &load.arrivals;
    let process = || arrivals.process.clone();
    match arrivals.reference {
        ArrivalsReference::Schedule => {
            warnings.push(LoadWarning::GapsNotJudged { process: process() });
        }
        ArrivalsReference::Process if !arrivals.gaps_passed() => {
            warnings.push(LoadWarning::ArrivalGaps {
                process: process(),
                ks_d: arrivals.ks_d,
                ad_a2: arrivals.ad_a2,
            })
        }
        ArrivalsReference::Process => {}
    }
    if arrivals.idc.iter().all(|at| at.value.is_none()) {
        warnings.push(LoadWarning::BurstsNotJudged);
    }
    let general = general_warnings(
        &evidence.unsupported,
        load.response_time.count,
        context.hypervisor.as_ref(),
    );
    warnings.extend(general.into_iter().map(LoadWarning::General));
    warnings
}

fn about_errors(errors: &LoadErrors, requests: u64) -> Vec<LoadWarning> {
    let mut warnings = Vec::new();
    let wrong = wrong(errors);
    if wrong > 0 && share(wrong, requests) <= MAX_ERROR_SHARE {
        warnings.push(LoadWarning::Errors {
            // what has its own warning is left out
            errors: LoadErrors {
                misses: 0,
                connections_closed: 0,
                connections_reset: 0,
                ..*errors
            },
            requests,
        });
    }
    if errors.misses > 0 {
        warnings.push(LoadWarning::Misses {
            misses: errors.misses,
            requests,
        });
    }
    if errors.connections_closed + errors.connections_reset > 0 {
        warnings.push(LoadWarning::ConnectionsEnded {
            closed: errors.connections_closed,
            reset: errors.connections_reset,
        });
    }
    warnings
}

impl fmt::Display for LoadInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer { requests } => write!(
                f,
                "none of {requests} requests was answered: check that the target is a server of this protocol"
            ),
            Self::LateClient {
                q,
                lateness,
                response_time,
            } => write!(
                f,
                "the client sends late by {lateness} at {}, more than half of the {response_time} that a response takes there: give it a CPU of its own or more threads, or lower the load",
                Percentile(*q)
            ),
            Self::ClientBusy { busy_share } => write!(
                f,
                "the client was busy {} of the time (at most {} are allowed), so it is the bottleneck: give it more threads and CPUs, or lower the load",
                Percent(*busy_share),
                Percent(MAX_CLIENT_BUSY_SHARE)
            ),
            Self::RateMissed {
                sent_per_s,
                planned_per_s,
            } => write!(
                f,
                "the client sent {sent_per_s:.0} requests per second of the {planned_per_s:.0} that were due: give it more threads and CPUs, or lower the load"
            ),
            Self::Arrivals {
                process,
                idc,
                expected,
                window,
            } => write!(
                f,
                "the sends are not {process}: their index of dispersion in windows of {window} is {idc:.2} and should be near {}; give the client a CPU of its own, or lower the load",
                index(*expected)
            ),
            Self::Errors { errors, requests } => write!(
                f,
                "{} in {requests} requests, so the far percentiles leave out the worst: lower the load, or find out why the server fails",
                Errors(errors)
            ),
            Self::Overload { utilization } => write!(
                f,
                "the load is {} of the capacity, so queues only grow and no percentile exists: lower the load",
                Percent(*utilization)
            ),
            Self::Growing(Growth { first, last }) => write!(
                f,
                "response times grew throughout (p10 {first} in the first fifth, {last} in the last), so no percentile exists: lower the load, which the server cannot keep up with, or run longer if it is only near the capacity"
            ),
        }
    }
}

/// `1`, or two decimals where it is not whole.
fn index(expected: f64) -> String {
    if expected == 1.0 {
        "1".to_owned()
    } else {
        format!("{expected:.2}")
    }
}

impl fmt::Display for LoadWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::General(warning) => warning.fmt(f),
            Self::Partial => write!(
                f,
                "the measurement ended before its time: what was measured until then is shown; run it again for the whole"
            ),
            Self::Errors { errors, requests } => write!(
                f,
                "{} in {requests} requests: a percentile beyond {:.5} % leaves them out",
                Errors(errors),
                100.0 * (1.0 - share(errors.total(), *requests))
            ),
            Self::Misses { misses, requests } => write!(
                f,
                "{misses} of {requests} requests found nothing, which a server answers faster: fill it before the measurement, or use the keys that it holds"
            ),
            Self::ConnectionsEnded { closed, reset } => write!(
                f,
                "the server closed {closed} connections and {reset} were reset; they were opened again: raise the server's limit of requests per connection, or see its log"
            ),
            Self::Lateness {
                q,
                lateness,
                response_time,
            } => write!(
                f,
                "the client sends late by {lateness} at {}, where a response takes {response_time}: the service time leaves that out; give the client a CPU of its own",
                Percentile(*q)
            ),
            Self::Floor {
                floor,
                response_time,
            } => write!(
                f,
                "the client and its network alone take {floor} of the {response_time} at p50: the result says little about the server; see the percentiles above the floor"
            ),
            Self::ClientsPeak { busy_share } => write!(
                f,
                "the client was busy {} of the time, so the peak is its own and the server's may be higher: give the client more threads and CPUs",
                Percent(*busy_share)
            ),
            Self::ArrivalGaps {
                process,
                ks_d,
                ad_a2,
            } => write!(
                f,
                "single gaps between sends are not exactly {process} (Kolmogorov–Smirnov distance {ks_d:.4}, Anderson–Darling A² {ad_a2:.2}): a send takes longer than the shortest gaps; bursts, which make queues, are right"
            ),
            Self::GapsNotJudged { process } => write!(
                f,
                "single gaps of {process} arrivals are not judged: their bursts are held against the schedule's, and the lateness says how far each send was off"
            ),
            Self::BurstsNotJudged => write!(
                f,
                "the bursts of the sends are not judged: the measurement has fewer than ten of the shortest windows; run longer"
            ),
        }
    }
}
