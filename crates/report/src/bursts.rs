//! Figures of slow requests over time: the heat map, and how they follow each other.

use taillab_model::explanation::{Clustering, HeatMap};

use crate::chart::{Axis, Chart, Curve, Look};
use crate::figures::{count, quantile_name, round_length};

/// The maximum number of columns drawn; beyond it neighbours are joined, so that the page stays small.
const COLUMNS: usize = 240;
/// CSS classes of the shades, lightest first.
const SHADES: [&str; 8] = [
    "heat-1", "heat-2", "heat-3", "heat-4", "heat-5", "heat-6", "heat-7", "heat-8",
];

/// The number of requests by arrival time and latency: one curve for each shade; `None` without
/// requests.
pub(crate) fn heat_map(map: &HeatMap) -> Option<Chart> {
    let (joined, cells) = joined_cells(map);
    let most = cells.iter().flatten().copied().max().filter(|&n| n > 0)?;
    let mut corners = vec![Vec::new(); SHADES.len()];
    let width_ns = map.column_ns.get() as f64 * joined as f64;
    let edges = row_edges(map);
    for (column, counts) in cells.iter().enumerate() {
        let left_ns = width_ns * column as f64;
        let mut row = 0;
        for same in counts.chunk_by(|a, b| shade(*a, most) == shade(*b, most)) {
            let (bottom, top) = (edges[row], edges[row + same.len()]);
            row += same.len();
            if let Some(shade) = shade(same[0], most) {
                corners[shade].extend([(left_ns, bottom), (left_ns + width_ns, top)]);
            }
        }
    }
    let curves = corners.into_iter().enumerate().map(|(shade, corners)| {
        let darkest = ((shade + 1) as f64 / SHADES.len() as f64 * (most as f64).ln_1p()).exp_m1();
        Curve {
            look: Look::Cells,
            class: SHADES[shade],
            // the largest count of the shade; the factor makes up for rounding just below it
            ..Curve::new(count((darkest * (1.0 + 1e-12)) as u64), corners)
        }
    });
    Some(Chart {
        title: "Latency over time".to_owned(),
        subtitle: format!(
            "Requests by the time of their arrival and their sojourn; each column is {}. The \
             darker a cell, the more requests, up to the number in the legend.",
            round_length(width_ns)
        ),
        x: Axis::Elapsed,
        y: Axis::Latency,
        curves: curves.collect(),
        rule: None,
    })
}

/// How many columns of the map are joined in a drawn one, and the number of requests in each cell: a
/// list of rows for each drawn column.
fn joined_cells(map: &HeatMap) -> (usize, Vec<Vec<u64>>) {
    let joined = map.counts.len().div_ceil(COLUMNS).max(1);
    let rows = 0..map.row_edges_ns.len();
    let sum = |columns: &[Vec<u64>]| {
        let of_row = |row| columns.iter().filter_map(|c| c.get(row)).sum();
        rows.clone().map(of_row).collect()
    };
    (joined, map.counts.chunks(joined).map(sum).collect())
}

/// The index in [`SHADES`], on a logarithmic scale of counts; `None` for an empty cell.
fn shade(requests: u64, most: u64) -> Option<usize> {
    let at = (requests as f64).ln_1p() / (most as f64).ln_1p();
    let step = (at * SHADES.len() as f64).ceil() as usize;
    (requests > 0).then(|| step.clamp(1, SHADES.len()) - 1)
}

/// The edges of the rows in nanoseconds, one more than rows. The last row has no upper edge and is
/// drawn as high as the one before it; a first row that begins at zero is drawn from half its end.
fn row_edges(map: &HeatMap) -> Vec<f64> {
    let edge = |ns: &taillab_model::Nanos| ns.get() as f64;
    let mut edges: Vec<f64> = map.row_edges_ns.iter().map(edge).collect();
    if let [first, second, ..] = edges.as_mut_slice() {
        *first = first.max(*second / 2.0);
    }
    let step = match edges.as_slice() {
        [.., before, last] => last / before,
        _ => 2.0,
    };
    edges.extend(edges.last().map(|last| last * step));
    edges
}

/// The correlation between a request being slow and the n-th one before it being slow; `None` where
/// the sample is too small for any distance.
pub(crate) fn autocorrelation(clustering: &Clustering) -> Option<Chart> {
    let points = clustering.autocorrelation.iter();
    let points: Vec<(f64, f64)> = points.map(|&(lag, r)| (f64::from(lag), r)).collect();
    let slow = quantile_name(clustering.q);
    (!points.is_empty()).then(|| Chart {
        title: "Do slow requests follow each other?".to_owned(),
        subtitle: format!(
            "Correlation between a slow request (above {slow}) and the requests after it: 1 if \
             all of those are slow too, 0 if they are slow no more often than others."
        ),
        x: Axis::Lag,
        y: Axis::Correlation,
        curves: vec![Curve {
            look: Look::Bars,
            class: "measured",
            ..Curve::new(format!("above {slow}"), points)
        }],
        rule: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Nanos;

    #[test]
    fn columns_are_joined_and_no_request_is_lost() {
        let map = HeatMap {
            column_ns: Nanos::from_millis(10),
            row_edges_ns: vec![Nanos::ZERO, Nanos::from_millis(1)],
            counts: (0..1_000).map(|i| vec![10, i % 2]).collect(),
        };
        let (joined, cells) = joined_cells(&map);
        assert!(cells.len() <= COLUMNS);
        assert_eq!(cells.iter().flatten().sum::<u64>(), 10_000 + 500);
        let chart = heat_map(&map).unwrap();
        let corners: usize = chart.curves.iter().map(|c| c.points.len()).sum();
        assert_eq!(corners, 2 * 2 * cells.len());
        let ends = chart.curves.iter().flat_map(|curve| &curve.points);
        let last_ns = ends.map(|point| point.0).fold(0.0, f64::max);
        assert_eq!(last_ns, 10e6 * (joined * cells.len()) as f64);
        assert_eq!(
            (shade(0, 50), shade(1, 1), shade(50, 50)),
            (None, Some(7), Some(7))
        );
        assert!(heat_map(&HeatMap::default()).is_none());
    }

    #[test]
    fn the_legend_has_the_largest_count_of_each_shade_in_use() {
        let map = HeatMap {
            column_ns: Nanos::from_millis(10),
            row_edges_ns: vec![Nanos::ZERO],
            counts: (0..=5).map(|requests| vec![requests]).collect(),
        };
        let chart = heat_map(&map).unwrap();
        let labels: Vec<&str> = chart.drawn().map(|(_, curve)| &*curve.label).collect();
        assert_eq!(labels, ["1", "2", "3", "5"]);
    }

    #[test]
    fn where_there_is_little_room_the_time_keeps_more_than_one_label() {
        for columns in [200, 1_000, 1_700] {
            let map = HeatMap {
                column_ns: Nanos::from_millis(10),
                row_edges_ns: vec![Nanos::ZERO, Nanos::from_millis(1)],
                counts: vec![vec![10, 1]; columns],
            };
            let svg = String::from_utf8(heat_map(&map).unwrap().svg()).unwrap();
            let kept = svg.matches("class=\"x\"").count();
            assert!(
                (2..=4).contains(&kept),
                "{kept} labels of {columns} columns"
            );
        }
    }

    #[test]
    fn every_row_has_a_height_on_a_logarithmic_scale() {
        let map = |edges: &[u64]| HeatMap {
            column_ns: Nanos::from_millis(10),
            row_edges_ns: edges.iter().map(|ns| Nanos::new(*ns)).collect(),
            counts: Vec::new(),
        };
        assert_eq!(row_edges(&map(&[0, 100, 200])), [50.0, 100.0, 200.0, 400.0]);
        assert_eq!(row_edges(&map(&[100])), [100.0, 200.0]);
        assert_eq!(row_edges(&map(&[])), [0.0; 0]);
    }
}
