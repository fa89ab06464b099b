//! How often the intervals that a simulation shows contain the exact quantile: the table in docs/notes/intervals.md,
//! which `--nocapture` prints.

use std::num::{NonZeroU32, NonZeroUsize};

use taillab_model::REPORTED_QUANTILES;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::exact::{ExactModel, System};
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::{Simulation, Stop};

const SEEDS: u64 = 300;

/// What the runs of one system say about a quantile.
struct Cell {
    /// How many show it.
    shown: u64,
    /// How many of these have an interval that contains it, and without an upper end.
    contained: u64,
    open: u64,
}

fn exact(simulation: &Simulation) -> ExactModel {
    let system = System::new(
        &simulation.arrivals,
        &simulation.service,
        simulation.workers.get(),
        &simulation.discipline,
        simulation.utilization,
    );
    ExactModel::of(&system).unwrap().unwrap()
}

/// Runs with 300 seeds, of 100,000 requests each.
fn cells(service: &str, workers: NonZeroU32, utilization: f64) -> Vec<(f64, Cell)> {
    let simulation = |seed| Simulation {
        stop: Stop::Requests(100_000),
        seed,
        threads: NonZeroUsize::new(1),
        ..Simulation::new(
            ArrivalProcess::Poisson,
            service.parse().unwrap(),
            workers,
            utilization,
            "fifo".parse().unwrap(),
        )
    };
    let model = exact(&simulation(0));
    let samples: Vec<Sample> = (1..=SEEDS)
        .map(|seed| simulation(seed).run().unwrap().sojourn)
        .collect();
    let cell = |q: f64| {
        let truth_ns = model.sojourn_quantile_s(q).unwrap() * 1e9;
        let mut cell = Cell {
            shown: 0,
            contained: 0,
            open: 0,
        };
        for found in samples.iter().filter_map(|sample| sample.quantile(q)) {
            cell.shown += 1;
            // a service time that everybody has is known to the last bit only
            let is_within =
                found.lo_ns <= truth_ns * 1.000_001 && truth_ns <= found.hi_ns * 1.000_001;
            cell.contained += u64::from(is_within);
            cell.open += u64::from(found.hi_ns.is_infinite());
        }
        cell
    };
    REPORTED_QUANTILES.iter().map(|q| (*q, cell(*q))).collect()
}

#[track_caller]
fn assert_holds(name: &str, q: f64, cell: &Cell) {
    let share = cell.contained as f64 / cell.shown as f64;
    println!(
        "{name} {q}: shown {}, holds {share:.3}, open {}",
        cell.shown, cell.open
    );
    assert!(cell.shown == 0 || cell.shown == SEEDS, "{name} {q}");
    assert!(cell.shown == 0 || share >= 0.93, "{name} {q}: {share}");
}

/// Whether a quantile is shown does not depend on the seed, and where it is, its interval holds.
#[test]
fn what_is_shown_holds_with_every_seed_or_with_none() {
    for (name, service, workers) in [
        ("M/M/1", "exponential:50us", 1),
        ("M/D/1", "deterministic:50us", 1),
        ("M/M/4", "exponential:50us", 4),
        ("M/D/4", "deterministic:50us", 4),
    ] {
        let workers = NonZeroU32::new(workers).unwrap();
        for utilization in [0.5, 0.8, 0.9] {
            for (q, cell) in cells(service, workers, utilization) {
                assert_holds(&format!("{name} {utilization}"), q, &cell);
            }
        }
    }
}
