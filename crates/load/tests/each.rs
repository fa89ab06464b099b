//! A connection for each request, over real sockets.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use taillab_load::protocol::echo::EchoStream;
use taillab_load::protocol::http::Http;
use taillab_load::serve::{Architecture, Responder, Spec};
use taillab_load::transport::stream::StreamSockets;
use taillab_load::{
    AnyClient, Client, ClosedLoop, Codec, EachClient, EchoWorkload, Endpoint, Hooks, KernelStamps,
    LoadError, LoadRun, NoHooks, Outcome, PingPong, Progress, Resource, StopReason, Waiting,
    ping_pong, saturate,
};
use taillab_model::summary::{Closing, LoadErrors};
use taillab_model::{ConnectEnd, Monotonic, Nanos};

use crate::support::ports::free_port;
use crate::support::streams::{Server, request, serve};
use crate::support::{PATIENT, SHORT, on_schedule, run};

fn echo() -> Box<EchoStream> {
    Box::new(EchoStream::new(EchoWorkload::default()).unwrap())
}

fn client(server: &Endpoint, connections: usize, closing: Closing) -> EachClient {
    let resets = closing == Closing::Reset;
    let sockets =
        StreamSockets::one_by_one(server, connections, KernelStamps::NONE, resets).unwrap();
    EachClient::new(sockets, echo(), closing)
}

fn responder() -> Responder {
    Responder::start(&Spec::new(Architecture::EpollShared)).unwrap()
}

/// This many requests at once.
fn at_once(client: &mut impl Client, requests: usize, timeout: Nanos) -> LoadRun {
    on_schedule(client, vec![Nanos::ZERO; requests], timeout)
}

fn ends(run: &LoadRun) -> Vec<ConnectEnd> {
    let all = run.record.iter();
    all.filter_map(|one| Some(one.connecting?.end)).collect()
}

/// The instant by the clock of the record.
fn monotonic() -> Monotonic {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    Monotonic::from_nanos_since_boot(ns)
}

#[test]
fn as_many_connections_as_requests_and_connecting_is_a_part_of_the_response_time() {
    for closing in [Closing::Client, Closing::Reset] {
        let server = responder();
        let result = run(
            &mut client(&server.endpoint(), 64, closing),
            PATIENT,
            &mut NoHooks,
        );
        assert_eq!(result.stopped, None);
        assert_eq!(result.errors, LoadErrors::default());
        let requests = result.record.iter().len();
        let served = server.stop();
        assert_eq!(
            (served.connections, served.total()),
            (requests as u64, requests as u64)
        );
        let mut ports: Vec<_> = result.record.iter().map(|one| one.port.unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), requests);
        for one in result.record.iter() {
            let of = one.connecting.unwrap();
            assert_eq!(of.end, ConnectEnd::Connected);
            assert!(of.took > Nanos::ZERO);
            let received = one.times.received.unwrap();
            let response = received.saturating_since(one.times.intended);
            let lateness = one.turn().saturating_since(one.times.intended);
            let service = one.service_time().unwrap();
            assert_eq!(response, lateness + one.waited + of.took + service);
        }
        assert_eq!(result.record.closing(), Some(closing));
    }
}

#[test]
fn descriptors_are_bounded_and_who_waits_for_one_is_known() {
    let server = responder();
    let result = at_once(
        &mut client(&server.endpoint(), 2, Closing::Client),
        50,
        PATIENT,
    );
    assert_eq!(result.errors, LoadErrors::default());
    let waited = result.record.iter().filter(|one| one.waited > Nanos::ZERO);
    assert!(waited.count() >= 40);
    assert_eq!(server.stop().connections, 50);
}

#[test]
fn unix_sockets_have_connections_too() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec {
        listen: taillab_load::serve::Listen::Unix(folder.path().join("socket")),
        ..Spec::new(Architecture::EpollShared)
    };
    let server = Responder::start(&spec).unwrap();
    let codec = Codec::Streams(echo());
    let mut client =
        AnyClient::connect_each(&server.endpoint(), 16, codec, KernelStamps::NONE, None).unwrap();
    let result = run(&mut client, PATIENT, &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
    // the first looks whether a server is there
    let requests = result.record.iter().len() as u64;
    assert_eq!(server.stop().connections, 1 + requests);
    assert_eq!(result.record.closing(), Some(Closing::Client));
}

/// The kernel completes the handshake, so a server that is slow to accept is waited for after connecting.
#[test]
fn a_server_that_accepts_late_is_waited_for_after_the_send() {
    let accepted = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Endpoint::Tcp(listener.local_addr().unwrap());
    let noted = Arc::clone(&accepted);
    let thread = std::thread::spawn(move || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            let before = monotonic();
            let (mut stream, _) = listener.accept().unwrap();
            noted.lock().unwrap().push(before);
            let request = request(&mut stream).unwrap();
            stream.write_all(&request).unwrap();
        }
    });
    let result = at_once(&mut client(&server, 8, Closing::Client), 5, PATIENT);
    thread.join().unwrap();
    assert_eq!(result.errors, LoadErrors::default());
    let accepted = accepted.lock().unwrap();
    for (one, accepted_from) in result.record.iter().zip(&*accepted) {
        assert!(one.times.received.unwrap() > *accepted_from);
    }
    // the last was sent long before it was accepted
    assert!(result.record.get(4).unwrap().times.sent < accepted[4]);
}

/// A listener whose queue of connections is full, so that SYNs are dropped.
fn full() -> (std::os::fd::OwnedFd, Endpoint, Vec<TcpStream>) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    bind(&listener, &any).unwrap();
    listen(&listener, 0).unwrap();
    let address: std::net::SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    // a queue of length 0 takes one
    let waiting = vec![TcpStream::connect(address).unwrap()];
    (listener, Endpoint::Tcp(address), waiting)
}

/// The client's kernel sends the SYN again, a second later: that is a part of connecting.
#[test]
fn a_full_queue_of_connections_shows_in_connecting() {
    let (listener, server, waiting) = full();
    let began = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&began);
    let thread = std::thread::spawn(move || {
        while !begins.load(Relaxed) {
            std::thread::yield_now();
        }
        // the first SYN is dropped; it is sent again after a second
        std::thread::sleep(Duration::from_millis(500));
        let before = monotonic();
        for _ in 0..2 {
            let stream = TcpStream::from(rustix::net::accept(&listener).unwrap());
            serve(stream);
        }
        before
    });
    drop(waiting);
    began.store(true, Relaxed);
    let result = at_once(&mut client(&server, 1, Closing::Client), 1, PATIENT);
    let accepted = thread.join().unwrap();
    assert_eq!(result.errors, LoadErrors::default());
    let one = result.record.get(0).unwrap();
    assert_eq!(ends(&result), [ConnectEnd::Connected]);
    assert!(one.times.sent > accepted);
    assert!(one.connecting.unwrap().took > one.service_time().unwrap());
}

#[test]
fn connections_that_never_come_up_are_time_outs_of_connecting() {
    let (_listener, server, _waiting) = full();
    let result = at_once(&mut client(&server, 4, Closing::Client), 6, SHORT);
    assert_eq!(result.errors.timeouts, 6);
    // two of six waited in vain for a connection, and perhaps began one then
    let ends = ends(&result);
    assert!(ends.len() >= 4 && ends.iter().all(|end| *end == ConnectEnd::TimedOut));
    let late = result
        .record
        .iter()
        .all(|one| one.outcome == Outcome::TimedOut);
    assert!(late);
}

#[test]
fn refused_connections_are_counted_as_such_and_end_the_load() {
    let server = Endpoint::Tcp(([127, 0, 0, 1], free_port()).into());
    let result = at_once(&mut client(&server, 4, Closing::Client), 20, PATIENT);
    assert_eq!(result.errors.send_errors, 20);
    assert_eq!(ends(&result), [ConnectEnd::Refused; 20]);
    // nobody waits for the whole time-out in a load that goes on
    let slow: Vec<_> = (0..20_000).map(|i| Nanos::from_micros(100) * i).collect();
    let result = on_schedule(&mut client(&server, 4, Closing::Client), slow, SHORT);
    assert_eq!(result.stopped, Some(StopReason::Refused));
    assert!(result.record.iter().len() < 20_000);
}

#[test]
fn nothing_that_listens_is_said_before_the_load() {
    let server = Endpoint::Tcp(([127, 0, 0, 1], free_port()).into());
    let codec = Codec::Streams(echo());
    let refused = AnyClient::connect_each(&server, 4, codec, KernelStamps::NONE, None).err();
    assert!(matches!(refused, Some(LoadError::Refused { .. })));
}

/// The server closes first, so that the client's port is not in TIME_WAIT.
#[test]
fn http_asks_the_server_to_close() {
    let server = Server::start(|_, mut stream| {
        use std::io::Read;
        let (mut head, mut bytes) = (Vec::new(), [0; 4096]);
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut bytes) {
                Ok(read @ 1..) => head.extend_from_slice(&bytes[..read]),
                _ => return,
            }
        }
        let asks = String::from_utf8_lossy(&head).contains("\r\nConnection: close\r\n");
        let status = if asks { "200 OK" } else { "500 Kept" };
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let resource = Resource {
        closes: true,
        ..Resource::at("localhost", "/")
    };
    let codec = Codec::Streams(Box::new(Http::new(&resource).unwrap()));
    let mut client =
        AnyClient::connect_each(&server.endpoint(), 16, codec, KernelStamps::NONE, None).unwrap();
    let result = run(&mut client, PATIENT, &mut NoHooks);
    assert_eq!(result.errors, LoadErrors::default());
    assert_eq!(result.record.closing(), Some(Closing::Server));
}

/// Ends a closed loop once a hundred answers have come.
struct Enough<'a>(&'a Progress);

impl Hooks for Enough<'_> {
    fn idle(&mut self, _until_next: Nanos) {}

    fn should_stop(&mut self) -> bool {
        self.0.received() >= 100
    }
}

#[test]
fn closed_loops_open_connections_too() {
    let server = responder();
    let mut client = client(&server.endpoint(), 8, Closing::Client);
    let progress = Progress::new();
    let load = ClosedLoop {
        outstanding: 4,
        // answers end it, not time: the server's CPU may stand still at the beginning
        length: Nanos::from_secs(60),
        warm_up: Nanos::ZERO,
        seed: 1,
        timeout: PATIENT,
        stop: &AtomicBool::new(false),
        progress: &progress,
    };
    let found = saturate(&mut client, &load, &mut Enough(&progress)).unwrap();
    assert_eq!(found.stopped, Some(StopReason::Hook));
    assert!(found.responses >= 100);
    assert_eq!(found.errors, LoadErrors::default());
    let load = PingPong {
        warm_up: Nanos::ZERO,
        length: Nanos::from_secs(60),
        gap: Nanos::ZERO,
        most: 100,
        seed: 1,
        timeout: PATIENT,
        waiting: Waiting::Spin,
        stop: &AtomicBool::new(false),
        progress: &Progress::new(),
    };
    let played = ping_pong(&mut client, &load, &mut NoHooks).unwrap();
    assert_eq!(ends(&played), [ConnectEnd::Connected; 100]);
    let served = server.stop();
    // what the loop had open when its time was up sends nothing more
    let unused = served.connections - served.total();
    assert!(unused <= 4, "{unused}");
}
