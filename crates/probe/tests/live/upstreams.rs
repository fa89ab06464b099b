//! A server that asks two others: each answer is stamped, with who asked, who was asked and how long it took.
//!
//! Needs Python.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use crate::testbed::streams::{Process, StreamBed};
use crate::testbed::{PATIENCE, SERVER, ip, live, threads_of};
use taillab_model::{EventKind, Nanos};
use taillab_probe::{Probe, ProbeSpec, ServerProcesses};

/// Where the other servers wait, and a second port of the server itself.
const FIRST: u16 = 7_101;
const SECOND: u16 = 7_102;
const STATUS: u16 = 7_103;

const BYTES: usize = 8;

/// Two servers at two ports. Each answers 8 bytes, the second one after 5 ms, with the nanoseconds from when it had read
/// them until it answers.
const BACKENDS: &str = r"
import socket, sys, threading, time
def answer(connection, takes):
    while connection.recv(8, socket.MSG_WAITALL):
        began = time.monotonic_ns()
        time.sleep(takes)
        connection.sendall((time.monotonic_ns() - began).to_bytes(8, 'little'))
def serve(port, takes):
    listener = socket.create_server((sys.argv[1], port))
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=answer, args=(connection, takes), daemon=True).start()
for port, takes in zip(map(int, sys.argv[2:]), (0.0, 0.005)):
    threading.Thread(target=serve, args=(port, takes)).start()
";

/// Asks the server that the first byte of a request names, in two writes, and passes its answer on. The second server is
/// reached through a socket of IPv6. Those who come to the last port are answered at once.
const PROXY: &str = r"
import socket, sys, threading
address, port, status = sys.argv[1], int(sys.argv[2]), int(sys.argv[5])
def peer(address, port):
    while True:
        try:
            peer = socket.create_connection((address, port))
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return peer
        except ConnectionRefusedError:
            pass
peers = [peer(address, int(sys.argv[3])), peer('::ffff:' + address, int(sys.argv[4]))]
def ask(request):
    peer = peers[request[0]]
    peer.sendall(request[:3])
    peer.sendall(request[3:])
    return peer.recv(8, socket.MSG_WAITALL)
def serve(listener, answer):
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while request := connection.recv(8, socket.MSG_WAITALL):
            connection.sendall(answer(request))
threading.Thread(target=serve, args=(socket.create_server((address, status)), bytes)).start()
serve(socket.create_server((address, port)), ask)
";

fn python(bed: &StreamBed, program: &'static str, ports: &[u16]) -> Process {
    let mut command = Command::new("python3");
    command.args(["-c", program, &SERVER.to_string()]);
    command.args(ports.iter().map(ToString::to_string));
    bed.start(command)
}

/// The answer to one request, and how long it took.
fn call(stream: &mut TcpStream, request: [u8; BYTES]) -> ([u8; BYTES], Nanos) {
    let mut answer = [0; BYTES];
    let began = Instant::now();
    stream.write_all(&request).expect("the server reads");
    stream.read_exact(&mut answer).expect("a response");
    (answer, Nanos::new(began.elapsed().as_nanos() as u64))
}

#[test]
fn every_question_to_another_server_is_stamped_and_nothing_else() {
    let test = "every_question_to_another_server_is_stamped_and_nothing_else";
    let Some(_alone) = live(test) else {
        return;
    };
    let bed = StreamBed::new();
    // it leads to the servers that are asked
    bed.in_servers(|| ip("link set lo up"));
    let _backends = python(&bed, BACKENDS, &[FIRST, SECOND]);
    let proxy = python(&bed, PROXY, &[bed.address().port(), FIRST, SECOND, STATUS]);
    bed.await_server();
    let connect = |port| {
        let stream =
            bed.in_clients(move || TcpStream::connect((SERVER, port)).expect("it listens"));
        stream.set_nodelay(true).expect("an option of TCP");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream
    };
    let (mut stream, mut status) = (connect(bed.address().port()), connect(STATUS));
    let spec = ProbeSpec {
        server: ServerProcesses::These(vec![proxy.id()]),
        served_ports: vec![STATUS],
        ..bed.spec.clone()
    };
    let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let mut truth = Vec::new();
    for n in 0..40_u8 {
        let to = n % 2;
        let (answer, took) = call(&mut stream, [to, n, 0, 0, 0, 0, 0, 1]);
        truth.push((to, Nanos::new(u64::from_le_bytes(answer)), took));
        let request = [n; BYTES];
        assert_eq!(call(&mut status, request).0, request);
    }
    let asked = probe.upstreams();
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);

    let addresses: Vec<SocketAddr> = asked.iter().map(|(_, address)| *address).collect();
    assert_eq!(addresses, [FIRST, SECOND].map(|port| (SERVER, port).into()));
    let numbers: Vec<u16> = asked.iter().map(|(number, _)| *number).collect();
    let threads: Vec<u32> = (threads_of(proxy.id()).iter())
        .filter_map(|thread| thread.file_name()?.to_str()?.parse().ok())
        .collect();
    let mut answers = Vec::new();
    for event in recording.into_events() {
        if let EventKind::UpstreamAnswered {
            tid,
            server,
            waited,
        } = event.kind
        {
            assert!(threads.contains(&tid), "{tid} of {threads:?}");
            answers.push((server, waited));
        }
    }
    assert_eq!(answers.len(), truth.len(), "{answers:?}");
    for ((server, waited), (to, least, most)) in answers.into_iter().zip(truth) {
        assert_eq!(server, numbers[usize::from(to)]);
        assert!(
            (least..=most).contains(&waited),
            "{waited}: {least} to {most}"
        );
    }
}
