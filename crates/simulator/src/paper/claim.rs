//! The parts of a figure: its curves, the paper's claims about them, and how a claim is judged.

use std::fmt;

use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::discipline::Discipline;
use taillab_queueing::service::Service;

/// The service time of every request in section 2.
pub const SERVICE_TIME: Nanos = Nanos::from_micros(50);

/// One of the paper's figures on queueing theory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Arrival processes.
    Fig1,
    /// Utilisation.
    Fig2,
    /// Workers on one queue.
    Fig3,
    /// Queueing disciplines.
    Fig4,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fig1 => "fig1",
            Self::Fig2 => "fig2",
            Self::Fig3 => "fig3",
            Self::Fig4 => "fig4",
        })
    }
}

/// A figure: its curves, and the paper's statements about them.
#[derive(Clone, Debug)]
pub struct Specification {
    /// The figure.
    pub figure: Figure,
    /// Its title.
    pub title: &'static str,
    /// The curves, in the order of the legend; claims name them by index.
    pub curves: Vec<Curve>,
    /// The utilisation to which a recorded trace is scaled, if the figure also has a trace.
    pub trace_utilization: Option<f64>,
    /// The paper's claims.
    pub claims: Vec<Claim>,
    /// How our curves differ from the paper's.
    pub note: Option<&'static str>,
}

/// One curve: a system to simulate, always with [`SERVICE_TIME`].
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its label in the legend.
    pub label: String,
    /// How requests arrive.
    pub arrivals: ArrivalProcess,
    /// The number of workers.
    pub workers: u32,
    /// The utilisation.
    pub utilization: f64,
    /// The queueing discipline.
    pub discipline: Discipline,
}

impl Curve {
    /// The service times of the curve.
    pub fn service(&self) -> Service {
        Service::deterministic(SERVICE_TIME)
    }
}

/// A number computed from the quantiles of a figure's curves.
#[derive(Clone, Debug, PartialEq)]
pub enum Measure {
    /// A quantile in microseconds.
    QuantileUs {
        /// Index of the curve.
        curve: usize,
        /// The quantile's probability, between 0 and 1.
        q: f64,
    },
    /// A quantile of one curve ÷ a quantile of another.
    Ratio {
        /// Curve and probability of the numerator.
        over: (usize, f64),
        /// Curve and probability of the denominator.
        under: (usize, f64),
    },
    /// The smallest of the other curves' quantiles ÷ this curve's: above 1 if this curve is the best.
    LeadOverOthers {
        /// Index of the curve.
        curve: usize,
        /// The quantile's probability, between 0 and 1.
        q: f64,
    },
    /// The smallest factor from one of the first `curves` curves to the next: above 1 if the quantile
    /// rises with every step.
    SmallestStep {
        /// The number of curves.
        curves: usize,
        /// The quantile's probability, between 0 and 1.
        q: f64,
    },
    /// The largest such factor: below 1 if the quantile falls with every step.
    LargestStep {
        /// The number of curves.
        curves: usize,
        /// The quantile's probability, between 0 and 1.
        q: f64,
    },
}

/// How far a number may be from [`Expected::Near`].
const NEAR: f64 = 3.0;

/// The number according to the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// `value`, give or take `relative` of it.
    About {
        /// The paper's number.
        value: f64,
        /// The relative tolerance, for the rounding of the paper's number.
        relative: f64,
    },
    /// This, within a factor of three: on another machine, the same order of magnitude.
    Near(f64),
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
}

/// A statement of a paper that can be checked; `M` selects the number of ours that is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim<M = Measure> {
    /// The statement, in our words.
    pub statement: &'static str,
    /// Where in the paper, or in the author's thread.
    pub source: &'static str,
    /// How our number is computed.
    pub measure: M,
    /// The paper's number.
    pub expected: Expected,
    /// Why exact theory disagrees with the statement, if it does.
    pub known_disagreement: Option<&'static str>,
}

/// Whether our number agrees with a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClaimVerdict {
    /// Our number agrees with the paper.
    Agrees,
    /// It disagrees, and so does exact theory: see the claim's explanation.
    DisagreesAsKnown,
    /// It disagrees.
    Disagrees,
}

impl Measure {
    /// The number; `quantile_us` gives a curve's quantile in microseconds. `None` if a quantile is missing.
    pub fn evaluate(
        &self,
        curves: usize,
        quantile_us: impl Fn(usize, f64) -> Option<f64>,
    ) -> Option<f64> {
        let steps = |count: usize, q: f64| -> Option<Vec<f64>> {
            (1..count)
                .map(|i| Some(quantile_us(i, q)? / quantile_us(i - 1, q)?))
                .collect()
        };
        match *self {
            Self::QuantileUs { curve, q } => quantile_us(curve, q),
            Self::Ratio { over, under } => {
                Some(quantile_us(over.0, over.1)? / quantile_us(under.0, under.1)?)
            }
            Self::LeadOverOthers { curve, q } => {
                let own = quantile_us(curve, q)?;
                let others: Option<Vec<f64>> = (0..curves)
                    .filter(|&i| i != curve)
                    .map(|i| quantile_us(i, q))
                    .collect();
                others?.into_iter().reduce(f64::min).map(|best| best / own)
            }
            Self::SmallestStep { curves, q } => steps(curves, q)?.into_iter().reduce(f64::min),
            Self::LargestStep { curves, q } => steps(curves, q)?.into_iter().reduce(f64::max),
        }
    }
}

impl Expected {
    /// Whether `ours` agrees with the paper.
    pub fn holds(&self, ours: f64) -> bool {
        match *self {
            Self::About { value, relative } => (ours / value - 1.0).abs() <= relative,
            Self::Near(value) => (value / NEAR..=value * NEAR).contains(&ours),
            Self::Above(bound) => ours > bound,
            Self::Below(bound) => ours < bound,
        }
    }
}

impl<M> Claim<M> {
    /// A claim with which exact theory does not disagree.
    pub const fn new(
        source: &'static str,
        statement: &'static str,
        measure: M,
        expected: Expected,
    ) -> Self {
        Self {
            statement,
            source,
            measure,
            expected,
            known_disagreement: None,
        }
    }

    /// The verdict on our number.
    pub fn judge(&self, ours: f64) -> ClaimVerdict {
        match self.known_disagreement {
            _ if self.expected.holds(ours) => ClaimVerdict::Agrees,
            Some(_) => ClaimVerdict::DisagreesAsKnown,
            None => ClaimVerdict::Disagrees,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_agree_within_the_order() {
        assert!(Expected::Near(9.0).holds(3.1) && Expected::Near(9.0).holds(26.0));
        assert!(!Expected::Near(9.0).holds(2.9) && !Expected::Near(9.0).holds(28.0));
        assert!(Expected::Below(1.0).holds(0.9) && !Expected::Below(1.0).holds(1.0));
        assert!(Expected::Above(1.0).holds(1.1) && !Expected::Above(1.0).holds(1.0));
    }
}
