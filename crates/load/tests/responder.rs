//! The engine over UDP sockets, with servers that answer properly and servers that do not.

use crate::support;

use std::net::SocketAddr;
use std::time::Duration;

use support::ports::free_port;
use support::{Responder, answer, client, datagram, id, is_answered, on_schedule, run, stored};
use taillab_load::{LoadError, NoHooks, Outcome, StopReason};
use taillab_model::Nanos;
use taillab_model::summary::LoadErrors;

/// So long that a busy test machine does not make an answer late.
const PATIENT: Nanos = Nanos::from_secs(60);

/// For runs in which some answers never come; it decides only how long the test takes.
const SHORT: Nanos = Nanos::from_secs(2);

#[test]
fn a_good_server_answers_everything() {
    let server = Responder::start(|_, request| Some(vec![answer(request)]));
    let mut client = client(server.address);
    stored(server.address, &mut client).unwrap();
    let result = run(&mut client, PATIENT, &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
    assert_eq!(result.stopped, None);
    assert!(result.record.iter().all(|e| is_answered(&e)));
    let ports: std::collections::BTreeSet<_> =
        result.record.iter().map(|e| e.key.unwrap().port).collect();
    assert_eq!(ports.len(), 16);
}

/// The keys of the record are those that the packets had, in the order sent.
#[test]
fn the_record_names_the_packets() {
    let (tell, told) = std::sync::mpsc::channel();
    let server = Responder::start(move |_, request| {
        tell.send(u16::from_be_bytes(id(request))).unwrap();
        Some(vec![answer(request)])
    });
    let mut client = client(server.address);
    for _ in 0..2 {
        let result = run(&mut client, PATIENT, &mut NoHooks);
        let seen: Vec<_> = told.try_iter().collect();
        let named: Vec<_> = result.record.iter().map(|e| e.key.unwrap().id).collect();
        assert_eq!(seen, named);
    }
}

#[test]
fn a_server_that_reorders_changes_nothing_but_the_times() {
    let mut held: Vec<Vec<u8>> = Vec::new();
    // One connection, so that held answers go to the right port. Every fourth request releases
    // all that are held, the last first; those after the last release are never sent.
    let server = Responder::start(move |_, request| {
        held.push(answer(request));
        if held.len() < 4 {
            return Some(vec![]);
        }
        Some(held.drain(..).rev().collect())
    });
    let mut client = support::memcached(server.address, 1, support::workload());
    let result = run(&mut client, SHORT, &mut NoHooks);
    let n = result.record.iter().len();
    let answered = result.record.iter().filter(is_answered).count();
    assert_eq!(answered, n - n % 4);
    assert_eq!(result.errors.unexpected_responses, 0);
    let received: Vec<_> = result
        .record
        .iter()
        .filter_map(|e| e.times.received)
        .collect();
    assert!(!received.is_sorted());
}

#[test]
fn a_nasty_server_is_counted_by_kind() {
    let server = Responder::start(|k, request| {
        let right = answer(request);
        Some(match k % 4 {
            0 => vec![right.clone(), right],
            1 => vec![b"garbage".to_vec(), vec![], right],
            2 => vec![right[..right.len() - 1].to_vec()],
            _ => vec![datagram(id(request), b"SERVER_ERROR no\r\n")],
        })
    });
    let mut client = client(server.address);
    let result = run(&mut client, SHORT, &mut NoHooks);
    let mut expected = LoadErrors::default();
    for k in result.record.measured() {
        let outcome = result.record.get(k).unwrap().outcome;
        match k % 4 {
            0 => expected.unexpected_responses += 1,
            1 => expected.malformed_responses += 2,
            2 => {
                assert_eq!(outcome, Outcome::TimedOut);
                expected.timeouts += 1;
                expected.malformed_responses += 1;
            }
            _ => {
                assert_eq!(outcome, Outcome::ServerError);
                expected.server_errors += 1;
            }
        }
    }
    // A warm-up answer that comes just after the measurement began counts in it.
    let kinds = |e: &LoadErrors| (e.timeouts, e.server_errors, e.send_errors, e.misses);
    assert_eq!(kinds(&result.errors), kinds(&expected));
    assert!(result.errors.unexpected_responses >= expected.unexpected_responses);
    assert!(result.errors.malformed_responses >= expected.malformed_responses);
}

#[test]
fn a_silent_server_ends_in_time_outs_and_an_error_before_the_run() {
    let server = Responder::start(|_, _| Some(vec![]));
    let mut client = client(server.address);
    let result = run(&mut client, Nanos::from_millis(100), &mut NoHooks);
    let measured = result.record.measured().len() as u64;
    assert!(measured > 0);
    assert_eq!(result.errors.timeouts, measured);
    let error = stored(server.address, &mut client).unwrap_err();
    assert!(matches!(error, LoadError::NoAnswer { .. }), "{error}");
}

/// Its answers take longer than those of a nearby server may.
#[test]
fn a_server_far_away_is_waited_for() {
    let server = Responder::start(|k, request| {
        // the others of a window wait behind its first request
        if k.is_multiple_of(32) {
            std::thread::sleep(Duration::from_millis(300));
        }
        Some(vec![answer(request)])
    });
    let mut client = client(server.address);
    stored(server.address, &mut client).unwrap();
}

#[test]
fn a_closed_port_is_named_as_such() {
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut client = client(closed);
    let error = stored(closed, &mut client).unwrap_err();
    assert!(matches!(error, LoadError::Refused { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&format!("nothing listens at {closed}")),
        "{text}"
    );
}

/// What was measured until then is kept; the run ends well before its schedule.
#[test]
fn a_server_that_dies_ends_the_run() {
    let server = Responder::start(|k, request| (k < 100).then(|| vec![answer(request)]));
    let mut client = client(server.address);
    // an hour
    let schedule = (0..3_600_000).map(Nanos::from_millis).collect();
    let result = on_schedule(&mut client, schedule, Nanos::from_millis(300));
    let answers = result.record.iter().filter(|e| e.times.received.is_some());
    assert_eq!(answers.count(), 100);
    assert_eq!(result.stopped, Some(StopReason::Refused));
    let measured = result.record.measured().len() as u64;
    assert!(result.errors.timeouts + result.errors.send_errors > 0);
    assert!(result.errors.timeouts + result.errors.send_errors <= measured);
}
