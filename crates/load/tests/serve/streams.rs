//! Stream servers: TCP over IPv4 and IPv6, Unix sockets.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use taillab_load::serve::{Architecture, Listen, Responder, Spec};

use super::clients::{
    STREAMS, call, connect, request, served, sizes, start, tcp, until_all_have_served,
};

/// Eight clients at once, each with its own connection and 100 requests one after the other.
fn many_clients(spec: &Spec) {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 100;
    let server = Responder::start(spec).unwrap();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, sizes) = (&server, spec.sizes);
            scope.spawn(move || {
                let mut stream = connect(server);
                for k in 0..REQUESTS {
                    let request = request(client, k, sizes.request_bytes);
                    call(&mut *stream, &request, sizes.response_bytes);
                }
            });
        }
    });
    let total = (CLIENTS * REQUESTS) as u64;
    // a connection is counted after it was handed to its worker, which may have answered everything by then
    let counts = served(&server, |now| {
        now.total() == total && now.connections >= CLIENTS as u64
    });
    assert_eq!(counts.connections, CLIENTS as u64);
    assert_eq!((counts.refused, counts.malformed, counts.unsent), (0, 0, 0));
}

#[test]
fn every_request_of_many_clients_is_answered() {
    let place = tempfile::tempdir().unwrap();
    for architecture in STREAMS {
        for listen in [
            Listen::loopback(),
            "[::1]:0".parse().unwrap(),
            Listen::Unix(place.path().join(architecture.name())),
        ] {
            many_clients(&Spec {
                workers: 3,
                listen,
                ..Spec::new(architecture)
            });
        }
    }
}

#[test]
fn requests_and_answers_may_have_any_sizes() {
    for architecture in STREAMS {
        for sizes in [sizes(1, 1), sizes(300, 10), sizes(10, 100_000)] {
            many_clients(&Spec {
                workers: 2,
                sizes,
                ..Spec::new(architecture)
            });
        }
    }
}

#[test]
fn a_worker_that_never_sleeps_answers_too() {
    for architecture in [Architecture::EpollShared, Architecture::EpollPerWorker] {
        many_clients(&Spec {
            busy: true,
            ..Spec::new(architecture)
        });
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    for architecture in STREAMS {
        let server = start(architecture, 1);
        let (mut slow, mut quick) = (tcp(&server), tcp(&server));
        let half = request(0, 0, 128);
        for byte in half.chunks(1) {
            slow.write_all(byte).unwrap();
            // another client is served meanwhile
            call(&mut quick, &request(1, 1, 128), 128);
        }
        let mut answer = [0; 128];
        slow.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..], half[..]);
    }
}

#[test]
fn requests_sent_together_are_answered_in_their_order() {
    const REQUESTS: usize = 200;
    for architecture in STREAMS {
        let server = start(architecture, 2);
        let mut stream = tcp(&server);
        let all: Vec<u8> = (0..REQUESTS).flat_map(|k| request(3, k, 128)).collect();
        stream.write_all(&all).unwrap();
        let mut answers = vec![0; all.len()];
        stream.read_exact(&mut answers).unwrap();
        assert!(answers == all, "{architecture}: out of order");
        served(&server, |now| now.total() == REQUESTS as u64);
    }
}

/// Answers of a megabyte fill every buffer on the way, so they are written in pieces.
#[test]
fn a_client_that_reads_late_gets_everything() {
    const REQUESTS: usize = 12;
    const BYTES: usize = 1 << 20;
    for architecture in STREAMS {
        let server = Responder::start(&Spec {
            sizes: sizes(64, BYTES),
            ..Spec::new(architecture)
        })
        .unwrap();
        let (mut late, mut other) = (tcp(&server), tcp(&server));
        for k in 0..REQUESTS {
            late.write_all(&request(0, k, 64)).unwrap();
        }
        // the others do not wait for it; it delays only its own connection
        call(&mut other, &request(1, 0, 64), BYTES);
        let mut answer = vec![0; BYTES];
        for k in 0..REQUESTS {
            late.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..64], request(0, k, 64));
        }
        served(&server, |now| now.total() == REQUESTS as u64 + 1);
    }
}

#[test]
fn clients_that_leave_in_the_middle_end_only_their_connection() {
    for architecture in STREAMS {
        let server = Responder::start(&Spec {
            sizes: sizes(128, 1 << 20),
            ..Spec::new(architecture)
        })
        .unwrap();
        // in the middle of a request
        for k in 0..5 {
            let mut stream = tcp(&server);
            stream.write_all(&request(0, k, 100)).unwrap();
            if k % 2 == 0 {
                stream.shutdown(Shutdown::Write).unwrap();
            } else {
                // a reset instead of an orderly close
                set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        }
        served(&server, |now| now.malformed == 5);
        // without reading the answer
        for k in 0..5 {
            let mut stream = tcp(&server);
            stream.write_all(&request(1, k, 128)).unwrap();
            stream.read_exact(&mut [0; 10]).unwrap();
        }
        // between two requests
        drop(tcp(&server));
        call(&mut tcp(&server), &request(2, 0, 128), 1 << 20);
        let counts = served(&server, |now| now.connections == 12 && now.total() >= 1);
        assert_eq!(counts.malformed, 5);
    }
}

/// Connections are assigned in turn, and only their own worker ever serves them.
#[test]
fn connections_stay_with_their_worker() {
    let server = start(Architecture::EpollPerWorker, 3);
    let mut streams: Vec<_> = (0..6)
        .map(|client| {
            let mut stream = tcp(&server);
            // answered, so accepted before the next one
            call(&mut stream, &request(client, 0, 128), 128);
            stream
        })
        .collect();
    for (client, stream) in streams.iter_mut().enumerate() {
        for k in 0..client * 10 {
            call(stream, &request(client, k, 128), 128);
        }
    }
    // workers 0, 1, 2 have the connections 0 and 3, 1 and 4, 2 and 5
    served(&server, |now| now.by_worker == [32, 52, 72]);
}

/// For comparison: with one queue, workers take requests from any connection.
#[test]
fn workers_of_a_shared_queue_serve_any_connection() {
    const REQUESTS: usize = 100;
    let server = Responder::start(&Spec {
        workers: 4,
        service: "wait:deterministic:1ms".parse().unwrap(),
        ..Spec::new(Architecture::EpollShared)
    })
    .unwrap();
    let mut streams: Vec<_> = (0..4).map(|_| tcp(&server)).collect();
    let mut answers = vec![0; REQUESTS * 128];
    until_all_have_served(&server, 4 * REQUESTS, || {
        for k in 0..REQUESTS {
            for (client, stream) in streams.iter_mut().enumerate() {
                stream.write_all(&request(client, k, 128)).unwrap();
            }
        }
        for stream in &mut streams {
            stream.read_exact(&mut answers).unwrap();
        }
    });
}

#[test]
fn null_rpc_has_a_worker_for_each_connection() {
    let server = start(Architecture::NullRpc, 1);
    let mut streams = Vec::new();
    for client in 0..4 {
        let mut stream = tcp(&server);
        for k in 0..=client {
            call(&mut stream, &request(client, k, 128), 128);
        }
        streams.push(stream);
    }
    served(&server, |now| now.by_worker == [1, 2, 3, 4]);
    // the counts of connections that have ended are kept
    drop(streams.remove(1));
    call(&mut streams[0], &request(0, 9, 128), 128);
    served(&server, |now| now.by_worker == [2, 2, 3, 4]);
}

#[test]
fn hundreds_of_connections_are_served() {
    for architecture in STREAMS {
        let server = start(architecture, 2);
        let mut streams: Vec<_> = (0..400).map(|_| tcp(&server)).collect();
        for (client, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&request(client, 0, 128)).unwrap();
        }
        for (client, stream) in streams.iter_mut().enumerate() {
            let mut answer = [0; 128];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[..], request(client, 0, 128)[..]);
        }
    }
}
