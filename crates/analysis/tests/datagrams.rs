//! Datagrams of protocols whose first two bytes may or may not name the request.

use crate::common;

use std::collections::HashMap;

use common::server::{Server, Traffic};
use common::{packets_in, packets_out};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_analysis::{DatagramIds, MatchOptions, Matched, match_events};
use taillab_model::{Asleep, Event, EventKind, Monotonic, Nanos};

const EPOLL_WAIT: u16 = 232;

/// What the first two bytes of requests and responses mean in a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// An id: a response has that of its request.
    Ids,
    /// They are the same in all datagrams.
    Alike,
    /// Nothing: they are random.
    Random,
}

fn options(datagram_ids: Option<DatagramIds>) -> MatchOptions {
    MatchOptions {
        disorder: Nanos::ZERO,
        stale_after: Nanos::MAX,
        overtaken_after: Nanos::from_millis(50),
        datagram_ids,
        ..MatchOptions::default()
    }
}

/// Marks sleeping threads as waiting for input, and makes the datagrams those of the protocol.
fn speak(traffic: &mut Traffic, protocol: Protocol, seed: u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    for event in &mut traffic.events {
        match &mut event.kind {
            EventKind::Switched {
                preempted: false,
                asleep,
                ..
            } => {
                *asleep = Some(Asleep {
                    call: Some(EPOLL_WAIT),
                    uninterruptible: false,
                    stopped: false,
                });
            }
            EventKind::PacketIn { key, .. } | EventKind::PacketOut { key, .. } => match protocol {
                Protocol::Ids => {}
                Protocol::Alike => key.id = 7,
                Protocol::Random => key.id = rng.random(),
            },
            _ => {}
        }
    }
}

fn traffic(server: Server, protocol: Protocol) -> Traffic {
    let mut traffic = server.run();
    speak(&mut traffic, protocol, server.seed);
    traffic
}

fn matched(events: &[Event], ids: Option<DatagramIds>) -> Matched {
    match_events(events.iter().copied(), &options(ids))
}

fn right(matched: &Matched, traffic: &Traffic) -> Result<(), TestCaseError> {
    let by_t1: HashMap<Monotonic, _> = traffic.truth.iter().map(|t| (t.stamps.t1, t)).collect();
    for request in matched.requests.iter() {
        let truth = by_t1[&request.server.t1];
        prop_assert_eq!(request.server.t6, truth.stamps.t6, "a wrong match");
    }
    Ok(())
}

fn servers() -> impl Strategy<Value = Server> {
    (any::<u64>(), 300..1_200_usize, 0.1..1.0_f64, 1..=6_u16).prop_map(
        |(seed, requests, load, ports)| Server {
            seed,
            requests,
            load,
            ports,
            ..Server::default()
        },
    )
}

proptest! {
    #![proptest_config(common::cases(60))]

    /// The matcher finds out from the datagrams whether they begin with an id.
    #[test]
    fn the_datagrams_show_whether_they_have_ids(server in servers(), threads in 1..4_usize) {
        let server = Server { threads, ..server };
        for (protocol, expected) in [
            (Protocol::Ids, DatagramIds::Ids),
            (Protocol::Alike, DatagramIds::Order),
            (Protocol::Random, DatagramIds::Order),
        ] {
            let traffic = traffic(server, protocol);
            let found = matched(&traffic.events, None);
            prop_assert_eq!(found.events, traffic.events.len() as u64);
            let told = matched(&traffic.events, Some(expected));
            prop_assert_eq!(&found.requests, &told.requests, "{:?}", protocol);
        }
    }

    /// A recording that begins while many requests wait: their responses are no evidence about ids.
    #[test]
    fn a_backlog_at_the_beginning_does_not_count_against_ids(
        seed: u64, threads in 1..4_usize, ports in 1..=6_u16, load in 1.2..2.0_f64,
    ) {
        let server = Server { seed, requests: 4_000, threads, load, ports, ..Server::default() };
        for (protocol, expected) in [
            (Protocol::Ids, DatagramIds::Ids),
            (Protocol::Alike, DatagramIds::Order),
            (Protocol::Random, DatagramIds::Order),
        ] {
            let mut traffic = traffic(server, protocol);
            let begin = traffic.truth[1_500].stamps.t1;
            traffic.events.retain(|event| event.at >= begin);
            let found = matched(&traffic.events, None);
            let told = matched(&traffic.events, Some(expected));
            prop_assert_eq!(&found.requests, &told.requests, "{:?}", protocol);
            if expected == DatagramIds::Ids {
                prop_assert_eq!(found.requests.len(), 2_500);
            }
        }
    }

    /// One thread that reads: once it has slept, most requests are matched, and none wrongly.
    #[test]
    fn a_server_with_one_thread_is_matched_by_order(server in servers(), random: bool) {
        let protocol = if random { Protocol::Random } else { Protocol::Alike };
        // a server that is hardly ever idle is hardly ever seen with an empty queue
        let server = Server { load: server.load.min(0.5), ..server };
        let traffic = traffic(server, protocol);
        let matched = matched(&traffic.events, None);
        right(&matched, &traffic)?;
        // the thread has to be seen as the only one for a while, and then to sleep
        let sleeps = traffic.events.iter().filter(|event| {
            matches!(event.kind, EventKind::Switched { preempted: false, next: 0, .. })
        });
        if let Some(slept) = sleeps.map(|event| event.at).find(|&at| {
            traffic.truth.iter().filter(|truth| truth.stamps.t6 <= at).count() > 150
        }) {
            let later = slept + Nanos::from_millis(100);
            let missing = matched.unmatched.iter().filter(|request| request.t1 > later).count();
            let all = traffic.truth.iter().filter(|truth| truth.stamps.t1 > later).count();
            prop_assert!(missing <= 30 + all / 4, "{} of {}", missing, all);
        }
    }

    /// Several threads: a request that is not alone is ambiguous, and nothing is guessed.
    #[test]
    fn several_threads_are_never_guessed(
        server in servers(), threads in 2..5_usize, random: bool,
    ) {
        let protocol = if random { Protocol::Random } else { Protocol::Alike };
        let traffic = traffic(Server { threads, ..server }, protocol);
        let matched = matched(&traffic.events, Some(DatagramIds::Order));
        right(&matched, &traffic)?;
        prop_assert_eq!(
            matched.requests.len() + matched.ambiguous.len() + matched.without_request.len(),
            traffic.truth.len()
        );
        prop_assert_eq!(matched.from_before, 0);
    }

    /// A response to a request whose T1 was lost looks like one to the client's next request, so a match
    /// may be wrong; but nothing is forgotten or counted twice.
    #[test]
    fn lost_arrivals_make_nothing_count_twice(server in servers(), share in 0.0..0.3_f64) {
        let traffic = traffic(server, Protocol::Alike);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(server.seed);
        let events: Vec<Event> = traffic.events.iter().copied().filter(|event| {
            !matches!(event.kind, EventKind::PacketIn { .. }) || rng.random::<f64>() >= share
        }).collect();
        let matched = matched(&events, Some(DatagramIds::Order));
        prop_assert_eq!(matched.requests.len() + matched.unmatched.len(), packets_in(&events));
        let answers = matched.requests.len() + matched.ambiguous.len() + matched.without_request.len();
        prop_assert!(answers + matched.from_before as usize <= packets_out(&events));
        prop_assert!(matched.requests.iter().all(|request| request.server.t6 >= request.server.t1));
    }

    /// Lost T2 or reads make no match wrong.
    #[test]
    fn lost_events_make_no_match_by_order_wrong(
        server in servers(), share in 0.0..0.3_f64, kind in 0..2_u8,
    ) {
        let traffic = traffic(server, Protocol::Alike);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(server.seed);
        let events: Vec<Event> = traffic.events.iter().copied().filter(|event| {
            let may_go = match kind {
                0 => matches!(event.kind, EventKind::ReadReturned { .. }),
                _ => matches!(event.kind, EventKind::Enqueued { .. }),
            };
            !may_go || rng.random::<f64>() >= share
        }).collect();
        right(&matched(&events, Some(DatagramIds::Order)), &traffic)?;
    }
}
