//! The result of `taillab sim` as a page: the figure and the quantiles.

use taillab_model::{Quantile, REPORTED_QUANTILES};

use super::markup::{Esc, Markup, put};
use super::page;
use crate::figures::{self, micros_f64};
use crate::simulation::{SimulatedRun, SimulationReport, chart};

/// The page, in UTF-8; it refers to nothing outside itself.
pub fn render(report: &SimulationReport) -> Vec<u8> {
    page::document("taillab sim", |page| {
        let partial = if report.partial {
            " <span class=\"verdict notable\">partial</span>"
        } else {
            ""
        };
        put!(
            page,
            "<header>\n<p class=\"eyebrow\">taillab sim</p>\n<h1>Simulated latency{partial}</h1>\n\
             <p>{}</p>\n",
            Esc(&report.common())
        );
        for run in report.runs.all() {
            for warning in &run.warnings {
                put!(
                    page,
                    "<p class=\"notice notable\">{}: {}</p>\n",
                    Esc(&report.label(run)),
                    Esc(warning)
                );
            }
        }
        put!(page, "</header>\n<main>\n<section>\n<h2>The tail</h2>\n");
        page::put_chart(page, &chart(report));
        put!(page, "</section>\n");
        put_table(page, report);
        put_exact(page, report);
        put!(page, "</main>\n");
    })
}

fn put_table(page: &mut Markup, report: &SimulationReport) {
    put!(
        page,
        "<section aria-labelledby=\"percentiles\">\n<h2 id=\"percentiles\">Percentiles</h2>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"percentiles\">\n\
         <table class=\"plain\">\n<caption>Sojourn in microseconds, below each its 95 % \
         interval</caption>\n<thead><tr><th scope=\"col\">System</th><th scope=\"col\">mean</th>"
    );
    for q in REPORTED_QUANTILES {
        put!(page, "<th scope=\"col\">{}</th>", figures::quantile_name(q));
    }
    put!(
        page,
        "<th scope=\"col\">requests</th></tr></thead>\n<tbody>\n"
    );
    for run in report.runs.all() {
        put!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td>",
            Esc(&report.label(run)),
            run.sojourn.mean.map_or_else(|| "–".to_owned(), micros_f64)
        );
        for q in REPORTED_QUANTILES {
            let found = run.sojourn.quantiles.iter().find(|x| x.q == q);
            put_quantile(page, run, found, q);
        }
        put!(
            page,
            "<td>{}</td></tr>\n",
            figures::count(run.sojourn.count)
        );
    }
    put!(page, "</tbody>\n</table>\n</div>\n</section>\n");
}

fn put_quantile(page: &mut Markup, run: &SimulatedRun, found: Option<&Quantile>, q: f64) {
    let known = found.and_then(|x| Some((x.value?, x.lo?, x.hi?)));
    match known.map(|(value, lo, hi)| [value, lo, hi].map(figures::micros)) {
        Some([value, lo, hi]) => put!(page, "<td>{value}<small>{lo}–{hi}</small></td>"),
        None => put!(page, "<td class=\"lacking\">{}</td>", Esc(&run.need(q))),
    }
}

fn put_exact(page: &mut Markup, report: &SimulationReport) {
    for run in report.runs.all() {
        let Some(exact) = run.exact.as_ref().and_then(Option::as_ref) else {
            continue;
        };
        put!(
            page,
            "<section>\n<h2>{}: simulated beside exact</h2>\n<table class=\"plain\">\n\
             <caption>{} ({}), in microseconds; z is the deviation in standard errors</caption>\n\
             <thead><tr><th scope=\"col\">Percentile</th><th scope=\"col\">simulated</th>\
             <th scope=\"col\">exact</th><th scope=\"col\">z</th></tr></thead>\n<tbody>\n",
            Esc(&report.label(run)),
            Esc(&exact.model),
            Esc(&exact.source)
        );
        let dash = || "–".to_owned();
        for x in &exact.quantiles {
            let z = run
                .z
                .as_ref()
                .and_then(|z| z.quantiles.iter().find(|z| z.q == x.q));
            put!(
                page,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                figures::quantile_name(x.q),
                run.sojourn.quantile(x.q).map_or_else(dash, figures::micros),
                x.value.map_or_else(dash, figures::micros),
                z.and_then(|z| z.z)
                    .map_or_else(dash, |z| figures::grouped(z, 1))
            );
        }
        put!(page, "</tbody>\n</table>\n</section>\n");
    }
}
