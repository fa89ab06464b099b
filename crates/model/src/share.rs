//! A share with its interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A share with its interval (95 %).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// The estimate, between 0 and 1.
    pub value: f64,
    /// Lower end; `None` where the sample supports no interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
}

impl Share {
    /// Whether the share is above 0, and so is its interval, where there is one.
    pub fn is_sure(self) -> bool {
        self.value > 0.0 && self.lo.is_none_or(|lo| lo > 0.0)
    }

    /// Whether its interval contains 0, so that it may be due to chance.
    pub fn is_in_doubt(self) -> bool {
        let interval = self.lo.zip(self.hi);
        interval.is_some_and(|(lo, hi)| lo <= 0.0 && hi >= 0.0)
    }
}
