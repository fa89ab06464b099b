//! The log-log complementary distribution functions, as SVG that fits any width.
//!
//! Axes and labels are placed in per cent of the plot; the curves lie in an inner SVG
//! of [`SIDE`] × [`SIDE`] units that is stretched over it, with strokes that do not
//! stretch. So one figure serves a phone, a screen and paper without a script.

use serde::Serialize;
use taillab_model::Nanos;

use super::headline::class;
use super::markup::{Esc, Markup, put};
use crate::Document;
use crate::scale::LogScale;
use crate::{Series, explained, figures};

/// Units of the curves' own coordinates, in both directions.
const SIDE: f64 = 1000.0;
/// Points nearer than this to the one before are left out of the drawing.
const DRAWN_APART: f64 = 0.7;
/// The same for the script's data, which can be zoomed.
const KEPT_APART: f64 = 0.2;

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
    points: Vec<(u64, f64)>,
}

/// The two axes of the figure.
struct Axes {
    /// Time in nanoseconds, to the right.
    time: LogScale,
    /// Share of slower requests, from all at the top to the least at the bottom.
    share: LogScale,
}

impl Axes {
    /// `None` without a point that can be drawn.
    fn covering(curves: &[Drawn<'_>]) -> Option<Self> {
        let points = || curves.iter().flat_map(|curve| drawable(curve));
        let first = points().map(|p| p.0).min()?;
        let last = points().map(|p| p.0).max()?;
        let least = points().map(|p| p.1).fold(1.0, f64::min);
        Some(Self {
            time: LogScale::covering(first as f64, last as f64),
            share: LogScale {
                from: (least * 0.8).min(0.5),
                to: 1.0,
            },
        })
    }

    fn left(&self, ns: f64) -> f64 {
        self.time.position(ns)
    }

    fn top(&self, share: f64) -> f64 {
        1.0 - self.share.position(share)
    }
}

/// A curve of the figure.
struct Drawn<'a> {
    /// Its class in the style sheet; each curve has its own.
    class: &'static str,
    label: String,
    points: &'a [(Nanos, f64)],
}

/// Classes of the forecasts that are drawn; the others stand in the table only.
const PREDICTED: [&str; 3] = ["predicted-1", "predicted-2", "predicted-3"];

/// What is drawn, in the order of the legend.
fn drawn<'a>(document: &Document<'a>) -> Vec<Drawn<'a>> {
    let mut curves: Vec<Drawn<'a>> = (Series::ALL.iter())
        .filter_map(|&series| document.curves.iter().find(|curve| curve.series == series))
        .map(|curve| Drawn {
            class: class(curve.series),
            label: curve.series.label().to_owned(),
            points: &curve.points,
        })
        .collect();
    let named = document.report.server.explanation.as_ref();
    let mut predicted = PREDICTED.into_iter();
    let mut unused = None;
    for curve in named.map(|of| of.curves.as_slice()).unwrap_or_default() {
        let class = match curve.name.as_str() {
            "multi_queue_ideal" => Some("multi-queue"),
            "replayed" => Some("replayed"),
            // the measured and the ideal one are there already
            "measured" | "ideal" => None,
            _ => unused.take().or_else(|| predicted.next()),
        };
        let label = explained::curve_label(curve);
        let is_forecast = |drawn: &&mut Drawn<'_>| PREDICTED.contains(&drawn.class);
        let twin = (curves.iter_mut().filter(is_forecast))
            .find(|drawn| fall_together(drawn.points, &curve.points));
        match (class, twin) {
            (Some(class), Some(twin)) if PREDICTED.contains(&class) => {
                // two curves in one place are one line with two names
                let change = label.trim_start_matches("predicted:").trim_start();
                twin.label = format!("{}, {change}", twin.label);
                unused = Some(class);
            }
            (Some(class), _) => curves.push(Drawn {
                class,
                label,
                points: &curve.points,
            }),
            (None, _) => {}
        }
    }
    curves.retain(|curve| drawable(curve).count() > 1);
    curves
}

/// Whether nobody could tell the curves apart: at the percentiles of the tail they differ by
/// less than a twentieth.
fn fall_together(a: &[(Nanos, f64)], b: &[(Nanos, f64)]) -> bool {
    const APART: f64 = 0.05;
    let at = |curve: &[(Nanos, f64)], share: f64| {
        let place = curve.partition_point(|point| point.1 > share);
        curve.get(place).map(|point| point.0.get().max(1) as f64)
    };
    [0.5, 0.1, 0.01, 0.001].into_iter().all(|share| {
        let both = at(a, share).zip(at(b, share));
        both.is_none_or(|(a, b)| (a / b).ln().abs() < APART)
    })
}

/// A short piece of the curve's line.
fn swatch(class: &str) -> String {
    format!(
        "<svg class=\"swatch\" width=\"30\" height=\"10\" aria-hidden=\"true\">\
         <line class=\"curve {class}\" x1=\"0\" y1=\"5\" x2=\"30\" y2=\"5\"/></svg>"
    )
}

/// The points that have a place on logarithmic axes.
fn drawable(curve: &Drawn<'_>) -> impl Iterator<Item = (u64, f64)> {
    (curve.points.iter())
        .map(|&(time, share)| (time.get(), share))
        .filter(|&(ns, share)| ns > 0 && share > 0.0 && share <= 1.0)
}

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let curves = drawn(document);
    let Some(axes) = Axes::covering(&curves) else {
        return;
    };
    put!(
        page,
        "<section aria-labelledby=\"tail\">\n<h2 id=\"tail\">The tail</h2>\n\
         <figure class=\"chart\" id=\"ccdf\">\n<ul class=\"legend\">\n"
    );
    for curve in &curves {
        put!(
            page,
            "<li data-series=\"{}\">{} {}</li>\n",
            curve.class,
            swatch(curve.class),
            Esc(&curve.label)
        );
    }
    put!(
        page,
        "</ul>\n<p class=\"axis\">share of requests that are faster, on a logarithmic scale</p>\n\
         <div class=\"plot\">\n<svg class=\"frame\" role=\"img\" aria-labelledby=\"ccdf-title ccdf-text\">\n\
         <title id=\"ccdf-title\">Latency distributions</title>\n\
         <desc id=\"ccdf-text\">How large a share of the requests is faster than a given time, \
         for the ideal queue and the measured server; the table of percentiles below \
         has the figures.</desc>\n<g class=\"ticks\">\n"
    );
    put_ticks(page, &axes, document);
    put!(
        page,
        "</g>\n<svg class=\"curves\" width=\"100%\" height=\"100%\" viewBox=\"0 0 {SIDE} {SIDE}\" \
         preserveAspectRatio=\"none\">\n"
    );
    // dotted and dashed curves over the solid one: where they fall together both show
    let is_solid = |curve: &&Drawn<'_>| curve.class == class(Series::Measured);
    let solid = curves.iter().filter(is_solid);
    let others = curves.iter().rev().filter(|curve| !is_solid(curve));
    for curve in solid.chain(others) {
        put!(
            page,
            "<path class=\"curve {}\" d=\"{}\"/>\n",
            curve.class,
            path(curve, &axes)
        );
    }
    put!(
        page,
        "</svg>\n<g class=\"cursor\"></g>\n</svg>\n</div>\n\
         <p class=\"axis right\">latency, on a logarithmic scale</p>\n\
         <figcaption>Each curve says how large a share of the requests is faster than a time: \
         further left is better. The gap between ideal and measured is the excess.\
         <span class=\"script-only\"> Move over the figure or use the slider to read it off; \
         drag over a part to enlarge it; press a name to hide its curve.</span></figcaption>\n\
         </figure>\n"
    );
    let data = Data {
        x: [axes.time.from, axes.time.to],
        y: [axes.share.from, axes.share.to],
        curves: curves
            .iter()
            .map(|curve| CurveData {
                class: curve.class,
                label: &curve.label,
                points: thinned(curve, &axes, KEPT_APART),
            })
            .collect(),
    };
    // numbers and our own words: serialisation cannot fail, and without data the
    // figure stays as it is
    if let Ok(json) = serde_json::to_string(&data) {
        put!(
            page,
            "<script type=\"application/json\" id=\"ccdf-data\">{}</script>\n",
            json.replace('<', "\\u003c")
        );
    }
    put!(page, "</section>\n");
}

fn put_ticks(page: &mut Markup, axes: &Axes, document: &Document<'_>) {
    const MOST_TICKS: usize = 14;
    for ns in axes.time.ticks(MOST_TICKS) {
        let at = 100.0 * axes.left(ns);
        // the powers of ten keep their labels where there is little room
        let fine = if is_power_of_ten(ns) { "" } else { " fine" };
        put!(
            page,
            "<line x1=\"{at:.3}%\" x2=\"{at:.3}%\" y1=\"0\" y2=\"100%\"/>\
             <text class=\"x{fine}\" x=\"{at:.3}%\" y=\"100%\" dy=\"1.5em\">{}</text>\n",
            figures::round_length(ns)
        );
    }
    let mut share = 1.0;
    for step in 0.. {
        if share < axes.share.from {
            break;
        }
        let at = 100.0 * axes.top(share);
        put!(
            page,
            "<line x1=\"0\" x2=\"100%\" y1=\"{at:.3}%\" y2=\"{at:.3}%\"/>\
             <text class=\"y\" x=\"-10\" y=\"{at:.3}%\" dy=\"0.35em\">{} %</text>\n",
            figures::percentage(1.0 - share)
        );
        share = match step {
            0 => 0.5,
            _ => 10_f64.powi(-step),
        };
    }
    let t = document.report.server.service_time_ns.get() as f64;
    if (axes.time.from..=axes.time.to).contains(&t) {
        let at = 100.0 * axes.left(t);
        put!(
            page,
            "<line class=\"service\" x1=\"{at:.3}%\" x2=\"{at:.3}%\" y1=\"0\" y2=\"100%\"/>\
             <text class=\"service\" x=\"{at:.3}%\" y=\"100%\" dx=\"5\" dy=\"-8\">t = {}</text>\n",
            document.report.server.service_time_ns
        );
    }
}

fn is_power_of_ten(x: f64) -> bool {
    (x.log10() - x.log10().round()).abs() < 1e-9
}

/// The curve's points in order, without those that lie on the one before.
fn thinned(curve: &Drawn<'_>, axes: &Axes, apart: f64) -> Vec<(u64, f64)> {
    let place = |(ns, share): (u64, f64)| (SIDE * axes.left(ns as f64), SIDE * axes.top(share));
    let mut kept: Vec<(u64, f64)> = Vec::new();
    let mut skipped = None;
    for point in drawable(curve) {
        let near = kept.last().is_some_and(|&last| {
            let ((x0, y0), (x1, y1)) = (place(last), place(point));
            (x1 - x0).abs() < apart && (y1 - y0).abs() < apart
        });
        if near {
            skipped = Some(point);
        } else {
            kept.push(point);
            skipped = None;
        }
    }
    kept.extend(skipped);
    kept
}

fn path(curve: &Drawn<'_>, axes: &Axes) -> String {
    let mut d = String::new();
    for (i, (ns, share)) in thinned(curve, axes, DRAWN_APART).into_iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        let (x, y) = (SIDE * axes.left(ns as f64), SIDE * axes.top(share));
        d.push_str(&format!("{command}{x:.1} {y:.1}"));
    }
    d
}
