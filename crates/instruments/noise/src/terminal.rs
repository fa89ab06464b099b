//! What takes time from a CPU, as text.

use taillab_model::noise::NoiseRow;
use taillab_report::figures::{counted, percent};
use taillab_report::terminal::{Page, render_chart};
use taillab_report::text::{Ink, Style};

use crate::result::NoiseResult;
use crate::{tables, texts, worst};

/// How many of each row's longest gaps are shown.
const LONGEST: usize = 5;
/// Of the loops that ran at the same time, how many get a line on a screen: the worst.
const LINES: usize = 8;
/// And how many a table of what took their time.
const TABLES: usize = 2;

/// Rows, causes and the figure; `all` shows every row and cause, and the longest gaps.
pub fn render(result: &NoiseResult, all: bool, style: Style) -> String {
    let mut page = Page::new(style);
    page.title_of_done("taillab noise", result.partial);
    page.fact("clock", &texts::clock(result));
    page.machine(result.kernel.as_deref(), result.hypervisor.as_deref());
    page.fact("held", &texts::held(result));
    page.heading(
        "Time between two reads",
        "a longer one than usual is a gap; gaps per second, by length",
    );
    rows(&mut page, &result.rows, all, style);
    causes_of_rows(&mut page, &result.rows, all);
    if !result.comparison.is_empty() {
        page.heading("The loops against each other", "");
        for sentence in &result.comparison {
            page.paragraph(Ink::Plain, sentence);
        }
    }
    let figure = crate::figure::chart(result);
    if !figure.is_empty() && (all || result.rows.iter().all(|row| row.causes.is_none())) {
        page.line("");
        page.text.push_str(&render_chart(&figure, style));
    }
    page.notes(&result.notes);
    page.text
}

fn rows(page: &mut Page, rows: &[NoiseRow], all: bool, style: Style) {
    let shown = worst::worst(rows, if all { usize::MAX } else { LINES });
    page.table(&tables::rows_screen(&shown, style));
    let left = rows.len() - shown.len();
    if left > 0 {
        let left = counted(left as u64, "loop", "loops");
        let less = "with less stolen and shorter gaps: --verbose or --json shows them";
        page.paragraph(Ink::Quiet, &format!("and {left} {less}"));
    }
}

fn causes_of_rows(page: &mut Page, rows: &[NoiseRow], all: bool) {
    let shown = worst::worst(rows, if all { usize::MAX } else { TABLES });
    for row in &shown {
        causes_of(page, row, all);
    }
    let left = worst::not_shown(rows, &shown);
    if left > 0 {
        let left = counted(left as u64, "other loop", "other loops");
        let text = format!("What took it from {left}: --verbose or --json shows it");
        page.line("");
        page.paragraph(Ink::Quiet, &text);
    }
}

fn causes_of(page: &mut Page, row: &NoiseRow, all: bool) {
    let Some(causes) = row.causes.as_deref().filter(|causes| !causes.is_empty()) else {
        return;
    };
    let attributed = texts::attributed(row).unwrap_or_default();
    page.heading(&format!("What took it: {}", texts::name(row)), &attributed);
    page.table(&tables::causes_screen(causes, all, page.style));
    spells(page, row);
    if all {
        page.line("");
        page.table(&tables::longest_table(row, LONGEST));
    }
}

fn spells(page: &mut Page, row: &NoiseRow) {
    let window = row.over_time.window_ns;
    let lengths = row.over_time.spells.iter().map(|&(first, last, share)| {
        let at = window * u64::from(first);
        let length = window * u64::from(last - first + 1);
        format!("at {at} for {length} ({} lost)", percent(share, 1))
    });
    let spells: Vec<String> = lengths.take(6).collect();
    if !spells.is_empty() {
        let more = row.over_time.spells.len().saturating_sub(spells.len());
        let more = match more {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        page.paragraph(Ink::Quiet, &format!("spells: {}{more}", spells.join(", ")));
    }
}
