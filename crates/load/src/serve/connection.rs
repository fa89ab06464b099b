//! A connection that never blocks: it keeps a partial request or answer until the next turn.

use std::os::fd::{AsRawFd, OwnedFd};
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
    /// Whether epoll was last told to look for room to write.
    pub(super) awaits_room: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, sizes: MessageSizes) -> Self {
        Self {
            socket: Arc::new(socket),
            sizes,
            buffer: buffer(sizes),
            have: 0,
            sent: None,
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
