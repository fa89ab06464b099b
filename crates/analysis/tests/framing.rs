//! Requests and responses separated by their content.

use crate::common;

use std::collections::{HashMap, HashSet};

use crate::redaction::redacted;
use common::exchanges::{Connection, Exchange, Truth};
use common::talk::Talk;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::commands::Command;
use taillab_analysis::matcher::framing::{Direction, Lost, Message, Parser};
use taillab_analysis::{Framing, MatchOptions, Matched, match_events, match_recording};
use taillab_model::{Event, EventKind, Monotonic, Nanos, Recording};

pub(crate) fn options(framing: Framing) -> MatchOptions {
    MatchOptions {
        disorder: Nanos::ZERO,
        framing,
        ..MatchOptions::for_streams(Nanos::from_secs(100), false)
    }
}

fn fixed(request: u32, response: u32) -> Framing {
    format!("fixed:{request}:{response}").parse().unwrap()
}

fn all_framings() -> Vec<Framing> {
    let by_content = Framing::names();
    let by_content = by_content.split(", ").map(|name| name.parse().unwrap());
    by_content.chain([fixed(24, 700)]).collect()
}

pub(crate) fn framings() -> impl Strategy<Value = Framing> {
    prop::sample::select(all_framings())
}

/// Bytes that would mislead a parser that looks into bodies.
fn body(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let tricks: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"END\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ];
    let mut body = tricks[rng.random_range(0..5_usize)].to_vec();
    body.resize(rng.random_range(0..900), b'x');
    body
}

fn exchange(framing: Framing, rng: &mut Xoshiro256PlusPlus) -> Exchange {
    let content = body(rng);
    let join = |parts: &[&[u8]]| parts.concat();
    let n = content.len();
    let kind = rng.random_range(0..6);
    match framing {
        Framing::Http1 => {
            let post = format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n");
            let request = match kind {
                0 => join(&[post.as_bytes(), &content]),
                1 => b"HEAD /y HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
                _ => b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            };
            let head = format!("HTTP/1.1 200 OK\r\nServer: z\r\ncontent-length: {n}\r\n\r\n");
            let chunks =
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{n:x};a=b\r\n");
            let response = match kind {
                1 => head.into_bytes(),
                2 if n > 0 => join(&[chunks.as_bytes(), &content, b"\r\n0\r\nTrailer: 1\r\n\r\n"]),
                3 => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n".to_vec(),
                4 => join(&[b"HTTP/1.1 100 Continue\r\n\r\n", head.as_bytes(), &content]),
                _ => join(&[head.as_bytes(), &content]),
            };
            (request, response)
        }
        Framing::Memcached => {
            let set = format!("set key 0 0 {n}\r\n");
            let value = format!("VALUE key 0 {n}\r\n");
            let opaque: u32 = rng.random();
            let binary = |magic: u8, body: &[u8]| {
                let mut header = [0_u8; 24];
                (header[0], header[1]) = (magic, 0x01);
                header[8..12].copy_from_slice(&(body.len() as u32).to_be_bytes());
                header[12..16].copy_from_slice(&opaque.to_be_bytes());
                [header.as_slice(), body].concat()
            };
            match kind {
                0 => (
                    join(&[set.as_bytes(), &content, b"\r\n"]),
                    b"STORED\r\n".to_vec(),
                ),
                1 => (b"get a b\r\n".to_vec(), b"END\r\n".to_vec()),
                2 => (
                    b"gets key\r\n".to_vec(),
                    join(&[
                        value.as_bytes(),
                        &content,
                        b"\r\n",
                        value.as_bytes(),
                        &content,
                        b"\r\nEND\r\n",
                    ]),
                ),
                3 => (
                    b"mg key v\r\n".to_vec(),
                    join(&[format!("VA {n} f1\r\n").as_bytes(), &content, b"\r\n"]),
                ),
                4 => (b"incr n 1\r\n".to_vec(), b"42\r\n".to_vec()),
                _ => (binary(0x80, &content), binary(0x81, b"")),
            }
        }
        Framing::Resp => {
            let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${n}\r\n");
            match kind {
                0 => (
                    join(&[set.as_bytes(), &content, b"\r\n"]),
                    b"+OK\r\n".to_vec(),
                ),
                1 => (b"*1\r\n$4\r\nPING\r\n".to_vec(), b"+PONG\r\n".to_vec()),
                2 => (b"PING\r\n".to_vec(), b"$-1\r\n".to_vec()),
                3 => (
                    b"*2\r\n$5\r\nHGETA\r\n$1\r\nk\r\n".to_vec(),
                    join(&[
                        b"*2\r\n*1\r\n:1\r\n",
                        format!("${n}\r\n").as_bytes(),
                        &content,
                        b"\r\n",
                    ]),
                ),
                4 => (
                    b"*1\r\n$4\r\nINFO\r\n".to_vec(),
                    join(&[
                        b">2\r\n+a\r\n:1\r\n%1\r\n+k\r\n",
                        format!("={n}\r\n").as_bytes(),
                        &content,
                        b"\r\n",
                    ]),
                ),
                _ => (
                    b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec(),
                    join(&[format!("${n}\r\n").as_bytes(), &content, b"\r\n"]),
                ),
            }
        }
        Framing::FixedLength { request, response } => (
            vec![b'q'; request.get() as usize],
            vec![b'r'; response.get() as usize],
        ),
        Framing::OneInTurn => unreachable!(),
    }
}

pub(crate) fn exchanges(framing: Framing, seed: u64, count: usize) -> Vec<Exchange> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count).map(|_| exchange(framing, &mut rng)).collect()
}

pub(crate) fn connection(seed: u64) -> Connection {
    Connection {
        seed,
        in_flight: 8,
        recorded: usize::MAX,
        whole: false,
        opened: true,
        port: 40_000,
    }
}

fn matched(events: &[Event], framing: Framing) -> Matched {
    match_events(events.iter().copied(), &options(framing))
}

/// Every request is there with its own T1, T4 and T6.
fn all_right(matched: &Matched, truth: &[Truth]) -> Result<(), TestCaseError> {
    prop_assert_eq!(matched.unmatched.len(), 0);
    prop_assert_eq!(matched.ambiguous.len(), 0);
    prop_assert_eq!(matched.without_request.len(), 0);
    prop_assert_eq!(matched.requests.len(), truth.len());
    for (place, truth) in truth.iter().enumerate() {
        let stamps = matched.requests.stamps(place);
        prop_assert_eq!(
            (stamps.t1, stamps.t6),
            (truth.t1, truth.t6),
            "request {}",
            place
        );
        prop_assert_eq!(stamps.t4, Some(truth.t4), "request {}", place);
        prop_assert!(stamps.t2.is_some());
        // if the server reads again before its response has left, T5 is missing
        let t5 = stamps.t5;
        prop_assert!(t5.is_none_or(|t5| truth.t4 <= t5 && t5 <= truth.t6));
        prop_assert_eq!(matched.keys[place].id, truth.id);
        prop_assert_eq!(matched.workers[place], 9);
    }
    Ok(())
}

/// What is matched is right.
pub(crate) fn none_wrong(matched: &Matched, truth: &[Truth]) -> Result<(), TestCaseError> {
    let by_end: HashMap<(Monotonic, u16), &Truth> = truth
        .iter()
        .map(|truth| ((truth.t1, truth.id), truth))
        .collect();
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let truth = by_end.get(&(request.server.t1, key.id));
        prop_assert_eq!(
            truth.map(|truth| truth.t6),
            Some(request.server.t6),
            "a wrong match"
        );
    }
    Ok(())
}

/// How many matches are right.
fn right(matched: &Matched, truth: &[Truth]) -> usize {
    let all: HashSet<_> = truth
        .iter()
        .map(|truth| (truth.t1, truth.id, truth.t6))
        .collect();
    let found = matched.requests.iter().zip(&matched.keys);
    let found = found.map(|(request, key)| (request.server.t1, key.id, request.server.t6));
    found.filter(|found| all.contains(found)).count()
}

/// Of clients that pipeline or do not, with packets left out anywhere, in a blind window, and from the middle on: with
/// the content, no fewer requests are matched rightly than without it, as `--protocol auto` has them. A single
/// conversation may have one or two fewer: without the content, nothing shows that a packet was missed, and guesses are
/// right.
#[test]
fn content_is_no_worse_than_auto() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(45);
    for framing in all_framings() {
        for in_flight in 1..8 {
            let (mut by_content, mut by_turns) = (0, 0);
            for _ in 0..20 {
                let blind = rng.random_bool(0.5).then(|| {
                    let from = rng.random();
                    (from, rng.random_range(0.0..0.1))
                });
                let attached = rng.random_bool(0.5).then(|| rng.random_range(0.0..0.5));
                let (seed, share) = (rng.random(), rng.random_range(0.0..0.1));
                let (seen, truth) = partly_seen(framing, seed, in_flight, share, blind, attached);
                let content = right(&matched(&seen, framing), &truth);
                let turns = right(&matched(&seen, Framing::OneInTurn), &truth);
                assert!(
                    content + 2 >= turns,
                    "{framing}, {in_flight} under way, seed {seed}: {content} < {turns}"
                );
                by_content += content;
                by_turns += turns;
            }
            assert!(
                by_content >= by_turns,
                "{framing}, {in_flight} under way: {by_content} < {by_turns}"
            );
        }
    }
}

/// What is seen of a conversation, with its truth.
fn partly_seen(
    framing: Framing,
    seed: u64,
    in_flight: usize,
    share: f64,
    blind: Option<(f64, f64)>,
    attached: Option<f64>,
) -> (Vec<Event>, Vec<Truth>) {
    let world = Connection {
        in_flight,
        whole: true,
        ..connection(seed)
    };
    let (events, truth) = world.run(&exchanges(framing, seed, 150));
    let seen = seen_between(&events, seed, share, blind.as_slice(), attached);
    (seen, truth)
}

/// The events that are not `hidden`, by their number. Of a packet, no content comes without it, and none after a piece that
/// is hidden.
fn outside(events: &[Event], hidden: impl Fn(usize) -> bool) -> Vec<Event> {
    let mut cut = true;
    let seen = events.iter().enumerate().filter(|(number, event)| {
        let is_content = matches!(event.kind, EventKind::Payload { .. });
        if hidden(*number) {
            cut |= is_content || is_packet(&event.kind);
            return false;
        }
        cut &= !is_packet(&event.kind);
        !(cut && is_content)
    });
    seen.map(|(_, event)| *event).collect()
}

/// Blind windows: where each begins, and how long it is, as shares of all events.
fn windows() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((0.0..1.0_f64, 0.0..0.02_f64), 0..8)
}

/// What is seen of a conversation outside these windows, from `attached` on, if this share of the packets is lost, too.
fn seen_between(
    events: &[Event],
    seed: u64,
    share: f64,
    windows: &[(f64, f64)],
    attached: Option<f64>,
) -> Vec<Event> {
    let place = |share: f64| (events.len() as f64 * share) as usize;
    let begin = place(attached.unwrap_or(0.0));
    let gaps = windows
        .iter()
        .map(|(from, length)| place(*from)..place(from + length));
    let gaps: Vec<_> = gaps.collect();
    let seen = outside(events, |n| {
        n < begin || gaps.iter().any(|gap| gap.contains(&n))
    });
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    without_packets(&seen, |_| rng.random::<f64>() < share)
}

/// For sixteen requests in a row, this client looks as if it waited for each response.
#[test]
fn a_client_that_was_seen_to_pipeline_takes_no_turns() {
    let seed = 16_262_841_021_199_981_728;
    let exchanges = exchanges(Framing::Resp, seed, 60);
    let world = Connection {
        in_flight: 2,
        whole: true,
        recorded: 100,
        ..connection(seed)
    };
    let (events, truth) = world.run(&exchanges);
    none_wrong(&matched(&events, Framing::Resp), &truth).unwrap();
}

/// A packet of which nothing was recorded is one request where the client waits for each response, and several where it
/// does not; the next ones were missed. It is not known what the first response after that answers.
#[test]
fn after_a_packet_without_content_and_a_hole_the_next_request_is_no_turn() {
    let blind = Some((0.903_833_018_007_109_8, 0.050_041_421_936_634_536));
    let seed = 6_819_069_364_456_643_660;
    let (seen, truth) = partly_seen(Framing::Resp, seed, 3, 0.0, blind, None);
    none_wrong(&matched(&seen, Framing::Resp), &truth).unwrap();
}

/// The first packet of a connection has two requests, and its content was lost: nothing shows that they are two.
#[test]
fn a_packet_without_content_need_not_be_one_request() {
    let seed = 198_121_795_341_666_398;
    let world = Connection {
        in_flight: 2,
        whole: true,
        ..connection(seed)
    };
    let (events, truth) = world.run(&exchanges(Framing::Resp, seed, 80));
    let first = events
        .iter()
        .position(|event| matches!(event.kind, EventKind::SegmentQueued { .. }));
    let lost = 2..first.expect("data was queued");
    assert!(!lost.is_empty());
    let seen = outside(&events, |n| lost.contains(&n));
    none_wrong(&matched(&seen, Framing::Resp), &truth).unwrap();
}

/// A client that does not wait: after a hole, only one request is left, and the server goes on to send its response while
/// the next one comes.
#[test]
fn a_client_that_pipelines_takes_no_turns_after_a_hole_either() {
    let seed = 12_470_773_578_359_174_811;
    let world = Connection {
        in_flight: 2,
        ..connection(seed)
    };
    let (events, truth) = world.run(&exchanges(Framing::Resp, seed, 80));
    let blind = (0.035_790_967_985_005_99, 0.010_688_982_047_384_513);
    let share = 0.027_488_447_387_468_837;
    let seen = seen_between(&events, seed, share, &[blind], None);
    none_wrong(&matched(&seen, Framing::Resp), &truth).unwrap();
}

/// The packet with the first byte of a null was lost: what is left of the null looks like an error.
#[test]
fn no_response_fits_into_a_hole_of_one_byte() {
    let get = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let mut talk = Talk::opened(40_000);
    for _ in 0..3 {
        talk.sends(get);
    }
    talk.reads();
    let seen = talk.events.len();
    talk.answers(b"$");
    talk.events.truncate(seen);
    talk.answers(b"-1\r\n$-1\r\n");
    let found = matched(&talk.events, Framing::Resp);
    assert_eq!(found.requests.len(), 0);
}

proptest! {
    #![proptest_config(common::cases(200))]

    /// Pipelined, in packets that end anywhere: every stamp is exact.
    #[test]
    fn pipelined_requests_are_told_apart(
        framing in framings(), seed: u64, in_flight in 1..12_usize, whole: bool,
    ) {
        let exchanges = exchanges(framing, seed, 60);
        let world = Connection { in_flight, whole, ..connection(seed) };
        let (events, truth) = world.run(&exchanges);
        all_right(&matched(&events, framing), &truth)?;
    }

    /// Fixed lengths need no content.
    #[test]
    fn fixed_lengths_need_no_content(seed: u64, request in 1..300_u32, response in 1..3_000_u32) {
        let framing = fixed(request, response);
        let world = Connection { recorded: 0, ..connection(seed) };
        let (events, truth) = world.run(&exchanges(framing, seed, 60));
        all_right(&matched(&events, framing), &truth)?;
    }

    /// Only the first bytes of each packet are recorded: with one message in a packet that
    /// is enough, and otherwise what is not known is not guessed.
    #[test]
    fn the_beginnings_of_packets_suffice(framing in framings(), seed: u64, in_flight in 1..8_usize) {
        let exchanges = exchanges(framing, seed, 60);
        let world = Connection { in_flight: 1, whole: true, recorded: 256, ..connection(seed) };
        let (events, truth) = world.run(&exchanges);
        all_right(&matched(&events, framing), &truth)?;
        let world = Connection { in_flight, whole: true, recorded: 100, ..connection(seed) };
        let (events, truth) = world.run(&exchanges);
        none_wrong(&matched(&events, framing), &truth)?;
    }

    /// Any packets lost, the first of both sides included: no match is wrong.
    #[test]
    fn with_loss_no_match_is_wrong(
        framing in framings(), seed: u64, share in 0.0..0.3_f64, in_flight in 1..8_usize,
    ) {
        let world = Connection { in_flight, whole: true, ..connection(seed) };
        let (events, truth) = world.run(&exchanges(framing, seed, 60));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut lost = false;
        let events: Vec<Event> = events.into_iter().filter(|event| {
            if !matches!(event.kind, EventKind::Payload { .. }) {
                lost = rng.random::<f64>() < share;
            }
            !lost
        }).collect();
        none_wrong(&matched(&events, framing), &truth)?;
    }

    /// Any packets lost, of a client that waits for each response: with the content, no fewer requests are
    /// matched than without it.
    #[test]
    fn with_loss_content_matches_no_fewer_than_turns(
        framing in framings(), seed: u64, share in 0.0..0.1_f64,
    ) {
        let world = Connection { in_flight: 1, whole: true, ..connection(seed) };
        let (events, truth) = world.run(&exchanges(framing, seed, 150));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let events = without_packets(&events, |_| rng.random::<f64>() < share);
        let by_content = matched(&events, framing);
        none_wrong(&by_content, &truth)?;
        let by_turns = matched(&events, Framing::OneInTurn).requests.len();
        prop_assert!(by_content.requests.len() >= by_turns, "{} < {by_turns}", by_content.requests.len());
    }

    /// Of a client that pipelines or does not, with packets left out anywhere, in a blind window, and from the middle
    /// on: no match is wrong, as they are without the content where nothing shows that a packet was missed.
    #[test]
    fn whatever_is_missed_no_match_by_content_is_wrong(
        framing in framings(), seed: u64, in_flight in 1..8_usize, share in 0.0..0.1_f64,
        blind in prop::option::of((0.0..1.0_f64, 0.0..0.1_f64)),
        attached in prop::option::of(0.0..0.5_f64),
    ) {
        let (seen, truth) = partly_seen(framing, seed, in_flight, share, blind, attached);
        none_wrong(&matched(&seen, framing), &truth)?;
    }

    /// The same with several windows, which may begin in the middle of a packet's content, and of packets whose beginning
    /// alone is recorded.
    #[test]
    fn however_often_the_probe_is_blind_no_match_by_content_is_wrong(
        framing in framings(), seed: u64, in_flight in 1..8_usize, share in 0.0..0.05_f64,
        windows in windows(), attached in prop::option::of(0.0..0.5_f64),
        recorded in prop::sample::select(vec![usize::MAX, 256, 100]),
    ) {
        let world = Connection { in_flight, whole: true, recorded, ..connection(seed) };
        let (events, truth) = world.run(&exchanges(framing, seed, 80));
        let seen = seen_between(&events, seed, share, &windows, attached);
        none_wrong(&matched(&seen, framing), &truth)?;
    }

    /// The same where many requests expect no response.
    #[test]
    fn however_often_the_probe_is_blind_no_request_is_answered_for_a_silent_one(
        seed: u64, in_flight in 3..8_usize, share in 0.0..0.05_f64, silent in 0.0..1.0_f64,
        windows in windows(), attached in prop::option::of(0.0..0.5_f64),
    ) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let mut all = exchanges(Framing::Memcached, seed, 80);
        for exchange in all.iter_mut().step_by(2).filter(|_| rng.random_bool(silent)) {
            *exchange = (b"set k 0 0 2 noreply\r\nab\r\n".to_vec(), Vec::new());
        }
        let world = Connection { in_flight, whole: true, ..connection(seed) };
        let (events, truth) = world.run(&all);
        let answered = truth.into_iter().zip(&all).filter(|(_, (_, response))| !response.is_empty());
        let answered: Vec<Truth> = answered.map(|(truth, _)| truth).collect();
        let seen = seen_between(&events, seed, share, &windows, attached);
        none_wrong(&matched(&seen, Framing::Memcached), &answered)?;
    }

    /// One packet lost costs its exchange, and not the connection.
    #[test]
    fn a_lost_packet_costs_one_exchange(framing in framings(), seed: u64, place in 0.0..0.5_f64) {
        let world = Connection { in_flight: 1, whole: true, ..connection(seed) };
        let (events, truth) = world.run(&exchanges(framing, seed, 100));
        let packets = events.iter().filter(|event| is_packet(&event.kind)).count();
        let lost = 1 + (packets as f64 * place) as usize;
        let events = without_packets(&events, |number| number == lost);
        let found = matched(&events, framing);
        none_wrong(&found, &truth)?;
        prop_assert_eq!(found.requests.len(), truth.len() - 1);
    }

    /// A recording that begins in mid-load, in some cases with pauses, after which a connection can
    /// be followed again: no match is wrong.
    #[test]
    fn from_the_middle_no_match_is_wrong(
        framing in framings(), seed: u64, place in 0.0..0.8_f64, in_flight in 1..8_usize,
        pauses in 0.0..0.2_f64, whole: bool,
    ) {
        let world = Connection { in_flight, whole, ..connection(seed) };
        let (mut events, mut truth) = world.run(&exchanges(framing, seed, 60));
        // a client does not pause in the middle of a request
        let pauses = if whole { pauses } else { 0.0 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        pause_at_random(&mut events, &mut truth, pauses, &mut rng);
        let begin = (events.len() as f64 * place) as usize;
        let packet = events[begin..].iter().position(|event| {
            !matches!(event.kind, EventKind::Payload { .. })
        });
        none_wrong(&matched(&events[begin + packet.unwrap_or(0)..], framing), &truth)?;
    }

    /// Content that is not the protocol's, or is damaged, is survived.
    #[test]
    fn any_content_is_survived(framing in framings(), seed: u64, share in 0.0..1.0_f64) {
        let (mut events, _) = connection(seed).run(&exchanges(framing, seed, 40));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        for event in &mut events {
            if let EventKind::Payload { bytes, len: 1.., .. } = &mut event.kind
                && rng.random::<f64>() < share
            {
                *bytes = rng.random();
            }
        }
        let matched = matched(&events, framing);
        let times = |is: fn(&EventKind) -> bool| -> HashSet<Monotonic> {
            events.iter().filter(|event| is(&event.kind)).map(|event| event.at).collect()
        };
        let came = times(|kind| matches!(kind, EventKind::SegmentIn { .. }));
        let left = times(|kind| matches!(kind, EventKind::SegmentOut { .. }));
        let mut ends = HashSet::new();
        for (request, key) in matched.requests.iter().zip(&matched.keys) {
            let (t1, t6) = (request.server.t1, request.server.t6);
            prop_assert!(t6 >= t1 && came.contains(&t1) && left.contains(&t6));
            prop_assert!(ends.insert((t1, key.id)), "{:?} ends there twice", key);
        }
    }

    /// A parser finds the same ends however its bytes are cut, and never panics.
    #[test]
    fn cuts_change_nothing(
        framing in framings(), responses: bool, bytes in prop::collection::vec(any::<u8>(), 0..600),
        seed: u64, real: bool,
    ) {
        let direction = if responses { Direction::Responses } else { Direction::Requests };
        let bytes = if real {
            let all = exchanges(framing, seed, 12);
            let side = all.iter().map(|(request, response)| if responses { response } else { request });
            side.flatten().copied().collect()
        } else {
            bytes
        };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let whole = ends(framing, direction, &bytes, |left| left);
        let cut = ends(framing, direction, &bytes, |left| rng.random_range(1..=left));
        prop_assert_eq!(whole, cut);
    }

    /// Nor does it panic when parts are left out.
    #[test]
    fn skips_are_survived(
        framing in framings(), responses: bool,
        steps in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..40)), 0..40),
    ) {
        let direction = if responses { Direction::Responses } else { Direction::Requests };
        let mut parser = Parser::new(framing, direction).unwrap();
        for (skip, bytes) in steps {
            let done = if skip {
                parser.skip(bytes.len() as u64).map(|(taken, _)| taken)
            } else {
                parser.feed(&bytes).map(|(taken, _)| taken as u64)
            };
            match done {
                Ok(taken) => prop_assert!(taken <= bytes.len() as u64),
                Err(Lost) => {
                    prop_assert_eq!(parser.feed(b"x"), Err(Lost), "lost until it is restarted");
                    parser.restart();
                }
            }
        }
    }
}

fn is_packet(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::SegmentIn { .. } | EventKind::SegmentOut { .. }
    )
}

/// The events without some packets, by their numbers, and their content.
pub(crate) fn without_packets(
    events: &[Event],
    mut loses: impl FnMut(usize) -> bool,
) -> Vec<Event> {
    let mut number = 0;
    let mut lost = false;
    let mut kept = Vec::new();
    for event in events {
        if is_packet(&event.kind) {
            lost = loses(number);
            number += 1;
        }
        let goes = is_packet(&event.kind) || matches!(event.kind, EventKind::Payload { .. });
        if !(lost && goes) {
            kept.push(*event);
        }
    }
    kept
}

/// Where messages end, and whether the parser was lost.
pub(crate) fn ends(
    framing: Framing,
    direction: Direction,
    bytes: &[u8],
    mut cut: impl FnMut(usize) -> usize,
) -> (Vec<(usize, Message)>, bool) {
    let mut parser = Parser::new(framing, direction).unwrap();
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let piece = cut(bytes.len() - at);
        match parser.feed(&bytes[at..at + piece]) {
            Err(Lost) => return (ends, true),
            Ok((taken, message)) => {
                at += taken;
                ends.extend(message.map(|message| (at, message)));
            }
        }
    }
    (ends, false)
}

fn ends_of(framing: Framing, direction: Direction, text: &str) -> (Vec<usize>, bool) {
    let (ends, lost) = ends(framing, direction, text.as_bytes(), |left| left);
    (ends.into_iter().map(|(at, _)| at).collect(), lost)
}

#[test]
fn what_has_no_known_end_is_said() {
    let request = |framing, text| ends_of(framing, Direction::Requests, text);
    let response = |framing, text| ends_of(framing, Direction::Responses, text);
    assert_eq!(
        request(Framing::Http1, "GET / HTTP/1.1\r\n\r\n"),
        (vec![18], false)
    );
    assert_eq!(
        request(Framing::Http1, "CONNECT a:1 HTTP/1.1\r\n\r\n"),
        (vec![], true)
    );
    assert_eq!(
        request(Framing::Http1, "\u{16}\u{3}\u{1}\n"),
        (vec![], true)
    );
    // until the connection is closed
    assert_eq!(
        response(Framing::Http1, "HTTP/1.0 200 OK\r\n\r\nx"),
        (vec![], true)
    );
    assert_eq!(
        response(Framing::Http1, "HTTP/1.1 101 Upgrade\r\n\r\n"),
        (vec![], true)
    );
    let two = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(response(Framing::Http1, two), (vec![], true));
    assert_eq!(request(Framing::Memcached, "mg key q\r\n"), (vec![], true));
    assert_eq!(
        request(Framing::Memcached, "watch mutations\r\n"),
        (vec![], true)
    );
    assert_eq!(
        request(Framing::Resp, "*2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n"),
        (vec![], true)
    );
    assert_eq!(
        response(Framing::Memcached, "18446744073709551615\r\n"),
        (vec![22], false)
    );
    assert_eq!(response(Framing::Resp, "*?\r\n"), (vec![], true));
    assert_eq!(
        response(Framing::Resp, "*0\r\n*-1\r\n"),
        (vec![4, 9], false)
    );
}

/// By a name that the protocol has, in whichever letters, and by no other; what is recorded says the same.
#[test]
fn what_a_request_asks_for_is_known_by_its_name() {
    let binary = [&[0x80, 0x0c][..], &[0; 22]].concat();
    let answer = [&[0x81, 0x0c][..], &[0; 22]].concat();
    let get = (&b"*2\r\n$3\r\nget\r\n$1\r\nk\r\n"[..], &b"$-1\r\n"[..]);
    let cases = [
        (Framing::Resp, get, Some("GET")),
        (
            Framing::Resp,
            (b"*2\r\n$7\r\nEVALSHA\r\n$1\r\nk\r\n", b":1\r\n"),
            Some("EVALSHA"),
        ),
        (
            Framing::Resp,
            (b"*2\r\n$5\r\nSETEy\r\n$1\r\nk\r\n", b":1\r\n"),
            None,
        ),
        (Framing::Resp, (b"PING\r\n", b"+PONG\r\n"), Some("PING")),
        (
            Framing::Memcached,
            (b"gets key\r\n", b"END\r\n"),
            Some("gets"),
        ),
        (Framing::Memcached, (&binary, &answer), Some("get")),
        (
            Framing::Http1,
            (b"HEAD /cart HTTP/1.1\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"),
            Some("HEAD"),
        ),
        (fixed(3, 2), (b"GET", b"ok"), None),
    ];
    for (framing, (request, response), name) in cases {
        let mut talk = Talk::opened(40_000);
        for _ in 0..3 {
            talk.asks(request);
            talk.answers(response);
        }
        for events in [redacted(&talk.events, framing, 1..9, 7), talk.events] {
            let found = matched(&events, framing);
            let names = (0..found.requests.len()).map(|place| found.requests.command(place));
            let names: Vec<Option<&str>> = names.map(|one| one.map(Command::name)).collect();
            assert_eq!(names, [name; 3], "{framing}");
        }
    }
}

#[test]
fn what_has_no_response_is_said() {
    let (ends, _) = ends(
        Framing::Memcached,
        Direction::Requests,
        b"set k 0 0 2 noreply\r\nab\r\nget k\r\n",
        |left| left,
    );
    assert_eq!(
        ends.iter()
            .map(|(at, m)| (*at, m.silent))
            .collect::<Vec<_>>(),
        [(25, true), (32, false)]
    );
}

/// They are no requests that the server failed to answer.
#[test]
fn what_has_no_response_is_not_in_the_result() {
    let set = (b"set k 0 0 2 noreply\r\nab\r\n".to_vec(), Vec::new());
    let get = (b"get k\r\n".to_vec(), b"END\r\n".to_vec());
    let exchanges: Vec<Exchange> = [set, get].into_iter().cycle().take(60).collect();
    let world = Connection {
        in_flight: 6,
        whole: true,
        ..connection(5)
    };
    let (events, truth) = world.run(&exchanges);
    let gets: Vec<Truth> = truth.into_iter().skip(1).step_by(2).collect();
    let found = matched(&events, Framing::Memcached);
    all_right(&found, &gets).unwrap();
    assert_eq!(found.silent, 30);
}

/// However many they are.
#[test]
fn messages_of_one_length_are_skipped_at_once() {
    let mut parser = Parser::new(fixed(3, 3), Direction::Requests).unwrap();
    assert_eq!(parser.skip_over(u64::MAX - 2), Ok(()));
    assert!(!parser.is_at_start());
    assert_eq!(parser.skip_over(2), Ok(()));
    assert!(parser.is_at_start());
}

#[test]
fn a_framing_is_read_as_it_is_written() {
    for text in ["one-in-turn", "http", "memcached", "resp", "fixed:3:70"] {
        assert_eq!(text.parse::<Framing>().unwrap().to_string(), text);
    }
    assert_eq!("fixed:8".parse::<Framing>().unwrap(), fixed(8, 8));
    for text in ["", "fixed:", "fixed:0", "fixed:1:0", "HTTP"] {
        assert!(text.parse::<Framing>().is_err(), "{text}");
    }
}

/// Recordings in which a few events were missed, of a client that asks each 4 ms: it was not matched again
/// until the end.
#[test]
fn a_missed_event_does_not_cost_the_connection() {
    for name in [
        "redis-resync-1.tlc",
        "redis-resync-2.tlc",
        "redis-resync-3.tlc",
    ] {
        let path = format!("{}/tests/cases/{name}", env!("CARGO_MANIFEST_DIR"));
        let recording = Recording::read(std::fs::File::open(path).unwrap()).unwrap();
        let found = match_recording(&recording).unwrap();
        let all = found.requests.len() + found.unmatched.len();
        assert!(all > 300, "{name}: {all}");
        assert!(
            found.requests.len() * 100 >= all * 95,
            "{name}: {} of {all}",
            found.requests.len()
        );
    }
}

/// Clients that pipeline and never pause: requests five at a time, which the server reads and answers together.
/// After a packet was missed, the connection is followed again once counting shows that nothing is owed.
#[test]
fn a_busy_connection_is_followed_again() {
    let events = five_at_a_time();
    // packet 0 begins the connection; a request and its response have two numbers in a row
    for lost in [21, 22] {
        let events = without_packets(&events, |number| number == lost);
        let requests = answered_at_once(&events);
        assert!(
            (400..500).contains(&requests),
            "{requests} without packet {lost}"
        );
    }
}

/// The same where the probe is attached after the tenth of a hundred exchanges, or within the eleventh.
#[test]
fn a_busy_connection_that_was_joined_is_followed() {
    let events = five_at_a_time();
    let packets = (0..events.len()).filter(|n| is_packet(&events[*n].kind));
    let begins: Vec<usize> = packets.skip(1).step_by(2).collect();
    assert_eq!(begins.len(), 100);
    for attached in begins[10]..begins[11] {
        let seen = outside(&events, |n| n < attached);
        let requests = answered_at_once(&seen);
        assert!(
            (300..450).contains(&requests),
            "{requests} from event {attached} on, of {begins:?}"
        );
    }
}

/// What a client does that sends five requests at a time, a hundred times, and waits for the five responses.
fn five_at_a_time() -> Vec<Event> {
    let mut talk = Talk::opened(40_000);
    for _ in 0..100 {
        talk.asks(&b"PING\r\n".repeat(5));
        talk.answers(&b"+PONG\r\n".repeat(5));
    }
    talk.events
}

/// How many requests are matched, of a client whose requests wait for nothing but their own response.
fn answered_at_once(events: &[Event]) -> usize {
    let found = matched(events, Framing::Resp);
    let requests = found.requests.len();
    let sojourns = (0..requests).map(|place| found.requests.sojourn(place));
    assert!(sojourns.max() < Some(Nanos::from_micros(10)));
    requests
}

/// A request's stamp has 16 bits of its place in the stream, which are those of the next byte again after 64 KiB. Of the
/// responses that follow, the first is to a request that was not seen.
#[test]
fn requests_after_a_hole_of_64_kib_are_not_taken_for_the_next() {
    const HOLE: usize = 1 << 16;
    let (request, response) = (b"GET ab\r\n", b"+OK\r\n");
    let mut talk = Talk::opened(40_000);
    talk.asks(request);
    talk.answers(response);
    talk.misses(HOLE as u32);
    talk.asks(request);
    for _ in 0..=HOLE / request.len() {
        talk.answers(response);
    }
    let found = matched(&talk.events, Framing::Resp);
    assert_eq!(
        found.requests.len(),
        1,
        "the first exchange alone is certain"
    );
}

/// After a loss, the connection is followed again once it has been idle.
#[test]
fn an_idle_moment_makes_up_for_a_loss() {
    let world = Connection {
        in_flight: 1,
        whole: true,
        ..connection(3)
    };
    let (mut events, truth) = world.run(&exchanges(fixed(40, 60), 3, 40));
    let pause = truth[20].t1;
    for event in &mut events {
        if event.at >= pause {
            event.at = event.at + Nanos::from_millis(60);
        }
    }
    // one request of the first twenty is not seen to come in
    events.retain(|event| event.at != truth[10].t1);
    let matched = matched(&events, fixed(40, 60));
    let t6: Vec<Monotonic> = matched
        .requests
        .iter()
        .map(|request| request.server.t6)
        .collect();
    let late = truth[20..]
        .iter()
        .map(|truth| truth.t6 + Nanos::from_millis(60));
    let expected: Vec<Monotonic> = truth[..10]
        .iter()
        .map(|truth| truth.t6)
        .chain(late)
        .collect();
    assert_eq!(
        t6.iter().filter(|t6| expected.contains(t6)).count(),
        expected.len()
    );
    none_wrong(&matched, &shifted(&truth, pause)).unwrap();
}

/// Lets 60 ms pass before some of the requests that come in when nothing is under way.
fn pause_at_random(
    events: &mut [Event],
    truth: &mut [Truth],
    share: f64,
    rng: &mut Xoshiro256PlusPlus,
) {
    for n in 1..truth.len() {
        let idle = truth[n - 1].t6 < truth[n].t1;
        if idle && rng.random::<f64>() < share {
            let pause = events.partition_point(|event| event.at <= truth[n - 1].t6);
            let pause = events[pause].at;
            for event in events.iter_mut().filter(|event| event.at >= pause) {
                event.at = event.at + Nanos::from_millis(60);
            }
            let later = shifted(truth, pause);
            truth.copy_from_slice(&later);
        }
    }
}

/// The truth if everything from `pause` on comes 60 ms later.
fn shifted(truth: &[Truth], pause: Monotonic) -> Vec<Truth> {
    let later = |at: Monotonic| {
        if at >= pause {
            at + Nanos::from_millis(60)
        } else {
            at
        }
    };
    let moved = |truth: &Truth| Truth {
        t1: later(truth.t1),
        t6: later(truth.t6),
        ..*truth
    };
    truth.iter().map(moved).collect()
}
