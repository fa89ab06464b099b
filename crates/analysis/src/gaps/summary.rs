//! The account of one CPU's gaps, in bounded memory.

use std::collections::BTreeMap;

use taillab_model::noise::OverTime;
use taillab_model::{Histogram, Monotonic, Nanos};

use super::cause::GapCause;
use super::gap::Gap;
use crate::coarsening::{Coarsen, Coarsening};
use crate::spells::spells;

/// The number of longest gaps that are kept with their parts.
const LONGEST: usize = 20;
/// With more causes than this, the threads that took the least time count as one. (The number of other
/// causes is limited by the interrupts and CPUs of the machine.)
const MOST_CAUSES: usize = 256;
/// So many threads keep their names in any case: where there are many CPUs, the other causes alone may be
/// more than [`MOST_CAUSES`].
const NAMED_THREADS: usize = 64;
/// The largest number of windows of the account over time.
const WINDOWS: usize = 600;

/// The time that was charged to one cause.
#[derive(Clone, Debug, Default)]
pub struct CauseSum {
    /// The lengths of the gaps of which it took the largest part.
    pub gaps: Histogram,
    /// What it took of all gaps together.
    pub stolen: Nanos,
}

/// A long gap with its causes, the largest part first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongestGap {
    /// The gap.
    pub gap: Gap,
    /// How much each cause took of it.
    pub parts: Vec<(GapCause, Nanos)>,
}

/// The account of one CPU.
#[derive(Clone, Debug)]
pub struct CpuSum {
    /// The sums of each cause.
    pub causes: BTreeMap<GapCause, CauseSum>,
    /// The longest gaps, in no particular order.
    pub longest: Vec<LongestGap>,
    /// All time in gaps.
    pub stolen: Nanos,
    over_time: Coarsening<Stolen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stolen(Nanos);

impl Coarsen for Stolen {
    fn add(&mut self, next: Self) {
        self.0 += next.0;
    }
}

impl CpuSum {
    pub(super) fn new(window: Nanos) -> Self {
        Self {
            causes: BTreeMap::new(),
            longest: Vec::new(),
            stolen: Nanos::ZERO,
            over_time: Coarsening::new(window.get(), WINDOWS),
        }
    }

    pub(super) fn add(&mut self, gap: Gap, parts: &BTreeMap<GapCause, Nanos>, began: Monotonic) {
        let length = gap.length();
        self.stolen += length;
        // a gap may overlap several windows
        let end = gap.to.saturating_since(began).get();
        let mut at = end.saturating_sub(length.get());
        while at < end {
            let (window, next) = self.over_time.cell(at);
            let upto = next.min(end);
            window.0 += Nanos::new(upto - at);
            at = upto;
        }
        let most = parts.iter().max_by_key(|(_, part)| **part);
        let main = most.map(|(cause, _)| *cause);
        let known = self.causes.len();
        for (&cause, &part) in parts {
            let sum = self.causes.entry(cause).or_default();
            sum.stolen += part;
            if main == Some(cause) {
                sum.gaps.record(length);
            }
        }
        // only when a cause was added: those that are no threads may be more on their own
        if self.causes.len() > known.max(MOST_CAUSES) {
            self.fold_threads();
        }
        self.keep(gap, parts);
    }

    /// Counts the half of the threads that took the least time as one, if they are many. A thread that appears
    /// later and takes much keeps its name.
    fn fold_threads(&mut self) {
        let mut threads: Vec<(Nanos, GapCause)> = (self.causes.iter())
            .filter(|(cause, _)| matches!(cause, GapCause::Thread(_)))
            .map(|(cause, sum)| (sum.stolen, *cause))
            .collect();
        if threads.len() < 2 * NAMED_THREADS {
            return;
        }
        threads.sort_unstable();
        let mut folded = self
            .causes
            .remove(&GapCause::MoreThreads)
            .unwrap_or_default();
        for (_, cause) in &threads[..threads.len() / 2] {
            let Some(sum) = self.causes.remove(cause) else {
                continue;
            };
            folded.stolen += sum.stolen;
            folded.gaps.merge(&sum.gaps);
        }
        self.causes.insert(GapCause::MoreThreads, folded);
    }

    fn keep(&mut self, gap: Gap, parts: &BTreeMap<GapCause, Nanos>) {
        let shortest = (self.longest.iter().enumerate())
            .min_by_key(|(_, kept)| kept.gap.length())
            .map(|(place, kept)| (place, kept.gap.length()));
        match shortest {
            Some((_, length)) if self.longest.len() >= LONGEST && gap.length() <= length => return,
            Some((place, _)) if self.longest.len() >= LONGEST => {
                self.longest.swap_remove(place);
            }
            _ => {}
        }
        let mut parts: Vec<(GapCause, Nanos)> = parts.iter().map(|(c, n)| (*c, *n)).collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
        self.longest.push(LongestGap { gap, parts });
    }

    /// Stolen time over time, and the [`spells`] in it.
    pub fn over_time(&self) -> OverTime {
        let width = self.over_time.width();
        let stolen_ns: Vec<Nanos> = self.over_time.cells().iter().map(|cell| cell.0).collect();
        let spells = spells(&stolen_ns, width);
        OverTime {
            window_ns: Nanos::new(width),
            stolen_ns,
            spells,
        }
    }
}
