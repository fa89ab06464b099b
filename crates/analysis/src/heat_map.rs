//! Latency over time, in a bounded number of cells.

use taillab_model::Nanos;
use taillab_model::explanation::HeatMap;

use crate::matched::Matched;

/// Columns at most.
const COLUMNS: u64 = 160;

/// Rows at most.
const ROWS: u32 = 28;

/// Counts the requests at `places` (in order of T1) in cells of time (by T1) and sojourn.
///
/// The rows' edges are in equal steps of the logarithm, from the fastest to the slowest.
pub fn heat_map(matched: &Matched, places: &[u32], fastest: Nanos, slowest: Nanos) -> HeatMap {
    let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
        return HeatMap::default();
    };
    let requests = &matched.requests;
    let from = requests.t1(first as usize);
    let length = requests.t1(last as usize).saturating_since(from).get();
    let column_ns = (length / COLUMNS + 1).next_multiple_of(1_000);
    let columns = length / column_ns + 1;
    let edges = row_edges(fastest.get().max(1), slowest.get().max(1));
    let mut counts = vec![vec![0_u64; edges.len()]; columns as usize];
    for &place in places {
        let since = requests.t1(place as usize).saturating_since(from).get();
        let sojourn = requests.sojourn(place as usize);
        let row = edges.partition_point(|&edge| edge <= sojourn).max(1) - 1;
        counts[(since / column_ns) as usize][row] += 1;
    }
    HeatMap {
        column_ns: Nanos::new(column_ns),
        row_edges_ns: edges,
        counts,
    }
}

/// Lower edges from at most `fastest` up to at most `slowest`, each the same factor above
/// the last.
fn row_edges(fastest: u64, slowest: u64) -> Vec<Nanos> {
    let range = (slowest as f64 / fastest as f64).ln();
    // no finer than a tenth of a decade
    let rows = (range / (10_f64.ln() / 10.0)).ceil().max(1.0);
    let rows = (rows as u32).min(ROWS);
    let step = range / f64::from(rows);
    let mut edges: Vec<Nanos> = (0..rows)
        .map(|row| (fastest as f64 * (step * f64::from(row)).exp()) as u64)
        .map(Nanos::new)
        .collect();
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_rise_and_begin_with_the_fastest() {
        for (fastest, slowest) in [(1, 1), (5_000, 5_000), (900, 3_000_000_000)] {
            let edges = row_edges(fastest, slowest);
            assert!(edges[0].get() <= fastest);
            assert!(edges.is_sorted() && edges.len() <= ROWS as usize);
        }
    }
}
