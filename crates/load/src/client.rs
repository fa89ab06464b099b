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
    /// Connections with these ports of the client; ids from 0.
    pub(crate) fn new(ports: Vec<u16>) -> Self {
        Self { ports, first_id: 0 }
    }

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
            ids: Ids::new(ports),
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

    #[cfg(test)]
    pub(crate) fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Begins a new count of requests at k = 0 and returns its ids.
    ///
    /// What has arrived by now is thrown away. The ids go on where the last count ended,
    /// so that an answer to one of its requests that is still under way is not taken
    /// for an answer to a new one.
    pub fn begin(&mut self) -> Ids {
        self.transport.discard();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::{Fake, answer, datagram, get, set};

    proptest! {
        /// The latest request with an id is found across any number of wraps.
        #[test]
        fn an_id_leads_back_to_its_latest_request(
            connections in 1_usize..20,
            first_id: u16,
            sent in 1_usize..1_000_000,
            back in 0_usize..100_000,
        ) {
            let ids = Ids { ports: (0..connections as u16).collect(), first_id };
            let k = sent.saturating_sub(1 + back);
            let found = ids.latest(ids.connection_of(k), ids.key_of(k).id, sent).unwrap();
            prop_assert!(found < sent && found >= k);
            prop_assert_eq!(ids.key_of(found), ids.key_of(k));
            prop_assert!(found + ids.period() >= sent);
        }

        #[test]
        fn keys_differ_within_a_period(connections in 1_usize..5, first_id: u16, at: u32) {
            let ids = Ids { ports: (7..7 + connections as u16).collect(), first_id };
            let at = at as usize;
            prop_assert_eq!(ids.key_of(at), ids.key_of(at + ids.period()));
            prop_assert_ne!(ids.key_of(at), ids.key_of(at + 1 + at % (ids.period() - 1)));
        }
    }

    #[test]
    fn an_id_that_was_not_used_yet_leads_nowhere() {
        let ids = Ids {
            ports: vec![1, 2],
            first_id: 10,
        };
        assert_eq!(ids.latest(0, 10, 0), None);
        assert_eq!(ids.latest(0, 10, 1), Some(0));
        assert_eq!(ids.latest(1, 10, 1), None);
        assert_eq!(ids.latest(1, 10, 2), Some(1));
        assert_eq!(ids.latest(0, 11, 2), None);
        assert_eq!(ids.latest(0, 9, 2), None);
    }

    #[test]
    fn each_answer_finds_its_request() {
        let mut client = Fake::client(3, |_, request| vec![answer(request)]);
        for what in [get(), set(), get(), get()] {
            client.send(what).unwrap();
        }
        let asked = [get(), set(), get(), get()];
        let hit = |k| Received::Answer {
            k,
            outcome: Outcome::Hit,
        };
        assert_eq!(client.receive(|k| Some(asked[k])), hit(0));
        // request 1 is taken for a get: the answer does not fit
        assert_eq!(client.receive(|_| Some(get())), Received::Unexpected);
        assert_eq!(client.receive(|_| None), Received::Unexpected);
        assert_eq!(client.receive(|k| Some(asked[k])), hit(3));
        assert_eq!(client.receive(|_| None), Received::Nothing);
    }

    #[test]
    fn late_answers_of_the_count_before_belong_to_nobody() {
        let mut client = Fake::client(2, |_, request| vec![answer(request)]);
        for _ in 0..5 {
            client.send(get()).unwrap();
        }
        let under_way = std::mem::take(&mut client.transport.arriving);
        client.begin();
        client.transport.arriving = under_way;
        for _ in 0..2 {
            client.send(get()).unwrap();
        }
        let found: Vec<_> = (0..7).map(|_| client.receive(|_| Some(get()))).collect();
        assert_eq!(found[..5], [Received::Unexpected; 5]);
        assert!(matches!(found[5], Received::Answer { k: 0, .. }));
        assert!(matches!(found[6], Received::Answer { k: 1, .. }));
    }

    fn parts(id: u16) -> [Vec<u8>; 3] {
        [
            datagram(id, 0, 3, b"VALUE 0042 0 3000\r\nvv"),
            datagram(id, 1, 3, b"vvvv"),
            datagram(id, 2, 3, b"vv\r\nEND\r\n"),
        ]
    }

    #[test]
    fn an_answer_of_several_datagrams_is_complete_with_its_last() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut client =
                Fake::client(1, move |_, _| order.map(|at| parts(0)[at].clone()).to_vec());
            client.send(get()).unwrap();
            let mut next = || client.receive(|_| Some(get()));
            assert_eq!((next(), next()), (Received::Part, Received::Part));
            let whole = Received::Answer {
                k: 0,
                outcome: Outcome::Hit,
            };
            assert_eq!(next(), whole);
        }
    }

    #[test]
    fn parts_that_come_twice_or_too_many_are_no_answer() {
        let mut client = Fake::client(1, |_, _| {
            let [first, second, _] = parts(0);
            let too_many = datagram(0, 1, 65, b"v");
            vec![first.clone(), first, second.clone(), second, too_many]
        });
        client.send(get()).unwrap();
        let found: Vec<_> = (0..5).map(|_| client.receive(|_| Some(get()))).collect();
        let expected = [
            Received::Part,
            Received::Unexpected,
            Received::Part,
            Received::Unexpected,
            Received::Malformed,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn half_answers_without_end_do_not_pile_up() {
        let mut client = Fake::client(1, |_, request| {
            let id = u16::from_be_bytes([request[0], request[1]]);
            vec![parts(id)[1].clone()]
        });
        for _ in 0..10 * PARTIAL_ANSWERS {
            client.send(get()).unwrap();
            assert_eq!(client.receive(|_| Some(get())), Received::Part);
        }
        assert_eq!(client.partial.len(), PARTIAL_ANSWERS);
    }

    proptest! {
        #[test]
        fn any_datagram_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64), id: u8) {
            let mut client = Fake::client(2, move |_, _| {
                let mut near = bytes.clone();
                // an id that is in use, so that the rest is looked at
                if near.len() > 4 {
                    near[0] = 0;
                    near[1] = id % 4;
                }
                vec![bytes.clone(), near]
            });
            for _ in 0..8 {
                client.send(get()).unwrap();
            }
            for _ in 0..16 {
                client.receive(|_| Some(get()));
            }
            prop_assert_eq!(client.receive(|_| None), Received::Nothing);
        }
    }
}
