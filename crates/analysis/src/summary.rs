//! From matched requests to the parts of the run's summary.

use std::num::NonZeroU32;

use taillab_model::summary::{Ideal, Matching, Measured, Stages, StagesAt};
use taillab_model::{Distribution, Monotonic, Nanos, REPORTED_QUANTILES};

use crate::ideal::IdealRun;
use crate::matched::Matched;
use crate::statistics::{
    ccdf, distribution_and_sorted, distribution_of, inflation_at_quantiles, requests_needed,
};
use crate::{stages, verdict};

/// What the analysis needs besides the matched requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalyseOptions {
    /// t: 1 / peak throughput of one core.
    pub service_time: Nanos,
    /// Workers c of the ideal queue.
    pub workers: NonZeroU32,
    /// Start of the measurement: requests due before it are warm-up.
    pub measure_from: Monotonic,
    /// Events that the probe lost: ring buffer full, or a program skipped by recursion.
    pub lost_events: u64,
}

/// What the analysis found.
#[derive(Clone, Debug, PartialEq)]
pub struct Analysis {
    /// The server as it was; its CPUs' busy share is the host's to say, and left empty.
    pub measured: Measured,
    /// The same arrivals through the ideal queue.
    pub ideal: Ideal,
    /// Measured − ideal, request by request; zero where the ideal is the longer.
    pub excess: Distribution,
    /// The stages over all complete requests.
    pub stages: Stages,
    /// The stages around each percentile of the sojourn.
    pub stages_at: Vec<StagesAt>,
    /// How events and responses joined; the hooks are the probe's to say, and left empty.
    pub matching: Matching,
    /// Points (x, P(sojourn ≥ x)) of the measured sojourn.
    pub measured_ccdf: Vec<(Nanos, f64)>,
    /// The same of the ideal one.
    pub ideal_ccdf: Vec<(Nanos, f64)>,
    /// What the verdict needs and the summary does not carry.
    pub evidence: verdict::ServerEvidence,
}

/// Why a run cannot be analysed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnalysisError {
    /// The probe saw nothing of the server's traffic.
    #[error(
        "the probe saw no packet of the server in {events} events: check that the server's port, address and interface are the ones traced"
    )]
    NoPackets {
        /// Events read.
        events: u64,
    },
    /// Requests came in, but none of the measurement was matched.
    #[error(
        "{arrivals} requests came in, but none of the measurement has a response: check that the server answers, and that the measurement outlasts the warm-up"
    )]
    NothingMatched {
        /// Requests that came in, warm-up included.
        arrivals: usize,
    },
}

/// Compares the measured requests with the ideal queue and takes them apart.
///
/// # Errors
/// When there is no request to analyse.
pub fn analyse(matched: &Matched, options: &AnalyseOptions) -> Result<Analysis, AnalysisError> {
    let from = options.measure_from;
    let arrivals = matched.requests.len() + matched.unmatched.len();
    if arrivals == 0 {
        return Err(AnalysisError::NoPackets {
            events: matched.events,
        });
    }
    let run = IdealRun::of(matched, options.service_time, options.workers, from);
    if run.measured.is_empty() {
        return Err(AnalysisError::NothingMatched { arrivals });
    }
    let excess = distribution_of(&run.excess());
    let faster_than_ideal = run.faster_than_ideal();
    let (ideal, sorted) = distribution_and_sorted(&run.ideal);
    let ideal_ccdf = ccdf(&sorted);
    let (measured, sorted) = distribution_and_sorted(&run.measured);
    let measured_ccdf = ccdf(&sorted);
    let factors = inflation_at_quantiles(&run.measured, &sorted);
    let unsupported = REPORTED_QUANTILES
        .iter()
        .filter(|&&q| measured.quantile(q).is_none())
        .map(|&q| verdict::Unsupported {
            q,
            needs: requests_needed(&factors, q),
        })
        .collect();
    drop(sorted);
    let utilization = run.arrival_rate_per_s * options.service_time.as_secs_f64()
        / f64::from(options.workers.get());
    Ok(Analysis {
        measured: Measured {
            sojourn: measured,
            server_cpu_busy_share: None,
        },
        ideal: Ideal {
            sojourn: ideal,
            workers: options.workers.get(),
            virtual_workers: false,
            utilization,
        },
        excess,
        stages: stages::stages(&matched.requests, matched.measured_places(from)),
        stages_at: stages::stages_at(&matched.requests, matched.measured_places(from)),
        matching: Matching {
            lost_events: options.lost_events,
            ..matched.counts(from)
        },
        measured_ccdf,
        ideal_ccdf,
        evidence: verdict::ServerEvidence {
            faster_than_ideal,
            unsupported,
            late_events: matched.late_events,
            unexplained: matched.client.map_or(0, |client| client.unexplained),
        },
    })
}
