//! Round trips as a page.

use taillab_experiment::round_trips::label;
use taillab_model::REPORTED_QUANTILES;
use taillab_model::rtt::RttRow;
use taillab_report::figures::utc;
use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::markup::{Esc, Markup, put, section};

use crate::figure::{around_slowest, ccdf, over_time};
use crate::result::RttReport;
use crate::{explained, tables};

/// The load of an open loop, and where the tail comes from.
fn where_from(page: &mut Markup, report: &RttReport<'_>) {
    let rows = &report.result.rows;
    if rows.iter().any(|row| row.open_loop.is_some()) {
        section(page, "load", "The load", |page| {
            explained::loads(rows).put(page);
            for row in rows {
                let (reasons, warnings) = explained::doubts(row);
                for (class, reasons) in [("bad", reasons), ("notable", warnings)] {
                    for reason in reasons {
                        let text = format!("{}: {}", label(row), reason.text);
                        put!(page, "<p class=\"notice {class}\">{}</p>\n", Esc(&text));
                    }
                }
            }
        });
    }
    if !report.result.elimination.is_empty() {
        let title = "TCP, the kernel, or the rest?";
        let table = explained::elimination(report.result);
        section(page, "elimination", title, |page| table.put(page));
    }
    let asked = |row: &&RttRow| row.explanation.is_some() || row.unexplained_because.is_some();
    if !rows.iter().any(|row| asked(&row)) {
        return;
    }
    section(page, "where", "Where the tail comes from", |page| {
        for row in rows.iter().filter(asked) {
            put!(page, "<h3>{}</h3>\n", Esc(&label(row)));
            let texts = [explained::headline(row), explained::basis(row)];
            let why = row.unexplained_because.clone();
            for text in texts.into_iter().chain([why]).flatten() {
                put!(page, "<p class=\"explain\">{}.</p>\n", Esc(&text));
            }
            if let Some(explanation) = &row.explanation {
                explained::parts(explanation).put(page);
                if !explanation.disturbances.is_empty() {
                    explained::disturbances(explanation, usize::MAX).put(page);
                }
            }
        }
    });
}

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(report: &RttReport<'_>) -> Vec<u8> {
    let rows = &report.result.rows;
    let mut facts = vec![report.way(), report.sample(), report.cpus()];
    facts.extend(report.af_xdp().map(|mode| format!("AF_XDP in {mode}")));
    facts.push(format!("from {}", utc(report.result.started_unix_s)));
    let head = Head {
        command: "taillab rtt",
        heading: "Round trips",
        partial: report.result.partial,
        facts: vec![facts.join("; ")],
        notices: tables::remarks(rows),
    };
    plain_document(head.command, &head, |page| {
        let tail = ccdf(report);
        section(page, "tail", "The tail", |page| figure::put(page, &tail));
        section(page, "quantiles", "Quantiles", |page| {
            tables::quantiles(report, &REPORTED_QUANTILES).put(page);
            tables::trimmed(report).put(page);
        });
        where_from(page, report);
        section(page, "fan-out", "The slowest of many nodes", |page| {
            tables::fan_out(report).put(page);
        });
        for (n, (row, curves)) in rows.iter().zip(report.curves).enumerate() {
            section(page, &format!("row-{n}"), &label(row), |page| {
                tables::one(row).put(page);
                put!(
                    page,
                    "<p class=\"explain\">{}.</p>\n",
                    Esc(&tables::bursts(row))
                );
                for chart in [over_time(row, curves), around_slowest(row, curves)] {
                    if !chart.is_empty() {
                        put!(page, "<h3>{}</h3>\n", Esc(&chart.title));
                        figure::put(page, &chart);
                    }
                }
            });
        }
    })
}
