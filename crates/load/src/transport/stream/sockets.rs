//! Stream sockets, looked at by spinning.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use taillab_model::{Monotonic, Nanos};

use super::opening::Opener;
use super::{DialTransport, Ending, Event, NotTaken, Origin, StreamTransport};
use crate::clock::now;
use crate::stamps::{self, KernelStamps, RealtimeBridge};
use crate::transport::descriptors::{self, errno, fault};
use crate::transport::poll::Poll;
use crate::transport::{NotSent, Sockets};
use crate::{Endpoint, LoadError};

/// The most bytes that one call reads; all connections share the buffer.
const RECEIVE_BYTES: usize = 256 << 10;

/// Bytes that wait for a server that does not read, per connection; beyond that, sends
/// fail.
const OUTPUT_BYTES: usize = 1 << 20;

/// The most connections that one look at all of them reports.
const EVENTS: usize = 256;

/// Empty looks at the expected connection before epoll is asked for all connections.
const PATIENCE: u32 = 4;

/// Epoll is asked for all connections at least once in this many looks, even while the answers
/// come as expected: other connections may have ended.
const LOOKS: u32 = 256;

/// At the start, the most connections that are being opened at the same time.
const OPENING_AT_ONCE: usize = 128;

/// Opening all connections fails if none comes up for this long.
const STUCK: Nanos = Nanos::from_secs(10);

/// Between two attempts to open a connection that could not be opened, or that ended before it served. One that
/// served is opened again at once.
const RETRY: Nanos = Nanos::from_millis(10);

/// So often, the time between two attempts doubles if the server accepts the connection and ends it again, as one
/// does that has too many.
const DOUBLINGS: u32 = 6;

/// Opening a connection takes about this long. It is done when nothing is due for as long, or
/// when it is overdue by [`OVERDUE`].
const OPENING_TAKES: Nanos = Nanos::from_micros(60);

/// How long opening a connection waits for a gap in the schedule.
const OVERDUE: Nanos = Nanos::from_micros(200);

/// When no connection has been up for this long, and one has been under way as long, the server counts as gone.
const GONE: Nanos = Nanos::from_secs(1);

/// N stream sockets to one server.
///
/// A server that answers in the order of the requests answers first on the connection
/// that has waited longest, which the caller knows: an answer takes one system call, an empty look
/// one short one (`EAGAIN`). As with datagrams, after four empty looks the next one
/// asks epoll for all connections. Epoll is level-triggered: a connection is read
/// once when it is reported, and reported again if there is more.
pub struct StreamSockets {
    opener: Opener,
    lifetime: Lifetime,
    links: Vec<Link>,
    poll: Poll,
    /// Connections that epoll reported and that have not been read yet.
    ready: Vec<u32>,
    empty_looks: u32,
    looks: u32,
    buffer: Box<[u8]>,
    received: usize,
    /// When to reopen which connection, the earliest first.
    closed: BinaryHeap<Reverse<(Monotonic, u32)>>,
    /// Connections that came up again, not yet reported.
    opened: VecDeque<u32>,
    /// Connections that were dialled and cannot be opened, not yet reported.
    not_opened: VecDeque<(u32, NotSent)>,
    opening: usize,
    up: usize,
    last_up: Monotonic,
    refused: bool,
    stamps: KernelStamps,
    bridge: RealtimeBridge,
    /// The kernel's stamp of the bytes received last.
    stamp: Option<Monotonic>,
}

/// How long connections are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// All the time: those that end are opened again.
    Kept,
    /// For one request.
    Each {
        /// What this side closes, it closes with a reset.
        resets: bool,
    },
}

#[derive(Debug)]
struct Link {
    socket: Option<OwnedFd>,
    /// The socket is connected; one that is not up is being opened.
    is_up: bool,
    /// A send found that the connection was reset, or failed in the network; the socket reports that
    /// only once.
    was_reset: bool,
    origin: Option<Origin>,
    /// Bytes that the kernel has not taken yet.
    output: Vec<u8>,
    attempted: Monotonic,
    /// The server has answered on it since it was opened.
    served: bool,
    /// How often in a row it has ended before it served.
    failures: u32,
}

impl StreamSockets {
    /// Opens `connections` connections to a TCP or Unix stream socket in the calling
    /// thread's network namespace, up to 128 of them at the same time. Of the kernel's
    /// `stamps`, only those of what is received over TCP are taken.
    ///
    /// # Errors
    /// [`LoadError::NoConnections`], [`LoadError::TooManyFiles`],
    /// [`LoadError::TooManyPorts`], [`LoadError::Refused`] or [`LoadError::Socket`], the
    /// last also when no connection comes up for 10 s or the endpoint is a UDP one.
    pub fn connect(
        server: &Endpoint,
        connections: usize,
        stamps: KernelStamps,
    ) -> Result<Self, LoadError> {
        let mut sockets = Self::closed(server, connections, stamps, Lifetime::Kept)?;
        let opened = sockets.open_all();
        opened.map_err(|error| fault(server, connections, error))?;
        sockets.opened.clear();
        Ok(sockets)
    }

    /// Connections that are opened one by one, each for one request, at most this many at once. What this side closes,
    /// it closes with a reset if `resets`, so that no port stays in TIME_WAIT.
    ///
    /// # Errors
    /// As [`Self::connect`], as far as no connection is needed.
    pub fn one_by_one(
        server: &Endpoint,
        connections: usize,
        stamps: KernelStamps,
        resets: bool,
    ) -> Result<Self, LoadError> {
        Self::closed(server, connections, stamps, Lifetime::Each { resets })
    }

    fn closed(
        server: &Endpoint,
        connections: usize,
        stamps: KernelStamps,
        lifetime: Lifetime,
    ) -> Result<Self, LoadError> {
        if connections == 0 {
            return Err(LoadError::NoConnections);
        }
        descriptors::make_room(connections)?;
        let fault = |error: Errno| fault(server, connections, error);
        Ok(Self {
            opener: Opener::new(server).map_err(fault)?,
            lifetime,
            links: (0..connections).map(|_| Link::closed()).collect(),
            poll: Poll::new(EVENTS).map_err(fault)?,
            ready: Vec::with_capacity(EVENTS),
            empty_looks: 0,
            looks: 0,
            // every byte written now: no page fault later
            buffer: vec![1; RECEIVE_BYTES].into_boxed_slice(),
            received: 0,
            closed: BinaryHeap::with_capacity(connections),
            opened: VecDeque::with_capacity(connections),
            not_opened: VecDeque::new(),
            opening: 0,
            up: 0,
            last_up: now(),
            refused: false,
            stamps: KernelStamps {
                received: stamps.received && matches!(server, Endpoint::Tcp(_)),
                sent: false,
            },
            bridge: RealtimeBridge::default(),
            stamp: None,
        })
    }

    fn open_all(&mut self) -> Result<(), Errno> {
        let mut begun = 0;
        while self.up < self.links.len() {
            let before = self.up;
            while begun < self.links.len() && self.opening < OPENING_AT_ONCE {
                match self.open(begun) {
                    Ok(()) => begun += 1,
                    // a Unix socket's backlog is full until the server accepts
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error),
                }
            }
            if self.opening > 0 {
                self.look_at_all(Nanos::from_millis(1));
            } else if self.up == before {
                std::thread::sleep(Duration::from_millis(1));
            }
            while let Some(link) = self.ready.pop() {
                let link = link as usize;
                if !self.links[link].is_up {
                    self.finish_opening(link)?;
                }
            }
            if self.up == before && now().saturating_since(self.last_up) > STUCK {
                return Err(Errno::TIMEDOUT);
            }
        }
        Ok(())
    }

    /// Begins to open a connection, and finishes if it is up at once.
    fn open(&mut self, connection: usize) -> Result<(), Errno> {
        let link = &mut self.links[connection];
        link.attempted = now();
        link.served = false;
        let (socket, is_up) = self.opener.begin()?;
        let wanted = match is_up {
            true => EventFlags::IN,
            false => EventFlags::IN | EventFlags::OUT,
        };
        self.poll.add(&socket, connection, wanted)?;
        if self.stamps.any() {
            stamps::enable(&socket, self.stamps).map_err(|error| errno(&error))?;
        }
        link.socket = Some(socket);
        self.opening += 1;
        if is_up {
            self.finish_opening(connection)?;
        }
        Ok(())
    }

    /// Checks a connection that is being opened.
    fn finish_opening(&mut self, connection: usize) -> Result<(), Errno> {
        let link = &mut self.links[connection];
        let Some(socket) = &link.socket else {
            return Ok(());
        };
        match self.opener.finish(socket) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) => {
                self.poll.modify(socket, connection, EventFlags::IN)?;
                link.origin = origin.0;
                link.is_up = true;
                link.was_reset = false;
                self.opening -= 1;
                self.up += 1;
                self.last_up = now();
                self.refused = false;
                self.opened.push_back(connection as u32);
                Ok(())
            }
            Err(error) => {
                link.socket = None;
                self.opening -= 1;
                Err(error)
            }
        }
    }

    /// Closes a connection and, if connections are kept, notes when to open it again.
    fn close(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        if link.socket.is_some() && !link.is_up {
            self.opening -= 1;
        }
        // closing the socket also removes it from epoll
        link.socket = None;
        if std::mem::take(&mut link.is_up) {
            self.up -= 1;
        }
        link.origin = None;
        link.output = Vec::new();
        self.last_up = now();
        link.failures = match link.served {
            true => 0,
            false => (link.failures + 1).min(DOUBLINGS + 1),
        };
        match self.lifetime {
            Lifetime::Kept => self.reopen_later(connection),
            // nothing of it is reported any more
            Lifetime::Each { .. } => {
                self.opened.retain(|&other| other != connection as u32);
                self.not_opened
                    .retain(|&(other, _)| other != connection as u32);
            }
        }
    }

    fn reopen_later(&mut self, connection: usize) {
        let link = &self.links[connection];
        let due = match link.served {
            true => now(),
            false => link.attempted + RETRY * (1 << link.failures.saturating_sub(1)),
        };
        self.closed.push(Reverse((due, connection as u32)));
    }

    #[inline]
    fn look_at(&mut self, connection: usize) -> Option<Event> {
        let socket = self.links[connection].socket.as_ref()?;
        let read = if self.stamps.received {
            stamps::recv(socket, &mut self.buffer, &mut self.bridge)
                .map(|(length, stamp)| {
                    self.stamp = stamp;
                    length
                })
                .map_err(|error| errno(&error))
        } else {
            recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT).map(|(length, _)| length)
        };
        match read {
            Ok(length) if length > 0 => {
                self.received = length;
                Some(Event::Bytes(connection))
            }
            Ok(_) => Some(self.ended(connection, Ending::Closed)),
            Err(Errno::AGAIN | Errno::INTR) => None,
            // we had sent after the server had closed
            Err(Errno::PIPE) => Some(self.ended(connection, Ending::Closed)),
            Err(_) => Some(self.ended(connection, Ending::Reset)),
        }
    }

    #[cold]
    fn ended(&mut self, connection: usize, ending: Ending) -> Event {
        let ending = match self.links[connection].was_reset {
            true => Ending::Reset,
            false => ending,
        };
        self.close(connection);
        Event::Ended { connection, ending }
    }

    /// Looks at a connection that epoll reported.
    #[inline]
    fn look_at_ready(&mut self, connection: usize) -> Option<Event> {
        if !self.links[connection].is_up {
            if let Err(error) = self.finish_opening(connection) {
                self.not_opened(connection, error);
            }
            return None;
        }
        if !self.links[connection].output.is_empty() {
            self.flush(connection);
        }
        self.look_at(connection)
    }

    #[cold]
    fn not_opened(&mut self, connection: usize, error: Errno) {
        if self.lifetime != Lifetime::Kept {
            self.not_opened
                .push_back((connection as u32, not_dialled(error)));
            return;
        }
        // a Unix socket's backlog is full, or the server took the connection and ended it
        self.refused = !matches!(error, Errno::AGAIN | Errno::CONNRESET | Errno::PIPE);
        self.reopen_later(connection);
    }

    /// Sends what the kernel had no room for.
    #[cold]
    fn flush(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        let Some(socket) = &link.socket else {
            return;
        };
        match send(socket, &link.output, SEND_FLAGS) {
            Ok(taken) => {
                link.output.drain(..taken);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                // the next look finds the end
                link.was_reset |= error != Errno::PIPE;
                link.output.clear();
            }
        }
        if link.output.is_empty() {
            link.output = Vec::new();
            self.watch(connection, EventFlags::IN);
        }
    }

    fn watch(&self, connection: usize, flags: EventFlags) {
        if let Some(socket) = &self.links[connection].socket {
            // cannot fail: the socket is in the set, and no memory is needed
            let _ = self.poll.modify(socket, connection, flags);
        }
    }

    /// Keeps what the kernel did not take.
    #[cold]
    fn keep(&mut self, connection: usize, rest: &[u8]) {
        let link = &mut self.links[connection];
        let first = link.output.is_empty();
        link.output.extend_from_slice(rest);
        if first {
            self.watch(connection, EventFlags::IN | EventFlags::OUT);
        }
    }

    fn look_at_all(&mut self, patience: Nanos) {
        self.empty_looks = 0;
        self.looks = 0;
        self.ready.clear();
        let found = self.poll.wait(patience);
        self.ready
            .extend(found.map(|(connection, _)| connection as u32));
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.refused || !self.opened.is_empty() || !self.not_opened.is_empty()
    }

    /// An event other than bytes that has not been reported yet.
    #[cold]
    fn news(&mut self) -> Option<Event> {
        if let Some(connection) = self.opened.pop_front() {
            return Some(Event::Opened(connection as usize));
        }
        if let Some((connection, why)) = self.not_opened.pop_front() {
            let connection = connection as usize;
            return Some(Event::NotOpened { connection, why });
        }
        let refused = std::mem::take(&mut self.refused);
        (refused && self.up == 0).then_some(Event::Refused)
    }

    /// Whether the server has left a connection unanswered for so long, and there is no other one. The pauses
    /// between our own attempts say nothing about the server.
    fn is_gone(&self, at: Monotonic) -> bool {
        let is_old = |since: Monotonic| at.saturating_since(since) > GONE;
        let waits = |link: &Link| link.socket.is_some() && is_old(link.attempted);
        self.up == 0 && is_old(self.last_up) && self.links.iter().any(waits)
    }

    #[cold]
    fn reopen(&mut self, until_next: Nanos) {
        let at = now();
        self.refused |= self.is_gone(at);
        let Some(&Reverse((due, connection))) = self.closed.peek() else {
            return;
        };
        let overdue = at.saturating_since(due) > OVERDUE;
        if at < due || (until_next < OPENING_TAKES && !overdue) {
            return;
        }
        self.closed.pop();
        let connection = connection as usize;
        if let Err(error) = self.open(connection) {
            self.not_opened(connection, error);
        }
    }
}

/// Why a connection for a request cannot be opened.
fn not_dialled(error: Errno) -> NotSent {
    match error {
        Errno::CONNREFUSED | Errno::NOENT => NotSent::Refused,
        _ => NotSent::Failed,
    }
}

const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

impl Link {
    fn closed() -> Self {
        Self {
            socket: None,
            is_up: false,
            was_reset: false,
            origin: None,
            output: Vec::new(),
            attempted: Monotonic::from_nanos_since_boot(0),
            served: false,
            failures: 0,
        }
    }
}

impl fmt::Debug for StreamSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSockets")
            .field("connections", &self.links.len())
            .field("up", &self.up)
            .finish_non_exhaustive()
    }
}

impl Sockets for StreamSockets {
    fn connections(&self) -> usize {
        self.links.len()
    }

    fn wait(&mut self, at_most: Nanos) {
        if !self.has_news() && self.ready.is_empty() {
            self.look_at_all(at_most);
        }
    }

    fn stamps(&self) -> KernelStamps {
        self.stamps
    }

    #[inline]
    fn stamp(&self) -> Option<Monotonic> {
        self.stamp
    }
}

impl StreamTransport for StreamSockets {
    fn origin(&self, connection: usize) -> Option<Origin> {
        self.links[connection].origin
    }

    #[inline]
    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), NotTaken> {
        let link = &mut self.links[connection];
        let Some(socket) = link.socket.as_ref().filter(|_| link.is_up) else {
            return Err(NotTaken::Ended);
        };
        if !link.output.is_empty() {
            if link.output.len() + bytes.len() > OUTPUT_BYTES {
                return Err(NotTaken::Full);
            }
            self.keep(connection, bytes);
            return Ok(());
        }
        let taken = match send(socket, bytes, SEND_FLAGS) {
            Ok(taken) if taken == bytes.len() => return Ok(()),
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => 0,
            Err(error) => {
                link.was_reset |= error != Errno::PIPE;
                return Err(NotTaken::Ended);
            }
        };
        self.keep(connection, &bytes[taken..]);
        Ok(())
    }

    #[inline]
    fn receive(&mut self, expected: Option<usize>) -> Event {
        if self.has_news()
            && let Some(event) = self.news()
        {
            return event;
        }
        if let Some(connection) = self.ready.pop() {
            let found = self.look_at_ready(connection as usize);
            return found.unwrap_or(Event::Nothing);
        }
        self.looks += 1;
        match expected {
            Some(connection) if self.empty_looks < PATIENCE && self.looks < LOOKS => {
                let found = self.look_at(connection);
                self.empty_looks = if found.is_some() {
                    0
                } else {
                    self.empty_looks + 1
                };
                found.unwrap_or(Event::Nothing)
            }
            _ => {
                self.look_at_all(Nanos::ZERO);
                let found = self.ready.pop();
                found
                    .and_then(|connection| self.look_at_ready(connection as usize))
                    .unwrap_or(Event::Nothing)
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.received]
    }

    #[inline]
    fn serves(&mut self, connection: usize) {
        self.links[connection].served = true;
    }

    fn abandon(&mut self, connection: usize) {
        let link = &self.links[connection];
        if self.lifetime == (Lifetime::Each { resets: true })
            && let Some(socket) = link.socket.as_ref().filter(|_| link.is_up)
        {
            // if that fails, its port stays in TIME_WAIT
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
        self.close(connection);
    }

    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        if self.up < self.links.len() {
            self.reopen(until_next);
        }
    }
}

impl DialTransport for StreamSockets {
    fn dial(&mut self, connection: usize) -> Result<(), NotSent> {
        self.open(connection).map_err(not_dialled)
    }
}
