//! What all verdicts have in common: their shape, and what holds for every measurement.

use std::fmt::{self, Display};

use taillab_model::summary::Verdict;

use crate::verdict::Unsupported;
use crate::words::Percentile;

/// Why a measurement cannot be believed, and what else should be known.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement<Invalid, Warning> {
    /// Empty when it is valid.
    pub invalid: Vec<Invalid>,
    /// In the order of weight.
    pub warnings: Vec<Warning>,
}

impl<Invalid, Warning> Default for Judgement<Invalid, Warning> {
    fn default() -> Self {
        Self {
            invalid: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl<Invalid: Display, Warning: Display> From<&Judgement<Invalid, Warning>> for Verdict {
    fn from(judgement: &Judgement<Invalid, Warning>) -> Self {
        Self {
            valid: judgement.invalid.is_empty(),
            reasons: judgement.invalid.iter().map(ToString::to_string).collect(),
            warnings: judgement.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What a reader should know of every measurement.
#[derive(Clone, Debug, PartialEq)]
pub enum GeneralWarning {
    /// A percentile cannot be told.
    Unsupported {
        /// Which.
        q: f64,
        /// Requests it needs, about.
        needs: u64,
        /// Requests there are.
        has: u64,
    },
    /// The machine is virtual.
    Virtual {
        /// The hypervisor.
        hypervisor: String,
    },
}

/// Those of a measurement of `has` requests.
pub(crate) fn general_warnings(
    unsupported: &[Unsupported],
    has: u64,
    hypervisor: Option<&String>,
) -> Vec<GeneralWarning> {
    // The percentiles beyond the first need still more.
    let unsupported = unsupported
        .first()
        .map(|first| GeneralWarning::Unsupported {
            q: first.q,
            needs: first.needs,
            has,
        });
    let machine = hypervisor.map(|hypervisor| GeneralWarning::Virtual {
        hypervisor: hypervisor.clone(),
    });
    unsupported.into_iter().chain(machine).collect()
}

impl Display for GeneralWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { q, needs, has } => write!(
                f,
                "{} and what lies beyond is not known: it needs about {needs} requests as correlated as these, and there are {has}; measure for longer (-d)",
                Percentile(*q)
            ),
            Self::Virtual { hypervisor } => write!(
                f,
                "this is a virtual machine ({hypervisor}): the hypervisor can take a CPU away and no count in the guest shows it; repeat on bare metal what must hold there"
            ),
        }
    }
}
