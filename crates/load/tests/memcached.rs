//! The generator with the real memcached, on loopback.

use crate::support::{self, ports::free_port};

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use taillab_load::protocol::memcached::{Dialect, MemcachedUdp};
use taillab_load::{
    ClosedLoop, DatagramClient, Endpoint, LoadError, NoHooks, Outcome, Prefilled, Progress,
    StoreWorkload, prefill, saturate,
};
use taillab_model::summary::LoadErrors;
use taillab_model::{Nanos, Operation};

/// memcached, killed when the test ends.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let port = address.port().to_string();
        let args = ["-u", "nobody", "-t", "1", "-U", &port, "-p", "0"];
        let process = Command::new("memcached")
            .args(args)
            .args(["-l", "127.0.0.1"])
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .expect("this test needs memcached: install the package memcached");
        Self { process, address }
    }

    /// Prefills once the server listens.
    fn prefill(&self, client: &mut DatagramClient) -> Result<Prefilled, LoadError> {
        let give_up = Instant::now() + Duration::from_secs(30);
        loop {
            match prefill(
                client,
                &Endpoint::Udp(self.address),
                &AtomicBool::new(false),
            ) {
                Err(LoadError::Refused { .. }) if Instant::now() < give_up => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The paper's workload, with its lengths of keys and values.
fn client(server: &Server) -> DatagramClient {
    support::memcached(server.address, 16, StoreWorkload::default())
}

#[test]
fn an_open_loop_gets_what_it_asks_for() {
    let server = Server::start(&[]);
    let mut client = client(&server);
    let done = server.prefill(&mut client).unwrap();
    assert_eq!(done.keys, 10_000);
    assert!(done.verified >= 1000);
    let result = support::run(&mut client, Nanos::from_secs(60), &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
    assert_eq!(result.stopped, None);
    for entry in result.record.iter() {
        let expected = match entry.operation {
            Operation::Get | Operation::Call => Outcome::Hit,
            Operation::Set => Outcome::Stored,
        };
        assert_eq!(entry.outcome, expected);
    }
    assert!(result.cpu.requests > 0 && result.cpu.thread > Nanos::ZERO);
}

#[test]
fn a_closed_loop_counts_what_the_server_answers() {
    let server = Server::start(&[]);
    let mut client = client(&server);
    server.prefill(&mut client).unwrap();
    let load = ClosedLoop {
        outstanding: ClosedLoop::OUTSTANDING,
        length: Nanos::from_millis(200),
        warm_up: Nanos::from_millis(50),
        seed: 1,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let found = saturate(&mut client, &load, &mut NoHooks).unwrap();
    assert!(found.responses > 0);
    let LoadErrors {
        server_errors,
        malformed_responses,
        misses,
        ..
    } = found.errors;
    assert_eq!((server_errors, malformed_responses, misses), (0, 0, 0));
}

/// The largest value that a set carries in one datagram comes back in two.
#[test]
fn answers_of_two_datagrams_are_joined() {
    let server = Server::start(&[]);
    let workload = StoreWorkload {
        keys: 200,
        value_bytes: MemcachedUdp::value_limit(Dialect::Ascii, 64),
        ..StoreWorkload::default()
    };
    let mut client = support::memcached(server.address, 4, workload);
    let done = server.prefill(&mut client).unwrap();
    assert_eq!((done.keys, done.verified), (200, 200));
    let result = support::run(&mut client, Nanos::from_secs(60), &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
}

#[test]
fn too_little_memory_is_found_before_the_run() {
    // 2 MB for 40 MB of values, and no eviction: sets are refused
    let server = Server::start(&["-m", "2", "-M"]);
    let workload = StoreWorkload {
        keys: 40_000,
        ..StoreWorkload::default()
    };
    let mut client = support::memcached(server.address, 4, workload);
    let error = server.prefill(&mut client).unwrap_err();
    let named = matches!(
        error,
        LoadError::NotStored { .. } | LoadError::Evicted { .. }
    );
    assert!(named, "{error}");
}
