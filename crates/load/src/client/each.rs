//! Requests on streams, each with a connection of its own.

use std::collections::VecDeque;

use taillab_model::summary::Closing;
use taillab_model::{Monotonic, Nanos, Outcome};

use super::exchange::{Exchange, LARGEST_ANSWER};
use super::leftover::Leftovers;
use super::pending::Request;
use super::{Client, Habits, Keys, ReceiveOutcome, ReleasedRequest, SendOutcome, Sending, Traits};
use crate::clock::now;
use crate::protocol::{Decoded, Planned, Planner, StreamProtocol};
use crate::transport::NotSent;
use crate::transport::stream::{DialTransport, Ending, Event, StreamSockets};
use crate::wrong_answer::WrongAnswer;

/// How long a new count waits for answers to requests of the last one.
const SETTLE: Nanos = Nanos::from_millis(100);

/// How long a connection may last, until a loop says otherwise.
const PATIENCE: Nanos = Nanos::from_secs(60);

/// A client that opens a connection for each request, sends it when that is up, and closes it after the answer.
///
/// A fixed number of connections may be open at once, so that descriptors are bounded: a request that finds all of them
/// taken waits here. One whose answer does not come in time gives its connection up. Where the server is to close, its
/// end is awaited, so that the port in TIME_WAIT is the server's; a request that needs the connection meanwhile takes it.
pub struct EachClient<T = StreamSockets> {
    exchange: Exchange,
    transport: T,
    closing: Closing,
    patience: Nanos,
    connections: Vec<Occupancy>,
    /// Connections that are closed, the one that has been for longest first.
    free: VecDeque<u32>,
    /// Connections that are open and idle: while keys are stored.
    idle: Vec<u32>,
    /// Connections are kept.
    keeps: bool,
    /// Connections that the server is to close, with the request that they were for, in order.
    ending: VecDeque<(u32, u64)>,
    /// When each connection was dialled, with the request that it is for, in order.
    dialled: VecDeque<(Monotonic, u32, u64)>,
    /// Requests that wait for a connection.
    waiting: VecDeque<Request>,
    /// What became of requests whose connections were opened, not yet reported.
    released: VecDeque<ReleasedRequest>,
    /// What is still to be reported of a connection that ended.
    next: Option<ReceiveOutcome>,
    leftovers: Leftovers,
}

/// What a connection is used for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupancy {
    Closed,
    /// It is being opened for this request.
    Opening(Request),
    /// This request was sent.
    Asked {
        request: Request,
        /// How it ends, if its answer ends when the server closes.
        until_closed: Option<Outcome>,
    },
    /// The request of this number is answered; the server is to close.
    Ending(u64),
    /// Open, with no request.
    Idle,
}

impl Occupancy {
    /// The number of the request that it is for.
    fn number(self) -> Option<u64> {
        match self {
            Self::Closed | Self::Idle => None,
            Self::Opening(request) | Self::Asked { request, .. } => Some(request.number),
            Self::Ending(number) => Some(number),
        }
    }
}

impl<T: DialTransport> EachClient<T> {
    /// A client over connections that are all closed.
    pub fn new(transport: T, protocol: Box<dyn StreamProtocol>, closing: Closing) -> Self {
        let connections = transport.connections();
        Self {
            exchange: Exchange::new(protocol),
            transport,
            closing,
            patience: PATIENCE,
            connections: vec![Occupancy::Closed; connections],
            free: (0..connections as u32).collect(),
            idle: Vec::new(),
            keeps: false,
            ending: VecDeque::new(),
            dialled: VecDeque::new(),
            waiting: VecDeque::new(),
            released: VecDeque::new(),
            next: None,
            leftovers: Leftovers::new(connections),
        }
    }

    /// A connection that is closed. If there is none, the one whose server has had most time to close it.
    fn closed(&mut self) -> Option<usize> {
        if let Some(free) = self.free.pop_front() {
            return Some(free as usize);
        }
        while let Some((connection, number)) = self.ending.pop_front() {
            let connection = connection as usize;
            if self.connections[connection] == Occupancy::Ending(number) {
                self.close(connection);
                return self.free.pop_front().map(|free| free as usize);
            }
        }
        None
    }

    /// Closes a connection that is not closed.
    fn close(&mut self, connection: usize) {
        self.transport.abandon(connection);
        self.is_closed(connection);
    }

    fn is_closed(&mut self, connection: usize) {
        self.leftovers.clear(connection);
        self.connections[connection] = Occupancy::Closed;
        self.free.push_back(connection as u32);
    }

    /// Begins to open a closed connection for a request.
    fn dial(&mut self, connection: usize, request: Request) -> Result<(), NotSent> {
        let at = now();
        if let Err(why) = self.transport.dial(connection) {
            self.free.push_back(connection as u32);
            return Err(why);
        }
        self.connections[connection] = Occupancy::Opening(request);
        self.forget_ended();
        let connection = connection as u32;
        self.dialled.push_back((at, connection, request.number));
        Ok(())
    }

    /// Drops the first of those that were dialled, up to one whose connection is still that of its request.
    fn forget_ended(&mut self) {
        while let Some(&(_, connection, number)) = self.dialled.front()
            && self.connections[connection as usize].number() != Some(number)
        {
            self.dialled.pop_front();
        }
    }

    /// Sends a request on its open connection; whether that went well.
    fn ask(&mut self, connection: usize, request: Request) -> bool {
        let bytes = self.exchange.write(request);
        if self.transport.send(connection, bytes).is_err() {
            self.close(connection);
            return false;
        }
        self.connections[connection] = Occupancy::Asked {
            request,
            until_closed: None,
        };
        let mut origin = self.transport.origin(connection);
        self.exchange.went(request, connection, &mut origin);
        true
    }

    /// Notes what became of a request that had waited for its connection.
    fn release(&mut self, request: Request, at: Monotonic, sent: Result<SendOutcome, NotSent>) {
        if let Some(k) = self.exchange.number_in_count(request) {
            let sent = Some(sent);
            self.released.push_back(ReleasedRequest { k, at, sent });
        }
    }

    /// A connection is up: its request goes.
    fn opened(&mut self, connection: usize) -> ReceiveOutcome {
        if let Occupancy::Opening(request) = self.connections[connection] {
            let at = now();
            let sent = match self.ask(connection, request) {
                true => Ok(SendOutcome::Gone),
                false => Err(NotSent::Failed),
            };
            self.release(request, at, sent);
        }
        ReceiveOutcome::Part
    }

    /// A connection cannot be opened.
    #[cold]
    fn not_opened(&mut self, connection: usize, why: NotSent) -> ReceiveOutcome {
        if let Occupancy::Opening(request) = self.connections[connection] {
            self.is_closed(connection);
            self.release(request, now(), Err(why));
        }
        match why {
            NotSent::Refused => ReceiveOutcome::Refused,
            NotSent::Failed => ReceiveOutcome::Part,
        }
    }

    /// Bytes came on a connection.
    fn came(
        &mut self,
        connection: usize,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        let request = match self.connections[connection] {
            Occupancy::Asked {
                request,
                until_closed: None,
            } => request,
            // a part of the answer
            Occupancy::Asked { .. } => return ReceiveOutcome::Part,
            Occupancy::Ending(_) => return ReceiveOutcome::Unexpected,
            _ => {
                self.idle.retain(|&idle| idle != connection as u32);
                self.close(connection);
                return ReceiveOutcome::Unexpected;
            }
        };
        let bytes = self.transport.bytes();
        if self.leftovers.append(connection, bytes) == Some(false) {
            return ReceiveOutcome::Part;
        }
        let kept = self.leftovers.of(connection);
        let bytes = kept.unwrap_or(bytes);
        let decoded = self.exchange.read(request, bytes);
        match decoded {
            Decoded::Answer { bytes: n, outcome } | Decoded::LastAnswer { bytes: n, outcome }
                if n <= bytes.len() =>
            {
                if n < bytes.len() {
                    self.next = Some(ReceiveOutcome::Unexpected);
                }
                let is_last = matches!(decoded, Decoded::LastAnswer { .. });
                self.answered(connection, request, is_last);
                self.exchange.answer(request, outcome, outstanding)
            }
            Decoded::UntilClosed { outcome } => {
                self.leftovers.clear(connection);
                self.connections[connection] = Occupancy::Asked {
                    request,
                    until_closed: Some(outcome),
                };
                ReceiveOutcome::Part
            }
            Decoded::Partial { at_least } if at_least <= LARGEST_ANSWER => {
                let came = self.transport.bytes();
                self.leftovers.keep(connection, 0, at_least, came);
                ReceiveOutcome::Part
            }
            Decoded::NotTaken => {
                self.close(connection);
                self.next = Some(ReceiveOutcome::ConnectionClosed);
                self.lost(request, Outcome::ConnectionLost, outstanding)
            }
            _ => {
                self.close(connection);
                self.lost(request, Outcome::Malformed, outstanding)
            }
        }
    }

    /// A request has its whole answer: its connection is closed or, while keys are stored, kept.
    fn answered(&mut self, connection: usize, request: Request, is_last: bool) {
        if is_last {
            self.leftovers.clear(connection);
            self.connections[connection] = Occupancy::Ending(request.number);
            // the front is one that has not ended, so that the others do not add up
            while let Some(&(front, number)) = self.ending.front()
                && self.connections[front as usize] != Occupancy::Ending(number)
            {
                self.ending.pop_front();
            }
            self.ending.push_back((connection as u32, request.number));
        } else if self.keeps {
            self.leftovers.clear(connection);
            self.connections[connection] = Occupancy::Idle;
            self.idle.push(connection as u32);
        } else {
            self.close(connection);
        }
    }

    /// Reports that a request will have no answer.
    fn lost(
        &self,
        request: Request,
        outcome: Outcome,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        let lost = self.exchange.lost(request, outcome, outstanding);
        lost.unwrap_or(ReceiveOutcome::Part)
    }

    /// The server has ended a connection. That may be the end of an answer.
    fn ended(
        &mut self,
        connection: usize,
        ending: Ending,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        let was = self.connections[connection];
        self.is_closed(connection);
        let ended = match ending {
            Ending::Closed => ReceiveOutcome::ConnectionClosed,
            Ending::Reset => ReceiveOutcome::ConnectionReset,
        };
        match was {
            Occupancy::Asked {
                request,
                until_closed: Some(outcome),
            } if ending == Ending::Closed => self.exchange.answer(request, outcome, outstanding),
            Occupancy::Asked { request, .. } | Occupancy::Opening(request) => {
                self.next = Some(ended);
                self.lost(request, Outcome::ConnectionLost, outstanding)
            }
            Occupancy::Ending(_) | Occupancy::Closed => ReceiveOutcome::Part,
            Occupancy::Idle => {
                self.idle.retain(|&idle| idle != connection as u32);
                ended
            }
        }
    }

    /// Closes the connection whose answer, or whose end, has been due for longest, if its time is up.
    fn expire(&mut self, outstanding: &impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
        self.forget_ended();
        let Some(&(at, connection, _)) = self.dialled.front() else {
            return ReceiveOutcome::Nothing;
        };
        if now().saturating_since(at) <= self.patience {
            return ReceiveOutcome::Nothing;
        }
        self.dialled.pop_front();
        let connection = connection as usize;
        let state = self.connections[connection];
        self.close(connection);
        match state {
            Occupancy::Opening(request) | Occupancy::Asked { request, .. } => {
                self.lost(request, Outcome::TimedOut, outstanding)
            }
            _ => ReceiveOutcome::Part,
        }
    }

    fn close_all(&mut self) {
        for connection in 0..self.connections.len() {
            if self.connections[connection] != Occupancy::Closed {
                self.close(connection);
            }
        }
        self.idle.clear();
        self.ending.clear();
        self.dialled.clear();
        self.released.clear();
        self.next = None;
    }

    /// Whether a connection is open or being opened.
    fn is_busy(&self) -> bool {
        self.free.len() + self.idle.len() < self.connections.len()
    }
}

impl<T: DialTransport> Client for EachClient<T> {
    fn traits(&self) -> Traits {
        Traits {
            connections: self.connections.len(),
            key_period: usize::MAX,
            is_lossy: false,
            takes_idle_connection: true,
            habits: Habits::EACH,
            draw: None,
            may_wait: true,
            closing: Some(self.closing),
            stamps: self.transport.stamps(),
        }
    }

    fn planner(&self) -> &dyn Planner {
        self.exchange.planner()
    }

    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.exchange.wrong_answer()
    }

    fn be_patient(&mut self, patience: Nanos) {
        self.patience = patience;
    }

    /// Waits a short time for answers to requests of the last count; connections that are open then are closed.
    fn begin(&mut self, requests: usize, sending: Sending) {
        self.waiting.clear();
        for connection in 0..self.connections.len() {
            if matches!(self.connections[connection], Occupancy::Opening(_)) {
                self.close(connection);
            }
        }
        let until = now() + SETTLE;
        while self.is_busy() && now() < until {
            self.receive(|_| None);
        }
        self.close_all();
        self.keeps = sending == Sending::Stored;
        self.exchange.begin(requests);
    }

    fn keys(&mut self) -> Keys {
        self.exchange.keys()
    }

    fn send(&mut self, what: Planned) -> Result<SendOutcome, NotSent> {
        let (_, request) = self.exchange.next(what);
        while let Some(idle) = self.idle.pop() {
            if self.ask(idle as usize, request) {
                return Ok(SendOutcome::Gone);
            }
        }
        let is_next = self.waiting.is_empty();
        match is_next.then(|| self.closed()).flatten() {
            Some(connection) => self
                .dial(connection, request)
                .map(|()| SendOutcome::Connects),
            None => {
                self.waiting.push_back(request);
                Ok(SendOutcome::Waits)
            }
        }
    }

    fn send_waiting(
        &mut self,
        wanted: impl Fn(usize, Monotonic) -> bool,
    ) -> Option<ReleasedRequest> {
        if let Some(released) = self.released.pop_front() {
            return Some(released);
        }
        let &first = self.waiting.front()?;
        // none waits from an earlier count
        let k = self.exchange.number_in_count(first)?;
        let at = now();
        if let Some(idle) = self.idle.pop() {
            self.waiting.pop_front();
            let sent = match self.ask(idle as usize, first) {
                true => Ok(SendOutcome::Gone),
                false => Err(NotSent::Failed),
            };
            return Some(ReleasedRequest {
                k,
                at,
                sent: Some(sent),
            });
        }
        let connection = self.closed()?;
        self.waiting.pop_front();
        if !wanted(k, at) {
            self.free.push_front(connection as u32);
            return Some(ReleasedRequest { k, at, sent: None });
        }
        let dialled = self.dial(connection, first).map(|()| SendOutcome::Connects);
        Some(ReleasedRequest {
            k,
            at,
            sent: Some(dialled),
        })
    }

    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
        if let Some(next) = self.next.take() {
            return next;
        }
        match self.transport.receive(None) {
            Event::Nothing => self.expire(&outstanding),
            Event::Bytes(connection) => self.came(connection, &outstanding),
            Event::Ended { connection, ending } => self.ended(connection, ending, &outstanding),
            Event::Opened(connection) => self.opened(connection),
            Event::NotOpened { connection, why } => self.not_opened(connection, why),
            Event::Refused => ReceiveOutcome::Refused,
        }
    }

    fn wait(&mut self, at_most: Nanos) {
        if self.next.is_none() {
            self.transport.wait(at_most);
        }
    }

    fn kernel_received(&self) -> Option<Monotonic> {
        self.transport.stamp()
    }
}

#[cfg(test)]
mod tests;
