//! The kernel's own account of a thread's time.

use std::fs::File;
use std::io::{self, Read};

use taillab_model::Nanos;

use crate::clock;
use crate::perf::software_event;

/// How long a thread has been awake: on a CPU, or waiting for one.
pub(super) struct ThreadAccount {
    /// Its time on a CPU, stolen time included; `None` where the kernel does not allow it.
    on_cpu: Option<File>,
    /// `None` where the kernel does not count how long threads wait for a CPU: such waits
    /// then look like sleep.
    schedstat: Option<File>,
}

impl ThreadAccount {
    /// The account of the calling thread. Only that thread may use it.
    pub(super) fn new() -> Self {
        Self {
            on_cpu: task_clock().ok(),
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// How long the thread has been awake so far.
    pub(super) fn awake(&self) -> Nanos {
        let on_cpu = self.on_cpu.as_ref().and_then(count);
        let on_cpu = on_cpu.unwrap_or_else(clock::thread_cpu_time);
        on_cpu + self.waited().unwrap_or(Nanos::ZERO)
    }

    /// Does `work` and returns how long the thread slept in it.
    pub(super) fn asleep_in(&self, work: impl FnOnce()) -> Nanos {
        let switches = voluntary_switches();
        let before = self.awake();
        let from = clock::now();
        work();
        let to = clock::now();
        // a thread that never gave up its CPU did not sleep, even if the CPU was stopped meanwhile
        if switches.is_some() && switches == voluntary_switches() {
            return Nanos::ZERO;
        }
        // reading the counters takes time too, so this errs on the low side
        to.saturating_since(from)
            .saturating_sub(self.awake().saturating_sub(before))
    }

    /// Does `work` and returns how long it took, without waits for a CPU.
    pub(super) fn unhindered_in(&self, work: impl FnOnce()) -> Nanos {
        let waited = || self.waited().unwrap_or(Nanos::ZERO);
        let before = waited();
        let from = clock::now();
        work();
        let to = clock::now();
        let waited = waited().saturating_sub(before);
        to.saturating_since(from).saturating_sub(waited)
    }

    /// How long the thread has been runnable without a CPU.
    fn waited(&self) -> Option<Nanos> {
        clock::waited_for_cpu(self.schedstat.as_ref()?)
    }
}

/// How often the calling thread has given up its CPU to wait for something.
fn voluntary_switches() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the whole structure where it does not fail.
    unsafe {
        let failed = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        (failed == 0).then(|| usage.assume_init().ru_nvcsw)
    }
}

/// A perf event that counts the calling thread's time on a CPU in wall-clock time. The thread's CPU
/// time leaves out stolen time, which would then look like sleep.
fn task_clock() -> io::Result<File> {
    const TASK_CLOCK: u64 = 1;
    const THIS_THREAD: libc::pid_t = 0;
    const ANY_CPU: libc::c_int = -1;
    // no samples, no flags
    let mut attributes = [0; 8];
    attributes[1] = TASK_CLOCK;
    software_event(attributes, THIS_THREAD, ANY_CPU).map(File::from)
}

/// Reads the count of such an event; it is in nanoseconds.
fn count(mut event: &File) -> Option<Nanos> {
    let mut nanoseconds = [0; 8];
    event.read_exact(&mut nanoseconds).ok()?;
    Some(Nanos::new(u64::from_ne_bytes(nanoseconds)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_computes_does_not_sleep_and_one_that_sleeps_does() {
        let account = ThreadAccount::new();
        let end = clock::now() + Nanos::from_millis(20);
        let asleep = account.asleep_in(|| while clock::now() < end {});
        // time that other threads took counts as waiting, not as sleep
        assert_eq!(asleep, Nanos::ZERO);
        let asleep = account.asleep_in(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(asleep > Nanos::from_millis(10), "{asleep}");
    }
}
