//! The codecs against the real servers: memcached, Redis and nginx, over plain sockets.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use taillab_load::protocol::http::Http;
use taillab_load::protocol::memcached::{Dialect, MemcachedStream, MemcachedUdp};
use taillab_load::protocol::redis::Redis;
use taillab_load::protocol::{DatagramProtocol, Decoded, Planned, Planner, StreamProtocol};
use taillab_load::{KeyDistribution, Outcome, Resource, StoreWorkload};
use taillab_model::Operation;

use crate::support::live::{Server, memcached};

/// Requests in flight at once on a connection.
const PIPELINED: usize = 16;

/// The answers to a list of requests, in their order.
struct Ended {
    outcomes: Vec<Outcome>,
    /// Bytes of the answers, each.
    sizes: Vec<usize>,
    /// The last one ended the connection.
    closed: bool,
}

/// Sends requests over one connection, several at once, until each has its answer or the
/// server ends it.
fn exchange(stream: &mut TcpStream, protocol: &mut dyn StreamProtocol, plan: &[Planned]) -> Ended {
    let mut ended = Ended {
        outcomes: Vec::new(),
        sizes: Vec::new(),
        closed: false,
    };
    let mut waiting = VecDeque::new();
    let mut rest = plan.iter().enumerate();
    let mut out = Vec::new();
    let mut bytes = Vec::new();
    let mut wanted = 1;
    loop {
        out.clear();
        while waiting.len() < PIPELINED
            && let Some((k, &what)) = rest.next()
        {
            let tag = 0xfff0_0000 + k as u32;
            protocol.encode(what, tag, &mut out);
            waiting.push_back((what, tag));
        }
        stream.write_all(&out).unwrap();
        let Some(&(what, tag)) = waiting.front() else {
            return ended;
        };
        while bytes.len() < wanted {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the server closed the connection unannounced");
            bytes.extend_from_slice(&buffer[..n]);
        }
        let (end, outcome) = match protocol.decode(what, tag, &bytes) {
            Decoded::Partial { at_least } => {
                wanted = at_least;
                continue;
            }
            Decoded::Answer { bytes, outcome } => (bytes, outcome),
            Decoded::LastAnswer { bytes, outcome } => {
                ended.closed = true;
                (bytes, outcome)
            }
            _ => panic!("{what:?}: {}", bytes.escape_ascii()),
        };
        ended.outcomes.push(outcome);
        ended.sizes.push(end);
        if ended.closed {
            return ended;
        }
        bytes.drain(..end);
        wanted = 1;
        waiting.pop_front();
    }
}

/// The right outcomes of a plan when every key is stored.
fn expected(plan: &[Planned]) -> Vec<Outcome> {
    plan.iter()
        .map(|what| match what.operation() {
            Operation::Get => Outcome::Hit,
            Operation::Set => Outcome::Stored,
            Operation::Call => Outcome::Done,
        })
        .collect()
}

/// Before anything is stored every get misses, after the prefill every get hits; and the messages
/// have the sizes that the protocol computes.
fn store_and_read_back(server: &Server, protocol: &mut dyn StreamProtocol) {
    let mut stream = server.connect();
    let sets = protocol.to_store();
    let gets: Vec<_> = sets
        .iter()
        .map(|set| Planned::new(Operation::Get, set.key()))
        .collect();
    let missed = exchange(&mut stream, protocol, &gets);
    assert_eq!(missed.outcomes, vec![Outcome::Miss; gets.len()]);
    let stored = exchange(&mut stream, protocol, &sets);
    assert_eq!(stored.outcomes, expected(&sets));
    let plan = protocol.plan(1000, 1);
    assert!(plan.iter().any(|p| p.operation() == Operation::Set));
    let found = exchange(&mut stream, protocol, &plan);
    assert_eq!(found.outcomes, expected(&plan));
    let hits = exchange(&mut stream, protocol, &gets);
    let wanted = vec![protocol.sizes().response_bytes; gets.len()];
    assert_eq!(hits.sizes, wanted);
}

/// Each dialect has keys of another length, so that none finds another's.
fn workload(dialect: Dialect) -> StoreWorkload {
    StoreWorkload {
        keys: 200,
        key_bytes: 10 + dialect as usize,
        value_bytes: 1024,
        get_share: 0.5,
        distribution: KeyDistribution::Zipf(0.99),
    }
}

#[test]
fn memcached_speaks_every_dialect_on_a_stream() {
    let Some(server) = memcached("memcached_speaks_every_dialect_on_a_stream", &[]) else {
        return;
    };
    for dialect in Dialect::ALL {
        store_and_read_back(
            &server,
            &mut MemcachedStream::new(dialect, workload(dialect)).unwrap(),
        );
    }
}

/// A value that another client stored is a wrong answer.
#[test]
fn a_value_of_another_size_is_not_taken() {
    let Some(server) = memcached("a_value_of_another_size_is_not_taken", &[]) else {
        return;
    };
    for dialect in Dialect::ALL {
        let mut small = workload(dialect);
        small.value_bytes = 7;
        let mut other = MemcachedStream::new(dialect, small).unwrap();
        let mut stream = server.connect();
        let sets = other.to_store();
        exchange(&mut stream, &mut other, &sets);
        let mut protocol = MemcachedStream::new(dialect, workload(dialect)).unwrap();
        let what = Planned::new(Operation::Get, 3);
        let mut request = Vec::new();
        protocol.encode(what, 5, &mut request);
        stream.write_all(&request).unwrap();
        let mut bytes = Vec::new();
        let found = loop {
            let mut buffer = [0; 4096];
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the server closed the connection");
            bytes.extend_from_slice(&buffer[..n]);
            match protocol.decode(what, 5, &bytes) {
                Decoded::Partial { .. } => {}
                found => break found,
            }
        };
        assert_eq!(found, Decoded::Malformed, "{dialect:?}");
    }
}

#[test]
fn memcached_says_what_it_cannot_store() {
    let Some(server) = memcached("memcached_says_what_it_cannot_store", &[]) else {
        return;
    };
    for dialect in Dialect::ALL {
        let mut too_large = workload(dialect);
        // more than an item may have by default
        too_large.value_bytes = 2 << 20;
        let mut protocol = MemcachedStream::new(dialect, too_large).unwrap();
        let set = [Planned::new(Operation::Set, 0)];
        let ended = exchange(&mut server.connect(), &mut protocol, &set);
        assert_eq!(ended.outcomes, [Outcome::ServerError], "{dialect:?}");
    }
}

#[test]
fn memcached_speaks_every_dialect_over_udp() {
    let Some(server) = memcached("memcached_speaks_every_dialect_over_udp", &[]) else {
        return;
    };
    let socket = server.datagrams();
    for dialect in Dialect::ALL {
        let mut protocol = MemcachedUdp::new(dialect, workload(dialect)).unwrap();
        let mut id = 0xfffe_u16;
        let mut ask = |protocol: &mut MemcachedUdp, what: Planned| {
            id = id.wrapping_add(1);
            socket.send(protocol.encode(what, id)).unwrap();
            let mut bytes = [0; 4096];
            let n = socket.recv(&mut bytes).unwrap();
            let response = protocol.decode(&bytes[..n]).unwrap();
            assert_eq!((response.id, response.datagrams), (id, 1));
            let outcome = protocol.judge(what, &response.body);
            (outcome.unwrap(), n)
        };
        let sets = protocol.to_store();
        let get = |set: &Planned| Planned::new(Operation::Get, set.key());
        for set in &sets {
            assert_eq!(ask(&mut protocol, get(set)).0, Outcome::Miss);
        }
        for set in &sets {
            assert_eq!(ask(&mut protocol, *set).0, Outcome::Stored);
        }
        for set in &sets {
            let expected = (Outcome::Hit, protocol.sizes().response_bytes);
            assert_eq!(ask(&mut protocol, get(set)), expected, "{dialect:?}");
        }
    }
}

fn redis(test: &str) -> Option<Server> {
    Server::start(test, "redis-server", |port| {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", port, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            // no file is left behind, and none that another Redis left there is loaded
            .args(["--dir", "/tmp", "--daemonize", "no"])
            .args(["--dbfilename", "none-of-these-tests.rdb"]);
        command
    })
}

#[test]
fn redis_stores_and_reads_back() {
    let Some(server) = redis("redis_stores_and_reads_back") else {
        return;
    };
    let workload = StoreWorkload {
        keys: 200,
        get_share: 0.5,
        distribution: KeyDistribution::Zipf(0.99),
        ..StoreWorkload::default()
    };
    store_and_read_back(&server, &mut Redis::new(workload).unwrap());
}

/// nginx with a file of 612 bytes, a file that it compresses (and so sends in chunks) and an empty
/// answer; it closes a connection after 100 requests.
fn nginx(test: &str, dir: &Path) -> Option<Server> {
    std::fs::create_dir(dir.join("www")).unwrap();
    std::fs::write(dir.join("www/small.html"), vec![b'x'; 612]).unwrap();
    std::fs::write(dir.join("www/long.txt"), "0123456789".repeat(20_000)).unwrap();
    Server::start(test, "nginx", |port| {
        let at = dir.display();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{\n\
             types {{ text/html html; text/plain txt; }}\n\
             access_log off; keepalive_requests 100;\n\
             client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;\n\
             fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi;\n\
             scgi_temp_path {at}/scgi;\n\
             gzip on; gzip_types text/plain; gzip_min_length 1000;\n\
             server {{ listen 127.0.0.1:{port}; root {at}/www;\n\
             location = /empty {{ return 204; }}\n\
             location = /away {{ return 302 /small.html; }} }}\n\
             }}\n"
        );
        std::fs::write(dir.join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command
            .arg("-p")
            .arg(dir)
            .arg("-c")
            .arg(dir.join("nginx.conf"));
        command
    })
}

#[test]
fn nginx_answers_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = nginx("nginx_answers_in_every_form", dir.path()) else {
        return;
    };
    let host = server.address.to_string();
    let run = |path: &str, packed: bool| {
        let mut workload = Resource::at(&host, path);
        if packed {
            workload.headers = vec![("Accept-Encoding".into(), "gzip".into())];
        }
        let mut http = Http::new(&workload).unwrap();
        let plan = http.plan(50, 1);
        let ended = exchange(&mut server.connect(), &mut http, &plan);
        assert!(!ended.closed);
        assert_eq!(ended.outcomes.len(), 50);
        (ended.outcomes[49], ended.sizes[49])
    };
    let (outcome, small) = run("/small.html", false);
    assert_eq!(outcome, Outcome::Done);
    assert!((612 + 100..612 + 400).contains(&small), "{small}");
    let (outcome, long) = run("/long.txt", false);
    assert_eq!(outcome, Outcome::Done);
    assert!(long > 200_000, "{long}");
    let (outcome, packed) = run("/long.txt", true);
    assert_eq!(outcome, Outcome::Done);
    assert!(packed < 100_000, "{packed}");
    assert_eq!(run("/empty", false).0, Outcome::Done);
    // a redirect is not what was asked for
    assert_eq!(run("/away", false).0, Outcome::ServerError);
    assert_eq!(run("/absent", false).0, Outcome::ServerError);
}

/// The request of Tales of the Tail, section 3.1, has 85 bytes. nginx closes every connection
/// after `keepalive_requests`, which must not count as a loss.
#[test]
fn nginx_takes_a_padded_request_and_says_when_it_closes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = nginx(
        "nginx_takes_a_padded_request_and_says_when_it_closes",
        dir.path(),
    ) else {
        return;
    };
    let host = server.address.to_string();
    for (path, bytes) in [("/small.html", 66), ("/empty", 70), ("/small.html", 85)] {
        let mut http = Http::new(&Resource {
            request_bytes: Some(bytes),
            ..Resource::at(&host, path)
        })
        .unwrap();
        assert_eq!(http.sizes().request_bytes, bytes);
        let plan = http.plan(1000, 1);
        let ended = exchange(&mut server.connect(), &mut http, &plan);
        assert_eq!(ended.outcomes, [Outcome::Done; 100]);
        assert!(ended.closed);
    }
}
