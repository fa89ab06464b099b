//! The result of `taillab load` as a page: the verdict, the figure, the percentiles.

use taillab_model::load_result::{Generator, LoadReport};

use super::headline::put_reservations;
use super::page::frame;
use super::{checks, figure};
use crate::figures::{self, counted, rate};
use crate::load::{EXPLANATION, LoadDocument, chart, client, latency_table, steps_table};
use crate::markup::{Esc, Markup, paragraph, put, put_reasons, section};
use crate::server::verdict_word;
use crate::table::Table;

/// The page of a load, of a sweep or of a search, in UTF-8; it refers to nothing outside itself.
pub fn render_load(document: &LoadDocument<'_>) -> Vec<u8> {
    let report = document.report;
    let generator = report.generator();
    frame("taillab load", "", "", |page| {
        put_head(page, report);
        let began = figures::utc(report.started_unix_s);
        let title = match &report.load {
            Some(load) => {
                put!(
                    page,
                    "<p>{}/s wanted, {}, {} sent in {}, from {began}</p>\n",
                    rate(load.target_rate_per_s),
                    Esc(&load.arrivals.process),
                    counted(load.requests, "request", "requests"),
                    load.duration_ns,
                );
                "The tail"
            }
            None => {
                let steps = counted(generator.steps.len() as u64, "load", "loads");
                put!(page, "<p>{steps}, from {began}</p>\n");
                put_found(page, generator);
                "Latency against load"
            }
        };
        put!(page, "</header>\n<main>\n");
        if let Some(chart) = chart(document).filter(|chart| !chart.is_empty()) {
            section(page, "tail", title, |page| figure::put(page, &chart));
        }
        match &report.load {
            Some(load) => {
                let table = latency_table(load, generator.floor.as_ref(), &report.verdict);
                put_percentiles(page, &table);
                paragraph(page, "explain", EXPLANATION);
            }
            None => put_percentiles(page, &steps_table(generator, true)),
        }
        checks::put(
            page,
            &crate::checks::of_load(report),
            &report.verdict.warnings,
        );
        put!(page, "</main>\n");
    })
}

fn put_found(page: &mut Markup, generator: &Generator) {
    let Some(found) = &generator.found else {
        return;
    };
    let answer = found.rate_per_s.map_or_else(
        || "no measured rate meets it".to_owned(),
        |highest| format!("met up to {}/s", rate(highest)),
    );
    let breaks = found
        .fails_at_per_s
        .map(|fails| format!(", missed at {}/s", rate(fails)))
        .unwrap_or_default();
    put!(
        page,
        "<p><strong>{}</strong>: {answer}{breaks}</p>\n",
        Esc(&found.objective.to_string())
    );
}

/// The head up to the facts, which the caller adds, and the header's end.
fn put_head(page: &mut Markup, report: &LoadReport) {
    let verdict = &report.verdict;
    let (ink, word) = verdict_word(verdict, report.partial);
    let class = ink.class();
    put!(
        page,
        "<header>\n<p class=\"eyebrow\">taillab load</p>\n\
         <h1>{} <span class=\"verdict {class}\">{word}</span></h1>\n<p>{}</p>\n",
        Esc(&report.target),
        Esc(&client(report)),
    );
    if !verdict.reasons.is_empty() {
        put!(page, "<div class=\"notice bad\">\n");
        put_reasons(page, &verdict.reasons);
        put!(page, "</div>\n");
    }
    put_reservations(page, verdict, &[]);
}

fn put_percentiles(page: &mut Markup, table: &Table) {
    section(page, "percentiles", "Percentiles", |page| table.put(page));
}
