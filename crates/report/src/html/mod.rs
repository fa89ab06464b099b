//! `report.html`: one self-contained page.
//!
//! Everything is in the markup, so the page reads without JavaScript; the script only
//! adds reading off, zooming and hiding curves. The page's Content-Security-Policy
//! allows its own style and script by their hashes and nothing else, so nothing can be
//! fetched and text from outside could not run even if it were not escaped.

mod chart;
mod checks;
mod details;
mod headline;
mod load;
pub(crate) mod markup;
mod page;
mod reproduction;
mod simulation;
mod stages;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use self::markup::{Esc, Markup, put};
use crate::{RunReport, figures, findings};

pub use self::load::{render_load, render_load_sweep};
pub use self::reproduction::render as render_reproduction;
pub use self::simulation::render as render_simulation;

const STYLE: &str = include_str!("assets/report.css");
const SCRIPT: &str = include_str!("assets/report.js");
/// A small icon, so that a browser does not ask a server for one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
%3Cpath d='M2 2v12h12' fill='none' stroke='%23888' stroke-width='1.5'/%3E\
%3Cpath d='M2 3c6 0 5 9 12 10' fill='none' stroke='%23d55e00' stroke-width='2'/%3E%3C/svg%3E";

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(report: &RunReport<'_>) -> Vec<u8> {
    let mut page = Markup::default();
    let summary = report.summary;
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"{ICON}\">\n\
         <title>{}: taillab {}, {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        hash(STYLE),
        hash(SCRIPT),
        Esc(&summary.server),
        Esc(&summary.command),
        figures::utc(summary.started_unix_s),
    );
    headline::put(&mut page, summary);
    put!(page, "<main>\n");
    headline::put_latency(&mut page, summary);
    chart::put(&mut page, report);
    headline::put_table(&mut page, summary);
    stages::put(&mut page, summary);
    checks::put(&mut page, &findings::of(summary), &summary.verdict.warnings);
    details::put(&mut page, report);
    put!(page, "</main>\n");
    put!(
        page,
        "<footer><p>Written by taillab {}; shape of the result: version {}. \
         This page is complete in itself and fetches nothing.</p></footer>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        summary.schema_version,
    );
    page.0.into_bytes()
}

/// The hash source of CSP Level 3, section 2.3.1.
fn hash(inline: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inline)))
}
