//! How far a run is, for a thread that shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that the generator writes and any other thread may read at any time.
///
/// The generator pays one plain store per request for it; nobody calls back.
#[derive(Debug, Default)]
pub struct Progress {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Progress {
    /// Both counters at zero.
    pub const fn new() -> Self {
        Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Answers received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn restart(&self) {
        self.set_sent(0);
        self.set_received(0);
    }

    #[inline]
    pub(crate) fn set_sent(&self, n: usize) {
        self.sent.store(n as u64, Relaxed);
    }

    #[inline]
    pub(crate) fn set_received(&self, n: usize) {
        self.received.store(n as u64, Relaxed);
    }
}
