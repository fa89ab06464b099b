//! Helpers for the tests over real sockets.

// each test file uses a part of it, and for clippy these are not tests
#![allow(dead_code, clippy::unwrap_used)]

pub(crate) mod live;
pub(crate) mod ports;
pub(crate) mod streams;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use taillab_load::protocol::memcached::{Dialect, MemcachedUdp};
use taillab_load::transport::udp::UdpSockets;
use taillab_load::{
    Client, DatagramClient, Endpoint, Entry, Hooks, KernelStamps, LoadError, LoadRun, NoHooks,
    OpenLoop, Outcome, Prefilled, Progress, StoreWorkload, Waiting, open_loop, prefill,
};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;

/// Low enough for any machine that runs the tests.
pub(crate) const RATE: f64 = 1000.0;

/// So long that a busy test machine does not make an answer late.
pub(crate) const PATIENT: Nanos = Nanos::from_secs(60);

/// For runs in which some answers never come; it decides only how long the test takes.
pub(crate) const SHORT: Nanos = Nanos::from_millis(300);

/// An open loop that sends at these times after its start.
pub(crate) fn on_schedule(
    client: &mut impl Client,
    schedule: Vec<Nanos>,
    timeout: Nanos,
) -> LoadRun {
    let load = OpenLoop {
        schedule,
        measure_from: 0,
        seed: 1,
        timeout,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    open_loop(client, load, &mut NoHooks).unwrap()
}

/// Small keys and values: a socket buffer holds hundreds of them.
pub(crate) fn workload() -> StoreWorkload {
    StoreWorkload {
        keys: 100,
        key_bytes: 4,
        value_bytes: 3,
        get_share: 0.9,
        ..StoreWorkload::default()
    }
}

/// A client of a server on this host.
pub(crate) fn client(server: SocketAddr) -> DatagramClient {
    memcached(server, 16, workload())
}

/// A client with memcached's text protocol over UDP.
pub(crate) fn memcached(
    server: SocketAddr,
    connections: usize,
    workload: StoreWorkload,
) -> DatagramClient {
    let sockets = UdpSockets::connect(server, connections, KernelStamps::NONE).unwrap();
    let protocol = MemcachedUdp::new(Dialect::Ascii, workload).unwrap();
    DatagramClient::new(sockets, Box::new(protocol))
}

/// Stores every key.
pub(crate) fn stored(
    server: SocketAddr,
    client: &mut DatagramClient,
) -> Result<Prefilled, LoadError> {
    prefill(client, &Endpoint::Udp(server), &AtomicBool::new(false))
}

/// A quarter of a second at [`RATE`], the first fifth of it warm-up.
pub(crate) fn run(client: &mut impl Client, timeout: Nanos, hooks: &mut impl Hooks) -> LoadRun {
    let length = Nanos::from_millis(250);
    let schedule = ArrivalProcess::Poisson.schedule(RATE, length, 1).unwrap();
    let measure_from = schedule.partition_point(|&due| due < Nanos::from_millis(50));
    let load = OpenLoop {
        schedule,
        measure_from,
        seed: 1,
        timeout,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let run = open_loop(client, load, hooks).unwrap();
    for entry in run.record.iter() {
        assert!(entry.times.sent >= entry.times.intended);
        if is_answered(&entry) {
            assert!(entry.times.received.unwrap() >= entry.times.sent);
        }
    }
    run
}

/// Whether the server answered in time, whatever the answer was.
pub(crate) fn is_answered(entry: &Entry) -> bool {
    !matches!(
        entry.outcome,
        Outcome::TimedOut | Outcome::SendFailed | Outcome::ConnectionLost | Outcome::Malformed
    )
}

/// One datagram with memcached's frame header.
pub(crate) fn datagram(id: [u8; 2], text: &[u8]) -> Vec<u8> {
    [&id[..], &[0, 0, 0, 1, 0, 0], text].concat()
}

/// The id of a request.
pub(crate) fn id(request: &[u8]) -> [u8; 2] {
    [request[0], request[1]]
}

/// The right answer to a request of [`workload`].
pub(crate) fn answer(request: &[u8]) -> Vec<u8> {
    let text = if request[8..].starts_with(b"get ") {
        [b"VALUE ", &request[12..16], b" 0 3\r\nvvv\r\nEND\r\n"].concat()
    } else {
        b"STORED\r\n".to_vec()
    };
    datagram(id(request), &text)
}

/// A thread that answers UDP datagrams with what a function returns.
pub(crate) struct Responder {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// `server(k, request)` returns the answers to the k-th request; `None` ends the responder and
    /// closes its port.
    pub(crate) fn start(
        mut server: impl FnMut(usize, &[u8]) -> Option<Vec<Vec<u8>>> + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        // decides only how soon it sees that it should stop
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            let mut requests = 0;
            while !stopped.load(Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let Some(answers) = server(requests, &buffer[..length]) else {
                    return;
                };
                requests += 1;
                for answer in answers {
                    // the client may be gone
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
