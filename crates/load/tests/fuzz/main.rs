//! What every protocol sends, byte for byte, and damaged answers to it: the same ones each time in `make test`, others
//! each time in `make fuzz`. `crates/taillab/fuzz` runs the same checks, guided by what they cover.

mod checks;
mod mutate;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taillab_load::protocol::{Decoded, PROTOCOLS, Protocol};

use checks::{DatagramRequest, StreamRequest, check_datagram, check_stream, operations};
use mutate::Mutator;

/// Damaged answers for each protocol.
const CASES: usize = 300_000;

/// How many damaged answers are tried.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Added to the seed of each protocol.
    seed: u64,
    /// For so long; `None`: [`CASES`].
    length: Option<Duration>,
}

impl Effort {
    /// What `FUZZ_SECONDS` asks for, shared by so many protocols; it is given for each test, which run side by side.
    fn asked(protocols: usize) -> Self {
        let seconds = std::env::var("FUZZ_SECONDS").ok();
        let length = seconds.map(|text| Duration::from_secs(text.parse().unwrap()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seed = length.map_or(0, |_| now.as_secs());
        eprintln!("seed {seed}");
        Self {
            seed,
            length: length.map(|length| length / protocols as u32),
        }
    }

    /// The numbers of the cases.
    fn cases(self) -> impl Iterator<Item = usize> {
        /// To read the clock takes as long as a case.
        const LOOK_EVERY: usize = 1_000;
        let began = Instant::now();
        (0..).take_while(move |case| match self.length {
            None => *case < CASES,
            Some(length) => !case.is_multiple_of(LOOK_EVERY) || began.elapsed() < length,
        })
    }
}

/// How many cases ended in which way, to be sure that every branch was reached.
#[derive(Debug, Default)]
struct Seen {
    partial: usize,
    answers: usize,
    malformed: usize,
}

/// What belongs to each protocol: its requests (for a store, a get and a set of the key `0042`), and
/// valid answers to one of them.
type Cases = (Vec<Vec<u8>>, Vec<Vec<u8>>);

fn cases(requests: &[&[u8]], answers: &[&[u8]]) -> Cases {
    let owned = |all: &[&[u8]]| all.iter().map(|bytes| bytes.to_vec()).collect();
    (owned(requests), owned(answers))
}

/// On a stream, where the tag is [`checks::TAG`].
fn on_stream(protocol: &Protocol) -> Cases {
    match protocol.label {
        "echo" => cases(&[b"\x0a\x0b\x0c\x0deeeeeeeeeeee"], &[b"\x0a\x0b\x0c\x0deeeeeeeeeeee"]),
        "memcached-ascii" => cases(
            &[b"get 0042\r\n", b"set 0042 0 0 12\r\nvvvvvvvvvvvv\r\n"],
            &[
                b"VALUE 0042 0 12\r\nvvvvvvvvvvvv\r\nEND\r\n",
                b"END\r\n",
                b"STORED\r\n",
                b"SERVER_ERROR out of memory storing object\r\n",
                b"ERROR\r\n",
            ],
        ),
        "memcached-binary" => (
            vec![
                binary(0x80, 0, [4, 0], checks::TAG, b"0042"),
                binary(0x80, 1, [4, 8], checks::TAG, b"\0\0\0\0\0\0\0\x00\x30042vvvvvvvvvvvv"),
            ],
            vec![
                answer(0, 4, 0, checks::TAG, b"\0\0\0\0vvvvvvvvvvvv"),
                answer(0, 0, 1, checks::TAG, b"Not found"),
                answer(1, 0, 0, checks::TAG, b""),
                answer(1, 0, 0x82, checks::TAG, b"Out of memory"),
            ],
        ),
        "memcached-meta" => cases(
            &[
                b"mg 0042 O0a0b0c0d k v\r\n",
                b"ms 0042 12 O0a0b0c0d\r\nvvvvvvvvvvvv\r\n",
            ],
            &[
                b"VA 12 O0a0b0c0d k0042\r\nvvvvvvvvvvvv\r\n",
                b"EN O0a0b0c0d k0042\r\n",
                b"EN\r\n",
                b"HD O0a0b0c0d\r\n",
                b"NS O0a0b0c0d\r\n",
                b"SERVER_ERROR out of memory storing object\r\n",
            ],
        ),
        "http" => cases(
            &[b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"],
            &[
                b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nContent-Length: 12\r\nETag: \"x\"\r\n\r\nvvvvvvvvvvvv",
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na;x=y\r\n0123456789\r\n0\r\nT: u\r\n\r\n",
                b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
                b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
                b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
                b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
            ],
        ),
        "redis" => cases(
            &[
                b"*2\r\n$3\r\nGET\r\n$4\r\n0042\r\n",
                b"*3\r\n$3\r\nSET\r\n$4\r\n0042\r\n$12\r\nvvvvvvvvvvvv\r\n",
            ],
            &[
                b"$12\r\nvvvvvvvvvvvv\r\n",
                b"$-1\r\n",
                b"+OK\r\n",
                b"-ERR unknown command\r\n",
            ],
        ),
        other => panic!("{other} has no requests and answers here: add what it sends and gets on a stream"),
    }
}

/// In datagrams, where the id of the request is 7.
fn in_datagrams(protocol: &Protocol) -> Cases {
    let (requests, answers) = match protocol.label {
        "echo" => {
            return cases(
                &[b"\0\x07eeeeeeeeeeeeee"],
                &[b"\0\x07\0\0\0\x01\0\0eeeeeeee"],
            );
        }
        "memcached-ascii" => cases(
            &[b"get 0042\r\n", b"set 0042 0 0 12\r\nvvvvvvvvvvvv\r\n"],
            &[
                b"VALUE 0042 0 12\r\nvvvvvvvvvvvv\r\nEND\r\n",
                b"END\r\n",
                b"STORED\r\n",
                b"SERVER_ERROR out of memory storing object\r\n",
            ],
        ),
        "memcached-meta" => cases(
            &[
                b"mg 0042 O0000002a k v\r\n",
                b"ms 0042 12 O0000002a\r\nvvvvvvvvvvvv\r\n",
            ],
            &[
                b"VA 12 O0000002a k0042\r\nvvvvvvvvvvvv\r\n",
                b"EN\r\n",
                b"HD O0000002a\r\n",
            ],
        ),
        "memcached-binary" => (
            vec![
                binary(0x80, 0, [4, 0], checks::KEY, b"0042"),
                binary(
                    0x80,
                    1,
                    [4, 8],
                    checks::KEY,
                    b"\0\0\0\0\0\0\0\x00\x30042vvvvvvvvvvvv",
                ),
            ],
            vec![
                answer(0, 4, 0, checks::KEY, b"\0\0\0\0vvvvvvvvvvvv"),
                answer(1, 0, 0, checks::TAG, b""),
            ],
        ),
        other => panic!(
            "{other} has no requests and answers here: add what it sends and gets in datagrams"
        ),
    };
    // memcached's frame: the id, number 0 of 1 datagram
    let framed = |all: Vec<Vec<u8>>| {
        let frame = [7, 0, 1, 0].map(u16::to_be_bytes).concat();
        all.iter()
            .map(|bytes| [&frame[..], bytes].concat())
            .collect()
    };
    (framed(requests), framed(answers))
}

/// A message of memcached's binary protocol; `lengths` are the key's and the extras'.
fn binary(magic: u8, opcode: u8, lengths: [u8; 2], opaque: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![magic, opcode, 0, lengths[0], lengths[1], 0, 0, 0];
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&opaque.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(body);
    bytes
}

fn answer(opcode: u8, extras: u8, status: u8, opaque: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = binary(0x81, opcode, [0, extras], opaque, body);
    bytes[7] = status;
    bytes
}

/// Gives damaged answers to a stream's codec.
fn run(label: &str, asked: &[StreamRequest], valid: &[Vec<u8>], (seed, effort): (u64, Effort)) {
    for bytes in valid {
        let taken = asked.iter().any(|asked| {
            matches!(
                check_stream(asked, bytes),
                Decoded::Answer { bytes: end, .. } | Decoded::LastAnswer { bytes: end, .. }
                if end == bytes.len()
            )
        });
        assert!(taken, "{label}: {} is no answer", bytes.escape_ascii());
    }
    let mut mutator = Mutator::new(effort.seed + seed);
    let mut seen = Seen::default();
    let mut tried = 0;
    for case in effort.cases() {
        tried = case + 1;
        let bytes = mutator.damaged(valid);
        let asked = &asked[case % asked.len()];
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check_stream(asked, &bytes)));
        match checked {
            Ok(Decoded::Partial { .. }) => seen.partial += 1,
            Ok(Decoded::Answer { .. } | Decoded::LastAnswer { .. }) => seen.answers += 1,
            Ok(Decoded::UntilClosed { .. } | Decoded::NotTaken) => {}
            Ok(Decoded::Malformed) => seen.malformed += 1,
            Err(_) => panic!("{label}, case {case}: b\"{}\"", bytes.escape_ascii()),
        }
    }
    eprintln!("{tried} answers to {label} on a stream");
    let enough = tried / 100;
    assert!(
        seen.partial > enough && seen.answers > enough && seen.malformed > enough,
        "{label}: {seen:?}"
    );
}

fn run_datagrams(
    label: &str,
    asked: &DatagramRequest,
    valid: &[Vec<u8>],
    (seed, effort): (u64, Effort),
) {
    for datagram in valid {
        let shown = datagram.escape_ascii();
        assert!(
            check_datagram(asked, datagram),
            "{label}: {shown} is no answer"
        );
    }
    let mut mutator = Mutator::new(effort.seed + seed);
    let (mut tried, mut taken) = (0, 0);
    for case in effort.cases() {
        let bytes = mutator.damaged(valid);
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check_datagram(asked, &bytes)
        }));
        taken += usize::from(
            checked
                .unwrap_or_else(|_| panic!("{label}, case {case}: b\"{}\"", bytes.escape_ascii())),
        );
        tried = case + 1;
    }
    eprintln!("{tried} answers to {label} in datagrams");
    assert!(
        taken > tried / 100 && taken < tried - tried / 100,
        "{label}: {taken} of {tried}"
    );
}

#[test]
fn every_protocol_on_a_stream() {
    let effort = Effort::asked(PROTOCOLS.len());
    for (seed, protocol) in (1..).zip(&PROTOCOLS) {
        let label = protocol.label;
        let (requests, answers) = on_stream(protocol);
        let asked = operations(protocol).iter();
        let mut asked: Vec<_> = asked.map(|o| checks::on_stream(protocol, *o)).collect();
        let sent: Vec<_> = asked.iter_mut().map(StreamRequest::request).collect();
        assert_eq!(sent, requests, "{label}");
        run(label, &asked, &answers, (seed, effort));
    }
}

#[test]
fn every_protocol_in_datagrams() {
    let over_udp = || PROTOCOLS.iter().filter(|p| p.over_udp());
    let effort = Effort::asked(over_udp().count());
    for (seed, protocol) in (7..).zip(over_udp()) {
        let label = protocol.label;
        let (requests, answers) = in_datagrams(protocol);
        let mut asked = checks::in_datagrams(protocol);
        let sent: Vec<_> = operations(protocol)
            .iter()
            .map(|o| asked.request(*o, 7))
            .collect();
        assert_eq!(sent, requests, "{label}");
        run_datagrams(label, &asked, &answers, (seed, effort));
    }
}
