//! Event-driven servers: workers on one epoll instance, or on one each.
//!
//! **Shared**: every connection is in the one instance with `EPOLLONESHOT`, and a worker
//! takes one event at a time. The reasons:
//! - One event at a time: a worker that took several would have a private queue again,
//!   whose requests would wait while other workers are idle.
//! - `EPOLLONESHOT`: without it, a second request that arrives while the first is being
//!   served would wake a second worker on the same connection. The price is one `epoll_ctl`
//!   for each request. Edge-triggered events would avoid that call, but they need a read that
//!   finds nothing (`EAGAIN`) and a lock that workers wait for.
//! - `EPOLLEXCLUSIVE` does not help: it chooses among *several* instances that watch
//!   the same file. In one instance the kernel wakes only one waiter for an event anyway.
//!
//! A connection with a further request goes to the end of the ready list when it is armed
//! again. So requests are served first come, first served, except those that wait behind
//! another one on their own connection. Of several idle workers the kernel wakes the one that
//! became idle last (`__add_wait_queue_exclusive` in `ep_poll`), so at low load a few workers
//! do all the work.
//!
//! **One for each worker**: connections are assigned in turn, for good. Events are
//! level-triggered, and a worker serves one request of each ready connection in turn.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::connection::{Connection, Connections, Pieces, Step};
use super::service::Work;
use super::spec::Spec;
use super::stop::Stop;
use super::tally::{Answered, Rare};
use crate::protocol::MessageSizes;

/// The number of the event that stops the server; no connection has it.
const STOP: u64 = u64::MAX;
/// Ready connections that a worker with its own instance takes at a time.
const BATCH: usize = 64;

/// The epoll instances and their connections.
pub(super) struct Epoll {
    /// One, or one for each worker.
    instances: Vec<OwnedFd>,
    shared: bool,
    connections: Connections,
    sizes: MessageSizes,
    next: AtomicUsize,
    /// One connection in this many goes to the first worker.
    skew: Option<NonZeroUsize>,
    /// Which answers are written in two pieces.
    pieces: Option<Arc<Pieces>>,
    rare: Arc<Rare>,
}

/// The worker of the connection that came as number `turn`.
fn assigned(turn: usize, workers: usize, skew: Option<NonZeroUsize>) -> usize {
    match skew {
        Some(one_in) if workers > 1 => match turn % one_in {
            0 => 0,
            _ => 1 + (turn - turn / one_in - 1) % (workers - 1),
        },
        _ => turn % workers,
    }
}

impl Epoll {
    /// `workers` is `None` for one instance that all share.
    pub(super) fn new(
        workers: Option<usize>,
        spec: &Spec,
        stop: &Stop,
        rare: Arc<Rare>,
    ) -> io::Result<Self> {
        let instances = (0..workers.unwrap_or(1))
            .map(|_| {
                let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                // level-triggered and never read, so that every worker sees it
                let data = EventData::new_u64(STOP);
                epoll::add(&instance, stop.event(), data, EventFlags::IN)?;
                Ok(instance)
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            instances,
            shared: workers.is_none(),
            connections: Connections::new(),
            sizes: spec.sizes,
            next: AtomicUsize::new(0),
            skew: spec.skew,
            pieces: spec.in_pieces.map(|every| Arc::new(Pieces::one_in(every))),
            rare,
        })
    }

    /// Takes a new connection, whose reads and writes must not block; called by the
    /// accept thread.
    pub(super) fn connected(&self, socket: OwnedFd) -> io::Result<()> {
        let connection = Connection::new(socket, self.sizes, self.pieces.clone());
        let socket = Arc::clone(&connection.socket);
        let Ok(number) = self.connections.insert(connection) else {
            return Err(Errno::MFILE.into());
        };
        let turn = self.next.fetch_add(1, Relaxed);
        let turn = assigned(turn, self.instances.len(), self.skew);
        let data = EventData::new_u64(number);
        epoll::add(&self.instances[turn], &*socket, data, self.interest(false)).map_err(|errno| {
            if let Some(mut slot) = self.connections.get(number) {
                slot.take();
            }
            errno.into()
        })
    }

    /// Closes all connections; the workers have ended.
    pub(super) fn close(&self) {
        self.connections.clear();
    }

    fn interest(&self, room: bool) -> EventFlags {
        let what = if room {
            EventFlags::OUT
        } else {
            EventFlags::IN
        };
        if self.shared {
            what | EventFlags::ONESHOT
        } else {
            what
        }
    }

    /// The loop of worker `number`, until told to stop. With `busy` it spins instead of sleeping.
    pub(super) fn serve(
        &self,
        number: usize,
        mut work: Work,
        answered: &Answered,
        busy: bool,
        stop: &Stop,
    ) {
        work.prepare();
        let instance = &self.instances[number % self.instances.len()];
        let mut events = Vec::with_capacity(if self.shared { 1 } else { BATCH });
        let at_once = Timespec::default();
        let timeout = busy.then_some(&at_once);
        while !stop.is_set() {
            events.clear();
            match epoll::wait(instance, spare_capacity(&mut events), timeout) {
                Ok(0) => std::hint::spin_loop(),
                Ok(_) | Err(Errno::INTR) => {}
                // cannot happen: the instance stays open
                Err(_) => return,
            }
            for event in &events {
                let number = event.data.u64();
                if number == STOP || stop.is_set() {
                    return;
                }
                self.turn(instance, number, &mut work, answered);
            }
        }
    }

    /// One connection's turn.
    #[inline]
    fn turn(&self, instance: &OwnedFd, number: u64, work: &mut Work, answered: &Answered) {
        let Some(mut slot) = self.connections.get(number) else {
            return;
        };
        let Some(connection) = slot.as_mut() else {
            return;
        };
        let step = connection.advance(work);
        if let Step::Over(end) = step {
            slot.take();
            self.rare.ended(end);
            return;
        }
        if step == Step::Answered {
            answered.one_more();
        }
        let room = step == Step::AwaitRoom;
        let changed = connection.awaits_room != room;
        if !self.shared && !changed {
            return;
        }
        connection.awaits_room = room;
        let socket = Arc::clone(&connection.socket);
        // Unlocked first: as soon as epoll is told, another worker may serve the connection.
        drop(slot);
        let data = EventData::new_u64(number);
        // fails only when the connection is in no instance; then there is nothing to arm
        let _ = epoll::modify(instance, &*socket, data, self.interest(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_assigned_in_turn_or_unevenly() {
        let of = |skew| -> Vec<usize> {
            let skew = NonZeroUsize::new(skew);
            (0..8).map(|turn| assigned(turn, 4, skew)).collect()
        };
        assert_eq!(of(0), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(of(2), [0, 1, 0, 2, 0, 3, 0, 1]);
        assert_eq!(of(3), [0, 1, 2, 0, 3, 1, 0, 2]);
        assert_eq!(assigned(5, 1, NonZeroUsize::new(2)), 0);
    }
}
