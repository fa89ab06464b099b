//! The clocks of the generator.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::time::{ClockId, clock_gettime};
use taillab_model::{Monotonic, Nanos};

/// This instant by `CLOCK_MONOTONIC`, the clock of the kernel stamps.
///
/// Served by the vDSO, without a system call, where the kernel's clock source allows.
#[inline]
pub fn now() -> Monotonic {
    Monotonic::from_nanos_since_boot(read(ClockId::Monotonic))
}

/// This instant by `CLOCK_REALTIME`, the clock of a socket's stamps, in nanoseconds
/// since 1970.
#[inline]
pub(crate) fn realtime_ns() -> u64 {
    read(ClockId::Realtime)
}

/// CPU time that the calling thread has used; a system call.
pub fn thread_cpu_time() -> Nanos {
    Nanos::new(read(ClockId::ThreadCPUTime))
}

/// For how long in all a thread could have run while others had its CPU; `account` is its
/// `/proc/PID/task/TID/schedstat`, of which this is the second number (the kernel's
/// `Documentation/scheduler/sched-stats.rst`). `None` where it cannot be read.
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
