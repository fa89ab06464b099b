//! The client's end of some connections.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use taillab_model::Nanos;

use super::handshake::{Hello, ask, in_words, is_gone};
use super::link::{Link, LinkError, OUT};
use super::{LOOKS, SLEEP, Verb, place};
use crate::clock::now;
use crate::endpoint::Endpoint;
use crate::rtt::error::RttError;
use crate::rtt::kinds::Mode;
use crate::rtt::wire::{WaitOutcome, Wire};
use crate::transport::descriptors::{errno, fault};

/// Bytes of a message's number, the part that changes from message to message.
const NUMBER: usize = 8;
/// The longest wait for a TCP connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Empty waits between two checks that the server is still there.
const LOOKED_AFTER: u32 = 64;

/// One connection.
struct RdmaConnection {
    control: TcpStream,
    link: Link,
    server: String,
    /// A message is under way.
    waits: bool,
    answered: u64,
    /// The area whose message has been taken, so that its receive must be posted again.
    spent: Option<usize>,
    /// The number of the message under way, which a read does not fetch.
    number: [u8; NUMBER],
}

/// The client's end of some connections.
pub(in crate::rtt) struct Verbs {
    verb: Verb,
    size: usize,
    sleeps: bool,
    timeout: Nanos,
    connections: Vec<RdmaConnection>,
    empty: u32,
}

impl Verbs {
    /// Connects to servers of ours by their TCP addresses.
    ///
    /// # Errors
    /// [`RttError::Connect`], [`RttError::Handshake`], [`RttError::Unavailable`].
    pub(in crate::rtt) fn connect(
        endpoints: &[Endpoint],
        verb: Verb,
        mode: Mode,
        size: usize,
        timeout: Nanos,
    ) -> Result<Self, RttError> {
        let sleeps = mode == Mode::Blocking;
        let connect = |endpoint: &Endpoint| match endpoint {
            Endpoint::Tcp(address) => RdmaConnection::open(*address, verb, size, sleeps),
            _ => Err(RttError::Unavailable {
                proto: verb.proto(),
                why: "its server needs a TCP address: use --target HOST:PORT".to_owned(),
            }),
        };
        Ok(Self {
            verb,
            size,
            sleeps,
            timeout,
            connections: endpoints.iter().map(connect).collect::<Result<_, _>>()?,
            empty: 0,
        })
    }

    /// The connection, the area and the length of a message that has come.
    #[inline]
    fn arrived(&mut self) -> Result<Option<(usize, usize, usize)>, RttError> {
        let (verb, size) = (self.verb, self.size);
        for (at, connection) in self.connections.iter_mut().enumerate() {
            while connection.waits {
                let polled = connection.link.poll();
                let Some(done) = polled.map_err(|error| connection.ended(verb, error))? else {
                    break;
                };
                let (area, bytes) = match verb {
                    // the end of an earlier send, not the answer
                    Verb::Send if !done.is_received => continue,
                    Verb::Send => {
                        connection.spent = Some(done.area);
                        (done.area, done.bytes)
                    }
                    Verb::Read => (connection.numbered(done.area, size), size),
                    Verb::Write => (OUT, size),
                };
                connection.waits = false;
                connection.answered += 1;
                return Ok(Some((at, area, bytes)));
            }
        }
        Ok(None)
    }

    /// Sleeps until something may have arrived; `false` if the caller must look once more first.
    fn sleep(&mut self) -> Result<bool, RttError> {
        let verb = self.verb;
        let mut is_new = false;
        for connection in self.connections.iter_mut().filter(|c| c.waits) {
            let armed = connection.link.arm();
            is_new |= armed.map_err(|error| connection.ended(verb, error))?;
        }
        if is_new {
            return Ok(false);
        }
        let mut files: Vec<PollFd<'_>> = Vec::with_capacity(2 * self.connections.len());
        for connection in &self.connections {
            let events = connection.link.events();
            let events = events.unwrap_or_else(|| connection.control.as_fd());
            files.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
            files.push(PollFd::new(&connection.control, PollFlags::IN));
        }
        let longest = SLEEP.try_into().ok();
        // an interrupted sleep is a short one
        let _ = poll(&mut files, longest.as_ref());
        let ready: Vec<bool> = files
            .iter()
            .map(|file| !file.revents().is_empty())
            .collect();
        for (connection, ready) in self.connections.iter_mut().zip(ready.chunks_exact(2)) {
            if ready[0] {
                let taken = connection.link.take_event();
                taken.map_err(|error| connection.ended(verb, error))?;
            } else if ready[1] {
                return Err(connection.gone());
            }
        }
        Ok(true)
    }
}

impl Wire for Verbs {
    #[inline]
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        let verb = self.verb;
        let connection = &mut self.connections[connection];
        let area = match verb {
            // alternating areas, so that an old message is never taken for the new one
            Verb::Read => (connection.answered % 2) as usize,
            Verb::Send | Verb::Write => {
                connection.link.fill(OUT, message);
                OUT
            }
        };
        connection.number.copy_from_slice(&message[..NUMBER]);
        connection.waits = true;
        let posted = connection.link.post(verb, area, message.len());
        posted.map_err(|error| connection.ended(verb, error))
    }

    #[inline]
    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        let verb = self.verb;
        // posted while the message is under way
        for connection in &mut self.connections {
            if let Some(area) = connection.spent.take() {
                let posted = connection.link.post_receive(area);
                posted.map_err(|error| connection.ended(verb, error))?;
            }
        }
        let mut found = None;
        let mut slept = false;
        for _ in 0..LOOKS {
            found = self.arrived()?;
            match found {
                Some(_) => break,
                None if self.sleeps && slept => break,
                None if self.sleeps => slept = self.sleep()?,
                None => std::hint::spin_loop(),
            }
        }
        let Some((connection, area, bytes)) = found else {
            self.empty += 1;
            if self.empty.is_multiple_of(LOOKED_AFTER) {
                let lost = self.connections.iter().find(|c| is_gone(&c.control));
                if let Some(connection) = lost {
                    return Err(connection.gone());
                }
            }
            return Ok(WaitOutcome::Nothing);
        };
        Ok(WaitOutcome::Message {
            connection,
            bytes: self.connections[connection].link.bytes(area, bytes),
        })
    }

    fn finish(&mut self) -> Result<(), RttError> {
        if self.verb != Verb::Write {
            return Ok(());
        }
        let (size, timeout) = (self.size, self.timeout);
        self.connections
            .iter_mut()
            .filter(|connection| connection.answered > 0)
            .try_for_each(|connection| connection.read_back(size, timeout))
    }

    fn functional_only(&self) -> Option<&'static str> {
        let is_software = |connection: &RdmaConnection| connection.link.is_software();
        self.connections
            .iter()
            .any(is_software)
            .then_some("a kernel driver does the adapter's work on a CPU (soft RoCE)")
    }
}

impl RdmaConnection {
    fn open(address: SocketAddr, verb: Verb, size: usize, sleeps: bool) -> Result<Self, RttError> {
        let server = address.to_string();
        let failed = |error: std::io::Error| fault(&Endpoint::Tcp(address), 1, errno(&error));
        let control = TcpStream::connect_timeout(&address, CONNECT).map_err(failed)?;
        let own = control.local_addr().map_err(failed)?.ip();
        let missing = |why| verb.error(LinkError::Missing(why), &server, 0);
        let place = place::choose(Path::new("/sys"), own).map_err(missing)?;
        let made = |error| verb.error(error, &server, 0);
        let mut link = Link::open(place, size, sleeps).map_err(made)?;
        if verb == Verb::Send {
            for area in 0..OUT {
                link.post_receive(area).map_err(made)?;
            }
        }
        let hello = Hello {
            verb,
            size: size as u32,
            address: link.address(),
        };
        let other = ask(&control, &hello).map_err(|error| RttError::Handshake {
            server: server.clone(),
            why: in_words(&error),
        })?;
        link.join(other).map_err(made)?;
        Ok(Self {
            control,
            link,
            server,
            waits: false,
            answered: 0,
            spent: None,
            number: [0; NUMBER],
        })
    }

    /// Puts the number of the message under way into the area, if the read has filled it: the
    /// server's two messages have the numbers of their areas.
    fn numbered(&mut self, area: usize, size: usize) -> usize {
        let expected = (area as u64).to_be_bytes();
        if self.link.bytes(area, size)[..NUMBER] == expected {
            let number = self.number;
            self.link.fill(area, &number);
        }
        area
    }

    /// Reads the last written message back and compares it.
    fn read_back(&mut self, size: usize, timeout: Nanos) -> Result<(), RttError> {
        let failed = |connection: &Self, error| connection.ended(Verb::Write, error);
        // the other end has it in the area of the same number
        let written = self.link.bytes(OUT, size).to_vec();
        self.link.fill(OUT, &vec![0; size]);
        let posted = self.link.post(Verb::Read, OUT, size);
        posted.map_err(|error| failed(self, error))?;
        let begun = now();
        while self
            .link
            .poll()
            .map_err(|error| failed(self, error))?
            .is_none()
        {
            let waited = now().saturating_since(begun);
            if waited > timeout {
                let server = self.server.clone();
                return Err(RttError::Silent {
                    server,
                    waited,
                    lost: 1,
                });
            }
            thread::yield_now();
        }
        if self.link.bytes(OUT, size) == written {
            return Ok(());
        }
        Err(RttError::NoEcho {
            server: self.server.clone(),
            foreign: 1,
            size,
        })
    }

    /// Why the link ended; reports a server that is gone as such.
    #[cold]
    fn ended(&self, verb: Verb, error: LinkError) -> RttError {
        match error {
            LinkError::Status(_) if is_gone(&self.control) => self.gone(),
            error => verb.error(error, &self.server, self.answered),
        }
    }

    fn gone(&self) -> RttError {
        RttError::PeerGone {
            server: self.server.clone(),
            answered: self.answered,
        }
    }
}
