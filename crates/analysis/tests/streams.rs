//! The matcher against simulated servers of streams whose true stamps are known.

use crate::common;

use std::collections::HashMap;

use common::connections::{Connections, Style, Traffic, Truth, Writes};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{Event, EventKind, Monotonic, Nanos};

fn worlds() -> impl Strategy<Value = Connections> {
    let style = prop_oneof![Just(Style::One), Just(Style::Together), Just(Style::Each)];
    let writes = prop_oneof![
        Just(Writes::OfThread),
        Just(Writes::Known),
        Just(Writes::Held)
    ];
    let size = (1..6_usize, 1..80_usize);
    (
        any::<u64>(),
        size,
        style,
        writes,
        0.0..0.2_f64,
        any::<bool>(),
    )
        .prop_map(
            |(seed, (connections, requests), style, writes, resent, greets)| Connections {
                seed,
                connections,
                requests,
                style,
                in_flight: 1,
                bytes: 0,
                head_and_body: false,
                writes,
                resent,
                swapped: 0.0,
                greets,
            },
        )
}

fn any_server() -> impl Strategy<Value = Connections> {
    (worlds(), any::<bool>()).prop_map(|(world, later)| Connections {
        style: if later { Style::Later } else { world.style },
        bytes: 40,
        ..world
    })
}

/// The events from a place on, like a recording that begins in mid-load.
fn from(traffic: &Traffic, place: f64) -> Vec<Event> {
    let begin = (traffic.events.len() as f64 * place) as usize;
    traffic.events[begin..].to_vec()
}

fn options(sequential: bool) -> MatchOptions {
    MatchOptions {
        disorder: Nanos::ZERO,
        overtaken_after: Nanos::from_millis(1),
        ..MatchOptions::for_streams(Nanos::from_secs(1), sequential)
    }
}

fn matched(events: &[Event], sequential: bool) -> Matched {
    match_events(events.iter().copied(), &options(sequential))
}

/// No match is wrong, nothing is counted twice, and no stamp is another request's.
fn check(matched: &Matched, traffic: &Traffic) -> Result<(), TestCaseError> {
    let by_t1: HashMap<Monotonic, &Truth> = traffic.truth.iter().map(|t| (t.t1, t)).collect();
    prop_assert!(matched.requests.iter().is_sorted_by_key(|r| r.server.t1));
    let mut seen = HashMap::new();
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let stamps = request.server;
        let truth = by_t1.get(&stamps.t1).copied();
        let Some(truth) = truth else {
            return Err(TestCaseError::fail("a request that was none"));
        };
        prop_assert!(seen.insert(stamps.t1, ()).is_none(), "matched twice");
        prop_assert_eq!(*key, truth.key);
        prop_assert!(
            truth.t6.contains(&stamps.t6),
            "a wrong match: {stamps:?} {truth:?}"
        );
        let [t2, t3, t4, _] = stamps.middle();
        prop_assert!(t2.is_none_or(|t2| t2 == truth.t2), "{stamps:?} {truth:?}");
        prop_assert!(t4.is_none_or(|t4| t4 == truth.t4), "{stamps:?} {truth:?}");
        prop_assert!(t3.is_none_or(|t3| t3 <= truth.t4), "{stamps:?} {truth:?}");
    }
    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    prop_assert_eq!(counts.matched, matched.requests.len() as u64);
    prop_assert!(counts.complete + counts.out_of_order <= counts.matched);
    Ok(())
}

/// In addition to [`check`], every request is there with all its stamps but T3, which needs switches.
fn check_all(matched: &Matched, traffic: &Traffic) -> Result<(), TestCaseError> {
    check(matched, traffic)?;
    prop_assert_eq!(&matched.unmatched, &[]);
    prop_assert_eq!(&matched.without_request, &[]);
    prop_assert_eq!(matched.requests.len(), traffic.truth.len());
    let mut truth: Vec<&Truth> = traffic.truth.iter().collect();
    truth.sort_by_key(|truth| truth.t1);
    for (request, truth) in matched.requests.iter().zip(truth) {
        let stamps = request.server;
        prop_assert_eq!(stamps.t1, truth.t1);
        prop_assert_eq!(Some(&stamps.t6), truth.t6.last());
        let [t2, _, t4, t5] = stamps.middle();
        prop_assert_eq!([t2, t4, t5], [truth.t2, truth.t4, truth.t5].map(Some));
    }
    Ok(())
}

fn keep(
    traffic: &Traffic,
    seed: u64,
    mut loses: impl FnMut(&EventKind, f64) -> bool,
) -> Vec<Event> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let events = traffic.events.iter().copied();
    events
        .filter(|event| !loses(&event.kind, rng.random()))
        .collect()
}

proptest! {
    #![proptest_config(common::cases(300))]

    /// One request at a time on a connection: everything is exact, whatever the server does.
    #[test]
    fn in_turn_every_stamp_is_exact(
        world in worlds(), head_and_body: bool, sequential: bool,
    ) {
        let traffic = Connections { head_and_body, ..world }.run();
        check_all(&matched(&traffic.events, sequential), &traffic)?;
    }

    /// Sequence numbers wrap, and their low 16 bits repeat after every 65,536 bytes.
    #[test]
    fn wraps_are_no_obstacle(seed: u64, sequential: bool, in_flight in 1..3_usize) {
        let traffic = Connections {
            seed, connections: 2, requests: 400, style: Style::One, in_flight, bytes: 0,
            head_and_body: false, writes: Writes::Known, resent: 0.02, swapped: 0.0,
            greets: false,
        }.run();
        check_all(&matched(&traffic.events, sequential), &traffic)?;
    }

    /// If a server reads one request at a time, the order of its responses need not be known.
    #[test]
    fn pipelined_requests_that_are_read_one_by_one_are_exact(
        world in worlds(), in_flight in 2..8_usize, swapped in 0.0..0.5_f64,
        head_and_body: bool, sequential: bool,
    ) {
        let style = Style::One;
        let traffic = Connections { style, in_flight, swapped, head_and_body, ..world }.run();
        check_all(&matched(&traffic.events, sequential), &traffic)?;
    }

    /// A server that is known to be sequential, with a write for each response or one for all.
    #[test]
    fn pipelined_requests_of_a_sequential_server_are_exact(
        world in worlds(), in_flight in 2..8_usize, swapped in 0.0..0.5_f64,
    ) {
        let bytes = 40;
        let traffic = Connections { in_flight, swapped, bytes, ..world }.run();
        check_all(&matched(&traffic.events, true), &traffic)?;
    }

    /// A server about which nothing is known: requests that were read together are ambiguous and
    /// counted once each, and the rest is right.
    #[test]
    fn pipelined_requests_of_any_server_are_never_guessed(
        world in worlds(), in_flight in 2..8_usize, head_and_body: bool,
    ) {
        let bytes = 40;
        let traffic = Connections { in_flight, head_and_body, bytes, ..world }.run();
        let matched = matched(&traffic.events, false);
        check(&matched, &traffic)?;
        prop_assert_eq!(&matched.without_request, &[]);
        prop_assert!(matched.unmatched.iter().all(|request| request.ambiguous));
        prop_assert_eq!(matched.ambiguous.len(), matched.unmatched.len());
        prop_assert_eq!(
            matched.requests.len() + matched.unmatched.len(), traffic.truth.len()
        );
        for request in matched.requests.iter() {
            let truth = traffic.truth.iter().find(|t| t.t1 == request.server.t1).unwrap();
            prop_assert_eq!(Some(&request.server.t6), truth.t6.last());
        }
    }

    /// A recording that begins in mid-load, of clients with one request at a time: every request
    /// that came in is matched, whatever was under way before.
    #[test]
    fn in_turn_what_came_before_the_recording_spoils_nothing(
        world in any_server(), place in 0.0..0.3_f64, head_and_body: bool, sequential: bool,
    ) {
        let sequential = sequential && world.style != Style::Later;
        let traffic = Connections { requests: 40, resent: 0.0, head_and_body, ..world }.run();
        let events = from(&traffic, place);
        let matched = matched(&events, sequential);
        check(&matched, &traffic)?;
        prop_assert_eq!(&matched.unmatched, &[]);
        prop_assert!(matched.without_request.len() <= 6 * world.connections);
        let seen = traffic.truth.iter().filter(|truth| truth.t1 >= events[0].at);
        prop_assert_eq!(matched.requests.len(), seen.count());
    }

    /// A recording that begins in mid-load, of clients that pipeline: no match is wrong.
    #[test]
    fn pipelined_from_before_the_recording_is_never_guessed(
        world in any_server(), place in 0.0..1.0_f64, in_flight in 2..6_usize,
        requests in 20..400_usize, head_and_body: bool,
    ) {
        let connections = Connections { requests, in_flight, head_and_body, resent: 0.0, ..world };
        let traffic = connections.run();
        check(&matched(&from(&traffic, place), false), &traffic)?;
    }

    /// A lost event costs no more than the requests around it.
    #[test]
    fn in_turn_a_lost_event_spoils_no_others(world in any_server(), head_and_body: bool) {
        let traffic = Connections {
            requests: 100, resent: 0.0, head_and_body, ..world
        }.run();
        let mut lost = 0;
        let events = keep(&traffic, world.seed, |_, chance| {
            let loses = chance < 0.001;
            lost += usize::from(loses);
            loses
        });
        let matched = matched(&events, false);
        check(&matched, &traffic)?;
        prop_assert!(
            traffic.truth.len() - matched.requests.len() <= 10 * (world.connections + lost),
            "{} of {}, {lost} lost", matched.requests.len(), traffic.truth.len()
        );
    }

    /// Any events lost, one request at a time on a connection: no match is wrong.
    #[test]
    fn in_turn_with_loss_no_match_is_wrong(
        world in worlds(), share in 0.0..0.6_f64, head_and_body: bool, sequential: bool,
    ) {
        let traffic = Connections { head_and_body, bytes: 40, resent: 0.0, ..world }.run();
        let events = keep(&traffic, world.seed, |_, chance| chance < share);
        check(&matched(&events, sequential), &traffic)?;
    }

    /// Any events lost, of a server about which nothing is known: no match is wrong.
    #[test]
    fn pipelined_with_loss_no_match_is_wrong(
        world in worlds(), share in 0.0..0.6_f64, in_flight in 2..6_usize,
    ) {
        let traffic = Connections { in_flight, bytes: 40, resent: 0.0, ..world }.run();
        let events = keep(&traffic, world.seed, |_, chance| chance < share);
        check(&matched(&events, false), &traffic)?;
    }

    /// Any events but writes lost, of a sequential server: the number of writes reveals responses
    /// that were not seen.
    #[test]
    fn pipelined_sequential_with_loss_no_match_is_wrong(
        world in worlds(), share in 0.0..0.6_f64, in_flight in 2..6_usize,
    ) {
        let traffic = Connections { in_flight, bytes: 40, resent: 0.0, ..world }.run();
        let events = keep(&traffic, world.seed, |kind, chance| {
            let is_write =
                matches!(kind, EventKind::WriteCalled { .. } | EventKind::SegmentWritten { .. });
            chance < share && !is_write
        });
        check(&matched(&events, true), &traffic)?;
    }

    /// Events in no order at all: no panic, no negative time.
    #[test]
    fn any_order_is_survived(world in worlds(), in_flight in 1..6_usize, sequential: bool) {
        let traffic = Connections { in_flight, ..world }.run();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(world.seed);
        let mut shuffled: Vec<(u64, Event)> =
            traffic.events.iter().map(|e| (rng.random(), *e)).collect();
        shuffled.sort_by_key(|(place, _)| *place);
        let events: Vec<Event> = shuffled.into_iter().map(|(_, event)| event).collect();
        let matched = matched(&events, sequential);
        prop_assert!(matched.requests.iter().is_sorted_by_key(|r| r.server.t1));
        prop_assert!(matched.requests.iter().all(|r| r.server.t6 >= r.server.t1));
        matched.counts(Monotonic::from_nanos_since_boot(0));
    }
}
