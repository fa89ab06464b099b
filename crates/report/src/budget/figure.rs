//! The distributions: of the components, and of the round trips through networks.

use taillab_model::budget::BudgetResult;

use crate::chart::{Axis, Chart, Curve};

/// Curves in one figure; more of them could not be distinguished.
const MOST_CURVES: usize = 8;

/// Each component that was measured.
pub fn components_chart(result: &BudgetResult) -> Chart {
    let rows = result.rows.iter().filter(|row| !row.ccdf.is_empty());
    let curves = rows.map(|row| curve(&row.component, &row.ccdf));
    Chart {
        title: "Latency of each component".to_owned(),
        subtitle: "each sample, to the longest".to_owned(),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: curves.take(MOST_CURVES).collect(),
        rule: None,
    }
}

/// Each network.
pub fn networks_chart(result: &BudgetResult) -> Chart {
    let networks = result.topologies.iter();
    let curves = networks.map(|network| curve(&network.name, &network.ccdf));
    Chart {
        title: "Round trips through networks".to_owned(),
        subtitle: "measured hosts; stated switches, NICs and fibre; no other traffic".to_owned(),
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
