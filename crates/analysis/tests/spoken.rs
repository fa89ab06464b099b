//! Protocols that no framing reads are told by their beginnings, and of their content nothing is kept.

use crate::common::talk::Talk;
use crate::framing::options;
use crate::redaction::{content, redacted};

use taillab_analysis::spoken::OtherProtocol;
use taillab_analysis::{Framing, match_events};

const BY_CONTENT: [Framing; 3] = [Framing::Http1, Framing::Memcached, Framing::Resp];

/// A record of TLS with a line break in it, since encrypted content may have any byte.
fn record(kind: u8) -> Vec<u8> {
    let mut record = vec![kind, 3, 3, 0, 60];
    record.extend_from_slice(b"~q9# zj7~\r\n 4711 0815\r\n");
    record.resize(65, 0xa7);
    record
}

/// A conversation in which client and server say nothing but this.
fn conversation(mut talk: Talk, begins: &[u8], goes_on: &[u8]) -> Talk {
    talk.asks(begins);
    talk.answers(goes_on);
    for _ in 0..20 {
        talk.asks(goes_on);
        talk.answers(goes_on);
    }
    talk
}

#[test]
fn tls_and_http_2_are_named_as_what_they_are() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04\0\0\0\0\0";
    let (hello, data) = (record(0x16), record(0x17));
    let cases = [
        (
            conversation(Talk::opened(40_000), &hello, &data),
            OtherProtocol::Tls,
        ),
        // in use when the recording began
        (
            conversation(Talk::joined(40_000), &data, &data),
            OtherProtocol::Tls,
        ),
        (
            conversation(
                Talk::opened(40_000),
                preface,
                b"\0\0\x04\x01\x04\0\0\0\x01 4711",
            ),
            OtherProtocol::Http2,
        ),
    ];
    for framing in BY_CONTENT {
        for (talk, speaks) in &cases {
            for parts in [1..2, 1..9, 1_000..1_001] {
                let kept = redacted(&talk.events, framing, parts.clone(), 7);
                let found = match_events(kept.iter().copied(), &options(framing));
                let case = format!("{speaks:?} with {framing} in parts of {parts:?}");
                assert_eq!(found.beginnings.connections, 1, "{case}");
                assert_eq!(found.beginnings.mostly(), Some(*speaks), "{case}");
                let kept = content(&kept);
                for secret in [&b"4711"[..], b"0815", b"q9", b"zj", b"\xa7"] {
                    let is_kept = kept.windows(secret.len()).any(|window| window == secret);
                    assert!(!is_kept, "{case}: {}", String::from_utf8_lossy(&kept));
                }
            }
            // the content as it was says the same
            let found = match_events(talk.events.iter().copied(), &options(framing));
            assert_eq!(found.beginnings.mostly(), Some(*speaks));
        }
    }
}

/// A body that begins as a record of TLS does, and is sent in a packet of its own.
#[test]
fn what_follows_a_head_is_no_beginning() {
    let mut talk = Talk::opened(40_000);
    for _ in 0..5 {
        talk.asks(b"PUT / HTTP/1.1\r\nContent-Length: 65\r\n\r\n");
        talk.asks(&record(0x16));
        talk.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    let kept = redacted(&talk.events, Framing::Http1, 1..9, 7);
    assert!(!content(&kept).contains(&0x16));
    let found = match_events(kept, &options(Framing::Http1));
    assert_eq!(found.beginnings.mostly(), None);
    assert_eq!(found.requests.len(), 5);
}
