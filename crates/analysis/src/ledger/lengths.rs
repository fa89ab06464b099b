//! Lengths by label.

use std::ops::Deref;

use super::label::Label;

/// A length for each label that was met, in the order in which they were.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    list: Vec<(Label, u64)>,
    /// By label: its place in the list and one, or zero.
    places: Vec<u32>,
}

impl Lengths {
    /// Adds a length to a label's.
    #[inline]
    pub(super) fn add(&mut self, label: Label, ns: u64) {
        if ns == 0 {
            return;
        }
        match self.place(label) {
            Some(place) => self.list[place].1 += ns,
            None => self.begin(label, ns),
        }
    }

    fn begin(&mut self, label: Label, ns: u64) {
        self.list.push((label, ns));
        let label = label as usize;
        if label >= self.places.len() {
            self.places.resize(label + 1, 0);
        }
        self.places[label] = self.list.len() as u32;
    }

    /// Where a label stands.
    #[inline]
    pub(super) fn place(&self, label: Label) -> Option<usize> {
        let behind = *self.places.get(label as usize)?;
        (behind as usize).checked_sub(1)
    }

    /// The length of a label, if it has one.
    pub(super) fn of(&mut self, label: Label) -> Option<&mut u64> {
        let place = self.place(label)?;
        Some(&mut self.list[place].1)
    }

    /// The lengths, to be changed.
    pub(super) fn lengths_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.list.iter_mut().map(|part| &mut part.1)
    }

    /// Takes labels away; the sum of their lengths.
    pub(super) fn take(&mut self, labels: &[Label]) -> u64 {
        let parts = std::mem::take(&mut self.list);
        parts
            .iter()
            .for_each(|part| self.places[part.0 as usize] = 0);
        let (taken, kept): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| labels.contains(&part.0));
        kept.into_iter().for_each(|(label, ns)| self.add(label, ns));
        taken.iter().map(|part| part.1).sum()
    }

    /// Nothing was met.
    pub(super) fn clear(&mut self) {
        for (label, _) in self.list.drain(..) {
            self.places[label as usize] = 0;
        }
    }
}

impl Deref for Lengths {
    type Target = [(Label, u64)];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}
