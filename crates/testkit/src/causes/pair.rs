//! Two blocks under the same arrivals, one with the injection and one without.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_load::ground_truth::InjectedSource;
use taillab_model::explanation::Cause;

use super::block::Block;
use super::criteria::MOST_CONTAMINATED;
use super::kind::Oracle;
use super::setup::Setup;

/// One pair of blocks under the same arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PairResult {
    /// Whether the block with the injection came first.
    pub with_first: bool,
    /// By how many nanoseconds longer the client waited in the block with the injection, over all
    /// requests; of `slow-reader`, for how long its own requests waited by its log.
    pub delay_ns: f64,
    /// By how many nanoseconds more were charged there to the right cause and culprit; of
    /// `generator`, to anything.
    pub charged_ns: f64,
    /// The same of each of several things that were injected: the delay is divided as their own times
    /// say. Empty where there is one.
    pub by_source: Vec<SourceResult>,
    /// The larger share of CPU time that the hypervisor took in one of the blocks.
    pub stolen_share: f64,
    /// The larger share of a block for which the generator was late.
    pub late_share: f64,
    /// Whether one of these is above what is allowed.
    pub contaminated: bool,
}

/// One of several things that were injected into a block.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SourceResult {
    /// The right cause.
    pub cause: Cause,
    /// Its part of the delay, in nanoseconds.
    pub delay_ns: f64,
    /// By how many nanoseconds more were charged to that cause and its culprit.
    pub charged_ns: f64,
}

/// Two blocks under the same arrivals.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// The block with the injection.
    pub with: Block,
    /// The block without it.
    pub without: Block,
}

impl Pair {
    /// Compares the client's delay with what is charged.
    pub(super) fn result(&self, setup: &Setup) -> PairResult {
        let (with, without) = (&self.with.truth.client, &self.without.truth.client);
        let sources = setup.sources(&self.with.truth.injected);
        let charged = |block: &Block| match setup.oracle {
            Oracle::Outside => block.excess(),
            _ => block.charged_to_all(&sources),
        };
        let is_contaminated = match setup.oracle {
            // there the injection itself makes the generator late
            Oracle::Outside => with.stolen_share > MOST_CONTAMINATED,
            _ => with.is_contaminated(),
        };
        let delay_ns = match setup.oracle {
            Oracle::Log => self.with.begun_ns,
            _ => with.longer_than(without),
        };
        PairResult {
            by_source: self.by_source(&sources, delay_ns),
            with_first: self.with.began < self.without.began,
            delay_ns,
            charged_ns: charged(&self.with) - charged(&self.without),
            stolen_share: with.stolen_share.max(without.stolen_share),
            late_share: with.late_share.max(without.late_share),
            contaminated: is_contaminated || without.is_contaminated(),
        }
    }

    /// Delay and charge of each of several sources. The client's delay is divided in proportion to
    /// their costs by their own stamps.
    fn by_source(&self, sources: &[InjectedSource], delay_ns: f64) -> Vec<SourceResult> {
        let costs = &self.with.costs_ns;
        let all: f64 = costs.iter().sum();
        if sources.len() < 2 || costs.len() != sources.len() || all == 0.0 {
            return Vec::new();
        }
        let of = |(source, cost): (&InjectedSource, &f64)| {
            let only = std::slice::from_ref(source);
            SourceResult {
                cause: source.cause,
                delay_ns: delay_ns * cost / all,
                charged_ns: self.with.charged_to_all(only) - self.without.charged_to_all(only),
            }
        };
        sources.iter().zip(costs).map(of).collect()
    }

    /// By how much more is charged to a cause with the injection than without.
    pub(super) fn change_of(&self, cause: Cause) -> f64 {
        self.with.charged_to(cause) - self.without.charged_to(cause)
    }

    /// By how much longer the second ideal takes with the injection, over all requests, in nanoseconds; `None` where it is
    /// not known.
    pub(super) fn longer_ideal(&self) -> Option<f64> {
        Some(self.with.own_work_ns? - self.without.own_work_ns?)
    }

    /// By how much more slow requests cost themselves and others with the injection, in nanoseconds; `None` where nothing
    /// is told.
    pub(super) fn longer_shadow(&self) -> Option<f64> {
        Some(self.with.shadow_ns? - self.without.shadow_ns?)
    }

    /// The mean excess of the two blocks.
    pub(super) fn excess(&self) -> f64 {
        f64::midpoint(self.with.excess(), self.without.excess())
    }
}
