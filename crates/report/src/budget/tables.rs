//! The components beside the paper's, the networks, and the earlier study's table.

use taillab_model::budget::{BudgetResult, BudgetRow, Class, PaperFigures, Standing};
use taillab_model::{Distribution, Nanos};

use crate::table::{Cell, Column, Table, cell, known, name};
use crate::text::Ink;

/// Each component: ours, the paper's below it, and, `with_how`, how it came about.
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
        let at = |of: &dyn Fn(&Distribution) -> Option<Nanos>| {
            known(row.latency.as_ref().and_then(of).map(|ns| ns.to_string()))
        };
        let shown = table.row([
            name(&row.component),
            at(&|latency| latency.min),
            at(&|latency| latency.quantile(0.5)),
            at(&|latency| latency.quantile(0.999)),
            at(&|latency| latency.max),
            classes(row.class_of_median, row.class_of_tail),
            cell(row.standing.label()).ink(ink),
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

/// Marks a row that stands for what this machine does not have.
pub(crate) const STAND_IN: char = '≈';

/// Whether the paper's figures are to stand beside ours.
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

/// Each component on one line, each of our figures with the paper's beside it.
pub(crate) fn rows_beside_paper(result: &BudgetResult) -> Table {
    let mut columns = vec![Column::left("")];
    for head in ["median", "p99.9", "max"] {
        columns.push(Column::right(head).gap(2));
        columns.push(Column::right("paper").gap(1));
    }
    let mut table = Table::new("Components: here and in the paper", columns);
    for row in &result.rows {
        let ours = |of: &dyn Fn(&Distribution) -> Option<Nanos>| {
            known(row.latency.as_ref().and_then(of).map(|ns| ns.to_string()))
        };
        let papers = |of: &dyn Fn(PaperFigures) -> Nanos| {
            known(row.paper.map(|paper| of(paper).to_string())).ink(Ink::Quiet)
        };
        table.row([
            component(row),
            ours(&|latency| latency.quantile(0.5)),
            papers(&|paper| paper.median_ns),
            ours(&|latency| latency.quantile(0.999)),
            papers(&|paper| paper.p999_ns),
            ours(&|latency| latency.max),
            papers(&|paper| paper.tail_ns),
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
        let at = |of: &dyn Fn(&Distribution) -> Option<Nanos>| {
            known(row.latency.as_ref().and_then(of).map(|ns| ns.to_string()))
        };
        table.row([
            component(row),
            at(&|latency| latency.quantile(0.5)),
            at(&|latency| latency.quantile(0.999)),
            at(&|latency| latency.max),
            known(row.paper.map(|paper| paper.median_ns.to_string())).ink(Ink::Quiet),
            classes(row.class_of_median, row.class_of_tail),
        ]);
    }
    table
}

/// Each network on one line.
pub(crate) fn networks_screen(result: &BudgetResult) -> Table {
    let columns = [
        Column::left("round trip"),
        Column::right("median"),
        Column::right("p99.9"),
        Column::left("are"),
    ];
    let mut table = Table::new(
        "Round trips through networks, without queueing in them",
        columns,
    );
    for network in &result.topologies {
        let at = |q| known(network.round_trip.quantile(q).map(|ns| ns.to_string()));
        table.row([
            name(&network.name),
            at(0.5),
            at(0.999),
            classes(network.class_of_median, network.class_of_p999),
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
    cell(format!("{}, {}", median.label(), tail.label())).ink(ink)
}

/// Each network with what every part adds at the median and in the tail.
pub(crate) fn networks_table(result: &BudgetResult) -> Table {
    let columns = [
        Column::left("round trip"),
        Column::right("median"),
        Column::right("p99.9"),
        Column::left("are"),
        Column::left("by").wrapped(46),
    ];
    let mut table = Table::new(
        "Round trips through networks, without queueing in them",
        columns,
    );
    for network in &result.topologies {
        let sum = &network.round_trip;
        table.row([
            name(&network.name),
            known(sum.quantile(0.5).map(|ns| ns.to_string())),
            known(sum.quantile(0.999).map(|ns| ns.to_string())),
            classes(network.class_of_median, network.class_of_p999),
            cell(&network.description).ink(Ink::Quiet),
        ]);
        for part in &network.parts {
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

/// What was chosen for a row, in one line.
pub(crate) fn parameters(row: &BudgetRow) -> String {
    let parts = row.parameters.iter();
    let parts: Vec<String> = parts
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    parts.join(", ")
}
