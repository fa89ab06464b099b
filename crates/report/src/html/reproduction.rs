//! A paper's figures and claims as a page.

use super::figure;
use super::page::plain_document;
use crate::markup::{Esc, Markup, paragraph, put, section};
use crate::reproduction::{ReproducedFigure, Reproduction};

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(reproduction: &Reproduction) -> Vec<u8> {
    plain_document(&format!("taillab: {}", reproduction.paper), |page| {
        put!(
            page,
            "<header>\n<p class=\"eyebrow\">taillab reproduce</p>\n<h1>{}</h1>\n<p>{}</p>\n",
            Esc(reproduction.paper),
            Esc(&reproduction.tally()),
        );
        if reproduction.partial {
            put!(
                page,
                "<p class=\"notice notable\">Interrupted: these are the results so far.</p>\n"
            );
        }
        put!(page, "</header>\n<main>\n");
        for figure in &reproduction.figures {
            put_figure(page, figure);
        }
        put!(page, "</main>\n");
    })
}

fn put_figure(page: &mut Markup, shown: &ReproducedFigure) {
    let chart = shown.chart();
    section(
        page,
        &Esc(&shown.figure).to_string(),
        &chart.title,
        |page| {
            figure::put(page, &chart, "");
            shown.claims_table().put(page);
            if let Some(note) = &shown.note {
                paragraph(page, "explain", note);
            }
        },
    );
}
