//! How much CPU time the server spent on its work.

use std::collections::BTreeMap;

use taillab_model::{Monotonic, Nanos, Tid};

use super::busy::NET_RX;
use super::line::{Timeline, WorkerLine};
use super::state::Top;
use crate::matched::Matched;
use crate::spans::Span;

/// A thread that never sleeps, and has requests for a smaller share of its time than this, is polling.
const MOST_AT_WORK: f64 = 0.9;

/// The time of the server's threads on their CPUs, with nothing on top of them, and that of the
/// network's receive softirq there, which is a part of the work. On each CPU, at most twice the
/// threads' time counts for the softirq: a flood of packets is not work. For a thread that polls, only
/// the time in which it had a request counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerTime {
    /// The threads' and the softirq's nanoseconds by CPU.
    on_cpu: BTreeMap<u16, (u64, u64)>,
    /// The part of the threads' time that is polling.
    polled_ns: u64,
}

impl ServerTime {
    /// Adds these stretches of a window, which are in order of time.
    pub(crate) fn add(&mut self, matched: &Matched, timeline: &Timeline, stretches: &[Span]) {
        let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else {
            return;
        };
        let mut on_core: BTreeMap<Tid, u64> = BTreeMap::new();
        for &stretch in stretches {
            self.add_stretch(timeline, stretch, &mut on_core);
        }
        let lines = timeline.workers().iter();
        let awake = lines.filter(|line| line.never_sleeps(first.from, last.to));
        let awake: Vec<Tid> = awake.map(WorkerLine::tid).collect();
        if awake.is_empty() {
            return;
        }
        let served = served(matched, stretches);
        for tid in awake {
            let ns = |of: &BTreeMap<Tid, u64>| of.get(&tid).copied().unwrap_or(0);
            let (on_core, at_work) = (ns(&on_core), ns(&served));
            if (at_work as f64) < MOST_AT_WORK * on_core as f64 {
                self.polled_ns += on_core - at_work;
            }
        }
    }

    fn add_stretch(
        &mut self,
        timeline: &Timeline,
        Span { from, to: upto }: Span,
        on_core: &mut BTreeMap<Tid, u64>,
    ) {
        for line in timeline.cpus() {
            let (threads, softirq) = self.on_cpu.entry(line.cpu()).or_default();
            let segments = line.segments_from(from);
            // the server's thread that was on the CPU last, with its time; thread 0 is looked up only once
            let idle = timeline.worker_place(0).is_some();
            let mut last: Option<(Tid, u64)> = None;
            for segment in segments.take_while(|segment| segment.from < upto) {
                let ns = segment
                    .to
                    .min(upto)
                    .saturating_since(segment.from.max(from));
                match segment.top {
                    Top::Softirq { vector: NET_RX } => *softirq += ns.get(),
                    Top::Nothing | Top::KernelLock if idle || segment.thread != 0 => {
                        match &mut last {
                            Some((thread, sum)) if *thread == segment.thread => *sum += ns.get(),
                            _ if timeline.worker_place(segment.thread).is_some() => {
                                let before = last.replace((segment.thread, ns.get()));
                                count(before, threads, on_core);
                            }
                            _ => {}
                        }
                    }
                    _ => {}
                }
            }
            count(last, threads, on_core);
        }
    }

    /// The total; `None` if no time of a thread is known.
    pub(crate) fn total(&self) -> Option<Nanos> {
        let on_cpu = self.on_cpu.values();
        let ns: u64 = on_cpu
            .map(|&(threads, softirq)| threads + softirq.min(2 * threads))
            .sum();
        (ns > 0).then_some(Nanos::new(ns - self.polled_ns))
    }

    /// Whether a thread of the server polls instead of sleeping.
    pub(crate) const fn polls(&self) -> bool {
        self.polled_ns > 0
    }
}

/// Adds the time of a thread.
fn count(of: Option<(Tid, u64)>, threads: &mut u64, on_core: &mut BTreeMap<Tid, u64>) {
    if let Some((thread, ns)) = of {
        *threads += ns;
        *on_core.entry(thread).or_default() += ns;
    }
}

/// For how many nanoseconds of these stretches each thread had at least one of these requests.
fn served(matched: &Matched, stretches: &[Span]) -> BTreeMap<Tid, u64> {
    let boot = Monotonic::from_nanos_since_boot(0);
    let mut by_end: Vec<usize> = (0..matched.requests.len()).collect();
    by_end.sort_unstable_by_key(|&place| matched.requests.t6(place));
    let mut served: BTreeMap<Tid, (u64, Monotonic)> = BTreeMap::new();
    for place in by_end {
        let (sum, free) = (served.entry(matched.workers[place])).or_insert((0, boot));
        let stamps = matched.requests.stamps(place);
        let [t2, t3, t4, _] = stamps.middle();
        let began = t3.or(t2).or(t4).unwrap_or(stamps.t1).max(*free);
        let first = stretches.partition_point(|stretch| stretch.to <= began);
        let met = stretches[first..].iter();
        for stretch in met.take_while(|stretch| stretch.from < stamps.t6) {
            let ended = stamps.t6.min(stretch.to);
            *sum += ended.saturating_since(began.max(stretch.from)).get();
        }
        *free = stamps.t6.max(*free);
    }
    served
        .into_iter()
        .map(|(tid, (sum, _))| (tid, sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use taillab_model::Stamps;

    use super::*;

    #[test]
    fn only_requests_within_the_stretches_are_work() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(us * 1_000);
        let mut matched = Matched::default();
        for (came, answered) in [(0, 30), (20, 40), (110, 130), (195, 400)] {
            let stamps = Stamps::new(at(came), [None; 4], at(answered));
            matched.requests.push_stamps(stamps);
            matched.workers.push(9);
        }
        let stretches = [(10, 35), (100, 200), (300, 310)].map(|(from, to)| Span {
            from: at(from),
            to: at(to),
        });
        // 10 to 35, 110 to 130, 195 to 200, and all of the last
        assert_eq!(served(&matched, &stretches)[&9], 60_000);
    }
}
