//! Compares each account with the reference account, for servers with long queues.

use std::collections::BTreeMap;

use proptest::prelude::*;
use taillab_model::explanation::Cause;
use taillab_model::{Asleep, Event, EventKind, PacketId, RequestKey, ThreadName, Tid};

use super::*;
use crate::ledger::SharedQueues;
use crate::ledger::account::reference;
use crate::ledger::label::CulpritId;
use crate::timeline::NET_RX;
use crate::window::{Window, Windows};
use crate::{DatagramIds, MatchOptions, match_events};

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tests/ledger/kernel.rs"]
mod kernel;

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tests/ledger/crew.rs"]
mod crew;

use crew::Crew;
use kernel::{Order, Plan, Trouble, WORKER, What};

/// What the checks covered.
#[derive(Debug, Default)]
struct Checked {
    requests: usize,
    /// In the server at the same time.
    longest_queue: usize,
    late: usize,
    told: usize,
    /// Delays and sums that were looked at for one request, at most.
    most_looked_at: usize,
}

/// The pieces and the account blame the same: each label has in the pieces at most what it has in the
/// account, to which a share of the receive softirqs and of others' slow services was moved.
fn same_causes(entry: &Entry<'_>, labels: &Labels) {
    let moved = |label| match labels.cause(label) {
        Cause::SlowService | Cause::Imbalance => Some((Cause::Imbalance, CulpritId::Nobody)),
        Cause::Softirq if labels.who(label) == CulpritId::Softirq(NET_RX) => None,
        cause => Some((cause, labels.who(label))),
    };
    let mut left: BTreeMap<(Cause, CulpritId), u64> = BTreeMap::new();
    for &(label, ns) in entry.parts {
        if let Some(key) = moved(label) {
            *left.entry(key).or_default() += ns;
        }
    }
    for piece in entry.pieces {
        let Some(key) = moved(piece.label) else {
            continue;
        };
        let ns = left.entry(key).or_default();
        let rest = ns.checked_sub(piece.lasted_ns);
        *ns = rest.unwrap_or_else(|| panic!("{key:?} of request {}", entry.place));
    }
}

struct Checker {
    attribution: Attribution,
    checked: Checked,
}

impl Checker {
    /// Handles what happens before `until_ns`, and draws each account up a second time.
    fn until(&mut self, until_ns: u64) {
        let (attribution, checked) = (&mut self.attribution, &mut self.checked);
        while let Some((at_ns, event)) = attribution.server.events.pop_before(until_ns) {
            let RequestEvent::Answered(id) = event else {
                attribution.handle(event, at_ns, &mut |_, _| {});
                continue;
            };
            let server = &mut attribution.server;
            checked.longest_queue = checked.longest_queue.max(server.requests.len());
            if let Some(w) = server.requests[id].worker {
                server.settle(w, at_ns);
            }
            let t_ns = attribution.options.service_time.get();
            let (case, labels) = case(server, id, &attribution.resent, t_ns);
            let expected = reference::draw_up(&case, &attribution.fixed, labels);
            let (place, wanted) = (case.request.place, case.request.wanted);
            checked.late += usize::from(case.request.late.is_some());
            checked.told += usize::from(wanted);
            checked.requests += 1;
            attribution.handle(event, at_ns, &mut |entry, labels| {
                assert_eq!(entry.parts, expected.parts(), "request {place}");
                assert_eq!(entry.excess, expected.excess, "request {place}");
                let sum: u64 = entry.parts.iter().map(|part| part.1).sum();
                assert_eq!(sum, entry.sojourn_ns, "request {place}");
                let pieces: u64 = entry.pieces.iter().map(|piece| piece.lasted_ns).sum();
                assert_eq!(pieces, if wanted { sum } else { 0 }, "request {place}");
                same_causes(entry, labels);
            });
            if !wanted {
                let looked_at = attribution.account.looked_at;
                checked.most_looked_at = checked.most_looked_at.max(looked_at);
            }
        }
    }

    /// The same as [`Attribution::follow`].
    fn follow(&mut self, window: &Window) {
        let from_ns = self.attribution.upto_ns;
        (self.attribution.server).enter(&window.matched, &window.timeline, from_ns);
        for arrival in window.matched.arrivals() {
            let t1_ns = arrival.t1.nanos_since_boot();
            self.until(t1_ns);
            self.attribution.came_in(&window.matched, &arrival, t1_ns);
        }
        self.attribution.requests_before += window.matched.requests.len();
        let upto_ns = window.upto.nanos_since_boot();
        self.attribution.upto_ns = upto_ns;
        self.until(upto_ns);
        let least_ns = upto_ns.saturating_sub(LOOK_BACK.get());
        self.attribution.server.leave(least_ns, upto_ns);
    }
}

fn check(
    plan: &Plan,
    options: &LedgerOptions,
    trace_from: Nanos,
    requests_in_window: Option<usize>,
) -> Checked {
    let (events, context) = (plan.run().events, plan.context());
    check_events(&events, &context, options, (trace_from, requests_in_window))
}

fn check_events(
    events: &[Event],
    context: &RecordingContext,
    options: &LedgerOptions,
    (trace_from, requests_in_window): (Nanos, Option<usize>),
) -> Checked {
    let matching = MatchOptions {
        stale_after: Nanos::from_secs(10),
        overtaken_after: Nanos::from_secs(10),
        datagram_ids: Some(DatagramIds::Ids),
        ..MatchOptions::default()
    };
    let windows = match requests_in_window {
        None => vec![Window::whole(
            match_events(events.iter().copied(), &matching),
            Timeline::build(events.iter().copied(), context),
        )],
        Some(requests) => {
            let mut windows = Windows::new(matching, context, requests);
            let events = events.iter();
            let mut found: Vec<Window> = events.filter_map(|e| windows.observe(e)).collect();
            found.push(windows.finish(0));
            found
        }
    };
    let first = &windows[0];
    let t = options.service_time;
    let usual = Baseline::of(&first.matched, &first.timeline, t, None);
    let options = LedgerOptions {
        queues: SharedQueues::of(&first.matched),
        ..options.clone()
    };
    let mut attribution = Attribution::new(context, &options, usual);
    attribution.trace_from(trace_from);
    let mut checker = Checker {
        attribution,
        checked: Checked::default(),
    };
    windows.iter().for_each(|window| checker.follow(window));
    checker.checked
}

fn options(plan: &Plan) -> LedgerOptions {
    let workers = plan.gaps.len() as u32;
    LedgerOptions {
        service_time: plan.service_time(),
        after_response: Nanos::ZERO,
        workers: std::num::NonZeroU32::new(workers).unwrap(),
        measure_from: Monotonic::from_nanos_since_boot(0),
        queues: SharedQueues::default(),
    }
}

/// A server with every kind of disturbance, whose queue grows to `queue` requests.
fn busy(queue: usize, requests: usize) -> Plan {
    Plan {
        requests,
        at_once: queue,
        gaps: vec![17_000.0],
        culprits: 20,
        disturbances: vec![
            (What::Thread, 5_000_000, 900_000),
            (What::Interrupt, 300_000, 30_000),
            (What::Softirq(3), 900_000, 30_000),
            (What::Softirq(1), 900_000, 10_000),
            (What::HeldBack, 8_000_000, 900_000),
            (What::Stall(true), 8_000_000, 400_000),
        ],
        idle_exit: 2_000,
        ..Plan::default()
    }
}

/// With a queue ten times as long, each request takes about as much work.
#[test]
fn the_work_for_a_request_does_not_grow_with_the_queue() {
    let most = [300, 3_000, 9_000].map(|queue| {
        let plan = Plan {
            trouble: Some((3, Trouble::Slow(20_000))),
            ..busy(queue, queue + 1_000)
        };
        let checked = check(&plan, &options(&plan), Nanos::MAX, None);
        assert!(checked.longest_queue >= queue / 10 * 9, "{checked:?}");
        checked.most_looked_at
    });
    // 25 labels or so, in at most a block of each size and side
    assert!(most[2] < 2 * most[0] && most[2] < 1_000, "{most:?}");
}

/// The same for one queue of four workers on four CPUs, all of which have more to do than they can: what one of them
/// loses is in the histories of all.
#[test]
fn the_work_for_a_request_does_not_grow_with_a_shared_queue() {
    let most = [300, 3_000, 9_000].map(|queue| {
        let crew = Crew {
            requests: 4 * queue,
            workers: 4,
            cpus: 4,
            utilization: 1.5,
            disturbances: vec![
                (What::Thread, 5_000_000, 900_000),
                (What::Interrupt, 300_000, 30_000),
            ],
            slow: Some((3, 20_000)),
            ..Crew::default()
        };
        let options = LedgerOptions {
            service_time: crew.service_time(),
            workers: std::num::NonZeroU32::new(4).unwrap(),
            ..options(&Plan::default())
        };
        let whole = (Nanos::MAX, None);
        let checked = check_events(&crew.run().events, &crew.context(), &options, whole);
        assert!(checked.longest_queue >= queue, "{checked:?}");
        checked.most_looked_at
    });
    assert!(most[2] < 2 * most[0] && most[2] < 1_000, "{most:?}");
}

#[test]
fn what_gets_no_entry_is_not_split_into_pieces() {
    let plan = busy(300, 600);
    let split = |measure_from| {
        let options = LedgerOptions {
            measure_from,
            ..options(&plan)
        };
        check(&plan, &options, Nanos::ZERO, None).told
    };
    assert!(split(Monotonic::from_nanos_since_boot(0)) > 500);
    assert_eq!(split(Monotonic::MAX), 0);
}

/// Two workers sleep on CPU 0. Both are woken; one moves to CPU 1 and answers while the other waits for CPU
/// 0 behind another thread.
fn woken_together() -> Vec<Event> {
    const MOVES: Tid = 12;
    const OTHER: Tid = 77;
    let key = |id: u32| RequestKey::hashed(0, 40_000, id as u16);
    let switched = |prev, next, sleeps: bool| EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: sleeps.then_some(Asleep {
            call: Some(232),
            uninterruptible: false,
            stopped: false,
        }),
    };
    let packet_in = |id| EventKind::PacketIn {
        packet: PacketId(id),
        key: key(id),
    };
    let queued = |id| EventKind::Enqueued {
        packet: PacketId(id),
    };
    let woken = |tid| EventKind::Woken { tid, by: 0 };
    let read = |tid| EventKind::ReadReturned { tid, returned: 64 };
    let write = |tid| EventKind::WriteCalled { tid };
    let out = |tid, id| EventKind::PacketOut { tid, key: key(id) };
    let events = [
        (1_000, 0, switched(0, WORKER, false)),
        (2_000, 0, switched(WORKER, 0, true)),
        (3_000, 0, switched(0, MOVES, false)),
        (4_000, 0, switched(MOVES, 0, true)),
        (5_000, 1, switched(OTHER, 0, false)),
        (10_000, 2, packet_in(1)),
        (10_500, 2, packet_in(2)),
        (11_000, 0, queued(1)),
        (11_100, 0, woken(WORKER)),
        (11_500, 0, queued(2)),
        (11_600, 0, woken(MOVES)),
        (12_000, 0, switched(0, OTHER, false)),
        (12_100, 1, switched(0, MOVES, false)),
        (13_000, 1, read(MOVES)),
        (20_000, 1, write(MOVES)),
        (21_000, 1, out(MOVES, 2)),
        (22_000, 1, switched(MOVES, 0, true)),
        (40_000, 0, switched(OTHER, WORKER, false)),
        (41_000, 0, read(WORKER)),
        (50_000, 0, write(WORKER)),
        (51_000, 0, out(WORKER, 1)),
    ];
    let event = |(ns, cpu, kind)| Event {
        at: Monotonic::from_nanos_since_boot(ns),
        cpu,
        kind,
    };
    events.map(event).into()
}

#[test]
fn a_worker_that_has_moved_to_another_cpu_overtakes_nobody() {
    let events = woken_together();
    let context = RecordingContext {
        threads: [WORKER, 12, 77]
            .map(|tid| ThreadName {
                tid,
                pid: tid,
                comm: "worker".to_owned(),
                server: tid != 77,
                real_time: Some(false),
            })
            .into(),
        ..RecordingContext::default()
    };
    let matching = MatchOptions {
        datagram_ids: Some(DatagramIds::Ids),
        ..MatchOptions::default()
    };
    let matched = match_events(events.iter().copied(), &matching);
    let timeline = Timeline::build(events.iter().copied(), &context);
    let options = LedgerOptions {
        service_time: Nanos::from_micros(10),
        after_response: Nanos::ZERO,
        workers: std::num::NonZeroU32::new(2).unwrap(),
        measure_from: Monotonic::from_nanos_since_boot(0),
        queues: SharedQueues::of(&matched),
    };
    let usual = Baseline::of(&matched, &timeline, options.service_time, None);
    let mut attribution = Attribution::new(&context, &options, usual);
    let mut causes: Vec<Vec<Cause>> = Vec::new();
    attribution.follow(&matched, &timeline, Monotonic::MAX, |entry, labels| {
        let parts = entry.parts.iter();
        causes.push(parts.map(|part| labels.cause(part.0)).collect());
    });
    // in the order of T6
    assert_eq!(causes.len(), 2, "{causes:?}");
    assert!(causes[1].contains(&Cause::Background), "{causes:?}");
    assert!(!causes.concat().contains(&Cause::Order), "{causes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn an_account_is_what_it_is_delay_by_delay(
        seed in 0_u64..1_000_000,
        workers in 1_usize..4,
        queue in prop::sample::select(vec![0_usize, 200, 1_500]),
        order in prop::sample::select(vec![Order::Fifo, Order::Lifo, Order::Any(10), Order::Any(1)]),
        trouble in prop::sample::select(vec![
            None,
            Some((7, Trouble::Slow(20_000))),
            Some((50, Trouble::Read(90_000))),
            Some((30, Trouble::Sleep { call: Some(202), uninterruptible: false, length: 60_000 })),
            Some((2, Trouble::Sleep { call: Some(35), uninterruptible: false, length: 9_000 })),
        ]),
        window in prop::option::of(Just(1_000_usize)),
    ) {
        // only slower servers have their recordings cut into windows
        let slower = if window.is_some() { 10 } else { 1 };
        let plan = Plan {
            seed,
            gaps: vec![17_000.0 * slower as f64; workers],
            service: 12_000 * slower,
            order,
            trouble,
            real_time: seed % 2 == 0,
            ..busy(queue, 2_500 * workers)
        };
        let checked = check(&plan, &options(&plan), Nanos::from_millis(2), window);
        prop_assert!(checked.longest_queue >= queue / 10 * 8 && checked.told > 0, "{:?}", checked);
        prop_assert!(checked.requests >= 2_400 * workers, "{:?}", checked);
        let inverted = order != Order::Fifo && queue > 0;
        prop_assert!(!inverted || checked.late > 0, "{:?}", checked);
    }

    #[test]
    fn an_account_of_a_shared_queue_is_what_it_is_delay_by_delay(
        seed in 0_u64..1_000_000,
        cpus in 2_usize..5,
        per_cpu in 1_usize..3,
        slow in prop::option::of(Just((20, 100_000))),
        window in prop::option::of(Just(1_000_usize)),
    ) {
        let slower = if window.is_some() { 10 } else { 1 };
        let crew = Crew {
            seed,
            requests: 4_000 * cpus,
            workers: cpus * per_cpu,
            cpus,
            utilization: 0.85,
            service: 12_000 * slower,
            disturbances: vec![
                (What::Thread, 5_000_000, 900_000 * slower),
                (What::Interrupt, 300_000, 30_000),
            ],
            slow,
            ..Crew::default()
        };
        let options = LedgerOptions {
            service_time: crew.service_time(),
            workers: std::num::NonZeroU32::new(cpus as u32).unwrap(),
            ..options(&Plan::default())
        };
        let parts = (Nanos::from_micros(300), window);
        let checked = check_events(&crew.run().events, &crew.context(), &options, parts);
        prop_assert!(checked.told > 0, "{:?}", checked);
        prop_assert_eq!(checked.requests, crew.requests);
    }
}
