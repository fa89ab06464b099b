//! Servers start, refuse what they cannot do, and stop.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use taillab_load::serve::{Architecture, Listen, Responder, ServeError, ServiceTime, Spec};
use taillab_model::Nanos;

use crate::support::ports::free_port;

use super::clients::{
    DATAGRAMS, PATIENCE, STREAMS, call, connect, exchange, is_over, request, sizes, start, tcp, udp,
};

/// Returns what `f` returns; fails the test if it takes too long.
fn ends<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(f()));
    told.recv_timeout(PATIENCE)
        .unwrap_or_else(|_| panic!("{what} did not end"))
}

#[test]
fn a_server_stops_with_clients_connected() {
    for busy in [false, true] {
        for architecture in STREAMS.into_iter().chain(DATAGRAMS) {
            if busy && architecture == Architecture::NullRpc {
                continue;
            }
            let server = Responder::start(&Spec {
                workers: 3,
                busy,
                // that no other test gets when it is free again
                listen: free_port().to_string().parse().unwrap(),
                ..Spec::new(architecture)
            })
            .unwrap();
            let address = server.address().socket_address().unwrap();
            if architecture.is_datagram() {
                exchange(&udp(&server), &request(0, 0, 128), 128);
                let counts = ends(architecture.name(), || server.stop());
                assert_eq!(counts.total(), 1);
                // the port is free again
                UdpSocket::bind(address).unwrap();
            } else {
                let (mut idle, mut halfway) = (tcp(&server), connect(&server));
                call(&mut idle, &request(0, 0, 128), 128);
                halfway.write_all(&request(0, 0, 50)).unwrap();
                let counts = ends(architecture.name(), || server.stop());
                assert_eq!(counts.total(), 1);
                assert!(is_over(&mut idle) && is_over(&mut *halfway));
                TcpListener::bind(address).unwrap();
            }
        }
    }
}

#[test]
fn a_server_that_nobody_used_stops_when_dropped() {
    for architecture in STREAMS.into_iter().chain(DATAGRAMS) {
        let server = start(architecture, 4);
        ends(architecture.name(), move || drop(server));
    }
}

/// The answers take at least as long as the times drawn from the worker's stream.
#[test]
fn service_takes_its_time() {
    const REQUESTS: usize = 20;
    for architecture in STREAMS.into_iter().chain(DATAGRAMS) {
        for service in ["spin:exponential:200us", "wait:exponential:1ms"] {
            let service: ServiceTime = service.parse().unwrap();
            let server = Responder::start(&Spec {
                service: service.clone(),
                seed: 11,
                ..Spec::new(architecture)
            })
            .unwrap();
            let (ServiceTime::Spin(law) | ServiceTime::Wait(law)) = &service else {
                panic!("{service}");
            };
            let drawn: Nanos = law
                .times(11, 0)
                .unwrap()
                .take(REQUESTS)
                .fold(Nanos::ZERO, |sum, time| sum + time);
            let began;
            if architecture.is_datagram() {
                let socket = udp(&server);
                began = Instant::now();
                for k in 0..REQUESTS {
                    exchange(&socket, &request(0, k, 128), 128);
                }
            } else {
                let mut stream = tcp(&server);
                began = Instant::now();
                for k in 0..REQUESTS {
                    call(&mut stream, &request(0, k, 128), 128);
                }
            }
            let took = began.elapsed().as_nanos() as u64;
            assert!(
                took >= drawn.get(),
                "{architecture} {service}: {took} ns for {drawn}"
            );
        }
    }
}

#[test]
fn every_thread_is_prepared_once() {
    for (architecture, threads) in [
        (Architecture::NullRpc, 1),
        (Architecture::EpollShared, 4),
        (Architecture::EpollPerWorker, 4),
        (Architecture::UdpShared, 3),
        (Architecture::UdpReuseport, 3),
    ] {
        let spec = Spec {
            workers: 3,
            ..Spec::new(architecture)
        };
        let prepared = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&prepared);
        let server = Responder::start_with(&spec, move |thread| {
            seen.lock().unwrap().push(thread);
            Ok::<_, String>(())
        })
        .unwrap();
        let mut order = prepared.lock().unwrap().clone();
        order.sort_unstable();
        assert_eq!(order, (0..threads).collect::<Vec<_>>());
        drop(server);

        let last = threads - 1;
        let failed = ends(architecture.name(), move || {
            Responder::start_with(&spec, move |thread| {
                if thread == last {
                    Err("no such CPU")
                } else {
                    Ok(())
                }
            })
            .map(|_| ())
        });
        assert_eq!(failed.unwrap_err().to_string(), "no such CPU");
    }
}

#[test]
fn a_taken_port_is_refused() {
    for architecture in STREAMS.into_iter().chain(DATAGRAMS) {
        let first = start(architecture, 2);
        let second = Responder::start(&Spec {
            listen: first.address().clone(),
            ..Spec::new(architecture)
        });
        assert!(
            matches!(second, Err(ServeError::InUse { .. })),
            "{second:?}"
        );
    }
}

#[test]
fn impossible_servers_are_refused_with_a_remedy() {
    let spec = Spec::new;
    for (wrong, says) in [
        (
            Spec {
                workers: 0,
                ..spec(Architecture::UdpShared)
            },
            "between 1 and",
        ),
        (
            Spec {
                sizes: sizes(0, 128),
                ..spec(Architecture::NullRpc)
            },
            "requests must be between 1",
        ),
        (
            Spec {
                sizes: sizes(128, 70_000),
                ..spec(Architecture::UdpShared)
            },
            "responses must be between 2 and 65507",
        ),
        (
            Spec {
                listen: "unix:/tmp/x".parse().unwrap(),
                ..spec(Architecture::UdpReuseport)
            },
            "address and a port",
        ),
        (
            Spec {
                busy: true,
                ..spec(Architecture::NullRpc)
            },
            "epoll-per-worker",
        ),
        (
            Spec {
                // TEST-NET-1: no interface has it
                listen: "192.0.2.1:7777".parse().unwrap(),
                ..spec(Architecture::NullRpc)
            },
            "ip address",
        ),
        (
            Spec {
                listen: "unix:/no/such/directory/x.sock".parse().unwrap(),
                ..spec(Architecture::NullRpc)
            },
            "directory that you may write to",
        ),
        (
            Spec {
                listen: Listen::Unix("x".repeat(200).into()),
                ..spec(Architecture::NullRpc)
            },
            "107 bytes",
        ),
    ] {
        let error = Responder::start(&wrong).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_unix_socket_is_private_and_removed_at_the_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("echo.sock");
    let spec = Spec {
        listen: Listen::Unix(path.clone()),
        ..Spec::new(Architecture::EpollShared)
    };
    let server = Responder::start(&spec).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    call(&mut *connect(&server), &request(0, 0, 128), 128);
    // while it listens, no other server gets the path
    let second = Responder::start(&spec);
    assert!(
        matches!(second, Err(ServeError::UnixInUse { .. })),
        "{second:?}"
    );
    call(&mut *connect(&server), &request(0, 1, 128), 128);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn only_a_dead_socket_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("echo.sock");
    let spec = Spec {
        listen: Listen::Unix(path.clone()),
        ..Spec::new(Architecture::NullRpc)
    };
    // a killed server leaves its path behind
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Responder::start(&spec).unwrap();
    call(&mut *connect(&server), &request(0, 0, 128), 128);
    // a path that now belongs to another socket is not removed
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(server);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    // nor is a file replaced
    let refused = Responder::start(&spec);
    assert!(
        matches!(refused, Err(ServeError::NotASocket { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}
