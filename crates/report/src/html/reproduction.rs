//! A paper's figures and claims as a page.

use super::markup::{Esc, Markup, put};
use super::page;
use crate::reproduction::{ReproducedFigure, Reproduction, Verdict};

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(reproduction: &Reproduction) -> Vec<u8> {
    page::document(&format!("taillab: {}", reproduction.paper), |page| {
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

fn put_figure(page: &mut Markup, figure: &ReproducedFigure) {
    let id = Esc(&figure.figure).to_string();
    let chart = figure.chart();
    put!(
        page,
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n",
        Esc(&chart.title)
    );
    page::put_chart(page, &chart);
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Claims\">\n\
         <table class=\"plain\">\n<caption>What the paper says, and what we find</caption>\n\
         <thead><tr><th scope=\"col\">The paper says</th><th scope=\"col\" class=\"words\">where\
         </th><th scope=\"col\">paper</th><th scope=\"col\">ours</th><th scope=\"col\" \
         class=\"words\">verdict</th></tr></thead>\n<tbody>\n"
    );
    for claim in &figure.claims {
        let (class, explanation) = match claim.verdict {
            Verdict::Agrees => ("good", None),
            Verdict::TheoryDisagrees => ("notable", claim.explanation.as_deref()),
            Verdict::Disagrees => ("bad", None),
            Verdict::NotMeasured => ("notable", None),
        };
        let spoken = if explanation.is_some() {
            " class=\"spoken\""
        } else {
            ""
        };
        put!(
            page,
            "<tr{spoken}><td>{}</td><td class=\"words\">{}</td><td>{}</td><td>{}</td>\
             <td class=\"words {class}\">{} {}</td></tr>\n",
            Esc(&claim.statement),
            Esc(&claim.source),
            Esc(&claim.paper),
            claim.ours_text(),
            claim.verdict.mark(),
            claim.verdict.words(),
        );
        if let Some(explanation) = explanation {
            put!(
                page,
                "<tr class=\"explained\"><td colspan=\"5\">{}</td></tr>\n",
                Esc(explanation)
            );
        }
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
    if let Some(note) = &figure.note {
        put!(page, "<p class=\"explain\">{}</p>\n", Esc(note));
    }
    put!(page, "</section>\n");
}
