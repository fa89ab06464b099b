//! The kernel's own account of a thread's time.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use taillab_model::Nanos;

use taillab_load::clock;

/// Time for which a thread was awake: it was on a CPU, or could have been.
pub(super) struct ThreadAccount {
    /// Its time on a CPU, stolen time included; `None` where the kernel does not allow it.
    on_cpu: Option<File>,
    /// `None` where the kernel does not count how long threads wait for a CPU: such waits
    /// then look like sleep.
    schedstat: Option<File>,
}

impl ThreadAccount {
    /// That of the calling thread; only that thread may use it.
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

    /// Does `work`, and says how long the thread slept in it.
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
        // asking takes time as well, so this is rather too little than too much
        to.saturating_since(from)
            .saturating_sub(self.awake().saturating_sub(before))
    }

    /// Does `work`, and says how long that took without waits for a CPU.
    pub(super) fn unhindered_in(&self, work: impl FnOnce()) -> Nanos {
        let waited = || self.waited().unwrap_or(Nanos::ZERO);
        let before = waited();
        let from = clock::now();
        work();
        let to = clock::now();
        let waited = waited().saturating_sub(before);
        to.saturating_since(from).saturating_sub(waited)
    }

    /// How long it could have been on a CPU and was on none.
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

/// The event that counts the calling thread's time on a CPU in wall-clock time
/// (perf_event_open(2)). Its CPU time leaves out what a hypervisor stole meanwhile, which would
/// then look like sleep.
fn task_clock() -> io::Result<File> {
    const SOFTWARE: u64 = 1;
    const TASK_CLOCK: u64 = 1;
    const THIS_THREAD: libc::c_long = 0;
    const NONE: libc::c_long = -1;
    const CLOSE_ON_EXEC: libc::c_long = 8;
    // type and size, config; no samples, no flags (PERF_ATTR_SIZE_VER0)
    let mut attributes = [0_u64; 8];
    attributes[0] = SOFTWARE | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = TASK_CLOCK;
    // SAFETY: the kernel reads the attributes, of the size that they name, until the call
    // returns.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            THIS_THREAD,
            NONE,
            NONE,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { File::from_raw_fd(descriptor as i32) })
}

/// What such an event has counted.
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
        // what others took of that time is waiting, and not sleep
        assert_eq!(asleep, Nanos::ZERO);
        let asleep = account.asleep_in(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(asleep > Nanos::from_millis(10), "{asleep}");
    }
}
