//! What a recording keeps of content: enough to find the same messages, and nothing else.

use std::ops::Range;

use crate::common::exchanges::{Connection, Exchange};
use crate::common::talk::Talk;
use crate::framing::{connection, ends, exchanges, framings, none_wrong, options};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::matcher::framing::{Direction, Parser};
use taillab_analysis::{Framing, Redaction, match_events};
use taillab_model::{Event, EventKind, Monotonic, PackedEvent, Recording};

const BASE: Monotonic = Monotonic::from_nanos_since_boot(0);

/// What is kept of these events when each CPU's come in parts of random length.
pub(crate) fn redacted(
    events: &[Event],
    framing: Framing,
    parts: Range<usize>,
    seed: u64,
) -> Vec<Event> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut redaction = Redaction::new(framing).unwrap();
    let mut kept = events.to_vec();
    let mut at = 0;
    while at < events.len() {
        let end = events.len().min(at + rng.random_range(parts.clone()));
        for cpu in 0..2 {
            let places: Vec<usize> = (at..end).filter(|&i| events[i].cpu == cpu).collect();
            let pack = |&i: &usize| {
                let event = events[i];
                PackedEvent::new(event.at.saturating_since(BASE), event.kind)
            };
            let mut part: Vec<PackedEvent> = places.iter().map(pack).collect();
            redaction.redact(cpu, &mut part);
            for (place, event) in places.into_iter().zip(part) {
                kept[place] = event.on_cpu(BASE, cpu);
            }
        }
        at = end;
    }
    kept
}

/// All content of these events.
pub(crate) fn content(events: &[Event]) -> Vec<u8> {
    let pieces = events.iter().filter_map(|event| match event.kind {
        EventKind::Payload {
            bytes, len: 1.., ..
        } => Some(bytes),
        _ => None,
    });
    pieces.flatten().collect()
}

/// The bytes of one direction after redaction, in the pieces that `cut` makes.
fn blanked(
    framing: Framing,
    direction: Direction,
    bytes: &[u8],
    mut cut: impl FnMut(usize) -> usize,
) -> Vec<u8> {
    let mut parser = Parser::new(framing, direction).unwrap();
    let mut bytes = bytes.to_vec();
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        let (piece, others) = rest.split_at_mut(cut(rest.len()));
        parser.redact(piece);
        rest = others;
    }
    bytes
}

/// Parts of messages in wrong places.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let parts = prop::sample::select(vec![
        &b"GET /a HTTP/1.1\r\n"[..],
        b"HTTP/1.1 200 OK\r\n",
        b"Content-Length: 5\r\n",
        b"content-length : 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"Transfer-Encoding: gzip, Chunked\r\n",
        b"Transfer-Encoding: chunked2\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"a;b=c\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"set k 0 -1 5 noreply\r\n",
        b"set k 0 0 5 7 noreply \r\n",
        b"delete noreply\r\n",
        b"gets  k noreply\r\n",
        b"ms k 5 T0 q\r\n",
        b"mg k v qq\r\n",
        b"VALUE k 1 5 9\r\n",
        b"VA 5 f1\r\n",
        b"END\r\n",
        b"17\r\n",
        b"17a\r\n",
        b"*2\r\n",
        b"*-1\r\n",
        b"$5\r\n",
        b"$-1\r\n",
        b"$3\r\nGET\r\n",
        b"$5\r\nSETEy\r\n",
        b"getey k\r\n",
        b"$9\r\nsubscribe\r\n",
        b"monitor\r\n",
        b"?\r\n",
        b">1\r\n",
        b"+x\r\n",
        b"\x80\x01\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02abcdefghijklmn",
        b"\x81\x00",
        b"hello",
    ]);
    let any = prop::collection::vec(any::<u8>(), 0..30);
    let piece = prop_oneof![8 => parts.prop_map(<[u8]>::to_vec), 1 => any];
    prop::collection::vec(piece, 0..25).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(crate::common::cases(400))]

    /// A parser finds the same messages in what is kept as in the original, and what is kept does not depend on
    /// the cuts.
    #[test]
    fn framing_needs_nothing_else(
        framing in framings(), responses: bool, nearly in nearly(), seed: u64, real: bool,
    ) {
        let direction = if responses { Direction::Responses } else { Direction::Requests };
        let bytes = if real {
            let all = exchanges(framing, seed, 12);
            all.iter().flat_map(|(request, response)| if responses { response } else { request }).copied().collect()
        } else {
            nearly
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let whole = blanked(framing, direction, &bytes, |left| left);
        let cut = blanked(framing, direction, &bytes, |left| rng.random_range(1..=left));
        prop_assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut));
        prop_assert_eq!(
            ends(framing, direction, &whole, |left| left),
            ends(framing, direction, &bytes, |left| left),
            "{} from {}", String::from_utf8_lossy(&whole), String::from_utf8_lossy(&bytes)
        );
    }

    /// The same requests are matched, with the same stamps. (Not for HEAD and its look-alikes, where
    /// a packet of a body begins as a response would.)
    #[test]
    fn the_same_requests_are_matched(
        framing in framings(), seed: u64, in_flight in 1..8_usize, whole: bool, opened: bool,
    ) {
        let misleads = |(request, response): &Exchange| {
            request.starts_with(b"HEAD") || response.windows(9).skip(1).any(|w| w == b"HTTP/1.1 ")
        };
        let mut exchanges: Vec<Exchange> = exchanges(framing, seed, 40);
        exchanges.retain(|exchange| !misleads(exchange));
        let world = Connection { in_flight, whole, opened, ..connection(seed) };
        let (events, _) = world.run(&exchanges);
        let kept = redacted(&events, framing, 1..2, seed);
        let matched = |events: &[Event]| {
            format!("{:?}", match_events(events.iter().copied(), &options(framing)))
        };
        prop_assert_eq!(matched(&kept), matched(&events));
        // as when the probe is drained only now and then
        let late = redacted(&events, framing, 1..400, seed);
        prop_assert_eq!(content(&late).len(), content(&kept).len());
        prop_assert_eq!(matched(&late), matched(&events));
    }

    /// If packets were recorded in part or lost, a stream is followed again from another packet than
    /// the matcher would choose, so more may be ambiguous; but no match is wrong.
    #[test]
    fn what_was_recorded_in_part_is_not_matched_wrong(
        framing in framings(), seed: u64, in_flight in 1..8_usize, opened: bool,
        recorded in prop::sample::select(vec![100, 600, usize::MAX]), lost in 0.0..0.05_f64,
    ) {
        let world = Connection { in_flight, whole: true, opened, recorded, ..connection(seed) };
        let (mut events, truth) = world.run(&exchanges(framing, seed, 40));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        events.retain(|event| {
            !matches!(event.kind, EventKind::SegmentOut { .. }) || rng.random::<f64>() >= lost
        });
        let kept = redacted(&events, framing, 1..400, seed);
        let of_all = match_events(events.iter().copied(), &options(framing));
        if none_wrong(&of_all, &truth).is_ok() {
            none_wrong(&match_events(kept, &options(framing)), &truth)?;
        }
    }

    /// Content with bytes that no protocol has does not reach the recording, whatever is lost on the way.
    #[test]
    fn no_content_is_kept(framing in framings(), seed: u64, lost in 0.0..0.5_f64) {
        const SECRET: &[u8] = b"~q9#zj7~";
        let with_secret = |message: &[u8]| -> Vec<u8> {
            let text = String::from_utf8_lossy(message);
            match framing {
                Framing::Http1 => text.replace("Host: a", "Cookie: ~q9#zj7~").into_bytes(),
                Framing::Memcached => text.replace("key", "~q9#zj7~").into_bytes(),
                Framing::Resp => text.replace("$1\r\nk", "$9\r\n~q9#zj7~").into_bytes(),
                Framing::OneInTurn | Framing::FixedLength { .. } => message.to_vec(),
            }
        };
        let binary = |exchange: &Exchange| exchange.0.first() == Some(&0x80);
        let with_secrets = exchanges(framing, seed, 40).into_iter().filter(|exchange| !binary(exchange));
        let with_secrets: Vec<Exchange> = with_secrets
            .map(|(request, response)| {
                let body = [SECRET; 5].concat();
                let post = match framing {
                    Framing::Http1 => b"PUT /~q9#zj7~ HTTP/1.1\r\nContent-Length: 45\r\n\r\n".to_vec(),
                    Framing::Memcached => b"set ~q9#zj7~ 0 0 43\r\n".to_vec(),
                    Framing::Resp => b"*2\r\n$3\r\nGET\r\n$43\r\n".to_vec(),
                    Framing::OneInTurn | Framing::FixedLength { .. } => Vec::new(),
                };
                let request = [with_secret(&request), post, body].concat();
                (request, with_secret(&response))
            })
            .collect();
        let world = Connection { in_flight: 4, ..connection(seed) };
        let (mut events, _) = world.run(&with_secrets);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        events.retain(|_| rng.random::<f64>() >= lost);
        let kept = content(&redacted(&events, framing, 1..50, seed));
        let found = kept.windows(3).find(|kept| SECRET.windows(3).any(|secret| secret == *kept));
        prop_assert_eq!(found, None);
    }
}

/// The response to HEAD says how long its body would be.
#[test]
fn a_response_without_its_body_is_followed() {
    let exchange: Exchange = (
        b"HEAD /y HTTP/1.1\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n".to_vec(),
    );
    let other: Exchange = (
        b"GET /y HTTP/1.1\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc".to_vec(),
    );
    let exchanges = [exchange.clone(), other.clone(), exchange, other];
    let world = Connection {
        in_flight: 1,
        whole: true,
        ..connection(5)
    };
    let (events, truth) = world.run(&exchanges);
    let kept = redacted(&events, Framing::Http1, 1..9, 5);
    let matched = match_events(kept, &options(Framing::Http1));
    assert_eq!(matched.requests.len(), truth.len());
    assert_eq!(matched.ambiguous.len(), 0);
}

/// What is kept of a conversation, however its events come, does not contain any of these.
fn nothing_is_kept(framing: Framing, talk: &Talk, secrets: &[&[u8]]) {
    for parts in [1..2, 1..9, 1_000..1_001] {
        let kept = content(&redacted(&talk.events, framing, parts.clone(), 7));
        for secret in secrets {
            let found = kept.windows(secret.len()).any(|window| window == *secret);
            let text = String::from_utf8_lossy(&kept);
            assert!(!found, "{text:?} in parts of {parts:?}");
        }
    }
}

/// Nothing says where such a body ends, and it may look like anything.
#[test]
fn a_body_that_ends_with_the_connection_is_not_kept() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"GET / HTTP/1.1\r\n\r\n");
    talk.answers(b"HTTP/1.0 200 OK\r\nServer: z\r\n\r\n4711 0815\r\n");
    talk.answers(b"account 4711 0815\r\n4711 0815\r\n");
    talk.answers(b"HTTP/1.1 4711 0815\r\n4711 0815\r\n");
    talk.answers(b"4711: 4711\r\nContent-Length: 4711\r\n");
    nothing_is_kept(Framing::Http1, &talk, &[b"4711", b"0815"]);
}

/// Nor what a client sends after a request that is none.
#[test]
fn another_protocol_is_not_kept() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"CONNECT a:1 HTTP/1.1\r\n\r\n");
    talk.asks(b"GET of 4711 HTTP/1.4711\r\n4711\r\n");
    talk.asks(b"GETTING HTTP/1.1\r\n4711\r\n");
    nothing_is_kept(Framing::Http1, &talk, &[b"4711", b"GET of", b"TTING"]);
}

#[test]
fn bytes_that_look_like_a_binary_header_are_not_kept() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"\x80secrets,secrets,secrets,secrets,secrets");
    talk.asks(b"\x80\x01\x00\x01\x00secrets,secrets,secrets,secrets");
    talk.answers(b"\x81secrets,secrets,secrets,secrets,secrets");
    talk.answers(b"\x81\x01\x00\x01\x00secrets,secrets,secrets,secrets");
    nothing_is_kept(Framing::Memcached, &talk, &[b"ec", b"cr", b"ts", b",s"]);
}

/// Parts of a value, after its beginning was not seen.
#[test]
fn lines_that_look_like_elements_are_not_kept() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"no request\0, 4711\r\n?\r\n");
    talk.asks(b"*4711\r\n$0815\r\nand so on");
    talk.answers(b"no response");
    talk.answers(b"\r\n$4711\r\n*0815\r\n");
    talk.answers(b"$4711\r\ncosts 0815\r\n");
    talk.answers(b"*4711\r\n=0815\r\n");
    nothing_is_kept(Framing::Resp, &talk, &[b"4711", b"0815"]);
}

/// A client whose packets come in on another CPU from some time on: the first ones there may be read before the
/// last ones here.
#[test]
fn packets_of_two_cpus_are_kept() {
    let mut talk = Talk::opened(40_000);
    let mut begins = Vec::new();
    for _ in 0..40 {
        begins.push(talk.events.len());
        talk.asks(b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n");
        talk.answers(b":4711\r\n");
    }
    for event in &mut talk.events[begins[20]..] {
        let of_client = matches!(
            event.kind,
            EventKind::SegmentIn { .. }
                | EventKind::Payload {
                    response: false,
                    ..
                }
        );
        event.cpu = if of_client { 0 } else { event.cpu };
    }
    let mut redaction = Redaction::new(Framing::Resp).unwrap();
    let mut kept = Vec::new();
    // each time CPU 0 first
    for part in [
        0..begins[18],
        begins[18]..begins[22],
        begins[22]..talk.events.len(),
    ] {
        for cpu in 0..2 {
            let part = &talk.events[part.clone()];
            let own = part.iter().filter(|event| event.cpu == cpu);
            let mut packed: Vec<PackedEvent> = own
                .map(|event| PackedEvent::new(event.at.saturating_since(BASE), event.kind))
                .collect();
            redaction.redact(cpu, &mut packed);
            kept.extend(packed.into_iter().map(|event| event.on_cpu(BASE, cpu)));
        }
    }
    kept.sort_by_key(|event| event.at);
    let text = content(&kept);
    assert_eq!(text.windows(2).filter(|two| *two == b"*2").count(), 40);
    assert!(!text.windows(4).any(|four| four == b"4711"));
    let found = match_events(kept, &options(Framing::Resp));
    assert_eq!(found.requests.len(), 40);
}

#[test]
fn what_is_kept_can_be_read() {
    let keep = |framing, direction, text: &str| {
        let kept = blanked(framing, direction, text.as_bytes(), |left| left);
        String::from_utf8(kept).unwrap()
    };
    let head = "GET /cart?id=77 HTTP/1.1\r\nCookie: a=1\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(
        keep(Framing::Http1, Direction::Requests, head),
        "GET xxxxxxxxxxx HTTP/1.x\r\nCoxxxx:xxxx\r\nContent-Length: 2\r\n\r\nxx"
    );
    assert_eq!(
        keep(
            Framing::Memcached,
            Direction::Requests,
            "set user:7 0 60 5\r\nhello\r\n"
        ),
        "set xxxxxx x xx 5\r\nxxxxxxx"
    );
    assert_eq!(
        keep(
            Framing::Memcached,
            Direction::Responses,
            "VALUE user:7 0 2\r\nhi\r\nEND\r\n1742\r\n"
        ),
        "VALUE xxxxxx x 2\r\nxx\r\nEND\r\n0000\r\n"
    );
    assert_eq!(
        keep(
            Framing::Resp,
            Direction::Requests,
            "*2\r\n$3\r\nGET\r\n$4\r\nuser\r\n"
        ),
        "*2\r\n$3\r\nGET\r\n$4\r\nxxxxxx"
    );
    // of what is no command, as much as commands begin with, and it does not become one
    assert_eq!(
        keep(
            Framing::Resp,
            Direction::Requests,
            "*2\r\n$6\r\nSETECR\r\n$4\r\nuser\r\nSETEC a\r\n"
        ),
        "*2\r\n$6\r\nSETE?x\r\n$4\r\nxxxxxxSETE? x\r\n"
    );
}

/// Recordings of real servers with content give the same requests after redaction.
#[test]
fn recorded_streams_are_matched_as_before() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "tlc") {
            continue;
        }
        let recording = Recording::read(std::fs::File::open(&path).unwrap()).unwrap();
        let Some(framing) = &recording.context.framing else {
            continue;
        };
        let framing: Framing = framing.parse().unwrap();
        let base = recording.base;
        let events: Vec<Event> = recording.into_events().collect();
        let mut redaction = Redaction::new(framing).unwrap();
        let kept = events.iter().map(|event| {
            let packed = PackedEvent::new(event.at.saturating_since(base), event.kind);
            let mut one = [packed];
            redaction.redact(event.cpu, &mut one);
            one[0].on_cpu(base, event.cpu)
        });
        let kept: Vec<Event> = kept.collect();
        assert_ne!(content(&kept), content(&events), "{}", path.display());
        let matched = |events: Vec<Event>| format!("{:?}", match_events(events, &options(framing)));
        assert_eq!(matched(kept), matched(events), "{}", path.display());
        checked += 1;
    }
    assert!(checked >= 4, "{checked} recordings with content");
}
