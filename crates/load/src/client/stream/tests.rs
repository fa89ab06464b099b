//! The client of streams against connections that are a function: no network.

use proptest::prelude::*;
use taillab_model::summary::Connect;
use taillab_model::{Operation, SentKey};

use super::*;
use crate::protocol::MessageSizes;
use crate::transport::Sockets;

mod waiting;

/// A request is its tag and the length of what is wanted; the answer is that length, the
/// tag, and that many bytes.
struct Framed;

impl Planner for Framed {
    fn plan(&self, n: usize, _seed: u64) -> Vec<Planned> {
        vec![Planned::new(Operation::Call, 0); n]
    }

    fn sizes(&self) -> MessageSizes {
        MessageSizes {
            request_bytes: 5,
            response_bytes: 5,
        }
    }
}

impl StreamProtocol for Framed {
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&tag.to_be_bytes());
        out.push(what.key() as u8);
    }

    fn decode(&self, what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let Some(&length) = bytes.first() else {
            return Decoded::Partial { at_least: 1 };
        };
        let whole = 5 + usize::from(length);
        if u32::from(length) != what.key() {
            Decoded::Malformed
        } else if bytes.len() < whole {
            Decoded::Partial { at_least: whole }
        } else if bytes[1..5] != tag.to_be_bytes() {
            Decoded::Malformed
        } else if bytes[5..whole].ends_with(b"last") {
            Decoded::LastAnswer {
                bytes: whole,
                outcome: Outcome::Done,
            }
        } else {
            Decoded::Answer {
                bytes: whole,
                outcome: Outcome::Done,
            }
        }
    }
}

const SCHEDULED: Sending = Sending::Scheduled { seed: 1 };

fn answer(request: &[u8]) -> Vec<u8> {
    let fill = vec![b'.'; usize::from(request[4])];
    [&request[4..], &request[..4], &fill].concat()
}

/// What a connection delivers, in order.
#[derive(Debug, Default)]
struct Line {
    bytes: VecDeque<u8>,
    /// After the bytes.
    end: Option<Ending>,
    is_closed: bool,
}

type Server = Box<dyn FnMut(usize, &[u8]) -> (Vec<u8>, Option<Ending>)>;

struct Fake {
    lines: Vec<Line>,
    server: Server,
    /// For each read: which of the connections that have something is read, and how many bytes.
    chunks: Vec<(usize, usize)>,
    reads: usize,
    current: Vec<u8>,
    opened: VecDeque<usize>,
}

impl Fake {
    fn client(
        connections: usize,
        chunks: Vec<(usize, usize)>,
        server: impl FnMut(usize, &[u8]) -> (Vec<u8>, Option<Ending>) + 'static,
    ) -> StreamClient<Self> {
        let fake = Self {
            lines: (0..connections).map(|_| Line::default()).collect(),
            server: Box::new(server),
            chunks,
            reads: 0,
            current: Vec::new(),
            opened: VecDeque::new(),
        };
        StreamClient::new(fake, Box::new(Framed))
    }
}

impl Sockets for Fake {
    fn connections(&self) -> usize {
        self.lines.len()
    }
}

impl StreamTransport for Fake {
    fn origin(&self, connection: usize) -> Option<Origin> {
        Some(Origin {
            port: 1 + connection as u16,
            sequence: Some(u32::MAX - 6),
        })
    }

    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), NotTaken> {
        let line = &mut self.lines[connection];
        if line.is_closed || line.end.is_some() {
            return Err(NotTaken::Ended);
        }
        let (answer, end) = (self.server)(connection, bytes);
        line.bytes.extend(answer);
        line.end = end;
        Ok(())
    }

    fn receive(&mut self, _expected: Option<usize>) -> Event {
        if let Some(connection) = self.opened.pop_front() {
            return Event::Opened(connection);
        }
        let has_news =
            |line: &Line| !line.is_closed && (!line.bytes.is_empty() || line.end.is_some());
        let waiting: Vec<_> = (0..self.lines.len())
            .filter(|&c| has_news(&self.lines[c]))
            .collect();
        if waiting.is_empty() {
            return Event::Nothing;
        }
        let (which, most) = self.chunks[self.reads % self.chunks.len()];
        self.reads += 1;
        let connection = waiting[which % waiting.len()];
        let line = &mut self.lines[connection];
        if line.bytes.is_empty() {
            line.is_closed = true;
            let ending = line.end.take().unwrap();
            return Event::Ended { connection, ending };
        }
        let n = most.clamp(1, line.bytes.len());
        self.current = line.bytes.drain(..n).collect();
        Event::Bytes(connection)
    }

    fn bytes(&self) -> &[u8] {
        &self.current
    }

    fn serves(&mut self, _connection: usize) {}

    fn abandon(&mut self, connection: usize) {
        assert!(!self.lines[connection].is_closed);
        self.lines[connection] = Line {
            is_closed: true,
            ..Line::default()
        };
    }

    fn tend(&mut self, _until_next: Nanos) {
        if let Some(connection) = self.lines.iter().position(|line| line.is_closed) {
            self.lines[connection] = Line::default();
            self.opened.push_back(connection);
        }
    }
}

fn wanted(length: u8) -> Planned {
    Planned::new(Operation::Call, length.into())
}

/// A caller that keeps account: every request ends at most once.
#[derive(Default)]
struct Caller {
    asked: Vec<Planned>,
    ended: Vec<Option<Outcome>>,
    order: Vec<usize>,
    others: Vec<ReceiveOutcome>,
}

impl Caller {
    fn send(&mut self, client: &mut StreamClient<Fake>, length: u8) {
        let sent = client.send(wanted(length));
        self.asked.push(wanted(length));
        self.ended.push(sent.err().map(|_| Outcome::SendFailed));
    }

    /// Looks once; returns whether there was anything.
    fn look(&mut self, client: &mut StreamClient<Fake>) -> bool {
        let (asked, ended) = (&self.asked, &self.ended);
        let waits = |k: usize| ended[k].is_none().then_some(asked[k]);
        match client.receive(waits) {
            ReceiveOutcome::Nothing => return false,
            ReceiveOutcome::Answer { k, outcome } | ReceiveOutcome::Lost { k, outcome } => {
                assert_eq!(self.ended[k], None, "request {k} ended twice");
                self.ended[k] = Some(outcome);
                self.order.push(k);
            }
            other => self.others.push(other),
        }
        while let Some(released) = client.send_waiting(|_, _| true) {
            if let Some(Err(_)) = released.sent {
                self.ended[released.k] = Some(Outcome::SendFailed);
            }
        }
        true
    }

    fn look_until_nothing(&mut self, client: &mut StreamClient<Fake>) {
        while self.look(client) {}
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.ended.iter().filter(|&&e| e == Some(outcome)).count()
    }

    fn others(&self, what: ReceiveOutcome) -> usize {
        self.others.iter().filter(|&&other| other == what).count()
    }
}

fn chunks() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((0_usize..8, 1_usize..300), 1..20)
}

/// Any way in which clients use their connections.
fn habits() -> impl Strategy<Value = Habits> {
    let kinds = prop_oneof![Just(ClientKind::Independent), Just(ClientKind::Pooled)];
    (kinds, 0_u32..4, 0_usize..3).prop_map(|(kind, pipeline, reserve)| Habits {
        kind,
        pipeline: NonZeroU32::new(pipeline),
        reserve,
        connect: Connect::Once,
    })
}

/// One request at a time on each connection.
fn one_at_a_time(kind: ClientKind) -> Habits {
    Habits {
        kind,
        pipeline: NonZeroU32::new(1),
        reserve: 0,
        connect: Connect::Once,
    }
}

proptest! {
    /// Each request of independent clients has the connection that it drew, and no connection more than
    /// it may have at once.
    #[test]
    fn independent_clients_wait_for_their_own_connections(
        connections in 1_usize..6,
        most in 1_u32..4,
        chunks in chunks(),
        steps in proptest::collection::vec((any::<u8>(), 0_u32..4), 1..100),
    ) {
        let mut client = Fake::client(connections, chunks, |_, request| (answer(request), None))
            .with(Habits::independent(NonZeroU32::new(most)));
        client.begin(steps.len(), SCHEDULED);
        let mut caller = Caller::default();
        for &(length, looks) in &steps {
            caller.send(&mut client, length);
            for _ in 0..looks {
                caller.look(&mut client);
            }
            prop_assert!((0..connections).all(|c| client.rotation.depth(c).unwrap() <= most));
        }
        caller.look_until_nothing(&mut client);
        prop_assert_eq!(caller.count(Outcome::Done), steps.len());
        let (keys, draw) = (client.keys(), Draw::new(1, connections));
        prop_assert!((0..steps.len()).all(|k| keys.connection_of(k) == Some(draw.of(k))));
        for connection in 0..connections {
            let of_it = caller.order.iter().filter(|&&k| draw.of(k) == connection);
            prop_assert!(of_it.is_sorted());
        }
    }

    /// However the kernel cuts the answers, and whenever they are looked for.
    #[test]
    fn any_chunks_give_the_same_answers(
        connections in 1_usize..6,
        chunks in chunks(),
        steps in proptest::collection::vec((any::<u8>(), 0_u32..4), 1..100),
    ) {
        let mut client = Fake::client(connections, chunks, |_, request| (answer(request), None));
        client.begin(steps.len(), SCHEDULED);
        let mut caller = Caller::default();
        for &(length, looks) in &steps {
            caller.send(&mut client, length);
            for _ in 0..looks {
                caller.look(&mut client);
            }
        }
        caller.look_until_nothing(&mut client);
        prop_assert_eq!(caller.count(Outcome::Done), steps.len());
        prop_assert_eq!(client.pending.len(), 0);
        prop_assert_eq!(caller.others.len(), caller.others(ReceiveOutcome::Part));
        // each connection answers in its order
        let keys = client.keys();
        for connection in 0..connections {
            let of_it = caller.order.iter().filter(|&&k| keys.connection_of(k) == Some(connection));
            prop_assert!(of_it.is_sorted());
        }
    }

    /// Whatever bytes come, and whenever connections end: every request ends once, and
    /// the client goes on.
    #[test]
    fn any_bytes_are_survived(
        connections in 1_usize..5,
        chunks in chunks(),
        served in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..20), 0_u8..10),
            1..40,
        ),
        steps in proptest::collection::vec((0_u8..4, 0_u32..4), 1..100),
        habits in habits(),
    ) {
        let mut k = 0;
        let mut client = Fake::client(connections, chunks, move |_, request| {
            let (bytes, how) = &served[k % served.len()];
            k += 1;
            match how {
                0..4 => (answer(request), None),
                4 => ([&answer(request)[..], bytes].concat(), None),
                5 => (bytes.clone(), None),
                6 => (answer(request)[..3].to_vec(), Some(Ending::Closed)),
                7 => (answer(request), Some(Ending::Closed)),
                8 => (Vec::new(), Some(Ending::Reset)),
                _ => (answer(request).repeat(2), None),
            }
        })
        .with(habits);
        client.begin(steps.len(), SCHEDULED);
        let mut caller = Caller::default();
        for &(length, looks) in &steps {
            caller.send(&mut client, length);
            for _ in 0..looks {
                caller.look(&mut client);
            }
            client.tend(Nanos::MAX);
        }
        // what waits for a connection goes when that is closed and opened again
        for _ in 0..=steps.len() {
            caller.look_until_nothing(&mut client);
            for line in &mut client.transport.lines {
                line.end = (!line.is_closed).then_some(Ending::Closed);
            }
            caller.look_until_nothing(&mut client);
            if client.waiting.len() == 0 {
                break;
            }
            (0..connections).for_each(|_| client.tend(Nanos::MAX));
        }
        prop_assert!(caller.ended.iter().all(Option::is_some));
        prop_assert_eq!(client.pending.len(), 0);
    }
}

const WHOLE: [(usize, usize); 1] = [(0, usize::MAX)];

#[test]
fn idle_connections_are_taken_in_turn_and_keys_follow_the_bytes() {
    let mut client = Fake::client(2, WHOLE.to_vec(), |_, request| (answer(request), None));
    client.begin(4, SCHEDULED);
    let mut caller = Caller::default();
    for _ in 0..4 {
        caller.send(&mut client, 0);
        caller.look_until_nothing(&mut client);
    }
    let keys = client.keys();
    let connections: Vec<_> = (0..4).map(|k| keys.connection_of(k).unwrap()).collect();
    assert_eq!(connections, [0, 1, 0, 1]);
    // five bytes each, across the wrap of the sequence numbers
    let named: Vec<_> = (0..4).map(|k| keys.key_of(k).unwrap()).collect();
    let key = |port, id| SentKey { port, id };
    assert_eq!(
        named,
        [key(1, 65_534), key(2, 65_534), key(1, 3), key(2, 3)]
    );
}

/// The late answer to a request that was given up is not taken for that of the next one.
#[test]
fn late_answers_are_given_to_nobody_else() {
    let mut client = Fake::client(1, WHOLE.to_vec(), |_, request| (answer(request), None));
    for length in [1, 2, 3] {
        client.send(wanted(length)).unwrap();
    }
    let mut found = || client.receive(|k| (k == 2).then_some(wanted(3)));
    assert_eq!([found(), found()], [ReceiveOutcome::Late; 2]);
    let third = ReceiveOutcome::Answer {
        k: 2,
        outcome: Outcome::Done,
    };
    assert_eq!(found(), third);
}

#[test]
fn requests_of_an_earlier_count_are_not_mixed_up_with_new_ones() {
    let mut silent = 3;
    let mut client = Fake::client(2, WHOLE.to_vec(), move |_, request| {
        silent -= 1;
        match silent {
            0.. => (answer(request)[..4].to_vec(), None),
            _ => (answer(request), None),
        }
    });
    for _ in 0..3 {
        client.send(wanted(7)).unwrap();
    }
    client.begin(1, SCHEDULED);
    let mut caller = Caller::default();
    caller.send(&mut client, 7);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [Some(Outcome::Done)]);
    assert_eq!(client.pending.len(), 0);
}

#[test]
fn a_malformed_answer_costs_its_connection() {
    let mut served = 0;
    let mut client = Fake::client(1, WHOLE.to_vec(), move |_, request| {
        served += 1;
        match served {
            2 => (b"\xffgarbage".to_vec(), None),
            _ => (answer(request), None),
        }
    });
    let mut caller = Caller::default();
    for _ in 0..4 {
        caller.send(&mut client, 9);
    }
    caller.look_until_nothing(&mut client);
    let expected = [
        Outcome::Done,
        Outcome::Malformed,
        Outcome::ConnectionLost,
        Outcome::ConnectionLost,
    ];
    assert_eq!(caller.ended, expected.map(Some));
    // nothing is up until it is opened again
    caller.send(&mut client, 9);
    assert_eq!(caller.ended[4], Some(Outcome::SendFailed));
    client.tend(Nanos::MAX);
    caller.look_until_nothing(&mut client);
    caller.send(&mut client, 9);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended[5], Some(Outcome::Done));
    let ends = [
        ReceiveOutcome::ConnectionClosed,
        ReceiveOutcome::ConnectionReset,
    ];
    assert_eq!(ends.map(|end| caller.others(end)), [0, 0]);
}

#[test]
fn an_answer_that_comes_twice_is_unexpected_once() {
    let twice = |_, request: &[u8]| (answer(request).repeat(2), None);
    let mut client = Fake::client(1, WHOLE.to_vec(), twice);
    let mut caller = Caller::default();
    caller.send(&mut client, 9);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [Some(Outcome::Done)]);
    assert_eq!(caller.others(ReceiveOutcome::Unexpected), 1);
}

#[test]
fn ends_are_counted_by_kind() {
    for (ending, expected) in [
        (Ending::Closed, ReceiveOutcome::ConnectionClosed),
        (Ending::Reset, ReceiveOutcome::ConnectionReset),
    ] {
        // in the middle of the second answer
        let mut served = 0;
        let mut client = Fake::client(1, vec![(0, 7)], move |_, request| {
            served += 1;
            match served {
                1 => (answer(request), None),
                _ => (answer(request)[..6].to_vec(), Some(ending)),
            }
        });
        let mut caller = Caller::default();
        caller.send(&mut client, 9);
        caller.send(&mut client, 9);
        caller.look_until_nothing(&mut client);
        let outcomes = [Outcome::Done, Outcome::ConnectionLost];
        assert_eq!(caller.ended, outcomes.map(Some));
        assert_eq!(caller.others(expected), 1);
    }
}

#[test]
fn an_answer_that_announces_the_end_is_the_last() {
    let mut client = Fake::client(1, WHOLE.to_vec(), |_, request| {
        let mut answer = answer(request);
        let n = answer.len();
        answer[n - 4..].copy_from_slice(b"last");
        (answer, None)
    });
    let mut caller = Caller::default();
    caller.send(&mut client, 9);
    caller.send(&mut client, 9);
    caller.look_until_nothing(&mut client);
    let outcomes = [Outcome::Done, Outcome::ConnectionLost];
    assert_eq!(caller.ended, outcomes.map(Some));
    client.tend(Nanos::MAX);
    caller.look_until_nothing(&mut client);
    caller.send(&mut client, 9);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended[2], Some(Outcome::Done));
}

/// Only connections in the middle of an answer have a buffer.
#[test]
fn leftovers_are_given_back() {
    let mut client = Fake::client(100, vec![(0, 3)], |_, request| (answer(request), None));
    let mut caller = Caller::default();
    for _ in 0..100 {
        caller.send(&mut client, 200);
    }
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.count(Outcome::Done), 100);
    assert!((0..100).all(|c| client.leftovers.of(c).is_none()));
}
