//! The slowest requests, each with what the CPUs did and what it waited for.

use taillab_model::Nanos;
use taillab_model::explanation::{Activity, Cause, Culprit, Origin, SlowRequest, Stretch};

use super::markup::{Esc, Markup, put};
use crate::Document;
use crate::explained;
use crate::figures::{counted, glued, percent, round_length};

/// Requests that are drawn; all of them are in the JSON and in the Perfetto trace.
const DRAWN: usize = 10;
/// Shorter than this share of the request, a piece cannot be seen.
const VISIBLE: f64 = 0.0005;
/// Pieces drawn in a row at most: the longest ones.
const PIECES: usize = 400;

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let slowest = document.report.server.explanation.as_ref();
    let slowest = slowest.map(|of| of.slowest.as_slice()).unwrap_or_default();
    if slowest.is_empty() {
        return;
    }
    put!(
        page,
        "<section aria-labelledby=\"slowest\">\n<h2 id=\"slowest\">The slowest requests</h2>\n\
         <ul class=\"legend\">\n"
    );
    for (class, label) in [
        ("ran-server", "the worker"),
        ("ran-other", "other threads, and what they delay"),
        ("ran-kernel", "interrupts, softirqs, the stack"),
        ("ran-idle", "idle"),
        ("why-ideal", "what the ideal has as well"),
        ("why-server", "the server’s own delays"),
        ("cause-unexplained", "not known"),
    ] {
        put!(
            page,
            "<li><svg class=\"patch\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
             <rect class=\"{class}\" width=\"14\" height=\"14\" rx=\"3\"/></svg> {label}</li>\n"
        );
    }
    put!(page, "</ul>\n");
    for (i, request) in slowest.iter().take(DRAWN).enumerate() {
        put_request(page, i, request);
    }
    if slowest.len() > DRAWN {
        put!(
            page,
            "<p class=\"note\">{} more in the JSON and in the Perfetto trace.</p>\n",
            counted((slowest.len() - DRAWN) as u64, "request", "requests")
        );
    }
    put!(page, "</section>\n");
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
    put_row(
        page,
        "why",
        longest(&request.stretches, request, |stretch| stretch.lasted_ns),
        |stretch| {
            let mut what = explained::cause_and_culprit(stretch.cause, stretch.culprit.as_ref());
            if stretch.inherited {
                what.push_str(" (of a request before this one)");
            }
            (
                stretch.from_ns,
                stretch.lasted_ns,
                why_class(stretch.cause),
                what,
            )
        },
        request,
    );
    for cpu in explained::cpus(request) {
        let own: Vec<&Activity> = request.activities.iter().filter(|a| a.cpu == cpu).collect();
        put_row(
            page,
            &format!("CPU {cpu}"),
            longest_of(own, request, |activity| activity.lasted_ns),
            |activity| {
                let what = match &activity.who {
                    Some(who) => who.to_string(),
                    None => "idle".to_owned(),
                };
                (
                    activity.from_ns,
                    activity.lasted_ns,
                    ran_class(request, activity),
                    what,
                )
            },
            request,
        );
    }
    put!(
        page,
        "<p class=\"scale\"><span>T1</span><span>{}</span><span>T6</span></p>\n</div>\n",
        round_length(request.sojourn_ns.get() as f64 / 2.0)
    );
    put_stretches(page, place, request);
    put!(page, "</details>\n");
}

/// The largest cause with its part in it.
fn chief_reason(request: &SlowRequest) -> String {
    let mut sums: Vec<(String, Nanos)> = Vec::new();
    for stretch in &request.stretches {
        let what = explained::cause_and_culprit(stretch.cause, stretch.culprit.as_ref());
        match sums.iter_mut().find(|(other, _)| *other == what) {
            Some((_, sum)) => *sum += stretch.lasted_ns,
            None => sums.push((what, stretch.lasted_ns)),
        }
    }
    let chief = sums.into_iter().max_by_key(|(_, sum)| *sum);
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

/// The pieces that can be seen, the longest at most [`PIECES`], in the order given.
fn longest<'a, T>(all: &'a [T], request: &SlowRequest, length: impl Fn(&T) -> Nanos) -> Vec<&'a T> {
    longest_of(all.iter().collect(), request, length)
}

fn longest_of<'a, T>(
    mut pieces: Vec<&'a T>,
    request: &SlowRequest,
    length: impl Fn(&T) -> Nanos,
) -> Vec<&'a T> {
    let least = request.sojourn_ns.get() as f64 * VISIBLE;
    pieces.retain(|piece| length(piece).get() as f64 >= least);
    if pieces.len() > PIECES {
        let mut places: Vec<usize> = (0..pieces.len()).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(length(pieces[place])));
        places.truncate(PIECES);
        places.sort_unstable();
        pieces = places.into_iter().map(|place| pieces[place]).collect();
    }
    pieces
}

fn put_row<'a, T: 'a>(
    page: &mut Markup,
    name: &str,
    pieces: Vec<&'a T>,
    piece: impl Fn(&'a T) -> (Nanos, Nanos, &'static str, String),
    request: &SlowRequest,
) {
    put!(
        page,
        "<div class=\"row\"><span class=\"name\">{name}</span>\
         <svg class=\"bar\" role=\"img\" aria-label=\"{name}, from T1 to T6\">\n"
    );
    let whole = request.sojourn_ns.get().max(1) as f64;
    for (from, lasted, class, what) in pieces.into_iter().map(piece) {
        let left = (from.get() as f64 / whole).clamp(0.0, 1.0);
        let width = (lasted.get() as f64 / whole).min(1.0 - left);
        put!(
            page,
            "<rect class=\"{class}\" x=\"{:.3}%\" width=\"{:.3}%\" height=\"100%\">\
             <title>{}: {lasted}</title></rect>\n",
            100.0 * left,
            100.0 * width,
            Esc(&what)
        );
    }
    put!(page, "</svg></div>\n");
}

fn put_stamps(page: &mut Markup, request: &SlowRequest) {
    put!(
        page,
        "<div class=\"row\"><span class=\"name\">stamps</span><svg class=\"stamps\" role=\"img\" \
         aria-label=\"When the request was where\">\n"
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

fn put_stretches(page: &mut Markup, place: usize, request: &SlowRequest) {
    const MOST: usize = 12;
    let mut kept: Vec<&Stretch> = request.stretches.iter().collect();
    kept.sort_by_key(|stretch| std::cmp::Reverse(stretch.lasted_ns));
    let left = kept.len().saturating_sub(MOST);
    kept.truncate(MOST);
    kept.sort_by_key(|stretch| stretch.from_ns);
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Stretches of request {0}\">\n\
         <table class=\"facts\">\n<caption class=\"unseen\">Stretches of request {0}</caption>\n\
         <thead><tr><th scope=\"col\">from</th><th scope=\"col\">for</th>\
         <th scope=\"col\">share</th><th scope=\"col\">why</th></tr></thead>\n<tbody>\n",
        place + 1
    );
    let whole = request.sojourn_ns.get().max(1) as f64;
    for stretch in kept {
        let of_another = if stretch.inherited {
            " (of a request before this one)"
        } else {
            ""
        };
        put!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}{of_another}</td></tr>\n",
            stretch.from_ns,
            stretch.lasted_ns,
            percent(stretch.lasted_ns.get() as f64 / whole, 1),
            Esc(&explained::cause_and_culprit(
                stretch.cause,
                stretch.culprit.as_ref()
            ))
        );
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
    if left > 0 {
        put!(
            page,
            "<p class=\"note\">And {}.</p>\n",
            counted(left as u64, "shorter stretch", "shorter stretches")
        );
    }
}
