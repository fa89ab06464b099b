//! Which client a request is of: by its address and port, exactly, however many there are.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{
    Ipv4Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};

use rustix::net::{AddressFamily, SendFlags, SocketType, bind, connect, ipproto, sendto, socket};
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Event, EventKind, LostEvents, Nanos, RequestKey, address_hash};
use taillab_probe::{Probe, ProbeSpec, ServerProcesses, Transport};

use crate::testbed::{SERVER, SERVER_PORT, ip, joined, live, peers, spec};

/// The port of every client.
const PORT: u16 = 40_000;

/// Addresses in 10.99.0.0/16 that the hash of 8 bits of version 1 of recordings does not tell apart.
fn with_equal_hashes(count: usize) -> Vec<Ipv4Addr> {
    let all = (1..=255).flat_map(|c| (1..=254).map(move |d| Ipv4Addr::new(10, 99, c, d)));
    let hash = |address: Ipv4Addr| address_hash(address.into());
    let wanted = hash(Ipv4Addr::new(10, 99, 1, 1));
    all.filter(|address| hash(*address) == wanted)
        .take(count)
        .collect()
}

/// The key of each event that names a connection.
fn key_of(event: &Event) -> Option<RequestKey> {
    match event.kind {
        EventKind::PacketIn { key, .. }
        | EventKind::PacketOut { key, .. }
        | EventKind::SegmentIn { key, .. }
        | EventKind::SegmentQueued { key }
        | EventKind::SegmentRead { key, .. }
        | EventKind::SegmentWritten { key, .. }
        | EventKind::SegmentOut { key, .. } => Some(key),
        _ => None,
    }
}

/// Echoes what comes over each connection.
fn serve(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            std::thread::spawn(move || {
                let mut buffer = [0; 256];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// A connection from this address and [`PORT`].
fn connected(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let family = match from {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket(family, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &from).expect("its address is up and the port is free");
    connect(&socket, &to).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).expect("an option of TCP");
    stream
}

/// Sixteen clients of IPv4, whose hashes of 8 bits are equal, and some of IPv6.
#[test]
fn clients_with_one_port_on_many_addresses_are_told_apart() {
    let Some(_alone) = live("clients_with_one_port_on_many_addresses_are_told_apart") else {
        return;
    };
    const ROUNDS: usize = 20;
    let (server, client, device) = joined();
    let v4 = with_equal_hashes(16);
    assert_eq!(v4.len(), 16);
    let v6: Vec<_> = (1..=4_u16).map(|n| format!("fd99::{n}:2")).collect();
    server.run(|| {
        ip("route add 10.99.0.0/16 dev server");
        ip("address add fd99::1/64 dev server nodad");
        serve(TcpListener::bind(("::", SERVER_PORT)).expect("the port is free"));
    });
    let addresses = v6
        .iter()
        .map(|address| format!("{address}/64 dev client nodad"));
    let addresses = addresses.chain(v4.iter().map(|address| format!("{address}/32 dev client")));
    for address in addresses.collect::<Vec<_>>() {
        client.run(move || ip(&format!("address add {address}")));
    }
    let to_v4 = SocketAddr::from((SERVER, SERVER_PORT));
    let to_v6 = SocketAddr::from((
        "fd99::1".parse::<std::net::Ipv6Addr>().expect("one"),
        SERVER_PORT,
    ));
    let mut ends: Vec<(SocketAddr, SocketAddr)> = v4
        .iter()
        .map(|from| ((*from, PORT).into(), to_v4))
        .collect();
    for address in v6 {
        let from = SocketAddrV6::new(address.parse().expect("an address"), PORT, 0, 0);
        ends.push((from.into(), to_v6));
    }
    let all: HashSet<SocketAddr> = ends.iter().map(|(from, _)| *from).collect();

    let own = ServerProcesses::These(vec![std::process::id()]);
    let mut probe = Probe::load(&spec(device, Transport::Tcp, own)).expect("the probe loads");
    probe.attach().expect("the hooks are there");
    let connections = client.run(move || {
        let connect = |(from, to): &(SocketAddr, SocketAddr)| connected(*from, *to);
        let mut streams: Vec<TcpStream> = ends.iter().map(connect).collect();
        let mut response = [0; 5];
        for _ in 0..ROUNDS {
            // all are in the server at once
            for stream in &mut streams {
                stream.write_all(b"hello").expect("the server reads");
            }
            for stream in &mut streams {
                stream.read_exact(&mut response).expect("a response");
            }
        }
        streams
    });
    let recording = probe.finish().expect("the counters can be read");
    drop(connections);
    assert_eq!(recording.lost, LostEvents::default());
    let events: Vec<Event> = recording.into_events().collect();
    let peers = peers(&events);
    assert_eq!(peers.values().copied().collect::<HashSet<_>>(), all);
    assert_eq!(peers.len(), all.len(), "each has one number");
    assert!(each_is_announced_first(&events));

    let matched = match_events(
        events,
        &MatchOptions::for_streams(Nanos::from_secs(5), true),
    );
    assert_eq!(
        (matched.unmatched.len(), matched.without_request.len()),
        (0, 0)
    );
    let mut requests: HashMap<SocketAddr, usize> = HashMap::new();
    for key in &matched.keys {
        let peer = matched.clients.of(key.connection).expect("it is announced");
        let address = peer.address().expect("it is recorded");
        *requests
            .entry(SocketAddr::new(address, peer.port()))
            .or_default() += 1;
    }
    assert_eq!(requests, all.into_iter().map(|one| (one, ROUNDS)).collect());
}

/// Whether no number is used before it is announced, in the order of time.
fn each_is_announced_first(events: &[Event]) -> bool {
    let mut announced = HashSet::new();
    events.iter().all(|event| {
        if let EventKind::Announced { connection, .. } = event.kind {
            announced.insert(connection);
        }
        key_of(event).is_none_or(|key| announced.contains(&key.connection))
    })
}

#[test]
fn a_recording_that_begins_later_announces_its_clients_again() {
    let Some(_alone) = live("a_recording_that_begins_later_announces_its_clients_again") else {
        return;
    };
    let (server, client, device) = joined();
    server.run(|| serve(TcpListener::bind((SERVER, SERVER_PORT)).expect("the port is free")));
    let from = SocketAddr::from((crate::testbed::CLIENT, PORT));
    let mut stream = client.run(move || connected(from, (SERVER, SERVER_PORT).into()));
    let own = ServerProcesses::These(vec![std::process::id()]);
    let mut probe = Probe::load(&spec(device, Transport::Tcp, own)).expect("the probe loads");
    for round in 0..3 {
        probe.attach().expect("the hooks are there");
        if round == 1 {
            stream.write_all(b"hello").expect("the server reads");
            stream.read_exact(&mut [0; 5]).expect("a response");
            probe.discard().expect("the counters can be read");
        }
        stream.write_all(b"hello").expect("the server reads");
        stream.read_exact(&mut [0; 5]).expect("a response");
        let recording = probe.take_recording().expect("the counters can be read");
        let events: Vec<Event> = recording.into_events().collect();
        assert_eq!(peers(&events).into_values().collect::<Vec<_>>(), [from]);
        assert!(each_is_announced_first(&events), "{round}");
    }
}

/// A datagram for the server, with the IP header, from any address.
fn datagram(from: SocketAddrV4) -> [u8; 30] {
    let mut packet = [0; 30];
    packet[0] = 0x45;
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&SERVER.octets());
    packet[20..22].copy_from_slice(&from.port().to_be_bytes());
    packet[22..24].copy_from_slice(&SERVER_PORT.to_be_bytes());
    packet[24..26].copy_from_slice(&10_u16.to_be_bytes());
    packet
}

/// More clients than the probe has numbers for at once, from addresses that they do not have. One of them goes on
/// sending.
#[test]
fn more_clients_than_places_are_told_apart_and_one_that_goes_on_keeps_its_number() {
    let Some(_alone) =
        live("more_clients_than_places_are_told_apart_and_one_that_goes_on_keeps_its_number")
    else {
        return;
    };
    const ADDRESSES: u32 = 10;
    const PORTS: u16 = 40_000;
    let (server, client, device) = joined();
    // nobody is to answer
    server.run(|| {
        let sink = UdpSocket::bind((SERVER, SERVER_PORT)).expect("the port is free");
        std::thread::spawn(move || while sink.recv(&mut [0; 8]).is_ok() {});
    });
    let spec = ProbeSpec {
        ring_bytes_per_cpu: 64 << 20,
        ..spec(device, Transport::Udp, ServerProcesses::InNamespace)
    };
    let mut probe = Probe::load(&spec).expect("the probe loads");
    probe.attach_ends().expect("the hooks are there");
    let steady = SocketAddrV4::new(Ipv4Addr::new(10, 99, 0, 2), 7);
    client.run(move || {
        let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).expect("root");
        let to = SocketAddrV4::new(SERVER, 0);
        let send = |from| sendto(&raw, &datagram(from), SendFlags::empty(), &to);
        for address in 0..ADDRESSES {
            for port in 1..=PORTS {
                let address = Ipv4Addr::from_bits(0x0a63_0100 + address);
                send(SocketAddrV4::new(address, port)).expect("a send");
                if port % 100 == 0 {
                    send(steady).expect("a send");
                }
            }
        }
    });
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost, LostEvents::default());
    let events: Vec<Event> = recording.into_events().collect();
    assert!(each_is_announced_first(&events));
    // no number is used by two clients, although most places were given away again
    let peers = peers(&events);
    let clients: HashSet<SocketAddr> = peers.values().copied().collect();
    assert_eq!(clients.len() as u32, ADDRESSES * u32::from(PORTS) + 1);
    let of_steady = peers.values().filter(|&&client| client == steady.into());
    assert_eq!(of_steady.count(), 1);
    let mut datagrams: HashMap<u32, u32> = HashMap::new();
    for key in events.iter().filter_map(key_of) {
        *datagrams.entry(key.connection).or_default() += 1;
    }
    for (connection, client) in peers {
        let wanted = match client == steady.into() {
            true => ADDRESSES * u32::from(PORTS) / 100,
            false => 1,
        };
        assert_eq!(datagrams[&connection], wanted, "{client}");
    }
}
