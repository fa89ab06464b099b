//! Joins transport and protocol: sends requests and finds the request that an answer
//! belongs to.

mod any;
mod datagram;
mod each;
mod exchange;
mod habits;
mod keys;
mod leftover;
mod pending;
#[cfg(test)]
mod queues;
mod rotation;
mod stream;

use taillab_model::summary::{Closing, LoadErrors};
use taillab_model::{Monotonic, Nanos, Outcome};

pub use any::AnyClient;
pub use datagram::DatagramClient;
pub use each::EachClient;
pub use habits::{Draw, HabitNames, Habits, Sending};
pub use keys::{Ids, Keys, Place};
pub use stream::StreamClient;

use crate::protocol::{Planned, Planner};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;
use crate::wrong_answer::WrongAnswer;

/// The constant properties of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Number of connections.
    pub connections: usize,
    /// How many requests later the same key comes again; `usize::MAX` if it never does. An answer
    /// could belong to either of two requests with the same key.
    pub key_period: usize,
    /// Requests and answers may be lost without notice.
    pub is_lossy: bool,
    /// A request of a closed loop takes a connection that has none outstanding, if there is one;
    /// otherwise it takes the connections in turn.
    pub takes_idle_connection: bool,
    /// Who the requests come from.
    pub habits: Habits,
    /// Where a key may belong to requests of several connections: the draw of these. Two requests have the
    /// same key only on the same connection.
    pub draw: Option<Draw>,
    /// A request may wait in the client for its connection.
    pub may_wait: bool,
    /// Who closes the connections, where each request has one of its own; `None` where they are kept.
    pub closing: Option<Closing>,
    /// The kernel's stamps of what this client sends and receives.
    pub stamps: KernelStamps,
}

/// A client with its connections, ready to send.
///
/// It numbers the requests of a count from 0. The engine decides when to send and keeps
/// the record; the client knows connections, keys and answers.
pub trait Client {
    /// Its constant properties.
    fn traits(&self) -> Traits;

    /// The planner of its protocol.
    fn planner(&self) -> &dyn Planner;

    /// From now on, a connection that was opened for one request is closed when its answer has not come for this long
    /// after the SYN. Nothing to do where connections are kept.
    fn be_patient(&mut self, patience: Nanos) {
        let _ = patience;
    }

    /// Begins a new count of requests at k = 0; [`Client::keys`] will have the keys of its first
    /// `requests`.
    ///
    /// Discards what has arrived, and requests that still wait for their connections. A late answer to a request of
    /// an earlier count is never taken for an answer to a new one.
    fn begin(&mut self, requests: usize, sending: Sending);

    /// The connections and keys of the requests of this count.
    fn keys(&mut self) -> Keys;

    /// Sends the next request, or lets it wait for its connection.
    ///
    /// # Errors
    /// [`NotSent`]; the request keeps its number all the same.
    fn send(&mut self, what: Planned) -> Result<SendOutcome, NotSent>;

    /// Sends the next of the requests that wait for their connections, if it may go now, and says what became of
    /// it. Called after each look that found something, until it returns `None`. `wanted` says whether the
    /// request with this number, if it left now, would still be in time.
    #[inline]
    fn send_waiting(
        &mut self,
        wanted: impl Fn(usize, Monotonic) -> bool,
    ) -> Option<ReleasedRequest> {
        let _ = wanted;
        None
    }

    /// Looks once for an answer. `outstanding(k)` is what request `k` asked for, or
    /// `None` if it no longer waits for an answer.
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome;

    /// Does work that can wait, such as reopening lost connections. Nothing is due for
    /// `until_next`.
    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        let _ = until_next;
    }

    /// Sleeps until something has arrived, at most `at_most`. A client that cannot sleep
    /// returns at once.
    fn wait(&mut self, at_most: Nanos);

    /// The first answer, in all counts, that was an error or did not follow the protocol.
    fn wrong_answer(&self) -> Option<&WrongAnswer>;

    /// The kernel's stamp of the answer that [`Client::receive`] returned last.
    fn kernel_received(&self) -> Option<Monotonic>;

    /// Takes the kernel's stamp of one request that has left, if there is one: its number and the
    /// time. Called in idle moments.
    #[inline]
    fn kernel_sent(&mut self) -> Option<(usize, Monotonic)> {
        None
    }
}

/// What became of a request that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The kernel has it.
    Gone,
    /// It waits in the client until its connection is free or open again: see [`Client::send_waiting`].
    Waits,
    /// A connection is being opened for it alone. It leaves, by [`Client::send_waiting`], when that is up.
    Connects,
}

/// A request that has waited for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedRequest {
    /// Its number.
    pub k: usize,
    /// When it was sent or given up, or its connection began to be opened.
    pub at: Monotonic,
    /// What became of it; `None` if it had waited too long and was given up.
    pub sent: Option<Result<SendOutcome, NotSent>>,
}

/// What one look for an answer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// Nothing has arrived.
    Nothing,
    /// The answer to request `k`, complete.
    Answer {
        /// Number of the request.
        k: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// Request `k` can no longer get an answer.
    Lost {
        /// Number of the request.
        k: usize,
        /// [`Outcome::ConnectionLost`], [`Outcome::Malformed`] or [`Outcome::TimedOut`].
        outcome: Outcome,
    },
    /// A part of an answer, or something else that ends no request (a connection is up again).
    Part,
    /// An answer to a request that was given up.
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

impl ReceiveOutcome {
    /// Counts an error that belongs to no request.
    pub(crate) fn count(self, errors: &mut LoadErrors) {
        match self {
            Self::Unexpected => errors.unexpected_responses += 1,
            Self::Malformed => errors.malformed_responses += 1,
            Self::ConnectionClosed => errors.connections_closed += 1,
            Self::ConnectionReset => errors.connections_reset += 1,
            _ => {}
        }
    }
}
