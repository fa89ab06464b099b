//! The generator with the real memcached, on loopback.

use std::sync::atomic::AtomicBool;

use taillab_load::protocol::memcached::{Dialect, MemcachedUdp};
use taillab_load::{
    ClosedLoop, DatagramClient, LoadError, NoHooks, OpenLoop, Outcome, Progress, StoreWorkload,
    saturate,
};
use taillab_model::summary::LoadErrors;
use taillab_model::{Nanos, Operation};

use crate::support;
use crate::support::live::{Server, memcached};
use crate::support::stored;

/// The paper's workload, with its lengths of keys and values.
fn client(server: &Server) -> DatagramClient {
    support::memcached(server.address, 16, StoreWorkload::default())
}

#[test]
fn an_open_loop_gets_what_it_asks_for() {
    let Some(server) = memcached("an_open_loop_gets_what_it_asks_for", &[]) else {
        return;
    };
    let mut client = client(&server);
    stored(server.address, &mut client).unwrap();
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
    let Some(server) = memcached("a_closed_loop_counts_what_the_server_answers", &[]) else {
        return;
    };
    let mut client = client(&server);
    stored(server.address, &mut client).unwrap();
    let load = ClosedLoop {
        outstanding: ClosedLoop::OUTSTANDING,
        length: Nanos::from_millis(200),
        warm_up: Nanos::from_millis(50),
        seed: 1,
        timeout: OpenLoop::TIMEOUT,
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
    let Some(server) = memcached("answers_of_two_datagrams_are_joined", &[]) else {
        return;
    };
    let workload = StoreWorkload {
        keys: 200,
        value_bytes: MemcachedUdp::value_limit(Dialect::Ascii, 64),
        ..StoreWorkload::default()
    };
    let mut client = support::memcached(server.address, 4, workload);
    stored(server.address, &mut client).unwrap();
    let result = support::run(&mut client, Nanos::from_secs(60), &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
}

#[test]
fn too_little_memory_is_found_before_the_run() {
    // 2 MB for 40 MB of values, and no eviction: sets are refused
    let Some(server) = memcached(
        "too_little_memory_is_found_before_the_run",
        &["-m", "2", "-M"],
    ) else {
        return;
    };
    let workload = StoreWorkload {
        keys: 40_000,
        ..StoreWorkload::default()
    };
    let mut client = support::memcached(server.address, 4, workload);
    let error = stored(server.address, &mut client).unwrap_err();
    let named = matches!(
        error,
        LoadError::NotStored { .. } | LoadError::Evicted { .. }
    );
    assert!(named, "{error}");
}
