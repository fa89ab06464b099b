//! Records of when a fault happened, made by the thread that had it.

use std::sync::{Mutex, PoisonError};

use taillab_model::explanation::Culprit;
use taillab_model::{Monotonic, Tid};

use super::account::ThreadAccount;
use crate::clock;
use crate::ground_truth::InjectedInterval;

/// Room for this many occurrences; later ones are only counted.
const ROOM: usize = 16_384;

/// The occurrences of one fault in one worker.
///
/// Only the worker writes, and it is read only after the worker has ended. So its lock is always free,
/// and taking it needs no system call.
pub(super) struct Recorder {
    tid: Tid,
    /// The worker's name, as the kernel knows it.
    name: String,
    record: Mutex<Record>,
}

struct Record {
    times: Vec<(Monotonic, Monotonic)>,
    unrecorded: u64,
}

impl Recorder {
    /// Call this on the worker's thread. Its memory is touched now, so that no request takes page faults.
    pub(super) fn new(tid: Tid) -> Self {
        let nothing = Monotonic::from_nanos_since_boot(1);
        let mut times = vec![(nothing, nothing); ROOM];
        times.clear();
        Self {
            tid,
            name: std::thread::current().name().unwrap_or_default().to_owned(),
            record: Mutex::new(Record {
                times,
                unrecorded: 0,
            }),
        }
    }

    /// The worker, as a culprit.
    pub(super) fn worker(&self) -> Culprit {
        Culprit::Worker {
            name: self.name.clone(),
            tid: self.tid,
        }
    }

    /// Does `work` and records how long it took without waits for a CPU, as one interval from its start.
    pub(super) fn unhindered_in(&self, account: &ThreadAccount, work: impl FnOnce()) {
        let from = clock::now();
        let took = account.unhindered_in(work);
        self.keep(from, from + took);
    }

    /// Does `work` and records how long the thread slept in it, as if the sleep came first: for a request
    /// that waits for all of it, this makes no difference.
    pub(super) fn asleep_in(&self, account: &ThreadAccount, work: impl FnOnce()) {
        let from = clock::now();
        let asleep = account.asleep_in(work);
        self.keep(from, from + asleep);
    }

    pub(super) fn keep(&self, from: Monotonic, to: Monotonic) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if record.times.len() < record.times.capacity() {
            record.times.push((from, to));
        } else {
            record.unrecorded += 1;
        }
    }

    /// Adds the occurrences to `intervals` as those of `source`; returns how many found no room.
    pub(super) fn take_into(&self, source: u16, intervals: &mut Vec<InjectedInterval>) -> u64 {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        intervals.extend(
            record
                .times
                .iter()
                .map(|&(from_ns, to_ns)| InjectedInterval {
                    source,
                    cpu: None,
                    held: Some(self.tid),
                    from_ns,
                    to_ns,
                    times: 1,
                }),
        );
        record.unrecorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let recorder = Recorder::new(7);
        for _ in 0..ROOM + 3 {
            recorder.keep(clock::now(), clock::now());
        }
        let mut intervals = Vec::new();
        assert_eq!(recorder.take_into(2, &mut intervals), 3);
        assert_eq!(intervals.len(), ROOM);
        assert!(
            intervals
                .iter()
                .all(|i| i.source == 2 && i.from_ns <= i.to_ns)
        );
        assert!(intervals.is_sorted_by_key(|i| i.from_ns));
    }
}
