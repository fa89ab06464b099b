//! What each burst of slow requests began with.
//!
//! A tail of 27 bursts is 27 events, however many requests they made slow. The share of the excess that one
//! cause has may be uncertain where a few bursts make all of it; what each burst began with is not. So bursts
//! are counted by their roots, and the interval is one over bursts.

use std::collections::{BTreeMap, HashMap, VecDeque};

use taillab_model::Nanos;
use taillab_model::explanation::{BurstRoot, Cause};
use taillab_model::interval::share_of_events;

use crate::ledger::{Entry, GroupKey, Label, Labels};

/// Bursts whose requests may still be in the server.
const OPEN: usize = 4_096;

/// A burst whose largest cause has less of its excess has no root.
const MOST: f64 = 0.5;

/// The largest number of roots that are listed.
const MAX_ROOTS: usize = 12;

/// A burst that has requests in the server.
#[derive(Clone, Debug, Default)]
struct Burst {
    number: u64,
    /// For each label, its excess in all of the burst's requests, and in the one with most of it.
    parts: Vec<(Label, u64, u64)>,
}

/// The bursts with one root.
#[derive(Clone, Copy, Debug)]
struct RootBursts {
    label: Label,
    bursts: u64,
    shortest_ns: u64,
    longest_ns: u64,
}

/// Counts bursts by their roots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roots {
    /// The slow requests that have no account yet, by place, with the numbers of their bursts.
    slow: HashMap<usize, u64>,
    open: VecDeque<Burst>,
    rooted: BTreeMap<(Cause, GroupKey), RootBursts>,
    bursts: u64,
}

impl Roots {
    /// The request at `place` belongs to this burst; bursts count from 1.
    pub(crate) fn is_slow(&mut self, place: usize, burst: u64) {
        self.slow.insert(place, burst);
    }

    /// Takes the account of a request.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, labels: &Labels) {
        let Some(number) = self.slow.remove(&entry.place) else {
            return;
        };
        let known = self.open.iter().rposition(|burst| burst.number == number);
        let place = known.unwrap_or_else(|| {
            if self.open.len() == OPEN
                && let Some(burst) = self.open.pop_front()
            {
                self.end(&burst, labels);
            }
            let parts = Vec::new();
            self.open.push_back(Burst { number, parts });
            self.open.len() - 1
        });
        let parts = &mut self.open[place].parts;
        for &(label, ns) in entry.excess {
            match parts.iter_mut().find(|part| part.0 == label) {
                Some((_, sum, most)) => {
                    *sum += ns;
                    *most = ns.max(*most);
                }
                None => parts.push((label, ns, ns)),
            }
        }
    }

    /// Counts a burst by the culprit with most of its excess.
    fn end(&mut self, burst: &Burst, labels: &Labels) {
        self.bursts += 1;
        let mut groups: BTreeMap<(Cause, GroupKey), (Label, u64, u64)> = BTreeMap::new();
        for &(label, sum, most) in &burst.parts {
            let group = groups.entry(labels.group(label)).or_insert((label, 0, 0));
            group.1 += sum;
            group.2 = group.2.max(most);
        }
        let all: u64 = groups.values().map(|group| group.1).sum();
        let largest = groups.into_iter().max_by_key(|(_, group)| group.1);
        let Some((key, (label, sum, most))) = largest else {
            return;
        };
        if (sum as f64) < MOST * all as f64 || sum == 0 {
            return;
        }
        let rooted = self.rooted.entry(key).or_insert(RootBursts {
            label,
            bursts: 0,
            shortest_ns: u64::MAX,
            longest_ns: 0,
        });
        rooted.bursts += 1;
        rooted.shortest_ns = rooted.shortest_ns.min(most);
        rooted.longest_ns = rooted.longest_ns.max(most);
    }

    /// The roots, the most frequent first, and the number of bursts.
    pub(crate) fn finish(mut self, labels: &Labels) -> (u64, Vec<BurstRoot>) {
        for burst in std::mem::take(&mut self.open) {
            self.end(&burst, labels);
        }
        let mut rooted: Vec<RootBursts> = self.rooted.into_values().collect();
        rooted.sort_by_key(|root| {
            (
                std::cmp::Reverse((root.bursts, root.longest_ns)),
                root.label,
            )
        });
        rooted.truncate(MAX_ROOTS);
        let bursts = self.bursts;
        let root = |root: RootBursts| BurstRoot {
            cause: labels.cause(root.label),
            culprit: labels.culprit_of_group(root.label),
            bursts: root.bursts,
            share: share_of_events(root.bursts, bursts),
            shortest_ns: Nanos::new(root.shortest_ns),
            longest_ns: Nanos::new(root.longest_ns),
        };
        (bursts, rooted.into_iter().map(root).collect())
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{Monotonic, RecordingContext, Stamps};

    use super::*;
    use crate::ledger::CulpritId;

    fn entry(place: usize, excess: &[(Label, u64)]) -> Entry<'_> {
        let at = Monotonic::from_nanos_since_boot(place as u64);
        Entry {
            place,
            stamps: Stamps::new(at, [None; 4], at),
            port: 0,
            command: None,
            worker: 9,
            asked: true,
            slice: None,
            left_late: false,
            carried_over: false,
            sojourn_ns: 0,
            ideal_ns: 0,
            own_queue_ideal_ns: 0,
            gain_ns: 0,
            own_ns: 0,
            own_slow_ns: 0,
            parts: &[],
            excess,
            overtaken_by: None,
            pieces: &[],
        }
    }

    /// Two bursts of a thread and one of a softirq; one has no root.
    #[test]
    fn bursts_are_counted_by_what_made_most_of_them() {
        let mut labels = Labels::new(&RecordingContext::default());
        let thread = labels.label(Cause::Background, CulpritId::Thread(7));
        let softirq = labels.label(Cause::Softirq, CulpritId::Softirq(9));
        let wakeup = labels.label(Cause::Wakeup, CulpritId::Nobody);
        let requests: [(u64, &[(Label, u64)]); 6] = [
            (1, &[(thread, 9_000), (wakeup, 100)]),
            (1, &[(thread, 4_000), (softirq, 5_000)]),
            (2, &[(softirq, 700)]),
            (3, &[(thread, 1_100)]),
            (4, &[(thread, 300), (softirq, 300), (wakeup, 300)]),
            (4, &[]),
        ];
        let mut roots = Roots::default();
        for (place, (burst, _)) in requests.iter().enumerate() {
            roots.is_slow(place, *burst);
        }
        for (place, (_, excess)) in requests.iter().enumerate() {
            roots.add(&entry(place, excess), &labels);
        }
        // a fast one
        roots.add(&entry(99, &[(wakeup, 10_000)]), &labels);
        let (bursts, found) = roots.finish(&labels);
        assert_eq!(bursts, 4);
        let found: Vec<_> = (found.iter())
            .map(|root| {
                (
                    root.cause,
                    root.bursts,
                    root.shortest_ns.get(),
                    root.longest_ns.get(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                (Cause::Background, 2, 1_100, 9_000),
                (Cause::Softirq, 1, 700, 700)
            ]
        );
    }

    /// 12 of 27 are 28 to 63 % of another measurement's; Wilson's interval by hand.
    #[test]
    fn the_interval_is_over_events() {
        let share = share_of_events(12, 27);
        let (lo, hi) = (share.lo.unwrap(), share.hi.unwrap());
        assert!(
            (0.275..0.285).contains(&lo) && (0.62..0.63).contains(&hi),
            "{share:?}"
        );
        assert!(share_of_events(0, 0).value == 0.0);
    }
}
