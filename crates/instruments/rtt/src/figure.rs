//! The figures of round trips.

use taillab_experiment::round_trips::label;
use taillab_model::Nanos;
use taillab_model::rtt::{RttCurves, RttRow};
use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES, not_drawn};
use taillab_report::figures;

use super::result::RttReport;

/// The distributions of the rows.
pub fn ccdf(report: &RttReport<'_>) -> Chart {
    let rows = report.result.rows.iter().zip(report.curves);
    let drawn = rows.filter(|(_, curves)| !curves.ccdf.is_empty());
    let left_out = not_drawn(drawn.clone().count(), "row", "rows");
    let partial = if report.result.partial {
        ", partial"
    } else {
        ""
    };
    let curve = |(row, curves): (&RttRow, &RttCurves)| {
        let points = curves.ccdf.iter();
        let points = points.map(|(rtt, share)| (rtt.get() as f64, *share));
        Curve::new(label(row), points.collect())
    };
    Chart {
        title: "Round trips".to_owned(),
        subtitle: format!("{}; {}{partial}{left_out}", report.way(), report.sample()),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: drawn.take(MOST_CURVES).map(curve).collect(),
        rule: None,
    }
}

/// The slowest and the median of each block of neighbouring round trips.
pub fn over_time(row: &RttRow, curves: &RttCurves) -> Chart {
    let blocks = curves.over_time.as_slice();
    let each = match blocks {
        [first, second, ..] => second.0 - first.0,
        _ => row.rtt.count,
    };
    let points = |of: fn(&(u64, Nanos, Nanos)) -> Nanos| {
        let point = |block: &_| {
            let &(first, ..): &(u64, Nanos, Nanos) = block;
            (first as f64, of(block).get() as f64)
        };
        blocks.iter().map(point).collect()
    };
    let of = figures::counted(each, "round trip", "round trips");
    Chart {
        title: format!("{}, over time", label(row)),
        subtitle: format!("the slowest and the median of each {of}, run after run"),
        x: Axis::Number,
        y: Axis::Latency,
        curves: vec![
            Curve::new("slowest", points(|block| block.2)),
            Curve::new("median", points(|block| block.1)),
        ],
        rule: None,
    }
}

/// The slowest round trip and its neighbours: a single event, or one of many? As Figure 12 of
/// *Deconstructing the Tail at Scale Effect*.
pub fn around_slowest(row: &RttRow, curves: &RttCurves) -> Chart {
    let points = curves.around_slowest.iter();
    let points = points.map(|(number, rtt)| (*number as f64, rtt.get() as f64));
    Chart {
        title: format!("{}, around the slowest", label(row)),
        subtitle: "each round trip, by its number within its run".to_owned(),
        x: Axis::Number,
        y: Axis::Latency,
        curves: vec![Curve::new("round trip", points.collect())],
        rule: None,
    }
}
