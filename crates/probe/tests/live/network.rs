//! Ways by which packets come and go: both families of addresses, several devices, drivers of
//! NICs, payload, segments that are sent again.

use std::collections::{BTreeSet, HashSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::channel;

use crate::testbed::streams::{Calls, Process, StreamBed};
use crate::testbed::tap::{Driver, TapBed};
use crate::testbed::{
    ATTEMPTS, CLIENT, Namespace, SERVER, SERVER_PORT, Testbed, begin, eventually, first_unspoiled,
    ip, joined, live, now, peers, received_by_client, round_trip, segments_sent_again, spec,
};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Event, EventKind, Monotonic, Nanos, RequestKey, Stamps};
use taillab_probe::{
    Addresses, Devices, Disturbances, Probe, ProbeSpec, ServerProcesses, Transport,
};

/// What is recorded while `cause` runs; nothing may be lost. `reader` is a thread of the server that may be
/// waiting for datagrams.
fn events_of(spec: &ProbeSpec, reader: Option<u32>, cause: impl FnOnce()) -> Vec<Event> {
    let mut probe = Probe::load(spec).expect("this kernel lets the probe load");
    match reader {
        Some(thread) => begin(&mut probe, thread),
        None => probe.attach().expect("the hooks are there"),
    }
    cause();
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    recording.into_events().collect()
}

/// Who sent a datagram or to whom it goes, and its id.
type Sent = (SocketAddr, u16);

/// The requests, the responses, and how many were queued, read and written.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    requests: Vec<Sent>,
    responses: Vec<Sent>,
    queued: usize,
    read: usize,
    written: usize,
}

fn datagrams(events: &[Event], server: u32) -> Seen {
    let mut seen = Seen::default();
    let peers = peers(events);
    let sent = |key: RequestKey| (peers[&key.connection], key.id);
    for event in events {
        match event.kind {
            EventKind::PacketIn { key, .. } => seen.requests.push(sent(key)),
            EventKind::PacketOut { key, .. } => seen.responses.push(sent(key)),
            EventKind::Enqueued { .. } => seen.queued += 1,
            EventKind::ReadReturned { tid, .. } if tid == server => seen.read += 1,
            EventKind::WriteCalled { tid } if tid == server => seen.written += 1,
            _ => {}
        }
    }
    seen
}

fn expected(keys: Vec<Sent>) -> Seen {
    Seen {
        queued: keys.len(),
        read: keys.len(),
        written: keys.len(),
        responses: keys.clone(),
        requests: keys,
    }
}

fn key_of(client: &UdpSocket, id: u16) -> Sent {
    let address = client.local_addr().expect("it is bound");
    (
        SocketAddr::new(address.ip().to_canonical(), address.port()),
        id,
    )
}

#[test]
fn both_families_and_several_devices_are_seen_at_once() {
    let Some(_alone) = live("both_families_and_several_devices_are_seen_at_once") else {
        return;
    };
    let (testbed, clients) = Testbed::everywhere();
    let mut keys = Vec::new();
    let events = events_of(&testbed.spec, Some(testbed.server_tid), || {
        for id in 0..100_u16 {
            for (client, server) in &clients {
                round_trip(client, *server, &id.to_be_bytes());
                keys.push(key_of(client, id));
            }
        }
    });
    assert_eq!(datagrams(&events, testbed.server_tid), expected(keys));
}

#[test]
fn one_device_of_several_is_watched_alone() {
    let Some(_alone) = live("one_device_of_several_is_watched_alone") else {
        return;
    };
    let (testbed, clients) = Testbed::everywhere();
    let loopback = ProbeSpec {
        devices: Devices {
            ifindexes: vec![1],
            ..testbed.spec.devices.clone()
        },
        ..testbed.spec.clone()
    };
    let mut keys = Vec::new();
    let events = events_of(&loopback, Some(testbed.server_tid), || {
        for id in 0..50_u16 {
            for (client, server) in &clients {
                round_trip(client, *server, &id.to_be_bytes());
                if server.ip().to_canonical().is_loopback() {
                    keys.push(key_of(client, id));
                }
            }
        }
    });
    let seen = datagrams(&events, testbed.server_tid);
    assert_eq!(seen.requests, keys);
    assert_eq!(seen.responses, keys);
}

#[test]
fn a_packet_comes_in_once_whatever_its_driver() {
    let Some(_alone) = live("a_packet_comes_in_once_whatever_its_driver") else {
        return;
    };
    let drivers = [Driver::Direct, Driver::Gro, Driver::GroFrags];
    let with_and_without_tag = drivers
        .into_iter()
        .flat_map(|driver| [(driver, false), (driver, true)]);
    for (driver, tagged) in with_and_without_tag {
        let mut bed = TapBed::new(driver);
        bed.tagged = tagged;
        let spec = ProbeSpec {
            devices: Devices::all_in(bed.device.netns_inode),
            ..bed.spec.clone()
        };
        let mut keys = Vec::new();
        let events = events_of(&spec, Some(bed.server_tid), || {
            for id in 0..100_u16 {
                bed.round_trip(&id.to_be_bytes());
                keys.push((
                    SocketAddr::from((CLIENT, crate::testbed::tap::CLIENT_PORT)),
                    id,
                ));
            }
        });
        let seen = datagrams(&events, bed.server_tid);
        assert_eq!(seen.requests, keys, "{driver:?} {tagged}");
        assert_eq!(seen.responses, keys, "{driver:?} {tagged}");
        assert_eq!((seen.queued, seen.read), (100, 100), "{driver:?} {tagged}");
    }
}

#[test]
fn a_veth_with_gro_is_a_nic() {
    let Some(_alone) = live("a_veth_with_gro_is_a_nic") else {
        return;
    };
    let testbed = Testbed::veth_with_gro();
    let mut keys = Vec::new();
    let events = events_of(&testbed.spec, Some(testbed.server_tid), || {
        for id in 0..200_u16 {
            testbed.round_trip(&id.to_be_bytes());
            keys.push(key_of(&testbed.client, id));
        }
    });
    assert_eq!(
        datagrams(&events, testbed.server_tid),
        expected(keys.clone())
    );
    // with GRO, veth hands packets over at this hook alone
    let without = Probe::load_avoiding(&testbed.spec, &["tp_btf/napi_gro_receive_entry"]);
    let mut probe = without.expect("this hook can be missing");
    probe.attach().expect("the hooks are there");
    testbed.round_trip(&[1, 2]);
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(
        datagrams(&recording.into_events().collect::<Vec<_>>(), 0).requests,
        []
    );
}

#[test]
fn streams_of_both_families_have_their_clients_address() {
    let Some(_alone) = live("streams_of_both_families_have_their_clients_address") else {
        return;
    };
    let (server, client, device) = joined();
    server.run(|| ip("address add fd99::1/64 dev server nodad"));
    client.run(|| ip("address add fd99::2/64 dev client nodad"));
    // mapped addresses of IPv4 on a socket of IPv6, too
    server.run(|| {
        serve_echo(
            TcpListener::bind("[::]:11211").expect("the port is free"),
            2,
        )
    });
    let own = ServerProcesses::These(vec![std::process::id()]);
    let spec = spec(device, Transport::Tcp, own);
    for (to, from) in [("10.99.0.1", "10.99.0.2"), ("fd99::1", "fd99::2")] {
        let to = to.parse().expect("an address");
        let mut port = 0;
        let events = events_of(&spec, None, || port = client.run(move || call(to)));
        let client = SocketAddr::new(from.parse().expect("an address"), port);
        let peers = peers(&events);
        let mut counts = [0; 4];
        let mut queued = HashSet::new();
        for event in &events {
            let (at, key) = match event.kind {
                EventKind::SegmentIn { key, bytes, .. } if bytes > 0 => (0, key),
                // Linux 6.1 wakes the reader twice for some segments
                EventKind::SegmentQueued { key } if !queued.insert(key) => continue,
                // after the last response, the client's close wakes the server with nothing to read
                EventKind::SegmentQueued { key } if counts[3] < 20 => (1, key),
                EventKind::SegmentRead { key, .. } => (2, key),
                EventKind::SegmentOut { key, .. } => (3, key),
                _ => continue,
            };
            assert_eq!(peers[&key.connection], client, "{:?}", event.kind);
            counts[at] += 1;
        }
        assert_eq!(counts, [20; 4], "{from}");
    }
}

/// How many requests [`call`] sends.
const CALLS: usize = 20;

/// So many requests on one connection from this namespace; returns the client's port.
fn call(to: IpAddr) -> u16 {
    let mut stream = TcpStream::connect((to, SERVER_PORT)).expect("the server listens");
    let mut response = [0; 5];
    for _ in 0..CALLS {
        stream.write_all(b"hello").expect("the server reads");
        stream.read_exact(&mut response).expect("a response");
    }
    stream.local_addr().expect("it is connected").port()
}

/// The clients' ports, of segments that came in, were queued, were read, and left.
fn ports_at_each_stamp(events: &[Event]) -> [BTreeSet<u16>; 4] {
    let mut ports = [const { BTreeSet::new() }; 4];
    let peers = peers(events);
    for event in events {
        let (at, key) = match event.kind {
            EventKind::SegmentIn { key, .. } => (0, key),
            EventKind::SegmentQueued { key } => (1, key),
            EventKind::SegmentRead { key, .. } => (2, key),
            EventKind::SegmentOut { key, .. } => (3, key),
            _ => continue,
        };
        ports[at].insert(peers[&key.connection].port());
    }
    ports
}

#[test]
fn of_servers_on_one_port_only_the_one_at_the_watched_addresses_is_seen() {
    let Some(_alone) = live("of_servers_on_one_port_only_the_one_at_the_watched_addresses_is_seen")
    else {
        return;
    };
    let (server, client, device) = joined();
    let own = ServerProcesses::These(vec![std::process::id()]);
    let spec = spec(device, Transport::Tcp, own);
    let at = |address: &str| address.parse::<IpAddr>().expect("an address");
    let here = [at("10.99.0.1"), at("fd99::1")];
    let there = [at("10.99.0.3"), at("fd99::3")];
    client.run(|| ip("address add fd99::2/64 dev client nodad"));
    server.run(move || {
        ip("address add 10.99.0.3/24 dev server");
        ip("address add fd99::1/64 dev server nodad");
        ip("address add fd99::3/64 dev server nodad");
        for address in here.into_iter().chain(there) {
            let listener = TcpListener::bind((address, SERVER_PORT)).expect("the port is free");
            serve_echo(listener, 2);
        }
    });
    let watched = [
        Addresses::Only(here.to_vec()),
        Addresses::AllBut(there.to_vec()),
    ];
    for addresses in watched {
        let spec = ProbeSpec {
            addresses,
            ..spec.clone()
        };
        let mut wanted = BTreeSet::new();
        let events = events_of(&spec, None, || {
            for address in there {
                client.run(move || call(address));
            }
            wanted.extend(here.map(|address| client.run(move || call(address))));
        });
        for seen in ports_at_each_stamp(&events) {
            assert_eq!(seen, wanted, "{:?}", spec.addresses);
        }
    }
}

/// A segment of TCP with a push, of no connection, as the kernel of `from` would send it with this sequence number.
fn stray_segment(from: (Ipv4Addr, u16), sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(from.1.to_be_bytes());
    segment.extend(SERVER_PORT.to_be_bytes());
    segment.extend(sequence.to_be_bytes());
    segment.extend(1_u32.to_be_bytes());
    // a header of five words; ACK and PSH; a window; no checksum yet; nothing urgent
    segment.extend([0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
    segment.extend(payload);
    // RFC 9293, section 3.1: the checksum is also over addresses, protocol and length
    let mut words = [from.0.octets(), SERVER.octets()].concat();
    words.extend([0, 6]);
    words.extend((segment.len() as u16).to_be_bytes());
    words.extend(&segment);
    words.resize(words.len().next_multiple_of(2), 0);
    let sum = words
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = sum.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    segment[16..18].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    segment
}

/// Sends this many of them from this namespace.
fn send_strays(count: u32) {
    let (family, tcp) = (AddressFamily::INET, Some(ipproto::TCP));
    let socket = socket(family, SocketType::RAW, tcp).expect("root may have a raw socket");
    let to = SocketAddrV4::new(SERVER, 0);
    for n in 0..count {
        let segment = stray_segment((CLIENT, 45_678), 1_000 + 5 * n, b"hello");
        sendto(&socket, &segment, SendFlags::empty(), &to).expect("the device is up");
    }
}

/// A machine behind the server's, as a container is, to which connections to one more address are passed on: memcached
/// there has the server's port.
struct Container {
    /// In the order in which they end.
    _memcached: Process,
    _machine: Namespace,
}

impl Container {
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);

    fn behind(server: &Namespace, client: &Namespace) -> Self {
        let machine = Namespace::new();
        let inner = machine.tid;
        server.run(move || {
            ip(&format!(
                "link add inner type veth peer name outer netns {inner}"
            ));
            ip("address add 10.98.0.1/24 dev inner");
            ip("link set inner up");
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("an option of IP");
        });
        let memcached = machine.run(|| {
            ip(&format!("address add {}/24 dev outer", Self::ADDRESS));
            ip("link set outer up");
            ip("route add default via 10.98.0.1");
            let mut memcached = Command::new("memcached");
            memcached.args(["-u", "root", "-U", "0", "-t", "1"]);
            memcached.args(["-l", &Self::ADDRESS.to_string()]);
            memcached.args(["-p", &SERVER_PORT.to_string()]);
            Process::start(memcached)
        });
        client.run(|| {
            ip("route add 10.98.0.0/24 via 10.99.0.1");
            eventually("memcached listens", || {
                TcpStream::connect((Self::ADDRESS, SERVER_PORT)).is_ok()
            });
        });
        Self {
            _memcached: memcached,
            _machine: machine,
        }
    }

    /// Asks it this often, on one connection.
    fn call(times: usize) {
        let mut stream = TcpStream::connect((Self::ADDRESS, SERVER_PORT)).expect("it listens");
        let mut response = [0; 5];
        for _ in 0..times {
            stream.write_all(b"get a\r\n").expect("it reads");
            stream.read_exact(&mut response).expect("a response");
        }
    }
}

/// The machine passes connections on, and a reset answers what belongs to none.
#[test]
fn segments_that_are_passed_on_or_refused_are_no_requests_to_the_server() {
    let Some(_alone) = live("segments_that_are_passed_on_or_refused_are_no_requests_to_the_server")
    else {
        return;
    };
    const PASSED_ON: usize = 10;
    const STRAYS: usize = 20;
    let (server, client, device) = joined();
    let _container = Container::behind(&server, &client);
    let own = ServerProcesses::These(vec![std::process::id()]);
    let spec = spec(device, Transport::Tcp, own);
    server.run(|| {
        let listener = TcpListener::bind((SERVER, SERVER_PORT)).expect("the port is free");
        serve_echo(listener, ATTEMPTS);
    });
    let attempt = |_| {
        events_of(&spec, None, || {
            client.run(|| {
                // the first request that a socket receives shows that this is recorded
                call(SERVER.into());
                Container::call(PASSED_ON);
                send_strays(STRAYS as u32);
            });
        })
    };
    let missed = |events: &Vec<Event>| {
        let count = |is: fn(&EventKind) -> bool| events.iter().filter(|e| is(&e.kind)).count();
        let came = count(|kind| matches!(kind, EventKind::SegmentIn { bytes: 1.., .. }));
        let left = count(|kind| matches!(kind, EventKind::SegmentOut { .. }));
        let wanted = (PASSED_ON + STRAYS + CALLS, CALLS);
        ((came, left) != wanted).then(|| format!("{came} segments came and {left} left"))
    };
    let events = first_unspoiled(ATTEMPTS, attempt, missed);
    let options = MatchOptions::for_streams(Nanos::from_secs(5), false);
    let matched = match_events(events, &options);
    assert_eq!(matched.requests.len(), CALLS);
    assert_eq!(matched.elsewhere as usize, PASSED_ON + STRAYS);
    assert_eq!(matched.unmatched, []);
    assert!(matched.ambiguous.is_empty() && matched.without_request.is_empty());
}

#[test]
fn an_address_of_ipv4_is_known_on_a_socket_of_both_families() {
    let Some(_alone) = live("an_address_of_ipv4_is_known_on_a_socket_of_both_families") else {
        return;
    };
    let (server, client, device) = joined();
    let own = ServerProcesses::These(vec![std::process::id()]);
    let spec = ProbeSpec {
        addresses: Addresses::Only(vec![SERVER.into()]),
        ..spec(device, Transport::Tcp, own)
    };
    client.run(|| ip("address add fd99::2/64 dev client nodad"));
    server.run(|| {
        ip("address add fd99::1/64 dev server nodad");
        let listener = TcpListener::bind(("::", SERVER_PORT)).expect("the port is free");
        serve_echo(listener, 2);
    });
    let mut wanted = BTreeSet::new();
    let events = events_of(&spec, None, || {
        let other: IpAddr = "fd99::1".parse().expect("an address");
        client.run(move || call(other));
        wanted.insert(client.run(|| call(SERVER.into())));
    });
    for seen in ports_at_each_stamp(&events) {
        assert_eq!(seen, wanted);
    }
}

/// Echoes what comes over each of this many connections.
fn serve_echo(listener: TcpListener, connections: usize) {
    std::thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_nodelay(true).expect("an option of TCP");
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

#[test]
fn payload_follows_its_segment() {
    let Some(_alone) = live("payload_follows_its_segment") else {
        return;
    };
    const REQUEST: &[u8] = b"get some-key-of-memcached\r\n";
    let bed = StreamBed::new();
    let _server = bed.memcached(1);
    for limit in [8, 20, 256] {
        let spec = ProbeSpec {
            payload_bytes: limit,
            ..bed.spec.clone()
        };
        let readable = {
            let probe = Probe::load(&spec).expect("this kernel lets the probe load");
            let hooks = probe.hooks().into_iter();
            let mut payload = hooks.filter(|hook| hook.stamp == "payload");
            payload.next().expect("it is listed").hook != "none"
        };
        let events = events_of(&spec, None, || {
            let calls = Calls {
                connections: 1,
                rounds: 50,
                in_flight: 1,
                request: REQUEST.to_vec(),
            };
            bed.make(calls, 0);
        });
        let mut packets: Vec<(bool, u32, Vec<u8>)> = Vec::new();
        let mut last = None;
        for event in &events {
            let EventKind::Payload {
                bytes,
                len,
                response,
            } = event.kind
            else {
                last = Some(event.kind);
                continue;
            };
            if len == 0 {
                let whole = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                match last {
                    Some(EventKind::SegmentIn { bytes, .. }) if !response => {
                        assert_eq!(whole, bytes);
                    }
                    Some(EventKind::SegmentOut { .. }) if response => {}
                    other => panic!("{:?} behind {other:?}", event.kind),
                }
                packets.push((response, whole, Vec::new()));
            } else {
                let (of, _, content) = packets.last_mut().expect("its extent comes first");
                assert_eq!(*of, response);
                content.extend(&bytes[..usize::from(len)]);
            }
        }
        assert_eq!(
            packets.iter().filter(|(response, ..)| !response).count(),
            51
        );
        for (response, whole, content) in &packets {
            let full: &[u8] = if *response { b"END\r\n" } else { REQUEST };
            assert_eq!(*whole as usize, full.len());
            let shown = if readable {
                full.len().min(limit.into())
            } else {
                0
            };
            assert_eq!(content, &full[..shown]);
        }
    }
}

/// What is recorded while a server that does not hear its client sends a response again and again, and the client's port.
fn unheard() -> (Vec<Event>, u16) {
    let (server, client, device) = joined();
    let own = ServerProcesses::These(vec![std::process::id()]);
    let spec = ProbeSpec {
        disturbances: Disturbances::RETRANSMIT | Disturbances::SCHED,
        ..spec(device, Transport::Tcp, own)
    };
    let (cut_off, wait_cut_off) = channel();
    let (has_read, wait_has_read) = channel();
    server.run(|| {
        let listener = TcpListener::bind((SERVER, SERVER_PORT)).expect("the port is free");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 5];
            stream.read_exact(&mut request).expect("a request");
            has_read.send(()).expect("the client waits");
            wait_cut_off.recv().expect("the client says so");
            stream.write_all(&request).expect("the socket has room");
            let _ = stream.read(&mut request);
        });
    });
    let mut port = 0;
    let events = events_of(&spec, None, || {
        let mut stream = client.run(move || {
            let mut stream = TcpStream::connect((SERVER, SERVER_PORT)).expect("it listens");
            stream.write_all(b"hello").expect("the server reads");
            wait_has_read.recv().expect("the server says so");
            // the client hears the server, which does not hear the client
            ip(&format!("route add blackhole {SERVER}/32"));
            cut_off.send(()).expect("the server waits");
            stream
        });
        // the server's kernel waits 200 ms before it sends again, and then longer each time; its timer runs on top of
        // any thread, and so of one on top of which the probe is blind: once would not do
        eventually("a segment is sent again and again", || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            server.run(segments_sent_again) >= 3
        });
        port = client.run(move || {
            ip(&format!("route del blackhole {SERVER}/32"));
            let mut response = [0; 5];
            stream.read_exact(&mut response).expect("a response");
            stream.local_addr().expect("it is connected").port()
        });
    });
    (events, port)
}

/// How many segments of the first response were said to be sent again, and how many left so.
fn sent_again(events: &[Event], port: u16) -> (usize, usize) {
    let peers = peers(events);
    let is_wanted = |key: RequestKey| peers[&key.connection] == (CLIENT, port).into();
    let again = |event: &&Event| matches!(event.kind, EventKind::Retransmitted { key } if is_wanted(key) && key.id == 0);
    let resent = |event: &&Event| matches!(event.kind, EventKind::SegmentOut { resent: true, key, .. } if is_wanted(key));
    (
        events.iter().filter(again).count(),
        events.iter().filter(resent).count(),
    )
}

#[test]
fn segments_that_are_sent_again_are_seen() {
    let Some(_alone) = live("segments_that_are_sent_again_are_seen") else {
        return;
    };
    // each leaves in a timer of the kernel, which may run on top of a thread on top of which the probe is blind
    let hidden = |(events, port): &(Vec<Event>, u16)| {
        let options = MatchOptions::for_streams(Nanos::from_secs(5), false);
        let is_blind = !match_events(events.iter().copied(), &options)
            .blind
            .is_empty();
        (sent_again(events, *port) == (0, 0) && is_blind)
            .then(|| "all were sent again unseen".to_owned())
    };
    let (events, port) = first_unspoiled(ATTEMPTS, |_| unheard(), hidden);
    let (announced, left) = sent_again(&events, port);
    assert!(announced >= 1);
    assert_eq!(left, announced);
}

/// Calls on one connection, and which of them have a response that is lost at first.
const CALLS_WITH_LOSSES: usize = 12;
const LOST: [usize; 3] = [3, 4, 9];

/// Three timers of the kernel must be seen, and each time an address must be back within 200 ms.
const ATTEMPTS_WITH_LOSSES: usize = 20;

/// What was recorded of such calls.
struct LossyCalls {
    events: Vec<Event>,
    /// When the client had each response.
    received: Vec<Monotonic>,
    /// How many segments the server's kernel sent again.
    sent_again: u64,
}

impl LossyCalls {
    /// Makes them: the client loses its address while a response comes that is to be lost.
    fn make() -> Self {
        let (server, client, device) = joined();
        let own = ServerProcesses::These(vec![std::process::id()]);
        let spec = spec(device, Transport::Tcp, own);
        let (has_read, wait_has_read) = channel();
        let (may_write, wait_may_write) = channel();
        server.run(|| {
            let listener = TcpListener::bind((SERVER, SERVER_PORT)).expect("the port is free");
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = [0; 5];
                while stream.read_exact(&mut request).is_ok() {
                    has_read.send(()).expect("the client waits");
                    wait_may_write.recv().expect("the client says so");
                    stream.write_all(&request).expect("the socket has room");
                }
            });
        });
        let mut received = Vec::new();
        let events = events_of(&spec, None, || {
            received = client.run(move || {
                let mut stream = TcpStream::connect((SERVER, SERVER_PORT)).expect("it listens");
                stream.set_nodelay(true).expect("an option of TCP");
                let receive = |n: usize| {
                    stream.write_all(b"hello").expect("the server reads");
                    wait_has_read.recv().expect("the server says so");
                    if LOST.contains(&n) {
                        ip(&format!("address del {CLIENT}/24 dev client"));
                        let before = received_by_client();
                        may_write.send(()).expect("the server waits");
                        eventually("the response is lost", || received_by_client() > before);
                        ip(&format!("address add {CLIENT}/24 dev client"));
                    } else {
                        may_write.send(()).expect("the server waits");
                    }
                    let mut response = [0; 5];
                    stream.read_exact(&mut response).expect("a response");
                    now()
                };
                (0..CALLS_WITH_LOSSES).map(receive).collect()
            });
        });
        let sent_again = server.run(segments_sent_again);
        Self {
            events,
            received,
            sent_again,
        }
    }
}

/// Responses that reach a client which has lost its address for a moment: it does not receive them.
#[test]
fn responses_that_are_lost_are_counted_and_their_clients_wait_is_known() {
    let Some(_alone) = live("responses_that_are_lost_are_counted_and_their_clients_wait_is_known")
    else {
        return;
    };
    let spoiled = |lossy: &LossyCalls| {
        let left = |event: &&Event| matches!(event.kind, EventKind::SegmentOut { .. });
        let left = lossy.events.iter().filter(left).count();
        let wanted = (LOST.len(), CALLS_WITH_LOSSES + LOST.len());
        let found = (lossy.sent_again as usize, left);
        (found != wanted).then(|| {
            format!(
                "the kernel sent {} segments again, and {left} were seen",
                found.0
            )
        })
    };
    let LossyCalls {
        events, received, ..
    } = first_unspoiled(ATTEMPTS_WITH_LOSSES, |_| LossyCalls::make(), spoiled);
    let options = MatchOptions::for_streams(Nanos::from_secs(5), false);
    let matched = match_events(events, &options);
    assert_eq!(matched.requests.len(), CALLS_WITH_LOSSES);
    assert_eq!(matched.unmatched, []);
    let stamps: Vec<Stamps> = matched
        .requests
        .iter()
        .map(|request| request.server)
        .collect();
    assert_eq!(
        matched.sent_again.len(),
        LOST.len(),
        "{:?}",
        matched.sent_again
    );
    for (n, again) in LOST.into_iter().zip(&matched.sent_again) {
        println!("{again:?}, received {:?}", received[n]);
        // it left, and was received only when it had been sent again
        assert_eq!(stamps[n].t6, again.left);
        assert!(
            again.left < again.last && again.last < received[n],
            "{again:?}"
        );
    }
}
