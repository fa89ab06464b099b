//! How the threads of a server are told to stop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{EventfdFlags, eventfd};

/// Tells all threads to stop: a flag, and an eventfd that wakes those that wait.
pub(super) struct Stop {
    flag: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            flag: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Readable once the flag is set.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(super) fn set(&self) {
        self.flag.store(true, Relaxed);
        // cannot fail: the counter is far from its maximum
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}
