//! The page's head: what was measured, the verdict, three figures, what they mean.

use taillab_model::summary::Report;

use super::markup::{Esc, Markup, put};
use crate::Document;
use crate::Series;
use crate::figures::{self, micros, rate};
use crate::latency::{self, Cell};

/// The class of a series in the style sheet.
pub(super) const fn class(series: Series) -> &'static str {
    match series {
        Series::Ideal => "ideal",
        Series::Measured => "measured",
        Series::Client => "client",
    }
}

/// A short piece of the series' line, as the figure draws it.
pub(super) fn swatch(series: Series) -> String {
    format!(
        "<svg class=\"swatch\" width=\"30\" height=\"10\" aria-hidden=\"true\">\
         <line class=\"curve {}\" x1=\"0\" y1=\"5\" x2=\"30\" y2=\"5\"/></svg>",
        class(series)
    )
}

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let report = document.report;
    let server = &report.server;
    let service_time = format!("{} on {}", server.service_time_ns, figures::workers(server));
    let began = figures::began(report.started_unix_s);
    let facts = match &report.load {
        Some(load) => vec![
            (
                "Load",
                format!(
                    "{}/s, {}",
                    rate(load.target_rate_per_s),
                    load.arrivals.process
                ),
            ),
            (
                "Utilisation",
                figures::known_percent(load.target_utilization),
            ),
            ("Service time t", service_time),
            ("Requests", figures::count(load.requests)),
            ("Measured for", load.duration_ns.to_string()),
            ("From", began),
        ],
        None => vec![
            ("Rate", format!("{}/s", rate(report.arrival_rate_per_s))),
            ("Utilisation", figures::percent(server.ideal.utilization, 1)),
            ("Service time t", service_time),
            ("t is", figures::service_time_origin(document)),
            ("Responses", figures::count(server.matching.responses)),
            ("Traced for", report.duration_ns.to_string()),
            ("From", began),
        ],
    };
    put_head(page, report, &facts);
}

fn put_head(page: &mut Markup, report: &Report, facts: &[(&str, String)]) {
    let verdict = &report.verdict;
    let (class, word) = match (verdict.valid, report.partial) {
        (false, false) => ("bad", "invalid"),
        (false, true) => ("bad", "invalid, partial"),
        (true, true) => ("notable", "partial"),
        (true, false) => ("good", "valid"),
    };
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
             <p><strong>Do not use these figures.</strong></p>\n<ul>\n"
        );
        for reason in &verdict.reasons {
            put!(page, "<li>{}</li>\n", Esc(&reason.text));
        }
        put!(page, "</ul>\n</section>\n");
    }
    if report.partial {
        put!(
            page,
            "<p class=\"notice notable\">The measurement ended before its time; this is what \
             there was until then.</p>\n"
        );
    }
    put!(page, "</header>\n");
}

/// Three figures, large, and what the three views are.
pub(super) fn put_latency(page: &mut Markup, document: &Document<'_>) {
    put!(
        page,
        "<section aria-labelledby=\"latency\">\n<h2 id=\"latency\">Measured against ideal</h2>\n\
         <div class=\"cards\">\n"
    );
    let rows = latency::rows(document);
    for row in rows
        .iter()
        .filter(|row| matches!(row.name.as_str(), "p50" | "p99" | "p99.9"))
    {
        let longest = (row.cells.iter().filter_map(|(_, cell)| cell.value())).max();
        put!(page, "<div class=\"card\">\n<h3>{}</h3>\n", row.name);
        match &row.cells[1].1 {
            Cell::Known(value, _) => {
                let text = value.to_string();
                let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
                put!(page, "<p class=\"big\">{number} <span>{unit}</span></p>\n");
            }
            Cell::Unsupported(what) => put!(page, "<p class=\"lacking\">{}</p>\n", Esc(what)),
        }
        let ratio = row.ratio.map_or_else(
            || "no ratio".to_owned(),
            |ratio| format!("<strong>{}</strong> the ideal", figures::ratio(ratio)),
        );
        put!(
            page,
            "<p class=\"ratio\">{ratio}</p>\n<ul class=\"bars\">\n"
        );
        for (series, cell) in &row.cells {
            let (text, width) = match (cell.value(), longest) {
                (Some(value), Some(longest)) if longest.get() > 0 => (
                    value.to_string(),
                    100.0 * value.get() as f64 / longest.get() as f64,
                ),
                _ => ("–".to_owned(), 0.0),
            };
            put!(
                page,
                "<li><span>{}</span><svg aria-hidden=\"true\"><rect class=\"{}\" \
                 width=\"{width:.1}%\" height=\"100%\" rx=\"2\"/></svg><span>{text}</span></li>\n",
                series.label(),
                class(*series),
            );
        }
        put!(page, "</ul>\n</div>\n");
    }
    put!(
        page,
        "</div>\n<p class=\"explain\">{}</p>\n",
        explanation(document)
    );
    let excess = &document.report.server.excess;
    if let (Some(p50), Some(p99)) = (excess.quantile(0.5), excess.quantile(0.99)) {
        put!(
            page,
            "<p class=\"explain\">Request by request, the excess over its own ideal is {p50} (p50) \
             and {p99} (p99).</p>\n",
        );
    }
    put!(page, "</section>\n");
}

/// What the views are, with the name of each view in the colour of its curve.
fn explanation(document: &Document<'_>) -> String {
    let mut text = Esc(document.views_explained()).to_string();
    for (name, series) in [
        ("“Ideal”", Series::Ideal),
        ("“measured”", Series::Measured),
        ("“client’s view”", Series::Client),
    ] {
        let coloured = format!("<b class=\"{}\">{name}</b>", class(series));
        text = text.replace(name, &coloured);
    }
    text
}

/// The table that says in figures what the curves show.
pub(super) fn put_table(page: &mut Markup, document: &Document<'_>) {
    put!(
        page,
        "<section aria-labelledby=\"percentiles\">\n<h2 id=\"percentiles\">Percentiles</h2>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"percentiles\">\n\
         <table class=\"figures\">\n<caption>Latency in microseconds, below each its 95 % \
         interval; “ratio” is measured ÷ ideal</caption>\n<thead><tr><th scope=\"col\">\
         <span class=\"unseen\">Percentile</span></th>"
    );
    for (series, _) in document.views() {
        put!(
            page,
            "<th scope=\"col\">{} {}</th>",
            swatch(series),
            series.label()
        );
        if let Series::Measured = series {
            put!(page, "<th scope=\"col\">ratio</th>");
        }
    }
    put!(page, "</tr></thead>\n<tbody>\n");
    for row in latency::rows(document) {
        put!(page, "<tr><th scope=\"row\">{}</th>", row.name);
        for (series, cell) in &row.cells {
            match cell {
                Cell::Known(value, Some(interval)) => put!(
                    page,
                    "<td>{}<small>{}</small></td>",
                    micros(*value),
                    interval.micros()
                ),
                Cell::Known(value, None) => put!(page, "<td>{}</td>", micros(*value)),
                Cell::Unsupported(what) => {
                    put!(page, "<td class=\"lacking\">{}</td>", Esc(what));
                }
            }
            if *series == Series::Measured {
                let ratio = row.ratio.map_or_else(|| "–".to_owned(), figures::ratio);
                put!(page, "<td class=\"strong\">{ratio}</td>");
            }
        }
        put!(page, "</tr>\n");
    }
    put!(page, "</tbody>\n</table>\n</div>\n</section>\n");
}
