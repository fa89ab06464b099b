//! When another thread had the generator's CPU, by the kernel's own account.

use std::fs::File;

use taillab_model::{Monotonic, Nanos};

use crate::clock::waited_for_cpu;

/// At a send that is later than this, the thread asks the kernel. Lateness counts from the due time
/// or from the send before, whichever came last.
const LATE: Nanos = Nanos::from_micros(200);

/// How long the thread was ready to run while others had its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The send at which it was noticed.
    pub at: Monotonic,
    /// The total waiting time since the thread last asked; may be zero.
    pub lasted: Nanos,
}

/// The waits of one thread.
#[derive(Debug)]
pub(super) struct Waits {
    /// `None` where the kernel does not count how long threads wait for a CPU.
    account: Option<File>,
    so_far: Option<Nanos>,
    last_sent: Monotonic,
    pub(super) noted: Vec<Wait>,
}

impl Waits {
    /// Must be called on the generator's thread.
    pub(super) fn new() -> Self {
        let account = File::open("/proc/thread-self/schedstat").ok();
        Self {
            so_far: account.as_ref().and_then(waited_for_cpu),
            account,
            last_sent: Monotonic::from_nanos_since_boot(0),
            noted: Vec::new(),
        }
    }

    /// A request that was due at `due` is sent at `at`.
    #[inline]
    pub(super) fn sends(&mut self, due: Monotonic, at: Monotonic) {
        if at.saturating_since(due.max(self.last_sent)) >= LATE {
            self.ask(at);
        }
        self.last_sent = at;
    }

    #[cold]
    fn ask(&mut self, at: Monotonic) {
        let Some(so_far) = self.account.as_ref().and_then(waited_for_cpu) else {
            return;
        };
        if let Some(before) = self.so_far.replace(so_far) {
            let lasted = so_far.saturating_sub(before);
            self.noted.push(Wait { at, lasted });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_a_late_send_asks_who_had_the_cpu() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(us * 1_000);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"9 1000000 2\n").unwrap();
        let mut waits = Waits {
            account: Some(file.try_clone().unwrap()),
            so_far: Some(Nanos::from_micros(400)),
            ..Waits::new()
        };
        waits.sends(at(100), at(101));
        waits.sends(at(110), at(900));
        // due long ago, but the one before it has only just gone
        waits.sends(at(120), at(902));
        waits.sends(at(5_000), at(6_000));
        let wait = |us, lasted| Wait {
            at: at(us),
            lasted: Nanos::from_micros(lasted),
        };
        assert_eq!(waits.noted, [wait(900, 600), wait(6_000, 0)]);
    }
}
