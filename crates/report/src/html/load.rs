//! The result of `taillab load` as a page: the verdict, the figure, the percentiles.

use taillab_model::load_result::{LoadResult, LoadSweepResult, Setup};
use taillab_model::summary::Verdict;
use taillab_model::{Distribution, Nanos};

use super::markup::{Esc, Markup, put};
use super::{checks, page};
use crate::figures::{self, count, counted, known_percent, micros, rate};
use crate::findings;
use crate::latency::{self, Cell};
use crate::load::{EXPLANATION, LoadReport, LoadSeries, awake, chart, sweep_chart};

/// The quantiles of the table; the maximum follows them.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// The page of one load, in UTF-8; it refers to nothing outside itself.
pub fn render_load(report: &LoadReport<'_>) -> Vec<u8> {
    let result = report.result;
    page::document("taillab load", |page| {
        put_head(page, &result.setup, &result.verdict, result.partial);
        put!(
            page,
            "<p>{}/s wanted, {}, {} sent in {}, from {}</p>\n</header>\n<main>\n",
            rate(result.load.target_rate_per_s),
            Esc(&result.load.arrivals.process),
            counted(result.load.requests, "request", "requests"),
            result.load.duration_ns,
            figures::utc(result.started_unix_s),
        );
        let figure = chart(report);
        if !figure.is_empty() {
            put!(page, "<section>\n<h2>The tail</h2>\n");
            page::put_chart(page, &figure);
            put!(page, "</section>\n");
        }
        put_percentiles(page, result);
        checks::put(page, &findings::of_load(result), &result.verdict.warnings);
        put!(page, "</main>\n");
    })
}

/// The page of a sweep or of a search.
pub fn render_load_sweep(result: &LoadSweepResult) -> Vec<u8> {
    page::document("taillab load", |page| {
        put_head(page, &result.setup, &result.verdict, result.partial);
        put!(
            page,
            "<p>{}, from {}</p>\n",
            counted(result.steps.len() as u64, "load", "loads"),
            figures::utc(result.started_unix_s),
        );
        if let Some(found) = &result.found {
            let answer = found.rate_per_s.map_or_else(
                || "no rate measured holds it".to_owned(),
                |highest| format!("holds up to {}/s", rate(highest)),
            );
            let breaks = found
                .fails_at_per_s
                .map(|fails| format!(", breaks at {}/s", rate(fails)))
                .unwrap_or_default();
            put!(
                page,
                "<p><strong>{}</strong>: {answer}{breaks}</p>\n",
                Esc(&found.objective.to_string())
            );
        }
        put!(
            page,
            "</header>\n<main>\n<section>\n<h2>Latency against load</h2>\n"
        );
        page::put_chart(page, &sweep_chart(result));
        put!(page, "</section>\n");
        put_steps(page, result);
        let floor = findings::floor(
            result.floor.as_ref(),
            result.floor_absent_because.as_deref(),
        );
        checks::put(page, &[floor], &result.verdict.warnings);
        put!(page, "</main>\n");
    })
}

/// The head up to the facts, which the caller adds, and the header's end.
fn put_head(page: &mut Markup, setup: &Setup, verdict: &Verdict, partial: bool) {
    let (class, word) = match (verdict.valid, partial) {
        (false, false) => ("bad", "invalid"),
        (false, true) => ("bad", "invalid, partial"),
        (true, true) => ("notable", "partial"),
        (true, false) => ("good", "valid"),
    };
    put!(
        page,
        "<header>\n<p class=\"eyebrow\">taillab load</p>\n\
         <h1>{} <span class=\"verdict {class}\">{word}</span></h1>\n<p>{} over {}, {}, {}{}</p>\n",
        Esc(&setup.target),
        Esc(&setup.protocol),
        Esc(&setup.transport),
        counted(u64::from(setup.connections), "connection", "connections"),
        counted(u64::from(setup.threads), "thread", "threads"),
        awake(setup),
    );
    if !verdict.reasons.is_empty() {
        put!(page, "<div class=\"notice bad\"><ul>\n");
        for reason in &verdict.reasons {
            put!(page, "<li>{}</li>\n", Esc(&reason.text));
        }
        put!(page, "</ul></div>\n");
    }
}

fn put_percentiles(page: &mut Markup, result: &LoadResult) {
    let distributions: Vec<(LoadSeries, &Distribution)> = [
        Some((LoadSeries::ResponseTime, &result.load.response_time)),
        Some((LoadSeries::ServiceTime, &result.load.service_time)),
        Some((LoadSeries::Lateness, &result.load.lateness)),
        (result.floor.as_ref()).map(|floor| (LoadSeries::Floor, &floor.load.response_time)),
    ]
    .into_iter()
    .flatten()
    .collect();
    put_table_head(
        page,
        "Latency in microseconds, below each its 95 % interval",
    );
    put!(page, "<th scope=\"col\">Percentile</th>");
    for (series, _) in &distributions {
        put!(page, "<th scope=\"col\">{}</th>", series.label());
    }
    put!(page, "</tr></thead>\n<tbody>\n");
    for q in QUANTILES.into_iter().chain([1.0]) {
        put!(
            page,
            "<tr><th scope=\"row\">{}</th>",
            figures::quantile_name(q)
        );
        for (_, distribution) in &distributions {
            let cell = if q < 1.0 {
                latency::quantile(distribution, q)
            } else {
                latency::maximum(distribution)
            };
            match cell {
                Cell::Known(value, Some(interval)) => put!(
                    page,
                    "<td>{}<small>{}</small></td>",
                    micros(value),
                    interval.micros()
                ),
                Cell::Known(value, None) => put!(page, "<td>{}</td>", micros(value)),
                Cell::Unsupported(what) => put!(page, "<td class=\"lacking\">{}</td>", Esc(&what)),
            }
        }
        put!(page, "</tr>\n");
    }
    put!(
        page,
        "</tbody>\n</table>\n</div>\n<p class=\"explain\">{}</p>\n</section>\n",
        Esc(EXPLANATION)
    );
}

fn put_table_head(page: &mut Markup, caption: &str) {
    put!(
        page,
        "<section aria-labelledby=\"percentiles\">\n<h2 id=\"percentiles\">Percentiles</h2>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"percentiles\">\n\
         <table class=\"plain\">\n<caption>{caption}</caption>\n<thead><tr>"
    );
}

fn put_steps(page: &mut Markup, result: &LoadSweepResult) {
    put_table_head(page, "Response time in microseconds");
    for name in [
        "requests/s",
        "of capacity",
        "p50",
        "p99",
        "p99.9",
        "late, p99.9",
        "errors",
        "verdict",
    ] {
        put!(page, "<th scope=\"col\">{name}</th>");
    }
    put!(page, "</tr></thead>\n<tbody>\n");
    let length = |length: Option<Nanos>| length.map_or_else(|| "–".to_owned(), micros);
    let mut steps: Vec<_> = result.steps.iter().collect();
    steps.sort_by(|a, b| (a.load.target_rate_per_s).total_cmp(&b.load.target_rate_per_s));
    for step in steps {
        let load = &step.load;
        put!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td>",
            rate(load.target_rate_per_s),
            known_percent(load.target_utilization)
        );
        for q in [0.5, 0.99, 0.999] {
            put!(page, "<td>{}</td>", length(load.response_time.quantile(q)));
        }
        put!(
            page,
            "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
            length(load.lateness.quantile(0.999)),
            count(load.errors.total()),
            match (step.verdict.valid, step.overloaded, step.partial) {
                (_, true, _) => "overload",
                (false, ..) => "invalid",
                (true, _, true) => "partial",
                (true, ..) => "valid",
            }
        );
    }
    put!(page, "</tbody>\n</table>\n</div>\n</section>\n");
}
