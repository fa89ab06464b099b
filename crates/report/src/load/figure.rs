//! The figures of a load: its distributions, or latency against load.

use taillab_model::load_result::{LoadReport, LoadStep};
use taillab_model::summary::LoadSummary;

use super::{LoadDocument, LoadSeries};
use crate::chart::{Axis, Chart, Curve};
use crate::figures;

/// The quantiles along a sweep.
const SWEPT_QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The distributions of one load, or latency against load; `None` for a closed loop, which has
/// neither.
pub fn chart(document: &LoadDocument<'_>) -> Option<Chart> {
    let report = document.report;
    match &report.load {
        Some(load) => Some(distributions(document, load)),
        None if report.generator().closed_loop.is_some() => None,
        None => Some(sweep(report)),
    }
}

fn distributions(document: &LoadDocument<'_>, load: &LoadSummary) -> Chart {
    let report = document.report;
    let curves = LoadSeries::ALL.iter().filter_map(|series| {
        let curve = document
            .curves
            .iter()
            .find(|curve| curve.series == *series)?;
        let points = curve.points.iter();
        let points = points.map(|(time, share)| (time.get() as f64, *share));
        Some(Curve::new(series.label(), points.collect()))
    });
    Chart {
        title: "Latency distributions".to_owned(),
        subtitle: format!(
            "{}, {}/s, {}{}",
            report.target,
            figures::rate(load.target_rate_per_s),
            load.arrivals.process,
            doubt(report.verdict.valid, report.partial),
        ),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: curves.collect(),
        rule: None,
    }
}

/// Latency against load: a curve for each quantile, and where the objective breaks.
///
/// The horizontal axis is the utilisation if it is known for every step, otherwise the rate.
fn sweep(report: &LoadReport) -> Chart {
    let generator = report.generator();
    let utilised = |step: &LoadStep| step.load.target_utilization;
    let x_axis = if generator.steps.iter().all(|step| utilised(step).is_some()) {
        Axis::Utilisation
    } else {
        Axis::Rate
    };
    let x = |step: &LoadStep| match x_axis {
        Axis::Utilisation => utilised(step).unwrap_or(f64::NAN),
        _ => step.load.target_rate_per_s,
    };
    let mut steps: Vec<&LoadStep> = generator.steps.iter().collect();
    steps.sort_by(|a, b| x(a).total_cmp(&x(b)));
    let of = |q: f64| -> Vec<(f64, f64)> {
        steps
            .iter()
            .filter_map(|step| Some((x(step), step.load.response_time.quantile(q)?.get() as f64)))
            .collect()
    };
    let mut curves: Vec<Curve> = SWEPT_QUANTILES
        .iter()
        .map(|&q| Curve::new(figures::quantile_name(q), of(q)).marked())
        .collect();
    if let Some(found) = &generator.found {
        let shown = || curves.iter().flat_map(|curve| &curve.points);
        let limit = found.objective.limit_ns.get() as f64;
        let least = shown().map(|p| p.1).fold(limit, f64::min);
        let greatest = shown().map(|p| p.1).fold(limit, f64::max);
        let (first, last) = (steps.first().map(|s| x(s)), steps.last().map(|s| x(s)));
        let mut rules = Vec::new();
        if let (Some(first), Some(last)) = (first, last) {
            rules.push((
                format!(
                    "{} at most {}",
                    figures::quantile_name(found.objective.q),
                    found.objective.limit_ns
                ),
                vec![(first, limit), (last, limit)],
            ));
        }
        let at_rate = |rate: f64| {
            let step = steps.iter().find(|s| s.load.target_rate_per_s == rate)?;
            Some(x(step))
        };
        if let Some(breaks) = found.fails_at_per_s.and_then(at_rate) {
            rules.push((
                "the objective is missed".to_owned(),
                vec![(breaks, least), (breaks, greatest)],
            ));
        }
        curves.extend((rules.into_iter()).map(|(label, points)| Curve::new(label, points)));
    }
    Chart {
        title: "Response time against load".to_owned(),
        subtitle: format!(
            "{}{}",
            report.target,
            doubt(report.verdict.valid, report.partial)
        ),
        x: x_axis,
        y: Axis::Latency,
        curves,
        rule: None,
    }
}

/// What a figure says about an invalid or partial result.
const fn doubt(valid: bool, partial: bool) -> &'static str {
    match (valid, partial) {
        (true, false) => "",
        (true, true) => "; partial",
        (false, false) => "; INVALID",
        (false, true) => "; INVALID, partial",
    }
}
