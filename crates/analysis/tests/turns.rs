//! Requests that come in several segments, and responses in several writes, without a framing.

use crate::common;
use crate::common::connections::{Connections, Style, Writes};
use crate::common::talk::Talk;

use std::collections::HashMap;
use std::fs::File;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::{MatchOptions, Matched, match_events, match_recording};
use taillab_model::{Event, Monotonic, Nanos, Recording, Stamps};

/// So many turns in parts show that the clients send so, and none before them is matched.
const TURNS_TO_SHOW: usize = 32;

fn matched(events: &[Event], sequential: bool) -> Matched {
    let options = MatchOptions {
        disorder: Nanos::ZERO,
        ..MatchOptions::for_streams(Nanos::from_secs(1), sequential)
    };
    match_events(events.iter().copied(), &options)
}

/// How a client sends its requests, and how a server answers them.
#[derive(Clone, Copy, Debug)]
struct Posts {
    seed: u64,
    count: usize,
    /// The share of requests whose head the server reads before the body comes in; otherwise it reads both at once.
    read_apart: f64,
    /// The share of requests without a body.
    gets: f64,
    /// The writes of a response.
    writes: usize,
    /// Each request has a connection of its own.
    reconnects: bool,
    sequential: bool,
}

fn posts() -> impl Strategy<Value = Posts> {
    let shares = (0.0..1.0_f64, 0.0..0.5_f64);
    let rest = (1..3_usize, any::<bool>(), any::<bool>());
    (any::<u64>(), 300..600_usize, shares, rest).prop_map(
        |(seed, count, (read_apart, gets), (writes, reconnects, sequential))| Posts {
            seed,
            count,
            read_apart,
            gets,
            writes,
            reconnects,
            sequential,
        },
    )
}

/// T1, T4, T5 and T6 of a request, and whether it came in two segments.
type Truth = ([Monotonic; 3], bool);

impl Posts {
    fn run(self, mut talk: Talk) -> (Vec<Event>, Vec<Truth>) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut truth = Vec::new();
        for n in 0..self.count {
            if self.reconnects && n > 0 {
                talk = talk.reconnected(40_000 + n as u16);
            }
            let in_parts = !rng.random_bool(self.gets);
            if in_parts {
                talk.sends(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n");
                if rng.random_bool(self.read_apart) {
                    talk.reads();
                }
            }
            let t1 = talk.sends(b"body");
            let t4 = talk.reads();
            let mut t6 = t4;
            for _ in 0..self.writes {
                t6 = talk.answers(b"HTTP/1.1 200 OK\r\n");
            }
            truth.push(([t1, t4, t6], in_parts));
        }
        (talk.events, truth)
    }
}

fn known(stamps: Stamps) -> [Monotonic; 3] {
    let [_, _, t4, _] = stamps.middle();
    [stamps.t1, t4.unwrap_or(stamps.t1), stamps.t6]
}

proptest! {
    #![proptest_config(common::cases(200))]

    /// Of a head and a body that come apart, none is counted as a request of its own: T1 is the body's.
    #[test]
    fn a_request_in_two_segments_is_one(posts in posts(), joins: bool) {
        let talk = match joins {
            true => Talk::joined(40_000),
            false => Talk::opened(40_000),
        };
        let (events, truth) = posts.run(talk);
        let found = matched(&events, posts.sequential);
        let by_t1: HashMap<Monotonic, [Monotonic; 3]> =
            truth.iter().map(|(times, _)| (times[0], *times)).collect();
        // until it is known that the client sends in parts
        let mut parts = 0;
        let shown = truth.iter().position(|(_, in_parts)| {
            parts += usize::from(*in_parts);
            let apart = parts as f64 * posts.read_apart;
            let at_once = match posts.sequential {
                true => 0.0,
                false => parts as f64 - apart,
            };
            apart.max(at_once) > 2.0 * TURNS_TO_SHOW as f64
        });
        if let Some((since, _)) = shown.map(|shown| truth[shown]) {
            let later = truth.iter().filter(|(times, _)| times[0] >= since[0]).count();
            let found_later = found.requests.iter().filter(|one| one.server.t1 >= since[0]);
            prop_assert_eq!(found_later.count(), later);
            prop_assert!(found.unmatched.iter().all(|one| one.t1 < since[0]));
        }
        // one write to what was read at once may be two responses of a server that is known to be sequential
        let since = shown.map_or(Monotonic::MAX, |shown| truth[shown].0[0]);
        for request in found.requests.iter() {
            let stamps = known(request.server);
            let is_certain = !posts.sequential || stamps[0] >= since;
            prop_assert!(!is_certain || by_t1.get(&stamps[0]) == Some(&stamps), "{stamps:?}");
        }
        prop_assert!(found.unmatched.iter().all(|one| one.ambiguous));
        prop_assert_eq!(&found.without_request, &[]);
    }

    /// What its name says of a server's order does not hold against what its connections show: this one reads on
    /// before it has answered, as servers of HTTP/2 and those before others do.
    #[test]
    fn a_server_that_reads_on_is_not_sequential(
        seed: u64, connections in 1..6_usize, in_flight in 2..8_usize, requests in 1..200_usize,
    ) {
        let traffic = Connections {
            seed, connections, requests, style: Style::Later, in_flight, bytes: 40,
            head_and_body: false, writes: Writes::Known, resent: 0.0, swapped: 0.0,
            greets: false,
        }.run();
        let found = matched(&traffic.events, true);
        let by_t1: HashMap<_, _> = traffic.truth.iter().map(|truth| (truth.t1, truth)).collect();
        for request in found.requests.iter() {
            let truth = by_t1[&request.server.t1];
            prop_assert!(truth.t6.contains(&request.server.t6), "{truth:?} {:?}", request.server);
        }
        prop_assert!(found.unmatched.iter().all(|one| one.ambiguous));
    }
}

/// Python's client, which sends head and body apart, and Python's server, which answers in two writes: without a
/// framing, 936 responses left and none was matched.
#[test]
fn recorded_posts_are_one_request_each() {
    const SENT: usize = 468;
    let path = format!("{}/tests/cases/http-posts.tlc", env!("CARGO_MANIFEST_DIR"));
    let recording = Recording::read(File::open(path).unwrap()).unwrap();
    let found = match_recording(&recording).unwrap();
    let requests = found.requests.len();
    assert!(requests <= SENT, "{requests}");
    assert!(requests + 2 * TURNS_TO_SHOW > SENT, "{requests}");
}

/// A client that gives up closes its connection and asks again on another one, or from the same port.
#[test]
fn what_its_client_abandons_is_unanswered_once() {
    for port in [40_000, 40_001] {
        let mut talk = Talk::opened(40_000);
        talk.asks(b"first");
        talk.answers(b"answer");
        let abandoned = talk.asks(b"second");
        talk.wait(300_000_000);
        talk = talk.reconnected(port);
        for _ in 0..5 {
            talk.asks(b"another");
            talk.answers(b"answer");
        }
        let found = matched(&talk.events, false);
        let unmatched: Vec<_> = (found.unmatched.iter())
            .map(|one| (one.t1, one.ambiguous))
            .collect();
        assert_eq!(unmatched, [(abandoned, false)], "port {port}");
        assert_eq!(found.requests.len(), 6);
    }
}

/// Two pipelined requests that the client's TCP put into one segment, and that the server reads one by one: a segment
/// has one T1 and is one request, which the second response answers. The first one has none, and is counted as such.
/// A list of requests is then shorter than that of the client's calls.
#[test]
fn two_requests_in_one_segment_are_one() {
    const BYTES: u32 = 128;
    let mut talk = Talk::opened(40_000);
    for _ in 0..3 {
        talk.asks(&[7; BYTES as usize]);
        talk.answers(b"answer");
    }
    let t1 = talk.sends(&[7; 2 * BYTES as usize]);
    talk.reads_bytes(BYTES);
    let first = talk.answers(b"first");
    talk.reads_bytes(BYTES);
    let second = talk.answers(b"second");
    let found = matched(&talk.events, false);
    assert_eq!(found.requests.len() + found.unmatched.len(), 4);
    assert_eq!(found.without_request, [first]);
    let mut of_both = found.requests.iter().filter(|one| one.server.t1 == t1);
    assert!(of_both.all(|one| one.server.t6 == second));
}
