//! The screens of commands whose result is short, from results as `--json` printed them on a
//! virtual machine with two CPUs: at most 45 lines of 80 columns.

use serde::de::DeserializeOwned;
use taillab_model::budget::BudgetResult;
use taillab_model::{Distribution, Nanos};
use taillab_report::html;
use taillab_report::rtt::RttReport;
use taillab_report::simulation::{
    Engine, Runs, SCHEMA_VERSION, SimulatedRun, SimulationReport, Swept, WarmUp, chart,
};
use taillab_report::terminal::{self, Detail, Style};

const LINES: usize = 45;
const COLUMNS: usize = 80;

fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("the result is what the schema says")
}

fn is_one_screen(text: &str) {
    let lines = text.lines().count();
    assert!(lines <= LINES, "{lines} lines\n{text}");
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= COLUMNS, "{columns} columns: {line}");
    }
}

macro_rules! one_screen {
    ($text:expr) => {{
        let text = $text;
        is_one_screen(&text);
        insta::assert_snapshot!(text);
    }};
}

#[test]
fn what_the_machine_allows() {
    let diagnosis = read(include_str!("screens/doctor.json"));
    one_screen!(terminal::render_doctor(
        &diagnosis,
        Detail::Screen,
        Style::PLAIN
    ));
}

#[test]
fn what_can_be_changed() {
    let list = read(include_str!("screens/tune-list.json"));
    one_screen!(terminal::render_tune(&list, false, Style::PLAIN));
}

#[test]
fn what_would_be_changed() {
    let plan = read(include_str!("screens/tune-plan.json"));
    one_screen!(terminal::render_tune(&plan, false, Style::PLAIN));
}

#[test]
fn round_trips_of_one_transport() {
    let result = read(include_str!("screens/rtt-one.json"));
    let report = RttReport {
        result: &result,
        curves: &[],
    };
    one_screen!(terminal::render_rtt(&report, None, false, Style::PLAIN));
}

#[test]
fn round_trips_of_several_transports() {
    let result = read(include_str!("screens/rtt-several.json"));
    let report = RttReport {
        result: &result,
        curves: &[],
    };
    one_screen!(terminal::render_rtt(
        &report,
        Some("rtt/report.html"),
        false,
        Style::PLAIN
    ));
}

#[test]
fn what_takes_time_from_two_cpus() {
    let result = read(include_str!("screens/noise.json"));
    one_screen!(terminal::render_noise(&result, false, Style::PLAIN));
}

#[test]
fn where_the_time_goes_between_two_programs() {
    let result = read(include_str!("screens/budget.json"));
    one_screen!(terminal::render_budget(&result, false, Style::PLAIN));
}

#[test]
fn the_components_beside_the_papers() {
    let mut result: BudgetResult = read(include_str!("screens/budget.json"));
    result.command = "reproduce".into();
    one_screen!(terminal::render_budget(&result, false, Style::PLAIN));
    let page = String::from_utf8(html::render_budget(&result)).expect("it is UTF-8");
    assert!(page.contains("Where Has My Time Gone?") && !page.contains("taillab budget"));
}

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

fn simulation(runs: Runs, swept: Vec<Swept>) -> SimulationReport {
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
    one_screen!(terminal::render_simulation(&report, Style::PLAIN));
}

#[test]
fn a_swept_simulation() {
    let runs = [0.5, 0.6, 0.7, 0.8, 0.9].map(simulated).to_vec();
    let report = simulation(Runs::Several { runs }, vec![Swept::Utilization]);
    one_screen!(terminal::render_simulation(&report, Style::PLAIN));
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
        vec![Swept::Discipline],
        vec![Swept::Discipline, Swept::Utilization],
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
        vec![Swept::Utilization],
    ));
    assert!(!one.subtitle.contains("not drawn"), "{}", one.subtitle);
}

#[test]
fn a_figure_says_how_many_networks_it_leaves_out() {
    let mut result: BudgetResult = read(include_str!("screens/budget.json"));
    let mut network = result.topologies[0].clone();
    network.ccdf = vec![(20_000, 1.0), (60_000, 0.001)];
    let mut page = |networks| {
        result.topologies = vec![network.clone(); networks];
        String::from_utf8(html::render_budget(&result)).expect("it is UTF-8")
    };
    assert!(!page(8).contains("not drawn"));
    assert!(page(9).contains("; 1 network not drawn</p>"));
}
