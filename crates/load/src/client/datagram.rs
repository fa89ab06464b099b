//! Requests that are one datagram each, with an id.

use taillab_model::summary::ClientKind;
use taillab_model::{Monotonic, Nanos, Outcome};

use super::{Client, Draw, Habits, Ids, Keys, ReceiveOutcome, SendOutcome, Sending, Traits};
use crate::protocol::{DatagramProtocol, Planned, Planner};
use crate::transport::udp::UdpSockets;
use crate::transport::{DatagramTransport, NotSent, Receipt};
use crate::wrong_answer::WrongAnswer;

/// Answers of several datagrams that are remembered. One that is still incomplete when this many
/// newer ones have begun is given up, and its request times out.
const PARTIAL_ANSWERS: usize = 256;

/// A client whose requests and answers are datagrams.
pub struct DatagramClient<T = UdpSockets> {
    protocol: Box<dyn DatagramProtocol>,
    pub(crate) transport: T,
    habits: Habits,
    ids: Ids,
    sent: usize,
    /// The requests of each connection, in order; kept only where requests draw their connections and the kernel
    /// stamps what is sent.
    of_connection: Vec<Vec<u32>>,
    /// In the order in which they began.
    partial: Vec<Partial>,
    wrong: Option<WrongAnswer>,
}

/// An answer whose datagrams have not all come.
#[derive(Clone, Copy, Debug)]
struct Partial {
    k: usize,
    /// One bit for each datagram that came.
    seen: u64,
    /// What the datagram with number 0 says, once it is there.
    outcome: Option<Outcome>,
}

impl<T: DatagramTransport> DatagramClient<T> {
    /// A client over connections that are already open.
    pub fn new(transport: T, protocol: Box<dyn DatagramProtocol>) -> Self {
        let ports = (0..transport.connections())
            .map(|c| transport.port(c))
            .collect();
        Self {
            protocol,
            transport,
            habits: Habits::POOL,
            ids: Ids::new(ports),
            sent: 0,
            of_connection: Vec::new(),
            partial: Vec::with_capacity(PARTIAL_ANSWERS),
            wrong: None,
        }
    }

    /// As [`AnyClient::with`](super::AnyClient::with). Requests on a schedule draw their connections or, in a pool,
    /// use them in turn, and none waits.
    #[must_use]
    pub fn with(mut self, habits: Habits) -> Self {
        self.habits = Habits {
            pipeline: None,
            reserve: 0,
            ..habits
        };
        self
    }

    /// Notes one datagram of an answer that has several.
    fn join(
        &mut self,
        k: usize,
        sequence: u16,
        datagrams: u16,
        outcome: Option<Outcome>,
    ) -> ReceiveOutcome {
        if datagrams > 64 {
            return ReceiveOutcome::Malformed;
        }
        let bit = 1_u64 << sequence;
        let at = match self.partial.iter().position(|p| p.k == k) {
            Some(at) => at,
            None => self.new_partial(k),
        };
        let partial = &mut self.partial[at];
        if partial.seen & bit != 0 {
            return ReceiveOutcome::Unexpected;
        }
        partial.seen |= bit;
        partial.outcome = partial.outcome.or(outcome);
        if partial.seen.count_ones() < u32::from(datagrams) {
            return ReceiveOutcome::Part;
        }
        match self.partial.remove(at).outcome {
            Some(outcome) => ReceiveOutcome::Answer { k, outcome },
            // the datagrams contradict each other about how many there are
            None => ReceiveOutcome::Malformed,
        }
    }

    fn new_partial(&mut self, k: usize) -> usize {
        if self.partial.len() == PARTIAL_ANSWERS {
            self.partial.remove(0);
        }
        self.partial.push(Partial {
            k,
            seen: 0,
            outcome: None,
        });
        self.partial.len() - 1
    }
}

/// Keeps the first wrong answer.
#[cold]
fn note(wrong: &mut Option<WrongAnswer>, text: &[u8]) {
    wrong.get_or_insert_with(|| WrongAnswer::of(text));
}

impl<T: DatagramTransport> Client for DatagramClient<T> {
    fn traits(&self) -> Traits {
        Traits {
            connections: self.transport.connections(),
            key_period: self.ids.period(),
            is_lossy: true,
            takes_idle_connection: false,
            habits: self.habits,
            draw: self.ids.draw,
            may_wait: false,
            closing: None,
            stamps: self.transport.stamps(),
        }
    }

    fn planner(&self) -> &dyn Planner {
        &*self.protocol
    }

    /// The ids continue where the last count ended, so that a late answer to one of its requests is
    /// not taken for an answer to a new one.
    fn begin(&mut self, requests: usize, sending: Sending) {
        self.transport.discard();
        let last = self.sent.checked_sub(1);
        let used = last.map_or(0, |last| self.ids.counted(last) + 1);
        self.ids.first_id = self.ids.first_id.wrapping_add(used as u16);
        let connections = self.transport.connections();
        self.ids.draw = match (self.habits.kind, sending) {
            (ClientKind::Independent, Sending::Scheduled { seed }) => {
                Some(Draw::new(seed, connections))
            }
            _ => None,
        };
        self.of_connection = match self.ids.draw {
            Some(_) if self.transport.stamps().sent => {
                // a quarter more than each has on average
                let room = requests / connections * 5 / 4 + 64;
                (0..connections).map(|_| Vec::with_capacity(room)).collect()
            }
            _ => Vec::new(),
        };
        self.sent = 0;
        self.partial.clear();
    }

    fn keys(&mut self) -> Keys {
        Keys::Counted(self.ids.clone())
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<SendOutcome, NotSent> {
        let k = self.sent;
        self.sent += 1;
        let connection = self.ids.connection_of(k);
        let datagram = self.protocol.encode(what, self.ids.id_of(k));
        self.transport.send(connection, datagram)?;
        if let Some(requests) = self.of_connection.get_mut(connection) {
            requests.push(k as u32);
        }
        Ok(SendOutcome::Gone)
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
        let (connection, bytes) = match self.transport.receive() {
            Receipt::Nothing => return ReceiveOutcome::Nothing,
            Receipt::Refused => return ReceiveOutcome::Refused,
            Receipt::Datagram { connection, bytes } => (connection, bytes),
        };
        let Ok(response) = self.protocol.decode(bytes) else {
            note(&mut self.wrong, self.protocol.text(bytes));
            return ReceiveOutcome::Malformed;
        };
        let Some(k) = self.ids.latest(connection, response.id, self.sent) else {
            return ReceiveOutcome::Unexpected;
        };
        let Some(what) = outstanding(k) else {
            return ReceiveOutcome::Unexpected;
        };
        let mut outcome = None;
        if response.sequence == 0 {
            outcome = self.protocol.judge(what, &response.body);
            if outcome == Some(Outcome::ServerError) {
                note(&mut self.wrong, self.protocol.text(bytes));
            }
            match outcome {
                None => return ReceiveOutcome::Unexpected,
                Some(outcome) if response.datagrams == 1 => {
                    return ReceiveOutcome::Answer { k, outcome };
                }
                Some(_) => {}
            }
        }
        let (sequence, datagrams) = (response.sequence, response.datagrams);
        self.join(k, sequence, datagrams, outcome)
    }

    fn wait(&mut self, at_most: Nanos) {
        self.transport.wait(at_most);
    }

    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.wrong.as_ref()
    }

    #[inline]
    fn kernel_received(&self) -> Option<Monotonic> {
        self.transport.stamp()
    }

    #[inline]
    fn kernel_sent(&mut self) -> Option<(usize, Monotonic)> {
        let departure = self.transport.departure()?;
        let k = match self.ids.draw {
            None => departure.number * self.transport.connections() + departure.connection,
            Some(_) => {
                let requests = self.of_connection.get(departure.connection)?;
                *requests.get(departure.number)? as usize
            }
        };
        (k < self.sent).then_some((k, departure.at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::{Fake, answer, datagram, get, set};

    #[test]
    fn each_answer_finds_its_request() {
        let mut client = Fake::client(3, |_, request| vec![answer(request)]);
        for what in [get(), set(), get(), get()] {
            client.send(what).unwrap();
        }
        let asked = [get(), set(), get(), get()];
        let hit = |k| ReceiveOutcome::Answer {
            k,
            outcome: Outcome::Hit,
        };
        assert_eq!(client.receive(|k| Some(asked[k])), hit(0));
        // request 1 is taken for a get: the answer does not fit
        assert_eq!(client.receive(|_| Some(get())), ReceiveOutcome::Unexpected);
        assert_eq!(client.receive(|_| None), ReceiveOutcome::Unexpected);
        assert_eq!(client.receive(|k| Some(asked[k])), hit(3));
        assert_eq!(client.receive(|_| None), ReceiveOutcome::Nothing);
    }

    /// Over several rounds of the ids.
    #[test]
    fn answers_find_the_requests_of_independent_clients() {
        let independent = Habits::independent(None);
        let mut client = Fake::client(3, |_, request| vec![answer(request)]).with(independent);
        client.begin(200_000, Sending::Scheduled { seed: 5 });
        let draw = Draw::new(5, 3);
        for k in 0..200_000 {
            client.send(get()).unwrap();
            assert_eq!(client.transport.arriving[0].0, draw.of(k));
            let found = client.receive(|_| Some(get()));
            assert!(
                matches!(found, ReceiveOutcome::Answer { k: of, .. } if of == k),
                "{k}: {found:?}"
            );
        }
        assert_eq!(client.keys().connection_of(100_000), Some(draw.of(100_000)));
        // those of a closed loop take them in turn
        client.begin(4, Sending::Answered { seed: 5 });
        let places = (0..4).map(|k| client.keys().connection_of(k).unwrap());
        assert_eq!(places.collect::<Vec<_>>(), [0, 1, 2, 0]);
    }

    #[test]
    fn late_answers_of_the_count_before_belong_to_nobody() {
        let mut client = Fake::client(2, |_, request| vec![answer(request)]);
        for _ in 0..5 {
            client.send(get()).unwrap();
        }
        let under_way = std::mem::take(&mut client.transport.arriving);
        client.begin(0, Sending::Scheduled { seed: 1 });
        client.transport.arriving = under_way;
        for _ in 0..2 {
            client.send(get()).unwrap();
        }
        let found: Vec<_> = (0..7).map(|_| client.receive(|_| Some(get()))).collect();
        assert_eq!(found[..5], [ReceiveOutcome::Unexpected; 5]);
        assert!(matches!(found[5], ReceiveOutcome::Answer { k: 0, .. }));
        assert!(matches!(found[6], ReceiveOutcome::Answer { k: 1, .. }));
    }

    fn parts(id: u16) -> [Vec<u8>; 3] {
        [
            datagram(id, 0, 3, b"VALUE 0042 0 3\r\nvv"),
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
            assert_eq!(
                (next(), next()),
                (ReceiveOutcome::Part, ReceiveOutcome::Part)
            );
            let whole = ReceiveOutcome::Answer {
                k: 0,
                outcome: Outcome::Hit,
            };
            assert_eq!(next(), whole);
            // it no longer takes a place that others are looked for behind
            assert!(client.partial.is_empty());
        }
    }

    #[test]
    fn the_first_wrong_answer_is_kept_without_its_frame() {
        let mut client = Fake::client(1, |k, request| {
            let id = u16::from_be_bytes([request[0], request[1]]);
            vec![match k {
                0 => answer(request),
                1 => datagram(id, 0, 1, b"SERVER_ERROR busy\r\n"),
                _ => b"garbage".to_vec(),
            }]
        });
        let mut said = || {
            client.send(get()).unwrap();
            client.receive(|_| Some(get()));
            client.wrong_answer().map(ToString::to_string)
        };
        assert_eq!(said(), None);
        let busy = Some("SERVER_ERROR busy".to_owned());
        assert_eq!((said(), said()), (busy.clone(), busy));
        // what has no frame is shown as it is
        let text = |bytes: &[u8]| crate::fake::protocol().unwrap().text(bytes).to_vec();
        assert_eq!(
            text(b"HTTP/1.1 400 Bad Request"),
            b"HTTP/1.1 400 Bad Request"
        );
        assert_eq!(text(b"short"), b"short");
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
            ReceiveOutcome::Part,
            ReceiveOutcome::Unexpected,
            ReceiveOutcome::Part,
            ReceiveOutcome::Unexpected,
            ReceiveOutcome::Malformed,
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
            assert_eq!(client.receive(|_| Some(get())), ReceiveOutcome::Part);
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
            prop_assert_eq!(client.receive(|_| None), ReceiveOutcome::Nothing);
        }
    }
}
