//! An epoll instance over numbered connections.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use taillab_model::Nanos;

/// Finds connections with something to read or with room to write.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

// SAFETY: the one part that is not `Send` is the buffer of epoll events, whose data may
// be a pointer for other users of epoll; ours is always a connection's number.
unsafe impl Send for Poll {}

impl Poll {
    /// An instance that reports at most `events` connections at a time.
    pub(crate) fn new(events: usize) -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(events),
        })
    }

    pub(crate) fn add(
        &self,
        socket: impl AsFd,
        connection: usize,
        wanted: EventFlags,
    ) -> Result<(), Errno> {
        let data = EventData::new_u64(connection as u64);
        epoll::add(&self.epoll, socket, data, wanted)
    }

    pub(super) fn modify(
        &self,
        socket: impl AsFd,
        connection: usize,
        wanted: EventFlags,
    ) -> Result<(), Errno> {
        let data = EventData::new_u64(connection as u64);
        epoll::modify(&self.epoll, socket, data, wanted)
    }

    /// Waits at most `at_most`; returns the connections that are ready, in reverse order since the
    /// callers put them on a stack.
    pub(crate) fn wait(&mut self, at_most: Nanos) -> impl Iterator<Item = (usize, EventFlags)> {
        /// `epoll_wait` sleeps for whole milliseconds: rustix rounds up to them.
        const GRAIN_NS: u64 = 1_000_000;
        self.events.clear();
        let mut timeout = Timespec {
            tv_sec: (at_most.get() / 1_000_000_000) as i64,
            tv_nsec: (at_most.get() % 1_000_000_000) as _,
        };
        // an error (a signal) only means that nothing was found this time, here and below
        if !at_most.get().is_multiple_of(GRAIN_NS) {
            let _ = poll(
                &mut [PollFd::new(&self.epoll, PollFlags::IN)],
                Some(&timeout),
            );
            timeout = Timespec::default();
        }
        let _ = epoll::wait(
            &self.epoll,
            spare_capacity(&mut self.events),
            Some(&timeout),
        );
        // copied: the kernel's struct is packed
        let found = self.events.iter().rev();
        found.map(|event| (event.data.u64() as usize, event.flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn a_short_wait_is_not_rounded_up_to_a_millisecond() {
        let mut poll = Poll::new(1).unwrap();
        // others may have the CPU after a wait, but not after every one
        let mut shortest = |at_most: Nanos| {
            let lengths = (0..300).map(|_| {
                let from = now();
                assert_eq!(poll.wait(at_most).count(), 0);
                now().saturating_since(from)
            });
            lengths.min().unwrap()
        };
        let short = shortest(Nanos::from_micros(100));
        assert!(short >= Nanos::from_micros(100));
        assert!(short * 2 < shortest(Nanos::from_millis(1)));
    }
}
