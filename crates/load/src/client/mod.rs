//! Joins transport and protocol: sends request after request, and says which of them
//! an answer belongs to.

mod any;
mod datagram;
mod keys;
mod leftover;
mod pending;
mod rotation;
mod stream;

use taillab_model::{Monotonic, Nanos, Outcome};

pub use any::AnyClient;
pub use datagram::DatagramClient;
pub use keys::{Ids, Keys, Place, Places};
pub use stream::StreamClient;

use crate::protocol::{Planned, Planner};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;
use crate::wrong_answer::WrongAnswer;

/// What does not change about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Number of connections.
    pub connections: usize,
    /// How many requests later the same key comes again, so that an answer can belong to only
    /// one of the two; `usize::MAX` where that cannot be.
    pub key_period: usize,
    /// Requests and answers may vanish without a trace.
    pub is_lossy: bool,
    /// Each request takes a connection that has none outstanding, if there is one;
    /// otherwise requests take the connections in turn.
    pub takes_idle_connection: bool,
    /// What the kernel stamps of what this client sends and receives.
    pub stamps: KernelStamps,
}

/// A client with its connections, ready to send.
///
/// It numbers the requests of a count from 0. The engine decides when to send and keeps
/// the record; the client knows connections, keys and answers.
pub trait Client {
    /// What does not change about it.
    fn traits(&self) -> Traits;

    /// What its protocol asks for.
    fn planner(&self) -> &dyn Planner;

    /// Begins a new count of requests at k = 0, whose first `requests` are to be found
    /// in [`Client::keys`] afterwards.
    ///
    /// What has arrived by now is thrown away, and no answer to a request of an earlier
    /// count that is still under way will be taken for an answer to a new one.
    fn begin(&mut self, requests: usize);

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

    /// Does what can wait, such as opening lost connections again, in a moment when
    /// nothing is due for `until_next`.
    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        let _ = until_next;
    }

    /// Sleeps until something has arrived, at most for `at_most`. A client that cannot sleep
    /// returns at once.
    fn wait(&mut self, at_most: Nanos) {
        let _ = at_most;
    }

    /// The first answer that was an error or none of the protocol's, of all counts.
    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        None
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
    /// Bytes that are not an answer.
    Malformed,
    /// The server closed a connection.
    ConnectionClosed,
    /// The server's host reset a connection.
    ConnectionReset,
    /// The server's host says that nothing listens there.
    Refused,
}
