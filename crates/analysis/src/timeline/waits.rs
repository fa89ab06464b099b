//! Why a runnable thread waits, other than for the thread that has its CPU: it is held back, or its
//! wake-up has not arrived yet.

use std::collections::HashSet;
use std::ops::Range;

use taillab_model::{Interrupt, RecordingContext, Tid};

use super::line::{Segment, Timeline};
use super::state::Top;

/// If a runnable thread waits for longer than this while its CPU is idle, it is held back. (Leaving the
/// deepest power state takes a fraction of this.)
const HELD_BACK_NS: u64 = 2_000_000;

/// The same if the thread's group was throttled at about that time: other threads may have the CPU for most
/// of it.
const THROTTLED_NS: u64 = 500_000;

/// If an interrupt from another CPU takes longer, interrupts are disabled there. In a virtual machine it
/// takes 10 to 40 µs.
const INTERRUPT_NS: u64 = 100_000;

/// If a CPU that was told to reschedule has not switched after this time, its thread keeps it. A switch
/// takes 1 to 2 µs.
const SWITCH_NS: u64 = 5_000;

/// Which threads may be held back because of their scheduling policy.
#[derive(Clone, Debug)]
pub(crate) struct Policies {
    /// The kernel may hold back a thread of the server because of its policy.
    may_hold_back: bool,
    /// The threads that go before ordinary ones; empty where none is the server's.
    real_time: HashSet<Tid>,
}

impl Policies {
    /// The policies that `context` records.
    pub(crate) fn of(context: &RecordingContext) -> Self {
        let threads = || context.threads.iter();
        let mut known = threads()
            .filter(|thread| thread.server)
            .filter_map(|thread| thread.real_time)
            .peekable();
        // if no policy was recorded, it may be any
        let may_hold_back = known.peek().is_none() || known.any(|real_time| real_time);
        let real_time = || threads().filter(|thread| thread.real_time == Some(true));
        Self {
            may_hold_back,
            real_time: match real_time().any(|thread| thread.server) {
                true => real_time().map(|thread| thread.tid).collect(),
                false => HashSet::new(),
            },
        }
    }

    /// Whether a quota or the limit of real-time threads can hold the server back. If not, a worker that
    /// waits for an idle CPU was woken slowly.
    pub(crate) fn may_hold_back(&self, timeline: &Timeline) -> bool {
        self.may_hold_back || timeline.seen().throttling
    }

    /// Whether thread `tid`, which is runnable and waits in this span of time, is held back; `segments` are those of
    /// the CPU that it waits for. It is held back if the CPU is idle for long meanwhile; if the thread has
    /// a real-time policy and an ordinary thread has the CPU for long; or if its group was throttled for
    /// most of the wait, by the group's own account (a sum over CPUs: on several of them it may be enough,
    /// although each was throttled for less).
    pub(crate) fn hold_back(
        &self,
        timeline: &Timeline,
        tid: Tid,
        wait: Range<u64>,
        segments: impl Iterator<Item = Segment>,
    ) -> bool {
        let (at_ns, until_ns) = (wait.start, wait.end);
        let length = until_ns.saturating_sub(at_ns);
        if length <= THROTTLED_NS || !self.may_hold_back(timeline) {
            return false;
        }
        let throttled_ns = throttled_ns(timeline, at_ns, until_ns);
        let enough_ns = match throttled_ns {
            0 => HELD_BACK_NS,
            _ => THROTTLED_NS,
        };
        if length <= enough_ns {
            return false;
        }
        let goes_first = self.real_time.contains(&tid);
        let yields = |thread| goes_first && !self.real_time.contains(&thread);
        let by_account = length > HELD_BACK_NS && throttled_ns > length / 2;
        by_account || free_ns(segments, wait, yields) > enough_ns
    }
}

/// For how long the server's groups were throttled at about that time, by their own account: summed over
/// the CPUs, so it may be longer than the time itself.
pub(crate) fn throttled_ns(timeline: &Timeline, from_ns: u64, to_ns: u64) -> u64 {
    let windows = timeline.throttled();
    let first = windows.partition_point(|window| window.to.nanos_since_boot() <= from_ns);
    let windows = windows[first..].iter();
    windows
        .take_while(|window| window.from.nanos_since_boot() < to_ns)
        .map(|window| window.held_back.get())
        .sum()
}

/// For how long a CPU is idle during a wait, or has a thread that is `other`. A power state that
/// it was already in does not count: it is only left late.
fn free_ns(
    segments: impl Iterator<Item = Segment>,
    wait: Range<u64>,
    other: impl Fn(Tid) -> bool,
) -> u64 {
    let (at_ns, until_ns) = (wait.start, wait.end);
    let inside = segments.take_while(|segment| segment.from.nanos_since_boot() < until_ns);
    let free = inside.filter(|segment| match (segment.thread, segment.top) {
        (0, Top::Idle { .. }) => segment.from.nanos_since_boot() >= at_ns,
        (thread, top) => top == Top::Nothing && (thread == 0 || other(thread)),
    });
    free.map(|segment| length_within(&segment, at_ns, until_ns))
        .sum()
}

fn length_within(segment: &Segment, from_ns: u64, to_ns: u64) -> u64 {
    let to_ns = segment.to.nanos_since_boot().min(to_ns);
    to_ns.saturating_sub(segment.from.nanos_since_boot().max(from_ns))
}

/// Until when a wake-up is under way. A thread was woken when `wait` began, and came onto its CPU when it ended;
/// `segments` are those of that CPU from its beginning on.
///
/// A thread that has the CPU until the rescheduling interrupt arrives does not delay the woken thread. If
/// it then leaves within the time of a switch, the wake-up was under way for the whole wait. If it stays,
/// it keeps the woken thread waiting from then on.
pub(crate) fn on_its_way_until(segments: impl Iterator<Item = Segment>, wait: Range<u64>) -> u64 {
    let (woken_ns, on_ns) = (wait.start, wait.end);
    // a wake-up on the same CPU needs no interrupt
    let (mut told_ns, mut by_call) = (woken_ns, false);
    let mut kept_ns = 0;
    let inside = segments.take_while(|segment| segment.from.nanos_since_boot() < on_ns);
    for segment in inside {
        let to_ns = segment.to.nanos_since_boot();
        let tells = to_ns > woken_ns && (told_ns == woken_ns || by_call);
        match segment.top {
            Top::Interrupt(Interrupt::Reschedule) if tells => {
                (told_ns, by_call, kept_ns) = (to_ns.min(on_ns), false, 0);
            }
            // it may also bring a packet
            Top::Interrupt(Interrupt::CallFunction) if tells && !by_call => {
                (told_ns, by_call, kept_ns) = (to_ns.min(on_ns), true, 0);
            }
            Top::Nothing | Top::KernelLock | Top::Storage { .. } if segment.thread != 0 => {
                kept_ns += length_within(&segment, woken_ns, on_ns);
            }
            _ => {}
        }
        // what follows cannot change the result
        let late = told_ns == woken_ns && to_ns.saturating_sub(woken_ns) > INTERRUPT_NS;
        if kept_ns > SWITCH_NS && (late || told_ns > woken_ns && !by_call) {
            break;
        }
    }
    match kept_ns {
        _ if told_ns - woken_ns > INTERRUPT_NS => woken_ns,
        0..=SWITCH_NS => on_ns,
        _ => told_ns,
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::Monotonic;

    use super::*;

    const OTHER: Tid = 7;
    const IPI: Top = Top::Interrupt(Interrupt::Reschedule);
    const CALL: Top = Top::Interrupt(Interrupt::CallFunction);

    /// A thread is woken at 1,000,000 ns; these segments follow until it is on the CPU.
    fn way(then: &[(Tid, Top, u64)]) -> u64 {
        let woken_ns = 1_000_000;
        let mut at = woken_ns - 300;
        let segments: Vec<Segment> = (then.iter().enumerate())
            .map(|(place, &(thread, top, length))| {
                let from = at;
                // the first began before the wake-up
                at += length + if place == 0 { 300 } else { 0 };
                Segment {
                    from: Monotonic::from_nanos_since_boot(from),
                    to: Monotonic::from_nanos_since_boot(at),
                    thread,
                    top,
                }
            })
            .collect();
        on_its_way_until(segments.into_iter(), woken_ns..at) - woken_ns
    }

    #[test]
    fn a_thread_that_has_the_cpu_until_the_interrupt_delays_nobody() {
        let fills = (OTHER, Top::Nothing, 13_000);
        assert_eq!(
            way(&[fills, (OTHER, IPI, 200), (OTHER, Top::Nothing, 1_500)]),
            14_700
        );
        // told, and it stays
        assert_eq!(
            way(&[fills, (OTHER, IPI, 200), (OTHER, Top::Nothing, 9_000)]),
            13_200
        );
        // woken by what this CPU did itself
        assert_eq!(way(&[(OTHER, Top::Nothing, 1_500)]), 1_500);
        assert_eq!(way(&[(OTHER, Top::Nothing, 40_000)]), 0);
        // no interrupt takes this long
        let off = (OTHER, Top::Nothing, 400_000);
        assert_eq!(
            way(&[off, (OTHER, IPI, 200), (OTHER, Top::Nothing, 1_500)]),
            0
        );
    }

    #[test]
    fn a_call_that_brings_a_packet_is_not_the_rescheduling_interrupt() {
        let fills = (OTHER, Top::Nothing, 8_000);
        let packet = [
            (OTHER, CALL, 500),
            (OTHER, Top::Softirq { vector: 3 }, 4_000),
        ];
        let told = [(OTHER, IPI, 200), (OTHER, Top::Nothing, 1_500)];
        assert_eq!(
            way(&[&[fills], &packet[..], &[fills], &told].concat()),
            22_200
        );
        // if nothing else comes, the call was the rescheduling interrupt
        assert_eq!(
            way(&[fills, (OTHER, CALL, 500), (OTHER, Top::Nothing, 1_000)]),
            9_500
        );
        // an idle CPU keeps nobody waiting, however long it takes to wake
        assert_eq!(way(&[(0, Top::Nothing, 30_000)]), 30_000);
    }
}
