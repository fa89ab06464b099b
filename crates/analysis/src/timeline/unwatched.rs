//! Threads that cannot be traced.
//!
//! A hardened kernel runs no tracing program while a thread of init is current. Such a thread is seen to come
//! onto a CPU, but never to leave it: some time later, another thread is current there. Lost events look the
//! same, but do not happen every time. So if the probe often missed that a thread left, and never saw it,
//! the thread had the CPU until the other thread was seen.

use taillab_model::Tid;

use crate::id_map::IdMap;

/// The thread must have left unseen this many times.
const OFTEN: u32 = 3;

/// The most threads that are remembered. Only a few are ever missed; lost events bring others.
const MOST: usize = 1 << 16;

/// How threads were seen to leave CPUs.
#[derive(Debug, Default)]
pub(super) struct Unwatched {
    threads: IdMap<MissedSwitch>,
}

/// A thread whose switch off a CPU was missed.
#[derive(Clone, Copy, Debug, Default)]
struct MissedSwitch {
    times: u32,
    /// It was seen to leave at least once.
    seen: bool,
}

impl Unwatched {
    /// The thread left a CPU unseen; returns whether it always does.
    pub(super) fn missed(&mut self, thread: Tid) -> bool {
        if thread == 0 {
            return false;
        }
        if self.threads.len() >= MOST {
            self.threads.clear();
        }
        let missed = self.threads.entry(thread).or_default();
        missed.times = missed.times.saturating_add(1);
        missed.times >= OFTEN && !missed.seen
    }

    /// The thread was seen to leave a CPU.
    #[inline]
    pub(super) fn left(&mut self, thread: Tid) {
        if !self.threads.is_empty()
            && let Some(missed) = self.threads.get_mut(&thread)
        {
            missed.seen = true;
        }
    }
}
