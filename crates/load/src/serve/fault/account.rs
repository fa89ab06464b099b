//! The kernel's own account of a thread's time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use taillab_model::Nanos;

use crate::clock;

/// Time for which a thread was awake: it was on a CPU, or could have been.
pub(super) struct ThreadAccount {
    /// `None` where the kernel does not count how long threads wait for a CPU: such waits
    /// then look like sleep.
    schedstat: Option<File>,
}

impl ThreadAccount {
    /// That of the calling thread, which alone may ask it.
    pub(super) fn new() -> Self {
        Self {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
        }
    }

    /// How long the thread has been awake so far.
    pub(super) fn awake(&self) -> Nanos {
        clock::thread_cpu_time() + self.waited().unwrap_or(Nanos::ZERO)
    }

    /// Does `work`, and says how long the thread slept in it.
    pub(super) fn asleep_in(&self, work: impl FnOnce()) -> Nanos {
        let before = self.awake();
        let from = clock::now();
        work();
        let to = clock::now();
        // asking takes time as well, so this is rather too little than too much
        to.saturating_since(from)
            .saturating_sub(self.awake().saturating_sub(before))
    }

    /// How long it could have been on a CPU and was on none: the second number
    /// (`/proc/PID/schedstat`, Documentation/scheduler/sched-stats.rst).
    fn waited(&self) -> Option<Nanos> {
        let mut text = [0; 64];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..length]).ok()?;
        let number = text.split_ascii_whitespace().nth(1)?;
        number.parse().ok().map(Nanos::new)
    }
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
        if account.waited().is_some() {
            assert!(asleep < Nanos::from_millis(10), "{asleep}");
        }
        let asleep = account.asleep_in(|| std::thread::sleep(Duration::from_millis(20)));
        assert!(asleep > Nanos::from_millis(10), "{asleep}");
    }
}
