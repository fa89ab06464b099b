//! Ping-pong on all connections of one thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use taillab_model::rtt::{RoundTrip, RttCounts, XdpAttachment};
use taillab_model::{Monotonic, Nanos};

use super::error::RttError;
use super::message::{Arrived, Message};
use super::wire::{WaitOutcome, Wire};
use crate::clock::now;

/// After this many messages lost in a row the server counts as gone.
const PATIENCE: u64 = 10;

/// After this many foreign datagrams, before any answer, the server counts as no echo server.
const FOREIGN: u64 = 3;

/// Messages on each connection before an overdue one is given up while others keep coming. After a
/// pause of this thread its answer may be there, behind theirs.
const BEHIND: usize = 4;

/// Round trips between two updates of the progress.
const NOTED: u64 = 64;

/// What a thread has to do.
pub(super) struct ThreadTask<'a> {
    /// Round trips on each connection of the thread, without the warm-up.
    pub(super) counts: Vec<u64>,
    /// The number of the thread's first connection among those of all threads.
    pub(super) first_connection: u16,
    /// Uncounted round trips of each connection at the beginning.
    pub(super) warm_up: u64,
    /// Bytes of a message.
    pub(super) size: usize,
    /// A message unanswered for this long is lost.
    pub(super) timeout: Nanos,
    /// Messages can be lost although the connection does not end.
    pub(super) is_datagram: bool,
    /// The server's name, for the texts of errors.
    pub(super) server: &'a str,
    /// Ends the run early when it becomes true.
    pub(super) stop: &'a AtomicBool,
    /// Round trips done by all threads.
    pub(super) progress: &'a AtomicU64,
}

/// The client's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// Its port.
    pub port: u16,
    /// The kernel's id of the thread that sends and receives on it.
    pub thread: u32,
    /// The number of that thread among the client's, from 0.
    pub client: usize,
}

/// The result of a run, or of one thread of it.
#[derive(Debug, Default)]
pub struct RoundTrips {
    /// In the order of their sends; in the result of one thread, one connection after the other.
    pub round_trips: Vec<RoundTrip>,
    /// What became of the messages.
    pub counts: RttCounts,
    /// From the first send to the end of the last round trip, answered or given up; zero for one
    /// thread.
    pub length: Nanos,
    /// CPU time of the client's threads, including the warm-up.
    pub cpu: Nanos,
    /// The client's ends, one for each connection; empty if there are no ports.
    pub ends: Vec<ConnectionEnd>,
    /// Why it ended early; an interruption is not a failure.
    pub failure: Option<RttError>,
    /// Why the times do not measure the protocol, if they do not.
    pub functional_only: Option<&'static str>,
    /// Where the kernel takes the packets of AF_XDP, if it was that.
    pub xdp_attachment: Option<XdpAttachment>,
}

/// One connection during a run.
struct Player {
    message: Message,
    sent: Monotonic,
    /// A message is under way.
    waits: bool,
    /// Round trips left, including the warm-up.
    left: u64,
    counted: u64,
    /// Numbers of messages given up whose answers may still come.
    given_up: Vec<u64>,
    lost_in_a_row: u64,
    round_trips: Vec<RoundTrip>,
}

/// The engine, compiled for each wire, so that a round trip makes no virtual call: over shared
/// memory the call would be part of what is measured.
pub(super) trait Play: Wire {
    /// Plays until each connection has its round trips, until a failure, or until told to stop.
    fn play(&mut self, task: &ThreadTask<'_>) -> RoundTrips;
}

impl<W: Wire> Play for W {
    fn play(&mut self, task: &ThreadTask<'_>) -> RoundTrips {
        play(task, self)
    }
}

fn play(task: &ThreadTask<'_>, wire: &mut impl Wire) -> RoundTrips {
    let mut engine = Engine {
        task,
        players: task.counts.iter().map(|&n| Player::new(task, n)).collect(),
        counts: RttCounts::default(),
        open: 0,
        noted: 0,
        has_answered: false,
        oldest: now(),
        since_overdue: 0,
    };
    let failure = engine.run(wire).err();
    task.progress.fetch_add(engine.noted, Relaxed);
    // without a copy where there is one connection
    let mut all = engine.players.into_iter().map(|player| player.round_trips);
    let mut round_trips = all.next().unwrap_or_default();
    all.for_each(|more| round_trips.extend(more));
    RoundTrips {
        round_trips,
        counts: engine.counts,
        failure,
        ..RoundTrips::default()
    }
}

impl Player {
    fn new(task: &ThreadTask<'_>, count: u64) -> Self {
        // touched now, so that the measurement has no page fault
        let blank = RoundTrip {
            sent: Monotonic::MAX,
            rtt: Nanos::MAX,
            connection: u16::MAX,
            lost: true,
        };
        let mut round_trips = vec![blank; count as usize];
        round_trips.clear();
        Self {
            message: Message::new(task.size, 0),
            sent: Monotonic::MAX,
            waits: false,
            left: count + task.warm_up,
            counted: count,
            given_up: Vec::new(),
            lost_in_a_row: 0,
            round_trips,
        }
    }

    /// Whether the round trip under way counts.
    fn counts(&self) -> bool {
        self.left <= self.counted
    }
}

struct Engine<'a> {
    task: &'a ThreadTask<'a>,
    players: Vec<Player>,
    counts: RttCounts,
    /// Connections that have not finished.
    open: usize,
    noted: u64,
    /// The server has answered a message, perhaps one of the warm-up.
    has_answered: bool,
    /// No message under way was sent before this time.
    oldest: Monotonic,
    /// Messages received since one has been overdue.
    since_overdue: usize,
}

impl Engine<'_> {
    fn run(&mut self, wire: &mut impl Wire) -> Result<(), RttError> {
        self.open = self.players.iter().filter(|p| p.left > 0).count();
        for connection in 0..self.players.len() {
            if self.players[connection].left > 0 {
                self.send(wire, connection)?;
            }
        }
        while self.open > 0 {
            match wire.receive()? {
                WaitOutcome::Message { connection, bytes } => {
                    let received = now();
                    let Some(player) = self.players.get(connection) else {
                        continue;
                    };
                    let arrived = match player.waits {
                        true => player.message.check(bytes),
                        // nothing is under way: a second answer to the same message
                        false => match player.message.check(bytes) {
                            Arrived::Answer => Arrived::Earlier(player.message.number()),
                            other => other,
                        },
                    };
                    if arrived == Arrived::Answer {
                        self.answered(connection, received);
                        self.next(wire, connection)?;
                    } else {
                        self.unexpected(connection, arrived)?;
                    }
                    if received.saturating_since(self.oldest) >= self.task.timeout {
                        self.overdue(wire, received)?;
                    }
                }
                WaitOutcome::Nothing => {
                    if self.task.stop.load(Relaxed) {
                        return Ok(());
                    }
                    self.give_up(wire, now())?;
                }
            }
        }
        wire.finish()
    }

    #[inline]
    fn send(&mut self, wire: &mut impl Wire, connection: usize) -> Result<(), RttError> {
        let player = &mut self.players[connection];
        player.message.advance();
        player.waits = true;
        if player.counts() {
            self.counts.sent += 1;
        }
        player.sent = now();
        wire.send(connection, player.message.bytes())
    }

    #[inline]
    fn answered(&mut self, connection: usize, received: Monotonic) {
        let player = &mut self.players[connection];
        self.has_answered = true;
        player.waits = false;
        player.lost_in_a_row = 0;
        if player.counts() {
            self.counts.answered += 1;
            player.round_trips.push(RoundTrip {
                sent: player.sent,
                rtt: received.saturating_since(player.sent),
                connection: self.task.first_connection + connection as u16,
                lost: false,
            });
        }
        player.left -= 1;
        self.noted += 1;
        if self.noted == NOTED {
            self.task.progress.fetch_add(NOTED, Relaxed);
            self.noted = 0;
        }
    }

    /// Sends the connection's next message, if there is one left.
    #[inline]
    fn next(&mut self, wire: &mut impl Wire, connection: usize) -> Result<(), RttError> {
        if self.players[connection].left == 0 {
            self.open -= 1;
            return Ok(());
        }
        if self.task.stop.load(Relaxed) {
            self.players[connection].left = 0;
            self.open -= 1;
            return Ok(());
        }
        self.send(wire, connection)
    }

    /// Counts a message that is not the expected answer; the round trip goes on.
    #[cold]
    fn unexpected(&mut self, connection: usize, arrived: Arrived) -> Result<(), RttError> {
        let player = &mut self.players[connection];
        match arrived {
            Arrived::Answer => {}
            Arrived::Earlier(number) => match player.given_up.iter().position(|&n| n == number) {
                Some(at) => {
                    player.given_up.swap_remove(at);
                    self.counts.late += 1;
                }
                None => self.counts.duplicated += 1,
            },
            Arrived::Foreign => self.counts.foreign += 1,
        }
        // on a stream, what follows cannot be trusted either
        let is_no_echo = match self.task.is_datagram {
            true => self.counts.foreign >= FOREIGN && !self.has_answered,
            false => self.counts.foreign > 0,
        };
        if is_no_echo {
            return Err(RttError::NoEcho {
                server: self.task.server.to_owned(),
                foreign: self.counts.foreign,
                size: self.task.size,
            });
        }
        Ok(())
    }

    /// Gives up what is overdue once the other connections have had their turns: while they keep the
    /// wire busy, it never has nothing.
    #[cold]
    fn overdue(&mut self, wire: &mut impl Wire, at: Monotonic) -> Result<(), RttError> {
        self.since_overdue += 1;
        match self.since_overdue > BEHIND * self.players.len() {
            true => self.give_up(wire, at),
            false => Ok(()),
        }
    }

    /// Gives up messages that have waited too long at this time, and sends the next ones.
    #[cold]
    fn give_up(&mut self, wire: &mut impl Wire, at: Monotonic) -> Result<(), RttError> {
        for connection in 0..self.players.len() {
            let player = &mut self.players[connection];
            let waited = at.saturating_since(player.sent);
            if !player.waits || waited < self.task.timeout {
                continue;
            }
            player.waits = false;
            player.lost_in_a_row += 1;
            player.given_up.push(player.message.number());
            if player.counts() {
                self.counts.lost += 1;
                player.round_trips.push(RoundTrip {
                    sent: player.sent,
                    rtt: waited,
                    connection: self.task.first_connection + connection as u16,
                    lost: true,
                });
            }
            player.left -= 1;
            let lost = player.lost_in_a_row;
            if lost >= PATIENCE || !self.task.is_datagram {
                return Err(RttError::Silent {
                    server: self.task.server.to_owned(),
                    waited,
                    lost,
                });
            }
            self.next(wire, connection)?;
        }
        let waiting = self.players.iter().filter(|player| player.waits);
        self.oldest = waiting.map(|player| player.sent).min().unwrap_or(at);
        self.since_overdue = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
