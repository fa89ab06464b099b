//! UDP servers.

use taillab_load::serve::{Architecture, Responder, Spec};

use super::clients::{
    DATAGRAMS, exchange, request, served, sizes, start, udp, until_all_have_served,
};

fn many_clients(spec: &Spec) {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 100;
    let server = Responder::start(spec).unwrap();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (server, sizes) = (&server, spec.sizes);
            scope.spawn(move || {
                let socket = udp(server);
                for k in 0..REQUESTS {
                    let request = request(client, k, sizes.request_bytes);
                    exchange(&socket, &request, sizes.response_bytes);
                }
            });
        }
    });
    let total = (CLIENTS * REQUESTS) as u64;
    let counts = served(&server, |now| now.total() == total);
    assert_eq!((counts.malformed, counts.unsent), (0, 0));
}

#[test]
fn every_request_of_many_clients_is_answered() {
    for architecture in DATAGRAMS {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            for sizes in [sizes(128, 128), sizes(2, 1000), sizes(1000, 2)] {
                many_clients(&Spec {
                    workers: 3,
                    listen: listen.parse().unwrap(),
                    sizes,
                    ..Spec::new(architecture)
                });
            }
        }
        many_clients(&Spec {
            busy: true,
            ..Spec::new(architecture)
        });
    }
}

#[test]
fn datagrams_of_another_length_are_counted_and_not_answered() {
    for architecture in DATAGRAMS {
        let server = start(architecture, 1);
        let socket = udp(&server);
        for length in [0, 1, 127, 129, 60_000] {
            socket.send(&request(0, 0, length)).unwrap();
        }
        // the next answer is to this request
        exchange(&socket, &request(1, 7, 128), 128);
        let counts = served(&server, |now| now.total() == 1);
        assert_eq!(counts.malformed, 5);
    }
}

#[test]
fn flows_are_spread_over_the_sockets_of_a_port() {
    const FLOWS: usize = 64;
    let server = start(Architecture::UdpReuseport, 4);
    for client in 0..FLOWS {
        exchange(&udp(&server), &request(client, 0, 128), 128);
    }
    let counts = served(&server, |now| now.total() == FLOWS as u64);
    assert!(
        counts.by_worker.iter().all(|&n| n < FLOWS as u64),
        "{counts:?}"
    );
    assert!(
        counts.by_worker.iter().filter(|&&n| n > 0).count() > 1,
        "{counts:?}"
    );
    // and a flow keeps its worker
    let socket = udp(&server);
    for k in 0..20 {
        exchange(&socket, &request(0, k, 128), 128);
    }
    let after = served(&server, |now| now.total() == FLOWS as u64 + 20);
    let grown = after.by_worker.iter().zip(&counts.by_worker);
    assert_eq!(grown.filter(|(a, b)| a > b).count(), 1, "{after:?}");
}

/// All workers serve one flow, because they have one queue.
#[test]
fn workers_of_a_shared_socket_serve_any_flow() {
    const REQUESTS: usize = 100;
    let server = Responder::start(&Spec {
        workers: 4,
        service: "wait:deterministic:1ms".parse().unwrap(),
        ..Spec::new(Architecture::UdpShared)
    })
    .unwrap();
    let socket = udp(&server);
    until_all_have_served(&server, REQUESTS, || {
        for k in 0..REQUESTS {
            socket.send(&request(0, k, 128)).unwrap();
        }
        for _ in 0..REQUESTS {
            assert_eq!(socket.recv(&mut [0; 200]).unwrap(), 128);
        }
    });
}
