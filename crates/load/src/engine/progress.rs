//! The progress of a run, for a thread that shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use taillab_model::Nanos;

use super::LiveHistogram;

/// A send that is later than this counts as held up.
const HELD_UP: Nanos = Nanos::from_micros(100);

/// Counters that the generator writes and any thread may read at any time.
///
/// They cost the generator a few plain stores for each request, and have cache lines of their own:
/// each thread of a fleet writes only its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    sent: AtomicU64,
    received: AtomicU64,
    failed: AtomicU64,
    held_up_ns: AtomicU64,
    latest_ns: AtomicU64,
    response_times: LiveHistogram,
    lateness: LiveHistogram,
}

impl Progress {
    /// All counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Answers received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Requests so far that could not be sent, were lost with their connection, or got an error for
    /// an answer. Requests without an answer are known only at the end.
    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Response times of the answers received.
    pub fn response_times(&self) -> &LiveHistogram {
        &self.response_times
    }

    /// Lateness of the requests sent.
    pub fn lateness(&self) -> &LiveHistogram {
        &self.lateness
    }

    /// For how long, in total, nothing was sent though something was due.
    pub fn held_up(&self) -> Nanos {
        Nanos::new(self.held_up_ns.load(Relaxed))
    }

    /// Sets all counters to zero, when a run begins. The histograms go on: see
    /// [`LiveHistogram::since`].
    pub fn restart(&self) {
        self.set_sent(0);
        self.set_received(0);
        self.failed.store(0, Relaxed);
        self.held_up_ns.store(0, Relaxed);
        self.latest_ns.store(0, Relaxed);
    }

    #[inline]
    pub(crate) fn set_sent(&self, n: usize) {
        self.sent.store(n as u64, Relaxed);
    }

    #[inline]
    pub(crate) fn set_received(&self, n: usize) {
        self.received.store(n as u64, Relaxed);
    }

    #[inline]
    pub(crate) fn count_failed(&self) {
        self.failed.store(self.failed() + 1, Relaxed);
    }

    #[inline]
    pub(crate) fn count_response(&self, response_time: Nanos) {
        self.response_times.count(response_time);
    }

    #[inline]
    pub(crate) fn count_lateness(&self, lateness: Nanos) {
        self.lateness.count(lateness);
        // the sends that follow a delay are late too, less and less: only an increase counts
        let before = self.latest_ns.load(Relaxed);
        let late = match lateness > HELD_UP {
            true => lateness.get(),
            false => 0,
        };
        if late != before {
            let added = late.saturating_sub(before);
            self.held_up_ns
                .store(self.held_up_ns.load(Relaxed) + added, Relaxed);
            self.latest_ns.store(late, Relaxed);
        }
    }
}
