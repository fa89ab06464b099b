//! Latency over time, in a bounded number of cells.

use taillab_model::explanation::HeatMap;
use taillab_model::histogram::{cell, cell_of};
use taillab_model::{Monotonic, Nanos};

use crate::coarsening::Coarsening;
use crate::statistics::Bins;

/// The largest number of columns.
const COLUMNS: usize = 160;

/// The largest number of rows.
const ROWS: u32 = 28;

/// log2 of the number of bins for each doubling; rows consist of bins. A bin is 1.6 to 3.1 % wide.
const BITS: u32 = 5;

/// Collects a heat map while requests come.
#[derive(Clone, Debug)]
pub struct HeatCells {
    from: Option<Monotonic>,
    /// Requests by the bins of their sojourns.
    columns: Coarsening<Bins>,
}

impl Default for HeatCells {
    fn default() -> Self {
        Self {
            from: None,
            columns: Coarsening::new(1_000, COLUMNS),
        }
    }
}

impl HeatCells {
    /// Counts a request; they come in order of T1.
    pub fn add(&mut self, t1: Monotonic, sojourn: Nanos) {
        let from = *self.from.get_or_insert(t1);
        let (column, _) = self.columns.cell(t1.saturating_since(from).get());
        column.count(cell(sojourn.get(), BITS));
    }

    /// The finished map. The edges of the rows are edges of bins, in about equal steps of the logarithm.
    pub fn finish(self) -> HeatMap {
        let columns = self.columns.cells();
        let counted = columns.iter().filter(|column| column.end() > 0);
        let bounds = counted.map(|column| (column.first(), column.end() - 1));
        let bounds = bounds.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let edges = bounds.map_or_else(Vec::new, |(first, last)| row_edges(first, last));
        let row_of = |bin: usize| edges.partition_point(|edge| *edge <= bin) - 1;
        let counts = columns.iter().map(|column| {
            let mut rows = vec![0; edges.len()];
            let bins = (column.first()..).zip(column.counts());
            bins.for_each(|(bin, count)| rows[row_of(bin)] += u64::from(*count));
            rows
        });
        HeatMap {
            column_ns: Nanos::new(self.columns.width()),
            counts: counts.collect(),
            row_edges_ns: edges
                .iter()
                .map(|edge| Nanos::new(cell_of(*edge, BITS).0))
                .collect(),
        }
    }
}

/// The bins at which rows begin, from `first` up to at most `last`; each is about the same factor
/// above the previous one.
fn row_edges(first: usize, last: usize) -> Vec<usize> {
    let lower = |bin: usize| cell_of(bin, BITS).0.max(1);
    let (fastest, slowest) = (lower(first), lower(last));
    let range = (slowest as f64 / fastest as f64).ln();
    // no finer than a tenth of a decade
    let rows = (range / (10_f64.ln() / 10.0)).ceil().max(1.0);
    let rows = (rows as u32).min(ROWS);
    let step = range / f64::from(rows);
    let mut edges: Vec<usize> = (0..rows)
        .map(|row| (fastest as f64 * (step * f64::from(row)).exp()) as u64)
        .map(|edge| cell(edge, BITS).max(first))
        .collect();
    edges[0] = first;
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(requests: &[(u64, u64)]) -> HeatMap {
        let mut cells = HeatCells::default();
        for &(t1_ns, sojourn_ns) in requests {
            cells.add(
                Monotonic::from_nanos_since_boot(t1_ns),
                Nanos::new(sojourn_ns),
            );
        }
        cells.finish()
    }

    #[test]
    fn rows_rise_and_begin_with_the_fastest() {
        for (fastest, slowest) in [(0, 0), (1, 1), (5_000, 5_000), (900, 3_000_000_000)] {
            let map = map(&[(7, slowest), (8, fastest)]);
            let edges = &map.row_edges_ns;
            assert!(edges[0].get() <= fastest);
            assert!(edges.is_sorted() && edges.len() <= ROWS as usize);
        }
    }

    #[test]
    fn every_request_is_counted_where_it_lies() {
        let requests: Vec<(u64, u64)> = (0..10_000_u64)
            .map(|i| (5_000 + i * 77_000, 1_000 + i * i % 900_000))
            .collect();
        let map = map(&requests);
        let columns = map.counts.len();
        assert!((COLUMNS / 2..=COLUMNS).contains(&columns), "{columns}");
        let mut truth = vec![vec![0; map.row_edges_ns.len()]; columns];
        for &(t1_ns, sojourn_ns) in &requests {
            let column = (t1_ns - 5_000) / map.column_ns.get();
            let mut row = map.row_edges_ns.iter();
            let row = row.rposition(|edge| edge.get() <= sojourn_ns).unwrap();
            truth[column as usize][row] += 1;
        }
        assert_eq!(map.counts, truth);
    }
}
