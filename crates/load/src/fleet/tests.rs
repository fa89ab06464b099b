use std::sync::atomic::AtomicUsize;

use taillab_model::summary::LoadErrors;

use super::*;
use crate::fake::{Fake, answer};
use crate::{DatagramClient, NoHooks};

type Clients = DatagramClient<Fake>;

const HOUR: Nanos = Nanos::from_secs(3600);

fn fleet(threads: usize) -> Fleet<Clients> {
    Fleet::connect(
        threads,
        |_| Ok(()),
        |_| Ok(Fake::client(4, |_, request| vec![answer(request)])),
    )
    .unwrap()
}

fn schedules(threads: usize, requests: usize) -> Vec<Vec<Nanos>> {
    let all: Vec<_> = (0..requests as u64).map(Nanos::from_micros).collect();
    deal(all, threads)
}

fn load(schedules: Vec<Vec<Nanos>>, stop: &AtomicBool) -> OpenFleet<'_> {
    OpenFleet {
        schedules,
        warm_up: Nanos::from_micros(100),
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        start: None,
        stop,
    }
}

/// All threads begin at the instant that was fixed, and what was due before they were ready is late.
#[test]
fn a_start_that_was_fixed_before_is_that_of_every_thread() {
    let stop = AtomicBool::new(false);
    for ahead in [Nanos::from_millis(20), Nanos::ZERO] {
        let at = crate::clock::now() + ahead;
        let fixed = OpenFleet {
            start: Some(at),
            ..load(schedules(3, 1000), &stop)
        };
        let run = fleet(3).open_loop(fixed, &mut NoHooks).unwrap();
        assert!(run.runs.iter().all(|part| part.record.start() == at));
        assert!(run.iter().all(|entry| entry.times.sent >= at));
        assert_eq!(run.iter().next().unwrap().times.intended, at);
    }
}

#[test]
fn threads_share_a_schedule_and_their_records_are_read_as_one() {
    let mut fleet = fleet(3);
    let progress = fleet.progress();
    let stop = AtomicBool::new(false);
    let run = fleet
        .open_loop(load(schedules(3, 1000), &stop), &mut NoHooks)
        .unwrap();
    assert_eq!(run.stopped, None);
    assert_eq!(run.errors(), LoadErrors::default());
    let start = run.start().unwrap();
    assert!(run.runs.iter().all(|part| part.record.start() == start));
    let due: Vec<_> = run.iter().map(|e| e.times.intended).collect();
    let expected: Vec<_> = (0..1000).map(|k| start + Nanos::from_micros(k)).collect();
    assert_eq!(due, expected);
    assert_eq!(run.iter_measured().count(), 900);
    let sends: Vec<_> = run.measured_turns().collect();
    assert!(sends.len() == 900 && sends.is_sorted());
    assert_eq!(run.cpu().requests, 900);
    assert_eq!((progress.sent(), progress.received()), (1000, 1000));
    // each thread draws its own keys
    let asked = |at: usize| {
        let entries = run.runs[at].record.iter().map(|e| e.operation);
        entries.collect::<Vec<_>>()
    };
    assert_ne!(asked(0)[..300], asked(1)[..300]);
}

/// At a low rate, many threads have few requests: one has none, one only in the warm-up.
#[test]
fn a_thread_without_a_request_holds_nobody_up() {
    let stop = AtomicBool::new(false);
    let due = |us: &[u64]| -> Vec<Nanos> { us.iter().copied().map(Nanos::from_micros).collect() };
    let few = vec![due(&[]), due(&[5]), due(&[10, 200, 300])];
    let run = fleet(3).open_loop(load(few, &stop), &mut NoHooks).unwrap();
    assert_eq!((run.stopped, run.iter().count()), (None, 4));
    assert_eq!(run.iter_measured().count(), 2);
    assert_eq!(run.cpu().requests, 2);
    let start = run.start().unwrap();
    assert!(run.runs.iter().all(|part| part.record.start() == start));
    let refused = |schedules| {
        let refused = fleet(3).open_loop(load(schedules, &stop), &mut NoHooks);
        refused.unwrap_err()
    };
    let none = refused(vec![Vec::new(); 3]);
    assert!(matches!(none, LoadError::EmptySchedule), "{none}");
    let warm_up = refused(vec![due(&[]), due(&[5]), due(&[10])]);
    assert!(
        matches!(warm_up, LoadError::NothingMeasured { .. }),
        "{warm_up}"
    );
}

#[test]
fn a_schedule_is_dealt_out_in_turn() {
    let all: Vec<_> = (0..7).map(Nanos::new).collect();
    let [a, b, c] = &deal(all, 3)[..] else {
        panic!("three hands");
    };
    let of = |times: &[u64]| times.iter().copied().map(Nanos::new).collect::<Vec<_>>();
    assert_eq!((a, b, c), (&of(&[0, 3, 6]), &of(&[1, 4]), &of(&[2, 5])));
}

#[test]
fn a_fleet_saturates_with_all_its_threads() {
    let mut fleet = fleet(2);
    let load = ClosedFleet {
        outstanding: 5,
        length: Nanos::from_millis(20),
        warm_up: Nanos::from_millis(5),
        seed: 1,
        timeout: HOUR,
        stop: &AtomicBool::new(false),
    };
    let found = fleet.saturate(&load, &mut NoHooks).unwrap();
    assert!(found.responses > 0 && found.elapsed >= load.length);
    assert_eq!(found.times.len() as u64, found.responses);
    assert_eq!(found.stopped, None);
    let none = ClosedFleet {
        outstanding: 0,
        ..load
    };
    let error = fleet.saturate(&none, &mut NoHooks).unwrap_err();
    assert!(matches!(error, LoadError::Outstanding { .. }));
}

/// An hour's schedule ends at once when the hook, the flag or another thread says so.
#[test]
fn what_ends_one_thread_ends_all() {
    struct Now;
    impl Hooks for Now {
        fn idle(&mut self, _: Nanos) {}
        fn should_stop(&mut self) -> bool {
            true
        }
    }
    let hour = || vec![vec![Nanos::from_millis(1), HOUR]; 3];
    let stop = AtomicBool::new(false);
    let run = fleet(3).open_loop(load(hour(), &stop), &mut Now).unwrap();
    assert_eq!(run.stopped, Some(StopReason::Hook));
    let set = AtomicBool::new(true);
    let run = fleet(3)
        .open_loop(load(hour(), &set), &mut NoHooks)
        .unwrap();
    assert_eq!(run.stopped, Some(StopReason::Interrupted));
    // thread 2's server panics at its first request
    let mut broken = Fleet::connect(
        3,
        |_| Ok(()),
        |at| {
            Ok(Fake::client(1, move |_, request| {
                assert!(at != 2, "as it was told");
                vec![answer(request)]
            }))
        },
    )
    .unwrap();
    let error = broken
        .open_loop(load(hour(), &stop), &mut NoHooks)
        .unwrap_err();
    let LoadError::ThreadPanicked { thread: 2, said } = error else {
        panic!("{error}");
    };
    assert!(said.contains("as it was told"), "{said}");
}

/// A thread that fails before the start does not keep the others waiting.
#[test]
fn threads_that_cannot_be_prepared_are_named() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let mut fleet = Fleet::connect(
        3,
        move |at| match counted.fetch_add(1, Relaxed) {
            0..3 => Ok(()),
            _ if at == 1 => Err("no such CPU".into()),
            _ => Ok(()),
        },
        |_| Ok(Fake::client(1, |_, request| vec![answer(request)])),
    )
    .unwrap();
    let stop = AtomicBool::new(false);
    let error = fleet
        .open_loop(load(schedules(3, 1000), &stop), &mut NoHooks)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("thread 1") && text.contains("no such CPU"),
        "{text}"
    );
    assert_eq!(calls.load(Relaxed), 6);
    let error = fleet
        .open_loop(load(schedules(2, 1000), &stop), &mut NoHooks)
        .unwrap_err();
    assert!(matches!(
        error,
        LoadError::Schedules {
            schedules: 2,
            threads: 3
        }
    ));
    let none = Fleet::<Clients>::connect(0, |_| Ok(()), |_| unreachable!()).err();
    assert!(matches!(none, Some(LoadError::NoThreads)));
}

#[test]
fn every_thread_plays_ping_pong() {
    let mut fleet = fleet(3);
    let progress = Progress::new();
    let load = PingPong {
        warm_up: Nanos::ZERO,
        length: HOUR,
        gap: Nanos::ZERO,
        most: 300,
        seed: 1,
        timeout: HOUR,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    let run = fleet.ping_pong(&load, &mut NoHooks).unwrap();
    assert_eq!(run.stopped, None);
    let records = run.runs.iter().map(|run| run.record.iter());
    let sent: Vec<_> = records.map(|entries| entries.len()).collect();
    assert_eq!(sent, [100; 3]);
    assert!(run.iter_measured().all(|e| e.service_time().is_some()));
}
