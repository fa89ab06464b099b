//! A paper's figures and claims as a page.

use super::figure;
use super::page::plain_document;
use crate::markup::{Esc, Markup, put};
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
                "<p class=\"notice notable\">Interrupted: this is what there was.</p>\n"
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
    let id = Esc(&shown.figure).to_string();
    let chart = shown.chart();
    put!(
        page,
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n",
        Esc(&chart.title)
    );
    figure::put(page, &chart, "");
    shown.claims_table().put(page);
    if let Some(note) = &shown.note {
        put!(page, "<p class=\"explain\">{}</p>\n", Esc(note));
    }
    put!(page, "</section>\n");
}
