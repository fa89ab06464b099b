//! Latency over time, in a bounded number of cells.

use taillab_model::explanation::HeatMap;
use taillab_model::{Monotonic, Nanos};

/// Columns at most.
const COLUMNS: u64 = 160;

/// Rows at most.
const ROWS: u32 = 28;

/// A heat map while requests come.
#[derive(Clone, Debug)]
pub struct HeatCells {
    from: Monotonic,
    map: HeatMap,
}

impl HeatCells {
    /// Of requests that come in between `from` and `to` (T1), with sojourns between `fastest`
    /// and `slowest`. The rows' edges are in equal steps of the logarithm.
    pub fn new((from, to): (Monotonic, Monotonic), (fastest, slowest): (Nanos, Nanos)) -> Self {
        let length = to.saturating_since(from).get();
        let column_ns = (length / COLUMNS + 1).next_multiple_of(1_000);
        let columns = length / column_ns + 1;
        let row_edges_ns = row_edges(fastest.get().max(1), slowest.get().max(1));
        Self {
            from,
            map: HeatMap {
                column_ns: Nanos::new(column_ns),
                counts: vec![vec![0_u64; row_edges_ns.len()]; columns as usize],
                row_edges_ns,
            },
        }
    }

    /// Counts a request.
    pub fn add(&mut self, t1: Monotonic, sojourn: Nanos) {
        let since = t1.saturating_since(self.from).get();
        let edges = &self.map.row_edges_ns;
        let row = edges.partition_point(|&edge| edge <= sojourn).max(1) - 1;
        let column = (since / self.map.column_ns.get()) as usize;
        if let Some(column) = self.map.counts.get_mut(column) {
            column[row] += 1;
        }
    }

    /// All of them.
    pub fn finish(self) -> HeatMap {
        self.map
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
