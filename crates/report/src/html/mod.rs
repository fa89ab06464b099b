//! `report.html`: one self-contained page, of a run or of a trace.
//!
//! Everything is in the markup, so the page reads without JavaScript; the script only
//! adds reading off, zooming and hiding curves. The page's Content-Security-Policy
//! allows its own style and script by their hashes and nothing else, so nothing can be
//! fetched and text from outside could not run even if it were not escaped.

mod causes;
mod chart;
mod checks;
mod details;
mod headline;
mod load;
pub(crate) mod markup;
mod over_time;
mod page;
mod predictions;
mod reproduction;
mod simulation;
mod slowest;
mod stages;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use self::markup::{Esc, Markup, put};
use crate::Document;
use crate::{figures, findings};

pub use self::load::{render_load, render_load_sweep};
pub use self::reproduction::render as render_reproduction;
pub use self::simulation::render as render_simulation;

const STYLE: &str = include_str!("assets/report.css");
/// What an explanation adds.
const EXPLANATION_STYLE: &str = include_str!("assets/explanation.css");
const SCRIPT: &str = include_str!("assets/report.js");
/// A small icon, so that a browser does not ask a server for one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
%3Cpath d='M2 2v12h12' fill='none' stroke='%23888' stroke-width='1.5'/%3E\
%3Cpath d='M2 3c6 0 5 9 12 10' fill='none' stroke='%23d55e00' stroke-width='2'/%3E%3C/svg%3E";

/// The page of a report, in UTF-8; it refers to nothing outside itself. The most important
/// comes first.
pub fn render(document: &Document<'_>) -> Vec<u8> {
    let report = document.report;
    let title = format!(
        "{}: taillab {}, {}",
        report.target,
        report.command,
        figures::began(report.started_unix_s)
    );
    frame(&title, report.schema_version, |page| {
        headline::put(page, document);
        put!(page, "<main>\n");
        causes::put_findings(page, document);
        headline::put_latency(page, document);
        chart::put(page, document);
        causes::put(page, document);
        predictions::put(page, document);
        slowest::put(page, document);
        over_time::put(page, document);
        headline::put_table(page, document);
        stages::put(page, &report.server);
        checks::put(page, &findings::of(document), &report.verdict.warnings);
        details::put(page, document);
        put!(page, "</main>\n");
    })
}

/// The frame of every page.
fn frame(title: &str, schema_version: u32, put_body: impl FnOnce(&mut Markup)) -> Vec<u8> {
    let style = format!("{STYLE}{EXPLANATION_STYLE}");
    let mut page = Markup::default();
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"{ICON}\">\n\
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n",
        hash(&style),
        hash(SCRIPT),
        Esc(title),
    );
    put_body(&mut page);
    put!(
        page,
        "<footer><p>Written by taillab {}; shape of the result: version {schema_version}. \
         This page is complete in itself and fetches nothing.</p></footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
    );
    page.0.into_bytes()
}

/// The hash source of CSP Level 3, section 2.3.1.
fn hash(inline: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inline)))
}
