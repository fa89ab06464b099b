//! Findings, the composition of the tail by cause, and who did it.

use taillab_model::Nanos;
use taillab_model::explanation::{Cause, CauseShare, Finding};

use super::bars::{Bar, Segment, put_bars};
use crate::causes::{class, composition_table, culprits_table};
use crate::document::{Document, SharedOut};
use crate::explained::{self, Composition};
use crate::figures::{counted, glued, percent};
use crate::markup::{Esc, Markup, paragraph, put, section};

/// Causes that get a colour, not counting `unexplained`.
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
    section(page, "findings", "What was found", |page| {
        put!(page, "<ol class=\"findings\">\n");
        explanation
            .findings
            .iter()
            .for_each(|finding| put_finding(page, finding));
        put!(page, "</ol>\n");
    });
}

fn put_finding(page: &mut Markup, finding: &Finding) {
    let class = match finding.inconclusive {
        true => " class=\"inconclusive\"",
        false => "",
    };
    put!(page, "<li{class}><p>{}</p>", coded(&glued(&finding.text)));
    if let Some(advice) = &finding.advice {
        // a command begins with a program's name, anything else is a sentence
        let advice = match advice.starts_with(char::is_uppercase) {
            true => coded(&glued(advice)),
            false => format!("<code>{}</code>", Esc(advice)),
        };
        put!(page, "<p class=\"advice\">→ {advice}</p>");
    }
    put!(page, "</li>\n");
}

/// The text, with everything in back quotes (names and commands) marked as code.
fn coded(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // an unpaired back quote is only a character
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

/// Composition and culprits.
pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let explanation = document.report.server.explanation.as_ref();
    let bands = explanation
        .map(|of| of.bands.as_slice())
        .unwrap_or_default();
    let composition = Composition::of(bands, CAUSES);
    let nothing = composition.is_none() && document.report.server.causes.is_empty();
    if nothing && (explanation.is_some() || !document.is_compared()) {
        return;
    }
    let of = document.shared_out();
    section(page, "causes", of.heading(), |page| {
        if explanation.is_none() {
            paragraph(page, "notice notable", explained::NOT_EXPLAINED);
        }
        if let Some(composition) = composition {
            put_shares(page, &composition);
            composition_table(&composition, false).put(page);
        }
        put_culprits(page, &document.report.server.causes, of);
    });
}

fn put_shares(page: &mut Markup, composition: &Composition<'_>) {
    let legend: Vec<(String, String)> = (composition.parts.iter().enumerate())
        .map(|(place, part)| (class(composition, place), part.label().to_owned()))
        .collect();
    let bars: Vec<Bar> = (composition.bands.iter())
        .map(|band| {
            let parts = composition.drawn(band).into_iter().enumerate();
            let drawn = parts.filter(|(_, (_, length))| *length > 0.0);
            let segment = |(place, (part, length))| {
                let share = composition.share(band, part);
                let excess = composition.mean_excess_ns(band, part).round();
                let excess = Nanos::new(excess as u64);
                Segment {
                    class: class(composition, place),
                    from: None,
                    length,
                    title: format!("{}: {excess}, {}", part.label(), percent(share, 1)),
                    text: (length >= ROOM_FOR_TEXT).then(|| percent(share, 0)),
                }
            };
            Bar {
                name: explained::band_name(band),
                total: glued(
                    &Nanos::new(explained::band_excess_ns(band).round() as u64).to_string(),
                ),
                segments: drawn.map(segment).collect(),
            }
        })
        .collect();
    let caption = "The mean excess over the ideal of the requests between two percentiles of the \
                   sojourn, by cause. The time at the right is that mean. The wait behind a \
                   request that was itself delayed is charged to the cause of that delay.";
    put_bars(page, "composition wide", &legend, &bars, caption);
}

fn put_culprits(page: &mut Markup, causes: &[CauseShare], of: SharedOut) {
    let mut rows = explained::culprits(causes);
    if rows.is_empty() {
        return;
    }
    let all = rows.len();
    rows.retain(|row| {
        row.share.value.max(row.excess_share_above_p99.value) >= explained::LEAST_IN_TABLE
            || row.cause == Cause::Unexplained
    });
    rows.truncate(ROWS);
    put!(page, "<h3>What did it</h3>\n");
    culprits_table(&rows).put(page);
    if all > rows.len() {
        let left = counted((all - rows.len()) as u64, "other", "others");
        paragraph(page, "note", &format!("And {left} with less."));
    }
    if let Some(doubt) = explained::doubt_sentence(causes, of) {
        paragraph(page, "note", &doubt);
    }
}
