//! Two results side by side, as text.

use taillab_model::compare::{
    Change, ComparedLatency, ComparedResult, Comparison, Starts, StartsAt,
};
use taillab_model::{Nanos, Quantile};

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
    if let Some(starts) = &comparison.starts {
        page.heading(
            "Starts in turn, in µs",
            &format!("{} of each, in {}", starts.of_each, starts.folder),
        );
        page.table(&table_of_starts(starts));
        page.line("");
        for (ink, text) in said_of_starts(starts) {
            page.paragraph(ink, &text);
        }
        return page.text;
    }
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

/// The middle start of each and the range of all, and the ratio of a typical pair.
fn table_of_starts(starts: &Starts) -> Table {
    let columns = [
        Column::left(""),
        Column::right("before").notes(),
        Column::right("after").notes(),
        Column::right("after ÷ before").ink(Ink::Title).notes(),
    ];
    let mut table = Table::new(
        "The middle start of each in µs, with the lowest and the highest",
        columns,
    );
    for at in &starts.quantiles {
        let ink = match (at.is_lower, at.is_higher) {
            (true, _) => Ink::Good,
            (_, true) => Ink::Bad,
            _ => Ink::Plain,
        };
        let interval = figures::interval_by(|x: f64| format!("{x:.2}"), Some(at.lo), Some(at.hi));
        table.row([
            name(quantile_name(at.q)),
            middle(&at.before_ns),
            middle(&at.after_ns),
            known(Some(ratio(at.ratio))).ink(ink).note(interval),
        ]);
    }
    table
}

fn middle(starts: &[Nanos]) -> Cell {
    let mut sorted = starts.to_vec();
    sorted.sort_unstable();
    let middle = sorted.get(sorted.len() / 2).copied();
    let range = figures::interval(sorted.first().copied(), sorted.last().copied());
    known(middle.map(figures::micros)).note(range)
}

/// What the starts prove, the surest first.
fn said_of_starts(starts: &Starts) -> Vec<(Ink, String)> {
    let names = |of: fn(&StartsAt) -> bool| {
        let those = starts.quantiles.iter().filter(|at| of(at));
        let names: Vec<String> = those.map(|at| quantile_name(at.q)).collect();
        names.join(", ")
    };
    let sentences = [
        (Ink::Good, "Lower than before: ", names(|at| at.is_lower)),
        (Ink::Bad, "Higher than before: ", names(|at| at.is_higher)),
        (
            Ink::Plain,
            "No difference beyond that between starts can be seen at ",
            names(|at| !at.is_lower && !at.is_higher),
        ),
    ];
    let there = sentences
        .into_iter()
        .filter(|(.., names)| !names.is_empty());
    let mut said: Vec<(Ink, String)> = there
        .map(|(ink, text, names)| (ink, format!("{text}{names}.")))
        .collect();
    if starts.quantiles.is_empty() {
        let text = "No percentile is known in every start. Measure each for longer (-d).";
        said.push((Ink::Notable, text.to_owned()));
    }
    said.push((
        Ink::Quiet,
        format!(
            "Each start is one unit. A change that does nothing is called lower or higher in at most {} of such \
             comparisons, at all percentiles together.",
            figures::percent(starts.level, 0)
        ),
    ));
    said
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
             the machine from another; the intervals, each of one run, do not say by how much. Before you \
             believe a small difference, let both be started several times, in turn (--again 10)."
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

#[cfg(test)]
mod tests {
    use taillab_model::Distribution;
    use taillab_model::compare::{SCHEMA_VERSION, compared};
    use taillab_model::summary::Verdict;

    use super::*;

    fn result(name: &str) -> ComparedResult {
        ComparedResult {
            file: format!("{name}/summary.json"),
            command: "run".to_owned(),
            target: "memcached".to_owned(),
            started_unix_s: 1_700_000_000,
            rate_per_s: 20_000.0,
            partial: false,
            verdict: Verdict {
                valid: true,
                ..Verdict::default()
            },
        }
    }

    fn shown(starts: Option<Starts>) -> String {
        let sorted: Vec<Nanos> = (20..2_020).map(Nanos::from_micros).collect();
        let latency = Distribution::from_sorted(&sorted);
        let comparison = Comparison {
            schema_version: SCHEMA_VERSION,
            command: "compare".to_owned(),
            latency: ComparedLatency::Sojourn,
            before: result("a"),
            after: result("b"),
            quantiles: compared(&latency, &latency),
            assertions: Vec::new(),
            starts,
        };
        let text = render(&comparison, Style::PLAIN);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn starts_in_turn_are_shown_with_what_they_prove() {
        let at = |q, times: u64, is_lower| StartsAt {
            q,
            before_ns: (10..16).map(Nanos::from_micros).collect(),
            after_ns: (10..16).map(|us| Nanos::from_micros(us * times)).collect(),
            ratio: times as f64,
            lo: 0.9,
            hi: 2.1,
            is_lower,
            is_higher: false,
        };
        let starts = Starts {
            of_each: 6,
            seed: 1,
            folder: "taillab-again".to_owned(),
            level: 0.05,
            quantiles: vec![at(0.5, 2, false), at(0.9, 1, true)],
        };
        let text = shown(Some(starts.clone()));
        for part in [
            "6 of each, in taillab-again",
            "13.0 10.0–15.0",
            "26.0 20.0–30.0",
            "2.00× 0.90–2.10",
            "Lower than before: p90.",
            "No difference beyond that between starts can be seen at p50.",
            "in at most 5 % of such comparisons",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("two single runs"), "{text}");
        let nothing = shown(Some(Starts {
            quantiles: Vec::new(),
            ..starts
        }));
        assert!(
            nothing.contains("No percentile is known in every start."),
            "{nothing}"
        );
        assert!(shown(None).contains("in turn (--again 10)"));
    }
}
