//! What `--fix` tried.

use super::page::Page;
use crate::document::Document;
use crate::fixes;
use crate::text::Ink;

impl Page {
    /// A row for each change that was tried; nothing where none was.
    pub(super) fn fixes(&mut self, document: &Document<'_>) {
        let fixes = &document.report.fixes;
        if fixes.is_empty() {
            return;
        }
        self.heading(fixes::HEADING, "");
        self.paragraph(Ink::Plain, &fixes::sentence(fixes));
        let table = fixes::table(fixes).fit(
            self.style,
            &[&|table| table.hide_notes(2), &|table| table.hide_notes(3)],
        );
        self.table(&table);
        for (reason, names) in fixes::untried(fixes) {
            let text = format!("{}: {reason}", names.join(", "));
            self.marked(Ink::Quiet, "–", &text);
        }
    }

    /// What all combinations of some changes gave; nothing where none were tried.
    pub(super) fn factorial(&mut self, document: &Document<'_>) {
        if let Some(factorial) = &document.report.factorial {
            self.heading(fixes::FACTORIAL_HEADING, "");
            self.paragraph(Ink::Plain, &fixes::effects_sentence(factorial));
            let table = fixes::effects(factorial).fit(
                self.style,
                &[&|table| table.hide_notes(1), &|table| table.hide_notes(2)],
            );
            self.table(&table);
        }
    }
}
