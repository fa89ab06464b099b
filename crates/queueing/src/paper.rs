//! Figures 1 to 4 of *Tales of the Tail* as data: what to simulate, and what the paper
//! says about it.
//!
//! Source: Li, Sharma, Ports and Gribble 2014, UW-CSE14-04-01, section 2 (requests of
//! 50 µs each); remarks on the same figures by one of the authors in public ("the
//! author's thread"). Statements are in our words, numbers are theirs. Where a figure
//! shows more than its text tells, the curves are our choice and a note says so.

use std::fmt;
use std::str::FromStr;

use taillab_model::Nanos;

use crate::arrivals::ArrivalProcess;
use crate::discipline::Discipline;
use crate::service::Service;

/// The service time of every request in section 2.
pub const SERVICE_TIME: Nanos = Nanos::from_micros(50);

/// A number printed as "10x" or "4x": a factor rounded to a digit or so.
const ROUND_FACTOR: f64 = 0.15;
/// A time printed as "about 200 us".
const ROUND_TIME: f64 = 0.10;

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

/// A name that is no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no figure of the paper's section 2; choose fig1, fig2, fig3 or fig4")]
pub struct UnknownFigure(String);

impl FromStr for Figure {
    type Err = UnknownFigure;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|figure| figure.to_string() == text)
            .ok_or_else(|| UnknownFigure(text.to_owned()))
    }
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
    /// Where it stands.
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
            Self::Fig1 => arrival_processes(),
            Self::Fig2 => utilisation(),
            Self::Fig3 => workers(),
            Self::Fig4 => disciplines(),
        }
    }
}

fn curve(label: impl Into<String>, workers: u32, utilization: f64) -> Curve {
    Curve {
        label: label.into(),
        arrivals: ArrivalProcess::Poisson,
        workers,
        utilization,
        discipline: Discipline::Fifo,
    }
}

fn claim(
    source: &'static str,
    statement: &'static str,
    measure: Measure,
    expected: Expected,
) -> Claim {
    Claim {
        statement,
        source,
        measure,
        expected,
        known_disagreement: None,
    }
}

const fn about(value: f64, relative: f64) -> Expected {
    Expected::About { value, relative }
}

const THREAD: &str = "the author's thread";

fn arrival_processes() -> Specification {
    let arrivals = |label: &str, arrivals| Curve {
        arrivals,
        ..curve(label, 1, 0.7)
    };
    let poisson = |q| Measure::QuantileUs { curve: 2, q };
    Specification {
        figure: Figure::Fig1,
        title: "Arrival processes: one worker, 50 µs per request, 70 % utilisation",
        curves: vec![
            arrivals("uniform", ArrivalProcess::Deterministic),
            arrivals("Erlang, 4 stages", ArrivalProcess::Erlang { stages: 4 }),
            arrivals("Poisson", ArrivalProcess::Poisson),
            arrivals("lognormal, CV 2", ArrivalProcess::Lognormal { cv: 2.0 }),
        ],
        trace_utilization: Some(0.7),
        claims: vec![
            claim(
                "section 2.1",
                "uniformly spaced requests never wait: there is no tail",
                Measure::Ratio {
                    over: (0, 0.999),
                    under: (0, 0.5),
                },
                about(1.0, 1e-9),
            ),
            claim(
                "section 2.1",
                "random arrivals make a tail although every request takes the same time \
                 (p99 over the service time)",
                Measure::Ratio {
                    over: (2, 0.99),
                    under: (0, 0.5),
                },
                Expected::Above(1.0),
            ),
            claim(
                THREAD,
                "p90 is about 200 µs",
                poisson(0.9),
                about(200.0, ROUND_TIME),
            ),
            claim(
                THREAD,
                "p99 is about 400 µs",
                poisson(0.99),
                about(400.0, ROUND_TIME),
            ),
            claim(
                THREAD,
                "p99.9 is about 600 µs",
                poisson(0.999),
                about(600.0, ROUND_TIME),
            ),
        ],
        note: Some(
            "The text names the uniform process and a recorded trace of Wikipedia; the other \
             processes are our choice. The trace is not part of taillab: give one with --trace.",
        ),
    }
}

fn utilisation() -> Specification {
    let percent = [50_u32, 60, 70, 80, 90, 95];
    let (at_50, at_70, at_95) = (0, 2, 5);
    let from_70 = |statement, q| Claim {
        known_disagreement: Some(
            "a factor of ten is what lies between 50 % and 95 %; from 70 % to 95 % exact M/D/1 \
             gives 5.7 (p90) to 6.3 (p99.9)",
        ),
        ..claim(
            THREAD,
            statement,
            Measure::Ratio {
                over: (at_95, q),
                under: (at_70, q),
            },
            about(10.0, ROUND_FACTOR),
        )
    };
    Specification {
        figure: Figure::Fig2,
        title: "Utilisation: one worker, Poisson arrivals, 50 µs per request",
        curves: percent
            .iter()
            .map(|&u| curve(format!("{u} %"), 1, f64::from(u) / 100.0))
            .collect(),
        trace_utilization: None,
        claims: vec![
            claim(
                "section 2.2",
                "p99 rises with every step in utilisation (smallest factor)",
                Measure::SmallestStep {
                    curves: percent.len(),
                    q: 0.99,
                },
                Expected::Above(1.0),
            ),
            claim(
                "section 2.2",
                "p99 is ten times larger at 95 % than at 50 %",
                Measure::Ratio {
                    over: (at_95, 0.99),
                    under: (at_50, 0.99),
                },
                about(10.0, ROUND_FACTOR),
            ),
            from_70("p90 is about ten times larger at 95 % than at 70 %", 0.9),
            from_70("p99 is about ten times larger at 95 % than at 70 %", 0.99),
            from_70(
                "p99.9 is about ten times larger at 95 % than at 70 %",
                0.999,
            ),
        ],
        note: Some("The text names 50 % and 95 %; the steps between are our choice."),
    }
}

fn workers() -> Specification {
    let counts = [1_u32, 2, 4, 8];
    let mut curves: Vec<Curve> = counts
        .iter()
        .map(|&c| {
            curve(
                if c == 1 {
                    "1 worker".to_owned()
                } else {
                    format!("{c} workers")
                },
                c,
                0.7,
            )
        })
        .collect();
    curves.push(Curve {
        discipline: Discipline::RandomWorker,
        ..curve("8 workers, a queue each", 8, 0.7)
    });
    let (one, eight, own_queues) = (0, 3, 4);
    Specification {
        figure: Figure::Fig3,
        title: "Workers on one queue: Poisson arrivals, 50 µs per request, 70 % utilisation",
        curves,
        trace_utilization: None,
        claims: vec![
            claim(
                "section 2.3",
                "p99 falls with every doubling of the workers (largest factor)",
                Measure::LargestStep {
                    curves: counts.len(),
                    q: 0.99,
                },
                Expected::Below(1.0),
            ),
            claim(
                "section 2.3",
                "p99 is four times smaller with 8 workers than with 1",
                Measure::Ratio {
                    over: (one, 0.99),
                    under: (eight, 0.99),
                },
                about(4.0, ROUND_FACTOR),
            ),
            claim(
                "section 2.3",
                "with a queue each, 8 workers are no better than 1 (ratio of p99)",
                Measure::Ratio {
                    over: (own_queues, 0.99),
                    under: (one, 0.99),
                },
                about(1.0, 0.05),
            ),
        ],
        note: Some(
            "The text names 1 and 8 workers and doublings from 1; the curve of 8 workers with a \
             queue each is ours, for the statement about it.",
        ),
    }
}

fn disciplines() -> Specification {
    let discipline = |label: &str, discipline| Curve {
        discipline,
        ..curve(label, 4, 0.8)
    };
    let (fifo, lifo, random_request, random_worker) = (0, 1, 2, 3);
    let ratio = |over, under, q| Measure::Ratio {
        over: (over, q),
        under: (under, q),
    };
    let above = Expected::Above(1.0);
    let median = |statement, curve, value| Claim {
        known_disagreement: Some(
            "exact M/D/4 at 80 % has the median 56.9 µs under FIFO, and simulation gives 51.8 µs \
             under LIFO; the paper's pair is that of exponential service (M/M/4) near 78.5 %",
        ),
        ..claim(
            "section 2.4",
            statement,
            Measure::QuantileUs { curve, q: 0.5 },
            // printed to the microsecond
            about(value, 0.5 / value),
        )
    };
    let source = "section 2.4";
    Specification {
        figure: Figure::Fig4,
        title: "Queueing disciplines: 4 workers, Poisson arrivals, 50 µs per request, 80 % utilisation",
        curves: vec![
            discipline("FIFO", Discipline::Fifo),
            discipline("LIFO", Discipline::Lifo),
            discipline("random request", Discipline::RandomRequest),
            discipline("random worker", Discipline::RandomWorker),
        ],
        trace_utilization: None,
        claims: vec![
            claim(
                source,
                "FIFO has the best tail: the next p99.9 over its own",
                Measure::LeadOverOthers {
                    curve: fifo,
                    q: 0.999,
                },
                above,
            ),
            claim(
                source,
                "LIFO's p99 is worse than FIFO's",
                ratio(lifo, fifo, 0.99),
                above,
            ),
            claim(
                source,
                "LIFO's median is better than FIFO's",
                ratio(fifo, lifo, 0.5),
                above,
            ),
            claim(
                source,
                "random request: p99 worse than FIFO's",
                ratio(random_request, fifo, 0.99),
                above,
            ),
            claim(
                source,
                "random worker: p99 worse than FIFO's",
                ratio(random_worker, fifo, 0.99),
                above,
            ),
            claim(
                source,
                "random request: median better than FIFO's",
                ratio(fifo, random_request, 0.5),
                above,
            ),
            median("LIFO's median is 50 µs", lifo, 50.0),
            median("FIFO's median is 64 µs", fifo, 64.0),
        ],
        note: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::{ExactModel, System};

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
    }

    #[test]
    fn names_are_read_back() {
        for figure in Figure::ALL {
            assert_eq!(figure.to_string().parse(), Ok(figure));
            assert_eq!(figure.specification().figure, figure);
        }
        let error = "fig9".parse::<Figure>().unwrap_err();
        assert!(error.to_string().contains("fig1"), "{error}");
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
