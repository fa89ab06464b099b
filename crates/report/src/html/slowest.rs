//! The slowest requests, each with what the CPUs did and what it waited for.

use taillab_model::Nanos;
use taillab_model::explanation::{Activity, Cause, Culprit, Origin, SlowRequest};

use super::bars::{Segment, put_bar, put_legend};
use crate::causes::stretches_table;
use crate::document::Document;
use crate::explained;
use crate::figures::{counted, glued, round_length};
use crate::markup::{Esc, Markup, paragraph, put, section};

/// Requests that are drawn; all of them are in the JSON and in the Perfetto trace.
const DRAWN: usize = 10;
/// Shorter than this share of the request, a piece cannot be seen.
const VISIBLE: f64 = 0.0005;
/// The maximum number of pieces drawn in a row: the longest ones.
const PIECES: usize = 400;
/// Classes of the colours and their meanings.
const fn legend(compared: bool) -> [(&'static str, &'static str); 7] {
    let ideal = match compared {
        true => "also in the ideal",
        false => "queueing and service",
    };
    [
        ("ran-server", "the worker"),
        ("ran-other", "other threads, and the delays they cause"),
        ("ran-kernel", "interrupts, softirqs, the stack"),
        ("ran-idle", "idle"),
        ("why-ideal", ideal),
        ("why-server", "the server’s own delays"),
        ("cause-unexplained", "not known"),
    ]
}

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let slowest = document.report.server.explanation.as_ref();
    let slowest = slowest.map(|of| of.slowest.as_slice()).unwrap_or_default();
    if slowest.is_empty() {
        return;
    }
    section(page, "slowest", "The slowest requests", |page| {
        put_legend(page, &legend(document.is_compared()));
        for (i, request) in slowest.iter().take(DRAWN).enumerate() {
            put_request(page, i, request);
        }
        if slowest.len() > DRAWN {
            let left = (slowest.len() - DRAWN) as u64;
            let left = counted(left, "more request is", "more requests are");
            let more = format!("{left} in the JSON and in the Perfetto trace.");
            paragraph(page, "note", &more);
        }
    });
}

fn put_request(page: &mut Markup, place: usize, request: &SlowRequest) {
    let open = if place == 0 { " open" } else { "" };
    put!(
        page,
        "<details class=\"request\"{open}>\n<summary>#{} {} <span class=\"light\">{}</span></summary>\n\
         <p class=\"note\">{}</p>\n<div class=\"timeline\">\n",
        place + 1,
        request.sojourn_ns,
        Esc(&glued(&chief_reason(request))),
        Esc(&glued(&explained::slow_request_title(request)))
    );
    put_stamps(page, request);
    let stretches = request.stretches.iter().map(|stretch| {
        let mut what = explained::stretch_reason(request, stretch);
        if stretch.inherited {
            what.push_str(" (inherited from an earlier request)");
        }
        (
            stretch.from_ns,
            stretch.lasted_ns,
            why_class(stretch.cause),
            what,
        )
    });
    put_row(page, "why", stretches.collect(), request);
    for cpu in explained::cpus(request) {
        let own = request.activities.iter().filter(|a| a.cpu == cpu);
        let activities = own.map(|activity| {
            let who = activity.who.as_ref();
            let what = who.map_or_else(|| "idle".to_owned(), Culprit::to_string);
            let class = ran_class(request, activity);
            (activity.from_ns, activity.lasted_ns, class, what)
        });
        put_row(page, &format!("CPU {cpu}"), activities.collect(), request);
    }
    put!(
        page,
        "<p class=\"scale\"><span>T1</span><span>{}</span><span>T6</span></p>\n</div>\n",
        round_length(request.sojourn_ns.get() as f64 / 2.0)
    );
    let (table, left) = stretches_table(request);
    table.put(page);
    if !left.is_empty() {
        let left = counted(left.len() as u64, "shorter stretch", "shorter stretches");
        paragraph(page, "note", &format!("And {left}."));
    }
    put!(page, "</details>\n");
}

/// The largest cause with its part in it.
fn chief_reason(request: &SlowRequest) -> String {
    let kinds = request.stretches.iter().map(|stretch| {
        let what = explained::stretch_reason(request, stretch);
        (what, stretch.lasted_ns)
    });
    let chief = explained::summed(kinds).into_iter().next();
    chief.map_or_else(String::new, |(what, sum)| format!("{sum} of it: {what}"))
}

const fn why_class(cause: Cause) -> &'static str {
    match cause.info().origin {
        Origin::Ideal => "why-ideal",
        Origin::Kernel => "ran-kernel",
        Origin::Outside => "ran-other",
        Origin::Unknown => "cause-unexplained",
        Origin::Server => "why-server",
    }
}

fn ran_class(request: &SlowRequest, activity: &Activity) -> &'static str {
    match &activity.who {
        None | Some(Culprit::IdleState { .. }) => "ran-idle",
        Some(who) if explained::is_worker(request, who) => "ran-server",
        Some(Culprit::Interrupt { .. } | Culprit::Softirq { .. }) => "ran-kernel",
        Some(_) => "ran-other",
    }
}

/// A piece of a row: start, length, class of its colour, and what happened.
type Piece = (Nanos, Nanos, &'static str, String);

/// A bar of the pieces that can be seen, at most the [`PIECES`] longest.
fn put_row(page: &mut Markup, name: &str, mut pieces: Vec<Piece>, request: &SlowRequest) {
    let whole = request.sojourn_ns.get().max(1) as f64;
    pieces.retain(|piece| piece.1.get() as f64 >= whole * VISIBLE);
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.1));
    pieces.truncate(PIECES);
    pieces.sort_by_key(|piece| piece.0);
    let segments: Vec<Segment> = (pieces.into_iter())
        .map(|(from, lasted, class, what)| {
            let left = (from.get() as f64 / whole).clamp(0.0, 1.0);
            Segment {
                class: class.to_owned(),
                from: Some(left),
                length: (lasted.get() as f64 / whole).min(1.0 - left),
                title: format!("{what}: {lasted}"),
                text: None,
            }
        })
        .collect();
    put_bar(page, name, &format!("{name}, from T1 to T6"), &segments);
    put!(page, "</div>\n");
}

fn put_stamps(page: &mut Markup, request: &SlowRequest) {
    put!(
        page,
        "<div class=\"row\"><span class=\"name\">stamps</span><svg class=\"stamps\" role=\"img\" \
         aria-label=\"The six stamps of the request\">\n"
    );
    let whole = request.sojourn_ns.get().max(1) as f64;
    let stamps = std::iter::once(Some(Nanos::ZERO)).chain(request.stamps_ns);
    /// Labels nearer to the one before than this are left out.
    const APART: f64 = 0.03;
    let mut labelled = -1.0;
    for (i, at) in stamps.enumerate() {
        let Some(at) = at else { continue };
        let left = (at.get() as f64 / whole).clamp(0.0, 1.0);
        put!(
            page,
            "<line x1=\"{0:.3}%\" x2=\"{0:.3}%\" y1=\"60%\" y2=\"100%\">\
             <title>T{1} after {at}</title></line>\n",
            100.0 * left,
            i + 1
        );
        if left - labelled >= APART {
            let anchor = match left {
                left if left < 0.02 => "start",
                left if left > 0.98 => "end",
                _ => "middle",
            };
            put!(
                page,
                "<text x=\"{:.3}%\" y=\"45%\" text-anchor=\"{anchor}\">T{}</text>\n",
                100.0 * left,
                i + 1
            );
            labelled = left;
        }
    }
    put!(page, "</svg></div>\n");
}
