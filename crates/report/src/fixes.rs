//! What was tried, as a table and a sentence.

use taillab_model::fix::{CONTROL, Fix, FixOutcome, Ratio, RatioAt};

use crate::figures::{counted, micros, quantile_name, ratio};
use crate::table::{Column, Table, cell, known, name};
use crate::text::Ink;

/// The heading.
pub(crate) const HEADING: &str = "What was tried";

/// The quantile of a row of which none decided.
const FARTHEST: f64 = 0.999;

fn at(ratios: &[RatioAt], q: f64) -> Option<Ratio> {
    let mut found = ratios.iter().filter(|at| (at.q - q).abs() < 1e-12);
    found.next().map(|at| at.ratio)
}

fn interval(of: Option<Ratio>) -> String {
    match of.and_then(|of| Some((of.lo?, of.hi?))) {
        Some((lo, hi)) => format!("{lo:.2}–{hi:.2}"),
        None => String::new(),
    }
}

fn value(of: Option<Ratio>) -> Option<String> {
    of.map(|of| ratio(of.value))
}

/// What was not tried, by reason, in order.
pub(crate) fn untried(fixes: &[Fix]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for fix in fixes.iter().filter(|fix| is_untried(fix)) {
        let (reason, name) = (fix.reason.as_str(), fix.mitigation.as_str());
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    reasons
}

/// Nothing was measured of it, though it is possible here.
fn is_untried(fix: &Fix) -> bool {
    fix.outcome == FixOutcome::Inconclusive && fix.pairs == 0
}

/// One row for each that was tried.
pub(crate) fn table(fixes: &[Fix]) -> Table {
    let columns = [
        Column::left("with ÷ without"),
        Column::left("at"),
        Column::right("predicted").notes(),
        Column::right("measured").notes(),
        Column::right("peak"),
        Column::right("before µs").on_page(),
        Column::right("after µs").on_page(),
        Column::right("ideal µs").on_page(),
        Column::left("outcome"),
    ];
    let caption = "Latency with each change as a ratio to that without it, with 95 % intervals over pairs of \
                   blocks in random order; below 1 is better";
    let mut table = Table::new(caption, columns).class("fixes");
    for fix in fixes.iter().filter(|fix| !is_untried(fix)) {
        let q = fix.decided_at.unwrap_or(FARTHEST);
        let (predicted, measured) = (at(&fix.predicted, q), at(&fix.measured, q));
        let ink = match fix.outcome {
            FixOutcome::Kept => Ink::Good,
            FixOutcome::Reverted => Ink::Plain,
            FixOutcome::Inconclusive | FixOutcome::Unavailable => Ink::Notable,
        };
        let tail = fix.tail.as_ref();
        let row = table.row([
            name(fix.mitigation.as_str()),
            known(fix.decided_at.map(quantile_name)),
            known(value(predicted)).note(interval(predicted)),
            known(value(measured)).note(interval(measured)),
            known(value(fix.throughput)).note(interval(fix.throughput)),
            known(tail.map(|tail| micros(tail.before_ns))),
            known(tail.map(|tail| micros(tail.after_ns))),
            known(tail.and_then(|tail| tail.ideal_ns).map(micros)),
            cell(fix.outcome.label()).ink(ink),
        ]);
        row.below(Ink::Quiet, explained(fix));
    }
    table
}

/// What was seen and why it was decided so.
fn explained(fix: &Fix) -> String {
    let Some(tail) = &fix.tail else {
        return fix.reason.clone();
    };
    let ideal = match tail.ideal_ns {
        Some(ideal) => format!(", ideal {}", micros(ideal)),
        None => String::new(),
    };
    format!(
        "{} to {} µs{ideal}, in {}; {}",
        micros(tail.before_ns),
        micros(tail.after_ns),
        counted(fix.pairs.into(), "pair", "pairs"),
        fix.reason
    )
}

/// What came of it all.
pub(crate) fn sentence(fixes: &[Fix]) -> String {
    let tried = fixes.iter().filter(|fix| fix.mitigation != CONTROL);
    let of = |outcome| tried.clone().filter(move |fix| fix.outcome == outcome);
    let kept: Vec<&str> = of(FixOutcome::Kept)
        .map(|fix| fix.mitigation.as_str())
        .collect();
    let mut text = match kept.as_slice() {
        [] => "Nothing that was tried is proven to help here.".to_owned(),
        [one] => format!("{one} helps."),
        many => format!("{} help, each on top of those before.", many.join(", ")),
    };
    let last = of(FixOutcome::Kept).filter_map(|fix| fix.tail).next_back();
    let first = of(FixOutcome::Kept).find_map(|fix| fix.tail);
    if let (Some(first), Some(last)) = (first, last)
        && first.q == last.q
    {
        text.push_str(&format!(
            " The client's {} goes from {} to {} µs{}.",
            quantile_name(first.q),
            micros(first.before_ns),
            micros(last.after_ns),
            match last.ideal_ns {
                Some(ideal) => format!(
                    " (the server's ideal, without the way there and back: {})",
                    micros(ideal)
                ),
                None => String::new(),
            }
        ));
    }
    let unavailable: Vec<&str> = of(FixOutcome::Unavailable)
        .map(|fix| fix.mitigation.as_str())
        .collect();
    if !unavailable.is_empty() {
        text.push_str(&format!(" Not possible here: {}.", unavailable.join(", ")));
    }
    text
}
