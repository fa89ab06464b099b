//! What it shows: screens, and the words below a figure.

#[macro_use]
#[path = "../../../report/tests/one_screen.rs"]
mod one_screen;

use taillab_model::{Distribution, Nanos};
use taillab_report::terminal::Style;

use crate::figure::chart;
use crate::result::{
    Engine, Runs, SCHEMA_VERSION, SimulatedRun, SimulationReport, SweepAxis, WarmUp,
};
use crate::terminal;

/// A sample of `count` whose longest value is `longest_us`.
fn evenly(count: u64, longest_us: u64) -> Distribution {
    let value = |k| Nanos::new(longest_us * 1_000 * (k + 1) / count);
    let sorted: Vec<Nanos> = (0..count).map(value).collect();
    Distribution::from_sorted(&sorted)
}

fn simulated(utilization: f64) -> SimulatedRun {
    let longest_us = (50.0 / (1.0 - utilization)) as u64;
    SimulatedRun {
        arrivals: "poisson".into(),
        service: "deterministic:50us".into(),
        service_mean_ns: 50_000.0,
        workers: 1,
        discipline: "fifo".into(),
        utilization,
        seed: 7,
        stopped: "finished",
        sojourn: evenly(20_000, longest_us),
        wait: evenly(20_000, longest_us - 50),
        mean_standard_error_ns: Some(500.0),
        waited_share: Some(utilization),
        warm_up: WarmUp {
            requests: 308,
            capped: false,
        },
        replications: 256,
        engine: Engine {
            kernel: "max-plus scan".into(),
            isa: "avx512".into(),
            threads: 2,
            requests: 25_000,
            elapsed_ns: Nanos::from_millis(8),
            requests_per_second: 3.1e6,
        },
        fanout: None,
        exact: None,
        z: None,
        warnings: vec!["the warm-up is longer than a tenth of the run".into()],
        needs: vec![(0.99999, 12_000_000)],
        beyond: Vec::new(),
        points: Vec::new(),
    }
}

fn simulation(runs: Runs, swept: Vec<SweepAxis>) -> SimulationReport {
    SimulationReport {
        schema_version: SCHEMA_VERSION,
        command: "sim",
        partial: false,
        runs,
        swept,
    }
}

#[test]
fn one_simulated_system() {
    let report = simulation(Runs::One(Box::new(simulated(0.8))), Vec::new());
    one_screen!(terminal::render(&report, Style::PLAIN));
}

#[test]
fn a_swept_simulation() {
    let runs = [0.5, 0.6, 0.7, 0.8, 0.9].map(simulated).to_vec();
    let report = simulation(Runs::Several { runs }, vec![SweepAxis::Utilization]);
    one_screen!(terminal::render(&report, Style::PLAIN));
}

#[test]
fn a_figure_says_how_many_systems_it_leaves_out() {
    let subtitle = |systems: u64, swept| {
        let system = |n| SimulatedRun {
            discipline: format!("discipline {n}"),
            ..simulated(0.5)
        };
        let runs = (0..systems).map(system).collect();
        chart(&simulation(Runs::Several { runs }, swept)).subtitle
    };
    for swept in [
        Vec::new(),
        vec![SweepAxis::Discipline],
        vec![SweepAxis::Discipline, SweepAxis::Utilization],
    ] {
        let (all, cut) = (subtitle(8, swept.clone()), subtitle(10, swept));
        assert!(!all.contains("not drawn"), "{all}");
        assert!(cut.ends_with("; 2 curves not drawn"), "{cut}");
    }
    // a sweep of one system has a curve for each quantile, not for each run
    let runs = (0..10)
        .map(|n| simulated(0.05 * f64::from(n) + 0.1))
        .collect();
    let one = chart(&simulation(
        Runs::Several { runs },
        vec![SweepAxis::Utilization],
    ));
    assert!(!one.subtitle.contains("not drawn"), "{}", one.subtitle);
}
