//! Two blocks under the same arrivals, one with the injection and one without.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_model::explanation::Cause;

use super::block::Block;
use super::setup::{Oracle, Setup};

/// One pair of blocks under the same arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PairResult {
    /// Whether the block with the injection came first.
    pub with_first: bool,
    /// By how many nanoseconds longer the client waited in the block with the injection, over all
    /// requests.
    pub delay_ns: f64,
    /// By how many nanoseconds more were charged there to the right cause and culprit; of
    /// `generator`, to anything.
    pub charged_ns: f64,
    /// The larger share of CPU time that the hypervisor took in one of the blocks.
    pub stolen_share: f64,
    /// The larger share of a block for which the generator was late.
    pub late_share: f64,
    /// Whether one of these is above what is allowed.
    pub contaminated: bool,
}

/// Two blocks under the same arrivals.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// The block with the injection.
    pub with: Block,
    /// The block without.
    pub without: Block,
}

impl Pair {
    /// Delay and charge.
    pub(super) fn result(&self, setup: &Setup) -> PairResult {
        let (with, without) = (&self.with.truth.client, &self.without.truth.client);
        let sources = setup.sources(&self.with.truth.injected);
        let charged = |block: &Block| match setup.oracle {
            Oracle::Outside => block.excess(),
            _ => block.charged_to_all(&sources),
        };
        // it is late by what is injected
        let is_contaminated = with.is_contaminated() && setup.oracle != Oracle::Outside;
        PairResult {
            with_first: self.with.began < self.without.began,
            delay_ns: with.longer_than(without),
            charged_ns: charged(&self.with) - charged(&self.without),
            stolen_share: with.stolen_share.max(without.stolen_share),
            late_share: with.late_share.max(without.late_share),
            contaminated: is_contaminated || without.is_contaminated(),
        }
    }

    /// By how much more is charged to a cause with the injection than without.
    pub(super) fn change_of(&self, cause: Cause) -> f64 {
        self.with.charged_to(cause) - self.without.charged_to(cause)
    }

    /// The mean excess of the two blocks.
    pub(super) fn excess(&self) -> f64 {
        f64::midpoint(self.with.excess(), self.without.excess())
    }
}
