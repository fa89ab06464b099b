//! The figure of a server's tail: its distributions and the forecasts.

use taillab_model::Nanos;

use crate::chart::{Axis, Chart, Curve};
use crate::document::Document;
use crate::document::Series;
use crate::explained;

/// Classes of the forecasts that are drawn; the others are in the table only.
const PREDICTED: [&str; 3] = ["predicted-1", "predicted-2", "predicted-3"];

/// The views, then the curves of the explanation; a view without points is left out.
pub(crate) fn chart(document: &Document<'_>) -> Chart {
    let mut curves = views(document);
    curves.retain(|curve| curve.points.len() > 1);
    let named = document.report.server.explanation.as_ref();
    let mut predicted = PREDICTED.into_iter();
    let mut unused = None;
    for curve in named.map(|of| of.curves.as_slice()).unwrap_or_default() {
        let points = drawable(&curve.points);
        // what cannot be drawn takes no colour
        if points.len() < 2 {
            continue;
        }
        let class = match curve.name.as_str() {
            "multi_queue_ideal" => Some("multi-queue"),
            "ideal_without_probe" => Some("unprobed"),
            "replayed" => Some("replayed"),
            // these two are among the views
            "measured" | "ideal" => None,
            _ => unused.take().or_else(|| predicted.next()),
        };
        let Some(class) = class else { continue };
        let label = explained::curve_label(curve);
        let is_forecast = |class: &str| PREDICTED.contains(&class);
        let twin = (curves.iter_mut().filter(|drawn| is_forecast(drawn.class)))
            .find(|drawn| fall_together(&drawn.points, &points));
        match twin.filter(|_| is_forecast(class)) {
            Some(twin) => {
                // two curves in one place are one line with two names
                let change = label.trim_start_matches("predicted:").trim_start();
                twin.label = format!("{}, {change}", twin.label);
                unused = Some(class);
            }
            None => curves.push(Curve {
                class,
                ..Curve::new(label, points)
            }),
        }
    }
    let t = document.report.server.service_time_ns;
    Chart {
        title: "Latency distributions".to_owned(),
        subtitle: String::new(),
        x: Axis::Latency,
        y: Axis::Slower,
        curves,
        rule: (document.is_compared()).then(|| (t.get() as f64, format!("t = {t}"))),
    }
}

/// The measured curve and those to compare it with, from the best to what a user sees.
pub(crate) fn views(document: &Document<'_>) -> Vec<Curve> {
    (Series::ALL.iter())
        .filter_map(|&series| document.curves.iter().find(|curve| curve.series == series))
        .map(|curve| Curve {
            class: curve.series.class(),
            ..Curve::new(curve.series.label(), drawable(&curve.points))
        })
        .collect()
}

/// The points that have a place on logarithmic axes.
fn drawable(points: &[(Nanos, f64)]) -> Vec<(f64, f64)> {
    (points.iter())
        .map(|&(time, share)| (time.get() as f64, share))
        .filter(|&(ns, share)| ns > 0.0 && share > 0.0 && share <= 1.0)
        .collect()
}

/// The points for a figure that can be enlarged, without those that hardly differ from the one
/// before.
pub(crate) fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const APART: f64 = 0.001;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (i, &(ns, share)) in points.iter().enumerate() {
        let near = kept
            .last()
            .is_some_and(|&(x, y)| (ns / x).ln().abs() < APART && (share / y).ln().abs() < APART);
        if !near || i + 1 == points.len() {
            kept.push((ns, share));
        }
    }
    kept
}

/// Whether the curves look alike: at the percentiles of the tail that both have, at least one, they
/// differ by less than a twentieth.
fn fall_together(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    const APART: f64 = 0.05;
    let at = |curve: &[(f64, f64)], share: f64| {
        let place = curve.partition_point(|point| point.1 > share);
        curve.get(place).map(|point| point.0)
    };
    let shares = [0.5, 0.1, 0.01, 0.001].into_iter();
    let mut both = shares
        .filter_map(|share| at(a, share).zip(at(b, share)))
        .peekable();
    both.peek().is_some() && both.all(|(a, b)| (a / b).ln().abs() < APART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_curves_that_can_be_compared_look_alike() {
        let curve = [(100.0, 1.0), (200.0, 0.5), (400.0, 0.1), (800.0, 0.01)];
        let scaled = |factor: f64| curve.map(|(ns, share)| (factor * ns, share));
        assert!(fall_together(&curve, &scaled(1.04)));
        assert!(fall_together(&curve, &curve[..3]));
        assert!(!fall_together(&curve, &scaled(1.06)));
        assert!(!fall_together(&curve, &[]));
        assert!(!fall_together(&curve, &curve[..1]));
    }
}
