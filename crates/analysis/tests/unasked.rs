//! What a server sends that answers no request.

use crate::common::talk::{Talk, ends, matched};

use std::fs::File;

use taillab_analysis::{Framing, MatchOptions, Matched, match_events, match_recording};
use taillab_model::{Event, EventKind, MiddleStamps, Monotonic, Nanos, Recording};

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

/// Packets to the server's port that the probe sees come in, and that no socket of the server receives: those of a
/// container to which they are passed on, or those that a reset answers.
#[test]
fn what_no_socket_of_the_server_receives_is_no_request_to_it() {
    let mut own = Talk::opened(40_000);
    for _ in 0..20 {
        own.asks(b"get a\r\n");
        own.answers(b"END\r\n");
    }
    let mut passing = Talk::joined(40_001);
    let mut waiting = Talk::joined(40_002);
    // that sockets' parts are recorded shows with the first of them
    passing.wait(1_000_000);
    waiting.wait(1_000_000);
    for _ in 0..30 {
        passing.sends(b"get a\r\n");
    }
    // the server's socket has it, and the server does not answer
    waiting.sends(b"get b\r\n");
    let mut events = own.events;
    let came_in = |event: &Event| matches!(event.kind, EventKind::SegmentIn { .. });
    events.extend(passing.events.into_iter().filter(came_in));
    events.extend(waiting.events);
    events.sort_by_key(|event| event.at);
    let found = matched(&events, Framing::OneInTurn);
    assert_eq!((responses(&found), found.elsewhere), (20, 30));
    let ports: Vec<u16> = found
        .unmatched
        .iter()
        .map(|one| one.key.connection as u16)
        .collect();
    assert_eq!(ports, [40_002]);
    // where the sockets' part is not recorded, a response shows whose they are
    let options = MatchOptions {
        stamps: MiddleStamps::Ends,
        hashed_clients: true,
        ..MatchOptions::for_streams(Nanos::from_secs(1), false)
    };
    let at_ends = events.into_iter().filter(|event| {
        matches!(
            event.kind,
            EventKind::SegmentIn { .. } | EventKind::SegmentOut { .. }
        )
    });
    let found = match_events(at_ends, &options);
    assert_eq!((responses(&found), found.elsewhere), (20, 31));
    assert_eq!(found.unmatched, []);
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

/// How many responses are counted.
fn responses(matched: &Matched) -> u64 {
    matched
        .counts(Monotonic::from_nanos_since_boot(0))
        .responses
}

/// A response to a request from before the recording, in many pieces, and then requests of which each is
/// answered in as many.
fn pieces(talk: &mut Talk, requests: usize) -> Vec<(Monotonic, Monotonic)> {
    let answer = |talk: &mut Talk| {
        for _ in 1..10 {
            talk.answers(b"piece");
            talk.wait(30_000_000);
        }
        talk.answers(b"piece")
    };
    answer(talk);
    let mut truth = Vec::new();
    for _ in 0..requests {
        talk.wait(100_000_000);
        let t1 = talk.asks(b"request");
        truth.push((t1, answer(talk)));
    }
    // of this one, it is not known whether more would have come
    talk.wait(100_000_000);
    talk.asks(b"request");
    talk.answers(b"piece");
    truth
}

#[test]
fn a_response_to_a_request_from_before_the_recording_is_no_loss() {
    let mut talk = Talk::joined(40_000);
    let truth = pieces(&mut talk, 20);
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!(ends(&found), truth);
    assert_eq!((found.from_before, responses(&found)), (1, 20));
}

/// What the end of the recording cuts off is not counted, nor is a segment in which it only began.
#[test]
fn of_a_long_request_whose_response_is_cut_off_no_part_is_unanswered() {
    let mut talk = Talk::opened(40_000);
    let asks = |talk: &mut Talk| {
        talk.sends(&[b'a'; 3_000]);
        talk.asks(b"end")
    };
    let mut truth = Vec::new();
    for _ in 0..20 {
        let t1 = asks(&mut talk);
        talk.answers(b"piece");
        talk.wait(30_000_000);
        truth.push((t1, talk.answers(b"piece")));
        talk.wait(100_000_000);
    }
    asks(&mut talk);
    talk.answers(b"piece");
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!(ends(&found), truth);
    assert_eq!(found.unmatched, []);
}

/// A client that says that it had all responses when the recording ended.
#[test]
fn nothing_is_cut_off_of_responses_that_the_client_had() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        talk.wait(100_000_000);
        let t1 = talk.asks(b"request");
        talk.answers(b"piece");
        talk.wait(30_000_000);
        truth.push((t1, talk.answers(b"piece")));
    }
    let matched = |answered| {
        let options = MatchOptions {
            answered,
            ..MatchOptions::for_streams(Nanos::from_secs(1), true)
        };
        match_events(talk.events.iter().copied(), &options)
    };
    assert_eq!(ends(&matched(true)), truth);
    assert_eq!(ends(&matched(false)), truth[..19], "the last one may go on");
}

/// Nor is it one if the client goes on meanwhile.
#[test]
fn a_response_from_before_may_go_on_after_the_next_request_has_come() {
    let mut talk = Talk::joined(40_000);
    talk.answers(b"piece");
    talk.sends(b"request");
    for _ in 0..5 {
        talk.answers(b"piece");
    }
    talk.wait(100_000_000);
    talk.reads();
    talk.answers(b"response");
    talk.wait(100_000_000);
    talk.asks(b"request");
    let t6 = talk.answers(b"response");
    talk.wait(100_000_000);
    talk.asks(b"request");
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!(found.requests.iter().next_back().unwrap().server.t6, t6);
    assert!(found.without_request.is_empty(), "{found:?}");
    assert_eq!(found.from_before, 1);
}

/// It goes on for longer than a response is waited for. When the client asks again, it is answered.
#[test]
fn a_response_that_never_ends_is_set_aside() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"request");
    for _ in 0..600 {
        talk.wait(10_000_000);
        talk.answers(b"piece");
    }
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((found.requests.len(), responses(&found)), (0, 0));
    assert_eq!((found.unmatched.len(), found.unasked), (0, vec![40_000]));
    let truth = pieces(&mut talk, 20);
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((ends(&found), responses(&found)), (truth, 20));
}

/// It answered, and much later it sends something else.
#[test]
fn what_comes_long_after_a_response_is_no_part_of_it() {
    let mut talk = Talk::opened(40_000);
    let t1 = talk.asks(b"request");
    let t6 = talk.answers(b"response");
    talk.wait(20_000_000_000);
    talk.answers(b"news");
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!(ends(&found), [(t1, t6)]);
    assert_eq!((responses(&found), found.unasked), (1, vec![40_000]));
}

/// The events of two connections, in order of time.
fn together(one: Talk, other: &Talk) -> Vec<Event> {
    let mut events = one.events;
    events.extend(&other.events);
    events.sort_by_key(|event| event.at);
    events
}

/// A client that asks and is answered for three seconds.
fn ordinary(port: u16) -> (Talk, Vec<(Monotonic, Monotonic)>) {
    let mut talk = Talk::opened(port);
    let ask = |_| {
        talk.wait(99_990_000);
        (
            talk.asks(b"*1\r\n$4\r\nPING\r\n"),
            talk.answers(b"+PONG\r\n"),
        )
    };
    let truth = (0..30).map(ask).collect();
    (talk, truth)
}

/// The server sends something every 200 ms for three seconds.
fn news(talk: &mut Talk) {
    for _ in 0..15 {
        talk.wait(200_000_000);
        talk.answers(b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n");
    }
}

/// A subscription, seen or not seen to begin, with or without its content.
#[test]
fn a_subscriber_is_set_aside_and_named() {
    for framing in [Framing::OneInTurn, Framing::Resp] {
        for begins in [true, false] {
            let (client, truth) = ordinary(40_000);
            let mut subscriber = match begins {
                true => Talk::opened(50_000),
                false => Talk::joined(50_000),
            };
            if begins {
                subscriber.asks(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n");
                subscriber.answers(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
            }
            news(&mut subscriber);
            let found = matched(&together(client, &subscriber), framing);
            assert_eq!(ends(&found), truth, "{framing} {begins}");
            assert_eq!(responses(&found), 30, "{framing} {begins}");
            assert_eq!(found.unmatched.len(), 0, "{framing} {begins}");
            assert_eq!(found.unasked, [50_000], "{framing} {begins}");
        }
    }
}

/// A replica tells how far it is, which is never answered.
#[test]
fn a_replica_is_set_aside_and_named() {
    let (client, truth) = ordinary(40_000);
    let mut replica = Talk::joined(50_000);
    for _ in 0..3 {
        replica.asks(b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n7\r\n");
        news(&mut replica);
    }
    let found = matched(&together(client, &replica), Framing::Resp);
    assert_eq!((ends(&found), responses(&found)), (truth, 30));
    assert_eq!((found.unmatched.len(), found.unasked), (0, vec![50_000]));
}

/// A connection that speaks another protocol from then on.
#[test]
fn an_upgraded_connection_is_set_aside_and_named() {
    let mut talk = Talk::opened(40_000);
    let t1 = talk.asks(b"GET / HTTP/1.1\r\n\r\n");
    let t6 = talk.answers(b"HTTP/1.1 204 No Content\r\n\r\n");
    talk.asks(b"GET /socket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
    talk.answers(b"HTTP/1.1 101 Switching Protocols\r\n\r\n");
    for _ in 0..40 {
        talk.answers(b"\x81\x05hello");
        talk.asks(b"\x81\x85abcdhello");
    }
    let found = matched(&talk.events, Framing::Http1);
    assert_eq!(ends(&found), [(t1, t6)]);
    assert_eq!((responses(&found), found.unasked), (1, vec![40_000]));
    assert_eq!(found.unmatched.len(), 0);
}

/// As servers of MySQL, SMTP and SSH do: it answers nothing, and nothing is owed after it.
#[test]
fn a_server_that_speaks_first_leaves_no_doubt() {
    let mut talk = Talk::opened(40_000);
    talk.answers(b"220 ready\r\n");
    let exchange = |_| {
        talk.wait(1_000_000);
        (talk.asks(b"NOOP\r\n"), talk.answers(b"250 OK\r\n"))
    };
    let truth: Vec<_> = (0..5).map(exchange).collect();
    talk.wait(1_000_000_000);
    talk.asks(b"QUIT\r\n");
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((ends(&found), responses(&found)), (truth, 5));
}

/// A server that peeks at a request, answers it, and reads it only then: its first response is no greeting, and each of
/// the others seems to be to the request before.
#[test]
fn a_server_that_answers_what_it_has_not_read_does_not_speak_first() {
    let mut talk = Talk::opened(40_000);
    let exchange = |_| {
        talk.wait(1_000_000);
        talk.sends(b"request");
        talk.answers(b"response");
        talk.reads();
    };
    (0..40).for_each(exchange);
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!(ends(&found), []);
    assert_eq!((responses(&found), found.early.len()), (40, 0));
}

/// One that goes on for a while before its client asks for anything sends something else than a greeting.
#[test]
fn what_comes_after_a_greeting_and_a_pause_is_counted() {
    let mut talk = Talk::opened(40_000);
    talk.answers(b"hello");
    talk.answers(b"and welcome");
    talk.wait(1_000_000_000);
    talk.answers(b"news");
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((found.without_request.len(), found.requests.len()), (1, 0));
}

/// Until nothing can be owed on a connection from before the recording, it is not known what a response answers. How
/// long it took does not decide that, so these requests are no reason for doubts in others. They arrived all the same.
#[test]
fn the_first_requests_of_a_connection_from_before_are_left_out() {
    let mut talk = Talk::joined(40_000);
    let mut truth = Vec::new();
    for turn in 0..40 {
        talk.wait(if turn == 8 { 1_000_000_000 } else { 1_000_000 });
        let exchange = (talk.asks(b"request"), talk.answers(b"response"));
        // that of the last turn before the silence is certain
        truth.extend((turn >= 7).then_some(exchange));
    }
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((ends(&found), responses(&found)), (truth, 33));
    assert_eq!((found.early.len(), found.arrivals().count()), (7, 40));
    let counts = found.counts(Monotonic::from_nanos_since_boot(0));
    assert_eq!((counts.ambiguous, counts.unanswered), (0, 0));
}

/// A client that does not wait shows that the turns around it were in doubt for a reason, even if it is the first that
/// was seen of it.
#[test]
fn turns_of_a_client_that_was_seen_not_to_wait_are_ambiguous() {
    for contradiction in [0, 2] {
        let mut talk = Talk::joined(40_000);
        for turn in 0..6 {
            talk.wait(1_000_000);
            talk.asks(b"request");
            if turn == contradiction {
                talk.sends(b"another");
            }
            talk.answers(b"response");
        }
        talk.wait(1_000_000_000);
        talk.asks(b"request");
        talk.answers(b"response");
        let found = matched(&talk.events, Framing::OneInTurn);
        assert_eq!(found.early.len(), 0, "{contradiction}");
        assert!(found.ambiguous.len() > 2, "{contradiction}");
    }
}

/// The arrival of these requests was missed.
#[test]
fn responses_without_requests_are_still_counted() {
    let mut talk = Talk::joined(40_000);
    for _ in 0..20 {
        talk.wait(100_000_000);
        talk.asks(b"request");
        talk.answers(b"response");
    }
    talk.events
        .retain(|event| !matches!(event.kind, EventKind::SegmentIn { .. }));
    let found = matched(&talk.events, Framing::OneInTurn);
    assert_eq!((found.from_before, responses(&found)), (1, 19));
}

/// Of five connections, in pieces.
#[test]
fn what_was_in_flight_when_a_recording_began_does_not_spoil_it() {
    let found = case("in-flight-at-start.tlc");
    let counts = found.counts(Monotonic::from_nanos_since_boot(0));
    assert_eq!(counts.matched, counts.responses);
    assert!(counts.matched > 90, "{}", counts.matched);
    // nor does the end of the recording, where some were under way
    let sojourns = (0..found.requests.len()).map(|place| found.requests.sojourn(place));
    assert!(sojourns.min() > Some(Nanos::from_millis(250)));
    assert_eq!(found.from_before, 5);
}
