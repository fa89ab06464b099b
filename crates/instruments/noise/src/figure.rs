//! The figure: how long the time between two reads was.

use taillab_model::noise::NoiseRow;
use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES};

use super::texts::name;
use super::worst::{phases, worst};
use crate::result::NoiseResult;

/// The distribution of the time between two reads, a curve for each row.
pub(crate) fn chart(result: &NoiseResult) -> Chart {
    let (rows, all) = (drawn(&result.rows), result.rows.len());
    Chart {
        title: "Time between two reads of the clock".to_owned(),
        subtitle: match rows.len() {
            drawn if drawn < all => {
                format!("each read, to the longest gap; the worst {drawn} of {all} loops")
            }
            _ => "each read, to the longest gap".to_owned(),
        },
        x: Axis::Latency,
        y: Axis::Slower,
        curves: (rows.into_iter())
            .map(|row| {
                let points = row.ccdf.iter().map(|&(ns, share)| (ns as f64, share));
                Curve::new(name(row), points.filter(|(ns, _)| *ns > 0.0).collect())
            })
            .collect(),
        rule: None,
    }
}

/// The rows that are drawn: all, or equally many of each phase.
fn drawn(rows: &[NoiseRow]) -> Vec<&NoiseRow> {
    let of_each = match rows.len() {
        ..=MOST_CURVES => MOST_CURVES,
        _ => (MOST_CURVES / phases(rows).count()).max(1),
    };
    let mut drawn = worst(rows, of_each);
    drawn.truncate(MOST_CURVES);
    drawn
}
