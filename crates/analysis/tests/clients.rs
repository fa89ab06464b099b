//! Whose a request is: numbers of connections, and what announces them.

use crate::common;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use common::connections::{Connections, Style, Traffic, Writes};
use common::last_segment;
use proptest::prelude::*;
use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{
    AddressPart, Event, EventKind, Monotonic, Nanos, PLACE_BITS, Peer, RequestKey, address_hash,
};

const PORT: u16 = 40_000;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

/// The event with another key.
fn with_key(mut event: Event, of: impl Fn(RequestKey) -> RequestKey) -> Event {
    match &mut event.kind {
        EventKind::SegmentIn { key, .. }
        | EventKind::SegmentQueued { key }
        | EventKind::SegmentRead { key, .. }
        | EventKind::SegmentWritten { key, .. }
        | EventKind::SegmentOut { key, .. } => *key = of(*key),
        _ => {}
    }
    event
}

/// The key of an event of a connection.
fn key_of(event: &Event) -> Option<RequestKey> {
    match event.kind {
        EventKind::SegmentIn { key, .. }
        | EventKind::SegmentQueued { key }
        | EventKind::SegmentRead { key, .. }
        | EventKind::SegmentWritten { key, .. }
        | EventKind::SegmentOut { key, .. } => Some(key),
        _ => None,
    }
}

/// What announces a connection.
fn announced(at: Monotonic, connection: u32, client: SocketAddr) -> Vec<Event> {
    let event = |part| Event {
        at,
        cpu: 1,
        kind: EventKind::Announced { connection, part },
    };
    AddressPart::of(client).into_iter().map(event).collect()
}

/// Clients, a connection each, and each request's client by its T1.
fn traffic(clients: usize, seed: u64) -> (Traffic, HashMap<Monotonic, usize>) {
    let world = Connections {
        seed,
        connections: clients,
        requests: 10,
        style: Style::One,
        in_flight: 1,
        bytes: 0,
        head_and_body: false,
        writes: Writes::Known,
        resent: 0.0,
        swapped: 0.0,
        greets: false,
    };
    let traffic = world.run();
    let client = |key: RequestKey| usize::from(key.connection as u16 - PORT);
    let of = (traffic.truth.iter())
        .map(|truth| (truth.t1, client(truth.key)))
        .collect();
    (traffic, of)
}

/// The events as the probe records them of clients with these addresses and one port: each has a number, which is
/// announced before its first event.
fn numbered(traffic: &Traffic, addresses: &[IpAddr], times: u32) -> Vec<Event> {
    let number = |n: usize| ((times + n as u32) % 64) << PLACE_BITS | n as u32;
    let mut seen = HashSet::new();
    let mut events = Vec::new();
    for event in &traffic.events {
        if let Some(key) = key_of(event) {
            let n = usize::from(key.connection as u16 - PORT);
            if seen.insert(n) {
                let client = SocketAddr::new(addresses[n], PORT);
                events.extend(announced(event.at, number(n), client));
            }
        }
        events.push(with_key(*event, |key| RequestKey {
            connection: number(usize::from(key.connection as u16 - PORT)),
            ..key
        }));
    }
    events
}

/// The same as version 1 of recordings has it.
fn hashed(traffic: &Traffic, addresses: &[IpAddr]) -> Vec<Event> {
    let key = |key: RequestKey| {
        let address = addresses[usize::from(key.connection as u16 - PORT)];
        RequestKey::hashed(address_hash(address), PORT, key.id)
    };
    let events = traffic.events.iter();
    events.map(|event| with_key(*event, key)).collect()
}

fn matched(events: Vec<Event>, hashed_clients: bool) -> Matched {
    let options = MatchOptions {
        hashed_clients,
        ..MatchOptions::for_streams(Nanos::from_secs(1), true)
    };
    match_events(events, &options)
}

/// Whether every request is matched with its own response.
fn is_right(found: &Matched, traffic: &Traffic) -> bool {
    let t6: HashMap<Monotonic, &Vec<Monotonic>> = (traffic.truth.iter())
        .map(|truth| (truth.t1, &truth.t6))
        .collect();
    let own = |stamps: taillab_model::Stamps| t6[&stamps.t1].last() == Some(&stamps.t6);
    found.requests.len() == traffic.truth.len() && found.requests.iter().all(|one| own(one.server))
}

/// Addresses behind a few balancers: of one network each, or of IPv6.
fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let v4 = (0_u8..3, any::<u8>()).prop_map(|(net, host)| IpAddr::from([10, net, 0, host]));
    let v6 = any::<u16>().prop_map(|host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]));
    let address = prop_oneof![3 => v4, 1 => v6];
    // in an order that the seed decides
    prop::collection::btree_set(address, 2..24).prop_map(|all| all.into_iter().collect())
}

proptest! {
    #[test]
    fn clients_with_one_port_on_many_addresses_never_merge(
        addresses in addresses(), seed: u64, times in 0_u32..64
    ) {
        let (traffic, client_of) = traffic(addresses.len(), seed);
        let found = matched(numbered(&traffic, &addresses, times), false);
        prop_assert!(is_right(&found, &traffic));
        for (request, key) in found.requests.iter().zip(&found.keys) {
            let address = addresses[client_of[&request.server.t1]];
            let client = Peer::At(SocketAddr::new(address, PORT));
            prop_assert_eq!(found.clients.of(key.connection), Some(client));
        }
        prop_assert_eq!(found.clients.unknown(), 0);
    }
}

/// Sixteen clients behind two balancers, of which one pair has equal hashes of 8 bits: version 1 loses requests.
#[test]
fn sixteen_clients_whose_hashes_are_equal_are_told_apart() {
    let hash = |address: &Ipv4Addr| address_hash((*address).into());
    let all = (0..2_u8).flat_map(|net| (0..=255).map(move |host| Ipv4Addr::new(10, net, 7, host)));
    let first = Ipv4Addr::new(10, 0, 7, 1);
    let twin = all
        .clone()
        .find(|one| *one != first && hash(one) == hash(&first));
    let others = all
        .skip(2)
        .step_by(30)
        .filter(|one| Some(*one) != twin)
        .take(14);
    let addresses: Vec<IpAddr> = [first]
        .into_iter()
        .chain(twin)
        .chain(others)
        .map(IpAddr::from)
        .collect();
    let (traffic, _) = traffic(addresses.len(), 3);
    assert!(is_right(
        &matched(numbered(&traffic, &addresses, 0), false),
        &traffic
    ));
    assert!(!is_right(
        &matched(hashed(&traffic, &addresses), true),
        &traffic
    ));
}

/// One request and its response, from `ns` on; a connection that goes on.
fn exchange(connection: u32, ns: u64, id: u16) -> Vec<Event> {
    let key = RequestKey { connection, id };
    let event = |offset: u64, kind| Event {
        at: at(ns + offset),
        cpu: 1,
        kind,
    };
    vec![
        event(
            0,
            EventKind::SegmentIn {
                key,
                bytes: 30,
                push: true,
            },
        ),
        event(100, EventKind::SegmentQueued { key }),
        event(
            200,
            EventKind::SegmentRead {
                tid: 9,
                key,
                bytes_mod_1024: 30,
            },
        ),
        event(300, EventKind::SegmentWritten { tid: 9, key }),
        event(400, last_segment(9, key)),
    ]
}

fn client(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], PORT))
}

#[test]
fn a_number_that_is_given_to_another_client_begins_anew() {
    const MS: u64 = 1_000_000;
    let mut events = announced(at(MS), 7, client(1));
    events.extend(exchange(7, MS, 1_000));
    // a request that is never answered
    events.push(exchange(7, 2 * MS, 1_030)[0]);
    events.extend(announced(at(300 * MS), 7, client(2)));
    // the stream of the other one is elsewhere
    events.extend(exchange(7, 300 * MS, 40_000));
    let found = matched(events, false);
    assert_eq!(found.requests.len(), 2);
    assert_eq!((found.unmatched.len(), found.without_request.len()), (1, 0));
    assert_eq!(found.requests.stamps(1).t1, at(300 * MS));
    assert_eq!(found.clients.of(7), Some(Peer::At(client(2))));
}

#[test]
fn an_announcement_that_another_cpu_overtook_is_of_the_same_client() {
    let mut events = exchange(7, 1_000_000, 1_000);
    events.extend(announced(at(1_000_150), 7, client(1)));
    events.sort_by_key(|event| event.at);
    let found = matched(events, false);
    assert_eq!(found.requests.len(), 1);
    assert!(found.requests.stamps(0).t4.is_some());
    assert_eq!(found.clients.of(7), Some(Peer::At(client(1))));
}

#[test]
fn a_connection_that_was_never_announced_is_one_of_its_own_and_counted() {
    let mut events = announced(at(1_000_000), 7, client(1));
    events.extend(exchange(7, 1_000_000, 1_000));
    events.extend(exchange(8, 2_000_000, 1_000));
    let found = matched(events, false);
    assert_eq!(found.requests.len(), 2);
    assert_eq!((found.clients.of(8), found.clients.unknown()), (None, 1));
    assert_eq!(found.sent_as(found.keys[1]), None);
}
