//! Unusual ways by which requests come and responses leave, each with exact counts: in the packet that opens a
//! connection, before or with its end, behind extension headers, several in one packet, and without a copy.
//!
//! Needs Python.

use std::process::Command;

use crate::testbed::streams::{Calls, StreamBed};
use crate::testbed::{ATTEMPTS, SERVER_PORT, ip, live, tap};
use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{EventKind, Nanos};
use taillab_probe::{Devices, Probe, ProbeSpec, Transport};

/// Answers in the way that its first argument names, at an address of either family.
const SERVER: &str = r"
import os, socket, sys, threading
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
pad = b'\0\0\1\4\0\0\0\0'
if kind == 'segments':
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((address, port))
    while True:
        asked = [server.recvfrom(100) for _ in range(4)]
        answers = b''.join(request[:2] + bytes(98) for request, _ in asked)
        one = [(socket.SOL_UDP, 103, (100).to_bytes(2, 'little'))]
        server.sendmsg([answers], one, 0, asked[0][1])
server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if kind == 'extensions':
    server.setsockopt(socket.IPPROTO_IPV6, 59, pad)
if kind == 'fastopen':
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 64)
server.bind((address, port))
server.listen(64)
file = os.memfd_create('answer')
os.write(file, bytes(50_000))
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kind == 'zerocopy':
        connection.setsockopt(socket.SOL_SOCKET, 60, 1)
    if kind == 'half_closed':
        while connection.recv(100):
            pass
        connection.sendall(bytes(100))
        connection.close()
        return
    if kind == 'closed':
        # the end of its stream leaves in the segment of the response
        connection.recv(100, socket.MSG_WAITALL)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(bytes(100))
        connection.close()
        return
    while connection.recv(100, socket.MSG_WAITALL):
        if kind == 'zerocopy':
            left = memoryview(bytes(50_000))
            while left:
                left = left[connection.send(left, 0x4000000):]
        elif kind == 'sendfile':
            at = 0
            while at < 50_000:
                at += os.sendfile(connection.fileno(), file, at, 50_000 - at)
        else:
            connection.sendall(bytes(100))
while True:
    connection, _ = server.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
";

/// Asks in that way, and says how often it was answered.
const CLIENT: &str = r"
import socket, sys
kind, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
pad = b'\0\0\1\4\0\0\0\0'
request, answered = bytes(100), 0
def receive(client, length):
    while length:
        got = len(client.recv(length))
        assert got, 'closed'
        length -= got
if kind == 'segments':
    client = socket.socket(family, socket.SOCK_DGRAM)
    client.connect((address, port))
    for turn in range(20):
        ids = [(4 * turn + n).to_bytes(2, 'big') for n in range(4)]
        asked = [one + bytes(98) for one in ids]
        if turn % 2:
            for one in asked:
                client.send(one)
        else:
            client.sendmsg([b''.join(asked)], [(socket.SOL_UDP, 103, (100).to_bytes(2, 'little'))])
        got = [client.recv(1000) for _ in range(4)]
        assert [one[:2] for one in got] == ids
        answered += 4
elif kind == 'fastopen':
    for _ in range(20):
        client = socket.socket(family)
        client.sendto(request, 0x20000000, (address, port))
        receive(client, 100)
        client.sendall(request)
        receive(client, 100)
        answered += 2
elif kind == 'half_closed':
    for n in range(20):
        client = socket.create_connection((address, port))
        # the end comes in the packet of the request, or in one of its own
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, n % 2)
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        receive(client, 100)
        answered += 1
elif kind == 'closed':
    for _ in range(20):
        client = socket.create_connection((address, port))
        client.sendall(request)
        receive(client, 100)
        assert client.recv(100) == b''
        answered += 1
else:
    length = 50_000 if kind in ('zerocopy', 'sendfile') else 100
    for headers in [(59,), (54,), (54, 59)] if kind == 'extensions' else [()]:
        client = socket.socket(family)
        for one in headers:
            client.setsockopt(socket.IPPROTO_IPV6, one, pad)
        client.connect((address, port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(20):
            client.sendall(request)
            receive(client, length)
            answered += 1
print(answered)
";

fn script(text: &str, kind: &str, address: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", text, kind, address, &SERVER_PORT.to_string()]);
    command
}

/// Two namespaces whose devices have addresses of both families.
fn bed() -> StreamBed {
    let bed = StreamBed::new();
    bed.in_servers(|| ip("address add fd99::1/64 dev server nodad"));
    bed.in_clients(|| ip("address add fd99::2/64 dev client nodad"));
    bed
}

/// What is matched while a client asks in this way, and how often it was answered.
fn asked(
    bed: &StreamBed,
    spec: &ProbeSpec,
    kind: &'static str,
    address: &'static str,
) -> (Matched, usize) {
    let mut probe = Probe::load(spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let output = bed.in_clients(move || script(CLIENT, kind, address).output());
    let output = output.expect("Python is installed");
    assert!(output.status.success(), "{kind}: {output:?}");
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{kind}: {:?}", recording.lost);
    let said = String::from_utf8_lossy(&output.stdout);
    let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
    let matched = match_events(recording.into_events(), &options);
    (matched, said.trim().parse().expect("a number"))
}

fn assert_each_is_matched(
    bed: &StreamBed,
    spec: &ProbeSpec,
    kind: &'static str,
    address: &'static str,
) {
    let (matched, answered) = asked(bed, spec, kind, address);
    println!("{kind}: {} of {answered}", matched.requests.len());
    assert!(answered >= 20);
    assert_eq!(matched.requests.len(), answered, "{kind}");
    assert_eq!(matched.unmatched, [], "{kind}");
    assert_eq!(matched.without_request, [], "{kind}");
}

#[test]
fn requests_that_come_in_unusual_ways_are_one_each() {
    let Some(_alone) = live("requests_that_come_in_unusual_ways_are_one_each") else {
        return;
    };
    // on both sides, and without a cookie
    let allow = || {
        let file = "/proc/sys/net/ipv4/tcp_fastopen";
        std::fs::write(file, "519").expect("a namespace has its own");
    };
    for (kind, address) in [
        ("fastopen", "10.99.0.1"),
        ("half_closed", "10.99.0.1"),
        ("closed", "10.99.0.1"),
        ("extensions", "fd99::1"),
        ("zerocopy", "10.99.0.1"),
        ("sendfile", "10.99.0.1"),
    ] {
        let bed = bed();
        bed.in_servers(allow);
        bed.in_clients(allow);
        let _server = bed.start(script(SERVER, kind, address));
        bed.await_server_at(address);
        assert_each_is_matched(&bed, &bed.spec, kind, address);
    }
}

#[test]
fn datagrams_that_leave_several_in_one_packet_are_one_each() {
    let Some(_alone) = live("datagrams_that_leave_several_in_one_packet_are_one_each") else {
        return;
    };
    let bed = bed();
    let spec = ProbeSpec {
        transport: Transport::Udp,
        ..bed.spec.clone()
    };
    let _server = bed.start(script(SERVER, "segments", "10.99.0.1"));
    bed.await_datagram_server();
    assert_each_is_matched(&bed, &spec, "segments", "10.99.0.1");
}

#[test]
fn segments_that_are_joined_on_receipt_are_those_of_their_connections() {
    let Some(_alone) = live("segments_that_are_joined_on_receipt_are_those_of_their_connections")
    else {
        return;
    };
    let bed = StreamBed::new();
    bed.in_servers(|| tap::switch_gro_on("server"));
    // veth bypasses GRO for what its peer might send in one piece
    bed.in_clients(|| tap::switch_segmentation_off("client"));
    bed.thread_per_connection(6 * ATTEMPTS, 4_000);
    let attempt = || {
        let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
        probe.attach().expect("the hooks are there");
        let calls = Calls {
            connections: 6,
            rounds: 30,
            in_flight: 1,
            request: vec![7; 4_000],
        };
        let (_, calls) = bed.make(calls, 0);
        let recording = probe.finish().expect("the counters can be read");
        assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
        let segments = recording.events().filter_map(|event| match event.kind {
            EventKind::SegmentIn { bytes, .. } if bytes > 0 => Some(bytes as usize),
            _ => None,
        });
        let segments: Vec<usize> = segments.collect();
        // each before it is joined with others; the probe may be blind when one comes in
        assert!(segments.iter().all(|bytes| *bytes < 1_500));
        let whole = segments.iter().sum::<usize>() == 4_000 * calls.len();
        whole.then_some((recording, calls))
    };
    let found = (0..ATTEMPTS).find_map(|_| attempt());
    let (recording, calls) = found.expect("one in which the probe missed nothing");
    let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
    let matched = match_events(recording.into_events(), &options);
    assert_eq!(
        (matched.requests.len(), matched.unmatched.len()),
        (calls.len(), 0)
    );
}

/// Whether this command makes something that the kernel knows; the guests of `make vm` know it.
fn is_known(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut made = Command::new(words.next().expect("a program"));
    let made = made.args(words).output().expect("iproute2 is installed");
    let is_there = made.status.success();
    assert!(
        is_there || std::env::var_os("TAILLAB_GUEST").is_none(),
        "{command}: {made:?}"
    );
    is_there
}

#[test]
fn what_passes_a_vlan_is_seen_once_whoever_writes_its_tag() {
    let Some(_alone) = live("what_passes_a_vlan_is_seen_once_whoever_writes_its_tag") else {
        return;
    };
    for in_packet in [false, true] {
        let bed = bed();
        let own = |device: &'static str, address: &'static str| {
            move || {
                if in_packet {
                    tap::switch_tags_off(device);
                }
                let vlan = format!("ip link add link {device} name tagged type vlan id 5");
                is_known(&vlan) && {
                    ip(&format!("address add {address}/24 dev tagged"));
                    ip("link set tagged up");
                    true
                }
            }
        };
        if !bed.in_servers(own("server", "10.98.0.1")) {
            println!("this kernel has no VLANs: only the guests show this");
            return;
        }
        bed.in_clients(own("client", "10.98.0.2"));
        let spec = ProbeSpec {
            devices: Devices::all_in(bed.spec.devices.netns_inode),
            ..bed.spec.clone()
        };
        let _server = bed.start(script(SERVER, "plain", "10.98.0.1"));
        bed.await_server_at("10.98.0.1");
        assert_each_is_matched(&bed, &spec, "plain", "10.98.0.1");
    }
}

#[test]
fn what_a_fair_queue_paces_has_left_when_the_driver_takes_it() {
    let Some(_alone) = live("what_a_fair_queue_paces_has_left_when_the_driver_takes_it") else {
        return;
    };
    let bed = bed();
    // each response waits for the time that the one before it takes
    let made = bed.in_servers(|| is_known("tc qdisc replace dev server root fq maxrate 200kbit"));
    if !made {
        println!("this kernel has no fq: only the guests show this");
        return;
    }
    let spec = ProbeSpec {
        queues: true,
        ..bed.spec.clone()
    };
    let _server = bed.start(script(SERVER, "plain", "10.99.0.1"));
    bed.await_server();
    assert_each_is_matched(&bed, &spec, "plain", "10.99.0.1");
}
