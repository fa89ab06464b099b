//! The page's head: what was measured, the verdict, three figures, what they mean.

use taillab_model::Nanos;
use taillab_model::summary::{Report, Verdict};

use crate::document::{Document, Series};
use crate::figures::{self, rate};
use crate::markup::{Esc, Markup, paragraph, put, put_reasons, section};
use crate::{latency, reservations, schedule, server};

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let report = document.report;
    let result = &report.server;
    let service_time = format!(
        "{} on {}",
        server::service_time(result),
        server::workers(result)
    );
    let began = figures::began(report.started_unix_s);
    let mut facts = match &report.load {
        Some(load) => vec![
            (
                "Load",
                format!(
                    "{}/s, {}",
                    rate(load.target_rate_per_s),
                    load.arrivals.process
                ),
            ),
            ("Utilisation", server::utilization(document)),
            ("Service time t", service_time),
            ("Requests", figures::count(load.requests)),
            ("Measured for", report.duration_ns.to_string()),
            ("From", began),
        ],
        None => vec![
            ("Rate", format!("{}/s", rate(report.arrival_rate_per_s))),
            ("Utilisation", server::utilization(document)),
            ("Service time t", service_time),
            ("t is", server::service_time_origin(document)),
            ("Workers are", server::workers_origin(result).to_owned()),
            ("Responses", figures::count(result.matching.responses)),
            ("Traced for", report.duration_ns.to_string()),
            ("From", began),
        ],
    };
    facts.extend(server::left_out(result).map(|text| ("Left out", text)));
    facts.extend(server::sent_again(result).map(|text| ("Sent again", text)));
    facts.extend(server::scaling(report).map(|text| ("Scaling", text)));
    put_head(page, report, &facts);
}

fn put_head(page: &mut Markup, report: &Report, facts: &[(&str, String)]) {
    let verdict = &report.verdict;
    let (ink, word) = server::verdict_word(verdict, report.partial);
    let class = ink.class();
    put!(
        page,
        "<header>\n<p class=\"eyebrow\">taillab {}</p>\n\
         <h1>{} <span class=\"verdict {class}\">{word}</span></h1>\n<dl class=\"facts\">\n",
        Esc(&report.command),
        Esc(&report.target),
    );
    for (name, fact) in facts {
        put!(
            page,
            "<div><dt>{name}</dt><dd>{}</dd></div>\n",
            Esc(&figures::glued(fact))
        );
    }
    put!(page, "</dl>\n");
    if !verdict.valid {
        put!(
            page,
            "<section class=\"notice bad\" aria-label=\"Why this result is invalid\">\n\
             <p><strong>Do not use these figures.</strong></p>\n"
        );
        put_reasons(page, &verdict.reasons);
        put!(page, "</section>\n");
    }
    let off_schedule = schedule::off_schedule_in_numbers(report);
    let told = reservations::told(report, off_schedule.is_some());
    put_reservations(page, verdict, &told);
    if let Some(text) = off_schedule {
        paragraph(page, "notice notable", &format!("{text}."));
    }
    if report.partial {
        put!(
            page,
            "<p class=\"notice notable\">The measurement ended early; this is what it had \
             recorded by then.</p>\n"
        );
    }
    put!(page, "</header>\n");
}

/// What must be known before the first figure of a valid result; an invalid one has its reasons
/// there. What has a key in `told` is said elsewhere.
pub(super) fn put_reservations(page: &mut Markup, verdict: &Verdict, told: &[&str]) {
    let reservations = server::foremost(verdict, told);
    for text in reservations.iter().filter(|_| verdict.valid) {
        put!(page, "<p class=\"notice notable\">{}.</p>\n", Esc(text));
    }
}

/// Three figures, large, and what the three views are.
pub(super) fn put_latency(page: &mut Markup, document: &Document<'_>) {
    let title = match document.is_compared() {
        true => "Measured against ideal",
        false => "Measured",
    };
    section(page, "latency", title, |page| {
        put!(page, "<div class=\"cards\">\n");
        for q in [0.5, 0.99, 0.999] {
            put_card(page, document, q);
        }
        let explanation = explanation(document);
        put!(page, "</div>\n<p class=\"explain\">{explanation}</p>\n");
        let excess = server::excess_sentence(&document.report.server);
        let more = [
            excess,
            latency::with_own_work(document),
            latency::against_schedule(document),
        ];
        for text in more.into_iter().flatten() {
            paragraph(page, "explain", &text);
        }
        for ratio in latency::ratios(document) {
            paragraph(page, "explain", &format!("{ratio}."));
        }
    });
}

/// One percentile: the measured time, large, and a bar for each view.
fn put_card(page: &mut Markup, document: &Document<'_>, q: f64) {
    let views = document.views();
    let values: Vec<Option<Nanos>> = (views.iter())
        .map(|(_, distribution)| latency::value(distribution, q))
        .collect();
    let of = |series| {
        let place = views.iter().position(|(view, _)| *view == series)?;
        Some((views[place].1, values[place]))
    };
    let Some((measured, value)) = of(Series::Measured) else {
        return;
    };
    put!(
        page,
        "<div class=\"card\">\n<h3>{}</h3>\n",
        figures::quantile_name(q)
    );
    match value {
        Some(value) => {
            let text = value.to_string();
            let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
            put!(page, "<p class=\"big\">{number} <span>{unit}</span></p>\n");
        }
        None => {
            let lacks = latency::lacks(measured, q, &document.report.verdict, None);
            paragraph(page, "lacking", &lacks);
        }
    }
    let ideal = of(Series::Ideal);
    let base = document.report.server.ideal.base();
    let ratio = ideal.and_then(|_| latency::ratio_at(measured, base, q));
    let ratio = ratio.map_or_else(
        || "no ratio".to_owned(),
        |ratio| format!("<strong>{}</strong> the ideal", figures::ratio(ratio)),
    );
    if ideal.is_some() {
        put!(page, "<p class=\"ratio\">{ratio}</p>\n");
    }
    put!(page, "<ul class=\"bars\">\n");
    let longest = values
        .iter()
        .flatten()
        .max()
        .map_or(1, |longest| longest.get().max(1));
    for ((series, _), value) in views.iter().zip(&values) {
        let text = value.map_or_else(|| "–".to_owned(), |value| value.to_string());
        let width = value.map_or(0.0, |value| 100.0 * value.get() as f64 / longest as f64);
        put!(
            page,
            "<li><span>{}</span><svg aria-hidden=\"true\"><rect class=\"{}\" \
             width=\"{width:.1}%\" height=\"100%\" rx=\"2\"/></svg><span>{text}</span></li>\n",
            series.label(),
            series.class(),
        );
    }
    put!(page, "</ul>\n</div>\n");
}

/// What the views are, with the name of each view in the colour of its curve.
fn explanation(document: &Document<'_>) -> String {
    let mut text = Esc(&document.views_explained()).to_string();
    for (name, series) in [
        ("“Ideal”", Series::Ideal),
        ("“measured”", Series::Measured),
        ("“client’s view”", Series::Client),
    ] {
        let coloured = format!("<b class=\"{}\">{name}</b>", series.class());
        text = text.replace(name, &coloured);
    }
    text
}

/// The table with the figures of the curves.
pub(super) fn put_table(page: &mut Markup, document: &Document<'_>) {
    section(page, "percentiles", "Percentiles", |page| {
        latency::of_server(document).put(page);
        if let Some(without) = latency::without_host(document) {
            paragraph(page, "explain", &without);
        }
    });
}
