//! Pipelining clients at real servers, their requests separated by content.
//!
//! Needs memcached, nginx and Redis.

use std::collections::HashMap;

use crate::testbed::pipeline::{ClientView, Exchange};
use crate::testbed::streams::{Nginx, StreamBed};
use crate::testbed::{keep, live, peers};
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
