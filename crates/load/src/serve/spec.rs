//! The specification of a server, and its limits.

use std::num::{NonZeroU64, NonZeroUsize};

use super::architecture::Architecture;
use super::error::ServeError;
use super::listen::Listen;
use super::service::ServiceTime;
use crate::protocol::MessageSizes;
use crate::protocol::echo::MAX_STREAM_BYTES;

/// A larger number is a mistake.
const MOST_WORKERS: usize = 4096;
/// The largest UDP payload over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;
/// Length of the id at the beginning of a datagram.
const ID_BYTES: usize = 2;

/// The specification of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How requests are divided among threads.
    pub architecture: Architecture,
    /// Where it listens.
    pub listen: Listen,
    /// Worker threads, at least 1. Null-rpc does not use it: it has a thread for each connection.
    pub workers: usize,
    /// What a worker does between request and answer.
    pub service: ServiceTime,
    /// Seed of the service times; each worker has its own stream.
    pub seed: u64,
    /// Lengths of request and answer.
    pub sizes: MessageSizes,
    /// Workers spin instead of sleeping. For measuring a client, whose floor must not contain
    /// the server's wake-up.
    pub busy: bool,
    /// For epoll-per-worker: one connection in this many goes to the first worker, the others go
    /// to the other workers in turn. Without it, all workers get the same number.
    pub skew: Option<NonZeroUsize>,
    /// For the epoll servers: one answer in this many is written in two pieces, and connections have no TCP_NODELAY. So
    /// Nagle's algorithm holds the second piece back until the client acknowledges the first.
    pub in_pieces: Option<NonZeroU64>,
}

impl Spec {
    /// One worker on a free port of loopback that answers 128 bytes with 128 bytes at
    /// once, the paper's message sizes.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            listen: Listen::loopback(),
            workers: 1,
            service: ServiceTime::None,
            seed: 1,
            sizes: MessageSizes::default(),
            busy: false,
            skew: None,
            in_pieces: None,
        }
    }

    /// Checks that such a server is possible.
    pub(super) fn check(&self) -> Result<(), ServeError> {
        if self.workers == 0 || self.workers > MOST_WORKERS {
            return Err(ServeError::Workers {
                workers: self.workers,
                max: MOST_WORKERS,
            });
        }
        let (min, max) = if self.architecture.is_datagram() {
            (ID_BYTES, LARGEST_DATAGRAM)
        } else {
            // each connection has a buffer of this size
            (1, MAX_STREAM_BYTES)
        };
        let lengths = [
            ("requests", self.sizes.request_bytes),
            ("responses", self.sizes.response_bytes),
        ];
        for (what, bytes) in lengths {
            if !(min..=max).contains(&bytes) {
                return Err(ServeError::Size {
                    what,
                    bytes,
                    min,
                    max,
                    architecture: self.architecture,
                });
            }
        }
        if self.skew.is_some() && self.architecture != Architecture::EpollPerWorker {
            return Err(ServeError::Skew(self.architecture));
        }
        let is_epoll = matches!(
            self.architecture,
            Architecture::EpollShared | Architecture::EpollPerWorker
        );
        if self.in_pieces.is_some() && !is_epoll {
            return Err(ServeError::InPieces(self.architecture));
        }
        if self.busy && self.architecture == Architecture::NullRpc {
            return Err(ServeError::BusyNullRpc);
        }
        Ok(())
    }
}
