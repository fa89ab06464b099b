//! What findings are drawn from, and how figures read in them.

use taillab_model::explanation::{
    Cause, CauseShare, Clustering, Inversions, ModelFit, Prediction, TakenByHypervisor, WorkerShare,
};
use taillab_model::summary::{Matching, Overload, Withdrawn};
use taillab_model::{Distribution, Nanos};

use crate::fmt::Percentile;

/// What the findings are drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The measured sojourn.
    pub sojourn: &'a Distribution,
    /// The same arrivals through the ideal queue.
    pub ideal: &'a Distribution,
    /// Why the server is not compared with the ideal; then there is none, and no cause.
    pub withdrawn: Option<Withdrawn>,
    /// Work came faster than it was done.
    pub overload: Option<Overload>,
    /// The causes of the excess, and their culprits.
    pub causes: &'a [CauseShare],
    /// Forecasts.
    pub predictions: &'a [Prediction],
    /// How well the replay fits; `None` where there was none.
    pub model_fit: Option<&'a ModelFit>,
    /// Whether slow requests come together.
    pub clustering: Option<&'a Clustering>,
    /// What the hypervisor took of the server's CPUs.
    pub hypervisor: Option<&'a TakenByHypervisor>,
    /// The workers.
    pub workers: &'a [WorkerShare],
    /// Who overtook whom.
    pub inversions: &'a Inversions,
    /// How well events and requests joined.
    pub matching: &'a Matching,
    /// Interrupts, softirqs and wake-ups were recorded.
    pub disturbances: bool,
}

/// A share of the excess above p99 from which on a cause is worth a sentence.
pub(super) const NOTABLE: f64 = 0.05;

/// A percentile, measured and ideal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) q: f64,
    pub(super) measured: Nanos,
    pub(super) ideal: Nanos,
}

impl Facts<'_> {
    /// The highest percentile up to p99.9 that both distributions support.
    pub(super) fn tail(&self) -> Option<Tail> {
        [0.999, 0.99, 0.9, 0.5].into_iter().find_map(|q| {
            Some(Tail {
                q,
                measured: self.sojourn.quantile(q)?,
                ideal: self.ideal.quantile(q)?,
            })
        })
    }

    /// The cause as a whole.
    fn whole(&self, cause: Cause) -> Option<&CauseShare> {
        let mut wholes = self.causes.iter().filter(|share| share.culprit.is_none());
        wholes.find(|share| share.cause == cause)
    }

    /// A cause's share of the excess above p99.
    pub(super) fn share_above_p99(&self, cause: Cause) -> f64 {
        let whole = self.whole(cause);
        whole.map_or(0.0, |share| share.excess_share_above_p99.value)
    }
}

impl std::fmt::Display for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { q, measured, ideal } = self;
        write!(f, "{} is {measured}, ideal {ideal}", Percentile(*q))
    }
}

/// `0.931` as `93 %`, `0.004` as `less than 1 %`.
pub(super) struct Whole(pub(super) f64);

impl std::fmt::Display for Whole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            share if share > 0.0 && share < 0.01 => f.write_str("less than 1 %"),
            share => write!(f, "{:.0} %", 100.0 * share),
        }
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
