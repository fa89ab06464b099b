//! Spells: times in which much more time than usual is taken from CPUs.

use taillab_model::explanation::{HypervisorSpell, TakenByHypervisor};
use taillab_model::{Monotonic, Nanos};

use crate::coarsening::{Coarsen, Coarsening};
use crate::timeline::Timeline;

/// Runs of windows that each lost more than three times the median, and more than 1 % of the time. For
/// each run: the first window, the last, and the share of time lost; `width_ns` is the CPU time in a window.
pub(crate) fn spells(lost_ns: &[Nanos], width_ns: u64) -> Vec<(u32, u32, f64)> {
    const SPELL: u64 = 3;
    let mut sorted = lost_ns.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let least = (median * SPELL).max(Nanos::new(width_ns / 100));
    let mut spells: Vec<(u32, u32, f64)> = Vec::new();
    for (place, lost) in lost_ns.iter().enumerate() {
        if *lost <= least {
            continue;
        }
        let place = place as u32;
        match spells.last_mut() {
            Some((_, last, _)) if *last + 1 == place => *last = place,
            _ => spells.push((place, place, 0.0)),
        }
    }
    for (first, last, share) in &mut spells {
        let windows = &lost_ns[*first as usize..=*last as usize];
        let lost: Nanos = windows.iter().copied().sum();
        *share = lost.get() as f64 / (windows.len() as u64 * width_ns) as f64;
    }
    spells
}

/// The initial length of a window; windows get longer in a long recording.
const WINDOW: Nanos = Nanos::from_millis(500);

/// The largest number of windows.
const WINDOWS: usize = 600;

/// The minimum number of stalls in a spell.
const STALLS_IN_A_SPELL: u64 = 3;

/// How many states of a worker, from the first on, are examined to find its CPUs.
const STATES: usize = 1_000;

/// Time that the hypervisor took from the server's CPUs, summed as the windows of a recording come.
pub(crate) struct TakenTime {
    measure_from: Monotonic,
    /// Time up to here has been summed.
    upto: Monotonic,
    /// The largest number of CPUs on which the server's threads ran in a window.
    cpus: u64,
    cells: Coarsening<Taken>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    time: Nanos,
    stalls: u64,
}

impl Coarsen for Taken {
    fn add(&mut self, next: Self) {
        self.time += next.time;
        self.stalls += next.stalls;
    }
}

impl TakenTime {
    pub(crate) fn new(measure_from: Monotonic) -> Self {
        Self {
            measure_from,
            upto: measure_from,
            cpus: 0,
            cells: Coarsening::new(WINDOW.get(), WINDOWS),
        }
    }

    /// Adds what the CPUs of the server's threads did until `upto`, or until the timeline ends.
    pub(crate) fn add(&mut self, timeline: &Timeline, upto: Monotonic) {
        let upto = upto.min(timeline.to());
        let mut cpus: Vec<u16> = (timeline.workers().iter())
            .flat_map(|worker| worker.spans().take(STATES))
            .filter_map(|span| span.state.cpu())
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        self.cpus = self.cpus.max(cpus.len() as u64);
        for stall in cpus
            .iter()
            .filter_map(|cpu| timeline.cpu(*cpu))
            .flat_map(|line| line.stalls())
        {
            self.took(stall.from, stall.to.min(upto));
        }
        self.upto = self.upto.max(upto);
    }

    /// Adds a stall. Its part before `self.upto` has already been added.
    fn took(&mut self, from: Monotonic, to: Monotonic) {
        let is_new = from.max(self.measure_from) >= self.upto;
        let since = |at: Monotonic| at.saturating_since(self.measure_from).get();
        let (mut from_ns, to_ns) = (since(from.max(self.upto)), since(to));
        let mut is_counted = !is_new;
        while from_ns < to_ns {
            let (cell, end_ns) = self.cells.cell(from_ns);
            let here_ns = to_ns.min(end_ns);
            cell.time += Nanos::new(here_ns - from_ns);
            cell.stalls += u64::from(!std::mem::replace(&mut is_counted, true));
            from_ns = here_ns;
        }
    }

    /// The result after the last window; `None` if nothing was taken.
    pub(crate) fn finish(mut self) -> Option<TakenByHypervisor> {
        let length_ns = self.upto.saturating_since(self.measure_from).get();
        // the windows after the last stall count too
        self.cells.cell(length_ns.saturating_sub(1));
        let width_ns = self.cells.width();
        let cells = self.cells.into_cells();
        let time: Nanos = cells.iter().map(|cell| cell.time).sum();
        let lost_ns: Vec<Nanos> = cells.iter().map(|cell| cell.time).collect();
        let of_cells = |first: u32, last: u32| &cells[first as usize..=last as usize];
        let spells = spells(&lost_ns, width_ns * self.cpus.max(1))
            .into_iter()
            .map(|(first, last, share)| HypervisorSpell {
                from_ns: Nanos::new(u64::from(first) * width_ns),
                length_ns: Nanos::new(u64::from(last - first + 1) * width_ns),
                stalls: of_cells(first, last).iter().map(|cell| cell.stalls).sum(),
                share,
            })
            .filter(|spell| spell.stalls >= STALLS_IN_A_SPELL);
        let all_ns = (length_ns * self.cpus).max(1);
        (time > Nanos::ZERO).then(|| TakenByHypervisor {
            share: (time.get() as f64 / all_ns as f64).min(1.0),
            stalls: cells.iter().map(|cell| cell.stalls).sum(),
            spells: spells.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ms * 1_000_000)
    }

    /// Ten seconds on one CPU, in two windows of the recording.
    fn taken(stalls: &[(u64, u64)]) -> Option<TakenByHypervisor> {
        let mut taken = TakenTime::new(at(1_000));
        taken.cpus = 1;
        for upto in [at(5_500), at(11_000)] {
            for &(from, to) in stalls {
                taken.took(at(from), at(to).min(upto));
            }
            taken.upto = upto;
        }
        taken.finish()
    }

    #[test]
    fn a_spell_has_a_beginning_an_end_and_a_share() {
        // 2 ms each 40 ms from 4 s to 7 s of the measurement, and one in its last second
        let mut stalls: Vec<(u64, u64)> =
            (0..75).map(|i| (5_000 + 40 * i, 5_002 + 40 * i)).collect();
        stalls.push((10_200, 10_203));
        let found = taken(&stalls).unwrap();
        assert_eq!(found.stalls, 76);
        assert!((found.share - 0.0153).abs() < 1e-4, "{found:?}");
        let [spell] = found.spells[..] else {
            panic!("{found:?}");
        };
        assert_eq!(spell.from_ns, Nanos::from_secs(4));
        assert_eq!(spell.length_ns, Nanos::from_secs(3));
        assert_eq!(spell.stalls, 75);
        assert!((spell.share - 0.05).abs() < 1e-3, "{spell:?}");
    }

    #[test]
    fn a_stall_in_two_windows_is_counted_once() {
        let found = taken(&[(5_000, 6_000)]).unwrap();
        assert_eq!((found.stalls, found.share), (1, 0.1));
        assert_eq!(found.spells, []);
    }

    #[test]
    fn what_was_before_the_measurement_is_not_counted() {
        assert_eq!(taken(&[(200, 900)]), None);
        let half = taken(&[(500, 1_500)]).unwrap();
        assert_eq!((half.stalls, half.share), (1, 0.05));
        assert_eq!(taken(&[]), None);
    }
}
