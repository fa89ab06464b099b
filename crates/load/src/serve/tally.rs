//! Counts of what a server did, kept so that they do not slow its workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::connection::End;

/// What a server has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Requests answered by each worker. With null-rpc, where every connection has its own
    /// worker: in the order of the connections.
    pub by_worker: Vec<u64>,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because there were no more files or threads.
    pub refused: u64,
    /// Connections that ended in the middle of a request, and datagrams that were not as long as
    /// a request.
    pub malformed: u64,
    /// Responses that could not be sent.
    pub unsent: u64,
}

impl Served {
    /// Requests answered by all workers.
    pub fn total(&self) -> u64 {
        self.by_worker.iter().sum()
    }
}

/// Requests answered by one worker. Only that worker writes it, and it has its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Answered(AtomicU64);

impl Answered {
    /// Counts one request. Only the worker itself may call it: the addition is not atomic.
    #[inline]
    pub(super) fn one_more(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of rare events, for all workers together.
#[derive(Debug, Default)]
pub(super) struct Rare {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) unsent: AtomicU64,
}

impl Rare {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Relaxed);
    }

    /// Counts the end of a connection.
    pub(super) fn ended(&self, end: End) {
        match end {
            End::Closed => {}
            End::MidRequest => Self::count(&self.malformed),
            End::MidResponse => Self::count(&self.unsent),
        }
    }

    /// These counts and the requests that each worker answered.
    pub(super) fn with(&self, by_worker: Vec<u64>) -> Served {
        Served {
            by_worker,
            connections: self.connections.load(Relaxed),
            refused: self.refused.load(Relaxed),
            malformed: self.malformed.load(Relaxed),
            unsent: self.unsent.load(Relaxed),
        }
    }
}
