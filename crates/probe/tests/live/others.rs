//! Two processes that share an address and a port by sockets of their own (SO_REUSEPORT): a request is that of the
//! process whose socket received it.
//!
//! Needs Python.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;

use crate::testbed::streams::{Process, StreamBed};
use crate::testbed::{CLIENT, PATIENCE, eventually, live};
use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{MiddleStamps, Nanos};
use taillab_probe::{Probe, ProbeSpec, ServerProcesses, Transport};

const BYTES: usize = 128;

/// Answers each request with the number of the process that was started. `fork`: each connection has a process of its
/// own.
const SERVER: &str = r"
import os, socket, sys, threading
address, port, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
answer = str(os.getpid()).encode().ljust(128)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
server.bind((address, port))
if kind == 'udp':
    while True:
        request, client = server.recvfrom(2048)
        server.sendto(request[:2] + answer[2:], client)
server.listen(64)
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while connection.recv(128, socket.MSG_WAITALL):
        connection.sendall(answer)
while True:
    connection, _ = server.accept()
    if kind == 'fork':
        if os.fork() == 0:
            serve(connection)
            os._exit(0)
        connection.close()
    else:
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
";

/// Two of them.
fn servers(bed: &StreamBed, kind: &str) -> [Process; 2] {
    [(), ()].map(|()| {
        let mut command = Command::new("python3");
        let address = bed.address();
        command.args(["-c", SERVER, &address.ip().to_string()]);
        command.args([&address.port().to_string(), kind]);
        bed.start(command)
    })
}

/// Which process answered, of what came back over TCP.
fn process_of(answer: &[u8]) -> u32 {
    let digits: Vec<u8> = (answer.iter().copied())
        .filter(u8::is_ascii_digit)
        .collect();
    String::from_utf8_lossy(&digits).parse().expect("a number")
}

/// What is matched, and how many requests each process answered.
fn record(
    spec: &ProbeSpec,
    calls: impl FnOnce() -> HashMap<u32, u64>,
) -> (Matched, HashMap<u32, u64>) {
    let mut probe = Probe::load(spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let answered = calls();
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    let options = MatchOptions {
        stamps: spec.stamps,
        ..MatchOptions::for_streams(Nanos::from_secs(5), false)
    };
    (match_events(recording.into_events(), &options), answered)
}

/// Connections until both processes have some, and twenty requests on each.
fn streams(bed: &StreamBed) -> HashMap<u32, u64> {
    let mut answered = HashMap::new();
    let mut call = |stream: &mut TcpStream| {
        let mut answer = [0; BYTES];
        stream.write_all(&[7; BYTES]).expect("the server reads");
        stream.read_exact(&mut answer).expect("a response");
        *answered.entry(process_of(&answer)).or_default() += 1;
        answered.len()
    };
    let mut streams = Vec::new();
    eventually("both have connections", || {
        let mut stream = bed.connect();
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let seen = call(&mut stream);
        streams.push(stream);
        seen == 2 && streams.len() >= 12
    });
    for _ in 0..19 {
        for stream in &mut streams {
            call(stream);
        }
    }
    answered
}

#[test]
fn each_connection_is_that_of_the_process_that_reads_from_it() {
    let Some(_alone) = live("each_connection_is_that_of_the_process_that_reads_from_it") else {
        return;
    };
    for kind in ["threads", "fork"] {
        let bed = StreamBed::new();
        let servers = servers(&bed, kind);
        bed.await_server();
        for stamps in [MiddleStamps::All, MiddleStamps::Ends] {
            let [own, other] = [&servers[0], &servers[1]].map(Process::id);
            let spec = ProbeSpec {
                server: ServerProcesses::These(vec![own]),
                others: vec![other],
                stamps,
                ..bed.spec.clone()
            };
            let (matched, answered) = record(&spec, || streams(&bed));
            println!("{kind}, {stamps}: {answered:?}");
            let found = (matched.requests.len() as u64, matched.other_processes);
            assert_eq!(
                found,
                (answered[&own], answered[&other]),
                "{kind}, {stamps}"
            );
            assert_eq!((&matched.unmatched, &matched.ambiguous), (&vec![], &vec![]));
            // all together, as before
            let all = ProbeSpec {
                others: Vec::new(),
                ..spec
            };
            let (matched, answered) = record(&all, || streams(&bed));
            let all: u64 = answered.values().sum();
            assert_eq!(
                (matched.requests.len() as u64, matched.other_processes),
                (all, 0)
            );
        }
    }
}

#[test]
fn each_datagram_is_that_of_the_process_that_answers_it() {
    let Some(_alone) = live("each_datagram_is_that_of_the_process_that_answers_it") else {
        return;
    };
    let bed = StreamBed::new();
    let servers = servers(&bed, "udp");
    bed.await_datagram_server();
    let [own, other] = [&servers[0], &servers[1]].map(Process::id);
    let (address, call) = (bed.address(), |socket: &UdpSocket, id: u16| {
        let mut answer = [0; BYTES];
        socket.send(&id.to_be_bytes()).expect("a send");
        socket.recv(&mut answer).ok()?;
        assert_eq!(answer[..2], id.to_be_bytes());
        // its first two digits are gone
        Some(process_of(&answer[2..]))
    });
    let tail = |pid: u32| process_of(&pid.to_string().into_bytes()[2..]);
    assert_ne!(tail(own), tail(other), "they cannot be told apart");
    // each socket's port decides which process it reaches
    let mut sockets: Vec<UdpSocket> = Vec::new();
    eventually("both have clients", || {
        let socket = bed.in_clients(move || {
            let socket = UdpSocket::bind((CLIENT, 0)).expect("the client's address is up");
            socket.connect(address).expect("it is on the link");
            socket
        });
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        let answered = call(&socket, 0);
        sockets.extend(answered.map(|_| socket));
        let reached: std::collections::BTreeSet<_> = sockets
            .iter()
            .filter_map(|socket| call(socket, 0))
            .collect();
        reached.len() == 2 && sockets.len() >= 12
    });
    for stamps in [MiddleStamps::All, MiddleStamps::Ends] {
        let spec = ProbeSpec {
            transport: Transport::Udp,
            server: ServerProcesses::These(vec![own]),
            others: vec![other],
            stamps,
            ..bed.spec.clone()
        };
        let (matched, answered) = record(&spec, || {
            let mut answered = HashMap::new();
            for id in 1..=20 {
                for socket in &sockets {
                    let process = call(socket, id).expect("a response");
                    *answered.entry(process).or_default() += 1;
                }
            }
            answered
        });
        println!("{stamps}: {answered:?}");
        let found = (matched.requests.len() as u64, matched.other_processes);
        assert_eq!(
            found,
            (answered[&tail(own)], answered[&tail(other)]),
            "{stamps}"
        );
        assert_eq!(matched.unmatched, []);
    }
}
