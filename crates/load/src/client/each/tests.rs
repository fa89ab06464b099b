//! The client of connections for one request each, against connections that are a function: no network.

use proptest::prelude::*;
use taillab_model::Operation;

use super::*;
use crate::protocol::MessageSizes;
use crate::transport::Sockets;
use crate::transport::stream::{NotTaken, Origin, StreamTransport};

/// A request is its tag; the answer is the tag and, if it is the last, the letter `l`, else a dot.
struct Tagged;

impl Planner for Tagged {
    fn sizes(&self) -> MessageSizes {
        MessageSizes {
            request_bytes: 4,
            response_bytes: 5,
        }
    }
}

impl StreamProtocol for Tagged {
    fn encode(&mut self, _what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&tag.to_be_bytes());
    }

    fn decode(&self, _what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let (bytes_of_it, outcome) = (5, Outcome::Done);
        match bytes {
            [own @ .., b'l'] if *own == tag.to_be_bytes() => Decoded::LastAnswer {
                bytes: bytes_of_it,
                outcome,
            },
            [own @ .., b'.'] if *own == tag.to_be_bytes() => Decoded::Answer {
                bytes: bytes_of_it,
                outcome,
            },
            [b'u', ..] => Decoded::UntilClosed { outcome },
            _ if bytes.len() < bytes_of_it => Decoded::Partial {
                at_least: bytes_of_it,
            },
            _ => Decoded::Malformed,
        }
    }
}

/// How a connection that is dialled turns out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dial {
    Opens,
    Fails(NotSent),
    FailsAtOnce(NotSent),
    Never,
}

/// What a server does with the one request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Serve {
    Answers,
    AnswersAndCloses,
    AnswersUntilItCloses,
    Ends(Ending),
    Babbles,
    Says(&'static [u8]),
    Nothing,
}

/// Each connection is a queue of what will be reported of it.
struct Fake {
    open: Vec<bool>,
    news: VecDeque<(usize, News)>,
    dials: VecDeque<Dial>,
    serves: VecDeque<Serve>,
    current: Vec<u8>,
    dialled: usize,
    most_open: usize,
}

#[derive(Clone, Debug)]
enum News {
    Opened,
    NotOpened(NotSent),
    Bytes(Vec<u8>),
    Ended(Ending),
}

/// The rest of each plan opens, and answers.
fn client(connections: usize, dials: &[Dial], serves: &[Serve]) -> EachClient<Fake> {
    let fake = Fake {
        open: vec![false; connections],
        news: VecDeque::new(),
        dials: dials.iter().copied().collect(),
        serves: serves.iter().copied().collect(),
        current: Vec::new(),
        dialled: 0,
        most_open: 0,
    };
    EachClient::new(fake, Box::new(Tagged), Closing::Client)
}

impl Sockets for Fake {
    fn connections(&self) -> usize {
        self.open.len()
    }
}

impl StreamTransport for Fake {
    fn origin(&self, _connection: usize) -> Option<Origin> {
        Some(Origin {
            port: self.dialled as u16,
            sequence: Some(100),
        })
    }

    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), NotTaken> {
        assert!(self.open[connection]);
        let answer = |end: u8| News::Bytes([bytes, &[end]].concat());
        let closed = News::Ended(Ending::Closed);
        let news = match self.serves.pop_front().unwrap_or(Serve::Answers) {
            Serve::Answers => vec![answer(b'.')],
            Serve::AnswersAndCloses => vec![answer(b'l'), closed],
            Serve::AnswersUntilItCloses => {
                vec![
                    News::Bytes(b"u".into()),
                    News::Bytes(b"more".into()),
                    closed,
                ]
            }
            Serve::Ends(ending) => vec![News::Ended(ending)],
            Serve::Babbles => vec![News::Bytes(b"babble".into())],
            Serve::Says(said) => vec![News::Bytes([bytes, said].concat())],
            Serve::Nothing => vec![],
        };
        self.news
            .extend(news.into_iter().map(|news| (connection, news)));
        Ok(())
    }

    fn receive(&mut self, _expected: Option<usize>) -> Event {
        let Some((connection, news)) = self.news.pop_front() else {
            return Event::Nothing;
        };
        match news {
            News::Opened => Event::Opened(connection),
            News::NotOpened(why) => {
                self.open[connection] = false;
                Event::NotOpened { connection, why }
            }
            News::Bytes(bytes) => {
                self.current = bytes;
                Event::Bytes(connection)
            }
            News::Ended(ending) => {
                self.open[connection] = false;
                Event::Ended { connection, ending }
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.current
    }

    fn serves(&mut self, _connection: usize) {}

    fn abandon(&mut self, connection: usize) {
        assert!(self.open[connection], "closed twice");
        self.open[connection] = false;
        self.news.retain(|(other, _)| *other != connection);
    }

    fn tend(&mut self, _until_next: Nanos) {}
}

impl DialTransport for Fake {
    fn dial(&mut self, connection: usize) -> Result<(), NotSent> {
        assert!(!self.open[connection], "dialled twice");
        self.dialled += 1;
        let news = match self.dials.pop_front().unwrap_or(Dial::Opens) {
            Dial::FailsAtOnce(why) => return Err(why),
            Dial::Opens => Some(News::Opened),
            Dial::Fails(why) => Some(News::NotOpened(why)),
            Dial::Never => None,
        };
        self.open[connection] = true;
        let open = self.open.iter().filter(|open| **open).count();
        self.most_open = self.most_open.max(open);
        self.news.extend(news.map(|news| (connection, news)));
        Ok(())
    }
}

const SCHEDULED: Sending = Sending::Scheduled { seed: 1 };

fn call() -> Planned {
    Planned::new(Operation::Call, 0)
}

/// What a loop sees of the requests.
#[derive(Debug, Default)]
struct Caller {
    ended: Vec<Option<Outcome>>,
    others: Vec<ReceiveOutcome>,
}

impl Caller {
    fn send(&mut self, client: &mut EachClient<Fake>) {
        let sent = client.send(call());
        self.ended.push(sent.err().map(|_| Outcome::SendFailed));
    }

    fn end(&mut self, k: usize, outcome: Outcome) {
        assert_eq!(self.ended[k], None, "request {k} ended twice");
        self.ended[k] = Some(outcome);
    }

    /// Looks once; returns whether there was anything.
    fn look(&mut self, client: &mut EachClient<Fake>) -> bool {
        let ended = &self.ended;
        match client.receive(|k| ended[k].is_none().then(call)) {
            ReceiveOutcome::Nothing => return false,
            ReceiveOutcome::Answer { k, outcome } | ReceiveOutcome::Lost { k, outcome } => {
                self.end(k, outcome);
            }
            ReceiveOutcome::Part => {}
            other => self.others.push(other),
        }
        while let Some(released) = client.send_waiting(|_, _| true) {
            if let Some(Err(_)) = released.sent {
                self.end(released.k, Outcome::SendFailed);
            }
        }
        true
    }

    fn look_until_nothing(&mut self, client: &mut EachClient<Fake>) {
        while self.look(client) {}
    }
}

/// Sends `n` requests at once, and looks until nothing is left.
fn all(client: &mut EachClient<Fake>, n: usize) -> Caller {
    client.begin(n, SCHEDULED);
    let mut caller = Caller::default();
    (0..n).for_each(|_| caller.send(client));
    caller.look_until_nothing(client);
    caller
}

const DONE: Option<Outcome> = Some(Outcome::Done);
const LOST: Option<Outcome> = Some(Outcome::ConnectionLost);

#[test]
fn a_request_leaves_when_its_connection_is_up() {
    let mut client = client(2, &[], &[]);
    client.begin(1, SCHEDULED);
    assert_eq!(client.send(call()), Ok(SendOutcome::Connects));
    assert_eq!(client.send_waiting(|_, _| true), None);
    assert_eq!(client.receive(|_| Some(call())), ReceiveOutcome::Part);
    let released = client.send_waiting(|_, _| true).unwrap();
    assert_eq!(
        (released.k, released.sent),
        (0, Some(Ok(SendOutcome::Gone)))
    );
    let answer = ReceiveOutcome::Answer {
        k: 0,
        outcome: Outcome::Done,
    };
    assert_eq!(client.receive(|_| Some(call())), answer);
    assert_eq!(client.transport.open, [false, false]);
    let keys = client.keys();
    // after the four bytes of the request, from the first
    let key = keys.key_of(0).unwrap();
    assert_eq!((key.port, key.id), (1, 104));
}

/// Descriptors are bounded: the third of two waits until one is closed.
#[test]
fn a_request_that_finds_all_connections_taken_waits_for_one() {
    let mut client = client(2, &[], &[]);
    client.begin(3, SCHEDULED);
    let sent: Vec<_> = (0..3).map(|_| client.send(call()).unwrap()).collect();
    assert_eq!(
        sent,
        [
            SendOutcome::Connects,
            SendOutcome::Connects,
            SendOutcome::Waits
        ]
    );
    let mut caller = Caller {
        ended: vec![None; 3],
        ..Caller::default()
    };
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [DONE; 3]);
    let fake = &client.transport;
    assert_eq!((fake.dialled, fake.most_open), (3, 2));
}

#[test]
fn a_refused_connection_ends_its_request_and_is_free_again() {
    let refused = NotSent::Refused;
    let dials = [
        Dial::Fails(refused),
        Dial::FailsAtOnce(refused),
        Dial::Opens,
    ];
    let mut client = client(1, &dials, &[]);
    let caller = all(&mut client, 3);
    let not_sent = Some(Outcome::SendFailed);
    assert_eq!(caller.ended, [not_sent, not_sent, DONE]);
    assert_eq!(caller.others, [ReceiveOutcome::Refused]);
}

/// Neither a connection that never comes up nor a server that never answers keeps a descriptor.
#[test]
fn a_connection_whose_time_is_up_is_closed() {
    let mut client = client(1, &[Dial::Never], &[Serve::Nothing]);
    client.be_patient(Nanos::from_secs(3_600));
    client.begin(3, SCHEDULED);
    let mut caller = Caller::default();
    (0..3).for_each(|_| caller.send(&mut client));
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [None; 3]);
    client.be_patient(Nanos::ZERO);
    // the first, and then the second, which is asked meanwhile
    assert!(caller.look(&mut client));
    let late = Some(Outcome::TimedOut);
    assert_eq!(caller.ended, [late, None, None]);
    client.be_patient(Nanos::from_secs(3_600));
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [late, None, None]);
    client.be_patient(Nanos::ZERO);
    assert!(caller.look(&mut client));
    client.be_patient(Nanos::from_secs(3_600));
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [late, late, DONE]);
}

/// The port in TIME_WAIT is that of the side that closes first.
#[test]
fn a_server_that_closes_is_given_the_time_to_do_so() {
    let mut client = client(2, &[], &[Serve::AnswersAndCloses, Serve::Says(b"l")]);
    client.begin(3, SCHEDULED);
    let mut caller = Caller::default();
    caller.send(&mut client);
    caller.send(&mut client);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [DONE, DONE]);
    // the first has ended, and the second has not
    assert_eq!(client.transport.open, [false, true]);
    assert_eq!(caller.others, []);
    // if one is needed, the client closes it
    caller.send(&mut client);
    caller.send(&mut client);
    caller.look_until_nothing(&mut client);
    assert_eq!(caller.ended, [DONE; 4]);
    assert_eq!(client.transport.most_open, 2);
}

#[test]
fn an_answer_may_end_with_its_connection() {
    let mut client = client(1, &[], &[Serve::AnswersUntilItCloses]);
    assert_eq!(all(&mut client, 2).ended, [DONE; 2]);
}

#[test]
fn a_connection_that_ends_before_the_answer_loses_its_request() {
    let serves = [
        Serve::Ends(Ending::Closed),
        Serve::Ends(Ending::Reset),
        Serve::Babbles,
    ];
    let mut client = client(1, &[], &serves);
    let caller = all(&mut client, 4);
    let malformed = Some(Outcome::Malformed);
    assert_eq!(caller.ended, [LOST, LOST, malformed, DONE]);
    let ends = [
        ReceiveOutcome::ConnectionClosed,
        ReceiveOutcome::ConnectionReset,
    ];
    assert_eq!(caller.others, ends);
    assert!(client.wrong_answer().is_some());
}

/// Ten thousand keys would need as many ports.
#[test]
fn connections_are_kept_while_keys_are_stored() {
    let mut client = client(4, &[], &[]);
    client.begin(0, Sending::Stored);
    let mut caller = Caller::default();
    for _ in 0..100 {
        caller.send(&mut client);
        caller.look_until_nothing(&mut client);
    }
    assert_eq!(caller.ended, [DONE; 100]);
    assert_eq!(client.transport.dialled, 1);
    // and closed before the load
    assert_eq!(all(&mut client, 10).ended, [DONE; 10]);
    assert_eq!(client.transport.dialled, 11);
}

#[test]
fn a_new_count_begins_with_all_connections_closed() {
    let mut client = client(2, &[Dial::Never], &[Serve::Nothing]);
    client.begin(3, SCHEDULED);
    let mut caller = Caller::default();
    (0..3).for_each(|_| caller.send(&mut client));
    caller.look_until_nothing(&mut client);
    assert_eq!(all(&mut client, 5).ended, [DONE; 5]);
    assert_eq!(client.transport.open, [false, false]);
}

fn dials() -> impl Strategy<Value = Vec<Dial>> {
    let dial = prop_oneof![
        4 => Just(Dial::Opens),
        1 => Just(Dial::Fails(NotSent::Refused)),
        1 => Just(Dial::Fails(NotSent::Failed)),
        1 => Just(Dial::FailsAtOnce(NotSent::Failed)),
    ];
    proptest::collection::vec(dial, 0..40)
}

fn serves() -> impl Strategy<Value = Vec<Serve>> {
    let serve = prop_oneof![
        4 => Just(Serve::Answers),
        2 => Just(Serve::AnswersAndCloses),
        1 => Just(Serve::AnswersUntilItCloses),
        1 => Just(Serve::Says(b"l")),
        1 => Just(Serve::Says(b".rest")),
        1 => Just(Serve::Ends(Ending::Closed)),
        1 => Just(Serve::Ends(Ending::Reset)),
        1 => Just(Serve::Babbles),
    ];
    proptest::collection::vec(serve, 0..40)
}

proptest! {
    /// Whatever happens to connections, each request ends exactly once, has one connection, and no more are open
    /// than may be.
    #[test]
    fn each_request_ends_once(
        connections in 1_usize..5,
        dials in dials(),
        serves in serves(),
        steps in proptest::collection::vec(0_u32..5, 1..60),
    ) {
        let mut client = client(connections, &dials, &serves);
        client.begin(steps.len(), SCHEDULED);
        let mut caller = Caller::default();
        for looks in &steps {
            caller.send(&mut client);
            for _ in 0..*looks {
                caller.look(&mut client);
            }
        }
        caller.look_until_nothing(&mut client);
        prop_assert!(caller.ended.iter().all(Option::is_some), "{:?}", caller.ended);
        prop_assert_eq!(client.transport.dialled, steps.len());
        prop_assert!(client.transport.most_open <= connections);
        prop_assert!(client.dialled.len() <= steps.len() && client.waiting.is_empty());
    }
}
