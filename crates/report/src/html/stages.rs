//! The five stages: their part at each percentile, and their own distributions.

use taillab_model::summary::ServerResult;
use taillab_model::{Distribution, Stage};

use super::markup::{Esc, Markup, put};
use crate::figures::{self, count, micros, micros_f64, percent};
use crate::latency::{self, Cell};

/// Segments narrower than this have no room for their share as text.
const ROOM_FOR_TEXT: f64 = 0.12;

pub(super) fn put(page: &mut Markup, result: &ServerResult) {
    put!(
        page,
        "<section aria-labelledby=\"stages\">\n<h2 id=\"stages\">Where the time goes</h2>\n"
    );
    if !result.stages_at.is_empty() {
        put_bars(page, result);
        put_breakdown(page, result);
    }
    put_distributions(page, result);
    put!(page, "</section>\n");
}

/// `T1–T2`.
fn span(stage: Stage) -> String {
    stage.key().to_uppercase().replace('_', "–")
}

fn put_bars(page: &mut Markup, result: &ServerResult) {
    put!(page, "<figure class=\"stages\">\n<ul class=\"legend\">\n");
    for stage in Stage::ALL {
        put!(
            page,
            "<li><svg class=\"patch\" width=\"14\" height=\"14\" aria-hidden=\"true\">\
             <rect class=\"{}\" width=\"14\" height=\"14\" rx=\"3\"/></svg> \
             <b>{}</b> {}</li>\n",
            stage.key(),
            span(stage),
            stage.label()
        );
    }
    put!(page, "</ul>\n<div class=\"rows\">\n");
    for at in result.stages_at.iter().filter(|at| at.requests > 0) {
        let name = figures::quantile_name(at.q);
        put!(
            page,
            "<div class=\"row\"><span class=\"name\">{name}</span>\
             <svg class=\"bar\" role=\"img\" aria-label=\"{name}: {} µs\">\n",
            micros_f64(at.mean_sojourn_ns)
        );
        let total: f64 = at.mean_stage_ns.iter().sum();
        let mut left = 0.0;
        for (stage, ns) in Stage::ALL.into_iter().zip(at.mean_stage_ns) {
            let share = if total > 0.0 { ns / total } else { 0.0 };
            put!(
                page,
                "<rect class=\"{}\" x=\"{:.3}%\" width=\"{:.3}%\" height=\"100%\">\
                 <title>{} {}: {} µs, {}</title></rect>\n",
                stage.key(),
                100.0 * left,
                100.0 * share,
                span(stage),
                stage.label(),
                micros_f64(ns),
                percent(share, 1),
            );
            if share >= ROOM_FOR_TEXT {
                put!(
                    page,
                    "<text class=\"on-{}\" x=\"{:.3}%\" y=\"50%\" dy=\"0.35em\">{}</text>\n",
                    stage.key(),
                    100.0 * (left + share / 2.0),
                    percent(share, 0),
                );
            }
            left += share;
        }
        put!(
            page,
            "</svg><span class=\"total\">{} µs</span></div>\n",
            micros_f64(at.mean_sojourn_ns)
        );
    }
    put!(
        page,
        "</div>\n<figcaption>Mean stages of the complete requests around each percentile of the \
         sojourn, as shares of it; the figure beside each bar is their mean sojourn.</figcaption>\n\
         </figure>\n"
    );
}

fn put_breakdown(page: &mut Markup, result: &ServerResult) {
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Stages at each percentile\">\n\
         <table class=\"figures\">\n<caption>The same in microseconds</caption>\n\
         <thead><tr><th scope=\"col\"><span class=\"unseen\">Percentile</span></th>\
         <th scope=\"col\">sojourn</th>"
    );
    for stage in Stage::ALL {
        put!(
            page,
            "<th scope=\"col\">{}<small>{}</small></th>",
            span(stage),
            stage.label()
        );
    }
    put!(
        page,
        "<th scope=\"col\">requests</th></tr></thead>\n<tbody>\n"
    );
    for at in &result.stages_at {
        put!(
            page,
            "<tr><th scope=\"row\">{}</th>",
            figures::quantile_name(at.q)
        );
        if at.requests == 0 {
            put!(
                page,
                "<td colspan=\"6\" class=\"lacking\">no complete request in the band</td>"
            );
        } else {
            put!(
                page,
                "<td class=\"strong\">{}</td>",
                micros_f64(at.mean_sojourn_ns)
            );
            for ns in at.mean_stage_ns {
                put!(page, "<td>{}</td>", micros_f64(ns));
            }
        }
        put!(page, "<td>{}</td></tr>\n", count(at.requests));
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
}

fn put_distributions(page: &mut Markup, result: &ServerResult) {
    let stages: [&Distribution; 5] = [
        &result.stages.t1_t2,
        &result.stages.t2_t3,
        &result.stages.t3_t4,
        &result.stages.t4_t5,
        &result.stages.t5_t6,
    ];
    let total_ns: f64 = stages.iter().filter_map(|stage| stage.mean).sum();
    const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
    put!(
        page,
        "<h3 id=\"distributions\">Each stage by itself</h3>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"distributions\">\n\
         <table class=\"figures\">\n<caption>In microseconds, over {} complete requests</caption>\n\
         <thead><tr><th scope=\"col\">stage</th>",
        count(stages[0].count)
    );
    for q in QUANTILES {
        put!(page, "<th scope=\"col\">{}</th>", figures::quantile_name(q));
    }
    put!(
        page,
        "<th scope=\"col\">max</th><th scope=\"col\">mean</th>\
         <th scope=\"col\">share of the mean</th></tr></thead>\n<tbody>\n"
    );
    for (stage, distribution) in Stage::ALL.into_iter().zip(stages) {
        put!(
            page,
            "<tr><th scope=\"row\">{} <span class=\"light\">{}</span></th>",
            span(stage),
            stage.label()
        );
        for q in QUANTILES {
            match latency::quantile(distribution, q) {
                Cell::Known(value, _) => put!(page, "<td>{}</td>", micros(value)),
                Cell::Unsupported(what) => {
                    put!(page, "<td class=\"lacking\">{}</td>", Esc(&what));
                }
            }
        }
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        put!(
            page,
            "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
            or_dash(distribution.max.map(micros)),
            or_dash(distribution.mean.map(micros_f64)),
            or_dash(distribution.mean.map(|mean| percent(mean / total_ns, 1))),
        );
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
}
