//! A paper's figures and claims as text.

use taillab_report::terminal::{Page, render_chart};
use taillab_report::text::{Ink, Style};

use crate::result::{ReproducedFigure, Reproduction};

/// All figures with their claims.
pub fn render(reproduction: &Reproduction, style: Style) -> String {
    let mut page = Page::new(style);
    let title = page.style.paint(Ink::Title, "taillab reproduce");
    page.line(&format!("{title}  {}", reproduction.paper));
    if reproduction.partial {
        page.paragraph(
            Ink::Notable,
            "PARTIAL: it ended early; these are the results so far",
        );
    }
    for figure in &reproduction.figures {
        page.line("");
        page.text.push_str(&render_chart(&figure.chart(), style));
        claims(&mut page, figure);
    }
    for what in &reproduction.left_out {
        page.paragraph(Ink::Notable, &format!("left out: {what}"));
    }
    page.line("");
    let ink = if reproduction.succeeded() {
        Ink::Good
    } else {
        Ink::Bad
    };
    page.paragraph(ink, &reproduction.tally());
    page.text
}

fn claims(page: &mut Page, figure: &ReproducedFigure) {
    if let Some(quantiles) = figure.quantiles_table() {
        page.line("");
        page.table(&quantiles);
    }
    page.line("");
    page.table(&figure.claims_table());
    if let Some(note) = &figure.note {
        page.paragraph(Ink::Quiet, note);
    }
}
