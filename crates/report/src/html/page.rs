//! The frame of the pages that need no script.

use super::markup::{Esc, Markup, put};
use super::{ICON, STYLE, hash};
use crate::chart::Chart;

/// What these pages add to the style of the report.
const EXTRA: &str = include_str!("assets/page.css");

/// A page that is complete in itself and runs nothing.
pub(super) fn document(title: &str, put_body: impl FnOnce(&mut Markup)) -> Vec<u8> {
    let style = format!("{STYLE}{EXTRA}");
    let mut page = Markup::default();
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"{ICON}\">\n\
         <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n",
        hash(&style),
        Esc(title),
    );
    put_body(&mut page);
    put!(
        page,
        "<footer><p>Written by taillab {}. This page is complete in itself and fetches \
         nothing.</p></footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
    );
    page.0.into_bytes()
}

/// The chart, as wide as the page.
pub(super) fn put_chart(page: &mut Markup, chart: &Chart) {
    put!(
        page,
        "<figure class=\"drawing\">\n{}</figure>\n",
        chart.svg_element()
    );
}
