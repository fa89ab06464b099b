//! What a server sends that answers no request.

use crate::common::talk::Talk;

use std::fs::File;

use taillab_analysis::{Framing, MatchOptions, Matched, match_events, match_recording};
use taillab_model::{Event, Monotonic, Nanos, Recording};

fn matched(events: &[Event], framing: Framing) -> Matched {
    let options = MatchOptions {
        framing,
        ..MatchOptions::for_streams(Nanos::from_secs(1), false)
    };
    match_events(events.iter().copied(), &options)
}

/// T1 and T6 of the requests.
fn ends(matched: &Matched) -> Vec<(Monotonic, Monotonic)> {
    let stamps = matched.requests.iter().map(|request| request.server);
    stamps.map(|stamps| (stamps.t1, stamps.t6)).collect()
}

fn case(name: &str) -> Matched {
    let path = format!("{}/tests/cases/{name}", env!("CARGO_MANIFEST_DIR"));
    let recording = Recording::read(File::open(path).unwrap()).unwrap();
    match_recording(&recording).unwrap()
}

/// A client that waits with its body until the server asks for it. Returns T1 and T6 of its requests.
fn post(talk: &mut Talk, requests: usize) -> Vec<(Monotonic, Monotonic)> {
    let post = |_| {
        talk.asks(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
        talk.answers(b"HTTP/1.1 100 Continue\r\n\r\n");
        let t1 = talk.asks(b"body");
        let t6 = talk.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        (t1, t6)
    };
    (0..requests).map(post).collect()
}

#[test]
fn an_interim_response_is_a_part_of_the_exchange() {
    let mut talk = Talk::opened(40_000);
    let truth = post(&mut talk, 40);
    let found = matched(&talk.events, Framing::Http1);
    assert_eq!(ends(&found), truth);
    // T3 needs switches
    let mut middle = found.requests.iter().map(|request| request.server.middle());
    assert!(middle.all(|[t2, _, t4, t5]| t2.is_some() && t4.is_some() && t5.is_some()));
    assert!(found.unmatched.is_empty() && found.ambiguous.is_empty());
}

/// Nor is it a response where the connection is judged by its turns.
#[test]
fn an_interim_response_takes_no_turn() {
    let mut talk = Talk::joined(40_000);
    let truth = post(&mut talk, 40);
    let found = matched(&talk.events, Framing::Http1);
    // whether something was owed before the first one is not known
    assert_eq!(ends(&found), truth[1..]);
    assert_eq!(found.unmatched.len(), 1);
}

#[test]
fn recorded_interim_responses_are_no_responses() {
    // what the client sent, in each of them
    for (name, sent) in [("http-expect-bad.tlc", 254), ("http-expect-good.tlc", 255)] {
        let found = case(name);
        let requests = found.requests.len();
        assert!(requests <= sent, "{name}: {requests} of {sent}");
        assert!(requests > sent / 2, "{name}: {requests} of {sent}");
        // the server sleeps for 5 ms before it answers
        let shortest = (0..requests)
            .map(|place| found.requests.sojourn(place))
            .min();
        assert!(
            shortest > Some(Nanos::from_millis(4)),
            "{name}: {shortest:?}"
        );
    }
}
