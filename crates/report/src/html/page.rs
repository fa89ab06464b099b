//! The frame of every page: its head, its policy and its end.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::markup::{Esc, Markup, put};

const STYLE: &str = include_str!("assets/report.css");
/// The style of the parts that explain.
const EXPLANATION_STYLE: &str = include_str!("assets/explanation.css");
/// A small icon, so that a browser does not ask a server for one.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
%3Cpath d='M2 2v12h12' fill='none' stroke='%23888' stroke-width='1.5'/%3E\
%3Cpath d='M2 3c6 0 5 9 12 10' fill='none' stroke='%23d55e00' stroke-width='2'/%3E%3C/svg%3E";

/// What the head of a page without a verdict says.
pub struct Head<'a> {
    /// The command that made it, above the heading.
    pub command: &'a str,
    /// What it is about.
    pub heading: &'a str,
    /// It was interrupted.
    pub partial: bool,
    /// A paragraph each.
    pub facts: Vec<String>,
    /// What a reader must know before the first figure.
    pub notices: Vec<String>,
}

/// A page without a script: its head and its main part.
pub fn plain_document(title: &str, head: &Head<'_>, put_main: impl FnOnce(&mut Markup)) -> Vec<u8> {
    frame(title, "", "", |page| {
        let partial = match head.partial {
            true => " <span class=\"verdict notable\">partial</span>",
            false => "",
        };
        put!(
            page,
            "<header>\n<p class=\"eyebrow\">{}</p>\n<h1>{}{partial}</h1>\n",
            Esc(head.command),
            Esc(head.heading)
        );
        for fact in &head.facts {
            put!(page, "<p>{}</p>\n", Esc(fact));
        }
        for notice in &head.notices {
            put!(page, "<p class=\"notice notable\">{}</p>\n", Esc(notice));
        }
        put!(page, "</header>\n<main>\n");
        put_main(page);
        put!(page, "</main>\n");
    })
}

/// A page that is complete in itself; its policy allows it to run `script` and nothing else.
pub(super) fn frame(
    title: &str,
    version: &str,
    script: &str,
    put_body: impl FnOnce(&mut Markup),
) -> Vec<u8> {
    let style = format!("{STYLE}{EXPLANATION_STYLE}");
    let may_run = match script {
        "" => String::new(),
        script => format!(" script-src '{}';", hash(script)),
    };
    let mut page = Markup::default();
    put!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src '{}';{may_run} img-src data:; base-uri 'none'; form-action 'none'\">\n\
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
        "<footer><p>Written by taillab {}{version}. This page is complete in itself and fetches \
         nothing.</p></footer>\n",
        env!("CARGO_PKG_VERSION"),
    );
    if !script.is_empty() {
        put!(page, "<script>{script}</script>\n");
    }
    put!(page, "</body>\n</html>\n");
    page.0.into_bytes()
}

/// The hash source of CSP Level 3, section 2.3.1.
fn hash(inline: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(inline)))
}
