//! A connection that never blocks: half a request or half an answer keeps its place.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::{Errno, read, write};

use super::service::Work;
use crate::protocol::MessageSizes;

/// The lengths of the echo's messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) request_bytes: usize,
    pub(super) response_bytes: usize,
}

impl Message {
    pub(super) fn new(sizes: MessageSizes) -> Self {
        Self {
            request_bytes: sizes.request_bytes,
            response_bytes: sizes.response_bytes,
        }
    }

    /// Room for a request, whose first bytes are at the same time the answer's.
    ///
    /// Every page is written now: no page fault later.
    pub(super) fn buffer(self) -> Box<[u8]> {
        vec![b'.'; self.request_bytes.max(self.response_bytes)].into_boxed_slice()
    }
}

/// What a look at a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A request was answered; there may be another one.
    Answered,
    /// Nothing to do until there is something to read.
    AwaitRequest,
    /// Nothing to do until there is room to write.
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
    /// Shared for the moment between giving the connection up and telling epoll.
    pub(super) socket: Arc<OwnedFd>,
    message: Message,
    buffer: Box<[u8]>,
    /// Bytes of the request that have been read.
    have: usize,
    /// Bytes of the answer that have been written, once there is one.
    sent: Option<usize>,
    /// Whether epoll was last told to look for room to write.
    pub(super) awaits_room: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, message: Message) -> Self {
        Self {
            socket: Arc::new(socket),
            message,
            buffer: message.buffer(),
            have: 0,
            sent: None,
            awaits_room: false,
        }
    }

    /// Serves at most one request.
    ///
    /// A read asks for the rest of one request and no more, so that requests sent
    /// together are served one by one and other connections get their turn between them.
    #[inline]
    pub(super) fn advance(&mut self, work: &mut Work) -> Step {
        if self.sent.is_none() {
            let rest = &mut self.buffer[self.have..self.message.request_bytes];
            match read(&*self.socket, rest) {
                Ok(0) => return self.read_end(),
                Ok(n) => self.have += n,
                Err(Errno::AGAIN | Errno::INTR) => return Step::AwaitRequest,
                Err(_) => return self.read_end(),
            }
            if self.have < self.message.request_bytes {
                return Step::AwaitRequest;
            }
            work.serve();
        }
        let sent = self.sent.unwrap_or(0);
        let rest = &self.buffer[sent..self.message.response_bytes];
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

/// Connections by their file descriptor, found without a lock common to all workers.
///
/// Each has its own lock, which nobody ever waits for: epoll hands a connection to
/// one worker at a time.
pub(super) struct Connections {
    blocks: Box<[OnceLock<Box<Block>>]>,
}

type Block = [Mutex<Option<Connection>>; BLOCK];
const BLOCK: usize = 1024;
/// More than any limit on open files.
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
        let block = block.get_or_init(|| Box::new(std::array::from_fn(|_| Mutex::new(None))));
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

fn lock(slot: &Mutex<Option<Connection>>) -> MutexGuard<'_, Option<Connection>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
