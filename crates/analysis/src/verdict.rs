//! Whether a run can be believed, and what a reader should know.
//!
//! Every reason is one line with the cause and the remedy.

use std::fmt;

use taillab_model::Nanos;
use taillab_model::summary::{LoadErrors, MAX_ERROR_SHARE, MIN_MATCHED_SHARE, Report};

use crate::judgement::{GeneralWarning, Judgement, general_warnings};
use crate::load::{LoadInvalid, reasons_against_client};
use crate::stamp_warning::{StampWarning, stamp_warnings};
use crate::words::{Errors, Percent, Percentile, share};

/// Server CPUs less busy than this at the calibrated peak: something else was the limit.
pub const MIN_BUSY_AT_PEAK: f64 = 0.95;

/// A probe that costs more of the throughput than this changes what it measures.
pub const MAX_PROBE_COST: f64 = 0.10;

/// More requests than this share that beat the ideal: t is too long.
///
/// Some always do: t is the core's time per request at the peak, which holds work before T1
/// and after T6 too, and an ideal sojourn is never shorter than t.
pub const MAX_FASTER_THAN_IDEAL: f64 = 0.25;

/// A percentile that the run is too short for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unsupported {
    /// The percentile's probability.
    pub q: f64,
    /// Requests that it needs, about.
    pub needs: u64,
}

/// What the verdict needs from the analysis and the summary does not carry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Share of the requests faster than their ideal.
    pub faster_than_ideal: f64,
    /// Percentiles of the measured sojourn that the run is too short for.
    pub unsupported: Vec<Unsupported>,
    /// Events further out of the order of time than the matcher puts right.
    pub late_events: u64,
    /// Matched requests that no record of the client explains.
    pub unexplained: u64,
}

/// What the verdict needs from the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The hypervisor's name, on a virtual machine.
    pub hypervisor: Option<String>,
}

/// A reason why a run must not be believed.
#[derive(Clone, Debug, PartialEq)]
pub enum Invalid {
    /// The probe lost events.
    LostEvents {
        /// How many.
        lost: u64,
    },
    /// Too few responses of the server have T1 and T6.
    Unmatched {
        /// With both.
        matched: u64,
        /// Of.
        responses: u64,
    },
    /// Too few responses that the client received have T1 and T6.
    UnseenByProbe {
        /// With both.
        matched: u64,
        /// Of.
        responses: u64,
    },
    /// The generator's own delay hides the server's.
    LateClient {
        /// The percentile compared: p99.9, or the highest that the run supports.
        q: f64,
        /// That percentile of the lateness.
        lateness: Nanos,
        /// That percentile of the measured sojourn.
        sojourn: Nanos,
    },
    /// What spoils a load spoils the run that it drives.
    Load(LoadInvalid),
    /// The load is above what the ideal server can do: its queue only grows.
    Overload {
        /// Arrival rate × t ÷ workers.
        utilization: f64,
    },
    /// The server was faster than the best possible.
    BetterThanIdeal {
        /// p50 of the ideal.
        ideal: Nanos,
        /// p50 of the measured sojourn.
        measured: Nanos,
    },
    /// The server's part takes longer than the whole.
    LongerThanClient {
        /// p50 of the measured sojourn.
        measured: Nanos,
        /// p50 from the actual send to the response.
        client: Nanos,
    },
}

/// What a reader should know that does not spoil the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// Of the stamps.
    Stamps(StampWarning),
    /// Of every measurement.
    General(GeneralWarning),
    /// The run ended before its time.
    Partial,
    /// Responses that more than one request could have caused.
    Ambiguous {
        /// How many.
        responses: u64,
    },
    /// Requests that our client did not send.
    ForeignRequests {
        /// How many.
        requests: u64,
    },
    /// Some requests went wrong.
    Errors {
        /// By kind.
        errors: LoadErrors,
        /// Of.
        requests: u64,
    },
    /// The server was not the limit at the calibrated peak.
    NotServerLimited {
        /// Share of the server's CPUs that was busy.
        busy_share: f64,
    },
    /// t is too long.
    FasterThanIdeal {
        /// Share of the requests that beat their ideal.
        share: f64,
    },
    /// Single gaps differ from the process where no queue can tell.
    ArrivalGaps {
        /// The process.
        process: String,
        /// Kolmogorov–Smirnov distance of the gaps.
        ks_d: f64,
    },
    /// The probe costs much.
    ProbeCost {
        /// Share of the peak throughput.
        loss: f64,
    },
}

/// Why a run cannot be believed, and what else should be known.
pub type RunJudgement = Judgement<Invalid, Warning>;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostEvents { lost } => write!(
                f,
                "the probe lost {lost} events, so requests are missing where it matters: give it larger buffers, or lower the load"
            ),
            Self::Unmatched { matched, responses } => write!(
                f,
                "only {} of {responses} responses have T1 and T6 (at least {} are needed): look for traffic that is not the client's, and for responses in several packets",
                Percent(share(*matched, *responses)),
                Percent(MIN_MATCHED_SHARE)
            ),
            Self::UnseenByProbe { matched, responses } => write!(
                f,
                "only {} of the {responses} responses that the client received have T1 and T6 (at least {} are needed): check that the probe's hooks see all of the server's traffic",
                Percent(share(*matched, *responses)),
                Percent(MIN_MATCHED_SHARE)
            ),
            Self::LateClient {
                q,
                lateness,
                sojourn,
            } => write!(
                f,
                "the client sends late by {lateness} at {}, more than the {sojourn} it is to measure: give it a CPU of its own, or lower the load",
                Percentile(*q)
            ),
            Self::Load(reason) => reason.fmt(f),
            Self::Overload { utilization } => write!(
                f,
                "the load is {} of the capacity, so queues only grow and no percentile exists: lower the load, or calibrate again",
                Percent(*utilization)
            ),
            Self::BetterThanIdeal { ideal, measured } => write!(
                f,
                "the measured p50 of {measured} is not above the ideal one of {ideal}, so the service time t is too long: calibrate again on a quiet machine, with the server as the limit"
            ),
            Self::LongerThanClient { measured, client } => write!(
                f,
                "the measured p50 of {measured} is not below the {client} that the client saw, so stamps and client disagree: report this as a defect, with the capture"
            ),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stamps(warning) => warning.fmt(f),
            Self::General(warning) => warning.fmt(f),
            Self::Partial => write!(
                f,
                "the run ended before its time: what was measured until then is shown; run it again for the whole"
            ),
            Self::Ambiguous { responses } => write!(
                f,
                "{responses} responses could be those of more than one request, and are matched to none: use more client ports, or a longer time-out"
            ),
            Self::ForeignRequests { requests } => write!(
                f,
                "{requests} requests are in no record of the client: stop other clients of this server"
            ),
            Self::Errors { errors, requests } => write!(
                f,
                "{} in {requests} requests: a percentile beyond {:.5} % leaves them out",
                Errors(errors),
                100.0 * (1.0 - share(errors.total(), *requests))
            ),
            Self::NotServerLimited { busy_share } => write!(
                f,
                "at the calibrated peak the server's CPUs were only {} busy, so the client was the limit and t is too long: give the client more CPUs",
                Percent(*busy_share)
            ),
            Self::FasterThanIdeal { share } => write!(
                f,
                "{} of the requests were faster than their ideal, so the service time t may be too long: calibrate again on a quiet machine",
                Percent(*share)
            ),
            Self::ArrivalGaps { process, ks_d } => write!(
                f,
                "the single gaps between sends are not exactly {process} (Kolmogorov–Smirnov distance {ks_d:.3}): one thread cannot send two requests closer than some microseconds; the ideal gets the arrivals as they were, so the comparison is right"
            ),
            Self::ProbeCost { loss } => write!(
                f,
                "the probe costs {} of the peak throughput: without it the server would be faster by about that",
                Percent(*loss)
            ),
        }
    }
}

/// Judges a run by its own summary (whose verdict is not read).
pub fn judge(summary: &Report, evidence: &Evidence, facts: &Facts) -> RunJudgement {
    Judgement {
        invalid: reasons(summary),
        warnings: warnings(summary, evidence, facts),
    }
}

fn reasons(summary: &Report) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    let matching = &summary.server.matching;
    if matching.lost_events > 0 {
        invalid.push(Invalid::LostEvents {
            lost: matching.lost_events,
        });
    }
    if share(matching.matched, matching.responses) < MIN_MATCHED_SHARE {
        invalid.push(Invalid::Unmatched {
            matched: matching.matched,
            responses: matching.responses,
        });
    }
    if matching.client_responses > 0
        && share(matching.client_matched, matching.client_responses) < MIN_MATCHED_SHARE
    {
        invalid.push(Invalid::UnseenByProbe {
            matched: matching.client_matched,
            responses: matching.client_responses,
        });
    }
    let measured = &summary.server.measured.sojourn;
    let Some(load) = &summary.load else {
        return invalid;
    };
    let both = |q| Some((q, load.lateness.quantile(q)?, measured.quantile(q)?));
    if let Some((q, lateness, sojourn)) = [0.999, 0.99, 0.9, 0.5].into_iter().find_map(both)
        && lateness > sojourn
    {
        invalid.push(Invalid::LateClient {
            q,
            lateness,
            sojourn,
        });
    }
    let wrong = load.errors.total();
    invalid.extend(
        reasons_against_client(load, wrong)
            .into_iter()
            .map(Invalid::Load),
    );
    let utilization = summary.server.ideal.utilization;
    if utilization >= 1.0 {
        invalid.push(Invalid::Overload { utilization });
    }
    if let (Some(ideal), Some(measured)) = (
        summary.server.ideal.sojourn.quantile(0.5),
        measured.quantile(0.5),
    ) && ideal >= measured
    {
        invalid.push(Invalid::BetterThanIdeal { ideal, measured });
    }
    if let (Some(measured), Some(client)) =
        (measured.quantile(0.5), load.service_time.quantile(0.5))
        && measured >= client
    {
        invalid.push(Invalid::LongerThanClient { measured, client });
    }
    invalid
}

fn warnings(summary: &Report, evidence: &Evidence, facts: &Facts) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let matching = &summary.server.matching;
    let Some(load) = &summary.load else {
        return warnings;
    };
    if summary.partial {
        warnings.push(Warning::Partial);
    }
    // Workers that wait leave their CPUs idle, and t is not taken from their peak.
    if !summary.server.ideal.virtual_workers
        && let Some(calibration) = &summary.calibration
        && calibration.server_cpu_busy_share < MIN_BUSY_AT_PEAK
    {
        warnings.push(Warning::NotServerLimited {
            busy_share: calibration.server_cpu_busy_share,
        });
    }
    if evidence.faster_than_ideal > MAX_FASTER_THAN_IDEAL {
        warnings.push(Warning::FasterThanIdeal {
            share: evidence.faster_than_ideal,
        });
    }
    let wrong = load.errors.total();
    if wrong > 0 && share(wrong, load.requests) <= MAX_ERROR_SHARE {
        warnings.push(Warning::Errors {
            errors: load.errors,
            requests: load.requests,
        });
    }
    if matching.ambiguous > 0 {
        warnings.push(Warning::Ambiguous {
            responses: matching.ambiguous,
        });
    }
    if evidence.unexplained > 0 {
        warnings.push(Warning::ForeignRequests {
            requests: evidence.unexplained,
        });
    }
    let stamps = stamp_warnings(matching, evidence.late_events);
    warnings.extend(stamps.into_iter().map(Warning::Stamps));
    if let Some(loss) = summary.server.overhead.throughput_loss
        && loss > MAX_PROBE_COST
    {
        warnings.push(Warning::ProbeCost { loss });
    }
    if !load.arrivals.gaps_passed() {
        warnings.push(Warning::ArrivalGaps {
            process: load.arrivals.process.clone(),
            ks_d: load.arrivals.ks_d,
        });
    }
    let general = general_warnings(
        &evidence.unsupported,
        summary.server.measured.sojourn.count,
        facts.hypervisor.as_ref(),
    );
    warnings.extend(general.into_iter().map(Warning::General));
    warnings
}
