//! How well the replay fits, and what each change is predicted to give.

use taillab_model::explanation::{ModelFit, PredictedPoint, Prediction};

use super::markup::{Esc, Markup, put};
use crate::Document;
use crate::explained;
use crate::figures::{glued, micros, percent, quantile_name, ratio};

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    if document.report.server.explanation.is_none() {
        return;
    }
    put!(
        page,
        "<section aria-labelledby=\"predictions\">\n\
         <h2 id=\"predictions\">What would help</h2>\n"
    );
    put_fit(page, document.report.server.model_fit.as_ref());
    put_table(page, &document.report.server.predictions);
    put!(page, "</section>\n");
}

fn put_fit(page: &mut Markup, fit: Option<&ModelFit>) {
    let class = match fit {
        Some(fit) if fit.good => "explain",
        _ => "notice notable",
    };
    put!(
        page,
        "<p class=\"{class}\">{}</p>\n",
        Esc(&glued(&explained::fit_sentence(fit)))
    );
    let Some(fit) = fit else { return };
    put!(
        page,
        "<details>\n<summary>The replay against the measurement</summary>\n\
         <table class=\"figures\">\n<caption>In microseconds</caption>\n<thead><tr>\
         <th scope=\"col\">percentile</th><th scope=\"col\">measured</th>\
         <th scope=\"col\">replayed</th><th scope=\"col\">error</th></tr></thead>\n<tbody>\n"
    );
    for point in &fit.points {
        put!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
            quantile_name(point.q),
            micros(point.measured_ns),
            micros(point.replayed_ns),
            percent(point.error, 1)
        );
    }
    put!(page, "</tbody>\n</table>\n</details>\n");
}

fn point_at(prediction: &Prediction, q: f64) -> Option<&PredictedPoint> {
    prediction
        .points
        .iter()
        .find(|point| (point.q - q).abs() < 1e-12)
}

fn put_table(page: &mut Markup, predictions: &[Prediction]) {
    if predictions.is_empty() {
        return;
    }
    // the gain is that at the highest percentile that the sample supports
    let far = (QUANTILES.into_iter().rev())
        .find(|&q| predictions.iter().any(|p| point_at(p, q).is_some()))
        .unwrap_or(QUANTILES[0]);
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Predictions\">\n\
         <table class=\"figures predictions\">\n<caption>Predicted latency in microseconds with its \
         95 % interval (the model’s own error included), the best first</caption>\n\
         <thead><tr><th scope=\"col\">change</th>"
    );
    for q in QUANTILES {
        put!(page, "<th scope=\"col\">{}</th>", quantile_name(q));
    }
    put!(
        page,
        "<th scope=\"col\">{} against now</th></tr></thead>\n<tbody>\n\
         <tr><th scope=\"row\">as it is</th>",
        quantile_name(far)
    );
    for q in QUANTILES {
        let now = predictions.iter().find_map(|p| point_at(p, q));
        match now {
            Some(point) => put!(page, "<td class=\"now\">{}</td>", micros(point.measured_ns)),
            None => put!(page, "<td>–</td>"),
        }
    }
    put!(page, "<td></td></tr>\n");
    for prediction in predictions {
        put!(
            page,
            "<tr><th scope=\"row\">{}<small>{}</small>",
            Esc(&prediction.change),
            Esc(&prediction.description)
        );
        if let Some(cost) = &prediction.cost {
            put!(page, "<small>costs: {}</small>", Esc(cost));
        }
        if let Some(command) = &prediction.command {
            put!(page, "<small><code>{}</code></small>", Esc(command));
        }
        put!(page, "</th>");
        for q in QUANTILES {
            let Some(point) = point_at(prediction, q) else {
                put!(page, "<td>–</td>");
                continue;
            };
            let interval = match (point.lo_ns, point.hi_ns) {
                (Some(lo), Some(hi)) => format!("{}–{}", micros(lo), micros(hi)),
                _ => String::new(),
            };
            put!(
                page,
                "<td>{}<small>{interval}</small></td>",
                micros(point.predicted_ns)
            );
        }
        let gain = point_at(prediction, far)
            .filter(|point| point.measured_ns.get() > 0)
            .map(|point| point.predicted_ns.get() as f64 / point.measured_ns.get() as f64);
        put!(
            page,
            "<td class=\"strong\">{}</td></tr>\n",
            gain.map_or_else(|| "–".to_owned(), ratio)
        );
    }
    put!(page, "</tbody>\n</table>\n</div>\n");
}
