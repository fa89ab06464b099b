//! Gives the codecs damaged answers: a bounded, seeded run of the checks that
//! `crates/taillab/fuzz` runs without a limit.

mod checks;
mod mutate;

use taillab_load::protocol::Decoded;
use taillab_model::Operation;

use checks::{Asked, AskedDatagrams, check_datagram, check_stream};
use mutate::Mutator;

/// Damaged answers for each protocol.
const CASES: usize = 300_000;

/// How many cases ended in which way, to be sure that every branch was reached.
#[derive(Debug, Default)]
struct Seen {
    partial: usize,
    answers: usize,
    malformed: usize,
}

fn run(asked: &[Asked], valid: &[&[u8]], seed: u64) {
    let valid: Vec<Vec<u8>> = valid.iter().map(|v| v.to_vec()).collect();
    for bytes in &valid {
        let taken = asked.iter().any(|asked| {
            matches!(
                check_stream(asked, bytes),
                Decoded::Answer { bytes: end, .. } | Decoded::LastAnswer { bytes: end, .. }
                if end == bytes.len()
            )
        });
        assert!(taken, "{} is no answer", bytes.escape_ascii());
    }
    let mut mutator = Mutator::new(seed);
    let mut seen = Seen::default();
    for case in 0..CASES {
        let bytes = mutator.damaged(&valid);
        let asked = &asked[case % asked.len()];
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check_stream(asked, &bytes)));
        match checked {
            Ok(Decoded::Partial { .. }) => seen.partial += 1,
            Ok(Decoded::Answer { .. } | Decoded::LastAnswer { .. }) => seen.answers += 1,
            Ok(Decoded::Malformed) => seen.malformed += 1,
            Err(_) => panic!("case {case}: b\"{}\"", bytes.escape_ascii()),
        }
    }
    let enough = CASES / 100;
    assert!(
        seen.partial > enough && seen.answers > enough && seen.malformed > enough,
        "{seen:?}"
    );
}

#[test]
fn memcached_ascii() {
    let asked = [Operation::Get, Operation::Set].map(|o| checks::on_stream("memcached-ascii", o));
    let valid: [&[u8]; 5] = [
        b"VALUE 0042 0 12\r\nvvvvvvvvvvvv\r\nEND\r\n",
        b"END\r\n",
        b"STORED\r\n",
        b"SERVER_ERROR out of memory storing object\r\n",
        b"ERROR\r\n",
    ];
    run(&asked, &valid, 1);
}

/// An answer of the binary protocol.
fn binary(opcode: u8, extras: u8, status: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x81, opcode, 0, 0, extras, 0, 0, status];
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&checks::TAG.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn memcached_binary() {
    let asked = [Operation::Get, Operation::Set].map(|o| checks::on_stream("memcached-binary", o));
    let valid = [
        binary(0, 4, 0, b"\0\0\0\0vvvvvvvvvvvv"),
        binary(0, 0, 1, b"Not found"),
        binary(1, 0, 0, b""),
        binary(1, 0, 0x82, b"Out of memory"),
    ];
    let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
    run(&asked, &valid, 2);
}

#[test]
fn memcached_meta() {
    let asked = [Operation::Get, Operation::Set].map(|o| checks::on_stream("memcached-meta", o));
    let valid: [&[u8]; 6] = [
        b"VA 12 O0a0b0c0d k0042\r\nvvvvvvvvvvvv\r\n",
        b"EN O0a0b0c0d k0042\r\n",
        b"EN\r\n",
        b"HD O0a0b0c0d\r\n",
        b"NS O0a0b0c0d\r\n",
        b"SERVER_ERROR out of memory storing object\r\n",
    ];
    run(&asked, &valid, 3);
}

#[test]
fn redis() {
    let asked = [Operation::Get, Operation::Set].map(|o| checks::on_stream("redis", o));
    let valid: [&[u8]; 4] = [
        b"$12\r\nvvvvvvvvvvvv\r\n",
        b"$-1\r\n",
        b"+OK\r\n",
        b"-ERR unknown command\r\n",
    ];
    run(&asked, &valid, 4);
}

#[test]
fn http() {
    let asked = [checks::on_stream("http", Operation::Call)];
    let valid: [&[u8]; 7] = [
        b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Length: 12\r\nETag: \"x\"\r\n\r\nvvvvvvvvvvvv",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
    ];
    run(&asked, &valid, 5);
}

#[test]
fn echo() {
    run(
        &[checks::on_stream("echo", Operation::Call)],
        &[b"\x0a\x0b\x0c\x0deeeeeeeeeeee"],
        6,
    );
}

fn run_datagrams(asked: &AskedDatagrams, valid: &[&[u8]], seed: u64) {
    let frame = [7, 0, 1, 0].map(u16::to_be_bytes).concat();
    let valid: Vec<_> = valid.iter().map(|v| [&frame, *v].concat()).collect();
    for datagram in &valid {
        assert!(check_datagram(asked, datagram));
    }
    let mut mutator = Mutator::new(seed);
    let mut taken = 0;
    for _ in 0..CASES {
        taken += usize::from(check_datagram(asked, &mutator.damaged(&valid)));
    }
    assert!(
        taken > CASES / 100 && taken < CASES - CASES / 100,
        "{taken}"
    );
}

#[test]
fn memcached_over_udp() {
    let ascii: [&[u8]; 4] = [
        b"VALUE 0042 0 12\r\nvvvvvvvvvvvv\r\nEND\r\n",
        b"END\r\n",
        b"STORED\r\n",
        b"SERVER_ERROR out of memory storing object\r\n",
    ];
    run_datagrams(&checks::in_datagrams("memcached-ascii"), &ascii, 7);
    let meta: [&[u8]; 3] = [
        b"VA 12 O0000002a k0042\r\nvvvvvvvvvvvv\r\n",
        b"EN\r\n",
        b"HD O0000002a\r\n",
    ];
    run_datagrams(&checks::in_datagrams("memcached-meta"), &meta, 8);
    let mut hit = binary(0, 4, 0, b"\0\0\0\0vvvvvvvvvvvv");
    hit[12..16].copy_from_slice(&checks::KEY.to_be_bytes());
    let stored = binary(1, 0, 0, b"");
    run_datagrams(
        &checks::in_datagrams("memcached-binary"),
        &[&hit, &stored],
        9,
    );
}

#[test]
fn echo_over_udp() {
    run_datagrams(&checks::in_datagrams("echo"), &[b"eeeeeeee"], 10);
}

/// Fails if a protocol has no cases here.
#[test]
fn every_protocol_is_tried() {
    for protocol in &taillab_load::protocol::PROTOCOLS {
        let asked = checks::on_stream(protocol.label, Operation::Get);
        assert!(matches!(check_stream(&asked, b""), Decoded::Partial { .. }));
        if protocol.over_udp() {
            assert!(!check_datagram(&checks::in_datagrams(protocol.label), b""));
        }
    }
}
