//! What it shows: screens, the page in a browser, and the log.

#[allow(dead_code, reason = "the tests of `report` use more of it")]
#[path = "../../../report/tests/browser/mod.rs"]
mod browser;
#[macro_use]
#[path = "../../../report/tests/one_screen.rs"]
mod one_screen;

use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use taillab_report::terminal::Style;

use crate::hlog::write_hlog;
use crate::result::{RttReport, RttResult};
use crate::{page, terminal};

fn read(json: &str) -> RttResult {
    serde_json::from_str(json).expect("the result is what the schema says")
}

#[test]
fn round_trips_of_one_transport() {
    let result = read(include_str!("screens/rtt-one.json"));
    let report = RttReport {
        result: &result,
        curves: &[],
    };
    one_screen!(terminal::render(&report, None, false, Style::PLAIN));
}

#[test]
fn round_trips_of_several_transports() {
    let result = read(include_str!("screens/rtt-several.json"));
    let report = RttReport {
        result: &result,
        curves: &[],
    };
    one_screen!(terminal::render(
        &report,
        Some("rtt/report.html"),
        false,
        Style::PLAIN
    ));
}

#[test]
fn a_log_without_round_trips_is_a_log() {
    let mut log = Vec::new();
    write_hlog([], 1_795_183_401, &mut log).unwrap();
    let text = std::str::from_utf8(&log).unwrap();
    assert!(text.contains("#[taillab: latencies"), "{text}");
    let entries = IntervalLogIterator::new(&log).map(|entry| entry.unwrap());
    let intervals = entries.filter(|entry| matches!(entry, LogEntry::Interval(_)));
    assert_eq!(intervals.count(), 0, "{text}");
}

#[test]
fn the_page_fits_every_width_and_captions_stay() {
    let report = RttReport {
        result: &read(include_str!("screens/rtt-several.json")),
        curves: &[],
    };
    let test = "the_page_fits_every_width_and_captions_stay";
    browser::page::fits_and_captions_stay(test, "rtt", &page::render(&report));
}
