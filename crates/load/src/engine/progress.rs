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
    late: AtomicU64,
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

    /// Requests so far that were sent late, because something held the generator up: then, or a little before, so
    /// that it still catches up.
    pub fn late(&self) -> u64 {
        self.late.load(Relaxed)
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
        self.late.store(0, Relaxed);
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
            true => {
                self.late.store(self.late() + 1, Relaxed);
                lateness.get()
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 s at 40,000/s, on virtual time: another program has the CPU for 3 ms of each 6 ms, and afterwards a send
    /// takes 10 µs. It is held up for half of the time, and on schedule for much less than the other half.
    #[test]
    fn a_generator_that_catches_up_is_late_for_longer_than_it_was_held_up() {
        let us = Nanos::from_micros;
        let progress = Progress::new();
        let (every, taken, gap, cost) = (us(6_000), us(3_000), us(25), us(10));
        let (mut free, mut n) = (Nanos::ZERO, 0);
        let mut due = Nanos::ZERO;
        while due < Nanos::from_secs(4) {
            let at = free.max(due);
            let into = Nanos::new(at.get() % every.get());
            let sent = at + taken.saturating_sub(into);
            progress.count_lateness(sent.saturating_sub(due));
            free = sent + cost;
            due += gap;
            n += 1;
        }
        let held_up = progress.held_up().as_secs_f64() / 4.0;
        assert!((0.4..0.52).contains(&held_up), "{held_up}");
        let late = progress.late() as f64 / f64::from(n);
        assert!((0.7..0.9).contains(&late), "{late}");
        progress.restart();
        assert_eq!((progress.late(), progress.held_up()), (0, Nanos::ZERO));
    }
}
