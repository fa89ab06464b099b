//! What `taillab budget` shows to people.

#[allow(dead_code, reason = "the tests of `report` use more of it")]
#[path = "../../../report/tests/browser/mod.rs"]
mod browser;
#[macro_use]
#[path = "../../../report/tests/one_screen.rs"]
mod one_screen;

use taillab_model::{Distribution, Nanos};
use taillab_report::terminal::Style;

use crate::result::{
    BudgetResult, BudgetRow, Class, PaperFigures, Standing, Topology, TopologyPart,
};
use crate::{page, terminal};

fn read() -> BudgetResult {
    serde_json::from_str(include_str!("screens/budget.json"))
        .expect("the result is what the schema says")
}

fn distribution(from_ns: u64) -> Distribution {
    let sorted: Vec<Nanos> = (0..10_000).map(|i| Nanos::new(from_ns + i)).collect();
    Distribution::from_sorted(&sorted)
}

#[test]
fn where_the_time_goes_between_two_programs() {
    let result = read();
    one_screen!(terminal::render(&result, false, Style::PLAIN));
}

#[test]
fn the_components_beside_the_papers() {
    let mut result = read();
    result.command = "reproduce".into();
    one_screen!(terminal::render(&result, false, Style::PLAIN));
    let page = String::from_utf8(page::render(&result)).expect("it is UTF-8");
    assert!(page.contains("Where Has My Time Gone?") && !page.contains("taillab budget"));
}

#[test]
fn a_figure_says_how_many_networks_it_leaves_out() {
    let mut result = read();
    let mut network = result.topologies[0].clone();
    network.ccdf = vec![(20_000, 1.0), (60_000, 0.001)];
    let mut page = |networks| {
        result.topologies = vec![network.clone(); networks];
        String::from_utf8(page::render(&result)).expect("it is UTF-8")
    };
    assert!(!page(8).contains("not drawn"));
    assert!(page(9).contains("; 1 network not drawn</p>"));
}

#[test]
fn a_row_says_how_it_came_about_beside_the_papers() {
    let row = |component: &str, standing, latency: Option<Distribution>| BudgetRow {
        component: component.into(),
        standing,
        how: "there is no card".into(),
        parameters: vec![("cpu".into(), "1".into())],
        class_of_median: latency.as_ref().map(|_| Class::Good),
        class_of_tail: latency.as_ref().map(|_| Class::Ugly),
        latency,
        ccdf: Vec::new(),
        paper: Some(PaperFigures {
            min_ns: Nanos::new(550),
            median_ns: Nanos::new(570),
            p999_ns: Nanos::new(590),
            tail_ns: Nanos::new(600),
        }),
    };
    let part = |name: &str, ns| TopologyPart {
        name: name.into(),
        measured: ns > 1_000,
        traversals: 2,
        law: "deterministic:500ns".into(),
        at_median_ns: Nanos::new(ns),
        in_tail_ns: Nanos::new(3 * ns),
    };
    let result = BudgetResult {
        schema_version: 1,
        command: "budget".into(),
        taillab_version: "0.1.0".into(),
        started_unix_s: 0,
        partial: false,
        kernel: None,
        hypervisor: None,
        rows: vec![
            row("TSC", Standing::Measured, Some(distribution(20))),
            row("PCIe", Standing::Unavailable, None),
        ],
        topologies: vec![Topology {
            name: "rack".into(),
            description: "two servers".into(),
            round_trip: distribution(20_000),
            ccdf: vec![(20_000, 1.0)],
            class_of_median: Some(Class::Bad),
            class_of_p999: Some(Class::Bad),
            parts: vec![part("both hosts", 20_000), part("switches", 1_000)],
        }],
        earlier: Vec::new(),
        notes: Vec::new(),
    };
    let text = terminal::render(&result, true, Style::PLAIN);
    for part in [
        "good, ugly",
        "unavailable",
        "there is no card",
        "570 ns",
        "rack",
        "60.0 µs",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // as many rows and networks as a real result has
    let many = BudgetResult {
        rows: result.rows.iter().cycle().take(16).cloned().collect(),
        topologies: vec![result.topologies[0].clone(); 4],
        ..result.clone()
    };
    let screen = terminal::render(&many, false, Style::PLAIN);
    assert!(screen.lines().count() <= 45, "{screen}");
    insta::assert_snapshot!("the_budget_on_one_screen", screen);
    let page = String::from_utf8(page::render(&result)).expect("it is UTF-8");
    assert!(page.contains("both hosts") && page.contains("in the slowest thousandth"));
}

#[test]
fn the_page_fits_every_width_and_captions_stay() {
    let test = "the_page_fits_every_width_and_captions_stay";
    browser::page::fits_and_captions_stay(test, "budget", &page::render(&read()));
}
