//! Protocols: what a request holds and what an answer says.

pub mod memcached_udp;

use taillab_model::Operation;

use crate::engine::Outcome;

/// A protocol whose every request is one datagram with a 16-bit request id.
pub trait DatagramProtocol {
    /// Draws what the first `n` requests ask for, reproducibly.
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned>;

    /// The datagram of a request; must neither allocate nor format nor draw.
    fn encode(&mut self, what: Planned, id: u16) -> &[u8];

    /// Reads one datagram of the server; any bytes are allowed.
    ///
    /// # Errors
    /// [`Malformed`] when they are not an answer of this protocol.
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Response<'a>, Malformed>;

    /// How the request ended, or `None` if this cannot be the answer to it.
    fn judge(&self, what: Planned, body: &Body<'_>) -> Option<Outcome>;
}

/// What one request asks for, drawn before the run: operation and key.
///
/// Four bytes and below 2^28, because the record keeps it beside the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned(u32);

impl Planned {
    /// The most keys that can be told apart.
    pub const MAX_KEYS: u32 = 1 << 27;

    /// An operation on the key number `key`.
    ///
    /// # Panics
    /// When `key` is not below [`Planned::MAX_KEYS`].
    pub fn new(operation: Operation, key: u32) -> Self {
        assert!(key < Self::MAX_KEYS, "key number out of range");
        Self(key << 1 | u32::from(operation == Operation::Set))
    }

    /// What it does.
    #[inline]
    pub fn operation(self) -> Operation {
        if self.0 & 1 == 1 {
            Operation::Set
        } else {
            Operation::Get
        }
    }

    /// To which key.
    #[inline]
    pub fn key(self) -> u32 {
        self.0 >> 1
    }

    pub(crate) fn to_bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// One datagram of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The id of the request it answers.
    pub id: u16,
    /// Which of the answer's datagrams it is, from 0.
    pub sequence: u16,
    /// How many datagrams the answer has; more than `sequence`.
    pub datagrams: u16,
    /// What it says.
    pub body: Body<'a>,
}

/// What an answer's datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The value of a key (its first bytes, when the answer has several datagrams).
    Value {
        /// The key that the server names.
        key: &'a [u8],
        /// The value's size.
        bytes: usize,
    },
    /// The key is not there.
    Miss,
    /// The value is stored.
    Stored,
    /// The server could not or would not.
    Error,
    /// A datagram after the first one.
    Continuation,
}

/// A datagram that is not an answer of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the datagram is not an answer of the protocol")]
pub struct Malformed;
