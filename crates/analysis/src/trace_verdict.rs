//! Whether the trace of a live server can be believed, and what a reader should know.
//!
//! Nobody of ours sent the requests, so less can be checked than of a run
//! ([`crate::verdict`]): there is no second count of them, and t is often an estimate.

use std::fmt;

use taillab_model::Nanos;
use taillab_model::summary::{MIN_MATCHED_SHARE, Report, ServiceTimeSource};

use crate::judgement::{GeneralWarning, Judgement, general_warnings};
use crate::stamp_warning::{StampWarning, stamp_warnings};
use crate::verdict::{Evidence, MAX_FASTER_THAN_IDEAL};
use crate::words::{Percent, share};

/// More of a CPU than this for the observer is worth knowing.
pub const NOTABLE_OBSERVER_SHARE: f64 = 0.2;

/// What the verdict needs and neither the summary nor the analysis says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFacts {
    /// The hypervisor's name, on a virtual machine.
    pub hypervisor: Option<String>,
    /// The observer had no CPU that is not the server's.
    pub shares_cpus: bool,
    /// What is wrong with the recording, in a line of its own.
    pub damage: Option<String>,
    /// Requests are told apart by their content.
    pub framed: bool,
}

/// A reason why a trace must not be believed.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceInvalid {
    /// Events were lost.
    LostEvents {
        /// How many.
        lost: u64,
    },
    /// Too few responses have T1 and T6.
    Unmatched {
        /// With both.
        matched: u64,
        /// Of.
        responses: u64,
        /// Of these could have answered more than one request.
        ambiguous: u64,
        /// A framer was at work.
        framed: bool,
    },
    /// More work came in than the workers can do at the t that was given.
    Overload {
        /// Arrival rate × t ÷ workers.
        utilization: f64,
    },
}

/// What a reader should know that does not spoil the trace.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceWarning {
    /// Of the stamps.
    Stamps(StampWarning),
    /// Of every measurement.
    General(GeneralWarning),
    /// It ended before its time.
    Partial,
    /// The recording is damaged or cut off.
    Damaged {
        /// Its own line.
        damage: String,
    },
    /// The ideal is not the better one.
    NotBelowIdeal {
        /// p50 of the ideal.
        ideal: Nanos,
        /// p50 of the measured sojourn.
        measured: Nanos,
        /// How t was found.
        source: ServiceTimeSource,
    },
    /// Many requests beat their ideal.
    FasterThanIdeal {
        /// So many of them.
        share: f64,
    },
    /// Responses that more than one request could have caused.
    Ambiguous {
        /// How many.
        responses: u64,
        /// A framer was at work.
        framed: bool,
    },
    /// Observer and server had the same CPUs.
    SharedCpus,
    /// The observer worked hard.
    ObserverCost {
        /// Share of a CPU.
        cpu_share: f64,
    },
}

/// Why a trace cannot be believed, and what else should be known.
pub type TraceJudgement = Judgement<TraceInvalid, TraceWarning>;

/// What tells more requests apart.
const fn remedy_for_ambiguity(framed: bool) -> &'static str {
    if framed {
        "check that --protocol is what the server speaks"
    } else {
        "say what the server speaks with --protocol, so that requests are told apart by their \
         content"
    }
}

impl fmt::Display for TraceInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LostEvents { lost } => write!(
                f,
                "{lost} events were lost, so requests are missing where it matters: record fewer kinds (--disturbances none), give larger buffers (--ring-bytes), or leave taillab a CPU that the server does not use"
            ),
            Self::Unmatched {
                matched,
                responses,
                ambiguous,
                framed,
            } => {
                let remedy = match ambiguous * 2 > responses.saturating_sub(*matched) {
                    true => remedy_for_ambiguity(*framed),
                    false => {
                        "look for other processes that answer on this port (-p PID, --cgroup), and for responses without a request"
                    }
                };
                write!(
                    f,
                    "only {} of {responses} responses have T1 and T6 (at least {} are needed; {ambiguous} are ambiguous): {remedy}",
                    Percent(share(*matched, *responses)),
                    Percent(MIN_MATCHED_SHARE)
                )
            }
            Self::Overload { utilization } => write!(
                f,
                "what came in is {} of what the workers can do, so queues only grow and no percentile exists: correct --service-time or --workers, or trace at a lower load",
                Percent(*utilization)
            ),
        }
    }
}

impl fmt::Display for TraceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stamps(warning) => warning.fmt(f),
            Self::General(warning) => warning.fmt(f),
            Self::Partial => write!(
                f,
                "the trace ended before its time: what was recorded until then is shown"
            ),
            Self::Damaged { damage } => f.write_str(damage),
            Self::NotBelowIdeal {
                ideal,
                measured,
                source,
            } => write!(
                f,
                "the measured p50 of {measured} is not above the ideal one of {ideal}, so t is too long{}: give it with --service-time, e.g. as `taillab run` calibrates it",
                match source {
                    ServiceTimeSource::BusyTime =>
                        " (it is the workers' busy time per request, with what they do before T1 and after T6)",
                    _ => "",
                }
            ),
            Self::FasterThanIdeal { share } => write!(
                f,
                "{} of the requests were faster than their ideal, so t may be too long: give it with --service-time",
                Percent(*share)
            ),
            Self::Ambiguous { responses, framed } => write!(
                f,
                "{responses} responses could be those of more than one request, and are matched to none: {}",
                remedy_for_ambiguity(*framed)
            ),
            Self::SharedCpus => write!(
                f,
                "the server may run on every CPU that taillab may use, so that taillab's own work can delay it: leave it a CPU (taskset -p the server, or start taillab with fewer)"
            ),
            Self::ObserverCost { cpu_share } => write!(
                f,
                "recording took {} of a CPU: record fewer kinds of disturbance to make it cheaper",
                Percent(*cpu_share)
            ),
        }
    }
}

/// Judges a trace by its own summary (whose verdict is not read).
pub fn judge_trace(summary: &Report, evidence: &Evidence, facts: &TraceFacts) -> TraceJudgement {
    Judgement {
        invalid: reasons(summary, facts),
        warnings: warnings(summary, evidence, facts),
    }
}

fn reasons(summary: &Report, facts: &TraceFacts) -> Vec<TraceInvalid> {
    let mut invalid = Vec::new();
    let matching = &summary.server.matching;
    if matching.lost_events > 0 {
        invalid.push(TraceInvalid::LostEvents {
            lost: matching.lost_events,
        });
    }
    if share(matching.matched, matching.responses) < MIN_MATCHED_SHARE {
        invalid.push(TraceInvalid::Unmatched {
            matched: matching.matched,
            responses: matching.responses,
            ambiguous: matching.ambiguous,
            framed: facts.framed,
        });
    }
    let utilization = summary.server.ideal.utilization;
    if utilization >= 1.0 {
        invalid.push(TraceInvalid::Overload { utilization });
    }
    invalid
}

fn warnings(summary: &Report, evidence: &Evidence, facts: &TraceFacts) -> Vec<TraceWarning> {
    let mut warnings = Vec::new();
    let result = &summary.server;
    let matching = &result.matching;
    if let Some(damage) = facts.damage.clone() {
        warnings.push(TraceWarning::Damaged { damage });
    } else if summary.partial {
        warnings.push(TraceWarning::Partial);
    }
    let p50 = |distribution: &taillab_model::Distribution| distribution.quantile(0.5);
    match (p50(&result.ideal.sojourn), p50(&result.measured.sojourn)) {
        (Some(ideal), Some(measured)) if ideal >= measured => {
            warnings.push(TraceWarning::NotBelowIdeal {
                ideal,
                measured,
                source: result.service_time_source,
            });
        }
        _ if evidence.faster_than_ideal > MAX_FASTER_THAN_IDEAL => {
            warnings.push(TraceWarning::FasterThanIdeal {
                share: evidence.faster_than_ideal,
            });
        }
        _ => {}
    }
    if matching.ambiguous > 0 {
        warnings.push(TraceWarning::Ambiguous {
            responses: matching.ambiguous,
            framed: facts.framed,
        });
    }
    let stamps = stamp_warnings(matching, evidence.late_events);
    warnings.extend(stamps.into_iter().map(TraceWarning::Stamps));
    if facts.shares_cpus {
        warnings.push(TraceWarning::SharedCpus);
    }
    if let Some(observer) = summary.observer
        && observer.cpu_share > NOTABLE_OBSERVER_SHARE
    {
        warnings.push(TraceWarning::ObserverCost {
            cpu_share: observer.cpu_share,
        });
    }
    let general = general_warnings(
        &evidence.unsupported,
        result.measured.sojourn.count,
        facts.hypervisor.as_ref(),
    );
    warnings.extend(general.into_iter().map(TraceWarning::General));
    warnings
}
