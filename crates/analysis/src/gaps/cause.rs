//! The causes of gaps, and their names.

use taillab_model::noise::NoiseKind;
use taillab_model::{Interrupt, RecordingContext, Tid};

use crate::ledger::softirq_name;

/// The cause of a part of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GapCause {
    /// The CPU's own timer.
    Tick,
    /// A device's interrupt, or one that has no name.
    Interrupt(Interrupt),
    /// A softirq, by its number.
    Softirq(u8),
    /// Another thread.
    Thread(Tid),
    /// The threads that took the least time, if there are too many to list.
    MoreThreads,
    /// An interrupt from another CPU, with that CPU if it is known.
    Ipi(Interrupt, Option<u16>),
    /// A page fault of the loop's thread.
    PageFault,
    /// Nobody: the CPU was idle although the thread could run.
    HeldBack,
    /// Something outside this kernel; `true` if nothing was recorded in the gap.
    Hypervisor(bool),
    /// Unknown; `true` if nothing was recorded in the gap.
    Unexplained(bool),
}

impl GapCause {
    /// The cause of time that passed outside of this kernel. `silent`: nothing was recorded in the gap.
    pub(super) const fn outside(virtual_machine: bool, silent: bool) -> Self {
        match virtual_machine {
            true => Self::Hypervisor(silent),
            false => Self::Unexplained(silent),
        }
    }

    /// The kind of the cause. For a thread, [`GapCause::named`] may return another one.
    pub const fn kind(self) -> NoiseKind {
        match self {
            Self::Tick => NoiseKind::Tick,
            Self::Interrupt(_) => NoiseKind::Interrupt,
            Self::Softirq(_) => NoiseKind::Softirq,
            Self::Thread(_) | Self::MoreThreads => NoiseKind::Thread,
            Self::Ipi(..) => NoiseKind::Ipi,
            Self::PageFault => NoiseKind::PageFault,
            Self::HeldBack => NoiseKind::Quota,
            Self::Hypervisor(_) => NoiseKind::Hypervisor,
            Self::Unexplained(_) => NoiseKind::Unexplained,
        }
    }

    /// The kind of the cause, its name, and whether it is a thread of process `own`. `real_time`: the loop's
    /// thread has a real-time policy.
    ///
    /// If an ordinary thread ran instead of a real-time loop, or none did, this is RT throttling: there is no
    /// other reason for it.
    pub fn named(
        self,
        names: &RecordingContext,
        own: Tid,
        real_time: bool,
    ) -> (NoiseKind, Option<String>, bool) {
        let culprit = match self {
            Self::Tick | Self::PageFault => None,
            Self::Interrupt(interrupt) => Some(interrupt_name(names, interrupt)),
            Self::Softirq(vector) => Some(softirq_name(vector)),
            Self::Thread(tid) => {
                let thread = names.threads.iter().find(|thread| thread.tid == tid);
                let comm = thread.map_or("?", |thread| thread.comm.as_str());
                let is_own = thread.is_some_and(|thread| thread.pid == own);
                // the policy of a thread that has ended is unknown; the kernel's real-time threads do not end
                let ordinary = thread.is_none_or(|thread| thread.real_time != Some(true));
                let kind = match real_time && ordinary {
                    true => NoiseKind::RtThrottling,
                    false => NoiseKind::Thread,
                };
                let comm = if comm.is_empty() { "?" } else { comm };
                let name = match is_own {
                    true => format!("{comm} {tid} (taillab's own)"),
                    false => format!("{comm} {tid}"),
                };
                return (kind, Some(name), is_own);
            }
            Self::MoreThreads => Some("further threads".to_owned()),
            Self::Ipi(kind, from) => {
                let what = match kind {
                    Interrupt::Reschedule => "reschedule",
                    Interrupt::CallFunction => "call a function",
                    _ => "deferred work",
                };
                Some(match from {
                    Some(cpu) => format!("{what}, from CPU {cpu}"),
                    None => what.to_owned(),
                })
            }
            Self::HeldBack if real_time => {
                let idle = "the CPU was idle meanwhile".to_owned();
                return (NoiseKind::RtThrottling, Some(idle), false);
            }
            Self::HeldBack => Some("the CPU was idle meanwhile".to_owned()),
            Self::Hypervisor(true) | Self::Unexplained(true) => {
                Some("nothing ran in this kernel".to_owned())
            }
            Self::Hypervisor(false) | Self::Unexplained(false) => {
                Some("during something else".to_owned())
            }
        };
        (self.kind(), culprit, false)
    }
}

fn interrupt_name(names: &RecordingContext, interrupt: Interrupt) -> String {
    let Interrupt::Device(number) = interrupt else {
        return "other vector".to_owned();
    };
    let known = names.interrupts.iter().find(|known| known.number == number);
    known.map_or_else(
        || format!("IRQ {number}"),
        |known| format!("{} (IRQ {number})", known.name),
    )
}
