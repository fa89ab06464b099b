//! The matcher against a simulated server whose true stamps are known.

use crate::common;

use std::collections::HashMap;

use common::server::{Server, Traffic};
use common::{packets_in, packets_out};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::{DatagramIds, Framing, MatchOptions, Matched, match_events};
use taillab_model::{Event, EventKind, Monotonic, Nanos};

fn servers() -> impl Strategy<Value = Server> {
    (
        any::<u64>(),
        1..400_usize,
        1..=4_usize,
        0.1..1.1_f64,
        1..=3_u16,
    )
        .prop_map(|(seed, requests, threads, load, ports)| Server {
            seed,
            requests,
            threads,
            load,
            ports,
            ..Server::default()
        })
}

/// Options without rules that separate old requests with the same key; tests set the ones they need.
fn options() -> MatchOptions {
    MatchOptions {
        disorder: Nanos::ZERO,
        stale_after: Nanos::MAX,
        overtaken_after: Nanos::ZERO,
        answered: false,
        sequential: false,
        datagram_ids: Some(DatagramIds::Ids),
        framing: Framing::OneInTurn,
        stamps: taillab_model::MiddleStamps::All,
        hashed_clients: true,
    }
}

/// The fewest ids with which a client uses none again before its request is answered.
fn fewest_ids(server: &Server) -> u32 {
    let truth = server.run().truth;
    let oldest_open = |n: usize| {
        let t1 = truth[n].stamps.t1;
        truth[..n].iter().position(|older| older.stamps.t6 >= t1)
    };
    let apart = (0..truth.len()).filter_map(|n| Some(n - oldest_open(n)?));
    apart.max().unwrap_or(0) as u32 + 1
}

fn stays(seed: u64, share: f64) -> impl FnMut(&Event) -> bool {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    move |_| !rng.random_bool(share)
}

/// What holds whatever was lost: nothing is counted twice or forgotten, no match is
/// wrong, no time is negative, and the stages of a complete request make its sojourn.
fn check(matched: &Matched, traffic: &Traffic, events: &[Event]) -> Result<(), TestCaseError> {
    let unmatched = matched.unmatched.len();
    prop_assert_eq!(matched.requests.len() + unmatched, packets_in(events));
    let strays = matched.without_request.len() + matched.from_before as usize;
    let doubtful = matched.ambiguous.len() + strays;
    prop_assert_eq!(matched.requests.len() + doubtful, packets_out(events));
    prop_assert!(matched.requests.iter().is_sorted_by_key(|r| r.server.t1));

    let by_t1: HashMap<Monotonic, _> = traffic.truth.iter().map(|t| (t.stamps.t1, t)).collect();
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let truth = by_t1[&request.server.t1];
        prop_assert_eq!(*key, truth.key);
        prop_assert_eq!(request.server.t6, truth.stamps.t6, "a wrong match");
        if let Some(stages) = request.server.stages() {
            let sum: Nanos = stages.into_iter().sum();
            prop_assert_eq!(Some(sum), request.server.sojourn());
        }
    }

    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    prop_assert_eq!(counts.matched, matched.requests.len() as u64);
    prop_assert_eq!(
        counts.responses + matched.from_before,
        packets_out(events) as u64
    );
    prop_assert!(counts.complete + counts.out_of_order <= counts.matched);
    prop_assert!(counts.blind_requests <= counts.matched);
    Ok(())
}

proptest! {
    #![proptest_config(common::cases(300))]

    /// Nothing lost: every request is matched and complete, and every stamp is the true one.
    #[test]
    fn without_loss_every_stamp_is_exact(server in servers()) {
        let traffic = server.run();
        let matched = match_events(traffic.events.iter().copied(), &options());
        check(&matched, &traffic, &traffic.events)?;
        prop_assert_eq!(matched.requests.len(), traffic.truth.len());
        prop_assert!(matched.blind.is_empty());
        let first_of_thread = server.threads;
        let mut wrong = 0;
        for (request, truth) in matched.requests.iter().zip(&traffic.truth) {
            let mut stamps = request.server;
            // what a thread did before its first request was not recorded
            if stamps.t3.is_none() {
                wrong += 1;
                stamps.t3 = truth.stamps.t3;
            }
            prop_assert_eq!(stamps, truth.stamps);
        }
        prop_assert!(wrong <= first_of_thread);
        let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
        prop_assert_eq!(counts.complete, (traffic.truth.len() - wrong) as u64);
        prop_assert_eq!(counts.out_of_order, 0);
        prop_assert_eq!(counts.unanswered, 0);
    }

    /// Any events lost, keys used again only after their response and `stale_after`: no
    /// match is wrong.
    #[test]
    fn with_loss_no_match_is_wrong(
        server in servers(), share in 0.0..0.6_f64, more_ids in 0..50_u32,
    ) {
        let ids = fewest_ids(&server) + more_ids;
        let traffic = Server { ids, ..server }.run();
        let mut last_use = HashMap::new();
        let mut shortest = Nanos::MAX;
        for truth in &traffic.truth {
            if let Some(before) = last_use.insert(truth.key, truth.stamps.t1) {
                shortest = shortest.min(truth.stamps.t1.saturating_since(before));
            }
        }
        let events: Vec<Event> =
            traffic.events.iter().copied().filter(stays(server.seed, share)).collect();
        let options = MatchOptions { stale_after: shortest, ..options() };
        let matched = match_events(events.iter().copied(), &options);
        check(&matched, &traffic, &events)?;
    }

    /// Responses lost, keys used again at any time: what overtaking proves is right, and
    /// the rest is ambiguous.
    #[test]
    fn with_lost_responses_and_reused_keys_no_match_is_wrong(
        server in servers(), share in 0.0..0.6_f64, ids in 1..40_u32,
    ) {
        let traffic = Server { ids, ..server }.run();
        let mut stays = stays(server.seed, share);
        let is_out = |e: &Event| matches!(e.kind, EventKind::PacketOut { .. });
        let events: Vec<Event> =
            traffic.events.iter().copied().filter(|e| !is_out(e) || stays(e)).collect();
        let matched = match_events(events.iter().copied(), &options());
        check(&matched, &traffic, &events)?;
    }

    /// Keys come round again as soon as their request is answered: all are matched.
    #[test]
    fn a_key_that_comes_round_after_its_response_is_no_ambiguity(server in servers()) {
        let ids = fewest_ids(&server);
        let traffic = Server { ids, ..server }.run();
        let matched = match_events(traffic.events.iter().copied(), &options());
        check(&matched, &traffic, &traffic.events)?;
        prop_assert_eq!(matched.requests.len(), traffic.truth.len());
    }

    /// Keys come round while their request is open: those are ambiguous, none is wrong.
    #[test]
    fn a_key_in_use_twice_at_once_is_never_guessed(server in servers(), ids in 1..8_u32) {
        let traffic = Server { ids, ..server }.run();
        let matched = match_events(traffic.events.iter().copied(), &options());
        check(&matched, &traffic, &traffic.events)?;
    }

    /// The network delivers some packets twice, and the server answers both.
    #[test]
    fn a_packet_that_comes_twice_is_never_guessed(server in servers(), share in 0.0..0.3_f64) {
        let traffic = server.run();
        let mut once = stays(server.seed, share);
        let mut doubled: Vec<Event> = Vec::new();
        for event in &traffic.events {
            doubled.push(*event);
            let twice = matches!(
                event.kind, EventKind::PacketIn { .. } | EventKind::PacketOut { .. }
            );
            if twice && !once(event) {
                doubled.push(Event { at: event.at + Nanos::new(1), ..*event });
            }
        }
        doubled.sort_by_key(|event| event.at);
        let matched = match_events(doubled.iter().copied(), &options());
        // of the packets of one key, only one that is alone can be matched
        let mut of_key: HashMap<_, usize> = HashMap::new();
        for event in &doubled {
            if let EventKind::PacketIn { key, .. } = event.kind {
                *of_key.entry(key).or_default() += 1;
            }
        }
        for key in &matched.keys {
            prop_assert_eq!(of_key[key], 1);
        }
        let alone = of_key.values().filter(|packets| **packets == 1).count();
        prop_assert_eq!(matched.requests.len(), alone);
    }

    /// Events that are out of place by up to `disorder` give the same result as in order.
    #[test]
    fn bounded_disorder_changes_nothing(
        server in servers(), slack in 1..5_000_000_u64, share in 0.0..0.2_f64,
    ) {
        let traffic = server.run();
        let in_order: Vec<Event> =
            traffic.events.iter().copied().filter(stays(server.seed, share)).collect();
        // the order of two events of the same nanosecond cannot be restored, so they are delayed alike
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(server.seed);
        let mut delays: HashMap<Monotonic, Nanos> = HashMap::new();
        let mut place = |at| at + *delays.entry(at)
            .or_insert_with(|| Nanos::new(rng.random_range(0..=slack)));
        let mut shuffled: Vec<_> = in_order.iter().map(|e| (place(e.at), *e)).collect();
        shuffled.sort_by_key(|(place, _)| *place);
        let expected = match_events(in_order, &options());
        let options = MatchOptions { disorder: Nanos::new(slack), ..options() };
        let matched = match_events(shuffled.into_iter().map(|(_, e)| e), &options);
        prop_assert_eq!(matched.late_events, 0);
        prop_assert_eq!(matched.requests, expected.requests);
        prop_assert_eq!(matched.unmatched, expected.unmatched);
        prop_assert_eq!(matched.blind, expected.blind);
    }

    /// Events in no order at all: no panic, no negative time, nothing forgotten.
    #[test]
    fn any_order_is_survived(server in servers()) {
        let traffic = server.run();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(server.seed);
        let mut shuffled: Vec<(u64, Event)> =
            traffic.events.iter().map(|e| (rng.random(), *e)).collect();
        shuffled.sort_by_key(|(place, _)| *place);
        let events: Vec<Event> = shuffled.into_iter().map(|(_, event)| event).collect();
        let matched = match_events(events.iter().copied(), &options());
        prop_assert_eq!(matched.requests.len() + matched.unmatched.len(), packets_in(&events));
        prop_assert!(matched.requests.iter().is_sorted_by_key(|r| r.server.t1));
        prop_assert!(matched.requests.iter().all(|r| r.server.sojourn().is_some()));
        prop_assert!(matched.requests.iter().all(|r| r.server.stages().is_none_or(
            |stages| Some(stages.into_iter().sum()) == r.server.sojourn())));
        matched.counts(Monotonic::from_nanos_since_boot(0));
    }

    /// The probe is blind on the server's CPU for some stretches: all that can be known is right, T3
    /// is right or missing, and the windows that are found cover the true ones.
    #[test]
    fn a_blind_cpu_costs_no_request_and_invents_nothing(
        server in servers(), share in 0.0..1.0_f64, preemption in 0.0..0.2_f64,
    ) {
        let mut traffic = Server { threads: 1, preemption, ..server }.run();
        let stretches = traffic.hide_behind_init(server.seed, share);
        let matched = match_events(traffic.events.iter().copied(), &options());
        check(&matched, &traffic, &traffic.events)?;
        prop_assert_eq!(matched.requests.len(), traffic.truth.len());
        for (request, truth) in matched.requests.iter().zip(&traffic.truth) {
            let ([t2, t3, t4, t5], truth) = (request.server.middle(), truth.stamps.middle());
            prop_assert_eq!([t4, t5], [truth[2], truth[3]]);
            prop_assert!(t2.is_none() || t2 == truth[0]);
            prop_assert!(t3.is_none() || t3 == truth[1], "{:?} {:?}", request, truth);
        }
        prop_assert_eq!(matched.blind.len(), stretches.len());
        for (window, stretch) in matched.blind.iter().zip(&stretches) {
            prop_assert!(window.from <= stretch.from && stretch.to <= window.to);
        }
    }
}
