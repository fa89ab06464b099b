//! The page of a report, the most important first.

use super::page::frame;
use super::{
    causes, checks, details, figure, fixes, headline, over_time, predictions, slowest, stages,
};
use crate::document::Document;
use crate::figures;
use crate::markup::put;

const SCRIPT: &str = include_str!("assets/report.js");

/// The page of a report, in UTF-8; it refers to nothing outside itself.
pub fn render(document: &Document<'_>) -> Vec<u8> {
    let report = document.report;
    let title = format!(
        "{}: taillab {}, {}",
        report.target,
        report.command,
        figures::began(report.started_unix_s)
    );
    let version = format!("; shape of the result: version {}", report.schema_version);
    frame(&title, &version, SCRIPT, |page| {
        headline::put(page, document);
        put!(page, "<main>\n");
        causes::put_findings(page, document);
        headline::put_latency(page, document);
        figure::put_tail(page, document);
        causes::put(page, document);
        predictions::put(page, document);
        fixes::put(page, document);
        slowest::put(page, document);
        over_time::put(page, document);
        headline::put_table(page, document);
        stages::put(page, &report.server);
        checks::put(page, &crate::checks::of(document), &report.verdict.warnings);
        details::put(page, document);
        put!(page, "</main>\n");
    })
}
