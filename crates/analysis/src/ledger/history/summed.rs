//! Lengths by label, in the order in which labels first come.

use crate::id_map::grow_to;
use crate::ledger::label::Label;

/// The length of a label in some runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) label: Label,
    first: u32,
    pub(super) ns: u64,
}

impl Sum {
    /// The first run with this label.
    pub(super) const fn first(&self) -> usize {
        self.first as usize
    }
}

/// Sums in the order of their first runs.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSums {
    sums: Vec<Sum>,
    /// By label: its place in the list plus one, or zero.
    places: Vec<u32>,
}

impl RunSums {
    pub(super) fn sums(&self) -> &[Sum] {
        &self.sums
    }

    pub(super) fn clear(&mut self) {
        for sum in self.sums.drain(..) {
            self.places[sum.label as usize] = 0;
        }
    }

    /// Adds a length. For a new label, `first` must be greater than that of every other label.
    pub(super) fn add(&mut self, label: Label, ns: u64, first: usize) {
        let place = grow_to(&mut self.places, label as usize);
        match place.checked_sub(1) {
            Some(place) => self.sums[place as usize].ns += ns,
            None => {
                let first = first as u32;
                self.sums.push(Sum { label, first, ns });
                *place = self.sums.len() as u32;
            }
        }
    }
}
