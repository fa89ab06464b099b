//! A paper's figures and claims as text.

use super::text::{Ink, Side, Table, clean, columns, wrap};
use super::{INDENT, Page, Style, WIDEST, chart};
use crate::reproduction::{JudgedClaim, ReproducedFigure, Reproduction, Verdict};

/// All figures with their claims.
pub fn render(reproduction: &Reproduction, style: Style) -> String {
    let mut page = Page {
        style: Style {
            width: style.width.clamp(40, WIDEST),
            ..style
        },
        text: String::new(),
    };
    let title = page.style.paint(Ink::Title, "taillab reproduce");
    page.line(&format!("{title}  {}", reproduction.paper));
    if reproduction.partial {
        page.paragraph(Ink::Notable, "PARTIAL: interrupted; this is what there was");
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

const fn ink(verdict: Verdict) -> Ink {
    match verdict {
        Verdict::Agrees => Ink::Good,
        Verdict::TheoryDisagrees | Verdict::NotMeasured => Ink::Notable,
        Verdict::Disagrees => Ink::Bad,
    }
}

impl Page {
    fn claims(&mut self, figure: &ReproducedFigure) {
        self.line("");
        let numbers = |of: fn(&JudgedClaim) -> usize, head: &str| {
            let widest = figure.claims.iter().map(of).max().unwrap_or(0);
            widest.max(columns(head))
        };
        let paper = numbers(|claim| columns(&claim.paper), "paper");
        let ours = numbers(|claim| columns(&claim.ours_text()), "ours");
        let verdict = numbers(|claim| columns(claim.verdict.words()) + 2, "");
        let rest = INDENT + 2 + paper + 2 + ours + 2 + verdict;
        let statement = self.style.width.saturating_sub(rest).clamp(24, 60);
        let mut table = Table::new(&[
            (Side::Left, INDENT),
            (Side::Right, 2),
            (Side::Right, 2),
            (Side::Left, 2),
        ]);
        let head = ["the paper says", "paper", "ours", ""];
        table.row(head.map(|name| (Ink::Quiet, name.to_owned())).to_vec());
        let mut explanations: Vec<&str> = Vec::new();
        for claim in &figure.claims {
            let mut lines = wrap(&clean(&claim.statement), statement).into_iter();
            let verdict = format!("{} {}", claim.verdict.mark(), claim.verdict.words());
            table.row(vec![
                (Ink::Plain, lines.next().unwrap_or_default()),
                (Ink::Plain, claim.paper.clone()),
                (Ink::Title, claim.ours_text()),
                (ink(claim.verdict), verdict),
            ]);
            for line in lines {
                table.row(vec![(Ink::Plain, line)]);
            }
            let explained = claim.explanation.as_deref();
            if let Some(text) = explained.filter(|_| claim.verdict == Verdict::TheoryDisagrees)
                && !explanations.contains(&text)
            {
                explanations.push(text);
            }
        }
        self.table(&table);
        for text in explanations {
            self.paragraph(Ink::Notable, &format!("! {}", clean(text)));
        }
        if let Some(note) = &figure.note {
            self.paragraph(Ink::Quiet, &clean(note));
        }
    }
}
