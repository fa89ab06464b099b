//! Figures 1 to 4 of *Tales of the Tail* as data: what to simulate, and what the paper
//! says about it.
//!
//! Source: Li, Sharma, Ports and Gribble 2014, UW-CSE14-04-01, section 2 (requests of
//! 50 µs each); remarks on the same figures by one of the authors in public ("the
//! author's thread"). Statements are in our words, numbers are theirs. Where a figure
//! shows more than its text tells, the curves are our choice and a note says so.

mod figures;

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
    /// Which figure.
    pub figure: Figure,
    /// What it shows.
    pub title: &'static str,
    /// The curves, in the order of the legend; claims name them by index.
    pub curves: Vec<Curve>,
    /// Whether the figure has a recorded trace as well, to be scaled to this utilisation.
    pub trace_utilization: Option<f64>,
    /// What the paper says.
    pub claims: Vec<Claim>,
    /// Where our curves are not the paper's.
    pub note: Option<&'static str>,
}

/// One curve: a system to simulate, always with [`SERVICE_TIME`].
#[derive(Clone, Debug)]
pub struct Curve {
    /// For the legend.
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
        /// The probability.
        q: f64,
    },
    /// A quantile of one curve over a quantile of another.
    Ratio {
        /// Curve and probability of the numerator.
        over: (usize, f64),
        /// Curve and probability of the denominator.
        under: (usize, f64),
    },
    /// The smallest of the other curves' quantiles over this curve's: above 1 when this
    /// curve is the best.
    LeadOverOthers {
        /// Index of the curve.
        curve: usize,
        /// The probability.
        q: f64,
    },
    /// The smallest factor from one of the first `curves` curves to the next: above 1
    /// when the quantile rises all the way.
    SmallestStep {
        /// How many curves.
        curves: usize,
        /// The probability.
        q: f64,
    },
    /// The largest such factor: below 1 when the quantile falls all the way.
    LargestStep {
        /// How many curves.
        curves: usize,
        /// The probability.
        q: f64,
    },
}

/// What the paper says the number is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected {
    /// `value`, give or take `relative` of it.
    About {
        /// The paper's number.
        value: f64,
        /// The relative tolerance, for the rounding of the paper's number.
        relative: f64,
    },
    /// More than this.
    Above(f64),
    /// Less than this.
    Below(f64),
}

/// A statement of the paper that can be checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The statement, in our words.
    pub statement: &'static str,
    /// Where in the paper, or in the author's thread.
    pub source: &'static str,
    /// How our number is computed.
    pub measure: Measure,
    /// The paper's number.
    pub expected: Expected,
    /// Why exact theory disagrees with the statement, where it does.
    pub known_disagreement: Option<&'static str>,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Our number is the paper's.
    Agrees,
    /// It is not, and exact theory is on our side: see the claim's explanation.
    DisagreesAsKnown,
    /// It is not.
    Disagrees,
    /// A quantile is missing.
    NotMeasured,
}

impl Measure {
    /// The number, from a function that gives a curve's quantile in microseconds, or
    /// `None` where a quantile is missing.
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
    /// Whether `ours` is what the paper says.
    pub fn holds(&self, ours: f64) -> bool {
        match *self {
            Self::About { value, relative } => (ours / value - 1.0).abs() <= relative,
            Self::Above(bound) => ours > bound,
            Self::Below(bound) => ours < bound,
        }
    }
}

impl Claim {
    /// The verdict on our number.
    pub fn judge(&self, ours: Option<f64>) -> Verdict {
        match ours {
            None => Verdict::NotMeasured,
            Some(ours) if self.expected.holds(ours) => Verdict::Agrees,
            Some(_) if self.known_disagreement.is_some() => Verdict::DisagreesAsKnown,
            Some(_) => Verdict::Disagrees,
        }
    }
}

impl Figure {
    /// All figures of section 2.
    pub const ALL: [Self; 4] = [Self::Fig1, Self::Fig2, Self::Fig3, Self::Fig4];

    /// What to simulate and what to check.
    pub fn specification(self) -> Specification {
        match self {
            Self::Fig1 => figures::arrival_processes(),
            Self::Fig2 => figures::utilisation(),
            Self::Fig3 => figures::workers(),
            Self::Fig4 => figures::disciplines(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::figures::curve;
    use super::*;
    use taillab_queueing::exact::{ExactModel, Mmc, MmcReordered, System};

    /// The exact quantile where theory has one; simulated elsewhere (95 M requests each,
    /// `tests/reference/discipline_sim.csv`) for LIFO and random request in M/D/4.
    fn quantile_us(curve: &Curve, q: f64) -> Option<f64> {
        let system = System::new(
            &curve.arrivals,
            &curve.service(),
            curve.workers,
            &curve.discipline,
            curve.utilization,
        );
        if let Some(exact) = ExactModel::of(&system).unwrap() {
            return Some(exact.sojourn_quantile_s(q)? * 1e6);
        }
        let row = match (&curve.discipline, &curve.arrivals) {
            (_, ArrivalProcess::Deterministic) => [50.0; 3],
            (Discipline::Lifo, _) => [51.7927, 352.1673, 966.7929],
            (Discipline::RandomRequest, _) => [53.7447, 235.6334, 427.2903],
            _ => return None,
        };
        let column = [0.5, 0.99, 0.999].iter().position(|&x| x == q)?;
        Some(row[column])
    }

    #[test]
    fn exact_theory_agrees_with_the_paper_except_where_it_is_said_not_to() {
        let mut checked = 0;
        for figure in Figure::ALL {
            let specification = figure.specification();
            let curves = &specification.curves;
            for claim in &specification.claims {
                let ours = claim
                    .measure
                    .evaluate(curves.len(), |i, q| quantile_us(&curves[i], q));
                let wanted = match claim.known_disagreement {
                    Some(_) => Verdict::DisagreesAsKnown,
                    None => Verdict::Agrees,
                };
                assert_eq!(claim.judge(ours), wanted, "{figure}: {ours:?} {claim:?}");
                checked += 1;
            }
        }
        assert_eq!(checked, 5 + 5 + 3 + 8);
    }

    #[test]
    fn the_explanations_state_what_theory_gives() {
        let at = |utilization, q| quantile_us(&curve("", 1, utilization), q).unwrap();
        let factor = |q| (at(0.95, q) / at(0.7, q) * 10.0).round() / 10.0;
        assert_eq!((factor(0.9), factor(0.999)), (5.7, 6.3));
        let fifo = quantile_us(&curve("", 4, 0.8), 0.5).unwrap();
        assert_eq!((fifo * 10.0).round() / 10.0, 56.9);
        // the paper's pair of medians, to the microsecond, from exponential service
        let fifo = Mmc::new(4, 0.785).unwrap();
        let lifo = MmcReordered::last_in_first_out(4, 0.785).unwrap();
        assert_eq!(
            (50.0 * fifo.sojourn_upper_quantile_services(0.5)).round(),
            64.0
        );
        assert_eq!(
            (50.0 * lifo.sojourn_upper_quantile_services(0.5)).round(),
            50.0
        );
    }

    #[test]
    fn specifications_name_their_figures() {
        for figure in Figure::ALL {
            assert_eq!(figure.specification().figure, figure);
        }
    }

    #[test]
    fn a_missing_quantile_gives_no_verdict() {
        for figure in Figure::ALL {
            for claim in figure.specification().claims {
                let ours = claim.measure.evaluate(4, |_, _| None);
                assert_eq!(claim.judge(ours), Verdict::NotMeasured);
            }
        }
    }
}
