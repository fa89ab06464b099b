//! Charts on a page. They fit any width and can be read without a script.

use serde::Serialize;

use crate::chart::{Chart, Look, Scene, curve_look, put_plot};
use crate::document::Document;
use crate::markup::{Esc, Markup, patch, put, section, swatch};
use crate::tail;

/// What the script draws from.
#[derive(Serialize)]
struct Data<'a> {
    x: [f64; 2],
    y: [f64; 2],
    curves: Vec<CurveData<'a>>,
}

#[derive(Serialize)]
struct CurveData<'a> {
    class: &'a str,
    label: &'a str,
    points: Vec<(f64, f64)>,
}

/// The chart, as wide as the page.
pub fn put(page: &mut Markup, chart: &Chart) {
    put_as(page, chart, "chart", "");
}

/// The chart as a figure of this CSS class; none where there is nothing to draw.
pub fn put_as(page: &mut Markup, chart: &Chart, class: &str, caption: &str) {
    if chart.is_empty() {
        return;
    }
    let attributes = format!("class=\"{class}\"");
    put_scene(page, chart, &Scene::of(chart), &attributes, caption);
}

/// The tail of a server's latency; the script enlarges it and reads off values.
pub(super) fn put_tail(page: &mut Markup, document: &Document<'_>) {
    let chart = tail::chart(document);
    if chart.is_empty() {
        return;
    }
    let scene = Scene::of(&chart);
    let curves = chart.curves.iter().enumerate();
    let data = Data {
        x: scene.x,
        y: scene.y,
        curves: curves
            .map(|(n, curve)| CurveData {
                class: curve.class(n),
                label: &curve.label,
                points: tail::thinned(&curve.points),
            })
            .collect(),
    };
    section(page, "tail", "The tail", |page| {
        // with each request's own work, the excess is over another ideal, that of t
        let gap = match document.is_compared() && !document.has_own_work() {
            true => " The gap between ideal and measured is the excess.",
            false => "",
        };
        let caption = format!(
            "Each curve shows the share of requests that are faster than a time: further left is \
             better.{gap}<span class=\"script-only\"> Move over the figure or use the slider to \
             read off values; drag over a part to enlarge it; click a name to hide its \
             curve.</span>"
        );
        put_scene(
            page,
            &chart,
            &scene,
            "class=\"chart\" id=\"ccdf\"",
            &caption,
        );
        // numbers and our own labels: serialisation cannot fail, and without data the figure
        // still shows, only without the script
        if let Ok(json) = serde_json::to_string(&data) {
            put!(
                page,
                "<script type=\"application/json\" id=\"ccdf-data\">{}</script>\n",
                json.replace('<', "\\u003c")
            );
        }
    });
}

fn put_scene(page: &mut Markup, chart: &Chart, scene: &Scene, attributes: &str, caption: &str) {
    put!(
        page,
        "<figure {attributes}>\n<p class=\"note\">{}</p>\n<ul class=\"legend\">\n",
        Esc(&chart.subtitle)
    );
    for (n, curve) in chart.drawn() {
        let class = curve.class(n);
        let sample = match curve.look {
            Look::Line | Look::Marked => swatch(class, &curve_look(n)),
            Look::Bars | Look::Cells => patch(class),
        };
        let label = Esc(&curve.label);
        put!(page, "<li data-series=\"{class}\">{sample} {label}</li>\n");
    }
    put!(
        page,
        "</ul>\n<p class=\"axis\">{}</p>\n<div class=\"plot\">\n\
         <svg class=\"frame\" role=\"img\" aria-label=\"{}\">\n",
        chart.y.label(),
        Esc(&chart.title),
    );
    put_plot(page, scene);
    put!(
        page,
        "<g class=\"cursor\"></g>\n</svg>\n</div>\n<p class=\"axis right\">{}</p>\n",
        chart.x.label(),
    );
    if !caption.is_empty() {
        put!(page, "<figcaption>{caption}</figcaption>\n");
    }
    put!(page, "</figure>\n");
}
