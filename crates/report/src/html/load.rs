//! The result of `taillab load` as a page: the verdict, the figure, the percentiles.

use taillab_model::load_result::{LoadSweepResult, Setup};
use taillab_model::summary::Verdict;

use super::page::plain_document;
use super::{checks, figure};
use crate::figures::{self, counted, rate};
use crate::load::{EXPLANATION, LoadReport, awake, chart, latency_table, steps_table, sweep_chart};
use crate::markup::{Esc, Markup, paragraph, put, put_reasons, section};
use crate::server::verdict_word;
use crate::table::Table;

/// The page of one load, in UTF-8; it refers to nothing outside itself.
pub fn render_load(report: &LoadReport<'_>) -> Vec<u8> {
    let result = report.result;
    plain_document("taillab load", |page| {
        put_head(page, &result.setup, &result.verdict, result.partial);
        put!(
            page,
            "<p>{}/s wanted, {}, {} sent in {}, from {}</p>\n</header>\n<main>\n",
            rate(result.load.target_rate_per_s),
            Esc(&result.load.arrivals.process),
            counted(result.load.requests, "request", "requests"),
            result.load.duration_ns,
            figures::utc(result.started_unix_s),
        );
        let chart = chart(report);
        if !chart.is_empty() {
            put!(page, "<section>\n<h2>The tail</h2>\n");
            figure::put(page, &chart, "");
            put!(page, "</section>\n");
        }
        put_percentiles(page, &latency_table(result));
        paragraph(page, "explain", EXPLANATION);
        checks::put(
            page,
            &crate::checks::of_load(result),
            &result.verdict.warnings,
        );
        put!(page, "</main>\n");
    })
}

/// The page of a sweep or of a search.
pub fn render_load_sweep(result: &LoadSweepResult) -> Vec<u8> {
    plain_document("taillab load", |page| {
        put_head(page, &result.setup, &result.verdict, result.partial);
        put!(
            page,
            "<p>{}, from {}</p>\n",
            counted(result.steps.len() as u64, "load", "loads"),
            figures::utc(result.started_unix_s),
        );
        if let Some(found) = &result.found {
            let answer = found.rate_per_s.map_or_else(
                || "no rate measured holds it".to_owned(),
                |highest| format!("holds up to {}/s", rate(highest)),
            );
            let breaks = found
                .fails_at_per_s
                .map(|fails| format!(", breaks at {}/s", rate(fails)))
                .unwrap_or_default();
            put!(
                page,
                "<p><strong>{}</strong>: {answer}{breaks}</p>\n",
                Esc(&found.objective.to_string())
            );
        }
        put!(
            page,
            "</header>\n<main>\n<section>\n<h2>Latency against load</h2>\n"
        );
        figure::put(page, &sweep_chart(result), "");
        put!(page, "</section>\n");
        put_percentiles(page, &steps_table(result, true));
        let floor = crate::checks::floor(
            result.floor.as_ref(),
            result.floor_absent_because.as_deref(),
        );
        checks::put(page, &[floor], &result.verdict.warnings);
        put!(page, "</main>\n");
    })
}

/// The head up to the facts, which the caller adds, and the header's end.
fn put_head(page: &mut Markup, setup: &Setup, verdict: &Verdict, partial: bool) {
    let (ink, word) = verdict_word(verdict, partial);
    let class = ink.class();
    put!(
        page,
        "<header>\n<p class=\"eyebrow\">taillab load</p>\n\
         <h1>{} <span class=\"verdict {class}\">{word}</span></h1>\n<p>{} over {}, {}, {}{}</p>\n",
        Esc(&setup.target),
        Esc(&setup.protocol),
        Esc(&setup.transport),
        counted(u64::from(setup.connections), "connection", "connections"),
        counted(u64::from(setup.threads), "thread", "threads"),
        awake(setup),
    );
    if !verdict.reasons.is_empty() {
        put!(page, "<div class=\"notice bad\">\n");
        put_reasons(page, &verdict.reasons);
        put!(page, "</div>\n");
    }
}

fn put_percentiles(page: &mut Markup, table: &Table) {
    section(page, "percentiles", "Percentiles", |page| table.put(page));
}
