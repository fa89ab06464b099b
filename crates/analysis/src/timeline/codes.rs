//! The codes in the columns: what ran on top of a thread, or the state of a worker.

use taillab_model::{Interrupt, Tid};

use super::sleep::Sleep;
use super::state::{Top, WorkerState};

/// A code that is different for each top.
pub(crate) const fn pack_top(top: Top) -> u32 {
    match top {
        Top::Nothing => 0,
        Top::Blind => 1,
        Top::Stall => 2,
        Top::KernelLock => 3,
        Top::Storage { call: None } => 4,
        Top::Idle { state } => 1 << 28 | state as u32,
        Top::Softirq { vector } => 2 << 28 | vector as u32,
        Top::Storage { call: Some(call) } => 4 << 28 | call as u32,
        Top::Interrupt(interrupt) => match interrupt {
            Interrupt::LocalTimer => 3 << 28,
            Interrupt::Reschedule => 3 << 28 | 1,
            Interrupt::CallFunction => 3 << 28 | 2,
            Interrupt::IrqWork => 3 << 28 | 3,
            Interrupt::Other => 3 << 28 | 4,
            Interrupt::Device(number) => 1 << 31 | number & !(1 << 31),
        },
    }
}

mod state {
    pub(super) const UNKNOWN: u64 = 0;
    pub(super) const ON_CORE: u64 = 1;
    pub(super) const PREEMPTED: u64 = 2;
    pub(super) const WOKEN: u64 = 3;
    pub(super) const ASLEEP: u64 = 4;
    pub(super) const BITS: u32 = 3;
}

mod asleep {
    pub(super) const WORK: u64 = 0;
    pub(super) const LOCK: u64 = 1;
    pub(super) const FAULT: u64 = 2;
    pub(super) const IO: u64 = 3;
    pub(super) const OTHER: u64 = 4;
    pub(super) const UNKNOWN: u64 = 5;
    pub(super) const STOPPED: u64 = 6;
}

/// The state is in the lowest three bits. Above them is the CPU, and above that the waker; or three bits
/// for the reason of a sleep, and above them the system call + 1.
pub(super) fn pack_state(state: WorkerState) -> u64 {
    let with = |kind, value: u64| value << state::BITS | kind;
    let call = |call: Option<u16>| call.map_or(0, |call| u64::from(call) + 1) << 3;
    match state {
        WorkerState::Unknown => state::UNKNOWN,
        WorkerState::OnCore { cpu } => with(state::ON_CORE, cpu.into()),
        WorkerState::Preempted { cpu } => with(state::PREEMPTED, cpu.into()),
        WorkerState::Woken { cpu, by } => with(state::WOKEN, u64::from(by) << 16 | u64::from(cpu)),
        WorkerState::Asleep(sleep) => {
            let why = match sleep {
                Sleep::Work => asleep::WORK,
                Sleep::Lock { call: number } => asleep::LOCK | call(number),
                Sleep::Fault => asleep::FAULT,
                Sleep::Io { call: number } => asleep::IO | call(Some(number)),
                Sleep::Other { call: number } => asleep::OTHER | call(Some(number)),
                Sleep::Stopped => asleep::STOPPED,
                Sleep::Unknown => asleep::UNKNOWN,
            };
            with(state::ASLEEP, why)
        }
    }
}

pub(super) fn unpack_state(code: u64) -> WorkerState {
    let value = code >> state::BITS;
    let cpu = value as u16;
    match code & ((1 << state::BITS) - 1) {
        state::ON_CORE => WorkerState::OnCore { cpu },
        state::PREEMPTED => WorkerState::Preempted { cpu },
        state::WOKEN => WorkerState::Woken {
            cpu,
            by: (value >> 16) as Tid,
        },
        state::ASLEEP => {
            let call = ((value >> 3) as u16).checked_sub(1);
            WorkerState::Asleep(match value & 7 {
                asleep::WORK => Sleep::Work,
                asleep::LOCK => Sleep::Lock { call },
                asleep::FAULT => Sleep::Fault,
                asleep::IO => Sleep::Io {
                    call: call.unwrap_or(0),
                },
                asleep::OTHER => Sleep::Other {
                    call: call.unwrap_or(0),
                },
                asleep::STOPPED => Sleep::Stopped,
                _ => Sleep::Unknown,
            })
        }
        _ => WorkerState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_packed_and_read_back() {
        let sleeps = [
            Sleep::Work,
            Sleep::Lock { call: None },
            Sleep::Lock { call: Some(202) },
            Sleep::Fault,
            Sleep::Io { call: 0 },
            Sleep::Other { call: 1_022 },
            Sleep::Stopped,
            Sleep::Unknown,
        ];
        let states = sleeps.map(WorkerState::Asleep).into_iter().chain([
            WorkerState::Unknown,
            WorkerState::OnCore { cpu: u16::MAX },
            WorkerState::Preempted { cpu: 0 },
            WorkerState::Woken {
                cpu: 511,
                by: 4_000_000,
            },
        ]);
        for state in states {
            assert_eq!(unpack_state(pack_state(state)), state);
        }
    }

    #[test]
    fn tops_have_codes_of_their_own() {
        let tops = [
            Top::Nothing,
            Top::Blind,
            Top::Stall,
            Top::KernelLock,
            Top::Storage { call: None },
            Top::Storage { call: Some(0) },
            Top::Storage { call: Some(17) },
            Top::Idle { state: 3 },
            Top::Softirq { vector: 3 },
            Top::Interrupt(Interrupt::LocalTimer),
            Top::Interrupt(Interrupt::Device(0)),
            Top::Interrupt(Interrupt::Device(3)),
            Top::Interrupt(Interrupt::IrqWork),
        ];
        let codes: std::collections::HashSet<u32> = tops.into_iter().map(pack_top).collect();
        assert_eq!(codes.len(), tops.len());
    }
}
