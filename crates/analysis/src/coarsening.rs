//! Sums over equal cells of a growing axis (time, or observations), in bounded memory.
//!
//! When there would be too many cells, neighbours are joined in pairs. So the number of cells stays
//! between half of the limit and the limit, and the length need not be known beforehand.

use crate::id_map::grow_to;

/// The contents of a cell.
pub(crate) trait Coarsen: Default {
    /// Adds the contents of the next cell.
    fn add(&mut self, next: Self);
}

/// Equal cells that begin at 0.
#[derive(Clone, Debug)]
pub(crate) struct Coarsening<T> {
    cells: Vec<T>,
    width: u64,
    most: u64,
}

impl<T: Coarsen> Coarsening<T> {
    /// At most `most` cells, each `width` wide at first.
    pub(crate) fn new(width: u64, most: usize) -> Self {
        Self {
            cells: Vec::new(),
            width: width.max(1),
            most: most.max(2) as u64,
        }
    }

    /// How wide a cell is now.
    pub(crate) const fn width(&self) -> u64 {
        self.width
    }

    /// The cells up to the last one used.
    pub(crate) fn cells(&self) -> &[T] {
        &self.cells
    }

    /// All cells.
    pub(crate) fn into_cells(self) -> Vec<T> {
        self.cells
    }

    /// The cell that contains `at`, and where the next one begins.
    #[inline]
    pub(crate) fn cell(&mut self, at: u64) -> (&mut T, u64) {
        let mut place = at / self.width;
        while place >= self.most {
            self.coarsen();
            place = at / self.width;
        }
        let end = (place + 1).saturating_mul(self.width);
        (grow_to(&mut self.cells, place as usize), end)
    }

    fn coarsen(&mut self) {
        let mut cells = std::mem::take(&mut self.cells).into_iter();
        while let Some(mut cell) = cells.next() {
            if let Some(next) = cells.next() {
                cell.add(next);
            }
            self.cells.push(cell);
        }
        self.width = self.width.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Coarsen for Vec<u64> {
        fn add(&mut self, next: Self) {
            self.extend(next);
        }
    }

    proptest! {
        /// However often cells were joined, each holds exactly what lies in it.
        #[test]
        fn cells_hold_what_lies_in_them(
            places in prop::collection::vec(0_u64..100_000, 1..200),
            width in 1_u64..50,
            most in 2_usize..40,
        ) {
            let mut coarsening: Coarsening<Vec<u64>> = Coarsening::new(width, most);
            for &at in &places {
                let (cell, end) = coarsening.cell(at);
                cell.push(at);
                prop_assert!(at < end);
            }
            let width = coarsening.width();
            let cells = coarsening.into_cells();
            prop_assert!(cells.len() <= most);
            let found: usize = cells.iter().map(Vec::len).sum();
            prop_assert_eq!(found, places.len());
            for (place, cell) in cells.iter().enumerate() {
                prop_assert!(cell.iter().all(|at| at / width == place as u64));
            }
            let greatest = places.iter().max().copied().unwrap_or(0);
            prop_assert_eq!(cells.len() as u64, greatest / width + 1);
        }
    }
}
