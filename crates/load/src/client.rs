//! Joins transport and protocol: sends request after request, and says which of them
//! an answer belongs to.

use std::net::SocketAddr;

use taillab_model::RequestKey;

use crate::LoadError;
use crate::engine::Outcome;
use crate::protocol::{DatagramProtocol, Planned};
use crate::transport::udp::UdpSockets;
use crate::transport::{NotSent, Receipt, Transport};

/// Answers of several datagrams that may be under way at once; beyond that the oldest
/// is given up (its request then times out).
const PARTIAL_ANSWERS: usize = 256;

/// The ids of requests: which connection and which 16-bit id request number k has.
///
/// Requests take the connections in turn and count the ids of each connection up, so
/// an id comes back after 65,536 × connections requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    ports: Vec<u16>,
    first_id: u16,
}

impl Ids {
    /// The connection that request `k` takes.
    #[inline]
    pub fn connection_of(&self, k: usize) -> usize {
        k % self.ports.len()
    }

    /// What the packets of request `k` carry.
    #[inline]
    pub fn key_of(&self, k: usize) -> RequestKey {
        let n = self.ports.len();
        RequestKey {
            port: self.ports[k % n],
            id: self.first_id.wrapping_add((k / n) as u16),
        }
    }

    /// How many requests later the same key comes again.
    pub fn period(&self) -> usize {
        self.ports.len() << 16
    }

    /// The latest of the first `sent` requests that has this id on this connection.
    #[inline]
    fn latest(&self, connection: usize, id: u16, sent: usize) -> Option<usize> {
        let n = self.ports.len();
        // requests sent on this connection, and the last of them
        let last = ((sent + n - 1 - connection) / n).checked_sub(1)?;
        let wanted = id.wrapping_sub(self.first_id);
        let back = (last as u16).wrapping_sub(wanted);
        Some(last.checked_sub(usize::from(back))? * n + connection)
    }
}

/// What one look for an answer found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// No datagram.
    Nothing,
    /// The answer to request `k`, complete.
    Answer {
        /// Number of the request.
        k: usize,
        /// How it ended.
        outcome: Outcome,
    },
    /// A datagram of an answer that has more to come.
    Part,
    /// An answer that no outstanding request asked for.
    Unexpected,
    /// Bytes that are no answer.
    Malformed,
    /// The server's host says that nothing listens there.
    Refused,
}

/// A client with its connections, ready to send.
#[derive(Debug)]
pub struct Client<P, T = UdpSockets> {
    protocol: P,
    transport: T,
    ids: Ids,
    sent: usize,
    partial: Vec<Partial>,
    next_partial: usize,
}

/// An answer of which not all datagrams have come.
#[derive(Clone, Copy, Debug)]
struct Partial {
    k: usize,
    /// One bit for each datagram that came.
    seen: u64,
    /// What the first datagram said, once it is there.
    outcome: Option<Outcome>,
}

impl<P: DatagramProtocol> Client<P> {
    /// Opens `connections` UDP sockets in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`UdpSockets::connect`].
    pub fn connect(server: SocketAddr, connections: usize, protocol: P) -> Result<Self, LoadError> {
        Ok(Self::new(
            UdpSockets::connect(server, connections)?,
            protocol,
        ))
    }
}

impl<P: DatagramProtocol, T: Transport> Client<P, T> {
    /// A client over connections that are already open.
    pub fn new(transport: T, protocol: P) -> Self {
        let ports = (0..transport.connections())
            .map(|c| transport.port(c))
            .collect();
        Self {
            protocol,
            transport,
            ids: Ids { ports, first_id: 0 },
            sent: 0,
            partial: Vec::with_capacity(PARTIAL_ANSWERS),
            next_partial: 0,
        }
    }

    /// The protocol it speaks.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.transport.connections()
    }

    /// Begins a new count of requests at k = 0 and returns its ids.
    ///
    /// The ids go on where the last count ended, so that a late answer to one of its
    /// requests is not taken for an answer to a new one.
    pub fn begin(&mut self) -> Ids {
        let used = self.sent.div_ceil(self.transport.connections());
        self.ids.first_id = self.ids.first_id.wrapping_add(used as u16);
        self.sent = 0;
        self.partial.clear();
        self.next_partial = 0;
        self.ids.clone()
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// [`NotSent`]; the request has used up its number and id all the same.
    #[inline]
    pub fn send(&mut self, what: Planned) -> Result<(), NotSent> {
        let k = self.sent;
        self.sent += 1;
        let datagram = self.protocol.encode(what, self.ids.key_of(k).id);
        self.transport.send(self.ids.connection_of(k), datagram)
    }

    /// Looks once for an answer. `outstanding(k)` says what request `k` asked for, or
    /// `None` if it no longer waits for an answer.
    #[inline]
    pub fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> Received {
        let (connection, bytes) = match self.transport.receive() {
            Receipt::Nothing => return Received::Nothing,
            Receipt::Refused => return Received::Refused,
            Receipt::Datagram { connection, bytes } => (connection, bytes),
        };
        let Ok(response) = self.protocol.decode(bytes) else {
            return Received::Malformed;
        };
        let Some(k) = self.ids.latest(connection, response.id, self.sent) else {
            return Received::Unexpected;
        };
        let Some(what) = outstanding(k) else {
            return Received::Unexpected;
        };
        if response.datagrams == 1 {
            return match self.protocol.judge(what, &response.body) {
                Some(outcome) => Received::Answer { k, outcome },
                None => Received::Unexpected,
            };
        }
        let outcome = if response.sequence == 0 {
            let outcome = self.protocol.judge(what, &response.body);
            if outcome.is_none() {
                return Received::Unexpected;
            }
            outcome
        } else {
            None
        };
        let (sequence, datagrams) = (response.sequence, response.datagrams);
        self.join(k, sequence, datagrams, outcome)
    }

    /// Notes one datagram of several.
    fn join(
        &mut self,
        k: usize,
        sequence: u16,
        datagrams: u16,
        outcome: Option<Outcome>,
    ) -> Received {
        if datagrams > 64 {
            return Received::Malformed;
        }
        let bit = 1_u64 << sequence;
        let at = match self.partial.iter().position(|p| p.k == k) {
            Some(at) => at,
            None => self.new_partial(k),
        };
        let partial = &mut self.partial[at];
        if partial.seen & bit != 0 {
            return Received::Unexpected;
        }
        partial.seen |= bit;
        partial.outcome = partial.outcome.or(outcome);
        if partial.seen.count_ones() < u32::from(datagrams) {
            return Received::Part;
        }
        let outcome = partial.outcome;
        // The slot is free for the next answer; no request has this number.
        partial.k = usize::MAX;
        match outcome {
            Some(outcome) => Received::Answer { k, outcome },
            // the datagrams contradict each other about how many there are
            None => Received::Malformed,
        }
    }

    fn new_partial(&mut self, k: usize) -> usize {
        let fresh = Partial {
            k,
            seen: 0,
            outcome: None,
        };
        if self.partial.len() < PARTIAL_ANSWERS {
            self.partial.push(fresh);
            return self.partial.len() - 1;
        }
        let at = self.next_partial;
        self.next_partial = (at + 1) % PARTIAL_ANSWERS;
        self.partial[at] = fresh;
        at
    }
}
