//! A transport without a network, for tests: the server is a function from a request to the
//! answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taillab_model::{Nanos, Operation};

use crate::protocol::Planned;
use crate::protocol::StoreWorkload;
use crate::protocol::memcached::{Dialect, MemcachedUdp};
use crate::transport::{DatagramTransport, NotSent, Receipt, Sockets};
use crate::{DatagramClient, LoadError};

/// A small protocol: 4-byte keys, 3-byte values.
pub(crate) fn protocol() -> Result<MemcachedUdp, LoadError> {
    in_dialect(Dialect::Ascii)
}

/// The same in a given dialect.
pub(crate) fn in_dialect(dialect: Dialect) -> Result<MemcachedUdp, LoadError> {
    let workload = StoreWorkload {
        keys: 100,
        key_bytes: 4,
        value_bytes: 3,
        get_share: 0.5,
        ..StoreWorkload::default()
    };
    MemcachedUdp::new(dialect, workload)
}

/// One datagram with its frame header.
pub(crate) fn datagram(id: u16, sequence: u16, datagrams: u16, text: &[u8]) -> Vec<u8> {
    let frame = [id, sequence, datagrams, 0].map(u16::to_be_bytes).concat();
    [&frame[..], text].concat()
}

/// The right answer to a request of [`protocol`].
pub(crate) fn answer(request: &[u8]) -> Vec<u8> {
    let id = u16::from_be_bytes([request[0], request[1]]);
    let text = if request[8..].starts_with(b"get ") {
        [b"VALUE ", &request[12..16], b" 0 3\r\nvvv\r\nEND\r\n"].concat()
    } else {
        b"STORED\r\n".to_vec()
    };
    datagram(id, 0, 1, &text)
}

/// A get of key 42.
pub(crate) fn get() -> Planned {
    Planned::new(Operation::Get, 42)
}

/// A set of key 42.
pub(crate) fn set() -> Planned {
    Planned::new(Operation::Set, 42)
}

/// Waits for what the kernel does a moment later.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        std::thread::yield_now();
    }
}

/// The server: given the number of the request and its bytes, what comes back.
type Answers = Box<dyn FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send>;

/// Connections to a function.
pub(crate) struct Fake {
    connections: usize,
    server: Answers,
    requests: usize,
    /// Datagrams on their way to the client.
    pub(crate) arriving: VecDeque<(usize, Vec<u8>)>,
    current: Vec<u8>,
    /// The kernel refuses this many sends.
    pub(crate) refuse_sends: usize,
    /// The server's host answers each look with a refusal.
    pub(crate) refuses: bool,
    /// What each look finds while no answer is there.
    pub(crate) babble: Option<Vec<u8>>,
    /// Before each send: how often the client looked for datagrams since the send before.
    pub(crate) looks_before_send: Arc<Mutex<Vec<usize>>>,
    looks: usize,
    /// How often the client slept.
    pub(crate) naps: Arc<AtomicU64>,
}

impl Fake {
    pub(crate) fn client(
        connections: usize,
        server: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static,
    ) -> DatagramClient<Self> {
        let fake = Self {
            connections,
            server: Box::new(server),
            requests: 0,
            arriving: VecDeque::new(),
            current: Vec::new(),
            refuse_sends: 0,
            refuses: false,
            babble: None,
            looks_before_send: Arc::default(),
            looks: 0,
            naps: Arc::default(),
        };
        DatagramClient::new(fake, Box::new(protocol().unwrap()))
    }
}

impl Sockets for Fake {
    fn connections(&self) -> usize {
        self.connections
    }

    fn wait(&mut self, at_most: Nanos) {
        if self.arriving.is_empty() {
            self.naps.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_nanos(at_most.get()));
        }
    }
}

impl DatagramTransport for Fake {
    fn port(&self, connection: usize) -> u16 {
        40_000 + connection as u16
    }

    fn send(&mut self, connection: usize, datagram: &[u8]) -> Result<(), NotSent> {
        let k = self.requests;
        self.requests += 1;
        self.looks_before_send.lock().unwrap().push(self.looks);
        self.looks = 0;
        if self.refuse_sends > 0 {
            self.refuse_sends -= 1;
            return Err(NotSent::Failed);
        }
        for answer in (self.server)(k, datagram) {
            self.arriving.push_back((connection, answer));
        }
        Ok(())
    }

    fn discard(&mut self) {
        self.arriving.clear();
    }

    fn receive(&mut self) -> Receipt<'_> {
        self.looks += 1;
        if self.refuses {
            return Receipt::Refused;
        }
        let babble = || self.babble.clone().map(|bytes| (0, bytes));
        match self.arriving.pop_front().or_else(babble) {
            None => Receipt::Nothing,
            Some((connection, bytes)) => {
                self.current = bytes;
                Receipt::Datagram {
                    connection,
                    bytes: &self.current,
                }
            }
        }
    }
}
