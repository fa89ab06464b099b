//! A paper's figures and claims as text.

use super::chart;
use super::page::Page;
use crate::reproduction::{ReproducedFigure, Reproduction};
use crate::text::{Ink, Style};

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
        page.text.push_str(&chart::render(&figure.chart(), style));
        page.claims(figure);
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

impl Page {
    fn claims(&mut self, figure: &ReproducedFigure) {
        self.line("");
        self.table(&figure.claims_table());
        if let Some(note) = &figure.note {
            self.paragraph(Ink::Quiet, note);
        }
    }
}
