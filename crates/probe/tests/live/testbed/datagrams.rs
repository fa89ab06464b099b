//! A server of datagrams in one network namespace, whose clients have several requests under
//! way, in another.

use std::collections::HashMap;
use std::net::UdpSocket;

use rustix::net::sockopt::set_socket_reuseport;
use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, socket};
use taillab_model::Monotonic;
use taillab_probe::{ProbeSpec, ServerProcesses, Transport};

use super::{CLIENT, Namespace, SERVER, SERVER_PORT, client_socket, joined, now, spec};

/// Two joined namespaces, with a running server in one.
pub(crate) struct DatagramBed {
    pub(crate) spec: ProbeSpec,
    _server: Namespace,
    client: Namespace,
    threads: usize,
}

/// One request as its client saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) port: u16,
    pub(crate) id: u16,
    pub(crate) sent: Monotonic,
    pub(crate) received: Monotonic,
}

impl DatagramBed {
    /// With `threads` server threads, each with a socket of its own at the same port, which
    /// answer each datagram with itself. An empty one ends the thread that gets it.
    pub(crate) fn serving(threads: usize, serve: fn(UdpSocket)) -> Self {
        let (server, client, device) = joined();
        for _ in 0..threads {
            server.run(move || {
                let socket =
                    socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
                set_socket_reuseport(&socket, true).expect("an option");
                bind(&socket, &SocketAddrV4::new(SERVER, SERVER_PORT)).expect("the port is free");
                std::thread::spawn(move || serve(socket.into()));
            });
        }
        Self {
            spec: ProbeSpec {
                ring_bytes_per_cpu: 8 << 20,
                ..spec(device, Transport::Udp, ServerProcesses::InNamespace)
            },
            _server: server,
            client,
            threads,
        }
    }

    /// In each of `rounds` rounds sends `at_once` requests and awaits their responses;
    /// `clients` sockets take turns.
    pub(crate) fn make(&self, clients: usize, rounds: usize, at_once: usize) -> Vec<Datagram> {
        self.client.run(move || {
            let sockets: Vec<UdpSocket> = (0..clients).map(|_| client_socket(CLIENT)).collect();
            let mut all = Vec::new();
            let mut id = 0_u16;
            for round in 0..rounds {
                let socket = &sockets[round % clients];
                let port = socket.local_addr().expect("it is bound").port();
                let mut sent = HashMap::new();
                for _ in 0..at_once {
                    id = id.wrapping_add(1);
                    sent.insert(id, now());
                    let request = [&id.to_be_bytes()[..], &[7; 30]].concat();
                    let server = (SERVER, SERVER_PORT);
                    socket.send_to(&request, server).expect("a send");
                }
                let mut response = [0; 2048];
                while !sent.is_empty() {
                    socket.recv(&mut response).expect("a response");
                    let received = now();
                    let id = u16::from_be_bytes([response[0], response[1]]);
                    let sent = sent.remove(&id).expect("a response to what was asked");
                    all.push(Datagram {
                        port,
                        id,
                        sent,
                        received,
                    });
                }
            }
            all
        })
    }
}

impl Drop for DatagramBed {
    fn drop(&mut self) {
        // which socket a datagram gets to depends on the client's port
        let ends = 16 * self.threads;
        self.client.run(move || {
            for _ in 0..ends {
                let _ = client_socket(CLIENT).send_to(&[], (SERVER, SERVER_PORT));
            }
        });
    }
}
