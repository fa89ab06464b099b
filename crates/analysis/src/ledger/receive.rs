//! T1 to T2: what delayed the packet on its way to the socket.

use taillab_model::Interrupt;
use taillab_model::explanation::Cause;

use super::cpu::CpuClock;
use super::label::{CulpritId, Label, Labels, of_storage, of_top};
use crate::id_map::LastFound;
use crate::timeline::{NET_RX, Segment, Top};

/// Splits the time on the way to the socket by cause.
pub(super) struct Receiving<'l> {
    pub(super) labels: &'l mut Labels,
    /// How long the way to the socket may take.
    pub(super) usual_ns: u64,
    /// The server's workers.
    pub(super) workers: &'l LastFound<usize>,
    /// What it is split into, the latest first.
    pub(super) pieces: &'l mut Vec<(Label, u64)>,
}

/// Whether the CPU runs the receive softirq now.
pub(super) fn receives(cpu: &CpuClock) -> bool {
    cpu.segment
        .is_some_and(|s| s.top == Top::Softirq { vector: NET_RX })
}

/// For how long the CPU neither received nor was interrupted between T1 and T2, where its clock is, in nanoseconds.
/// Of several CPUs that receive at T2, the one that was kept from it longest received a packet that took long.
pub(super) fn free_ns(cpu: &CpuClock, t1_ns: u64, t2_ns: u64) -> u64 {
    let mut free_ns = 0;
    let mut upto = t2_ns;
    for segment in cpu.segment.iter().chain(cpu.recent.iter().rev()) {
        if upto <= t1_ns {
            return free_ns;
        }
        let from = segment.from.nanos_since_boot().max(t1_ns).min(upto);
        let is_kept = matches!(
            segment.top,
            Top::Softirq { .. } | Top::Interrupt(_) | Top::Blind | Top::Stall
        );
        free_ns += if is_kept { 0 } else { upto - from };
        upto = from;
    }
    free_ns + upto.saturating_sub(t1_ns)
}

impl Receiving<'_> {
    /// Splits [T1, T2] by what the CPU that received the packet did; the lengths sum to T2 − T1. That CPU's
    /// clock must be at T2.
    pub(super) fn split(&mut self, cpu: &CpuClock, t1_ns: u64, t2_ns: u64) {
        let deferred = cpu
            .segment
            .is_some_and(|segment| self.labels.runs_softirqs(segment.thread));
        let softirq_thread = cpu.segment.map_or(0, |s| s.thread);
        let mut usual_ns = self.usual_ns;
        let mut own_ns = self.usual_ns;
        let mut upto = t2_ns;
        let mut after_softirq = false;
        let segments = cpu.segment.iter().chain(cpu.recent.iter().rev());
        for segment in segments {
            if upto <= t1_ns {
                break;
            }
            let from = segment.from.nanos_since_boot().max(t1_ns).min(upto);
            let length = upto - from;
            match segment.top {
                Top::Softirq { vector: NET_RX } => {
                    // time since the last packet was queued belongs to this packet, up to
                    // the usual time
                    let since = upto - cpu.last_queued_ns.clamp(from, upto);
                    let own = since.min(own_ns);
                    own_ns = 0;
                    self.push(Cause::StackRx, CulpritId::Nobody, own);
                    self.push(Cause::Softirq, CulpritId::Softirq(NET_RX), length - own);
                }
                Top::Interrupt(interrupt) => {
                    let brings = match interrupt {
                        Interrupt::Reschedule | Interrupt::CallFunction => true,
                        Interrupt::Device(_) => after_softirq,
                        _ => false,
                    };
                    let (cause, who) = match brings {
                        true => (Cause::StackRx, CulpritId::Nobody),
                        false => (Cause::Irq, CulpritId::Interrupt(interrupt)),
                    };
                    self.push(cause, who, length);
                }
                top @ (Top::Softirq { .. } | Top::Blind | Top::Stall) => {
                    if let Some((cause, who)) = of_top(top) {
                        self.push(cause, who, length);
                    }
                }
                Top::Idle { .. } | Top::Nothing | Top::KernelLock | Top::Storage { .. } => {
                    let other = segment.thread != 0 && segment.thread != softirq_thread;
                    if deferred && other && !self.workers.contains(segment.thread) {
                        self.push(Cause::Background, CulpritId::Thread(segment.thread), length);
                    } else {
                        let usual = length.min(usual_ns);
                        usual_ns -= usual;
                        self.push(Cause::StackRx, CulpritId::Nobody, usual);
                        let (cause, who) = too_long(segment);
                        self.push(cause, who, length - usual);
                    }
                }
            }
            after_softirq = segment.top == Top::Softirq { vector: NET_RX };
            upto = from;
        }
        let rest = upto.saturating_sub(t1_ns);
        self.push(Cause::Unexplained, CulpritId::Nobody, rest);
    }

    /// The split if the CPU that received the packet was not seen.
    pub(super) fn unseen(&mut self, t1_ns: u64, t2_ns: u64) {
        let length = t2_ns - t1_ns;
        let usual = length.min(self.usual_ns);
        self.push(Cause::StackRx, CulpritId::Nobody, usual);
        self.push(Cause::Unexplained, CulpritId::Nobody, length - usual);
    }

    fn push(&mut self, cause: Cause, who: CulpritId, ns: u64) {
        if ns > 0 {
            self.pieces.push((self.labels.label(cause, who), ns));
        }
    }
}

/// The cause if the way takes longer than usual while this segment is on the CPU.
fn too_long(segment: &Segment) -> (Cause, CulpritId) {
    match segment.top {
        Top::Idle { state } => (Cause::IdleExit, CulpritId::Idle(state)),
        // a thread that waits for storage delays a packet only if its CPU is stalled
        Top::Storage { call } => of_storage(call),
        _ => (Cause::Unexplained, CulpritId::Nobody),
    }
}
