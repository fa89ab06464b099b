//! Findings, the composition of the tail by cause, and who did it.

use taillab_model::Nanos;
use taillab_model::explanation::{Band, Cause, CauseShare};

use super::markup::{Esc, Markup, put};
use crate::Document;
use crate::explained::{self, Composition, Part};
use crate::figures::{count, counted, glued, micros_f64, percent};

/// Causes with a colour of their own beside `unexplained`.
const CAUSES: usize = 8;
/// Segments narrower than this have no room for their share as text.
const ROOM_FOR_TEXT: f64 = 0.08;
/// Rows of the table; the others are only counted.
const ROWS: usize = 20;

/// The sentences, at the top of the page.
pub(super) fn put_findings(page: &mut Markup, document: &Document<'_>) {
    let Some(explanation) = &document.report.server.explanation else {
        return;
    };
    if explanation.findings.is_empty() {
        return;
    }
    put!(
        page,
        "<section aria-labelledby=\"findings\">\n<h2 id=\"findings\">What was found</h2>\n\
         <ol class=\"findings\">\n"
    );
    for finding in &explanation.findings {
        let class = match (finding.inconclusive, finding.cause) {
            (true, _) => " class=\"inconclusive\"",
            _ => "",
        };
        put!(page, "<li{class}><p>{}</p>", coded(&glued(&finding.text)));
        if let Some(advice) = &finding.advice {
            let advice = advice.trim_start_matches("Try:").trim_start();
            // a command begins with a program's name, anything else is a sentence
            match advice.starts_with(char::is_uppercase) {
                true => put!(
                    page,
                    "<p class=\"advice\"><b>Try:</b> {}</p>",
                    coded(&glued(advice))
                ),
                false => put!(
                    page,
                    "<p class=\"advice\"><b>Try:</b> <code>{}</code></p>",
                    Esc(advice)
                ),
            }
        }
        put!(page, "</li>\n");
    }
    put!(page, "</ol>\n</section>\n");
}

/// The text with what stands between back quotes (names, commands) as code.
fn coded(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // an odd back quote is only a character
    if parts.len().is_multiple_of(2) {
        return Esc(text).to_string();
    }
    (parts.iter().enumerate())
        .map(|(i, part)| match i % 2 {
            0 => Esc(part).to_string(),
            _ => format!("<code>{}</code>", Esc(part)),
        })
        .collect()
}

/// The class of a part in the style sheet.
fn class(composition: &Composition<'_>, place: usize) -> String {
    match composition.parts[place] {
        Part::Cause(Cause::Unexplained) => "cause-unexplained".to_owned(),
        Part::Others => "cause-others".to_owned(),
        Part::Cause(_) => format!("cause-{}", place + 1),
    }
}

/// Composition and culprits.
pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let explanation = document.report.server.explanation.as_ref();
    let bands = explanation
        .map(|of| of.bands.as_slice())
        .unwrap_or_default();
    let composition = Composition::of(bands, CAUSES);
    if explanation.is_some() && composition.is_none() && document.report.server.causes.is_empty() {
        return;
    }
    put!(
        page,
        "<section aria-labelledby=\"causes\">\n<h2 id=\"causes\">Where the excess comes from</h2>\n"
    );
    if explanation.is_none() {
        put!(
            page,
            "<p class=\"notice notable\">{}</p>\n",
            explained::NOT_EXPLAINED
        );
    }
    if let Some(composition) = composition {
        put_bars(page, &composition);
        put_composition_table(page, &composition);
    }
    put_culprits(page, &document.report.server.causes);
    put!(page, "</section>\n");
}

fn put_bars(page: &mut Markup, composition: &Composition<'_>) {
    put!(
        page,
        "<figure class=\"stages composition\">\n<ul class=\"legend\">\n"
    );
    for (place, part) in composition.parts.iter().enumerate() {
        put!(
            page,
            "<li><svg class=\"patch\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
             <rect class=\"{}\" width=\"14\" height=\"14\" rx=\"3\"/></svg> {}</li>\n",
            class(composition, place),
            part.label()
        );
    }
    put!(page, "</ul>\n<div class=\"rows wide\">\n");
    for band in composition.bands {
        put_bar(page, composition, band);
    }
    put!(
        page,
        "</div>\n<figcaption>The mean excess over the ideal of the requests between two percentiles \
         of the sojourn, by cause; the figure beside each bar is that mean. What a request waited \
         behind another one’s delay counts for the cause of that delay.</figcaption>\n</figure>\n"
    );
}

fn put_bar(page: &mut Markup, composition: &Composition<'_>, band: &Band) {
    let name = explained::band_name(band);
    let excess = micros_f64(explained::band_excess_ns(band));
    put!(
        page,
        "<div class=\"row\"><span class=\"name\">{name}</span>\
         <svg class=\"bar\" role=\"img\" aria-label=\"{name}: {excess} µs of excess\">\n"
    );
    let mut left = 0.0;
    for (place, (part, length)) in composition.drawn(band).into_iter().enumerate() {
        if length <= 0.0 {
            continue;
        }
        let class = class(composition, place);
        let share = percent(composition.share(band, part), 1);
        put!(
            page,
            "<rect class=\"{class}\" x=\"{:.3}%\" width=\"{:.3}%\" height=\"100%\">\
             <title>{}: {} µs, {share}</title></rect>\n",
            100.0 * left,
            100.0 * length,
            part.label(),
            micros_f64(composition.mean_excess_ns(band, part)),
        );
        if length >= ROOM_FOR_TEXT {
            put!(
                page,
                "<text class=\"on-{class}\" x=\"{:.3}%\" y=\"50%\" dy=\"0.35em\">{}</text>\n",
                100.0 * (left + length / 2.0),
                percent(composition.share(band, part), 0),
            );
        }
        left += length;
    }
    put!(
        page,
        "</svg><span class=\"total\">{excess} µs</span></div>\n"
    );
}

fn put_composition_table(page: &mut Markup, composition: &Composition<'_>) {
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Composition of the excess\">\n\
         <table class=\"figures\">\n<caption>Share of the excess, below it the 95 % interval and the \
         mean in microseconds</caption>\n<thead><tr><th scope=\"col\">cause</th>"
    );
    for band in composition.bands {
        put!(
            page,
            "<th scope=\"col\">{}<small>{} requests</small></th>",
            explained::band_name(band),
            count(band.requests)
        );
    }
    put!(page, "</tr></thead>\n<tbody>\n");
    for part in &composition.parts {
        put!(page, "<tr><th scope=\"row\">{}</th>", part.label());
        for band in composition.bands {
            let interval = composition
                .interval(band, *part)
                .map(|share| format!("{} %<br>", explained::share_interval(share)))
                .unwrap_or_default();
            put!(
                page,
                "<td>{}<small>{interval}{} µs</small></td>",
                percent(composition.share(band, *part), 1),
                micros_f64(composition.mean_excess_ns(band, *part)),
            );
        }
        put!(page, "</tr>\n");
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
}

fn put_culprits(page: &mut Markup, causes: &[CauseShare]) {
    /// Less than this of any excess is not worth a row.
    const LEAST: f64 = 0.0005;
    let mut rows = explained::culprits(causes);
    if rows.is_empty() {
        return;
    }
    let all = rows.len();
    rows.retain(|row| {
        row.share.value.max(row.excess_share_above_p99.value) >= LEAST
            || row.cause == Cause::Unexplained
    });
    rows.truncate(ROWS);
    put!(
        page,
        "<h3 id=\"culprits\">What did it</h3>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"culprits\">\n\
         <table class=\"figures culprits\">\n<caption>Shares with their 95 % intervals, in per cent; \
         “delays” is how many requests one occurrence delays on average</caption>\n\
         <thead><tr><th scope=\"col\">cause</th><th scope=\"col\">of the excess above p99</th>\
         <th scope=\"col\">of all excess</th><th scope=\"col\">excess</th>\
         <th scope=\"col\">requests</th><th scope=\"col\">times</th>\
         <th scope=\"col\">each lasts</th><th scope=\"col\">delays</th></tr></thead>\n<tbody>\n"
    );
    for row in &rows {
        put!(page, "<tr><th scope=\"row\">");
        match &row.culprit {
            Some(culprit) => put!(
                page,
                "{}<small>{}</small>",
                Esc(&culprit.to_string()),
                row.cause.label()
            ),
            None => put!(page, "{}", row.cause.label()),
        }
        put!(page, "</th>");
        for (share, class) in [(row.excess_share_above_p99, "strong"), (row.share, "")] {
            put!(
                page,
                "<td class=\"{class}\">{}<small>{}</small></td>",
                percent(share.value, 1),
                explained::share_interval(share)
            );
        }
        put!(
            page,
            "<td>{}</td><td>{}</td>",
            row.excess_ns,
            count(row.requests)
        );
        if row.episodes > 0 {
            put!(
                page,
                "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
                count(row.episodes),
                Nanos::new(row.mean_episode_ns.max(0.0).round() as u64),
                explained::mean_count(row.requests_per_episode),
            );
        } else {
            put!(page, "<td>–</td><td>–</td><td>–</td></tr>\n");
        }
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
    if all > rows.len() {
        put!(
            page,
            "<p class=\"note\">And {} with less.</p>\n",
            counted((all - rows.len()) as u64, "other", "others")
        );
    }
}
