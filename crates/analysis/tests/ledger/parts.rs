//! A recording in many parts gives what it gives as a whole.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use proptest::prelude::*;
use taillab_analysis::ledger::{Follower, LedgerOptions, Usual, Who};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{MatchOptions, Part, Parts, match_events};
use taillab_model::explanation::Cause;
use taillab_model::{Event, Monotonic, Nanos, Tid};

use super::kernel::{Plan, Trouble, What};

/// Everything that is charged to one request.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    t1: Monotonic,
    worker: Tid,
    /// Sojourn, ideal, ideal of its own worker.
    lengths: [u64; 3],
    parts: Vec<(Cause, Who, u64)>,
    excess: Vec<(Cause, Who, u64)>,
    overtaken_by: Option<(usize, Tid)>,
    pieces: u64,
}

/// What was not answered does not hold a part up for long.
fn options() -> MatchOptions {
    MatchOptions {
        stale_after: Nanos::from_millis(300),
        ..MatchOptions::default()
    }
}

fn whole(events: &[Event], plan: &Plan) -> Part {
    Part::whole(
        match_events(events.iter().copied(), &options()),
        Timeline::build(events.iter().copied(), &plan.context()),
    )
}

fn parts(events: &[Event], plan: &Plan, requests: usize) -> Vec<Part> {
    let mut parts = Parts::new(options(), &plan.context(), requests);
    let mut found: Vec<Part> = events
        .iter()
        .filter_map(|event| parts.observe(event))
        .collect();
    found.push(parts.finish(0));
    found
}

/// The accounts by the requests' places, and time in service by worker.
fn accounts(
    parts: &[Part],
    plan: &Plan,
    usual: Usual,
) -> (BTreeMap<usize, Account>, Vec<(Tid, u64)>) {
    let options = LedgerOptions {
        service_time: plan.service_time(),
        workers: NonZeroU32::new(plan.gaps.len() as u32).expect("a plan has a CPU"),
        measure_from: Monotonic::from_nanos_since_boot(0),
        trace_from: Nanos::from_micros(400),
    };
    let mut follower = Follower::new(&plan.context(), &options, usual);
    let mut found = BTreeMap::new();
    for part in parts {
        follower.follow(&part.matched, &part.timeline, part.upto, |entry, labels| {
            let named = |parts: &[(u32, u64)]| {
                let named = parts.iter();
                let mut named: Vec<_> = named
                    .map(|&(label, ns)| (labels.cause(label), labels.who(label), ns))
                    .collect();
                named.sort_unstable();
                named
            };
            let account = Account {
                t1: entry.stamps.t1,
                worker: entry.worker,
                lengths: [entry.sojourn_ns, entry.ideal_ns, entry.own_queue_ideal_ns],
                parts: named(entry.parts),
                excess: named(entry.excess),
                overtaken_by: entry.overtaken_by,
                pieces: entry.pieces.iter().map(|piece| piece.lasted_ns).sum(),
            };
            assert!(found.insert(entry.place, account).is_none(), "given twice");
        });
    }
    (found, follower.finish().served_ns)
}

/// What the plan emits, without one event in so many.
fn with_losses(plan: &Plan, one_in: u64) -> Vec<Event> {
    let mut state = plan.seed;
    let mut events = plan.run().events;
    events.retain(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        !(state >> 33).is_multiple_of(one_in)
    });
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn many_parts_charge_what_one_does(
        seed in 0_u64..1_000,
        one_in in prop::sample::select(vec![300_u64, 5_000, 1_000_000]),
        requests in 200_usize..3_000,
        two in any::<bool>(),
        trouble in prop::option::of(Just((300, Trouble::Sleep {
            call: Some(202), uninterruptible: false, length: 400_000,
        }))),
    ) {
        let plan = Plan {
            seed,
            requests: 12_000,
            gaps: if two { vec![160_000.0, 190_000.0] } else { vec![120_000.0] },
            service: 60_000,
            disturbances: vec![(What::Thread, 60_000_000, 3_000_000)],
            trouble,
            ..Plan::default()
        };
        let events = with_losses(&plan, one_in);
        let one = whole(&events, &plan);
        let usual = Usual::of(&one.matched, &one.timeline, plan.service_time());
        let many = parts(&events, &plan, requests);
        prop_assert!(many.len() > 1, "only one part of {requests}");
        let count = |parts: &[Part]| {
            let of = parts.iter().map(|part| &part.matched);
            of.fold([0; 4], |sum, matched| [
                sum[0] + matched.requests.len(),
                sum[1] + matched.unmatched.len(),
                sum[2] + matched.ambiguous.len(),
                sum[3] + matched.without_request.len(),
            ])
        };
        prop_assert_eq!(count(&many), count(std::slice::from_ref(&one)));
        let (charged, served) = accounts(&many, &plan, usual);
        let (truth, truly_served) = accounts(&[one], &plan, usual);
        prop_assert_eq!(charged.len(), truth.len());
        for (place, account) in &truth {
            prop_assert_eq!(charged.get(place), Some(account), "request {}", place);
        }
        prop_assert_eq!(served, truly_served);
    }
}
