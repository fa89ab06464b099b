//! The confusion matrix as text.

use std::fmt::Write;

use super::fix::{Came, FixCheck, Middle};
use super::result::{BenchResult, KindResult, Measured};

/// Everything, for a person.
pub fn text(result: &BenchResult) -> String {
    let mut out = String::from(
        "What was injected, and what its delay was charged to (shares of the delay)\n\n",
    );
    for kind in &result.kinds {
        one(&mut out, kind);
    }
    let not_run = result.kinds.len() as u32 - result.ran;
    let _ = writeln!(
        out,
        "\n{} of {} kinds as they should be{}",
        result.found,
        result.ran,
        match not_run {
            0 => String::new(),
            count => format!(", {count} not run"),
        }
    );
    out
}

fn one(out: &mut String, kind: &KindResult) {
    let Some(measured) = &kind.measured else {
        let why = kind.not_run.as_deref().unwrap_or("no reason given");
        let _ = writeln!(out, "{:<12}  not run: {why}", kind.kind);
        return;
    };
    let verdict = match measured.shortfalls.is_empty() {
        true => "ok",
        false => "FALLS SHORT",
    };
    let _ = writeln!(
        out,
        "{:<12}  {verdict}: {} requests, t {}, p50 {}, p99 {}, p99.9 {}{}",
        kind.kind,
        measured.requests,
        measured.service_time_ns,
        measured.sojourn_p50_ns,
        measured.sojourn_p99_ns,
        measured.sojourn_p999_ns,
        match measured.model_fit_error {
            Some(error) => format!(", model fit {:.1} %", 100.0 * error),
            None => String::new(),
        }
    );
    rows(out, measured);
    for shortfall in &measured.shortfalls {
        let _ = writeln!(out, "{:<14}! {shortfall}", "");
    }
    if let Some(fix) = &measured.fix {
        forecasts(out, fix);
    }
}

/// Predicted beside measured.
fn forecasts(out: &mut String, fix: &FixCheck) {
    let _ = writeln!(
        out,
        "{:<14}forecast `{}`, then {}; {} pairs, a forecast in {}",
        "", fix.change, fix.done, fix.pairs, fix.predicted_pairs
    );
    let middle = |it: &Middle| format!("{} ({} to {})", it.median_ns, it.lo_ns, it.hi_ns);
    for point in &fix.points {
        let _ = writeln!(
            out,
            "{:<16}p{:<4} {} with it; {} predicted, {} measured: {:+.0} %, {}; two such \
             measurements differ by {:.0} %; in {} pairs within the forecast's interval",
            "",
            100.0 * point.q,
            point.with.median_ns,
            middle(&point.predicted),
            middle(&point.measured),
            100.0 * point.error,
            match point.verdict {
                Came::Near => "came true",
                Came::NotToldApart => "not told apart",
                Came::Missed => "MISSED",
            },
            100.0 * point.control_error,
            point.within_interval,
        );
    }
}

fn rows(out: &mut String, measured: &Measured) {
    for injected in &measured.injected {
        let mut charged: Vec<(&str, f64)> = injected
            .charged_shares
            .iter()
            .map(|(cause, share)| (*cause, *share))
            .chain([("no excess seen", injected.unseen_share)])
            .filter(|(_, share)| *share >= 0.005)
            .collect();
        charged.sort_by(|a, b| b.1.total_cmp(&a.1));
        let _ = writeln!(
            out,
            "{:<14}{} times, {} requests late by {} in all{}",
            "",
            injected.occurrences,
            injected.requests,
            injected.delay_ns,
            match injected.negligible {
                true => " (too little to judge)",
                false => "",
            }
        );
        let _ = writeln!(
            out,
            "{:<14}{}: right {:.1} %; {}",
            "",
            injected.injected,
            100.0 * injected.right_share,
            list(&charged)
        );
    }
    if measured.injected.is_empty() {
        let mut shares: Vec<(&str, f64)> = measured
            .excess_shares
            .iter()
            .map(|(cause, share)| (*cause, *share))
            .filter(|(_, share)| *share >= 0.005)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        let _ = writeln!(
            out,
            "{:<14}excess {}: {}",
            "",
            measured.excess_ns,
            list(&shares)
        );
    }
}

fn list(shares: &[(&str, f64)]) -> String {
    let words: Vec<String> = shares
        .iter()
        .map(|(cause, share)| format!("{cause} {:.1} %", 100.0 * share))
        .collect();
    words.join(", ")
}
