//! What was tried, as a table and a sentence.

use taillab_model::fix::{CONTROL, DecidedBy, Factorial, Fix, FixOutcome, Ratio, RatioAt};

use crate::figures::{counted, micros, quantile_name, ratio};
use crate::table::{Column, Table, cell, known, name};
use crate::text::{Ink, by_reason};

/// The heading.
pub(crate) const HEADING: &str = "What was tried";

/// The quantile to show when none was decisive for a row.
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
    let untried = fixes.iter().filter(|fix| is_untried(fix));
    by_reason(untried.map(|fix| (fix.reason.as_str(), fix.mitigation.as_str())))
}

/// Whether it is possible here but was not measured.
fn is_untried(fix: &Fix) -> bool {
    fix.outcome == FixOutcome::Inconclusive && fix.pairs == 0
}

/// One row for each mitigation that was tried.
pub(crate) fn table(fixes: &[Fix]) -> Table {
    let columns = [
        Column::left("with ÷ without"),
        Column::left("at"),
        Column::right("predicted").notes(),
        Column::right("measured").notes(),
        Column::right("adjusted").notes().on_page(),
        Column::right("peak"),
        Column::right("before µs").on_page(),
        Column::right("after µs").on_page(),
        Column::right("ideal µs").on_page(),
        Column::left("outcome"),
    ];
    let caption = "Latency with each change as a ratio to that without it, with 95 % intervals over pairs of \
                   blocks in random order; below 1 is better. Adjusted: without what other programs, interrupts and the \
                   hypervisor did to the CPUs, where the change does not treat it";
    let mut table = Table::new(caption, columns);
    for fix in fixes.iter().filter(|fix| !is_untried(fix)) {
        let q = fix.decided_at.unwrap_or(FARTHEST);
        let (predicted, measured) = (at(&fix.predicted, q), at(&fix.measured, q));
        let adjusted = at(&fix.adjusted, q);
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
            known(value(adjusted)).note(interval(adjusted)),
            known(value(fix.throughput)).note(interval(fix.throughput)),
            known(tail.map(|tail| micros(tail.before_ns))),
            known(tail.map(|tail| micros(tail.after_ns))),
            known(tail.and_then(|tail| tail.ideal_ns).map(micros)),
            cell(fix.outcome.to_string()).ink(ink),
        ]);
        row.below(Ink::Quiet, explained(fix));
        if let Some(not_kept) = &fix.not_kept {
            row.below(Ink::Notable, format!("not kept: {}", not_kept.why));
            row.command(&not_kept.command);
        }
    }
    table
}

/// The heading of the factorial design.
pub(crate) const FACTORIAL_HEADING: &str = "All combinations";

/// The effects of all mitigations and how they interact.
pub(crate) fn effects(factorial: &Factorial) -> Table {
    let columns = [
        Column::left("effect of"),
        Column::right("p50").notes(),
        Column::right("p99").notes(),
        Column::right("p99.9").notes(),
    ];
    let caption = "Latency with a change as a ratio to that without it, averaged over all combinations of the others, \
                   with 95 % intervals over rounds; below 1 is better. Several together: by what factor the effect of \
                   one differs where the others are applied too; 1 where they do not interact";
    let mut table = Table::new(caption, columns);
    for effect in &factorial.effects {
        let mut cells = vec![name(effect.of.join(" × "))];
        cells.extend([0.5, 0.99, 0.999].map(|q| {
            let found = at(&effect.at, q);
            known(value(found)).note(interval(found))
        }));
        table.row(cells);
    }
    table
}

/// What the factorial design says in words.
pub(crate) fn effects_sentence(factorial: &Factorial) -> String {
    let farthest = |at: &[RatioAt]| at.last().copied();
    let helps = |of: usize, below: bool| {
        let effects = factorial
            .effects
            .iter()
            .filter(move |effect| effect.of.len() == of);
        effects.filter(move |effect| {
            farthest(&effect.at).is_some_and(|at| match below {
                true => at.ratio.hi.is_some_and(|hi| hi < 1.0),
                false => at.ratio.lo.is_some_and(|lo| lo > 1.0),
            })
        })
    };
    let names = |of: usize, below: bool| -> Vec<String> {
        helps(of, below)
            .map(|effect| effect.of.join(" with "))
            .collect()
    };
    let rounds = counted(factorial.rounds.into(), "round", "rounds");
    let mut text = format!("{rounds} of {} combinations.", factorial.cells.len());
    if factorial.effects.iter().all(|effect| effect.at.is_empty()) {
        text.push_str(
            " These are too few, or have too few requests, for the interval of any effect.",
        );
    }
    let mut say = |names: Vec<String>, what: &str| {
        if !names.is_empty() {
            text.push_str(&format!(" {what}: {}.", names.join(", ")));
        }
    };
    say(names(1, true), "These help by themselves, on average");
    say(names(1, false), "These do harm, on average");
    say(
        names(2, false),
        "These help less together than each would promise",
    );
    say(
        names(2, true),
        "These help more together than each would promise",
    );
    text
}

/// What was measured, and the reason for the outcome.
fn explained(fix: &Fix) -> String {
    let Some(tail) = &fix.tail else {
        return fix.reason.clone();
    };
    let ideal = match tail.ideal_ns {
        Some(ideal) => format!(", ideal {}", micros(ideal)),
        None => String::new(),
    };
    format!(
        "{} to {} µs{ideal}, in {}; {}{}",
        micros(tail.before_ns),
        micros(tail.after_ns),
        counted(fix.pairs.into(), "pair", "pairs"),
        fix.reason,
        adjusted(fix)
    )
}

/// The ratio without what others did to the CPUs, in words. Empty where it was decisive, since the reason
/// then has it, and where the replay does not give it.
fn adjusted(fix: &Fix) -> String {
    let found = fix.decided_at.and_then(|q| at(&fix.adjusted, q));
    match found.and_then(|ratio| Some((ratio.value, ratio.lo?, ratio.hi?))) {
        Some((value, lo, hi)) if fix.decided_by != Some(DecidedBy::Adjusted) => {
            format!("; {value:.2}, {lo:.2} to {hi:.2} without what others did to the CPUs")
        }
        _ => String::new(),
    }
}

/// The outcome of all trials in a sentence.
pub(crate) fn sentence(fixes: &[Fix]) -> String {
    let tried = fixes.iter().filter(|fix| fix.mitigation != CONTROL);
    let of = |outcome| tried.clone().filter(move |fix| fix.outcome == outcome);
    let kept: Vec<&str> = of(FixOutcome::Kept)
        .map(|fix| fix.mitigation.as_str())
        .collect();
    let mut text = match kept.as_slice() {
        [] => "Nothing that was tried has been shown to help here.".to_owned(),
        [one] => format!("{one} helps."),
        many => format!("{} help, each on top of the ones before.", many.join(", ")),
    };
    let last = of(FixOutcome::Kept).filter_map(|fix| fix.tail).next_back();
    let first = of(FixOutcome::Kept).find_map(|fix| fix.tail);
    if let (Some(first), Some(last)) = (first, last)
        && first.q == last.q
    {
        text.push_str(&format!(
            " The client’s {} goes from {} to {} µs{}.",
            quantile_name(first.q),
            micros(first.before_ns),
            micros(last.after_ns),
            match last.ideal_ns {
                Some(ideal) => format!(
                    " (the server’s ideal, without the network: {})",
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
