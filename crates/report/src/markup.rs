//! Text into HTML: everything that comes from outside goes through [`Esc`].

use std::fmt;

use taillab_model::summary::Reason;
use taillab_model::text::is_obeyed;

use crate::figures::glued;

/// Text as HTML shows it, in element content and in quoted attributes.
pub struct Esc<'a>(pub &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => fmt::Write::write_char(f, c)?,
                // XML has none of the last two, and a reader refuses the whole file
                c if is_obeyed(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                    f.write_str("\u{fffd}")?
                }
                c => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

/// Markup under construction.
#[derive(Debug, Default)]
pub struct Markup(pub String);

impl Markup {
    /// Adds formatted markup: what [`put!`](crate::put) calls.
    pub fn add(&mut self, args: fmt::Arguments<'_>) {
        // a String takes everything
        let _ = fmt::Write::write_fmt(&mut self.0, args);
    }
}

/// Adds formatted markup; what is not a literal or a figure must be in [`Esc`].
#[macro_export]
macro_rules! put {
    ($markup:expr, $($format:tt)*) => {
        $markup.add(format_args!($($format)*))
    };
}
pub use crate::put;

/// A section of a page with its heading.
pub fn section(page: &mut Markup, id: &str, heading: &str, put_content: impl FnOnce(&mut Markup)) {
    let heading = Esc(heading);
    put!(
        page,
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{heading}</h2>\n"
    );
    put_content(page);
    put!(page, "</section>\n");
}

/// A part of a page that is closed at first.
pub fn put_details(page: &mut Markup, summary: &str, put_content: impl FnOnce(&mut Markup)) {
    put!(page, "<details>\n<summary>{}</summary>\n", Esc(summary));
    put_content(page);
    put!(page, "</details>\n");
}

/// A paragraph of the given class, whose numbers keep their units.
pub fn paragraph(page: &mut Markup, class: &str, text: &str) {
    put!(page, "<p class=\"{class}\">{}</p>\n", Esc(&glued(text)));
}

/// The reasons or the warnings of a verdict as a list.
pub fn put_reasons(page: &mut Markup, reasons: &[Reason]) {
    put!(page, "<ul>\n");
    for reason in reasons {
        put!(page, "<li>{}</li>\n", Esc(&reason.text));
    }
    put!(page, "</ul>\n");
}

/// A short piece of a curve's line, with the look of its class or of further attributes.
pub fn swatch(class: &str, look: &str) -> String {
    format!(
        "<svg class=\"swatch\" width=\"30\" height=\"10\" aria-hidden=\"true\">\
         <line class=\"curve {class}\" {look} x1=\"0\" y1=\"5\" x2=\"30\" y2=\"5\"/></svg>"
    )
}

/// A small square of a colour.
pub fn patch(class: &str) -> String {
    format!(
        "<svg class=\"patch\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
         <rect class=\"{class}\" width=\"14\" height=\"14\" rx=\"3\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_only_text() {
        assert_eq!(
            Esc("</script><img src=x onerror='a(\"b\")'>&\u{0}\u{202e}").to_string(),
            "&lt;/script&gt;&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;\u{fffd}\u{fffd}"
        );
    }

    /// `Char` of XML 1.0, without the surrogates, which Rust's text has not either.
    #[test]
    fn every_character_is_one_that_xml_allows() {
        let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        for c in '\0'..=char::MAX {
            let text = c.to_string();
            assert!(Esc(&text).to_string().chars().all(is_allowed), "{c:?}");
        }
    }
}
