//! From what a request was spent on to what of it is excess.

use taillab_model::explanation::Cause;

use super::label::{Label, Labels};

/// The causes that are work in the ideal queue as well, in the order in which the ideal
/// sojourn is taken off them.
const WORK: [Cause; 4] = [Cause::Service, Cause::StackTx, Cause::Queue, Cause::StackRx];

/// Adds a length to a label's.
pub(super) fn add(parts: &mut Vec<(Label, u64)>, label: Label, ns: u64) {
    if ns == 0 {
        return;
    }
    match parts.iter_mut().find(|part| part.0 == label) {
        Some(part) => part.1 += ns,
        None => parts.push((label, ns)),
    }
}

/// Takes the ideal sojourn off `parts`, which sum to the sojourn: see the module `ledger`,
/// "Excess". Of `received` (receive softirqs within ρ, its label and length) the ideal may
/// be taken too. What is left in `excess` sums to max(0, sojourn − ideal).
pub(super) fn take_ideal(
    parts: &[(Label, u64)],
    received: (Label, u64),
    ideal_ns: u64,
    labels: &Labels,
    excess: &mut Vec<(Label, u64)>,
) {
    excess.clear();
    excess.extend_from_slice(parts);
    let mut ideal = ideal_ns;
    for cause in WORK {
        for part in excess.iter_mut() {
            if labels.cause(part.0) == cause {
                let taken = part.1.min(ideal);
                part.1 -= taken;
                ideal -= taken;
            }
        }
    }
    if let Some(part) = excess.iter_mut().find(|part| part.0 == received.0) {
        let taken = part.1.min(received.1).min(ideal);
        part.1 -= taken;
        ideal -= taken;
    }
    excess.retain(|part| part.1 > 0);
    if ideal > 0 {
        shrink(excess, ideal);
    }
}

/// Takes `off` in all off the parts, in proportion, exactly; all of them if it is more.
fn shrink(parts: &mut Vec<(Label, u64)>, off: u64) {
    let total: u64 = parts.iter().map(|part| part.1).sum();
    if off >= total {
        parts.clear();
        return;
    }
    // the share of all parts so far, each rounded: neither the sum nor a sign can go wrong
    let (mut sum, mut kept) = (0, 0);
    for part in parts.iter_mut() {
        sum += part.1;
        let until = (u128::from(sum) * u128::from(total - off) / u128::from(total)) as u64;
        part.1 = until - kept;
        kept = until;
    }
    parts.retain(|part| part.1 > 0);
}

#[cfg(test)]
mod tests {
    use super::super::Who;
    use super::*;
    use proptest::prelude::*;
    use taillab_model::RecordingContext;

    proptest! {
        #[test]
        fn the_excess_is_exact_and_never_more_than_the_part(
            lengths in prop::collection::vec(0_u64..1_000_000, 21),
            ideal in 0_u64..10_000_000,
            received in 0_u64..1_000_000,
        ) {
            let mut labels = Labels::new(&RecordingContext::default());
            let mut parts = Vec::new();
            for (cause, &ns) in Cause::ALL.iter().zip(&lengths) {
                add(&mut parts, labels.label(*cause, Who::Nobody), ns);
            }
            let softirq = labels.label(Cause::Softirq, Who::Nobody);
            let sojourn: u64 = lengths.iter().sum();
            let mut excess = Vec::new();
            take_ideal(&parts, (softirq, received), ideal, &labels, &mut excess);
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
        let mut labels = Labels::new(&RecordingContext::default());
        let service = labels.label(Cause::Service, Who::Nobody);
        let stack = labels.label(Cause::StackRx, Who::Nobody);
        let thread = labels.label(Cause::Background, Who::Thread(7));
        let parts = [(stack, 9), (thread, 1_000), (service, 8)];
        let mut excess = Vec::new();
        take_ideal(&parts, (u32::MAX, 0), 12, &labels, &mut excess);
        assert_eq!(excess, [(stack, 5), (thread, 1_000)]);
    }
}
