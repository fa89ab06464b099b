//! Requests on streams, whose answers come in order on each connection.

use std::collections::VecDeque;

use taillab_model::{Monotonic, Nanos, Outcome, RequestKey};

use super::keys::{note, room_for};
use super::leftover::Leftovers;
use super::pending::{Pending, Request};
use super::rotation::Rotation;
use super::{Client, Keys, Place, Received, Traits};
use crate::clock::now;
use crate::protocol::{Decoded, Planned, Planner, StreamProtocol};
use crate::transport::NotSent;
use crate::transport::stream::{Ending, Event, NotTaken, Origin, StreamSockets, StreamTransport};
use crate::wrong_answer::WrongAnswer;

/// Connections remembered in the order of their requests: they predict where the next answer
/// comes.
const GUESSES: usize = 4096;

/// Connections tried for a request, since the first may turn out to be closed.
const TRIES: usize = 3;

/// A larger answer counts as malformed: it would need too much memory.
const LARGEST_ANSWER: usize = 1 << 30;

/// How long a new count waits for answers to requests of the last count, and then for
/// connections to be up again.
const SETTLE: Nanos = Nanos::from_millis(100);

/// A client whose requests and answers are parts of streams of bytes.
///
/// A request takes the connection that has been idle for longest. If none is idle, it takes one
/// held in reserve ([`StreamClient::hold_back`]), then one with the fewest requests
/// outstanding: it never waits in the client. A request without an answer in time
/// keeps its place in its connection's order, so that a late answer is not given to another
/// request. A connection that ends, or whose answers can no longer be separated, loses its
/// requests and is reopened.
pub struct StreamClient<T = StreamSockets> {
    protocol: Box<dyn StreamProtocol>,
    transport: T,
    rotation: Rotation,
    pending: Pending,
    leftovers: Leftovers,
    /// Where the next packet of each connection begins, if that is known.
    next_keys: Vec<Option<Origin>>,
    /// The connections whose answers are expected, in order.
    guesses: VecDeque<u32>,
    doing: Doing,
    wrong: Option<WrongAnswer>,
    request: Vec<u8>,
    /// Requests of earlier counts.
    base: u64,
    sent: usize,
    places: Vec<Place>,
}

/// What is left to do after the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Looking,
    /// The bytes of a connection from `at` on have not been read.
    Reading {
        connection: usize,
        at: usize,
    },
    /// A connection is gone; its requests are reported one by one.
    Losing {
        connection: usize,
        /// How the next of them ends.
        next: Outcome,
        /// `None` if the client has closed it.
        ending: Option<Ending>,
    },
}

impl<T: StreamTransport> StreamClient<T> {
    /// Holds the last `reserve` connections back: they take a request only when no other
    /// connection is idle. So few connections carry the load, yet when the server stalls no
    /// request waits behind another one on its connection.
    ///
    /// Must be called before the first request.
    pub fn hold_back(&mut self, reserve: usize) {
        let connections = self.transport.connections();
        self.rotation = Rotation::new(connections, reserve);
        (0..connections).for_each(|connection| self.rotation.join(connection));
    }

    /// A client over connections that are all up.
    pub fn new(transport: T, protocol: Box<dyn StreamProtocol>) -> Self {
        let connections = transport.connections();
        let mut rotation = Rotation::new(connections, 0);
        (0..connections).for_each(|connection| rotation.join(connection));
        Self {
            next_keys: (0..connections).map(|c| transport.origin(c)).collect(),
            protocol,
            transport,
            rotation,
            pending: Pending::new(connections),
            leftovers: Leftovers::new(connections),
            guesses: VecDeque::with_capacity(GUESSES),
            doing: Doing::Looking,
            wrong: None,
            request: Vec::with_capacity(64 << 10),
            base: 0,
            sent: 0,
            places: Vec::new(),
        }
    }

    /// A request's number in this count; `None` for a request of an earlier count.
    #[inline]
    fn number_in_count(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.base).map(|k| k as usize)
    }

    /// The connection on which the next answer is expected.
    #[inline]
    fn expected(&mut self) -> Option<usize> {
        while let Some(&connection) = self.guesses.front() {
            let connection = connection as usize;
            if self.pending.first(connection).is_some() {
                return Some(connection);
            }
            self.guesses.pop_front();
        }
        None
    }

    /// Bytes came on a connection. If they were expected on another one, that one is no longer
    /// tried first; epoll will find its answer.
    #[inline]
    fn came(&mut self, connection: usize) {
        if self
            .guesses
            .front()
            .is_some_and(|&c| c as usize != connection)
        {
            self.guesses.pop_front();
        }
    }

    /// Reads the next answer from the bytes of a connection.
    fn read(
        &mut self,
        connection: usize,
        at: usize,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> Received {
        let kept = self.leftovers.of(connection);
        let is_kept = kept.is_some();
        let bytes = &kept.unwrap_or(self.transport.bytes())[at..];
        let Some(request) = self.pending.first(connection) else {
            // It is unknown whether later bytes belong to this answer or to a new one.
            self.give_up(connection, Outcome::ConnectionLost);
            return Received::Unexpected;
        };
        let decoded = self
            .protocol
            .decode(request.what, request.number as u32, bytes);
        if self.wrong.is_none() && is_wrong(decoded) {
            self.wrong = Some(WrongAnswer::of(bytes));
        }
        match decoded {
            Decoded::Answer { bytes: n, outcome } if n <= bytes.len() => {
                let rest = bytes.len() - n;
                self.pending.pop(connection);
                self.rotation.answered(connection);
                if self.guesses.front() == Some(&(connection as u32)) {
                    self.guesses.pop_front();
                }
                self.doing = if rest > 0 {
                    Doing::Reading {
                        connection,
                        at: at + n,
                    }
                } else {
                    self.leftovers.clear(connection);
                    Doing::Looking
                };
                self.answer(request, outcome, outstanding)
            }
            Decoded::LastAnswer { bytes: n, outcome } if n <= bytes.len() => {
                self.pending.pop(connection);
                self.transport.abandon(connection);
                let ending = Some(Ending::Closed);
                self.gone(connection, Outcome::ConnectionLost, ending);
                self.answer(request, outcome, outstanding)
            }
            Decoded::Partial { at_least } if at_least <= LARGEST_ANSWER => {
                if is_kept {
                    self.leftovers.shorten(connection, at, at_least);
                } else {
                    let bytes = &self.transport.bytes()[at..];
                    self.leftovers.keep(connection, bytes, at_least);
                }
                self.doing = Doing::Looking;
                Received::Part
            }
            _ => {
                self.give_up(connection, Outcome::Malformed);
                self.lose(connection, Outcome::Malformed, None, outstanding)
                    .unwrap_or(Received::Malformed)
            }
        }
    }

    /// Reports the answer to a request, or that it came too late.
    #[inline]
    fn answer(
        &self,
        request: Request,
        outcome: Outcome,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> Received {
        match self.number_in_count(request.number) {
            Some(k) if outstanding(k).is_some() => Received::Answer { k, outcome },
            _ => Received::Late,
        }
    }

    /// Closes a connection whose answers can no longer be separated.
    #[cold]
    fn give_up(&mut self, connection: usize, next: Outcome) {
        self.transport.abandon(connection);
        self.gone(connection, next, None);
    }

    #[cold]
    fn gone(&mut self, connection: usize, next: Outcome, ending: Option<Ending>) {
        self.rotation.leave(connection);
        self.leftovers.clear(connection);
        self.next_keys[connection] = None;
        self.doing = Doing::Losing {
            connection,
            next,
            ending,
        };
    }

    /// The next thing to report about a lost connection: its requests, then its end. `None` after
    /// the last request of a connection that the client itself has closed.
    #[cold]
    fn lose(
        &mut self,
        connection: usize,
        next: Outcome,
        ending: Option<Ending>,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> Option<Received> {
        let mut outcome = next;
        while let Some(request) = self.pending.pop(connection) {
            let waits = self
                .number_in_count(request.number)
                .filter(|&k| outstanding(k).is_some());
            if let Some(k) = waits {
                self.doing = Doing::Losing {
                    connection,
                    next: Outcome::ConnectionLost,
                    ending,
                };
                return Some(Received::Lost { k, outcome });
            }
            outcome = Outcome::ConnectionLost;
        }
        self.doing = Doing::Looking;
        ending.map(|ending| match ending {
            Ending::Closed => Received::ConnectionClosed,
            Ending::Reset => Received::ConnectionReset,
        })
    }

    /// Looks at the connections.
    #[inline]
    fn look(&mut self, outstanding: &impl Fn(usize) -> Option<Planned>) -> Received {
        let expected = self.expected();
        match self.transport.receive(expected) {
            Event::Nothing => Received::Nothing,
            Event::Bytes(connection) => {
                self.came(connection);
                match self.leftovers.append(connection, self.transport.bytes()) {
                    Some(false) => Received::Part,
                    Some(true) | None => self.read(connection, 0, outstanding),
                }
            }
            Event::Ended { connection, ending } => {
                self.gone(connection, Outcome::ConnectionLost, Some(ending));
                self.lose(
                    connection,
                    Outcome::ConnectionLost,
                    Some(ending),
                    outstanding,
                )
                .unwrap_or(Received::Nothing)
            }
            Event::Opened(connection) => {
                self.next_keys[connection] = self.transport.origin(connection);
                self.rotation.join(connection);
                Received::Part
            }
            Event::Refused => Received::Refused,
        }
    }

    /// Waits a short time for `done`, and drops what comes meanwhile.
    fn settle(&mut self, done: impl Fn(&Self) -> bool) {
        let until = now() + SETTLE;
        while !done(self) && now() < until {
            self.receive(|_| None);
            self.tend(Nanos::MAX);
        }
        // finishes what was begun, which needs no more bytes
        while self.doing != Doing::Looking {
            self.receive(|_| None);
        }
    }
}

impl<T: StreamTransport> Client for StreamClient<T> {
    fn traits(&self) -> Traits {
        Traits {
            connections: self.transport.connections(),
            key_period: usize::MAX,
            is_lossy: false,
            takes_idle_connection: true,
            stamps: self.transport.stamps(),
        }
    }

    fn planner(&self) -> &dyn Planner {
        &*self.protocol
    }

    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.wrong.as_ref()
    }

    /// Waits a short time for answers to requests of the last count; connections that still owe
    /// an answer then are closed and reopened.
    fn begin(&mut self, requests: usize) {
        self.settle(|client| client.pending.len() == 0);
        for connection in 0..self.transport.connections() {
            if self.pending.first(connection).is_some() && self.rotation.is_in(connection) {
                self.transport.abandon(connection);
                self.gone(connection, Outcome::ConnectionLost, None);
                self.lose(connection, Outcome::ConnectionLost, None, &|_| None);
            }
        }
        self.settle(|client| client.rotation.len() == client.transport.connections());
        self.guesses.clear();
        self.base += self.sent as u64;
        self.sent = 0;
        self.places = room_for(requests);
    }

    fn keys(&mut self) -> Keys {
        Keys::Noted(std::mem::take(&mut self.places))
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<(), NotSent> {
        let number = self.base + self.sent as u64;
        self.sent += 1;
        self.request.clear();
        self.protocol.encode(what, number as u32, &mut self.request);
        for _ in 0..TRIES {
            let Some(connection) = self.rotation.next() else {
                break;
            };
            match self.transport.send(connection, &self.request) {
                Ok(()) => {
                    self.rotation.took(connection);
                    self.pending.push(connection, Request { number, what });
                    if self.guesses.len() < GUESSES {
                        self.guesses.push_back(connection as u32);
                    }
                    let key = self.next_keys[connection].as_mut().map(|next| {
                        next.sequence = next.sequence.wrapping_add(self.request.len() as u32);
                        RequestKey {
                            address: 0,
                            port: next.port,
                            id: next.sequence as u16,
                        }
                    });
                    note(&mut self.places, Place::new(connection as u32, key));
                    return Ok(());
                }
                // the next look reports its end
                Err(NotTaken::Ended) => self.rotation.leave(connection),
                Err(NotTaken::Full) => break,
            }
        }
        note(&mut self.places, Place::NOWHERE);
        Err(NotSent::Failed)
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> Received {
        match self.doing {
            Doing::Looking => self.look(&outstanding),
            Doing::Reading { connection, at } => self.read(connection, at, &outstanding),
            Doing::Losing {
                connection,
                next,
                ending,
            } => self
                .lose(connection, next, ending, &outstanding)
                .unwrap_or(Received::Part),
        }
    }

    fn wait(&mut self, at_most: Nanos) {
        if self.doing == Doing::Looking {
            self.transport.wait(at_most);
        }
    }

    #[inline]
    fn kernel_received(&self) -> Option<Monotonic> {
        self.transport.stamp()
    }

    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        self.transport.tend(until_next);
    }
}

/// Whether this is an error from the server, or not an answer at all.
fn is_wrong(decoded: Decoded) -> bool {
    match decoded {
        Decoded::Answer { outcome, .. } | Decoded::LastAnswer { outcome, .. } => {
            outcome == Outcome::ServerError
        }
        Decoded::Partial { at_least } => at_least > LARGEST_ANSWER,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
