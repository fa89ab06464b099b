//! Joins transport and protocol: sends request after request, and says which of them
//! an answer belongs to.

mod any;
mod datagram;
mod keys;
mod leftover;
mod pending;
mod rotation;
mod stream;

use taillab_model::{Monotonic, Nanos};

pub use any::{AnyClient, AnyProtocol};
pub use datagram::DatagramClient;
pub use keys::{Ids, Keys, Place, Places};
pub use stream::StreamClient;

use crate::engine::Outcome;
use crate::protocol::{MessageSizes, Planned};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;

/// A client with its connections, ready to send.
///
/// It numbers the requests of a count from 0. The engine decides when to send and keeps
/// the record; the client knows connections, keys and answers.
pub trait Client {
    /// Draws what the first `n` requests ask for, reproducibly.
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned>;

    /// What must be stored before a measurement; empty where nothing must be.
    fn to_store(&self) -> Vec<Planned>;

    /// How large requests and answers typically are.
    fn sizes(&self) -> MessageSizes;

    /// Number of connections.
    fn connections(&self) -> usize;

    /// Begins a new count of requests at k = 0, whose first `requests` are to be found
    /// in [`Client::keys`] afterwards.
    ///
    /// What has arrived by now is thrown away, and no answer to a request of an earlier
    /// count that is still under way will be taken for an answer to a new one.
    fn begin(&mut self, requests: usize);

    /// How many requests later the same key comes again, so that only one of the two
    /// can be told to be answered; `usize::MAX` where that cannot be.
    fn key_period(&self) -> usize;

    /// Requests and answers may vanish without a trace.
    fn is_lossy(&self) -> bool;

    /// Which connection and key the requests of this count had.
    fn keys(&mut self) -> Keys;

    /// Sends the next request.
    ///
    /// # Errors
    /// [`NotSent`]; the request has used up its number all the same.
    fn send(&mut self, what: Planned) -> Result<(), NotSent>;

    /// Looks once for an answer. `outstanding(k)` says what request `k` asked for, or
    /// `None` if it no longer waits for an answer.
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> Received;

    /// Does what can wait, opening lost connections again, in a moment when nothing is
    /// due for `until_next`.
    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        let _ = until_next;
    }

    /// Each request takes a connection that has none outstanding, if there is one;
    /// otherwise requests take the connections in turn.
    fn takes_idle_connection(&self) -> bool {
        false
    }

    /// Sleeps until something has arrived, `at_most` so long. A client that cannot sleep
    /// returns at once.
    fn wait(&mut self, at_most: Nanos) {
        let _ = at_most;
    }

    /// Whether the kernel stamps what this client sends or receives.
    fn kernel_stamps(&self) -> KernelStamps {
        KernelStamps::NONE
    }

    /// The kernel's stamp of the answer that [`Client::receive`] returned last.
    #[inline]
    fn kernel_received(&self) -> Option<Monotonic> {
        None
    }

    /// Takes the number of a request and when the kernel stamped that it left, if there
    /// is one more. Asked in idle moments.
    #[inline]
    fn kernel_sent(&mut self) -> Option<(usize, Monotonic)> {
        None
    }
}

/// What one look for an answer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing.
    Nothing,
    /// The answer to request `k`, complete.
    Answer {
        /// Number of the request.
        k: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// Request `k` will get no answer any more.
    Lost {
        /// Number of the request.
        k: usize,
        /// [`Outcome::ConnectionLost`] or [`Outcome::Malformed`].
        outcome: Outcome,
    },
    /// Bytes of an answer that has more to come.
    Part,
    /// The answer to a request that was given up.
    Late,
    /// An answer that no outstanding request asked for.
    Unexpected,
    /// Bytes that are no answer.
    Malformed,
    /// The server closed a connection.
    ConnectionClosed,
    /// The server's host reset a connection.
    ConnectionReset,
    /// The server's host says that nothing listens there.
    Refused,
}
