//! The states of a CPU and of a thread of the server.

use taillab_model::{Interrupt, Tid};

use super::sleep::Sleep;

/// What ran on a CPU, on top of its current thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Top {
    /// Nothing: the thread itself, or the idle thread outside a power state.
    Nothing,
    /// The CPU was in a power state.
    Idle {
        /// The number of the state; 0 is the shallowest.
        state: u8,
    },
    /// A softirq.
    Softirq {
        /// Its number: `NET_RX` is 3.
        vector: u8,
    },
    /// The handler of an interrupt.
    Interrupt(Interrupt),
    /// The current thread waited for a lock of the kernel, without sleeping.
    KernelLock,
    /// The current thread waited for storage, without sleeping.
    Storage {
        /// The system call; `None` for a page fault.
        call: Option<u16>,
    },
    /// The probe was blind: who was current is not certain.
    Blind,
    /// The CPU stood still: see [`Stall`](super::Stall).
    Stall,
}

/// What a thread of the server is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerState {
    /// It is current on this CPU; interrupts may run on top of it.
    OnCore {
        /// The CPU.
        cpu: u16,
    },
    /// It is runnable, and another thread is current on its CPU.
    Preempted {
        /// The CPU that it waits for.
        cpu: u16,
    },
    /// It was woken, and is not on a CPU yet.
    Woken {
        /// The CPU that it waits for: its last one, or the one to which it was moved.
        cpu: u16,
        /// The thread that woke it. If it had waited for work, it may be just the thread that was current when
        /// the packet came in; then it is given only where it is one of the server's own, else 0.
        by: Tid,
    },
    /// It sleeps.
    Asleep(Sleep),
    /// Unknown, since a switch was missed.
    #[default]
    Unknown,
}

impl WorkerState {
    /// The CPU that it is on or waits for.
    pub const fn cpu(self) -> Option<u16> {
        match self {
            Self::OnCore { cpu } | Self::Preempted { cpu } | Self::Woken { cpu, .. } => Some(cpu),
            Self::Asleep(_) | Self::Unknown => None,
        }
    }

    /// Whether it sleeps until a timer expires: in `nanosleep` or `clock_nanosleep` (numbers of x86-64).
    pub const fn is_timer(self) -> bool {
        matches!(self, Self::Asleep(Sleep::Other { call: 35 | 230 }))
    }
}
