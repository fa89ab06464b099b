//! What was checked.

use taillab_model::summary::Reason;

use crate::checks::{State, TrustCheck};
use crate::figures::glued;
use crate::markup::{Esc, Markup, put};

/// What was found, and the verdict's warnings.
pub(super) fn put(page: &mut Markup, findings: &[TrustCheck], warnings: &[Reason]) {
    put!(
        page,
        "<section aria-labelledby=\"checks\">\n<h2 id=\"checks\">Can it be believed?</h2>\n\
         <dl class=\"checks\">\n"
    );
    for finding in findings {
        let (class, mark, word) = match finding.state {
            State::Good => ("good", "✓", "as it should be"),
            State::Notable => ("notable", "!", "worth knowing"),
            State::Bad => ("bad", "✗", "not as it should be"),
        };
        put!(
            page,
            "<div><dt><span class=\"mark {class}\" role=\"img\" aria-label=\"{word}\">{mark}</span> \
             {}</dt><dd>",
            finding.name
        );
        for line in &finding.lines {
            put!(page, "<p>{}</p>", Esc(&glued(line)));
        }
        put!(page, "</dd></div>\n");
    }
    put!(page, "</dl>\n");
    if !warnings.is_empty() {
        put!(page, "<div class=\"notice notable\"><ul>\n");
        for warning in warnings {
            put!(page, "<li>{}</li>\n", Esc(&warning.text));
        }
        put!(page, "</ul></div>\n");
    }
    put!(page, "</section>\n");
}
