//! The figure: how long the time between two reads was.

use taillab_model::noise::NoiseResult;

use super::texts::name;
use crate::chart::{Axis, Chart, Curve, MOST_CURVES};

/// The distribution of the time between two reads, a curve for each row.
pub fn chart(result: &NoiseResult) -> Chart {
    Chart {
        title: "Time between two reads of the clock".to_owned(),
        subtitle: match result.rows.len() {
            ..=MOST_CURVES => "each read, to the longest gap".to_owned(),
            rows => {
                format!("each read, to the longest gap; the first {MOST_CURVES} of {rows} loops")
            }
        },
        x: Axis::Latency,
        y: Axis::Slower,
        curves: (result.rows.iter().take(MOST_CURVES))
            .map(|row| {
                let points = row.ccdf.iter().map(|&(ns, share)| (ns as f64, share));
                Curve::new(name(row), points.filter(|(ns, _)| *ns > 0.0).collect())
            })
            .collect(),
        rule: None,
    }
}
