//! The components next to the paper's, the networks, and the table of the earlier study.

use taillab_model::{Distribution, Nanos};
use taillab_report::table::{Cell, Column, Table, cell, known, length, name};
use taillab_report::text::Ink;

use crate::result::{BudgetResult, BudgetRow, Class, PaperFigures, Standing};

/// Each component: our figures, with the paper's below them. With `with_how` also how those came about
/// that were not measured.
pub(crate) fn rows_table(result: &BudgetResult, with_how: bool) -> Table {
    let columns = [
        Column::left(""),
        Column::right("min"),
        Column::right("median"),
        Column::right("p99.9"),
        Column::right("max"),
        Column::left("median, max are"),
        Column::left("standing"),
    ];
    let mut table = Table::new("Components: here and in the paper of 2017", columns);
    for row in &result.rows {
        let ink = match row.standing {
            Standing::Measured => Ink::Good,
            Standing::Substituted => Ink::Notable,
            Standing::Unavailable => Ink::Quiet,
        };
        let [median, p999, max] = figures(row);
        let shown = table.row([
            name(&row.component),
            length(row.latency.as_ref().and_then(|latency| latency.min)),
            median,
            p999,
            max,
            classes(row.class_of_median, row.class_of_tail),
            cell(row.standing.to_string()).ink(ink),
        ]);
        if with_how && row.standing != Standing::Measured {
            shown.below(Ink::Quiet, &row.how);
        }
        if let Some(paper) = row.paper {
            let quiet = |ns: Nanos| cell(ns.to_string()).ink(Ink::Quiet);
            table.row([
                cell("  the paper").ink(Ink::Quiet),
                quiet(paper.min_ns),
                quiet(paper.median_ns),
                quiet(paper.p999_ns),
                quiet(paper.tail_ns),
                cell(""),
                cell(""),
            ]);
        }
    }
    table
}

/// Marks a row with the figures of a substitute, since this machine lacks the real component.
pub(crate) const STAND_IN: char = '≈';

/// Whether to show the paper's figures next to ours.
pub(crate) fn reproduces(result: &BudgetResult) -> bool {
    result.command == "reproduce"
}

/// The command that was called.
pub(crate) fn title(result: &BudgetResult) -> &'static str {
    match reproduces(result) {
        true => "taillab reproduce time-gone",
        false => "taillab budget",
    }
}

/// The paper whose components these are.
pub(crate) const PAPER: &str = "Where Has My Time Gone? (Zilberman et al. 2017)";

fn component(row: &BudgetRow) -> Cell {
    name(match row.standing {
        Standing::Substituted => format!("{} {STAND_IN}", row.component),
        Standing::Measured | Standing::Unavailable => row.component.clone(),
    })
}

/// Each component on one line, with the paper's figures next to ours.
pub(crate) fn rows_beside_paper(result: &BudgetResult) -> Table {
    let mut columns = vec![Column::left("")];
    for head in ["median", "p99.9", "max"] {
        columns.push(Column::right(head).gap(2));
        columns.push(Column::right("paper").gap(1));
    }
    let mut table = Table::new("Components: here and in the paper", columns);
    for row in &result.rows {
        let papers = |of: fn(PaperFigures) -> Nanos| length(row.paper.map(of)).ink(Ink::Quiet);
        let [median, p999, max] = figures(row);
        table.row([
            component(row),
            median,
            papers(|paper| paper.median_ns),
            p999,
            papers(|paper| paper.p999_ns),
            max,
            papers(|paper| paper.tail_ns),
        ]);
    }
    table
}

/// Each component on one line, with the paper's median.
pub(crate) fn rows_screen(result: &BudgetResult) -> Table {
    let columns = [
        Column::left(""),
        Column::right("median").gap(2),
        Column::right("p99.9").gap(2),
        Column::right("max").gap(2),
        Column::right("paper’s median").short("paper").gap(2),
        Column::left("are").gap(2),
    ];
    let mut table = Table::new("Components: here and in the paper of 2017", columns);
    for row in &result.rows {
        let [median, p999, max] = figures(row);
        table.row([
            component(row),
            median,
            p999,
            max,
            length(row.paper.map(|paper| paper.median_ns)).ink(Ink::Quiet),
            classes(row.class_of_median, row.class_of_tail),
        ]);
    }
    table
}

fn classes(median: Option<Class>, tail: Option<Class>) -> Cell {
    let Some((median, tail)) = median.zip(tail) else {
        return known(None);
    };
    let ink = match tail {
        Class::Good => Ink::Good,
        Class::Bad => Ink::Notable,
        Class::Ugly => Ink::Bad,
    };
    cell(format!("{median}, {tail}")).ink(ink)
}

/// Each network on one line; with `parts` also what every part adds at the median and in the tail.
pub(crate) fn networks_table(result: &BudgetResult, parts: bool) -> Table {
    let mut columns = vec![
        Column::left("round trip"),
        Column::right("median"),
        Column::right("p99.9"),
        Column::left("are"),
    ];
    columns.extend(parts.then(|| Column::left("by").wrapped(46)));
    let mut table = Table::new(
        "Round trips through networks, without queueing in them",
        columns,
    );
    for network in &result.topologies {
        let description = cell(&network.description).ink(Ink::Quiet);
        let cells = [
            name(&network.name),
            quantile(&network.round_trip, 0.5),
            quantile(&network.round_trip, 0.999),
            classes(network.class_of_median, network.class_of_p999),
        ];
        table.row(cells.into_iter().chain(parts.then_some(description)));
        for part in network.parts.iter().filter(|_| parts) {
            let times = match part.traversals {
                1 => part.law.clone(),
                times => format!("{times} × {}", part.law),
            };
            table.row([
                cell(format!("  {}", part.name)),
                cell(part.at_median_ns.to_string()),
                cell(part.in_tail_ns.to_string()),
                cell(if part.measured { "measured" } else { "stated" }).ink(Ink::Quiet),
                cell(times).ink(Ink::Quiet),
            ]);
        }
    }
    table
}

fn quantile(of: &Distribution, q: f64) -> Cell {
    length(of.quantile(q))
}

/// The median, the 99.9th percentile and the longest of a row; dashes where it was not measured.
fn figures(row: &BudgetRow) -> [Cell; 3] {
    match &row.latency {
        Some(of) => [quantile(of, 0.5), quantile(of, 0.999), length(of.max)],
        None => [known(None), known(None), known(None)],
    }
}

/// The table with which the paper begins, and today's figures.
pub(crate) fn earlier_table(result: &BudgetResult) -> Table {
    let columns = [
        Column::left("one traversal"),
        Column::right("2011"),
        Column::right("round trip 2011"),
        Column::right("today"),
        Column::right("round trip today"),
        Column::left("source").wrapped(44),
    ];
    let mut table = Table::new(
        "The earlier study (It’s Time for Low Latency, 2011)",
        columns,
    );
    for row in &result.earlier {
        table.row([
            name(&row.component),
            cell(&row.delay_2011),
            cell(&row.round_trip_2011),
            cell(&row.today),
            cell(&row.round_trip_today),
            cell(&row.source).ink(Ink::Quiet),
        ]);
    }
    table
}

/// The parameters of a row in one line: `name value, name value`.
pub(crate) fn parameters(row: &BudgetRow) -> String {
    let parts = row.parameters.iter();
    let parts: Vec<String> = parts
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    parts.join(", ")
}
