use std::sync::Arc;

use super::*;
use crate::engine::NoHooks;
use crate::fake::{Fake, answer, datagram, get};

/// How long a request waits before the first answer.
const TIMEOUT: Nanos = Nanos::from_secs(1);

/// Ends the loop once the server has had a number of requests.
struct Until<'a> {
    progress: &'a Progress,
    requests: u64,
    idle: u64,
}
impl Hooks for Until<'_> {
    fn idle(&mut self, _until_next: Nanos) {
        self.idle += 1;
    }
    fn should_stop(&mut self) -> bool {
        self.progress.sent() >= self.requests
    }
}

fn run(
    requests: u64,
    server: impl FnMut(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static,
) -> Saturation {
    let progress = Progress::new();
    let load = ClosedLoop {
        outstanding: 32,
        length: Nanos::from_secs(3600),
        warm_up: Nanos::ZERO,
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    let mut hooks = Until {
        progress: &progress,
        requests,
        idle: 0,
    };
    let found = saturate(&mut Fake::client(4, server), &load, &mut hooks).unwrap();
    assert_eq!(found.stopped, Some(StopReason::Hook));
    assert!(hooks.idle > 0);
    assert!(progress.sent() >= requests);
    // every request was answered, given up, or is one of those in flight
    let done = found.responses + found.errors.timeouts;
    assert!(done <= progress.sent() && progress.sent() <= done + 32);
    found
}

#[test]
fn every_answer_is_counted() {
    let found = run(1000, |_, request| vec![answer(request)]);
    assert!(found.responses >= 1000 - 32 && found.rate_per_s() > 0.0);
    assert_eq!(found.errors, LoadErrors::default());
}

/// Every 50th request is lost: without replacement, all 32 in flight would soon be lost ones.
#[test]
fn lost_requests_are_replaced() {
    let found = run(5000, |k, request| match k % 50 {
        0 => vec![],
        _ => vec![answer(request)],
    });
    assert!(found.errors.timeouts >= 100 - 32, "{found:?}");
}

/// Each answer comes when its request has been given up and another one sent in its place.
#[test]
fn late_answers_are_those_of_requests_that_timed_out() {
    let mut held = VecDeque::new();
    let found = run(100, move |_, request| {
        held.push_back(answer(request));
        match held.len() {
            // request k and request k + 32 have the same one of the four connections
            33.. => held.pop_front().into_iter().collect(),
            _ => vec![],
        }
    });
    let expected = LoadErrors {
        timeouts: found.errors.timeouts,
        ..LoadErrors::default()
    };
    assert_eq!((found.responses, found.errors), (0, expected));
}

/// On streams, a request is given up only after its time-out.
#[test]
fn a_request_without_an_answer_holds_back_no_other() {
    let traits = Traits {
        is_lossy: false,
        key_period: usize::MAX,
        ..Fake::client(1, |_, _| vec![]).traits()
    };
    let mut flight = Flight::new(vec![get(); PLAN], traits, TIMEOUT);
    let start = Monotonic::from_nanos_since_boot(1);
    flight.sent(start);
    for k in 1..=10 * ROWS {
        assert!(flight.has_room(2));
        flight.sent(start);
        flight.done(k);
    }
    assert_eq!((flight.count, flight.outstanding(0)), (1, Some(get())));
    let late = start + TIMEOUT + Nanos::new(1);
    assert!(!flight.give_up(start + TIMEOUT) && flight.give_up(late));
    assert!(!flight.give_up(late));
    assert_eq!((flight.count, flight.next()), (0, 10 * ROWS + 1));
}

/// A far or slow server is waited for; one that answers at once is not, even after a pause.
#[test]
fn a_lost_request_is_given_up_by_how_long_answers_take() {
    let traits = Fake::client(1, |_, _| vec![]).traits();
    let mut flight = Flight::new(vec![get(); PLAN], traits, TIMEOUT);
    assert_eq!(flight.give_up, TIMEOUT);
    flight.learn(Nanos::from_millis(30));
    assert_eq!(flight.give_up, Nanos::from_millis(240));
    let at_once = |flight: &mut Flight| {
        for _ in 0..100 {
            flight.learn(Nanos::from_micros(100));
        }
    };
    at_once(&mut flight);
    assert_eq!(flight.give_up, GIVE_UP);
    flight.learn(Nanos::from_secs(90));
    assert_eq!(flight.give_up, GIVE_UP_AT_LAST);
    at_once(&mut flight);
    assert_eq!(flight.give_up, GIVE_UP);
}

/// 32 requests in flight to one worker that takes 50 ms each: the last of them waits for longer than the time-out.
#[test]
fn requests_that_wait_for_one_another_are_not_given_up() {
    let stream = Traits {
        is_lossy: false,
        key_period: usize::MAX,
        ..Fake::client(1, |_, _| vec![]).traits()
    };
    let datagram = Fake::client(1, |_, _| vec![]).traits();
    for traits in [stream, datagram] {
        let mut flight = Flight::new(vec![get(); PLAN], traits, TIMEOUT);
        let start = Monotonic::from_nanos_since_boot(1);
        (0..32).for_each(|_| flight.sent(start));
        for k in 0..200 {
            let at = start + Nanos::from_millis(50) * (k as u64 + 1);
            assert!(!flight.give_up(at), "request {k}");
            flight.learn(flight.waited(k, at));
            flight.done(k);
            flight.sent(at);
        }
    }
}

#[test]
fn nasty_answers_are_counted_by_kind() {
    let nasty = |k: usize, request: &[u8]| {
        let id = u16::from_be_bytes([request[0], request[1]]);
        let right = answer(request);
        match k % 4 {
            0 => vec![right.clone(), right],
            1 => vec![b"garbage".to_vec(), right],
            2 => vec![datagram(id, 0, 1, b"SERVER_ERROR busy\r\n")],
            _ => vec![right],
        }
    };
    let errors = run(1000, nasty).errors;
    for count in [
        errors.unexpected_responses,
        errors.malformed_responses,
        errors.server_errors,
    ] {
        assert!(count >= (1000 - 32) / 4, "{errors:?}");
    }
    assert_eq!((errors.timeouts, errors.misses), (0, 0));
}

/// Refusals are no answers, however many come.
#[test]
fn a_server_that_refuses_everything_ends_the_run() {
    let mut client = Fake::client(4, |_, _| vec![]);
    client.transport.refuses = true;
    let load = ClosedLoop {
        outstanding: 1,
        length: Nanos::from_secs(3600),
        warm_up: Nanos::ZERO,
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let found = saturate(&mut client, &load, &mut NoHooks).unwrap();
    assert_eq!(found.stopped, Some(StopReason::Refused));
    assert_eq!(found.responses, 0);
}

#[test]
fn the_time_counted_begins_after_the_warm_up() {
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    let load = ClosedLoop {
        outstanding: 1,
        length: Nanos::from_millis(10),
        warm_up: Nanos::from_millis(20),
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let found = saturate(&mut client, &load, &mut NoHooks).unwrap();
    assert!(found.elapsed >= load.length);
    assert!(found.cpu_share > 0.0 && found.cpu_share <= 1.0);
    assert!(found.responses < load.progress.received());
    assert_eq!(found.stopped, None);
}

#[test]
fn time_without_the_cpu_is_no_cpu_time() {
    let mut client = Fake::client(4, |_, request| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        vec![answer(request)]
    });
    let load = ClosedLoop {
        outstanding: 1,
        // long beside a stall of the machine, which counts as CPU time
        length: Nanos::from_millis(300),
        warm_up: Nanos::ZERO,
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let found = saturate(&mut client, &load, &mut NoHooks).unwrap();
    assert!(found.cpu_share < 0.5, "{found:?}");
}

#[test]
fn nothing_is_sent_before_the_start() {
    let start = now() + Nanos::from_millis(20);
    let early = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&early);
    let mut client = Fake::client(4, move |_, request| {
        seen.fetch_or(now() < start, Relaxed);
        vec![answer(request)]
    });
    let load = ClosedLoop {
        outstanding: 1,
        length: Nanos::from_millis(5),
        warm_up: Nanos::ZERO,
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let found = saturate_from(&mut client, &load, &mut NoHooks, || start).unwrap();
    assert!(found.responses > 0 && !early.load(Relaxed));
}

#[test]
fn what_is_stopped_in_the_warm_up_has_counted_nothing() {
    let mut client = Fake::client(4, |_, _| vec![]);
    let progress = Progress::new();
    let load = ClosedLoop {
        outstanding: 1,
        length: Nanos::from_secs(3600),
        warm_up: Nanos::from_secs(3600),
        seed: 1,
        timeout: TIMEOUT,
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    // the second request replaces the first, which has timed out
    let mut hooks = Until {
        progress: &progress,
        requests: 2,
        idle: 0,
    };
    let found = saturate(&mut client, &load, &mut hooks).unwrap();
    assert_eq!(found.stopped, Some(StopReason::Hook));
    assert_eq!((found.responses, found.idle_share), (0, 0.0));
    assert_eq!(found.errors, LoadErrors::default());
}

#[test]
fn every_thread_has_requests_in_flight() {
    let usual = [1, 4, 16, 10_000].map(ClosedLoop::outstanding_for);
    assert_eq!(usual, [32, 32, 128, ClosedLoop::MAX_OUTSTANDING]);
}

#[test]
fn numbers_in_flight_that_cannot_be_are_refused() {
    for outstanding in [0, ClosedLoop::MAX_OUTSTANDING + 1] {
        let load = ClosedLoop {
            outstanding,
            length: Nanos::ZERO,
            warm_up: Nanos::ZERO,
            seed: 1,
            timeout: TIMEOUT,
            stop: &AtomicBool::new(false),
            progress: &Progress::new(),
        };
        let mut client = Fake::client(1, |_, _| vec![]);
        assert!(saturate(&mut client, &load, &mut NoHooks).is_err());
    }
}
