//! Accepts the connections of a stream server.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::time::Timespec;

use super::error::ServeError;
use super::stop::Stop;
use super::tally::Rare;

/// Accepts connections on its own thread.
pub(super) struct Acceptor {
    listener: OwnedFd,
    flags: SocketFlags,
    no_delay: bool,
    /// Closed for a moment when the process may open no more files. Then a client that cannot
    /// be served is accepted and disconnected at once.
    spare: Option<OwnedFd>,
}

impl Acceptor {
    /// Accepts the connections of `listener`; `blocking`: their reads and writes block.
    pub(super) fn new(
        listener: OwnedFd,
        blocking: bool,
        no_delay: bool,
    ) -> Result<Self, ServeError> {
        let spare = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| ServeError::Start {
            call: "eventfd",
            source: errno.into(),
        })?;
        let flags = match blocking {
            true => SocketFlags::CLOEXEC,
            false => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        };
        Ok(Self {
            listener,
            flags,
            no_delay,
            spare: Some(spare),
        })
    }

    /// Hands each new connection to `connected` until told to stop.
    pub(super) fn run(
        mut self,
        stop: &Stop,
        rare: &Rare,
        connected: impl Fn(OwnedFd) -> io::Result<()>,
    ) {
        while !stop.is_set() {
            match accept_with(&self.listener, self.flags) {
                Ok(socket) => {
                    if self.no_delay {
                        // a response never waits for the acknowledgement of another
                        let _ = sockopt::set_tcp_nodelay(&socket, true);
                    }
                    match connected(socket) {
                        Ok(()) => Rare::count(&rare.connections),
                        Err(_) => Rare::count(&rare.refused),
                    }
                }
                Err(Errno::AGAIN) => self.wait(stop),
                Err(Errno::MFILE | Errno::NFILE) => self.refuse(stop, rare),
                Err(Errno::NOBUFS | Errno::NOMEM) => pause(stop),
                // the client closed before it was accepted
                Err(_) => {}
            }
        }
    }

    fn wait(&self, stop: &Stop) {
        let mut files = [
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(stop.event(), PollFlags::IN),
        ];
        // if a signal interrupts it, the caller looks again
        let _ = poll(&mut files, None);
    }

    fn refuse(&mut self, stop: &Stop, rare: &Rare) {
        self.spare = None;
        match accept_with(&self.listener, self.flags) {
            Ok(_) => Rare::count(&rare.refused),
            Err(_) => pause(stop),
        }
        self.spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}

/// Waits 10 ms for the machine to recover, less if the server is to stop.
fn pause(stop: &Stop) {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    let _ = poll(
        &mut [PollFd::new(stop.event(), PollFlags::IN)],
        Some(&moment),
    );
}
