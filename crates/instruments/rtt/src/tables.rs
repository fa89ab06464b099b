//! Round trips as tables.

use taillab_experiment::round_trips::label;
use taillab_model::rtt::{RttBursts, RttCounts, RttOpenLoop, RttRow, mean_without_extremes};
use taillab_model::{Nanos, Quantile, REPORTED_QUANTILES};
use taillab_report::figures::{self, count, counted, percent, quantile_name};
use taillab_report::latency;
use taillab_report::table::{Cell, Column, Table, cell, known, lacking, name};
use taillab_report::text::Ink;

use super::result::RttReport;

/// A length in µs; below 1 µs, which is reached only through memory, in steps of 10 ns.
fn micros(length: Nanos) -> String {
    match length.get() {
        0..1_000 => format!("{:.2}", length.as_micros_f64()),
        _ => figures::micros(length),
    }
}

/// The percentiles that fit a narrow terminal.
pub(crate) const FEW: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// A row for each combination, a column for each of the `quantiles`, then the slowest.
pub(crate) fn quantiles(report: &RttReport<'_>, quantiles: &[f64]) -> Table {
    let mut columns = vec![Column::left("")];
    columns.extend(
        quantiles
            .iter()
            .map(|q| Column::right(quantile_name(*q)).gap(2)),
    );
    columns.push(Column::right("max").gap(2));
    columns.push(Column::right("÷ p50").ink(Ink::Title).gap(2));
    let caption = "Round trips in µs, all runs together, below each its 95 % interval; the last \
                   column is the slowest divided by the median, each as the mean of the runs without the \
                   extremes";
    let mut table = Table::new(caption, columns);
    for row in &report.result.rows {
        let mut cells = vec![name(label(row))];
        cells.extend(quantiles.iter().map(|q| quantile(row, *q)));
        cells.push(known(row.rtt.max.map(micros)));
        cells.push(known(row.worst_to_median.map(figures::ratio)).ink(Ink::Title));
        table.row(cells);
    }
    table
}

/// A quantile with its interval as a note, or why it is missing.
fn quantile(row: &RttRow, q: f64) -> Cell {
    match row.rtt.at(q) {
        Some(Quantile {
            value: Some(value),
            lo,
            hi,
            ..
        }) => cell(micros(*value)).note(figures::interval_by(micros, *lo, *hi)),
        _ => lacking(lacks(row, q)),
    }
}

/// `needs about 380,000 round trips`, or what the verdict on the load has against the quantile.
fn lacks(row: &RttRow, q: f64) -> String {
    let need = row.needs.iter().find(|need| need.q == q);
    match (need, &row.open_loop) {
        (Some(need), _) => format!("needs about {} round trips", count(need.round_trips)),
        (None, Some(open)) => latency::lacks(&row.rtt, q, &open.verdict, None),
        (None, None) => "no round trip".to_owned(),
    }
}

/// One row by itself: a line for each quantile with all ways of taking it.
pub(crate) fn one(row: &RttRow) -> Table {
    let caption = "Round trips in µs: all runs together, the mean of the runs without the \
                   slowest and the fastest, and these two";
    let columns = [
        Column::left(""),
        Column::right("all runs").ink(Ink::Title).gap(3).notes(),
        Column::right("mean of runs").gap(3),
        Column::right("fastest run").gap(3),
        Column::right("slowest run").gap(3),
    ];
    let mut table = Table::new(caption, columns);
    for q in REPORTED_QUANTILES {
        let mut of_runs: Vec<Nanos> =
            (row.runs.iter().filter_map(|run| run.rtt.quantile(q))).collect();
        of_runs.sort_unstable();
        // a run that lacks it for its bursts may be the slowest
        let slowest = of_runs.last().filter(|_| of_runs.len() == row.runs.len());
        let trimmed = row.trimmed.iter().find(|x| x.q == q);
        table.row([
            name(quantile_name(q)),
            quantile(row, q).ink(Ink::Title),
            known(trimmed.and_then(|x| x.mean_ns).map(micros)),
            known(of_runs.first().copied().map(micros)),
            known(slowest.copied().map(micros)),
        ]);
    }
    let mut worst: Vec<Nanos> = row.runs.iter().filter_map(|run| run.rtt.max).collect();
    worst.sort_unstable();
    table.row([
        name("max"),
        known(row.rtt.max.map(micros)).ink(Ink::Title),
        known(mean_without_extremes(worst.clone()).map(micros)),
        known(worst.first().copied().map(micros)),
        known(worst.last().copied().map(micros)),
    ]);
    table
}

/// The paper's average of the runs: a row for each combination.
pub(crate) fn trimmed(report: &RttReport<'_>) -> Table {
    let mut columns = vec![Column::left("")];
    columns.extend(REPORTED_QUANTILES.map(|q| Column::right(quantile_name(q)).gap(2)));
    let caption = "Round trips in µs, mean of the runs without the slowest and the fastest";
    let mut table = Table::new(caption, columns);
    for row in &report.result.rows {
        let mut cells = vec![name(label(row))];
        cells.extend(row.trimmed.iter().map(|x| known(x.mean_ns.map(micros))));
        table.row(cells);
    }
    table
}

/// The slowest of 100 and 1,000 nodes.
pub(crate) fn fan_out(report: &RttReport<'_>) -> Table {
    const NODES: [u32; 2] = [100, 1_000];
    let mut columns = vec![Column::left("")];
    for nodes in NODES {
        let nodes = count(u64::from(nodes));
        columns.push(Column::right(format!("{nodes}: p50")).gap(3));
        columns.push(Column::right(format!("{nodes}: p99")).gap(3));
    }
    let caption = "The slowest of 100 and of 1,000 nodes that are asked at once, each with these \
                   round trips, in µs";
    let mut table = Table::new(caption, columns);
    for row in &report.result.rows {
        let mut cells = vec![name(label(row))];
        for nodes in NODES {
            let found = row.fan_out.iter().find(|x| x.servers == nodes);
            cells.push(known(found.and_then(|x| x.p50_ns).map(micros)));
            cells.push(known(found.and_then(|x| x.p99_ns).map(micros)));
        }
        table.row(cells);
    }
    table
}

/// Single events or bursts, in one sentence.
pub(crate) fn bursts(row: &RttRow) -> String {
    let Some(RttBursts {
        clustering,
        threshold_ns,
        run_lengths,
        longest,
    }) = &row.bursts
    else {
        let withdraws = |open: &RttOpenLoop| open.verdict.withdraws(0.99);
        return match row.open_loop.as_ref().is_some_and(withdraws) {
            true => "withdrawn with p99, above which a round trip is slow".to_owned(),
            false => "too few round trips to say".to_owned(),
        };
    };
    let single = run_lengths.first().map_or(0, |(_, n)| *n);
    let all: u64 = run_lengths.iter().map(|(_, n)| n).sum();
    let neighbour = clustering.autocorrelation.first();
    let neighbour = neighbour.map_or_else(String::new, |(_, r)| {
        format!("; correlation with the next one {r:.2}")
    });
    format!(
        "of those above {threshold_ns} (p99), {} follow one another; {} of {} are single, the \
         longest has {longest}{neighbour}",
        percent(clustering.in_runs_share, 1),
        count(single),
        counted(all, "sequence", "sequences"),
    )
}

/// What a reader must know besides the figures, a sentence each.
pub(crate) fn remarks(rows: &[RttRow]) -> Vec<String> {
    let of_row = |row: &RttRow| {
        let texts = [mishaps(row), shortfall(row)].into_iter().flatten();
        let label = label(row);
        texts
            .map(|text| format!("{label}: {text}"))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<String> = functional_only(rows).into_iter().collect();
    all.extend(rows.iter().flat_map(of_row));
    all
}

/// The protocols whose times mean nothing here, and why.
fn functional_only(rows: &[RttRow]) -> Option<String> {
    let rows = rows.iter().filter(|row| row.functional_only.is_some());
    let why = rows
        .clone()
        .find_map(|row| row.functional_only.as_deref())?;
    let mut protocols: Vec<&str> = rows.map(|row| row.proto.as_str()).collect();
    protocols.dedup();
    Some(format!(
        "{}: functional only, since {why}; its times say nothing of RDMA",
        protocols.join(", ")
    ))
}

/// What went wrong with messages; `None` when nothing did.
fn mishaps(row: &RttRow) -> Option<String> {
    let RttCounts {
        sent,
        lost,
        late,
        duplicated,
        foreign,
        ..
    } = row.counts;
    let parts = [
        (lost, "lost (counted as long as they were waited for)"),
        (late, "answered too late"),
        (duplicated, "answered twice"),
        (foreign, "that are not answers"),
    ];
    let parts: Vec<String> = (parts.iter())
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", count(*n)))
        .collect();
    (!parts.is_empty()).then(|| format!("of {} messages {}", count(sent), parts.join(", ")))
}

/// Why the row has less than was wanted.
fn shortfall(row: &RttRow) -> Option<String> {
    let kept = counted(row.rtt.count, "round trip", "round trips");
    row.partial
        .then(|| match (row.failure.as_deref(), row.ended_after_ns) {
            (Some(why), _) => format!("ended early with {kept}: {why}"),
            (None, Some(most)) => format!(
                "ended with {kept}, since a run lasts {most} at most: --at-most allows more"
            ),
            (None, None) => format!("interrupted with {kept}"),
        })
}
