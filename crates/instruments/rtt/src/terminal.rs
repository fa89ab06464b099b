//! Round trips as text.

use taillab_experiment::round_trips::label;
use taillab_model::REPORTED_QUANTILES;
use taillab_model::rtt::RttRow;
use taillab_report::figures;
use taillab_report::terminal::Page;
use taillab_report::text::{Ink, Style};

use crate::figure::ccdf;
use crate::result::RttReport;
use crate::{explained, tables};

/// The tables and, with `all`, the figure; `saved_in` is the page, if it was saved.
pub fn render(report: &RttReport<'_>, saved_in: Option<&str>, all: bool, style: Style) -> String {
    let mut page = Page::new(style);
    let rows = &report.result.rows;
    let word = match (
        report.result.partial,
        rows.iter().any(|row| row.failure.is_some()),
    ) {
        (_, true) => (Ink::Bad, "FAILED, PARTIAL"),
        (true, false) => (Ink::Notable, "PARTIAL"),
        (false, false) => (Ink::Good, "COMPLETE"),
    };
    page.title("taillab rtt", word);
    page.fact("server", &report.way());
    page.fact("sample", &format!("{}; {}", report.sample(), report.cpus()));
    if let Some(mode) = report.af_xdp() {
        page.fact("AF_XDP", mode);
    }
    if let Some(place) = saved_in {
        page.fact("saved in", place);
    }
    match rows.as_slice() {
        [] => {}
        [row] => {
            page.heading(
                &format!("{}, round trips in µs", label(row)),
                "with 95 % intervals",
            );
            page.table(&tables::one(row));
            round_trips_needed(&mut page, rows);
        }
        _ => round_trips(&mut page, report, all),
    }
    open_loops(&mut page, rows, all);
    explanations(&mut page, report, all);
    if all || rows.len() == 1 {
        page.heading(
            "Single or in bursts?",
            "slow round trips next to each other",
        );
        for row in rows {
            let text = tables::bursts(row);
            let text = if rows.len() > 1 {
                format!("{}: {text}", label(row))
            } else {
                text
            };
            page.paragraph(Ink::Plain, &text);
        }
    }
    if !rows.is_empty() {
        page.heading(
            "The slowest of many nodes",
            "in µs, asked at once, independent",
        );
        page.table(&tables::fan_out(report));
    }
    match all {
        true => page.chart(&ccdf(report)),
        false => {
            page.line("");
            let more = match rows.len() {
                1 => "-v draws it",
                _ => "-v adds the mean of the runs, single or in bursts, and the figure",
            };
            page.paragraph(Ink::Quiet, more);
        }
    }
    for text in tables::remarks(rows) {
        page.paragraph(Ink::Notable, &format!("! {text}"));
    }
    page.text
}

/// Disturbances that are named.
const DISTURBANCES: usize = 4;

/// The loads of rows that were sent by a schedule, and the reasons to doubt them.
fn open_loops(page: &mut Page, rows: &[RttRow], all: bool) {
    if rows.iter().all(|row| row.open_loop.is_none()) {
        return;
    }
    page.heading("By a schedule", "Poisson; each counts from when it was due");
    page.table(&explained::loads(rows));
    let mut more = 0;
    for row in rows {
        let (reasons, warnings) = explained::doubts(row);
        for reason in reasons {
            page.marked(Ink::Bad, "✗", &format!("{}: {}", label(row), reason.text));
        }
        more += if all { 0 } else { warnings.len() };
        for warning in warnings.iter().filter(|_| all) {
            page.marked(
                Ink::Notable,
                "!",
                &format!("{}: {}", label(row), warning.text),
            );
        }
    }
    if more > 0 {
        let more = figures::counted(more as u64, "reservation", "reservations");
        page.paragraph(Ink::Quiet, &format!("{more}: -v"));
    }
}

/// Where the tail comes from: one row with its table, several with a sentence each.
fn explanations(page: &mut Page, report: &RttReport<'_>, all: bool) {
    let rows = &report.result.rows;
    let asked = |row: &&RttRow| row.explanation.is_some() || row.unexplained_because.is_some();
    if rows.iter().any(|row| asked(&row)) {
        page.heading(
            "Where the tail comes from",
            "both ends, with the kernel probe",
        );
    }
    for row in rows.iter().filter(asked) {
        if let Some(why) = &row.unexplained_because {
            page.paragraph(Ink::Quiet, &format!("{}: {why}", label(row)));
        }
        if let Some(text) = explained::headline(row) {
            page.paragraph(Ink::Plain, &format!("{}: {text}", label(row)));
        }
        if let Some(explanation) = row.explanation.as_ref().filter(|_| all || rows.len() == 1) {
            page.table(&explained::parts(explanation));
            if !explanation.disturbances.is_empty() {
                page.line("");
                page.table(&explained::disturbances(explanation, DISTURBANCES));
            }
        }
        if let Some(text) = explained::basis(row) {
            page.paragraph(Ink::Quiet, &text);
        }
    }
    if !report.result.elimination.is_empty() {
        page.heading("TCP, the kernel, or the rest?", "what each adds, in µs");
        page.table(&explained::elimination(report.result));
    }
}

fn round_trips(page: &mut Page, report: &RttReport<'_>, all: bool) {
    page.heading(
        "Round trips in µs",
        "all runs together; intervals with --json",
    );
    let table = tables::quantiles(report, &REPORTED_QUANTILES).fit(
        page.style,
        &[
            &|table| *table = tables::quantiles(report, &tables::FEW),
            &|table| *table = tables::quantiles(report, &[0.5, 0.999]),
        ],
    );
    page.table(&table);
    round_trips_needed(page, &report.result.rows);
    if !all {
        return;
    }
    page.heading(
        "Mean of the runs in µs",
        "without the slowest and the fastest at each quantile",
    );
    page.table(&tables::trimmed(report));
}

/// What the dashes mean.
fn round_trips_needed(page: &mut Page, rows: &[RttRow]) {
    let needs = rows.iter().flat_map(|row| &row.needs);
    let needs: Vec<(f64, u64)> = needs.map(|need| (need.q, need.round_trips)).collect();
    let up_to = if rows.len() > 1 { "up to" } else { "about" };
    let write = |n| format!("{up_to} {} round trips", figures::count(n));
    page.needs(&needs, write);
}
