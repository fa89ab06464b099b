//! What takes time from a CPU, as text.

use taillab_model::noise::{NoiseResult, NoiseRow};

use super::chart;
use super::page::Page;
use crate::figures::{counted, percent};
use crate::noise;
use crate::text::{Ink, Style};

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
    page.fact("clock", &noise::clock(result));
    page.machine(result.kernel.as_deref(), result.hypervisor.as_deref());
    page.fact("held", &noise::held(result));
    page.heading(
        "Time between two reads",
        "a longer one than usual is a gap; gaps per second, by length",
    );
    page.rows(&result.rows, all, style);
    page.causes_of_rows(&result.rows, all);
    if !result.comparison.is_empty() {
        page.heading("The loops against each other", "");
        for sentence in &result.comparison {
            page.paragraph(Ink::Plain, sentence);
        }
    }
    let figure = noise::chart(result);
    if !figure.is_empty() && (all || result.rows.iter().all(|row| row.causes.is_none())) {
        page.line("");
        page.text.push_str(&chart::render(&figure, style));
    }
    page.notes(&result.notes);
    page.text
}

impl Page {
    fn rows(&mut self, rows: &[NoiseRow], all: bool, style: Style) {
        let shown = noise::worst(rows, if all { usize::MAX } else { LINES });
        self.table(&noise::rows_screen(&shown, style));
        let left = rows.len() - shown.len();
        if left > 0 {
            let left = counted(left as u64, "loop", "loops");
            let less = "with less stolen and shorter gaps: --verbose or --json shows them";
            self.paragraph(Ink::Quiet, &format!("and {left} {less}"));
        }
    }

    fn causes_of_rows(&mut self, rows: &[NoiseRow], all: bool) {
        let shown = noise::worst(rows, if all { usize::MAX } else { TABLES });
        for row in &shown {
            self.causes_of(row, all);
        }
        let left = noise::not_shown(rows, &shown);
        if left > 0 {
            let left = counted(left as u64, "other loop", "other loops");
            let text = format!("What took it from {left}: --verbose or --json shows it");
            self.line("");
            self.paragraph(Ink::Quiet, &text);
        }
    }

    fn causes_of(&mut self, row: &NoiseRow, all: bool) {
        let Some(causes) = row.causes.as_deref().filter(|causes| !causes.is_empty()) else {
            return;
        };
        let attributed = noise::attributed(row).unwrap_or_default();
        self.heading(&format!("What took it: {}", noise::name(row)), &attributed);
        self.table(&noise::causes_screen(causes, all, self.style));
        self.spells(row);
        if all {
            self.line("");
            self.table(&noise::longest_table(row, LONGEST));
        }
    }

    fn spells(&mut self, row: &NoiseRow) {
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
            self.paragraph(Ink::Quiet, &format!("spells: {}{more}", spells.join(", ")));
        }
    }
}
