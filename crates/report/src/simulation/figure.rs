//! The figure of a simulation: distributions, or a quantile along a sweep.

use taillab_queueing::sample::Sample;

use super::{SimulatedRun, SimulationReport, Swept, utilisation, workers};
use crate::chart::{Axis, Chart, Curve};
use crate::figures;

/// Requests that must lie above a point of a curve.
const FEWEST_ABOVE: f64 = 4.0;
/// The largest standard error of a point, relative to the share itself.
const LARGEST_ERROR: f64 = 0.3;
/// Distributions in one figure; more cannot be told apart.
const MOST_CURVES: usize = 8;
/// The quantiles along a sweep of one system.
const SWEPT_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// The quantile along a sweep of several.
const COMPARED_QUANTILE: f64 = 0.99;

/// The curve of a sample: (time in nanoseconds, share of requests that take longer), as
/// far as the sample supports it. Farther out it would show the accidents of a few busy
/// periods.
pub fn ccdf_points(sample: &Sample) -> Vec<(f64, f64)> {
    let histogram = sample.pooled();
    let (Some(min), Some(max)) = (histogram.min_ns(), histogram.max_ns()) else {
        return Vec::new();
    };
    let mut points = vec![(min, 1.0)];
    if min == max {
        // all alike: the curve falls straight to the foot
        points.push((max, 0.0));
        return points;
    }
    let n = histogram.count() as f64;
    let supported = |&(time_ns, share): &(f64, f64)| {
        let error = sample
            .share_above(time_ns)
            .map(|share| share.standard_error);
        share * n >= FEWEST_ABOVE && error.is_some_and(|error| error <= LARGEST_ERROR * share)
    };
    let curve = histogram.ccdf();
    let supported = curve.partition_point(supported);
    points.extend_from_slice(&curve[..supported]);
    points
}

/// The figure of the report.
pub fn chart(report: &SimulationReport) -> Chart {
    let runs = report.runs.all();
    let along = report.swept.iter().find_map(|swept| match swept {
        Swept::Utilization => Some(Axis::Utilisation),
        Swept::Workers => Some(Axis::Workers),
        Swept::Discipline => None,
    });
    match along {
        Some(axis) if runs.len() > 1 => sweep(report, axis),
        _ => Chart {
            title: if runs.len() > 1 {
                "Latency distributions, simulated".to_owned()
            } else {
                "Latency distribution, simulated".to_owned()
            },
            subtitle: subtitle(report),
            x: Axis::Latency,
            y: Axis::Slower,
            curves: (runs.iter().take(MOST_CURVES))
                .map(|run| Curve {
                    label: report.label(run),
                    points: run.points.clone(),
                    marked: false,
                })
                .collect(),
        },
    }
}

fn subtitle(report: &SimulationReport) -> String {
    let partial = if report.partial { ", partial" } else { "" };
    let left_out = report.runs.all().len().saturating_sub(MOST_CURVES);
    let left_out = if left_out > 0 && report.swept.is_empty() {
        format!(
            "; {} not drawn",
            figures::counted(left_out as u64, "curve", "curves")
        )
    } else {
        String::new()
    };
    format!("{}{partial}{left_out}", report.common())
}

fn sweep(report: &SimulationReport, axis: Axis) -> Chart {
    let runs = report.runs.all();
    let x = |run: &SimulatedRun| match axis {
        Axis::Utilisation => run.utilization,
        _ => f64::from(run.workers),
    };
    let series = |run: &SimulatedRun| {
        let mut parts = vec![run.discipline.clone()];
        match axis {
            Axis::Utilisation => parts.push(workers(run.workers)),
            _ => parts.push(utilisation(run.utilization)),
        }
        parts
    };
    let mut names: Vec<Vec<String>> = Vec::new();
    for run in runs {
        let name = series(run);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let points = |name: &Vec<String>, q: f64| -> Vec<(f64, f64)> {
        runs.iter()
            .filter(|run| series(run) == *name)
            .filter_map(|run| Some((x(run), run.sojourn.quantile(q)?.get() as f64)))
            .collect()
    };
    let (title, curves) = if let [name] = names.as_slice() {
        let curves = SWEPT_QUANTILES.map(|q| Curve {
            label: figures::quantile_name(q),
            points: points(name, q),
            marked: true,
        });
        ("Latency along the sweep".to_owned(), curves.to_vec())
    } else {
        let differs = |part: usize| names.iter().any(|name| name[part] != names[0][part]);
        let shown: Vec<usize> = (0..2).filter(|part| differs(*part)).collect();
        let curves = names.iter().take(MOST_CURVES).map(|name| Curve {
            label: shown
                .iter()
                .map(|part| name[*part].clone())
                .collect::<Vec<_>>()
                .join(", "),
            points: points(name, COMPARED_QUANTILE),
            marked: true,
        });
        let q = figures::quantile_name(COMPARED_QUANTILE);
        (format!("{q} along the sweep"), curves.collect())
    };
    Chart {
        title,
        subtitle: subtitle(report),
        x: axis,
        y: Axis::Latency,
        curves,
    }
}
