//! Two results side by side, as text.

use taillab_model::Quantile;
use taillab_model::compare::{Change, ComparedLatency, ComparedResult, Comparison};

use super::page::Page;
use crate::figures::{self, quantile_name, rate, ratio};
use crate::server::{foremost, verdict_word};
use crate::table::{Cell, Column, Table, known, name};
use crate::text::{Ink, Style};

/// Loads that differ by more than this share are remarked on. At 80 % of the capacity, 2 % more load makes a queue
/// 10 % longer.
const OTHER_LOAD: f64 = 0.02;

/// Both results, the percentiles with their ratio, and what it says.
pub fn render(comparison: &Comparison, style: Style) -> String {
    let mut page = Page::new(style);
    let valid = comparison.before.verdict.valid && comparison.after.verdict.valid;
    let word = match valid {
        true => (Ink::Good, "COMPARED"),
        false => (Ink::Bad, "NOT COMPARABLE"),
    };
    page.title("taillab compare", word);
    page.assertions(&comparison.assertions);
    page.fact("before", &which(&comparison.before));
    page.fact("after", &which(&comparison.after));
    if let Some(text) = other_load(comparison) {
        page.marked(Ink::Notable, "!", &text);
    }
    for (name, result) in [("before", &comparison.before), ("after", &comparison.after)] {
        for text in foremost(&result.verdict, &[]) {
            page.marked(Ink::Notable, "!", &format!("{name}, {text}"));
        }
    }
    let latency = match comparison.latency {
        ComparedLatency::ResponseTime => "what the client waited",
        ComparedLatency::Sojourn => "sojourn in the server, all requests",
    };
    page.heading("Latency in µs", &format!("{latency}, with 95 % intervals"));
    let table = table(comparison).fit(
        style,
        &[&|table| table.hide_notes(1), &|table| table.hide_notes(2)],
    );
    page.table(&table);
    page.line("");
    for (ink, text) in said(comparison, valid) {
        page.paragraph(ink, &text);
    }
    page.text
}

fn which(result: &ComparedResult) -> String {
    let (_, word) = verdict_word(&result.verdict, result.partial);
    format!(
        "{} {} at {}/s, from {}: {word}",
        result.command,
        result.target,
        rate(result.rate_per_s),
        figures::utc(result.started_unix_s)
    )
}

/// A warning where the loads are not the same.
fn other_load(comparison: &Comparison) -> Option<String> {
    let (before, after) = (comparison.before.rate_per_s, comparison.after.rate_per_s);
    let differs = (after - before).abs() > OTHER_LOAD * before;
    differs.then(|| {
        format!(
            "the loads differ, {}/s and {}/s, which changes the latency by itself (with -u, each \
             follows the capacity that it finds): measure both with the same -R",
            rate(before),
            rate(after)
        )
    })
}

fn table(comparison: &Comparison) -> Table {
    let columns = [
        Column::left(""),
        Column::right("before").notes(),
        Column::right("after").notes(),
        Column::right("after ÷ before").ink(Ink::Title).notes(),
    ];
    let mut table = Table::new("Latency of both results in µs, and its ratio", columns);
    for at in &comparison.quantiles {
        let ink = match at.change() {
            Change::Lower => Ink::Good,
            Change::Higher => Ink::Bad,
            Change::NotSeen | Change::NotKnown => Ink::Plain,
        };
        let interval = figures::interval_by(|x: f64| format!("{x:.2}"), at.lo, at.hi);
        table.row([
            name(quantile_name(at.before.q)),
            value(&at.before),
            value(&at.after),
            known(at.ratio.map(ratio)).ink(ink).note(interval),
        ]);
    }
    table
}

fn value(of: &Quantile) -> Cell {
    known(of.value.map(figures::micros)).note(figures::interval(of.lo, of.hi))
}

/// What the percentiles say, the surest first.
fn said(comparison: &Comparison, valid: bool) -> Vec<(Ink, String)> {
    if !valid {
        let text = "One of the results is invalid, so the ratios mean nothing. Measure it again.";
        return vec![(Ink::Bad, text.to_owned())];
    }
    let names = |change: Change| {
        let those = comparison
            .quantiles
            .iter()
            .filter(|at| at.change() == change);
        let names: Vec<String> = those.map(|at| quantile_name(at.before.q)).collect();
        names.join(", ")
    };
    let sentences = [
        (Change::Lower, Ink::Good, "Lower than before: "),
        (Change::Higher, Ink::Bad, "Higher than before: "),
        (Change::NotSeen, Ink::Plain, "No difference can be seen at "),
        (Change::NotKnown, Ink::Quiet, "Too few requests to know "),
    ];
    let sentences = sentences.map(|(change, ink, text)| (ink, text, names(change)));
    let there = sentences
        .into_iter()
        .filter(|(_, _, names)| !names.is_empty());
    let mut said: Vec<(Ink, String)> = there
        .map(|(ink, text, names)| (ink, format!("{text}{names}.")))
        .collect();
    let one_each = match comparison.after.command.as_str() {
        "run" => {
            "These are two single runs. One start of a server differs from the next, and one hour of \
             the machine from another; the intervals, each of one run, do not say by how much. Start \
             each several times, in turn, before you believe a small difference."
        }
        _ => {
            "These are two single measurements. One hour differs from another, and one start of the \
             server from the next; the intervals do not say by how much. Measure each several times, \
             in turn, before you believe a small difference."
        }
    };
    said.push((Ink::Quiet, one_each.to_owned()));
    said
}
