//! Requests on streams, whose answers come in order on each connection.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use taillab_model::summary::ClientKind;
use taillab_model::{Monotonic, Nanos, Outcome};

use super::exchange::{Exchange, LARGEST_ANSWER};
use super::leftover::Leftovers;
use super::pending::{Pending, Request};
use super::rotation::Rotation;
use super::{
    Client, Draw, Habits, Keys, ReceiveOutcome, ReleasedRequest, SendOutcome, Sending, Traits,
};
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

/// Connections that a request of a closed loop draws until one is idle; then it takes the one that has been idle
/// for longest, if any is.
const DRAWS: usize = 4;

/// How long a new count waits for answers to requests of the last count, and then for
/// connections to be up again.
const SETTLE: Nanos = Nanos::from_millis(100);

/// A client whose requests and answers are parts of streams of bytes.
///
/// In a pool, a request takes the connection that has been idle for longest. If none is idle, it takes one of the
/// reserve, then one with the fewest requests outstanding. Of independent clients, each request draws its
/// connection. Where the connection has as many requests outstanding as it may have ([`Habits::pipeline`]), or is
/// being opened, the request waits here, in order. A request without an answer in time
/// keeps its place in its connection's order, so that a late answer is not given to another
/// request. A connection that ends, or whose answers can no longer be separated, loses its
/// requests and is reopened.
pub struct StreamClient<T = StreamSockets> {
    exchange: Exchange,
    transport: T,
    habits: Habits,
    /// The most requests outstanding on a connection.
    most: u32,
    rotation: Rotation,
    /// How the requests of this count draw their connections.
    draw: Option<Draw>,
    /// If its connection cannot take it, a request takes another one.
    may_change: bool,
    pending: Pending,
    /// Requests that wait for their connections; in the queue after those of all connections, for any of them.
    waiting: Pending,
    /// A connection that may have room for requests that wait.
    freed: Option<usize>,
    leftovers: Leftovers,
    /// The connections whose end is that of an answer, and how its request ends then.
    until_closed: Vec<Option<Outcome>>,
    /// Where the next packet of each connection begins, if that is known.
    next_keys: Vec<Option<Origin>>,
    /// The connections whose answers are expected, in order.
    guesses: VecDeque<u32>,
    doing: ReadState,
}

/// What is left to do after the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
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
    /// A client over connections that are all up.
    pub fn new(transport: T, protocol: Box<dyn StreamProtocol>) -> Self {
        let connections = transport.connections();
        Self {
            next_keys: (0..connections).map(|c| transport.origin(c)).collect(),
            exchange: Exchange::new(protocol),
            transport,
            habits: Habits::POOL,
            most: u32::MAX,
            rotation: all_up(connections, 0),
            draw: None,
            may_change: true,
            pending: Pending::new(connections),
            waiting: Pending::new(connections + 1),
            freed: None,
            leftovers: Leftovers::new(connections),
            until_closed: vec![None; connections],
            guesses: VecDeque::with_capacity(GUESSES),
            doing: ReadState::Looking,
        }
    }

    /// As [`AnyClient::with`](super::AnyClient::with).
    #[must_use]
    pub fn with(mut self, habits: Habits) -> Self {
        self.habits = habits;
        self.most = habits.pipeline.map_or(u32::MAX, NonZeroU32::get);
        self.rotation = all_up(self.transport.connections(), habits.reserve);
        self
    }

    /// Whether a connection is up and may have one more request outstanding.
    #[inline]
    fn has_room(&self, connection: usize) -> bool {
        (self.rotation.depth(connection)).is_some_and(|depth| depth < self.most)
    }

    /// The queue of requests that wait for any connection.
    fn queue_for_any(&self) -> usize {
        self.transport.connections()
    }

    /// The connection that takes request `k` now; otherwise the queue in which it waits.
    #[inline]
    fn place_for(&mut self, k: usize) -> Result<usize, usize> {
        let Some(draw) = self.draw else {
            return self.of_pool();
        };
        if !self.may_change {
            let connection = draw.of(k);
            let is_free = self.has_room(connection) && self.waiting.first(connection).is_none();
            return if is_free {
                Ok(connection)
            } else {
                Err(connection)
            };
        }
        let mut drawn = (0..DRAWS).map(|attempt| draw.again(k, attempt));
        match drawn.find(|connection| self.rotation.depth(*connection) == Some(0)) {
            Some(idle) => Ok(idle),
            None => self.of_pool(),
        }
    }

    #[inline]
    fn of_pool(&mut self) -> Result<usize, usize> {
        match self.rotation.next() {
            Some(connection) if self.has_room(connection) => Ok(connection),
            _ => Err(self.queue_for_any()),
        }
    }

    /// Hands a request to a connection.
    #[inline]
    fn hand_over(&mut self, connection: usize, request: Request) -> Result<(), NotTaken> {
        let bytes = self.exchange.write(request);
        let taken = self.transport.send(connection, bytes);
        if let Err(why) = taken {
            if why == NotTaken::Ended {
                // the next look reports its end
                self.rotation.leave(connection);
            }
            return Err(why);
        }
        self.rotation.took(connection);
        self.pending.push(connection, request);
        if self.guesses.len() < GUESSES {
            self.guesses.push_back(connection as u32);
        }
        let origin = &mut self.next_keys[connection];
        self.exchange.went(request, connection, origin);
        Ok(())
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
    ) -> ReceiveOutcome {
        let kept = self.leftovers.of(connection);
        let bytes = &kept.unwrap_or(self.transport.bytes())[at..];
        let Some(request) = self.pending.first(connection) else {
            return self.unasked(connection, at, outstanding);
        };
        match self.exchange.read(request, bytes) {
            Decoded::Answer { bytes: n, outcome } if n <= bytes.len() => {
                let rest = bytes.len() - n;
                self.pending.pop(connection);
                self.transport.serves(connection);
                self.rotation.answered(connection);
                self.freed = Some(connection);
                if self.guesses.front() == Some(&(connection as u32)) {
                    self.guesses.pop_front();
                }
                self.doing = if rest > 0 {
                    ReadState::Reading {
                        connection,
                        at: at + n,
                    }
                } else {
                    self.leftovers.clear(connection);
                    ReadState::Looking
                };
                self.exchange.answer(request, outcome, outstanding)
            }
            Decoded::LastAnswer { bytes: n, outcome } if n <= bytes.len() => {
                self.pending.pop(connection);
                self.transport.serves(connection);
                self.transport.abandon(connection);
                let ending = Some(Ending::Closed);
                self.gone(connection, Outcome::ConnectionLost, ending);
                self.exchange.answer(request, outcome, outstanding)
            }
            Decoded::UntilClosed { outcome } => {
                self.leftovers.clear(connection);
                self.until_closed[connection] = Some(outcome);
                self.transport.serves(connection);
                self.doing = ReadState::Looking;
                ReceiveOutcome::Part
            }
            Decoded::NotTaken => self.closed_unserved(connection, outstanding),
            Decoded::Partial { at_least } if at_least <= LARGEST_ANSWER => {
                let came = self.transport.bytes();
                self.leftovers.keep(connection, at, at_least, came);
                self.doing = ReadState::Looking;
                ReceiveOutcome::Part
            }
            _ => {
                self.give_up(connection, Outcome::Malformed);
                self.lose(connection, Outcome::Malformed, None, outstanding)
                    .unwrap_or(ReceiveOutcome::Malformed)
            }
        }
    }

    /// The server says something although nothing was asked.
    #[cold]
    fn unasked(
        &mut self,
        connection: usize,
        at: usize,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        let kept = self.leftovers.of(connection);
        let bytes = &kept.unwrap_or(self.transport.bytes())[at..];
        if self.exchange.is_not_taken(bytes) {
            return self.closed_unserved(connection, outstanding);
        }
        // It is unknown whether later bytes belong to this answer or to a new one.
        self.give_up(connection, Outcome::ConnectionLost);
        ReceiveOutcome::Unexpected
    }

    /// The server ends a connection, and takes nothing of what was asked there since its last answer.
    #[cold]
    fn closed_unserved(
        &mut self,
        connection: usize,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        self.transport.abandon(connection);
        self.ended(connection, Ending::Closed, outstanding)
    }

    /// A connection has ended. That may be the end of an answer.
    #[cold]
    fn ended(
        &mut self,
        connection: usize,
        ending: Ending,
        outstanding: &impl Fn(usize) -> Option<Planned>,
    ) -> ReceiveOutcome {
        let whole = self.until_closed[connection].filter(|_| ending == Ending::Closed);
        self.gone(connection, Outcome::ConnectionLost, Some(ending));
        if let Some(outcome) = whole
            && let Some(request) = self.pending.pop(connection)
        {
            return self.exchange.answer(request, outcome, outstanding);
        }
        let lost = Outcome::ConnectionLost;
        self.lose(connection, lost, Some(ending), outstanding)
            .unwrap_or(ReceiveOutcome::Nothing)
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
        self.until_closed[connection] = None;
        self.next_keys[connection] = None;
        self.doing = ReadState::Losing {
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
    ) -> Option<ReceiveOutcome> {
        let mut outcome = next;
        while let Some(request) = self.pending.pop(connection) {
            if let Some(lost) = self.exchange.lost(request, outcome, outstanding) {
                self.doing = ReadState::Losing {
                    connection,
                    next: Outcome::ConnectionLost,
                    ending,
                };
                return Some(lost);
            }
            outcome = Outcome::ConnectionLost;
        }
        self.doing = ReadState::Looking;
        ending.map(|ending| match ending {
            Ending::Closed => ReceiveOutcome::ConnectionClosed,
            Ending::Reset => ReceiveOutcome::ConnectionReset,
        })
    }

    /// Looks at the connections.
    #[inline]
    fn look(&mut self, outstanding: &impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
        let expected = self.expected();
        match self.transport.receive(expected) {
            Event::Nothing => ReceiveOutcome::Nothing,
            Event::Bytes(connection) => {
                self.came(connection);
                if self.until_closed[connection].is_some() {
                    return ReceiveOutcome::Part;
                }
                match self.leftovers.append(connection, self.transport.bytes()) {
                    Some(false) => ReceiveOutcome::Part,
                    Some(true) | None => self.read(connection, 0, outstanding),
                }
            }
            Event::Ended { connection, ending } => self.ended(connection, ending, outstanding),
            Event::Opened(connection) => {
                self.next_keys[connection] = self.transport.origin(connection);
                self.rotation.join(connection);
                self.freed = Some(connection);
                ReceiveOutcome::Part
            }
            // only where connections are opened one by one
            Event::NotOpened { .. } => ReceiveOutcome::Nothing,
            Event::Refused => ReceiveOutcome::Refused,
        }
    }

    /// Whether a request may wait in this queue. In a pool without a limit, it waits for nothing: no connection is
    /// up.
    fn may_wait_in(&self, queue: usize) -> bool {
        queue != self.queue_for_any() || self.most < u32::MAX
    }

    /// Sends the next request that waits for the connection that has room now.
    fn release(&mut self, wanted: impl Fn(usize, Monotonic) -> bool) -> Option<ReleasedRequest> {
        let connection = self.freed?;
        let queue = match self.waiting.first(connection) {
            Some(_) => connection,
            None => self.queue_for_any(),
        };
        let has_room = self.has_room(connection);
        let Some(request) = has_room.then(|| self.waiting.pop(queue)).flatten() else {
            self.freed = None;
            return None;
        };
        // requests of earlier counts do not wait any more
        let k = self.exchange.number_in_count(request)?;
        let at = now();
        let sent = match wanted(k, at).then(|| self.hand_over(connection, request)) {
            Some(Err(NotTaken::Ended)) => {
                // until the connection is open again
                self.waiting.push(queue, request);
                self.freed = None;
                return None;
            }
            taken => taken.map(|taken| match taken {
                Ok(()) => Ok(SendOutcome::Gone),
                Err(_) => Err(NotSent::Failed),
            }),
        };
        Some(ReleasedRequest { k, at, sent })
    }

    /// Waits a short time for `done`, and drops what comes meanwhile.
    fn settle(&mut self, done: impl Fn(&Self) -> bool) {
        let until = now() + SETTLE;
        while !done(self) && now() < until {
            self.receive(|_| None);
            self.tend(Nanos::MAX);
        }
        // finishes what was begun, which needs no more bytes
        while self.doing != ReadState::Looking {
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
            habits: self.habits,
            draw: None,
            may_wait: self.most < u32::MAX || self.habits.kind == ClientKind::Independent,
            closing: None,
            stamps: self.transport.stamps(),
        }
    }

    fn planner(&self) -> &dyn Planner {
        self.exchange.planner()
    }

    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        self.exchange.wrong_answer()
    }

    /// Waits a short time for answers to requests of the last count; connections that still owe
    /// an answer then are closed and reopened.
    fn begin(&mut self, requests: usize, sending: Sending) {
        for queue in 0..=self.queue_for_any() {
            while self.waiting.pop(queue).is_some() {}
        }
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
        self.exchange.begin(requests);
        let seed = match sending {
            Sending::Scheduled { seed } | Sending::Answered { seed } => seed,
            Sending::Stored => 0,
        };
        let is_independent = self.habits.kind == ClientKind::Independent;
        self.draw = is_independent.then(|| Draw::new(seed, self.transport.connections()));
        self.may_change = !is_independent || !matches!(sending, Sending::Scheduled { .. });
    }

    fn keys(&mut self) -> Keys {
        self.exchange.keys()
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<SendOutcome, NotSent> {
        let (k, request) = self.exchange.next(what);
        for _ in 0..TRIES {
            let place = self.place_for(k);
            let queue =
                match place.map(|connection| (connection, self.hand_over(connection, request))) {
                    Ok((_, Ok(()))) => return Ok(SendOutcome::Gone),
                    Ok((_, Err(NotTaken::Full))) => return Err(NotSent::Failed),
                    // its own connection will be opened again; in a pool there may be another one
                    Ok((connection, Err(NotTaken::Ended))) if !self.may_change => connection,
                    Ok((_, Err(NotTaken::Ended))) => continue,
                    Err(queue) => queue,
                };
            if self.may_wait_in(queue) {
                self.waiting.push(queue, request);
                return Ok(SendOutcome::Waits);
            }
            break;
        }
        Err(NotSent::Failed)
    }

    #[inline]
    fn send_waiting(
        &mut self,
        wanted: impl Fn(usize, Monotonic) -> bool,
    ) -> Option<ReleasedRequest> {
        if self.waiting.len() == 0 {
            return None;
        }
        self.release(wanted)
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
        match self.doing {
            ReadState::Looking => self.look(&outstanding),
            ReadState::Reading { connection, at } => self.read(connection, at, &outstanding),
            ReadState::Losing {
                connection,
                next,
                ending,
            } => self
                .lose(connection, next, ending, &outstanding)
                .unwrap_or(ReceiveOutcome::Part),
        }
    }

    fn wait(&mut self, at_most: Nanos) {
        if self.doing == ReadState::Looking {
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

/// A rotation in which all connections are up.
fn all_up(connections: usize, reserve: usize) -> Rotation {
    let mut rotation = Rotation::new(connections, reserve);
    (0..connections).for_each(|connection| rotation.join(connection));
    rotation
}

#[cfg(test)]
mod tests;
