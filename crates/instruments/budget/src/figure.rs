//! The distributions: of the components, and of the round trips through networks.

use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES, not_drawn};

use crate::result::BudgetResult;

/// One curve for each component that was measured, in the order of the rows; several figures where
/// one would have too many curves.
pub(crate) fn components_charts(result: &BudgetResult) -> Vec<Chart> {
    let rows = result.rows.iter().filter(|row| !row.ccdf.is_empty());
    let curves: Vec<Curve> = rows.map(|row| curve(&row.component, &row.ccdf)).collect();
    let figures = curves.len().div_ceil(MOST_CURVES);
    if figures == 0 {
        return Vec::new();
    }
    let chart = |(place, curves): (usize, &[Curve])| Chart {
        title: match figures {
            1 => "Latency of each component".to_owned(),
            figures => format!("Latency of each component, {} of {figures}", place + 1),
        },
        subtitle: "each sample, to the longest".to_owned(),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: curves.to_vec(),
        rule: None,
    };
    let of_one = curves.len().div_ceil(figures);
    curves.chunks(of_one).enumerate().map(chart).collect()
}

/// One curve for each network, for the first [`MOST_CURVES`] of them.
pub(crate) fn networks_chart(result: &BudgetResult) -> Chart {
    let networks = result.topologies.iter();
    let left_out = not_drawn(networks.len(), "network", "networks");
    let curves = networks.map(|network| curve(&network.name, &network.ccdf));
    Chart {
        title: "Round trips through networks".to_owned(),
        subtitle: format!(
            "measured hosts; stated switches, NICs and fibre; no other traffic{left_out}"
        ),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: curves.take(MOST_CURVES).collect(),
        rule: None,
    }
}

fn curve(label: &str, points: &[(u64, f64)]) -> Curve {
    let drawable = points.iter().filter(|(ns, _)| *ns > 0);
    Curve::new(
        label,
        drawable.map(|&(ns, share)| (ns as f64, share)).collect(),
    )
}
