//! The open loop against servers that are functions: no network, and no assertion on
//! how long anything takes.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use taillab_model::summary::LoadErrors;
use taillab_model::{Nanos, Outcome};

use super::*;
use crate::DatagramClient;
use crate::fake::{Fake, answer, datagram};

/// So long that no test depends on the time-out.
const HOUR: Nanos = Nanos::from_secs(3600);

/// Sends everything at once and ends when all is sent and nothing more comes.
fn run_all(client: &mut DatagramClient<Fake>, n: usize, measure_from: usize) -> LoadRun {
    struct Done<'a>(&'a Progress, usize, bool);
    impl Hooks for Done<'_> {
        fn idle(&mut self, _until_next: Nanos) {
            self.2 = self.0.sent() == self.1 as u64;
        }
        fn should_stop(&mut self) -> bool {
            self.2
        }
    }
    let progress = Progress::new();
    let load = OpenLoop {
        schedule: vec![Nanos::ZERO; n],
        measure_from,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    let run = open_loop(client, load, &mut Done(&progress, n, false)).unwrap();
    check(&run);
    assert_eq!(run.record.iter().len(), n);
    run
}

fn run(
    client: &mut DatagramClient<Fake>,
    schedule: Vec<Nanos>,
    measure_from: usize,
    timeout: Nanos,
    hooks: &mut impl Hooks,
) -> LoadRun {
    let load = OpenLoop {
        schedule,
        measure_from,
        seed: 1,
        timeout,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let run = open_loop(client, load, hooks).unwrap();
    check(&run);
    run
}

/// What must hold for every run: one row and one outcome for each request sent, sends
/// never early, counts that add up.
fn check(run: &LoadRun) {
    let record = &run.record;
    assert_eq!(record.get(record.iter().len()), None);
    let mut counted = LoadErrors {
        unexpected_responses: run.errors.unexpected_responses,
        malformed_responses: run.errors.malformed_responses,
        ..LoadErrors::default()
    };
    let mut before = None;
    for (k, entry) in record.iter().enumerate() {
        assert!(entry.times.sent >= entry.times.intended);
        assert!(before <= Some(entry.times.sent));
        before = Some(entry.times.sent);
        assert_eq!(entry.warm_up, !record.measured().contains(&k));
        let answered = matches!(
            entry.outcome,
            Outcome::Hit | Outcome::Miss | Outcome::Stored | Outcome::ServerError
        );
        if answered {
            let (times, received) = (entry.times, entry.times.received.unwrap());
            assert!(received >= times.sent);
            let took = received.saturating_since(times.sent);
            assert_eq!(entry.service_time(), Some(took));
        }
        if !entry.warm_up {
            match entry.outcome {
                Outcome::TimedOut => counted.timeouts += 1,
                Outcome::SendFailed => counted.send_errors += 1,
                Outcome::ServerError => counted.server_errors += 1,
                Outcome::Miss => counted.misses += 1,
                Outcome::ConnectionLost => counted.lost_with_connection += 1,
                Outcome::Malformed => counted.malformed_responses += 1,
                Outcome::Hit | Outcome::Stored | Outcome::Done => {}
            }
        }
    }
    assert_eq!(run.errors, counted);
}

#[test]
fn every_request_is_answered_and_recorded_once() {
    let mut client = Fake::client(16, |_, request| vec![answer(request)]);
    let result = run_all(&mut client, 5000, 1000);
    assert_eq!(result.record.measured(), 1000..5000);
    assert_eq!(result.record.iter_measured().len(), 4000);
    assert_eq!(result.record.measured_turns().len(), 4000);
    assert_eq!(result.errors, LoadErrors::default());
    assert_eq!(result.stopped, None);
    assert_eq!(result.cpu.requests, 4000);
}

#[test]
fn silence_ends_in_time_outs() {
    let mut client = Fake::client(4, |_, _| vec![]);
    let result = run_all(&mut client, 300, 100);
    assert_eq!(result.errors.timeouts, 200);
    assert!(result.record.iter().all(|e| e.times.received.is_none()));
}

#[test]
fn nasty_servers_are_counted_by_kind() {
    let mut client = Fake::client(4, |k, request| {
        let id = u16::from_be_bytes([request[0], request[1]]);
        let right = answer(request);
        match k % 8 {
            0 => vec![right.clone(), right],
            1 => vec![b"garbage that is no frame".to_vec(), right],
            2 => vec![right[..right.len() - 3].to_vec()],
            3 => vec![datagram(id.wrapping_add(1000), 0, 1, b"END\r\n"), right],
            4 => vec![datagram(id, 0, 1, b"SERVER_ERROR out of memory\r\n")],
            5 => vec![datagram(id, 0, 1, b"hello\r\n"), right],
            6 => vec![],
            _ => vec![right],
        }
    });
    let result = run_all(&mut client, 800, 0);
    let expected = LoadErrors {
        timeouts: 200,
        server_errors: 100,
        unexpected_responses: 200,
        malformed_responses: 300,
        ..LoadErrors::default()
    };
    assert_eq!(result.errors, expected);
}

#[test]
fn sends_that_the_kernel_refuses_stay_in_the_record() {
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    client.transport.refuse_sends = 150;
    let result = run_all(&mut client, 400, 100);
    assert_eq!(result.errors.send_errors, 50);
    assert_eq!(result.errors.timeouts, 0);
}

/// Request 0 gets no answer; its id comes back 65,536 requests later on one connection,
/// while an answer to it could still come.
#[test]
fn an_answer_that_two_requests_could_have_is_nobodys() {
    let n = (1 << 16) + 10;
    let mut client = Fake::client(1, move |k, request| match k {
        0 => vec![],
        _ => vec![answer(request)],
    });
    let result = run_all(&mut client, n, 0);
    let [first, second] = [0, 1 << 16].map(|k| result.record.get(k).unwrap());
    assert_eq!(first.key, second.key);
    assert_eq!(first.outcome, Outcome::TimedOut);
    assert_eq!(second.outcome, Outcome::TimedOut);
    assert_eq!(result.errors.timeouts, 2);
    assert_eq!(result.errors.unexpected_responses, 1);
}

#[test]
fn a_set_stop_flag_ends_the_run_with_what_was_measured() {
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let mut client = Fake::client(4, move |k, request| {
        if k == 500 {
            set.store(true, Relaxed);
        }
        vec![answer(request)]
    });
    // an hour of one request per millisecond
    let schedule: Vec<_> = (0..3_600_000).map(Nanos::from_micros).collect();
    let load = OpenLoop {
        schedule: schedule.iter().map(|&t| t * 1000).collect(),
        measure_from: 100,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        stop: &stop,
        progress: &Progress::new(),
    };
    let result = open_loop(&mut client, load, &mut NoHooks).unwrap();
    check(&result);
    assert_eq!(result.stopped, Some(StopReason::Interrupted));
    let sent = result.record.iter().len();
    assert!(sent > 500 && sent < 3_600_000);
    assert_eq!(result.record.measured(), 100..sent);
    assert_eq!(result.errors, LoadErrors::default());
}

#[test]
fn a_stop_during_the_warm_up_leaves_an_empty_measurement() {
    struct Now;
    impl Hooks for Now {
        fn idle(&mut self, _until_next: Nanos) {}
        fn should_stop(&mut self) -> bool {
            true
        }
    }
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    let schedule: Vec<_> = (0..1_000_000).map(Nanos::from_millis).collect();
    let result = run(
        &mut client,
        schedule,
        900_000,
        Nanos::from_secs(1),
        &mut Now,
    );
    assert_eq!(result.stopped, Some(StopReason::Hook));
    assert!(result.record.measured().is_empty());
    assert_eq!(result.cpu, CpuUse::default());
    assert_eq!(result.cpu.cost().cpu_ns_per_request, Nanos::ZERO);
}

/// At a pace, the clock says when the measurement begins, whatever number the schedule says.
#[test]
fn a_paced_run_that_ends_in_its_warm_up_has_measured_nothing() {
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    let load = OpenLoop {
        schedule: vec![Nanos::ZERO; 10],
        measure_from: 5,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let pace = Pace::new(HOUR, HOUR * 2, HOUR * 2);
    let hooks = &mut NoHooks;
    let result = open_loop_from(&mut client, load, Some(&pace), hooks, crate::clock::now).unwrap();
    check(&result);
    assert_eq!(result.record.iter().len(), 10);
    assert!(result.record.measured().is_empty());
    assert_eq!(result.cpu, CpuUse::default());
}

#[test]
fn the_hook_runs_only_far_from_a_send() {
    struct Spy(Rc<Cell<u64>>);
    impl Hooks for Spy {
        fn idle(&mut self, until_next: Nanos) {
            assert!(until_next >= HOOK_GUARD);
            self.0.set(self.0.get() + 1);
        }
    }
    let calls = Rc::new(Cell::new(0));
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    let schedule: Vec<_> = (0..200).map(|k| Nanos::from_micros(k * 100)).collect();
    let mut spy = Spy(Rc::clone(&calls));
    run(&mut client, schedule, 0, Nanos::from_secs(1), &mut spy);
    assert!(calls.get() > 0);
}

#[test]
fn schedules_that_cannot_be_sent_are_refused() {
    let attempt = |schedule: Vec<Nanos>, measure_from| {
        let mut client = Fake::client(1, |_, _| vec![]);
        let load = OpenLoop {
            schedule,
            measure_from,
            seed: 1,
            timeout: Nanos::ZERO,
            waiting: Waiting::Spin,
            stop: &AtomicBool::new(false),
            progress: &Progress::new(),
        };
        open_loop(&mut client, load, &mut NoHooks).unwrap_err()
    };
    use crate::LoadError::*;
    assert!(matches!(attempt(vec![], 0), EmptySchedule));
    let backwards = vec![Nanos::new(2), Nanos::new(1)];
    assert!(matches!(attempt(backwards, 0), UnsortedSchedule { at: 1 }));
    assert!(matches!(
        attempt(vec![Nanos::ZERO], 1),
        NothingMeasured {
            measure_from: 1,
            requests: 1
        }
    ));
}

/// However many answers wait, a late send waits for at most as many looks as there were
/// sends before it in a row, and those are few: requests all due at once, and for each a
/// hundred answers that nobody asked for.
#[test]
fn a_flood_of_answers_does_not_hold_back_sends() {
    const FLOOD: usize = 100;
    let requests = 400;
    let mut client = Fake::client(4, |_, request| vec![answer(request); FLOOD]);
    let looks = Arc::clone(&client.transport.looks_before_send);
    let result = run_all(&mut client, requests, 0);
    let looks = looks.lock().unwrap();
    assert_eq!(looks.len(), requests);
    // what was looked for before the first was due
    let looks = &looks[1..];
    assert!(looks.iter().all(|&looks| looks <= 4), "{looks:?}");
    let turns = looks.iter().filter(|&&looks| looks > 0).count();
    assert!(
        turns >= requests / 4 - 1,
        "answers are looked for in between: {looks:?}"
    );
    // those of the last request need not be read any more
    let extra = ((FLOOD - 1) * (requests - 1)) as u64;
    assert!(result.errors.unexpected_responses >= extra);
}

/// Far more is due than can be sent: at a millisecond for each, it would take 20 s.
#[test]
fn a_generator_that_cannot_keep_up_ends_when_the_time_is_up() {
    let mut client = Fake::client(4, |_, request| {
        std::thread::sleep(Duration::from_millis(1));
        vec![answer(request)]
    });
    let n = 20_000;
    let schedule = vec![Nanos::ZERO; n];
    let result = run(&mut client, schedule, 0, HOUR, &mut NoHooks);
    let sent = result.record.iter().len();
    assert!(sent < n, "{sent}");
    assert_eq!((result.unsent, result.stopped), (n - sent, None));
}

/// Being held up is no part of the time in which it can send.
#[test]
fn a_generator_that_was_held_up_at_the_end_makes_up_for_it() {
    let mut client = Fake::client(4, |k, request| {
        if k == 10 {
            std::thread::sleep(Duration::from_millis(1_500));
        }
        vec![answer(request)]
    });
    let result = run(&mut client, vec![Nanos::ZERO; 200], 0, HOUR, &mut NoHooks);
    assert_eq!((result.record.iter().len(), result.unsent), (200, 0));
}

#[test]
fn a_hybrid_wait_sends_everything_and_never_early() {
    let mut client = Fake::client(4, |_, request| vec![answer(request)]);
    let naps = Arc::clone(&client.transport.naps);
    let load = OpenLoop {
        // a gap at the end that is long enough to sleep in, however busy the machine is
        schedule: (0..50).chain([500]).map(Nanos::from_millis).collect(),
        measure_from: 0,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Hybrid,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let result = open_loop(&mut client, load, &mut NoHooks).unwrap();
    check(&result);
    assert_eq!(result.errors, LoadErrors::default());
    assert!(naps.load(Relaxed) > 0);
    assert!(result.cpu.asleep > Nanos::ZERO);
    assert!(result.cpu.asleep + result.cpu.idle + result.cpu.hook <= result.cpu.elapsed);
}

/// Plays for up to an hour, with any end.
fn played(client: &mut DatagramClient<Fake>, most: usize, timeout: Nanos) -> LoadRun {
    let load = PingPong {
        warm_up: Nanos::ZERO,
        length: HOUR,
        gap: Nanos::ZERO,
        most,
        seed: 1,
        timeout,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    ping_pong(client, &load, &mut NoHooks).unwrap()
}

/// Plays until all requests are over.
fn play(client: &mut DatagramClient<Fake>, most: usize, timeout: Nanos) -> LoadRun {
    let run = played(client, most, timeout);
    check(&run);
    assert_eq!(run.record.iter().len(), most);
    run
}

/// On each connection, a request is intended for the moment when the one before was
/// answered, and is not sent earlier.
#[test]
fn ping_pong_has_one_request_in_flight_on_each_connection() {
    for connections in [1, 3] {
        let mut client = Fake::client(connections, |_, request| vec![answer(request)]);
        let run = play(&mut client, 600, HOUR);
        assert_eq!(run.errors, LoadErrors::default());
        let times: Vec<_> = run.record.iter().map(|e| e.times).collect();
        for (k, next) in times.iter().enumerate().skip(connections) {
            let before = times[k - connections];
            assert_eq!(before.received, Some(next.intended));
        }
    }
}

#[test]
fn ping_pong_keeps_the_gap() {
    let gap = Nanos::from_micros(50);
    let mut client = Fake::client(1, |_, request| vec![answer(request)]);
    let load = PingPong {
        warm_up: Nanos::ZERO,
        length: HOUR,
        gap,
        most: 50,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let run = ping_pong(&mut client, &load, &mut NoHooks).unwrap();
    check(&run);
    let times: Vec<_> = run.record.iter().map(|e| e.times).collect();
    assert!(
        times
            .windows(2)
            .all(|pair| pair[0].received.unwrap() + gap == pair[1].intended)
    );
}

/// Every third request is lost: the play goes on after the time-out.
#[test]
fn ping_pong_survives_lost_answers() {
    let mut client = Fake::client(2, |k, request| match k % 3 {
        0 => vec![],
        _ => vec![answer(request)],
    });
    let run = play(&mut client, 30, Nanos::from_millis(2));
    assert!(run.errors.timeouts >= 10, "{:?}", run.errors);
    assert_eq!(run.errors.unexpected_responses, 0);
}

#[test]
fn ping_pong_survives_sends_that_the_kernel_refuses() {
    let mut client = Fake::client(2, |_, request| vec![answer(request)]);
    client.transport.refuse_sends = 10;
    let run = play(&mut client, 30, HOUR);
    assert_eq!(run.errors.send_errors, 10);
    assert_eq!(run.errors.timeouts, 0);
}

/// It looks between failed sends, and so learns that the server refuses, long before its requests are
/// used up.
#[test]
fn ping_pong_with_a_dead_server_ends_early() {
    let mut client = Fake::client(1, |_, _| vec![]);
    client.transport.refuse_sends = usize::MAX;
    client.transport.refuses = true;
    let most = 2_000_000;
    let run = played(&mut client, most, Nanos::from_millis(2));
    assert_eq!(run.stopped, Some(StopReason::Refused));
    assert!(run.errors.send_errors < most as u64 / 10);
}

#[test]
fn ping_pong_without_time_or_requests_is_refused() {
    for (length, most) in [(Nanos::ZERO, 1), (HOUR, 0)] {
        let load = PingPong {
            warm_up: Nanos::ZERO,
            length,
            gap: Nanos::ZERO,
            most,
            seed: 1,
            timeout: HOUR,
            waiting: Waiting::Spin,
            stop: &AtomicBool::new(false),
            progress: &Progress::new(),
        };
        let mut client = Fake::client(1, |_, _| vec![]);
        assert!(ping_pong(&mut client, &load, &mut NoHooks).is_err());
    }
}
