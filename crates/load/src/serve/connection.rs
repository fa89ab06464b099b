//! A connection that never blocks: it keeps a partial request or answer until the next turn.

use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::{Errno, read, write};

use super::service::Work;
use crate::protocol::MessageSizes;

/// Room for a request and for its answer, which begins with the same bytes.
///
/// Every page is written now: no page fault later.
pub(super) fn buffer(sizes: MessageSizes) -> Box<[u8]> {
    vec![b'.'; sizes.request_bytes.max(sizes.response_bytes)].into_boxed_slice()
}

/// What happened in one turn of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A request was answered; there may be another one.
    Answered,
    /// It waits for something to read.
    AwaitRequest,
    /// It waits for room to write.
    AwaitRoom,
    /// The connection is over.
    Over(End),
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Between two requests.
    Closed,
    /// The client left in the middle of a request.
    MidRequest,
    /// The client left before it had its answer.
    MidResponse,
}

/// Which answers of a server are written in two pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    one_in: NonZeroU64,
    answers: AtomicU64,
}

impl Pieces {
    pub(super) const fn one_in(one_in: NonZeroU64) -> Self {
        Self {
            one_in,
            answers: AtomicU64::new(0),
        }
    }

    /// Whether the next answer is.
    fn next(&self) -> bool {
        let before = self.answers.fetch_add(1, Relaxed);
        (before + 1).is_multiple_of(self.one_in.get())
    }
}

/// One connection of an epoll server.
#[derive(Debug)]
pub(super) struct Connection {
    /// Shared because epoll is told after the lock on the connection has been released.
    pub(super) socket: Arc<OwnedFd>,
    sizes: MessageSizes,
    buffer: Box<[u8]>,
    /// Bytes of the request that have been read.
    have: usize,
    /// Bytes of the answer that have been written, once there is one.
    sent: Option<usize>,
    pieces: Option<Arc<Pieces>>,
    /// Whether epoll was last told to look for room to write.
    pub(super) awaits_room: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, sizes: MessageSizes, pieces: Option<Arc<Pieces>>) -> Self {
        Self {
            socket: Arc::new(socket),
            sizes,
            buffer: buffer(sizes),
            have: 0,
            sent: None,
            pieces,
            awaits_room: false,
        }
    }

    /// Serves at most one request.
    ///
    /// A read asks for the rest of one request only, so that requests sent together are served
    /// one by one and other connections have their turn between them.
    #[inline]
    pub(super) fn advance(&mut self, work: &mut Work) -> Step {
        if self.sent.is_none() {
            let rest = &mut self.buffer[self.have..self.sizes.request_bytes];
            match read(&*self.socket, rest) {
                Ok(0) => return self.read_end(),
                Ok(n) => self.have += n,
                Err(Errno::AGAIN | Errno::INTR) => return Step::AwaitRequest,
                Err(_) => return self.read_end(),
            }
            if self.have < self.sizes.request_bytes {
                return Step::AwaitRequest;
            }
            work.serve();
            self.sent = self.first_piece();
        }
        let sent = self.sent.unwrap_or(0);
        let rest = &self.buffer[sent..self.sizes.response_bytes];
        match write(&*self.socket, rest) {
            Ok(n) if n == rest.len() => {
                self.have = 0;
                self.sent = None;
                Step::Answered
            }
            Ok(n) => {
                self.sent = Some(sent + n);
                Step::AwaitRoom
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.sent = Some(sent);
                Step::AwaitRoom
            }
            Err(_) => Step::Over(End::MidResponse),
        }
    }

    /// Writes the first half of an answer in two pieces; returns how much of it was taken. Whatever is wrong with the
    /// connection, the write of the rest meets it again.
    fn first_piece(&self) -> Option<usize> {
        self.pieces.as_ref().filter(|pieces| pieces.next())?;
        let half = &self.buffer[..self.sizes.response_bytes / 2];
        write(&*self.socket, half).ok()
    }

    fn read_end(&self) -> Step {
        Step::Over(if self.have == 0 {
            End::Closed
        } else {
            End::MidRequest
        })
    }
}

/// Connections by their file descriptor, found without a lock that all workers share.
///
/// Each connection has its own lock, for which nobody waits: epoll hands a connection to one worker
/// at a time.
pub(super) struct Connections {
    blocks: Box<[OnceLock<Box<ConnectionBlock>>]>,
}

type ConnectionBlock = [ConnectionSlot; BLOCK];

/// Has cache lines of its own: its neighbours may be served on other CPUs.
#[derive(Default)]
#[repr(align(128))]
struct ConnectionSlot(Mutex<Option<Connection>>);

const BLOCK: usize = 1024;
/// Room for four million files; the default of fs.nr_open is one million.
const BLOCKS: usize = 4096;

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Keeps a connection; returns its number, or the connection when there is no room.
    pub(super) fn insert(&self, connection: Connection) -> Result<u64, Connection> {
        let fd = connection.socket.as_raw_fd() as usize;
        let Some(block) = self.blocks.get(fd / BLOCK) else {
            return Err(connection);
        };
        let slot = |_| ConnectionSlot::default();
        let block = block.get_or_init(|| Box::new(std::array::from_fn(slot)));
        *lock(&block[fd % BLOCK]) = Some(connection);
        Ok(fd as u64)
    }

    /// The connection with this number, if it is still there.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<MutexGuard<'_, Option<Connection>>> {
        let fd = usize::try_from(number).ok()?;
        let block = self.blocks.get(fd / BLOCK)?.get()?;
        Some(lock(&block[fd % BLOCK]))
    }

    /// Closes them all.
    pub(super) fn clear(&self) {
        for slot in self
            .blocks
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|b| b.iter())
        {
            lock(slot).take();
        }
    }
}

fn lock(slot: &ConnectionSlot) -> MutexGuard<'_, Option<Connection>> {
    slot.0.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::service::ServiceTime;
    use super::*;

    #[test]
    fn one_answer_in_so_many_is_written_in_two_pieces() {
        // it keeps what one write wrote apart from the next
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (server, client) = socketpair(family, kind, SocketFlags::NONBLOCK, None).unwrap();
        let sizes = MessageSizes {
            request_bytes: 4,
            response_bytes: 7,
        };
        let pieces = Arc::new(Pieces::one_in(NonZeroU64::new(2).unwrap()));
        let mut connection = Connection::new(server, sizes, Some(pieces));
        let mut work = ServiceTime::None.worker(1, 0, None).unwrap();
        let mut lengths = Vec::new();
        for _ in 0..4 {
            write(&client, &[1; 4]).unwrap();
            assert_eq!(connection.advance(&mut work), Step::Answered);
            let mut room = [0; 16];
            while let Ok(length) = read(&client, &mut room) {
                lengths.push(length);
            }
        }
        assert_eq!(lengths, [7, 3, 4, 7, 3, 4]);
    }
}
