//! What was checked.

use taillab_model::summary::Reason;

use crate::checks::{State, TrustCheck};
use crate::figures::glued;
use crate::markup::{Esc, Markup, put, put_reasons, section};

/// What was found, and the verdict's warnings.
pub(super) fn put(page: &mut Markup, checks: &[TrustCheck], warnings: &[Reason]) {
    section(page, "checks", "Can it be trusted?", |page| {
        put!(page, "<dl class=\"checks\">\n");
        for check in checks {
            let (class, mark, word) = match check.state {
                State::Good => ("good", "✓", "good"),
                State::Notable => ("notable", "!", "worth knowing"),
                State::Bad => ("bad", "✗", "bad"),
            };
            put!(
                page,
                "<div><dt><span class=\"mark {class}\" role=\"img\" aria-label=\"{word}\">\
                 {mark}</span> {}</dt><dd>",
                check.name
            );
            for line in &check.lines {
                put!(page, "<p>{}</p>", Esc(&glued(line)));
            }
            put!(page, "</dd></div>\n");
        }
        put!(page, "</dl>\n");
        if !warnings.is_empty() {
            put!(page, "<div class=\"notice notable\">\n");
            put_reasons(page, warnings);
            put!(page, "</div>\n");
        }
    });
}
