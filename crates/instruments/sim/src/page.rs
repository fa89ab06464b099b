//! The result of `taillab sim` as a page: the figure and the quantiles.

use taillab_model::REPORTED_QUANTILES;
use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::markup::{Markup, paragraph, section};

use crate::figure::chart;
use crate::result::SimulationReport;
use crate::tables::{Unit, rows_table, run_table};

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(report: &SimulationReport) -> Vec<u8> {
    let warnings = report.runs.all().iter().flat_map(|run| {
        let said = move |warning| format!("{}: {warning}", report.label(run));
        run.warnings.iter().map(said)
    });
    let head = Head {
        command: "taillab sim",
        heading: "Simulated latency",
        partial: report.partial,
        facts: vec![report.common()],
        notices: warnings.collect(),
    };
    plain_document(head.command, &head, |page| {
        let tail = chart(report);
        section(page, "tail", "The tail", |page| figure::put(page, &tail));
        put_table(page, report);
        put_exact(page, report);
    })
}

fn put_table(page: &mut Markup, report: &SimulationReport) {
    let unit = Unit::of(report.runs.all());
    let table = rows_table(report, unit, &REPORTED_QUANTILES, |x| unit.interval(x));
    section(page, "percentiles", "Percentiles", |page| table.put(page));
}

fn put_exact(page: &mut Markup, report: &SimulationReport) {
    for (i, run) in report.runs.all().iter().enumerate() {
        let Some(exact) = run.exact.as_ref().and_then(Option::as_ref) else {
            continue;
        };
        let heading = format!("{}: simulated and exact", report.label(run));
        section(page, &format!("exact-{i}"), &heading, |page| {
            let law = format!("Exact: {} ({}).", exact.model, exact.source);
            paragraph(page, "explain", &law);
            run_table(run).put(page);
        });
    }
}
