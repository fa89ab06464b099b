//! The curves and the claims of each figure.

use super::claim::{Claim, Curve, Expected, Figure, Measure, Specification};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::discipline::Discipline;

/// A number printed as "10x" or "4x": a factor rounded to a digit or so.
const ROUND_FACTOR: f64 = 0.15;
/// A time printed as "about 200 us".
const ROUND_TIME: f64 = 0.10;

pub(super) fn curve(label: impl Into<String>, workers: u32, utilization: f64) -> Curve {
    Curve {
        label: label.into(),
        arrivals: ArrivalProcess::Poisson,
        workers,
        utilization,
        discipline: Discipline::Fifo,
    }
}

const fn about(value: f64, relative: f64) -> Expected {
    Expected::About { value, relative }
}

/// The quantile at `q` of one curve ÷ that of another.
const fn ratio(over: usize, under: usize, q: f64) -> Measure {
    Measure::Ratio {
        over: (over, q),
        under: (under, q),
    }
}

const ABOVE_1: Expected = Expected::Above(1.0);
const THREAD: &str = "the author's thread";

pub(super) fn arrival_processes() -> Specification {
    let arrivals = |label: &str, arrivals| Curve {
        arrivals,
        ..curve(label, 1, 0.7)
    };
    let poisson = |statement, q, value_us| {
        let measure = Measure::QuantileUs { curve: 2, q };
        Claim::new(THREAD, statement, measure, about(value_us, ROUND_TIME))
    };
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
            Claim::new(
                "section 2.1",
                "uniformly spaced requests never wait: there is no tail",
                Measure::Ratio {
                    over: (0, 0.999),
                    under: (0, 0.5),
                },
                about(1.0, 1e-9),
            ),
            Claim::new(
                "section 2.1",
                "random arrivals create a tail even though every request takes the same time \
                 (p99 over the service time)",
                Measure::Ratio {
                    over: (2, 0.99),
                    under: (0, 0.5),
                },
                ABOVE_1,
            ),
            poisson("p90 is about 200 µs", 0.9, 200.0),
            poisson("p99 is about 400 µs", 0.99, 400.0),
            poisson("p99.9 is about 600 µs", 0.999, 600.0),
        ],
        note: Some(
            "The text names the uniform process and a recorded trace of Wikipedia; the other \
             processes are our choice. The trace is not part of taillab: give one with --trace.",
        ),
    }
}

pub(super) fn utilisation() -> Specification {
    let percent = [50_u32, 60, 70, 80, 90, 95];
    let (at_50, at_70, at_95) = (0, 2, 5);
    let from_70 = |statement, q| Claim {
        known_disagreement: Some(
            "the factor is ten between 50 % and 95 %; from 70 % to 95 % exact M/D/1 gives 5.7 (p90) \
             to 6.3 (p99.9)",
        ),
        ..Claim::new(
            THREAD,
            statement,
            ratio(at_95, at_70, q),
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
            Claim::new(
                "section 2.2",
                "p99 rises with every step in utilisation (smallest factor)",
                Measure::SmallestStep {
                    curves: percent.len(),
                    q: 0.99,
                },
                ABOVE_1,
            ),
            Claim::new(
                "section 2.2",
                "p99 is ten times larger at 95 % than at 50 %",
                ratio(at_95, at_50, 0.99),
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

pub(super) fn workers() -> Specification {
    let counts = [1_u32, 2, 4, 8];
    let labels = ["1 worker", "2 workers", "4 workers", "8 workers"];
    let mut curves: Vec<Curve> = (labels.into_iter().zip(counts))
        .map(|(label, count)| curve(label, count, 0.7))
        .collect();
    curves.push(Curve {
        discipline: Discipline::RandomWorker,
        ..curve("8 workers, one queue each", 8, 0.7)
    });
    let (one, eight, own_queues) = (0, 3, 4);
    Specification {
        figure: Figure::Fig3,
        title: "Workers on one queue: Poisson arrivals, 50 µs per request, 70 % utilisation",
        curves,
        trace_utilization: None,
        claims: vec![
            Claim::new(
                "section 2.3",
                "p99 falls with every doubling of the workers (largest factor)",
                Measure::LargestStep {
                    curves: counts.len(),
                    q: 0.99,
                },
                Expected::Below(1.0),
            ),
            Claim::new(
                "section 2.3",
                "p99 is four times smaller with 8 workers than with 1",
                ratio(one, eight, 0.99),
                about(4.0, ROUND_FACTOR),
            ),
            Claim::new(
                "section 2.3",
                "with one queue each, 8 workers are no better than 1 (ratio of p99)",
                ratio(own_queues, one, 0.99),
                about(1.0, 0.05),
            ),
        ],
        note: Some(
            "The text names 1 and 8 workers and doublings from 1; the curve of 8 workers with one \
             queue each is ours, for the statement about it.",
        ),
    }
}

pub(super) fn disciplines() -> Specification {
    let discipline = |label: &str, discipline| Curve {
        discipline,
        ..curve(label, 4, 0.8)
    };
    let (fifo, lifo, random_request, random_worker) = (0, 1, 2, 3);
    let median = |statement, curve, value| Claim {
        known_disagreement: Some(
            "exact M/D/4 at 80 % has the median 56.9 µs under FIFO, and simulation gives 51.8 µs \
             under LIFO; the paper's pair is that of exponential service (M/M/4) near 78.5 %",
        ),
        ..Claim::new(
            "section 2.4",
            statement,
            Measure::QuantileUs { curve, q: 0.5 },
            // printed to the microsecond
            about(value, 0.5 / value),
        )
    };
    let above = |statement, measure| Claim::new("section 2.4", statement, measure, ABOVE_1);
    let best_tail = Measure::LeadOverOthers {
        curve: fifo,
        q: 0.999,
    };
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
            above(
                "FIFO has the best tail: the next p99.9 over its own",
                best_tail,
            ),
            above("LIFO's p99 is worse than FIFO's", ratio(lifo, fifo, 0.99)),
            above(
                "LIFO's median is better than FIFO's",
                ratio(fifo, lifo, 0.5),
            ),
            above(
                "random request: p99 worse than FIFO's",
                ratio(random_request, fifo, 0.99),
            ),
            above(
                "random worker: p99 worse than FIFO's",
                ratio(random_worker, fifo, 0.99),
            ),
            above(
                "random request: median better than FIFO's",
                ratio(fifo, random_request, 0.5),
            ),
            median("LIFO's median is 50 µs", lifo, 50.0),
            median("FIFO's median is 64 µs", fifo, 64.0),
        ],
        note: None,
    }
}
