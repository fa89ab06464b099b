//! The figure of a simulation: distributions, or a quantile along a sweep.

use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES, not_drawn};
use taillab_report::figures;
use taillab_report::text::distinct;

use super::result::{SimulatedRun, SimulationReport, SweepAxis, utilisation, workers};

/// The quantiles along a sweep of one system.
const SWEPT_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// The quantile along a sweep of several systems.
const COMPARED_QUANTILE: f64 = 0.99;

/// The figure of the report.
pub fn chart(report: &SimulationReport) -> Chart {
    let runs = report.runs.all();
    let along = report.swept.iter().find_map(|swept| match swept {
        SweepAxis::Utilization => Some(Axis::Utilisation),
        SweepAxis::Workers => Some(Axis::Workers),
        SweepAxis::Discipline => None,
    });
    match along {
        Some(axis) if runs.len() > 1 => sweep(report, axis),
        _ => Chart {
            title: if runs.len() > 1 {
                "Latency distributions, simulated".to_owned()
            } else {
                "Latency distribution, simulated".to_owned()
            },
            subtitle: subtitle(report, runs.len()),
            x: Axis::Latency,
            y: Axis::Slower,
            curves: (runs.iter().take(MOST_CURVES))
                .map(|run| Curve::new(report.label(run), run.points.clone()))
                .collect(),
            rule: None,
        },
    }
}

/// What all runs have in common, and how many of so many `curves` have no place in the figure.
fn subtitle(report: &SimulationReport, curves: usize) -> String {
    let partial = if report.partial { ", partial" } else { "" };
    let left_out = not_drawn(curves, "curve", "curves");
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
    let names = distinct(runs.iter().map(series));
    let points = |name: &Vec<String>, q: f64| -> Vec<(f64, f64)> {
        runs.iter()
            .filter(|run| series(run) == *name)
            .filter_map(|run| Some((x(run), run.sojourn.quantile(q)?.get() as f64)))
            .collect()
    };
    let (title, curves) = if let [name] = names.as_slice() {
        let curves = SWEPT_QUANTILES
            .map(|q| Curve::new(figures::quantile_name(q), points(name, q)).marked());
        ("Latency along the sweep".to_owned(), curves.to_vec())
    } else {
        let differs = |part: usize| names.iter().any(|name| name[part] != names[0][part]);
        let shown: Vec<usize> = (0..2).filter(|part| differs(*part)).collect();
        let curves = names.iter().take(MOST_CURVES).map(|name| {
            let label: Vec<&str> = shown.iter().map(|part| name[*part].as_str()).collect();
            Curve::new(label.join(", "), points(name, COMPARED_QUANTILE)).marked()
        });
        let q = figures::quantile_name(COMPARED_QUANTILE);
        (format!("{q} along the sweep"), curves.collect())
    };
    Chart {
        title,
        subtitle: subtitle(report, names.len()),
        x: axis,
        y: Axis::Latency,
        curves,
        rule: None,
    }
}
