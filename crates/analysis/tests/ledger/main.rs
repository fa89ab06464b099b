//! The ledger on a simulated kernel whose truth is known.

mod chains;
pub(crate) mod crew;
mod forecasts;
mod happened;
mod ideal;
mod kernel;
mod order;
mod own;
mod parts;
mod queues;
mod sending;
mod slices;
mod stops;
mod story;
mod waits;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use kernel::{BURST, HOLDER, Order, Plan, Traffic, Trouble, WORKER, What};
use proptest::prelude::*;
use taillab_analysis::timeline::{Timeline, busy_stretches};
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Matched, Window, match_events};
use taillab_model::explanation::{Cause, CauseShare, Culprit, Explanation};
use taillab_model::{Event, EventKind, Monotonic, Nanos, RecordingContext};

/// Excess by cause, and what the named culprits have of it.
#[derive(Debug, Default)]
struct Charged {
    causes: BTreeMap<Cause, u64>,
    culprits: BTreeMap<(Cause, Option<Culprit>), u64>,
    excess: u64,
}

struct Found {
    matched: Matched,
    charged: Charged,
    causes: Vec<CauseShare>,
    explanation: Explanation,
}

fn options(plan: &Plan) -> AnalysisOptions {
    let workers = NonZeroU32::new(plan.gaps.len() as u32).expect("a plan has a CPU");
    let from = Monotonic::from_nanos_since_boot(0);
    AnalysisOptions::new(plan.service_time(), workers, from)
}

/// Explains the events of a plan.
fn explained(plan: &Plan, events: &[Event]) -> Found {
    explained_in(&plan.context(), options(plan), events)
}

/// Explains the events, and checks each account on the way.
fn explained_in(context: &RecordingContext, options: AnalysisOptions, events: &[Event]) -> Found {
    let is_stream = |event: &Event| matches!(event.kind, EventKind::SegmentIn { .. });
    let match_options = match events.iter().any(is_stream) {
        true => MatchOptions::for_streams(Nanos::from_secs(1), false),
        false => MatchOptions::default(),
    };
    let matched = match_events(events.iter().copied(), &match_options);
    let timeline = Timeline::build(events.iter().copied(), context);
    let mut charged = Charged::default();
    let mut accounts = 0;
    let each = |entry: &taillab_analysis::ledger::Entry<'_>,
                labels: &taillab_analysis::ledger::Labels| {
        accounts += 1;
        let sum = |parts: &[(u32, u64)]| parts.iter().map(|part| part.1).sum::<u64>();
        assert_eq!(sum(entry.parts), entry.sojourn_ns);
        let excess = entry.sojourn_ns.saturating_sub(entry.ideal_ns);
        assert_eq!(sum(entry.excess), excess);
        if !entry.pieces.is_empty() {
            let pieces: u64 = entry.pieces.iter().map(|piece| piece.lasted_ns).sum();
            assert_eq!(pieces, entry.sojourn_ns, "{entry:?}");
        }
        charged.excess += excess;
        for &(label, ns) in entry.excess {
            *charged.causes.entry(labels.cause(label)).or_default() += ns;
            let culprit = (labels.cause(label), labels.culprit(label));
            *charged.culprits.entry(culprit).or_default() += ns;
        }
    };
    let window = Arc::new(Window::whole(matched, timeline));
    let mut analysis = Analysis::new(context, options);
    analysis.push(&window, each);
    let matched = window.matched.clone();
    assert_eq!(accounts, matched.requests.len());
    // where no request was matched there is nothing to explain
    let server = analysis.finish(0).ok().map(|sums| sums.unjudged().server);
    assert_eq!(server.is_some(), !matched.requests.is_empty());
    let (causes, explanation) = server.map_or_else(Default::default, |server| {
        (server.causes, server.explanation.unwrap_or_default())
    });
    for band in &explanation.bands {
        let parts: f64 = band.parts.iter().map(|part| part.mean_excess_ns).sum();
        let excess = band.mean_sojourn_ns - band.mean_ideal_ns;
        assert!(
            (parts - excess).abs() < 1e-6 * band.mean_sojourn_ns,
            "{band:?}"
        );
    }
    Found {
        matched,
        charged,
        causes,
        explanation,
    }
}

/// What the plan's disturbances cost all requests.
fn injected(plan: &Plan, traffic: &Traffic) -> u64 {
    let calm = plan.without_disturbances().run();
    let pairs = traffic.truth.iter().zip(&calm.truth);
    pairs
        .map(|(with, without)| with.t6.saturating_sub(without.t6))
        .sum()
}

/// The plan's disturbances cost `cause` at least nine tenths of what they cost the requests,
/// and no other cause more than a twentieth of it.
fn assert_charged(plan: &Plan, cause: Cause, culprit: Option<&Culprit>) {
    let traffic = plan.run();
    let truth = injected(plan, &traffic);
    assert!(truth > 10_000_000, "the plan disturbs: {truth}");
    let found = explained(plan, &traffic.events);
    assert_eq!(found.matched.requests.len(), traffic.truth.len());
    let calm = plan.without_disturbances();
    let without = explained(&calm, &calm.run().events).charged;
    let charged = &found.charged;
    let of = |charged: &Charged, cause| charged.causes.get(&cause).copied().unwrap_or(0) as f64;
    let shares: Vec<(Cause, f64)> = Cause::ALL
        .iter()
        .map(|&other| {
            (
                other,
                (of(charged, other) - of(&without, other)) / truth as f64,
            )
        })
        .filter(|(_, share)| *share != 0.0)
        .collect();
    for &(other, share) in &shares {
        if other == cause {
            assert!(
                (0.9..1.1).contains(&share),
                "{cause:?} of {truth}: {shares:?}"
            );
        } else {
            assert!(share.abs() < 0.05, "{other:?} of {truth}: {shares:?}");
        }
    }
    if let Some(culprit) = culprit {
        let key = (cause, Some(culprit.clone()));
        let of = charged.culprits.get(&key).copied().unwrap_or(0);
        assert!(
            of as f64 > 0.9 * truth as f64,
            "{culprit} of {truth}: {:?}",
            charged.culprits
        );
    }
    let largest = &found.causes[0];
    assert_eq!((largest.cause, &largest.culprit), (cause, &None));
}

fn thread(name: &str, tid: u32) -> Culprit {
    Culprit::Thread {
        name: name.to_owned(),
        pid: Some(tid),
        tid: Some(tid),
        process: None,
    }
}

fn softirq(name: &str) -> Culprit {
    Culprit::Softirq {
        name: name.to_owned(),
    }
}

#[test]
fn nothing_is_charged_where_nothing_is_wrong() {
    let plan = Plan::default();
    let found = explained(&plan, &plan.run().events);
    let known = [Cause::StackRx, Cause::Wakeup, Cause::Softirq, Cause::Irq];
    for (cause, ns) in &found.charged.causes {
        let share = *ns as f64 / found.charged.excess as f64;
        assert!(
            known.contains(cause) || share < 0.05,
            "{:#?}",
            found.charged
        );
    }
}

#[test]
fn another_thread_on_the_core_is_background_also_for_those_who_come_later() {
    let plan = Plan {
        disturbances: vec![(What::Thread, 60_000_000, 2_000_000)],
        ..Plan::default()
    };
    assert_charged(&plan, Cause::Background, Some(&thread("burst", BURST)));
    // loaded: each burst delays a hundred requests and more
    let plan = Plan {
        gaps: vec![21_000.0],
        ..plan
    };
    assert_charged(&plan, Cause::Background, Some(&thread("burst", BURST)));
    // receiving is two fifths of t, so it is in every wait behind others
    let plan = Plan {
        service: 5_000,
        gaps: vec![9_000.0],
        ..plan
    };
    assert_charged(&plan, Cause::Background, Some(&thread("burst", BURST)));
}

#[test]
fn interrupts_and_softirqs_are_charged_by_name() {
    let interrupt = Culprit::Interrupt {
        name: "irq 5".to_owned(),
        number: Some(5),
    };
    let plan = |what| Plan {
        disturbances: vec![(what, 1_000_000, 60_000)],
        ..Plan::default()
    };
    assert_charged(&plan(What::Interrupt), Cause::Irq, Some(&interrupt));
    assert_charged(
        &plan(What::Softirq(1)),
        Cause::Softirq,
        Some(&softirq("TIMER")),
    );
    // a flood of packets that are not the server's
    assert_charged(
        &plan(What::Softirq(3)),
        Cause::Softirq,
        Some(&softirq("NET_RX")),
    );
}

#[test]
fn a_slow_request_delays_those_behind_it() {
    let plan = Plan {
        trouble: Some((500, Trouble::Slow(500_000))),
        ..Plan::default()
    };
    let worker = Culprit::Worker {
        name: "worker".to_owned(),
        tid: WORKER,
    };
    assert_charged(&plan, Cause::SlowService, Some(&worker));
}

/// All work takes longer for a while, though nothing else runs.
#[test]
fn a_slower_cpu_is_no_slow_service() {
    let plan = Plan {
        gaps: vec![30_000.0],
        slow_cpu: Some((200_000_000, 300_000_000, 1.5)),
        ..Plan::default()
    };
    assert_charged(&plan, Cause::SlowCpu, None);
}

#[test]
fn a_sleep_in_the_middle_is_told_by_its_reason() {
    let plan = |call, uninterruptible| Plan {
        trouble: Some((
            300,
            Trouble::Sleep {
                call,
                uninterruptible,
                length: 400_000,
            },
        )),
        ..Plan::default()
    };
    let holder = thread("holder", HOLDER);
    assert_charged(&plan(Some(202), false), Cause::BlockedLock, Some(&holder));
    let pread = Culprit::SystemCall {
        name: "pread64".to_owned(),
    };
    assert_charged(&plan(Some(17), true), Cause::BlockedIo, Some(&pread));
    assert_charged(&plan(None, true), Cause::BlockedFault, None);
    let sleep = Culprit::SystemCall {
        name: "clock_nanosleep".to_owned(),
    };
    assert_charged(&plan(Some(230), false), Cause::BlockedOther, Some(&sleep));
}

#[test]
fn a_read_on_the_time_of_its_cpu_is_the_disks_also_for_packets_that_it_keeps_waiting() {
    let plan = Plan {
        trouble: Some((300, Trouble::Read(1_000_000))),
        ..Plan::default()
    };
    let traffic = plan.run();
    let truth = injected(&plan, &traffic) as f64;
    let charged = explained(&plan, &traffic.events).charged;
    let pread = Culprit::SystemCall {
        name: "pread64".to_owned(),
    };
    let of_disk = charged.culprits[&(Cause::BlockedIo, Some(pread))] as f64;
    assert!(of_disk > 0.9 * truth, "{truth} {:?}", charged.causes);
    // what comes all at once then waits for the packets before it
    let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0) as f64;
    let unclear = of(Cause::Unexplained) + of(Cause::Hypervisor);
    assert!(unclear < 0.01 * truth, "{truth} {:?}", charged.causes);
}

#[test]
fn an_idle_cpu_that_leaves_the_worker_waiting_holds_it_back() {
    let plan = |what| Plan {
        gaps: vec![20_000.0],
        disturbances: vec![(what, 50_000_000, 5_000_000)],
        real_time: true,
        ..Plan::default()
    };
    assert_charged(&plan(What::HeldBack), Cause::Throttled, None);
    // who runs meanwhile takes nothing from it
    assert_charged(&plan(What::HeldBackBeside), Cause::Throttled, None);
    assert_charged(&plan(What::HeldBackInSoftirqs), Cause::Throttled, None);
}

#[test]
fn nobody_is_held_back_without_a_quota_or_real_time_scheduling() {
    let plan = Plan {
        gaps: vec![20_000.0],
        disturbances: vec![(What::HeldBack, 50_000_000, 5_000_000)],
        ..Plan::default()
    };
    // it was woken, and nobody else had the CPU: a wake-up that took long
    assert_charged(&plan, Cause::Wakeup, None);
}

#[test]
fn others_on_the_cpu_take_nothing_from_a_worker_that_its_quota_holds_back() {
    let plan = |told| Plan {
        gaps: vec![20_000.0],
        disturbances: vec![(What::HeldBackInACrowd(told), 50_000_000, 5_000_000)],
        ..Plan::default()
    };
    assert_charged(&plan(true), Cause::Throttled, None);
    // without the group's word an idle millisecond may have other reasons
    let charged = explained(&plan(false), &plan(false).run().events).charged;
    let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0);
    assert!(of(Cause::Background) > of(Cause::Throttled), "{charged:?}");
}

#[test]
fn an_ordinary_thread_that_has_the_cpu_of_a_real_time_worker_for_long_is_throttling() {
    let plan = |real_time, length| Plan {
        gaps: vec![20_000.0],
        disturbances: vec![(What::Thread, 50_000_000, length)],
        real_time,
        ..Plan::default()
    };
    let is_throttling = |plan: &Plan| {
        let charged = explained(plan, &plan.run().events).charged;
        let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0);
        of(Cause::Throttled) > 10 * of(Cause::Background)
    };
    assert!(is_throttling(&plan(true, 5_000_000)));
    assert!(!is_throttling(&plan(true, 500_000)));
    assert!(!is_throttling(&plan(false, 5_000_000)));
}

#[test]
fn a_stall_is_the_hypervisors_only_with_evidence() {
    let plan = |canary| Plan {
        gaps: vec![18_000.0],
        disturbances: vec![(What::Stall(canary), 60_000_000, 2_000_000)],
        ..Plan::default()
    };
    let traffic = plan(true).run();
    let seen = explained(&plan(true), &traffic.events).charged;
    let truth = injected(&plan(true), &traffic);
    let hypervisor = seen.causes[&Cause::Hypervisor] as f64;
    // those that hit an idle CPU are silent for nobody
    assert!(hypervisor > 0.8 * truth as f64, "{truth} {:?}", seen.causes);
    // the CPU that took the packets in went on: then it was this one
    let mut events = plan(false).run().events;
    let missed = explained(&plan(false), &events).charged;
    let hypervisor = missed.causes[&Cause::Hypervisor] as f64;
    assert!(
        hypervisor > 0.7 * truth as f64,
        "{truth} {:?}",
        missed.causes
    );
    assert!(
        hypervisor < 1.1 * truth as f64,
        "{truth} {:?}",
        missed.causes
    );
    // each by a CPU of its own: nobody shows that it went on
    let came = |event: &&mut Event| matches!(event.kind, EventKind::PacketIn { .. });
    let packets = events.iter_mut().filter(came);
    for (place, packet) in packets.enumerate() {
        packet.cpu = 10 + (place % 500) as u16;
    }
    let unseen = explained(&plan(false), &events).charged;
    assert_eq!(unseen.causes.get(&Cause::Hypervisor), None);
}

#[test]
fn a_timer_that_a_cpu_hears_late_since_it_stood_still_is_no_slow_service() {
    let asleep = 300_000;
    let plan = |disturbances| Plan {
        gaps: vec![500_000.0],
        requests: 5_000,
        disturbances,
        trouble: Some((
            1,
            Trouble::Sleep {
                call: Some(230),
                uninterruptible: false,
                length: asleep,
            },
        )),
        ..Plan::default()
    };
    let stalls = plan(vec![(What::Stall(false), 60_000_000, 5_000_000)]);
    let (disturbed, calm) = (stalls.run(), plan(Vec::new()).run());
    let pairs = disturbed.truth.iter().zip(&calm.truth);
    let cost: u64 = pairs
        .map(|(with, without)| with.t6.saturating_sub(without.t6))
        .sum();
    let with_sleep = Plan {
        service: stalls.service + asleep,
        ..stalls
    };
    let charged = explained(&with_sleep, &disturbed.events).charged;
    let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0) as f64 / cost as f64;
    assert!(of(Cause::Hypervisor) > 0.7, "{cost} {:?}", charged.causes);
    assert!(of(Cause::SlowService) < 0.2, "{cost} {:?}", charged.causes);
}

#[test]
fn a_deep_power_state_costs_its_exit() {
    let plan = Plan {
        gaps: vec![400_000.0],
        idle_exit: 150_000,
        requests: 5_000,
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let state = (Cause::IdleExit, Some(Culprit::IdleState { state: 2 }));
    let charged = found.charged.culprits.get(&state).copied().unwrap_or(0);
    // its usual way to the socket is what the median says, and that is nearly all exit
    let explained = charged + found.charged.causes[&Cause::StackRx];
    assert!(
        explained as f64 > 0.9 * found.charged.excess as f64,
        "{:#?}",
        found.charged
    );
}

#[test]
fn the_last_first_is_order() {
    let plan = Plan {
        gaps: vec![18_000.0],
        order: Order::Lifo,
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let order = found.charged.causes[&Cause::Order] as f64;
    assert!(
        order > 0.6 * found.charged.excess as f64,
        "{:#?}",
        found.charged
    );
    assert!(found.explanation.inversions.share > 0.1);
    let fifo = Plan {
        order: Order::Fifo,
        ..plan
    };
    let found = explained(&fifo, &fifo.run().events);
    assert_eq!(found.explanation.inversions.overtaken, 0);
}

/// What a request does itself takes as long in any order. Its own reads keep their cause, those of
/// requests that overtake it are order.
#[test]
fn what_a_late_request_does_itself_is_not_order() {
    let read = 90_000;
    let plan = Plan {
        gaps: vec![24_000.0],
        order: Order::Lifo,
        trouble: Some((30, Trouble::Read(read))),
        requests: 30_000,
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let own = (plan.requests as u64).div_ceil(30) * read;
    let charged = found.charged.causes[&Cause::BlockedIo];
    // behind a read, others wait in any order
    assert!(charged > own / 10 * 9, "{charged} of {own}");
    let order = found.charged.causes[&Cause::Order];
    assert!(order > own, "{:#?}", found.charged);
}

#[test]
fn one_busy_and_one_idle_worker_are_imbalance() {
    let plan = Plan {
        gaps: vec![18_500.0, 200_000.0],
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let imbalance = found.charged.causes[&Cause::Imbalance] as f64;
    assert!(
        imbalance > 0.6 * found.charged.excess as f64,
        "{:#?}",
        found.charged
    );
    let fit = &found.explanation.curves;
    assert!(fit.iter().any(|curve| curve.name == "multi_queue_ideal"));
    assert_eq!(found.explanation.workers.len(), 2);
}

#[test]
fn two_at_once_are_told_apart() {
    let plan = Plan {
        disturbances: vec![(What::Thread, 80_000_000, 2_000_000)],
        trouble: Some((700, Trouble::Slow(700_000))),
        ..Plan::default()
    };
    let alone = |plan: &Plan| injected(plan, &plan.run()) as f64;
    let threads = alone(&Plan {
        trouble: None,
        ..plan.clone()
    });
    let slow = alone(&Plan {
        disturbances: Vec::new(),
        ..plan.clone()
    });
    let charged = explained(&plan, &plan.run().events).charged;
    let background = charged.causes[&Cause::Background] as f64 / threads;
    let slow_service = charged.causes[&Cause::SlowService] as f64 / slow;
    // where they meet, the sum is more than the two alone
    assert!(
        (0.9..1.4).contains(&background),
        "{background} {charged:#?}"
    );
    assert!(
        (0.9..1.4).contains(&slow_service),
        "{slow_service} {charged:#?}"
    );
}

#[test]
fn the_busy_time_is_about_what_a_request_costs() {
    let plan = Plan::default();
    let events = plan.run().events;
    let matched = match_events(events.iter().copied(), &MatchOptions::default());
    let timeline = Timeline::build(events, &plan.context());
    let from = Monotonic::from_nanos_since_boot(0);
    let busy = busy_stretches(&matched, &timeline, from, 1).pop().unwrap();
    let wanted = plan.service_time().get() as f64;
    let off = busy.get() as f64 / wanted - 1.0;
    assert!(off.abs() < 0.1, "{busy} for {wanted}");
}

#[test]
fn the_slowest_requests_are_whole() {
    let plan = Plan {
        disturbances: vec![(What::Thread, 60_000_000, 2_000_000)],
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    let slowest = &found.explanation.slowest;
    assert_eq!(slowest.len(), 20);
    assert!(slowest.is_sorted_by(|a, b| a.sojourn_ns >= b.sojourn_ns));
    for request in slowest {
        let sum: Nanos = request.stretches.iter().map(|s| s.lasted_ns).sum();
        assert_eq!(sum, request.sojourn_ns);
        assert!(!request.activities.is_empty());
    }
    let cells: u64 = found.explanation.heat_map.counts.iter().flatten().sum();
    assert_eq!(cells, found.matched.requests.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever was lost, late or contradictory: `explained` asserts each sum.
    #[test]
    fn sums_are_exact_whatever_is_missing(
        seed in 0..1_000_u64,
        lost in 0.0_f64..0.3,
        gap in 14_000.0_f64..60_000.0,
        order in prop::sample::select(vec![Order::Fifo, Order::Lifo, Order::Any(10)]),
        at_once in prop::sample::select(vec![0_usize, 500]),
    ) {
        let plan = Plan {
            seed,
            requests: 1_500,
            gaps: vec![gap, 2.0 * gap],
            disturbances: vec![
                (What::Thread, 5_000_000, 900_000),
                (What::Interrupt, 900_000, 30_000),
                (What::Softirq(3), 900_000, 30_000),
                (What::HeldBack, 8_000_000, 900_000),
                (What::Stall(true), 8_000_000, 400_000),
            ],
            trouble: Some((50, Trouble::Sleep { call: Some(202), uninterruptible: false, length: 90_000 })),
            idle_exit: 2_000,
            at_once,
            culprits: 8,
            order,
            ..Plan::default()
        };
        let mut events = plan.run().events;
        let mut state = seed;
        events.retain(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 >= lost
        });
        let found = explained(&plan, &events);
        prop_assert!(!found.matched.requests.is_empty() || lost > 0.0);
    }
}
