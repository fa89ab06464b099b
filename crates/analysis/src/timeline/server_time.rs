//! How long the server had its CPUs.

use std::collections::BTreeMap;

use taillab_model::{Monotonic, Nanos};

use super::busy::NET_RX;
use super::line::Timeline;
use super::state::Top;

/// The time of the server's threads on their CPUs, nothing on top of them, and that of the
/// network's receive softirq there: its own part of the work. Where packets come in floods, no
/// more of the softirq counts on a CPU than twice the threads' time there. A thread that polls
/// is busy all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerTime {
    /// The threads' and the softirq's nanoseconds by CPU.
    on_cpu: BTreeMap<u16, (u64, u64)>,
}

impl ServerTime {
    /// Adds what lies between two instants.
    pub(crate) fn add(&mut self, timeline: &Timeline, (from, upto): (Monotonic, Monotonic)) {
        for line in timeline.cpus() {
            let (threads, softirq) = self.on_cpu.entry(line.cpu()).or_default();
            let segments = line.segments_from(from);
            for segment in segments.take_while(|segment| segment.from < upto) {
                let ns = segment
                    .to
                    .min(upto)
                    .saturating_since(segment.from.max(from));
                match segment.top {
                    Top::Softirq { vector: NET_RX } => *softirq += ns.get(),
                    Top::Nothing | Top::KernelLock
                        if timeline.worker_place(segment.thread).is_some() =>
                    {
                        *threads += ns.get();
                    }
                    _ => {}
                }
            }
        }
    }

    /// All of it; `None` where no time of a thread is known.
    pub(crate) fn total(&self) -> Option<Nanos> {
        let on_cpu = self.on_cpu.values();
        let ns: u64 = on_cpu
            .map(|&(threads, softirq)| threads + softirq.min(2 * threads))
            .sum();
        (ns > 0).then_some(Nanos::new(ns))
    }
}
