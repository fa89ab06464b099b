//! What a protocol does for the clients: it draws requests before the run, writes their bytes and
//! reads the bytes of answers.

use taillab_model::{Operation, Outcome};

/// The largest UDP payload that Ethernet carries unfragmented over IPv4. A fragmented
/// request would be several packets at T1.
pub const MAX_DATAGRAM_BYTES: usize = 1500 - 20 - 8;

/// Draws a codec's requests before the run.
pub trait Planner {
    /// Draws what the first `n` requests ask for: the same for the same seed. By default every
    /// request is the same call.
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        let _ = seed;
        vec![Planned::new(Operation::Call, 0); n]
    }

    /// Typical sizes of requests and answers, which the null responder imitates.
    fn sizes(&self) -> MessageSizes;

    /// What must be stored before a measurement, in the order of sending; may be empty.
    fn to_store(&self) -> Vec<Planned> {
        Vec::new()
    }
}

/// A protocol whose every request is one datagram with a 16-bit request id.
pub trait DatagramProtocol: Planner + Send {
    /// The datagram of a request. Called for every send: must not allocate, format or draw.
    fn encode(&mut self, what: Planned, id: u16) -> &[u8];

    /// Reads one datagram of the server; must accept any bytes.
    ///
    /// # Errors
    /// [`Malformed`] when they are not an answer of this protocol.
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Response<'a>, Malformed>;

    /// What a wrong answer says, for people: without the protocol's frame header, if there is one.
    fn text<'a>(&self, datagram: &'a [u8]) -> &'a [u8] {
        datagram
    }

    /// How the request ended, or `None` if this cannot be the answer to it.
    fn judge(&self, what: Planned, body: &Body<'_>) -> Option<Outcome>;
}

/// A protocol on a stream of bytes, where each connection's answers come in the order
/// of its requests.
pub trait StreamProtocol: Planner + Send {
    /// Appends the bytes of a request to `out`. Called for every send: must not format or draw,
    /// and may allocate only when `out` grows. A protocol may send `tag` and expect it back, as
    /// an echo does; [`StreamProtocol::decode`] gets the same tag.
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>);

    /// Reads the answer to a request at the beginning of `bytes`; must accept any bytes. Bytes of
    /// later answers may follow.
    fn decode(&self, what: Planned, tag: u32, bytes: &[u8]) -> Decoded;

    /// Whether its requests ask the server to close the connection after the answer.
    fn lets_server_close(&self) -> bool {
        false
    }
}

/// What [`StreamProtocol::decode`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// The answer is incomplete. It has `at_least` bytes, more than there are now: do not decode
    /// again before they have come.
    Partial {
        /// Bytes of the answer, counted from its beginning.
        at_least: usize,
    },
    /// The answer is complete.
    Answer {
        /// How many bytes it takes.
        bytes: usize,
        /// How the request ended.
        outcome: Outcome,
    },
    /// The answer is complete, and the server closes the connection after it: requests sent
    /// after this one get no answer.
    LastAnswer {
        /// How many bytes it takes.
        bytes: usize,
        /// How the request ended.
        outcome: Outcome,
    },
    /// The answer has begun, and ends when the server closes the connection. What else comes there belongs to
    /// it.
    UntilClosed {
        /// How the request ends if the connection is closed and not reset.
        outcome: Outcome,
    },
    /// The server ends the connection without having taken the request: it had waited for one too long.
    NotTaken,
    /// Not an answer to this request. It is unknown where the next answer begins.
    Malformed,
}

/// Bytes of a request and of its answer, protocol headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSizes {
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Bytes of an answer.
    pub response_bytes: usize,
}

impl Default for MessageSizes {
    /// The null RPC of Tales of the Tail, section 3.1.
    fn default() -> Self {
        Self {
            request_bytes: 128,
            response_bytes: 128,
        }
    }
}

/// What one request asks for, drawn before the run: operation and key.
///
/// Four bytes and below 2^28, because the record stores the outcome in the same word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned(u32);

impl Planned {
    /// The most keys that a plan can number.
    pub const MAX_KEYS: u32 = 1 << 26;

    /// An operation on the key number `key`.
    ///
    /// # Panics
    /// When `key` is not below [`Planned::MAX_KEYS`].
    pub fn new(operation: Operation, key: u32) -> Self {
        assert!(key < Self::MAX_KEYS, "key number out of range");
        let operation = match operation {
            Operation::Get => 0,
            Operation::Set => 1,
            Operation::Call => 2,
        };
        Self(key << 2 | operation)
    }

    /// What it does.
    #[inline]
    pub fn operation(self) -> Operation {
        match self.0 & 3 {
            0 => Operation::Get,
            1 => Operation::Set,
            _ => Operation::Call,
        }
    }

    /// The number of its key.
    #[inline]
    pub fn key(self) -> u32 {
        self.0 >> 2
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
    /// Its number among the answer's datagrams, from 0.
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
        /// The key that the server names, in the protocol's own way.
        key: &'a [u8],
        /// The value's size.
        bytes: usize,
    },
    /// The key is not there.
    Miss,
    /// The value is stored.
    Stored,
    /// The call is done.
    Done,
    /// The server refused the request, or failed.
    Error,
    /// A datagram after the first one.
    Continuation,
}

/// A datagram that is not an answer of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the datagram is not an answer of the protocol")]
pub struct Malformed;
