//! The clocks of the generator.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};
use taillab_model::{Monotonic, Nanos};

/// The current time of `CLOCK_MONOTONIC`, the probe's clock.
///
/// Read through the vDSO, without a system call, where the kernel's clock source allows that.
#[inline]
pub fn now() -> Monotonic {
    Monotonic::from_nanos_since_boot(read(ClockId::Monotonic))
}

/// The current time of `CLOCK_REALTIME`, the clock of a socket's stamps, in nanoseconds
/// since 1970.
#[inline]
pub(crate) fn realtime_ns() -> u64 {
    read(ClockId::Realtime)
}

/// CPU time that the calling thread has used; takes a system call.
pub fn thread_cpu_time() -> Nanos {
    Nanos::new(read(ClockId::ThreadCPUTime))
}

/// Keeps the CPU busy until the thread has had it for `demand`. Time taken by interrupts and other
/// threads comes on top, as with real work. `had` gets each stretch in which the thread had the CPU.
pub fn keep_busy(demand: Nanos, mut had: impl FnMut(Monotonic, Monotonic)) {
    /// Two reads of the clock are about ten nanoseconds apart. A longer step than this means that
    /// something else had the CPU.
    const GAP: u64 = 1_000;
    let mut used = Nanos::ZERO;
    let mut from = now();
    let (mut last, mut least) = (from, u64::MAX);
    while used + last.saturating_since(from) < demand {
        std::hint::spin_loop();
        let at = now();
        let step = at.saturating_since(last).get();
        // where reading the clock is slow, every step is long
        least = least.min(step);
        if step > GAP.saturating_add(least.saturating_mul(4)) {
            had(from, last);
            used += last.saturating_since(from);
            from = at;
        }
        last = at;
    }
    had(from, last);
}

/// The total time that a thread was ready to run while others had its CPU. `account` is the
/// thread's open `/proc/PID/task/TID/schedstat`, whose second number this is (the kernel's
/// `Documentation/scheduler/sched-stats.rst`). `None` if it cannot be read.
pub fn waited_for_cpu(account: &File) -> Option<Nanos> {
    let mut text = [0; 64];
    let length = account.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let number = text.split_ascii_whitespace().nth(1)?;
    number.parse().ok().map(Nanos::new)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that the kernel takes from the thread does not count, so the call lasts longer by that.
    #[test]
    fn a_busy_thread_gets_all_the_time_that_it_demands() {
        let demand = Nanos::from_millis(20);
        let (cpu, begin) = (thread_cpu_time(), now());
        let mut stretches = Vec::new();
        keep_busy(demand, |from, to| stretches.push((from, to)));
        let end = now();
        let sum: Nanos = (stretches.iter())
            .map(|(from, to)| to.saturating_since(*from))
            .sum();
        assert!(sum >= demand && end.saturating_since(begin) >= sum);
        assert!(stretches.is_sorted_by(|a, b| a.1 <= b.0));
        // others may have had the CPU meanwhile, but this thread had it for nearly all it counted
        let used = thread_cpu_time().saturating_sub(cpu);
        assert!(used.get() * 10 >= demand.get() * 9, "{used} of {demand}");
    }
}
