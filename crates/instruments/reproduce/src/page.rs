//! A paper's figures and claims as a page.

use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::markup::{Esc, Markup, paragraph, section};

use crate::result::{ReproducedFigure, Reproduction};

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(reproduction: &Reproduction) -> Vec<u8> {
    let ended_early = "It ended early: these are the results so far.".to_owned();
    let head = Head {
        command: "taillab reproduce",
        heading: reproduction.paper,
        partial: false,
        facts: vec![reproduction.tally(), reproduction.machine.clone()],
        notices: (reproduction.partial.then_some(ended_early).into_iter())
            .chain(
                reproduction
                    .left_out
                    .iter()
                    .map(|what| format!("Left out: {what}.")),
            )
            .collect(),
    };
    plain_document(&format!("taillab: {}", reproduction.paper), &head, |page| {
        for figure in &reproduction.figures {
            put_figure(page, figure);
        }
    })
}

fn put_figure(page: &mut Markup, shown: &ReproducedFigure) {
    let chart = shown.chart();
    section(
        page,
        &Esc(&shown.figure).to_string(),
        &chart.title,
        |page| {
            figure::put(page, &chart);
            if let Some(quantiles) = shown.quantiles_table() {
                quantiles.put(page);
            }
            shown.claims_table().put(page);
            if let Some(note) = &shown.note {
                paragraph(page, "explain", note);
            }
            paragraph(page, "explain", &shown.provenance());
        },
    );
}
