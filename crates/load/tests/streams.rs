//! The engine over TCP and Unix sockets, with servers that answer properly and servers that do
//! not.

use crate::support;
use crate::support::streams;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use streams::{BYTES, Server, client, request, serve};
use support::ports::free_port;
use support::{PATIENT, SHORT, is_answered, on_schedule, run};
use taillab_load::protocol::http::Http;
use taillab_load::transport::stream::{Event, StreamSockets, StreamTransport};
use taillab_load::{
    Client, ClosedLoop, EchoWorkload, Endpoint, Habits, KernelStamps, LoadError, LoadRun, NoHooks,
    OpenLoop, Outcome, Progress, Resource, Sending, StopReason, StreamClient, saturate,
};
use taillab_model::Nanos;
use taillab_model::summary::{ClientKind, Connect, LoadErrors};

fn count(run: &LoadRun, outcome: Outcome) -> usize {
    run.record.iter().filter(|e| e.outcome == outcome).count()
}

fn all_done(run: &LoadRun) {
    assert_eq!(run.stopped, None);
    assert_eq!(run.errors, LoadErrors::default());
    assert_eq!(count(run, Outcome::Done), run.record.iter().len());
}

#[test]
fn a_good_server_answers_everything() {
    let server = Server::start(|_, stream| serve(stream));
    for connections in [1, 16, 300] {
        let result = run(
            &mut client(&server.endpoint(), connections),
            PATIENT,
            &mut NoHooks,
        );
        all_done(&result);
        let used: std::collections::BTreeSet<_> = result
            .record
            .iter()
            .map(|e| e.connection.unwrap())
            .collect();
        assert_eq!(used.len(), connections.min(result.record.iter().len()));
    }
}

#[test]
fn ipv6_and_unix_sockets_serve_as_well() {
    let server = Server::start_at("[::1]:0", |_, stream| serve(stream));
    all_done(&run(
        &mut client(&server.endpoint(), 4),
        PATIENT,
        &mut NoHooks,
    ));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || {
        let threads: Vec<_> = listener
            .incoming()
            .take(4)
            .flatten()
            .map(|stream| std::thread::spawn(move || serve(stream)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let mut client = client(&Endpoint::Unix(path), 4);
    let result = run(&mut client, PATIENT, &mut NoHooks);
    all_done(&result);
    assert!(result.record.iter().all(|e| e.key.is_none()));
    drop(client);
    thread.join().unwrap();
}

/// A request never waits in the client: on one connection, requests are pipelined.
#[test]
fn requests_are_pipelined_when_no_connection_is_idle() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start(move |_, mut stream| {
        let first: Vec<_> = (0..50).map_while(|_| request(&mut stream)).collect();
        tell.lock().unwrap().send(first.len()).unwrap();
        first.iter().for_each(|r| stream.write_all(r).unwrap());
        serve(stream);
    });
    let mut client = client(&server.endpoint(), 1);
    let result = run(&mut client, PATIENT, &mut NoHooks);
    all_done(&result);
    assert_eq!(told.recv().unwrap(), 50);
}

/// The k-th answer of each connection belongs to its k-th request, however late it comes.
#[test]
fn a_late_answer_is_its_own_requests() {
    let server = Server::start(|_, mut stream| {
        // all three have been sent before the pause begins, which is longer than their time-out
        let first: Vec<_> = (0..3).map_while(|_| request(&mut stream)).collect();
        std::thread::sleep(Duration::from_millis(300));
        first.iter().for_each(|r| stream.write_all(r).unwrap());
        serve(stream);
    });
    let mut client = client(&server.endpoint(), 1);
    // The first three are sent well before the first of them times out, and time out before their
    // answers come; the last one is sent after that.
    let due = [0, 1, 2, 600].map(Nanos::from_millis);
    let result = on_schedule(&mut client, due.to_vec(), Nanos::from_millis(100));
    let outcomes: Vec<_> = result.record.iter().map(|e| e.outcome).collect();
    assert_eq!(outcomes[..3], [Outcome::TimedOut; 3]);
    // a machine that stands still can make the last answer late too, but not wrong
    assert!(
        matches!(outcomes[3..], [Outcome::Done | Outcome::TimedOut]),
        "{outcomes:?}"
    );
    // late but not confused: an echo's answer contains its request's number
    assert!(
        result
            .record
            .iter()
            .take(3)
            .all(|e| e.times.received.is_some())
    );
    assert_eq!(result.errors.malformed_responses, 0);
    assert_eq!(result.errors.unexpected_responses, 0);
}

/// A run against a faulty server; checks that every request ended in a way that faults can cause.
fn nasty(behave: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> LoadRun {
    let server = Server::start(behave);
    let mut client = client(&server.endpoint(), 4);
    let result = run(&mut client, SHORT, &mut NoHooks);
    assert_eq!(result.stopped, None);
    let ended = [
        Outcome::Done,
        Outcome::TimedOut,
        Outcome::SendFailed,
        Outcome::ConnectionLost,
        Outcome::Malformed,
    ];
    let n: usize = ended.iter().map(|&outcome| count(&result, outcome)).sum();
    assert_eq!(n, result.record.iter().len());
    // the client goes on afterwards
    client.begin(0, Sending::Scheduled { seed: 1 });
    result
}

#[test]
fn connections_closed_at_once_are_counted() {
    let result = nasty(|_, stream| drop(stream));
    assert!(result.errors.connections_closed + result.errors.connections_reset > 0);
    assert_eq!(count(&result, Outcome::Done), 0);
}

#[test]
fn an_answer_cut_short_loses_its_request() {
    let result = nasty(|_, mut stream| {
        if let Some(request) = request(&mut stream) {
            stream.write_all(&request[..BYTES / 2]).unwrap();
        }
    });
    assert!(result.errors.connections_closed > 0);
    assert!(result.errors.lost_with_connection > 0);
    assert_eq!(result.errors.malformed_responses, 0);
    assert_eq!(count(&result, Outcome::Done), 0);
}

#[test]
fn resets_are_told_from_closes() {
    let result = nasty(|_, mut stream| {
        if request(&mut stream).is_some() {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
    });
    assert!(result.errors.connections_reset > 0);
    assert!(result.errors.lost_with_connection > 0);
    assert_eq!(count(&result, Outcome::Done), 0);
}

/// Every connection works again after it was reopened.
#[test]
fn a_server_that_closes_after_each_answer_still_serves() {
    let result = nasty(|_, mut stream| {
        if let Some(request) = request(&mut stream) {
            stream.write_all(&request).unwrap();
        }
    });
    assert!(result.errors.connections_closed > 4);
    assert!(count(&result, Outcome::Done) > 4);
    assert_eq!(result.errors.malformed_responses, 0);
}

/// Many more requests than a connection every 10 ms could carry: each waits until its connection is open again, and
/// none is refused.
#[test]
fn closed_connections_are_reopened_at_once() {
    let server = Server::start(|_, mut stream| {
        let mut request = Vec::new();
        let mut bytes = [0; 4096];
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut bytes) {
                Ok(read @ 1..) => request.extend_from_slice(&bytes[..read]),
                _ => return,
            }
        }
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        stream.write_all(answer).unwrap();
    });
    let sockets = StreamSockets::connect(&server.endpoint(), 4, KernelStamps::NONE).unwrap();
    let http = Http::new(&Resource::at("localhost", "/")).unwrap();
    let habits = Habits::independent(NonZeroU32::new(1));
    let mut client = StreamClient::new(sockets, Box::new(http)).with(habits);
    let result = run(&mut client, PATIENT, &mut NoHooks);
    assert_eq!(result.stopped, None);
    let requests = result.record.iter().len();
    let answered = result.record.iter().filter(is_answered).count();
    assert_eq!(answered, requests);
    let measured = result.record.measured().len();
    assert!(result.errors.connections_closed as usize >= measured - 4);
}

/// A client of HTTP that has one request at a time on each of its connections.
fn http(server: &Server, connections: usize) -> StreamClient {
    let sockets =
        StreamSockets::connect(&server.endpoint(), connections, KernelStamps::NONE).unwrap();
    let http = Http::new(&Resource::at("localhost", "/")).unwrap();
    let habits = Habits::independent(NonZeroU32::new(1));
    StreamClient::new(sockets, Box::new(http)).with(habits)
}

/// Reads a request of HTTP; whether one came.
fn reads_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    let mut bytes = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => request.extend_from_slice(&bytes[..read]),
            _ => return false,
        }
    }
    true
}

/// As servers of HTTP/1.0 do, and programs that do not count what they say.
#[test]
fn a_body_that_ends_with_its_connection_is_an_answer_unless_it_is_cut_off() {
    for cut_off in [false, true] {
        let server = Server::start(move |_, mut stream| {
            if !reads_request(&mut stream) {
                return;
            }
            for part in ["HTTP/1.0 200 OK\r\nServer: x\r\n", "\r\nfirst ", "last"] {
                stream.write_all(part.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            if cut_off {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        });
        let result = run(&mut http(&server, 4), PATIENT, &mut NoHooks);
        let done = count(&result, Outcome::Done);
        let ended = match cut_off {
            true => count(&result, Outcome::ConnectionLost),
            false => done,
        };
        assert_eq!(ended, result.record.iter().len(), "cut off: {cut_off}");
        let shortest = (result.record.iter())
            .filter_map(|one| one.times.received?.checked_since(one.times.sent))
            .min();
        assert!(
            cut_off || shortest >= Some(Nanos::from_millis(2)),
            "{shortest:?}"
        );
    }
}

/// A server that closes connections on which nothing came for long, and says so: that answers no request, whether
/// one is under way or none.
#[test]
fn a_time_out_of_the_server_is_no_answer() {
    const TIRED: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n";
    let server = Server::start(|n, mut stream| {
        // the first connections are idle: nothing was read there
        if n < 4 {
            stream.write_all(TIRED).unwrap();
            return;
        }
        while reads_request(&mut stream) {
            let answer = match n % 2 {
                0 => &b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..],
                _ => TIRED,
            };
            stream.write_all(answer).unwrap();
            if n % 2 == 1 {
                return;
            }
        }
    });
    let mut client = http(&server, 4);
    std::thread::sleep(Duration::from_millis(50));
    let result = run(&mut client, PATIENT, &mut NoHooks);
    let (done, lost) = (
        count(&result, Outcome::Done),
        count(&result, Outcome::ConnectionLost),
    );
    assert_eq!(done + lost, result.record.iter().len());
    assert!(done > 0 && lost > 0, "{done} {lost}");
    assert_eq!(result.errors.unexpected_responses, 0);
    assert_eq!(result.errors.server_errors, 0);
}

/// memcached with `-c` reached: what it refuses is asked again less and less often, and its reason is kept.
#[test]
fn a_server_that_has_too_many_connections_is_not_asked_all_the_time() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let server = Server::start(move |n, mut stream| {
        counted.fetch_add(1, Relaxed);
        match n {
            0 => serve(stream),
            _ => drop(stream.write_all(b"ERROR Too many open connections\r\n")),
        }
    });
    let begun = std::time::Instant::now();
    let mut client = client(&server.endpoint(), 4);
    let result = on_schedule(
        &mut client,
        (0..200).map(|n| Nanos::from_millis(10 * n)).collect(),
        SHORT,
    );
    assert!(count(&result, Outcome::Done) > 0);
    let said = client.wrong_answer().map(ToString::to_string);
    assert_eq!(said.as_deref(), Some("ERROR Too many open connections"));
    // 10, 20, 40 … 640 ms, and every 640 ms from then on
    let most = 4 + 3 * (8 + begun.elapsed().as_millis() as usize / 640);
    let accepted = accepted.load(Relaxed);
    assert!(accepted <= most, "{accepted} of {most}");
}

/// The pauses between attempts are our own, and while the machine stands still they are longer.
#[test]
fn a_server_that_was_not_asked_for_long_is_not_gone() {
    let server = Server::start(|_, stream| drop(stream));
    let mut sockets = StreamSockets::connect(&server.endpoint(), 1, KernelStamps::NONE).unwrap();
    while !matches!(sockets.receive(None), Event::Ended { .. }) {}
    // longer than a server may be silent
    std::thread::sleep(Duration::from_millis(1100));
    sockets.tend(Nanos::from_secs(1));
    assert_ne!(sockets.receive(None), Event::Refused);
}

/// The server reads once and answers one request, whatever it has read.
#[test]
fn a_server_that_answers_one_request_per_read_loses_none() {
    let server = Server::start(|_, mut stream| {
        let mut bytes = [0; 64 * BYTES];
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            // so that the schedule is denser than the server
            std::thread::sleep(Duration::from_millis(1));
            let first = &bytes[..read.min(BYTES)];
            if stream.write_all(first).is_err() {
                return;
            }
        }
    });
    for kind in [ClientKind::Independent, ClientKind::Pooled] {
        let habits = Habits {
            kind,
            pipeline: NonZeroU32::new(1),
            reserve: 0,
            connect: Connect::Once,
        };
        let mut client = client(&server.endpoint(), 2).with(habits);
        let result = run(&mut client, PATIENT, &mut NoHooks);
        all_done(&result);
        assert!(result.record.iter().any(|entry| entry.waited > Nanos::ZERO));
    }
}

#[test]
fn garbage_is_malformed() {
    let result = nasty(|_, mut stream| {
        while request(&mut stream).is_some() {
            if stream.write_all(&[b'X'; 3 * BYTES]).is_err() {
                return;
            }
        }
    });
    assert!(result.errors.malformed_responses > 0);
    assert_eq!(count(&result, Outcome::Done), 0);
}

#[test]
fn answers_that_come_twice_are_unexpected() {
    let result = nasty(|_, mut stream| {
        while let Some(request) = request(&mut stream) {
            if stream.write_all(&request.repeat(2)).is_err() {
                return;
            }
        }
    });
    assert!(result.errors.unexpected_responses > 0);
    assert!(count(&result, Outcome::Done) > 0);
}

#[test]
fn half_an_answer_and_none_at_all_time_out() {
    for sent in [0, BYTES / 2] {
        let result = nasty(move |_, mut stream| {
            let Some(first) = request(&mut stream) else {
                return;
            };
            stream.write_all(&first[..sent]).unwrap();
            // until the client closes
            while request(&mut stream).is_some() {}
        });
        assert_eq!(
            count(&result, Outcome::TimedOut),
            result.record.iter().len()
        );
        assert!(result.record.iter().all(|e| e.times.received.is_none()));
    }
}

/// A server that reads nothing fills its buffers and the client's; nothing hangs.
#[test]
fn a_server_that_does_not_read_makes_sends_fail_in_the_end() {
    // the server's end closes them
    let unread = Mutex::new(Vec::new());
    let server = Server::start(move |_, stream| unread.lock().unwrap().push(stream));
    let sizes = EchoWorkload {
        request_bytes: 1 << 20,
        response_bytes: 4,
    };
    let mut client = streams::echo(&server.endpoint(), 1, sizes);
    let result = on_schedule(&mut client, vec![Nanos::ZERO; 40], SHORT);
    assert!(count(&result, Outcome::SendFailed) > 0);
    assert!(count(&result, Outcome::TimedOut) > 0);
}

/// What was measured until then is kept; the run ends well before its schedule.
#[test]
fn a_server_that_dies_ends_the_run() {
    let served = Arc::new(AtomicUsize::new(0));
    let streams = Arc::new(Mutex::new(Vec::new()));
    let (counted, kept) = (Arc::clone(&served), Arc::clone(&streams));
    let mut server = Some(Server::start(move |_, mut stream| {
        kept.lock().unwrap().push(stream.try_clone().unwrap());
        while let Some(request) = request(&mut stream) {
            if stream.write_all(&request).is_err() {
                return;
            }
            counted.fetch_add(1, Relaxed);
        }
    }));
    let mut client = client(&server.as_ref().unwrap().endpoint(), 4);
    let killer = std::thread::spawn(move || {
        while served.load(Relaxed) < 50 || streams.lock().unwrap().len() < 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(server.take());
        for stream in streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
    // an hour
    let result = on_schedule(
        &mut client,
        (0..3_600_000).map(Nanos::from_millis).collect(),
        SHORT,
    );
    killer.join().unwrap();
    assert_eq!(result.stopped, Some(StopReason::Refused));
    assert!(count(&result, Outcome::Done) >= 49);
    assert!(result.errors.send_errors > 0);
    assert_eq!(
        result.errors.connections_closed + result.errors.connections_reset,
        4
    );
}

#[test]
fn a_closed_loop_keeps_its_requests_in_flight() {
    let server = Server::start(|_, stream| serve(stream));
    for (connections, outstanding) in [(4, 1), (4, 32), (64, 32)] {
        let load = ClosedLoop {
            outstanding,
            // longer than the server's CPU stands still
            length: Nanos::from_millis(400),
            warm_up: Nanos::from_millis(20),
            seed: 1,
            timeout: OpenLoop::TIMEOUT,
            stop: &AtomicBool::new(false),
            progress: &Progress::new(),
        };
        let mut client = client(&server.endpoint(), connections);
        let found = saturate(&mut client, &load, &mut NoHooks).unwrap();
        assert!(found.responses > 0);
        assert_eq!(found.errors, LoadErrors::default());
        assert_eq!(found.times.len() as u64, found.responses);
    }
}

#[test]
fn servers_that_are_not_there_are_named() {
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let attempt = |server: &Endpoint, connections| {
        StreamSockets::connect(server, connections, KernelStamps::NONE).unwrap_err()
    };
    for server in [
        Endpoint::Tcp(closed),
        Endpoint::Unix("/nonexistent/socket".into()),
    ] {
        let error = attempt(&server, 100);
        assert!(matches!(error, LoadError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(&server.to_string()), "{error}");
    }
    let unreachable: SocketAddr = "[100::1]:7".parse().unwrap();
    let error = attempt(&Endpoint::Tcp(unreachable), 1);
    assert!(matches!(error, LoadError::Socket { .. }), "{error}");
    let none = attempt(&Endpoint::Tcp(closed), 0);
    assert!(matches!(none, LoadError::NoConnections), "{none}");
    let udp = attempt(&Endpoint::Udp(closed), 1);
    assert!(matches!(udp, LoadError::Socket { .. }), "{udp}");
    let long = Endpoint::Unix(format!("/{}", "x".repeat(200)).into());
    let error = attempt(&long, 1);
    assert!(matches!(error, LoadError::Socket { .. }), "{error}");
}
