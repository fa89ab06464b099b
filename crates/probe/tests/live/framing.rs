//! Pipelining clients at real servers, their requests separated by content.
//!
//! Needs memcached, nginx and Redis.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::testbed::pipeline::{ClientView, Exchange};
use crate::testbed::streams::{Nginx, StreamBed};
use crate::testbed::{ATTEMPTS, first_unspoiled, keep, live, now, peers};
use taillab_analysis::matcher::Framing;
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::summary::Matching;
use taillab_model::{EventKind, Monotonic, Nanos, Recording};
use taillab_probe::{Probe, ProbeSpec};

/// Records the exchanges, a few rounds of them on each connection.
fn record(
    bed: &StreamBed,
    framing: Framing,
    rounds: usize,
    exchanges: &[Exchange],
) -> (Recording, Vec<Vec<ClientView>>) {
    let spec = ProbeSpec {
        payload_bytes: framing.payload_bytes(),
        ..bed.spec.clone()
    };
    let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let told = bed.pipeline(3, rounds, exchanges);
    let mut recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    recording.context.framing = Some(framing.to_string());
    (recording, told)
}

/// Matches what is recorded of the exchanges. Each response that is matched is matched with
/// its own request, as the request's place in its stream and the client's clock show. Returns
/// the number of calls and what became of them.
fn talk(
    bed: &StreamBed,
    framing: Framing,
    rounds: usize,
    exchanges: &[Exchange],
) -> (u64, Matching) {
    let (recording, told) = record(bed, framing, rounds, exchanges);
    let peers = peers(&recording.events().collect::<Vec<_>>());
    let starts: HashMap<u16, u16> = recording
        .events()
        .filter_map(|event| match event.kind {
            EventKind::SegmentIn { key, bytes: 0, .. } => {
                Some((peers[&key.connection].port(), key.id))
            }
            _ => None,
        })
        .collect();
    let options = MatchOptions {
        framing,
        ..MatchOptions::for_streams(Nanos::from_secs(5), false)
    };
    let matched = match_events(recording.into_events(), &options);
    let mut by_end: HashMap<(u16, u16), ClientView> = HashMap::new();
    for told in &told {
        let mut end = starts[&told[0].port];
        for told in told {
            end = end.wrapping_add(told.bytes as u16);
            assert!(by_end.insert((told.port, end), *told).is_none(), "too long");
        }
    }
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let port = peers[&key.connection].port();
        let (told, stamps) = (by_end[&(port, key.id)], request.server);
        assert!(told.sent <= stamps.t1, "{told:?} {stamps:?}");
        assert!(stamps.t6 <= told.received, "{told:?} {stamps:?}");
    }
    assert_eq!(matched.without_request, []);
    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    println!("{framing}: {counts:?}");
    assert_eq!(counts.out_of_order, 0);
    (by_end.len() as u64, counts)
}

/// Every response is matched; a small recording is kept if that is asked for.
fn assert_told_apart(name: &str, bed: &StreamBed, framing: Framing, exchanges: &[Exchange]) {
    let (calls, counts) = talk(bed, framing, 40, exchanges);
    assert_eq!((counts.matched, counts.ambiguous), (calls, 0), "{name}");
    keep(name, || record(bed, framing, 8, exchanges).0);
}

#[test]
fn pipelined_memcached_text_meta_and_binary_are_told_apart() {
    let Some(_alone) = live("pipelined_memcached_text_meta_and_binary_are_told_apart") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(2);
    let long = "v".repeat(700);
    let text = [
        Exchange::new("set a 0 0 5\r\nhello\r\n", "STORED\r\n"),
        Exchange::new("get a\r\n", "VALUE a 0 5\r\nhello\r\nEND\r\n"),
        Exchange::new(format!("set b 0 0 700\r\n{long}\r\n"), "STORED\r\n"),
        Exchange::new("get nothing\r\n", "END\r\n"),
        Exchange::new("get b\r\n", format!("VALUE b 0 700\r\n{long}\r\nEND\r\n")),
        Exchange::new("mg a v\r\n", "VA 5\r\nhello\r\n"),
        Exchange::new("ms c 4\r\nwide\r\n", "HD\r\n"),
        Exchange::new("mg nothing\r\n", "EN\r\n"),
        Exchange::new("mn\r\n", "MN\r\n"),
    ];
    assert_told_apart("pipelined_memcached_text", &bed, Framing::Memcached, &text);

    let long = vec![b'v'; 700];
    let binary = [
        // SET, GET of it, GET of nothing ("Not found"), NOOP, GET of 700 bytes
        Exchange::binary(0x01, 0xbeef_0001, [&[0; 8], b"d", b"hello"], 0),
        Exchange::binary(0x00, 0xbeef_0002, [b"", b"d", b""], 9),
        Exchange::binary(0x00, 0xbeef_0003, [b"", b"nothing", b""], 9),
        Exchange::binary(0x01, 0xbeef_0004, [&[0; 8], b"e", &long], 0),
        Exchange::binary(0x0a, 0xbeef_0005, [b"", b"", b""], 0),
        Exchange::binary(0x00, 0xbeef_0006, [b"", b"e", b""], 704),
    ];
    assert_told_apart(
        "pipelined_memcached_binary",
        &bed,
        Framing::Memcached,
        &binary,
    );
}

#[test]
fn pipelined_http_is_told_apart() {
    let Some(_alone) = live("pipelined_http_is_told_apart") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bed = StreamBed::new();
    let _server = bed.nginx(folder.path(), Nginx::default());
    let http = [
        Exchange::new("GET /file HTTP/1.1\r\nHost: a\r\n\r\n", [b'x'; 600]),
        Exchange::new("HEAD /file HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\r\n"),
        Exchange::new("GET /none HTTP/1.1\r\nHost: a\r\n\r\n", "</html>\r\n"),
        Exchange::new(
            "POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "</html>\r\n",
        ),
    ];
    assert_told_apart("pipelined_http", &bed, Framing::Http1, &http);
}

/// What clients saw of requests that nginx refuses without their bodies.
#[derive(Default)]
struct Refusals {
    /// When each request was begun, and when all of its response was there.
    calls: Vec<(Monotonic, Monotonic)>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Refusals {
    /// Sends requests on a connection: some are refused before their bodies have been sent or read, the last one for
    /// its length: if so many bytes of its body are all, nginx closes the connection when it has read them.
    fn make(&mut self, stream: &mut TcpStream, of_body: usize) {
        let refused = "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n";
        for n in 0..10 {
            // the head alone, some of the body with it, or all of it
            let (early, late) = [0, 300, 1_000].map(|early| (early, 1_000 - early))[n % 3];
            let post = [refused.as_bytes(), &vec![b'b'; early]].concat();
            self.exchange(stream, &post, "</html>\r\n");
            if late > 0 {
                self.send(stream, &vec![b'b'; late]);
            }
            let get = b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n";
            self.exchange(stream, get, &"x".repeat(600));
        }
        let too_large = b"POST /file HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n";
        self.exchange(stream, too_large, "</html>\r\n");
        self.send(stream, &vec![b'b'; of_body]);
        if of_body == 5_000 {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("nginx closes it");
            assert_eq!(rest, b"");
        }
    }

    fn send(&mut self, stream: &mut TcpStream, bytes: &[u8]) {
        stream.write_all(bytes).expect("nginx reads");
        self.sent_bytes += bytes.len() as u64;
    }

    /// Sends this, and waits for a response that ends like that.
    fn exchange(&mut self, stream: &mut TcpStream, request: &[u8], end: &str) {
        let begun = now();
        self.send(stream, request);
        let mut response = Vec::new();
        while !response.ends_with(end.as_bytes()) {
            let mut some = [0; 4_096];
            let n = stream.read(&mut some).expect("a response");
            assert!(n > 0, "nginx closed the connection");
            response.extend(&some[..n]);
        }
        self.received_bytes += response.len() as u64;
        self.calls.push((begun, now()));
    }
}

/// Whether the probe has seen every byte that clients sent, and every byte that they received.
fn saw_all(recording: &Recording, told: &Refusals) -> bool {
    let (mut came, mut left) = (0, 0);
    for event in recording.events() {
        match event.kind {
            EventKind::SegmentIn { bytes, .. } => came += u64::from(bytes),
            EventKind::Payload {
                bytes,
                len: 0,
                response: true,
            } => left += u64::from(u64::from_le_bytes(bytes) as u32),
            _ => {}
        }
    }
    (came, left) == (told.sent_bytes, told.received_bytes)
}

/// nginx refuses a request when it has read its head, and throws its body away, or closes the connection.
#[test]
fn what_nginx_refuses_before_it_has_read_the_body_is_matched() {
    let Some(_alone) = live("what_nginx_refuses_before_it_has_read_the_body_is_matched") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bed = StreamBed::new();
    let how = Nginx {
        refuses: true,
        ..Nginx::default()
    };
    let _server = bed.nginx(folder.path(), how);
    let framing = Framing::Http1;
    let spec = ProbeSpec {
        payload_bytes: framing.payload_bytes(),
        ..bed.spec.clone()
    };
    let attempt = |_| {
        let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
        probe.attach().expect("the hooks are there");
        let mut told = Refusals::default();
        for of_body in [5_000, 1_000].into_iter().cycle().take(20) {
            told.make(&mut bed.connect(), of_body);
        }
        let recording = probe.finish().expect("the counters can be read");
        assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
        (recording, told)
    };
    let missed = |(recording, told): &(Recording, Refusals)| {
        (!saw_all(recording, told)).then(|| "the probe missed packets".to_owned())
    };
    let (recording, told) = first_unspoiled(ATTEMPTS, attempt, missed);
    let options = MatchOptions {
        framing,
        ..MatchOptions::for_streams(Nanos::from_secs(5), false)
    };
    let matched = match_events(recording.into_events(), &options);
    // one after the other
    for ((begun, received), request) in told.calls.iter().zip(matched.requests.iter()) {
        let stamps = request.server;
        assert!(*begun <= stamps.t1, "{begun:?} {stamps:?}");
        assert!(stamps.t6 <= *received, "{stamps:?} {received:?}");
    }
    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    println!("{counts:?}");
    assert_eq!(counts.matched, told.calls.len() as u64);
    assert_eq!((counts.responses, counts.unanswered), (counts.matched, 0));
    assert_eq!((counts.ambiguous, counts.out_of_order), (0, 0));
    assert_eq!(matched.without_request, []);
}

#[test]
fn pipelined_redis_is_told_apart() {
    let Some(_alone) = live("pipelined_redis_is_told_apart") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.redis();
    let long = "v".repeat(700);
    let resp = [
        Exchange::new("*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
        Exchange::new("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n", "+OK\r\n"),
        Exchange::new("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "$5\r\nhello\r\n"),
        Exchange::new("GET nothing\r\n", "$-1\r\n"),
        Exchange::new(
            format!("*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$700\r\n{long}\r\n"),
            "+OK\r\n",
        ),
        Exchange::new(
            "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$1\r\nb\r\n",
            format!("{long}\r\n"),
        ),
        Exchange::new("*2\r\n$4\r\nLLEN\r\n$1\r\na\r\n", "wrong kind of value\r\n"),
    ];
    assert_told_apart("pipelined_redis", &bed, Framing::Resp, &resp);
}

/// Lengths that lie behind what is recorded of a packet.
#[test]
fn what_cannot_be_told_apart_is_ambiguous_and_none_is_wrong() {
    let Some(_alone) = live("what_cannot_be_told_apart_is_ambiguous_and_none_is_wrong") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.redis();
    let long = "v".repeat(2_500);
    let resp = [
        Exchange::new(
            format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2500\r\n{long}\r\n"),
            "+OK\r\n",
        ),
        Exchange::new("*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
        Exchange::new("*2\r\n$3\r\nGET\r\n$1\r\na\r\n", format!("{long}\r\n")),
    ];
    let (calls, counts) = talk(&bed, Framing::Resp, 14, &resp);
    assert!(counts.ambiguous > 0, "{counts:?}");
    assert!(counts.matched > 0, "{counts:?}");
    // where the framing is lost, all that the client sends in one turn counts as one request
    assert!(counts.matched + counts.ambiguous + counts.unanswered <= calls);
}

#[test]
fn pipelined_requests_of_one_length_are_told_apart() {
    let Some(_alone) = live("pipelined_requests_of_one_length_are_told_apart") else {
        return;
    };
    let bed = StreamBed::new();
    bed.thread_per_connection(2 * 3, 128);
    let framing = "fixed:128".parse().expect("a framing");
    let echo = [Exchange::new([b'a'; 128], [b'a'; 128])];
    assert_told_apart("pipelined_fixed", &bed, framing, &echo);
}
