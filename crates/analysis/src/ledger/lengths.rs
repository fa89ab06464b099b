//! Lengths by label, and the excess among them.

use std::ops::Deref;

use super::label::Label;
use crate::id_map::grow_to;

/// A length for each label, in the order in which the labels were first met.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    list: Vec<(Label, u64)>,
    /// By label: its place in the list plus one, or zero.
    places: Vec<u32>,
}

impl Lengths {
    /// Adds `ns` to the length of `label`; 0 adds nothing.
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
        *grow_to(&mut self.places, label as usize) = self.list.len() as u32;
    }

    /// The place of a label in the list.
    #[inline]
    fn place(&self, label: Label) -> Option<usize> {
        let behind = *self.places.get(label as usize)?;
        (behind as usize).checked_sub(1)
    }

    /// The length of a label, if it has one.
    pub(super) fn get_mut(&mut self, label: Label) -> Option<&mut u64> {
        let place = self.place(label)?;
        Some(&mut self.list[place].1)
    }

    /// Makes the lengths, whose sum is `of`, sum to `to`, which is not more: in proportion, and exact in sum. Some
    /// may become 0.
    pub(super) fn scale(&mut self, to: u64, of: u64) {
        let (mut so_far, mut given) = (0, 0);
        for (_, length) in &mut self.list {
            so_far += *length;
            let until = scaled(so_far, to, of);
            *length = until - given;
            given = until;
        }
    }

    /// Distributes `more` nanoseconds over the lengths, in proportion; the sum is exact. There must be at
    /// least one length.
    pub(super) fn lengthen(&mut self, more: u64) {
        if more == 0 {
            return;
        }
        let sum: u64 = self.list.iter().map(|part| part.1).sum();
        let (mut so_far, mut given) = (0, 0);
        for (_, length) in &mut self.list {
            so_far += *length;
            let until = scaled(so_far, more, sum);
            *length += until - given;
            given = until;
        }
    }

    /// Removes labels; returns the sum of their lengths.
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

    /// Forgets all lengths; the memory is kept.
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

/// Subtracts the ideal sojourn from `parts`, which sum to the sojourn: see "Excess" in [`ledger`](super).
/// `work` are the labels that the ideal queue has as well, in the order in which it is subtracted from
/// them; `received` (receive softirqs within ρ: label and length) comes after them. What is left in
/// `excess` sums to max(0, sojourn − ideal).
pub(super) fn take_ideal(
    parts: &Lengths,
    received: (Label, u64),
    ideal_ns: u64,
    work: [Label; 4],
    excess: &mut Vec<(Label, u64)>,
) {
    excess.clear();
    if parts.iter().map(|part| part.1).sum::<u64>() <= ideal_ns {
        return;
    }
    excess.extend_from_slice(parts);
    let mut ideal = ideal_ns;
    let work = work.map(|label| (label, u64::MAX));
    for (label, most) in work.into_iter().chain([received]) {
        if let Some(place) = parts.place(label) {
            let part = &mut excess[place].1;
            let taken = most.min(*part).min(ideal);
            *part -= taken;
            ideal -= taken;
        }
    }
    excess.retain(|part| part.1 > 0);
    if ideal > 0 {
        shrink(excess, ideal);
    }
}

/// a · b ÷ c.
pub(super) fn scaled(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (u128::from(a) * u128::from(b) / u128::from(c)) as u64,
    }
}

/// Subtracts `off` from the parts in total, in proportion and exact in sum. Removes all parts if `off` is
/// not less than their sum.
fn shrink(parts: &mut Vec<(Label, u64)>, off: u64) {
    let total: u64 = parts.iter().map(|part| part.1).sum();
    if off >= total {
        parts.clear();
        return;
    }
    // rounds the share of all parts so far, so the sum is exact and no part becomes negative
    let (mut sum, mut kept) = (0, 0);
    for part in parts.iter_mut() {
        sum += part.1;
        let until = scaled(sum, total - off, total);
        part.1 = until - kept;
        kept = until;
    }
    parts.retain(|part| part.1 > 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_excess_is_exact_and_never_more_than_the_part(
            lengths in prop::collection::vec(0_u64..1_000_000, 21),
            ideal in 0_u64..10_000_000,
            received in 0_u64..1_000_000,
        ) {
            let mut parts = Lengths::default();
            for (label, &ns) in lengths.iter().enumerate() {
                parts.add(label as Label, ns);
            }
            let softirq = 20;
            let sojourn: u64 = lengths.iter().sum();
            let mut excess = Vec::new();
            take_ideal(&parts, (softirq, received), ideal, [3, 1, 0, 2], &mut excess);
            let sum: u64 = excess.iter().map(|part| part.1).sum();
            prop_assert_eq!(sum, sojourn.saturating_sub(ideal));
            for (label, ns) in &excess {
                let whole = parts.iter().find(|part| part.0 == *label).unwrap();
                prop_assert!(*ns <= whole.1);
            }
        }
    }

    #[test]
    fn a_disturbance_keeps_its_length_where_work_covers_the_ideal() {
        let [service, stack, queue, sending, thread] = [0, 1, 2, 3, 4];
        let mut parts = Lengths::default();
        for (label, ns) in [(stack, 9), (thread, 1_000), (service, 8)] {
            parts.add(label, ns);
        }
        let mut excess = Vec::new();
        let work = [service, sending, queue, stack];
        take_ideal(&parts, (u32::MAX, 0), 12, work, &mut excess);
        assert_eq!(excess, [(stack, 5), (thread, 1_000)]);
    }
}
