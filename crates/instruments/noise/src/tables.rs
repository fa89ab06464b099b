//! The rows, what took the time, and the longest gaps, as tables.

use taillab_model::noise::{NoiseCause, NoiseKind, NoiseRow};
use taillab_model::{Distribution, Nanos};
use taillab_report::figures::{count, counted, percent};
use taillab_report::table::{Column, Table, cell, known, length, name};
use taillab_report::text::{Ink, Style};

use super::texts::name as name_of;

/// Causes in a table of a terminal.
const ON_SCREEN: usize = 12;
/// Causes in a table of a page.
const ON_PAGE: usize = 30;
/// A cause that never took most of a gap gets a line only with at least this share of the stolen time.
const WORTH_A_LINE: f64 = 0.01;

/// The distribution and the gaps of each row.
pub(crate) fn rows_table<'a>(rows: impl IntoIterator<Item = &'a NoiseRow>) -> Table {
    let columns = [
        Column::left(""),
        Column::right("min").gap(2),
        Column::right("median").gap(2),
        Column::right("p99.9").gap(2),
        Column::right("max").gap(2),
        Column::right(">1 µs/s").short(">1 µs").gap(2),
        Column::right(">10 µs/s").short(">10 µs").gap(2),
        Column::right(">100 µs/s").short(">100 µs").gap(2),
        Column::right("stolen").gap(2),
    ];
    let mut table = Table::new("Time between two reads, and gaps per second", columns);
    for row in rows {
        let reads = &row.reads;
        let cells = [
            name(name_of(row)),
            length(reads.min),
            length(reads.quantile(0.5)),
            length(reads.quantile(0.999)),
            length(reads.max),
            cell(per_s(row.above.us_1_per_s)),
            cell(per_s(row.above.us_10_per_s)),
            cell(per_s(row.above.us_100_per_s)),
            cell(percent(row.stolen_share, 3)),
        ];
        let below = doubts(row);
        let shown = table.row(cells);
        if let Some(text) = below {
            shown.below(Ink::Notable, text);
        }
    }
    table
}

/// The same with as many columns as fit a terminal.
pub(crate) fn rows_screen(rows: &[&NoiseRow], style: Style) -> Table {
    rows_table(rows.iter().copied()).fit(
        style,
        &[
            &|table| table.shorten(),
            &|table| table.hide(1),
            &|table| table.hide(5),
            &|table| table.hide(3),
            &|table| table.hide(6),
        ],
    )
}

/// What the reader must know about a row.
fn doubts(row: &NoiseRow) -> Option<String> {
    let mut parts = Vec::new();
    if row.migrations > 0 {
        let times = counted(row.migrations, "time", "times");
        parts.push(format!("moved to another CPU {times}"));
    }
    if row.gaps_not_kept > 0 {
        let (one, many) = ("gap without a cause", "gaps without a cause");
        parts.push(counted(row.gaps_not_kept, one, many));
    }
    (!parts.is_empty()).then(|| format!("! {}", parts.join("; ")))
}

fn per_s(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 => count(rate.round() as u64),
        rate if rate >= 1.0 => format!("{rate:.1}"),
        rate => format!("{rate:.2}"),
    }
}

/// What took the time of one row, the largest first.
pub(crate) fn causes_page(causes: &[NoiseCause]) -> Table {
    causes_table(causes, ON_PAGE, "--json shows")
}

fn causes_table(causes: &[NoiseCause], most: usize, elsewhere: &str) -> Table {
    let columns = [
        Column::left("cause"),
        Column::left("who").wrapped(40),
        Column::right("gaps"),
        Column::right("median"),
        Column::right("max"),
        Column::right("time"),
        Column::right("share"),
        Column::left(""),
    ];
    let mut table = Table::new("What took the time", columns);
    // what never took most of a gap is worth a line only where it adds up
    let (named, small): (Vec<_>, Vec<_>) =
        (causes.iter()).partition(|cause| cause.gaps > 0 || cause.share >= WORTH_A_LINE);
    for cause in named.iter().take(most) {
        let reads: &Distribution = &cause.length;
        let ink = match cause.cause {
            NoiseKind::Hypervisor | NoiseKind::Unexplained => Ink::Notable,
            _ => Ink::Title,
        };
        table.row([
            cell(cause.cause.label()).ink(ink),
            known(cause.culprit.clone()),
            cell(count(cause.gaps)),
            length(reads.quantile(0.5).or(reads.max)),
            length(reads.max),
            cell(cause.stolen_ns.to_string()),
            cell(percent(cause.share, 1)),
            cell(bar(cause.share)).ink(Ink::Measured),
        ]);
    }
    let others = named.iter().skip(most);
    if others.len() > 0 {
        let text = format!(
            "and {} more with {}: {elsewhere} them",
            others.len(),
            percent(others.map(|cause| cause.share).sum(), 1)
        );
        table.row([cell(text).ink(Ink::Quiet)]);
    }
    if !small.is_empty() {
        let text = format!(
            "and parts of gaps by {}, {} together: --json shows them",
            counted(small.len() as u64, "other", "others"),
            percent(small.iter().map(|cause| cause.share).sum(), 1)
        );
        table.row([cell(text).ink(Ink::Quiet)]);
    }
    table
}

/// The same with as many columns as fit a terminal.
pub(crate) fn causes_screen(causes: &[NoiseCause], all: bool, style: Style) -> Table {
    let most = if all { usize::MAX } else { ON_SCREEN };
    causes_table(causes, most, "--verbose or --json show")
        .fit(style, &[&|table| table.hide(7), &|table| table.hide(3)])
}

/// A bar of a share, of at most ten characters.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * 80.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// The longest gaps of one row, in order of time.
pub(crate) fn longest_table(row: &NoiseRow, most: usize) -> Table {
    let columns = [
        Column::right("at"),
        Column::right("length"),
        Column::left("what took it").wrapped(70),
    ];
    let mut table = Table::new("The longest gaps, in order of time", columns);
    let mut longest: Vec<_> = row.longest.iter().collect();
    longest.sort_by_key(|gap| std::cmp::Reverse(gap.length_ns));
    longest.truncate(most);
    longest.sort_by_key(|gap| gap.from_ns);
    let first = row.longest.iter().map(|gap| gap.from_ns).min();
    for gap in longest {
        let since = first.map_or(Nanos::ZERO, |first| gap.from_ns.saturating_since(first));
        let parts: Vec<String> = (gap.parts.iter())
            .map(|(what, length)| format!("{what} {length}"))
            .collect();
        table.row([
            cell(format!("+{since}")),
            name(gap.length_ns.to_string()),
            known((!parts.is_empty()).then(|| parts.join(", "))),
        ]);
    }
    table
}
