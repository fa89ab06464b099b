//! A large server that forks to save a snapshot of itself: the stops are named.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;
use taillab_model::{EventKind, Recording, RecordingReader};

use super::endings::begun;
use super::rig::{Running, load, result};
use crate::support::{first_unspoiled, free_port, live, signal, wait_for};

/// The kernel copies the page tables of so much memory for milliseconds.
const BYTES: usize = 400_000_000;
const FORKS: usize = 20;

/// Older processes of the server's name are not taken for its children: the forks begin so long after the recording.
const HEAD_START_NS: u64 = 500_000_000;

/// What Redis answers to a command.
fn ask(redis: &mut TcpStream, command: &str) -> String {
    write!(redis, "{command}\r\n").unwrap();
    let (mut answer, mut some) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(b"\r\n") {
        let n = redis.read(&mut some).unwrap();
        assert!(n > 0, "Redis ended");
        answer.extend_from_slice(&some[..n]);
    }
    String::from_utf8(answer).unwrap()
}

/// How long the last call of `fork` took, by Redis' own clock.
fn last_fork_ns(redis: &mut TcpStream) -> f64 {
    let stats = ask(redis, "INFO stats");
    let mut lines = stats.lines();
    let us = lines.find_map(|line| line.strip_prefix("latest_fork_usec:"));
    us.unwrap().parse::<f64>().unwrap() * 1e3
}

/// Lets Redis fork so often, and waits until its last child has ended; returns how long each fork took. It forks again
/// when its child has ended.
fn forks(redis: &mut TcpStream) -> Vec<f64> {
    let mut took_ns = Vec::new();
    wait_for("the forks", || {
        if ask(redis, "BGSAVE").starts_with('+') {
            took_ns.push(last_fork_ns(redis));
        }
        (took_ns.len() == FORKS).then_some(())
    });
    wait_for("the end of the last child", || {
        let about = ask(redis, "INFO persistence");
        about.contains("rdb_bgsave_in_progress:0").then_some(())
    });
    took_ns
}

/// Waits until so much has been recorded that a new process is known as one.
fn await_head_start(capture: &Path) {
    wait_for("the beginning of the recording", || {
        let written = fs::read(capture).ok()?;
        let mut events = RecordingReader::open(&written[..]).ok()?;
        let first = events.next()?.at.nanos_since_boot();
        let is_later = events.any(|event| event.at.nanos_since_boot() > first + HEAD_START_NS);
        is_later.then_some(())
    });
}

/// What hides forks from the analysis: it takes a process for an old one if the probe missed how it came onto a CPU for
/// the first time, and a child is known by a number above that of its parent.
fn hides_forks(capture: &Path, server: u32) -> Option<String> {
    let recording = Recording::read(File::open(capture).unwrap()).unwrap();
    // when each thread was first seen, and whether it came onto a CPU then
    let mut first: HashMap<u32, (u64, bool)> = HashMap::new();
    let mut began = None;
    for event in recording.events() {
        let at = event.at.nanos_since_boot();
        began = began.or(Some(at));
        match event.kind {
            EventKind::Woken { tid, .. } => _ = first.entry(tid).or_insert((at, false)),
            EventKind::Switched { next, .. } => _ = first.entry(next).or_insert((at, true)),
            _ => {}
        }
    }
    let head_start = began? + HEAD_START_NS;
    let threads = recording.context.threads.iter();
    let alike = threads.filter(|thread| thread.comm == "redis-server" && thread.tid == thread.pid);
    for child in alike.filter(|thread| thread.tid != server) {
        match first.get(&child.tid) {
            Some((at, _)) if *at < head_start => {}
            Some((_, false)) => return Some(format!("the probe missed how {} began", child.tid)),
            Some(_) if child.tid < server => return Some("process numbers began anew".to_owned()),
            _ => {}
        }
    }
    None
}

/// A trace of a large Redis that forks, and how long each fork took by Redis' own clock; and what spoiled it.
fn traced() -> (Value, Vec<f64>, Option<String>) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    // where nobody can create a file, its children end at once
    let line = format!("redis-server --port {port} --bind 127.0.0.1 --dir /proc --save ");
    let server = Running::program(&line).listening(&address);
    let mut redis = TcpStream::connect(&address).unwrap();
    ask(&mut redis, &format!("SETRANGE large {BYTES} x"));
    let _clients = load(&format!("redis://{address}"), 1000);
    let place = tempfile::tempdir().unwrap();
    let capture = place.path().join("capture.tlc");
    let child = begun(&server, place.path());
    await_head_start(&capture);
    let took_ns = forks(&mut redis);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    let spoiled = hides_forks(&capture, server.pid());
    (result(&output), took_ns, spoiled)
}

#[test]
fn the_forks_of_a_large_server_are_named() {
    if !live("the_forks_of_a_large_server_are_named") {
        return;
    }
    let attempt = |_| traced();
    let (result, took_ns, _) = first_unspoiled(5, attempt, |(_, _, spoiled)| spoiled.clone());
    let causes = result["causes"].as_array().unwrap().iter();
    let mut pauses = causes.filter(|share| share["cause"] == "pause");
    let named = |share: &&Value| share["culprit"]["task"] == "fork of a large process";
    let Some(fork) = pauses.find(named) else {
        panic!("{took_ns:?}: {:#}", result["causes"]);
    };
    assert_eq!(
        fork["culprit"]["threads"],
        serde_json::json!(["redis-server"])
    );
    // one that is short may have delayed nobody
    let events = fork["events"].as_u64().unwrap() as usize;
    assert!(
        (FORKS / 2..=FORKS).contains(&events),
        "{took_ns:?}: {fork:#}"
    );
    let mean_ns = fork["mean_event_ns"].as_f64().unwrap();
    let shortest = took_ns.iter().copied().fold(f64::INFINITY, f64::min);
    let longest = took_ns.iter().copied().fold(0.0, f64::max);
    assert!(
        (0.5 * shortest..2.0 * longest).contains(&mean_ns),
        "{took_ns:?}: {fork:#}"
    );
}
