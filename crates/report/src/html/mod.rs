//! `report.html`: one self-contained page, of a run or of a trace.
//!
//! Everything is in the markup, so the page reads without JavaScript; the script only
//! adds reading off, zooming and hiding curves. The page's Content-Security-Policy
//! allows its own style and script by their hashes and nothing else, so nothing can be
//! fetched and text from outside could not run even if it were not escaped.

mod bars;
mod causes;
mod checks;
mod details;
mod figure;
mod headline;
mod load;
pub(crate) mod markup;
mod over_time;
mod predictions;
mod reproduction;
mod simulation;
mod slowest;
mod stages;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use self::markup::{Esc, Markup, put};
use crate::{Document, Series, figures, findings};

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
    let version = format!("; shape of the result: version {}", report.schema_version);
    frame(&title, &version, SCRIPT, |page| {
        headline::put(page, document);
        put!(page, "<main>\n");
        causes::put_findings(page, document);
        headline::put_latency(page, document);
        figure::put_tail(page, document);
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

/// A page that runs nothing.
fn plain_document(title: &str, put_body: impl FnOnce(&mut Markup)) -> Vec<u8> {
    frame(title, "", "", put_body)
}

/// A page that is complete in itself; its policy allows it to run `script` and nothing else.
fn frame(title: &str, version: &str, script: &str, put_body: impl FnOnce(&mut Markup)) -> Vec<u8> {
    let style = format!("{STYLE}{EXPLANATION_STYLE}");
    let may_run = match script {
        "" => String::new(),
        script => format!(" script-src '{}';", hash(script)),
    };
    let mut page = Markup::default();
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}';{may_run} img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"{ICON}\">\n\
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n",
        hash(&style),
        Esc(title),
    );
    put_body(&mut page);
    put!(
        page,
        "<footer><p>Written by taillab {}{version}. This page is complete in itself and fetches \
         nothing.</p></footer>\n",
        env!("CARGO_PKG_VERSION"),
    );
    if !script.is_empty() {
        put!(page, "<script>{script}</script>\n");
    }
    put!(page, "</body>\n</html>\n");
    page.0.into_bytes()
}

/// The class of a series in the style sheet.
pub(crate) const fn class(series: Series) -> &'static str {
    match series {
        Series::Ideal => "ideal",
        Series::Measured => "measured",
        Series::Client => "client",
    }
}

/// A short piece of a curve's line, with the look of its class or of further attributes.
pub(crate) fn swatch(class: &str, look: &str) -> String {
    format!(
        "<svg class=\"swatch\" width=\"30\" height=\"10\" aria-hidden=\"true\">\
         <line class=\"curve {class}\" {look} x1=\"0\" y1=\"5\" x2=\"30\" y2=\"5\"/></svg>"
    )
}

/// A small square of a colour.
pub(crate) fn patch(class: &str) -> String {
    format!(
        "<svg class=\"patch\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
         <rect class=\"{class}\" width=\"14\" height=\"14\" rx=\"3\"/></svg>"
    )
}

/// The hash source of CSP Level 3, section 2.3.1.
fn hash(inline: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inline)))
}
