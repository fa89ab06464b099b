//! What `--fix` tried, and what came of it.

use crate::document::Document;
use crate::fixes;
use crate::markup::{Markup, paragraph, section};

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    if let Some(factorial) = &document.report.factorial {
        section(page, "factorial", fixes::FACTORIAL_HEADING, |page| {
            paragraph(page, "explain", &fixes::effects_sentence(factorial));
            fixes::effects(factorial).put(page);
        });
    }
    let fixes = &document.report.fixes;
    if fixes.is_empty() {
        return;
    }
    section(page, "fixes", fixes::HEADING, |page| {
        paragraph(page, "explain", &fixes::sentence(fixes));
        fixes::table(fixes).put(page);
        for (reason, names) in fixes::untried(fixes) {
            paragraph(page, "explain", &format!("{}: {reason}", names.join(", ")));
        }
    });
}
