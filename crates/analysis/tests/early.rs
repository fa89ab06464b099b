//! Responses that leave before the server has read all of their request.

use crate::common::cases;
use crate::common::talk::{Talk, ends, matched};
use crate::framing::without_packets;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::{Framing, MatchOptions, Matcher};
use taillab_model::{Event, Monotonic, Nanos};

const HEAD: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 8\r\n\r\n";
const BODY: &[u8] = b"8 bytes!";
const REFUSED: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno";
const GET: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// T1 and T6 of a request.
type Pair = (Monotonic, Monotonic);

/// Exactly these requests are found, and nothing else counts.
fn found_exactly(events: &[Event], framing: Framing, truth: &[Pair]) {
    let found = matched(events, framing);
    assert_eq!(ends(&found), truth);
    let counts = found.counts(Monotonic::from_nanos_since_boot(0));
    assert_eq!(counts.responses, truth.len() as u64);
    assert_eq!((found.unmatched.len(), found.silent), (0, 0));
    assert!(found.ambiguous.is_empty() && found.without_request.is_empty());
    for request in found.requests.iter() {
        let [t2, _, t4, t5] = request.server.middle();
        let stamps = [Some(request.server.t1), t2, t4, t5, Some(request.server.t6)];
        assert!(stamps.iter().all(Option::is_some), "{stamps:?}");
        assert!(stamps.is_sorted(), "{stamps:?}");
    }
}

/// An exchange that follows, to see whether the connection goes on being matched.
fn get(talk: &mut Talk) -> Pair {
    (talk.asks(GET), talk.answers(OK))
}

#[test]
fn an_answer_before_the_body_is_that_of_its_request_and_the_body_is_none() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        truth.push((talk.asks(HEAD), talk.answers(REFUSED)));
        talk.asks(BODY);
        truth.push(get(&mut talk));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

#[test]
fn the_rest_may_come_in_several_packets_and_the_next_request_with_it() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        truth.push((talk.asks(HEAD), talk.answers(REFUSED)));
        talk.asks(&BODY[..3]);
        talk.sends(&BODY[3..5]);
        let t1 = talk.asks(&[&BODY[5..], GET].concat());
        truth.push((t1, talk.answers(OK)));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// What the server has not read had no part in its response, even if it had come in.
#[test]
fn the_last_byte_that_was_read_is_what_counts() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        // a part of the body is read
        talk.asks(HEAD);
        truth.push((talk.asks(&BODY[..3]), talk.answers(REFUSED)));
        talk.asks(&BODY[3..]);
        // a part of it comes in
        let t1 = talk.asks(HEAD);
        talk.sends(&BODY[..3]);
        truth.push((t1, talk.answers(REFUSED)));
        talk.asks(&BODY[3..]);
        // all of it comes in, in a packet of its own or in the same one
        let t1 = talk.sends(HEAD);
        talk.sends(BODY);
        talk.reads_bytes(HEAD.len() as u32);
        truth.push((t1, talk.answers(REFUSED)));
        talk.reads();
        let t1 = talk.sends(&[HEAD, BODY].concat());
        talk.reads_bytes(HEAD.len() as u32);
        truth.push((t1, talk.answers(REFUSED)));
        talk.reads();
        // the head in two packets, of which a part of the second is read
        talk.asks(&HEAD[..10]);
        let t1 = talk.sends(&[&HEAD[10..], BODY].concat());
        talk.reads_bytes(HEAD.len() as u32 - 10);
        truth.push((t1, talk.answers(REFUSED)));
        talk.reads();
        truth.push(get(&mut talk));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// The next request has come in with the rest, before the response leaves.
#[test]
fn a_pipelined_request_behind_the_rest_is_the_next_one() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        let t1 = talk.sends(HEAD);
        let next = talk.sends(&[BODY, GET].concat());
        talk.reads_bytes(HEAD.len() as u32);
        truth.push((t1, talk.answers(REFUSED)));
        talk.reads();
        truth.push((next, talk.answers(OK)));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

#[test]
fn a_body_in_chunks_may_be_the_rest() {
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        talk.asks(head);
        truth.push((talk.asks(b"5\r\nhel"), talk.answers(REFUSED)));
        talk.asks(b"lo\r\n3\r\nyou\r\n");
        talk.asks(b"0\r\n\r\n");
        truth.push(get(&mut talk));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

#[test]
fn the_connection_may_end_before_the_rest_has_come() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for n in 0..20 {
        truth.push(get(&mut talk));
        truth.push((talk.asks(HEAD), talk.answers(REFUSED)));
        if n % 2 == 0 {
            // it comes, and nobody reads it
            talk.sends(&BODY[..4]);
        }
        talk = talk.reconnected(40_001 + n);
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

#[test]
fn a_client_that_was_not_asked_to_go_on_sends_no_body() {
    let head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 8\r\n\r\n";
    let failed = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n";
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for n in 0..20 {
        truth.push((talk.asks(head), talk.answers(failed)));
        talk = talk.reconnected(40_001 + n);
        // this one was, and is refused nevertheless
        let t1 = talk.asks(head);
        talk.answers(b"HTTP/1.1 100 Continue\r\n\r\n");
        truth.push((t1, talk.answers(failed)));
        talk.asks(BODY);
        truth.push(get(&mut talk));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// Instead of the body, against the rules, it sends its next request, which looks like a body.
#[test]
fn no_pair_is_wrong_where_the_body_is_left_out() {
    for body in [8, 20, 1_000] {
        let head = format!("POST / HTTP/1.1\r\nContent-Length: {body}\r\n\r\n");
        let mut talk = Talk::opened(40_000);
        let mut truth = Vec::new();
        for _ in 0..10 {
            truth.push((talk.asks(head.as_bytes()), talk.answers(REFUSED)));
            for _ in 0..200 {
                truth.push(get(&mut talk));
            }
            talk.wait(1_000_000_000);
        }
        let found = ends(&matched(&talk.events, Framing::Http1));
        assert!(
            found.iter().all(|pair| truth.contains(pair)),
            "{body}: {found:?}"
        );
        // it is found again where requests begin
        assert!(found.len() > truth.len() / 2, "{body}: {}", found.len());
    }
}

#[test]
fn a_response_may_end_with_the_connection() {
    let refused = b"HTTP/1.0 413 Content Too Large\r\nConnection: close\r\n\r\nno";
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for n in 0..20 {
        truth.push(get(&mut talk));
        let t1 = talk.sends(HEAD);
        if n % 2 == 0 {
            talk.sends(BODY);
        }
        talk.reads_bytes(HEAD.len() as u32);
        talk.answers(refused);
        truth.push((t1, talk.answers(b"more of it")));
        if n % 2 != 0 {
            talk.sends(BODY);
        }
        talk.reads();
        talk = talk.reconnected(40_001 + n);
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// Its response has no body, whatever the head of that says.
#[test]
fn an_early_response_to_a_request_for_a_head_has_no_body() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        let t1 = talk.asks(b"HEAD / HTTP/1.1\r\nContent-Length: 8\r\n\r\n");
        truth.push((
            t1,
            talk.answers(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 99\r\n\r\n"),
        ));
        talk.asks(BODY);
        truth.push(get(&mut talk));
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// A head that is too long, and one that does not come to its end in time.
#[test]
fn a_part_of_a_head_may_be_answered() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for n in 0..20 {
        truth.push(get(&mut talk));
        let t1 = talk.asks(&HEAD[..20]);
        let late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n";
        truth.push((t1, talk.answers(late)));
        talk = talk.reconnected(40_001 + n);
    }
    found_exactly(&talk.events, Framing::Http1, &truth);
}

/// What answers nothing of which the server has read anything is still a response without a request.
#[test]
fn a_response_to_nothing_answers_no_request_that_comes_then() {
    let mut talk = Talk::opened(40_000);
    let mut truth = vec![get(&mut talk)];
    talk.sends(HEAD);
    let stray = talk.answers(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    let found = matched(&talk.events, Framing::Http1);
    assert_eq!(ends(&found), truth);
    assert_eq!(found.without_request, [stray]);
    talk = talk.reconnected(40_001);
    truth.push(get(&mut talk));
    assert_eq!(ends(&matched(&talk.events, Framing::Http1)), truth);
}

/// memcached refuses a value when it has read how long it is, and throws away what comes of it.
#[test]
fn memcached_refuses_a_value_that_is_too_large() {
    let refused = b"SERVER_ERROR object too large for cache\r\n";
    let value = [b'v'; 3_000];
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..20 {
        talk.asks(b"set a 0 0 2998\r\n");
        truth.push((talk.asks(&value[..1_000]), talk.answers(refused)));
        talk.asks(&value[1_000..2_998]);
        let t1 = talk.asks(b"\r\nget a\r\n");
        truth.push((t1, talk.answers(b"END\r\n")));
    }
    found_exactly(&talk.events, Framing::Memcached, &truth);
}

/// A request that says that it wants no answer does not get that of the next one.
#[test]
fn a_silent_request_is_not_answered_early() {
    let mut talk = Talk::opened(40_000);
    talk.asks(b"get a\r\n");
    talk.answers(b"END\r\n");
    let t1 = talk.asks(b"set a 0 0 5 noreply\r\n");
    talk.answers(b"ERROR\r\n");
    let found = matched(&talk.events, Framing::Memcached);
    assert!(ends(&found).iter().all(|pair| pair.0 < t1));
    assert_eq!(found.without_request.len(), 1);
}

#[test]
fn memcached_refuses_a_binary_value_by_its_tag() {
    // set, 8 bytes of extras, a key of 1 byte, a body of 109 bytes in all
    let head = |opaque: u8| {
        let mut head = vec![0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0, 109, 0, 0, 0, opaque];
        head.extend([0; 8]);
        head.extend(b"extras..k");
        head
    };
    let refused = |opaque: u8| {
        let mut refused = vec![0x81, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, opaque];
        refused.extend([0; 8]);
        refused.extend(b"Too large");
        refused
    };
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for opaque in 0..20 {
        let t1 = talk.asks(&head(opaque));
        truth.push((t1, talk.answers(&refused(opaque))));
        talk.asks(&[b'v'; 100]);
    }
    found_exactly(&talk.events, Framing::Memcached, &truth);
    // that of another one
    talk.asks(&head(70));
    talk.answers(&refused(71));
    let found = matched(&talk.events, Framing::Memcached);
    assert_eq!(ends(&found), truth);
    assert_eq!(found.ambiguous.len(), 1);
}

/// Redis answers what is against its protocol, and closes the connection.
#[test]
fn redis_refuses_what_is_against_its_protocol() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for n in 0..20 {
        truth.push((
            talk.asks(b"*1\r\n$4\r\nPING\r\n"),
            talk.answers(b"+PONG\r\n"),
        ));
        let t1 = talk.asks(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$999999999\r\n");
        let refused = b"-ERR Protocol error: invalid bulk length\r\n";
        truth.push((t1, talk.answers(refused)));
        talk.sends(&[b'v'; 1_000]);
        talk = talk.reconnected(40_001 + n);
    }
    found_exactly(&talk.events, Framing::Resp, &truth);
}

/// With lengths, this shows that they are wrong: a shorter request is not the beginning of one.
#[test]
fn a_request_that_is_shorter_than_all_are_said_to_be_is_not_answered_early() {
    let mut talk = Talk::opened(40_000);
    for _ in 0..20 {
        talk.asks(&[b'a'; 60]);
        talk.answers(&[b'b'; 8]);
    }
    let found = matched(&talk.events, "fixed:100:8".parse().unwrap());
    assert_eq!(ends(&found), []);
}

/// Without the content, a body is one more request, until the turns show that the clients send in parts.
#[test]
fn without_a_framing_no_pair_is_wrong() {
    let mut talk = Talk::opened(40_000);
    let mut truth = Vec::new();
    for _ in 0..100 {
        truth.push((talk.asks(HEAD), talk.answers(REFUSED)));
        talk.asks(BODY);
        truth.push(get(&mut talk));
    }
    let found = matched(&talk.events, Framing::OneInTurn);
    let pairs = ends(&found);
    assert!(pairs.iter().all(|pair| truth.contains(pair)), "{pairs:?}");
    assert!(pairs.ends_with(&truth[120..]), "{}", pairs.len());
}

/// Seen from the middle on: nothing is wrong, and after a pause all is found.
#[test]
fn a_connection_that_was_joined_is_followed_after_a_pause() {
    let mut talk = Talk::joined(40_000);
    let mut truth = Vec::new();
    let mut refused = |talk: &mut Talk| {
        truth.push((talk.asks(HEAD), talk.answers(REFUSED)));
        talk.asks(BODY);
        truth.push(get(talk));
    };
    (0..30).for_each(|_| refused(&mut talk));
    talk.wait(100_000_000);
    (0..30).for_each(|_| refused(&mut talk));
    let found = ends(&matched(&talk.events, Framing::Http1));
    assert!(found.iter().all(|pair| truth.contains(pair)), "{found:?}");
    assert!(found.ends_with(&truth[60..]), "{}", found.len());
}

/// Of a long request, nothing is held but its latest packet, and it counts once, however long it takes.
#[test]
fn a_long_request_that_is_read_all_the_time_is_one_request() {
    let bytes = 20_000 * 1_000;
    let head = format!("PUT / HTTP/1.1\r\nContent-Length: {bytes}\r\n\r\n");
    let mut talk = Talk::opened(40_000);
    talk.asks(head.as_bytes());
    let mut t1 = None;
    for n in 0..20_000 {
        t1 = Some(talk.asks(&[b'b'; 1_000]));
        if n % 4_000 == 0 {
            talk.wait(3_000_000_000);
        }
    }
    let t6 = talk.answers(OK);
    found_exactly(&talk.events, Framing::Http1, &[(t1.unwrap(), t6)]);
    let options = MatchOptions {
        framing: Framing::Http1,
        hashed_clients: true,
        ..MatchOptions::for_streams(Nanos::from_secs(1), false)
    };
    let mut matcher = Matcher::new(options);
    for event in &talk.events[..talk.events.len() - 10] {
        matcher.observe(event);
    }
    matcher.settled();
    assert!(matcher.held() <= 2, "{}", matcher.held());
}

/// Nobody reads it, for longer than a response is waited for.
#[test]
fn what_has_come_of_a_request_that_goes_on_is_not_unanswered() {
    let mut talk = Talk::opened(40_000);
    let first = get(&mut talk);
    talk.asks(HEAD);
    for n in 0..8 {
        talk.wait(3_000_000_000);
        talk.sends(&BODY[n..n + 1]);
    }
    talk.wait(1_000_000_000);
    talk.reads();
    let found = matched(&talk.events, Framing::Http1);
    assert_eq!(ends(&found), [first]);
    // all of it has come: this is one request without a response
    assert_eq!(found.unmatched.len(), 1);
    talk.events.truncate(talk.events.len() - 30);
    let options = MatchOptions {
        framing: Framing::Http1,
        ..MatchOptions::for_streams(Nanos::from_secs(1), false)
    };
    let mut matcher = Matcher::new(options);
    for event in &talk.events {
        matcher.observe(event);
        matcher.settled();
    }
    let found = matcher.finish();
    assert_eq!((found.requests.len(), found.unmatched.len()), (1, 0));
}

/// A client that pipelines requests with bodies, in packets that end anywhere, and a server that answers each after its
/// head or later, and reads in any portions. Returns what happens, with T1 and T6 of each request.
fn conversation(seed: u64, requests: usize) -> (Vec<Event>, Vec<Pair>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut stream = Vec::new();
    let mut ends: Vec<(usize, usize)> = Vec::new();
    for _ in 0..requests {
        let body = rng.random_range(0..60_usize);
        let head = match rng.random_bool(0.5) {
            true => format!("POST / HTTP/1.1\r\nContent-Length: {body}\r\n\r\n"),
            false => "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        };
        stream.extend(head.as_bytes());
        let after_head = stream.len();
        match head.starts_with("POST") {
            true => stream.extend(vec![b'b'; body]),
            false => {
                stream.extend(
                    format!("{:x}\r\n{}\r\n0\r\n\r\n", body + 1, "b".repeat(body + 1)).bytes(),
                );
            }
        }
        ends.push((after_head, stream.len()));
    }
    let mut talk = Talk::opened(40_000);
    let (mut sent, mut read) = (0, 0);
    let mut came: Vec<(usize, Monotonic)> = Vec::new();
    let mut truth = Vec::new();
    for (after_head, end) in ends {
        // some are answered early; the others are read to their end
        let enough = if rng.random_bool(0.6) {
            after_head
        } else {
            end
        };
        while read < enough {
            if read == sent || rng.random_bool(0.5) && sent < stream.len() {
                let bytes = rng.random_range(1..80).min(stream.len() - sent);
                let at = talk.sends(&stream[sent..sent + bytes]);
                sent += bytes;
                came.push((sent, at));
            } else {
                let bytes = rng.random_range(1..=sent - read);
                read += bytes;
                talk.reads_bytes(bytes as u32);
            }
        }
        let last = read.min(end);
        let t1 = came.iter().find(|(upto, _)| *upto >= last).unwrap().1;
        truth.push((t1, talk.answers(OK)));
    }
    (talk.events, truth)
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn every_early_answer_is_that_of_its_request(seed: u64, requests in 1..40_usize) {
        let (events, truth) = conversation(seed, requests);
        let found = matched(&events, Framing::Http1);
        prop_assert_eq!(ends(&found), truth);
        prop_assert_eq!(found.unmatched.len() + found.ambiguous.len() + found.without_request.len(), 0);
    }

    /// If packets are lost, fewer requests are found, and none with the response to another one.
    #[test]
    fn no_pair_is_wrong_where_packets_are_lost(seed: u64, share in 0.0..0.1_f64) {
        let (events, truth) = conversation(seed, 30);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let events = without_packets(&events, |_| rng.random_bool(share));
        for pair in ends(&matched(&events, Framing::Http1)) {
            prop_assert!(truth.contains(&pair), "{:?} of {:?}", pair, truth);
        }
    }
}
