//! The server at the other end: one of ours that waits in the same mode, or anybody's.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use super::error::{RttError, place};
use super::kinds::{Mode, Proto};
use super::rdma;
use super::shm::{self, Pair};
use super::xdp::{Echo, XdpEnds};
use crate::endpoint::Endpoint;
use crate::protocol::MessageSizes;
use crate::serve::{Architecture, Listen, Responder, Spec};

/// What a server of ours is to be.
#[derive(Clone, Debug)]
pub struct PeerSpec {
    /// What carries the messages.
    pub proto: Proto,
    /// How it waits.
    pub mode: Mode,
    /// Bytes of a message.
    pub size: usize,
    /// Connections at once.
    pub conns: usize,
    /// Threads where one thread can serve several connections.
    pub threads: usize,
    /// Where it listens.
    pub address: IpAddr,
    /// At which port; 0 for a free one. Only RDMA takes another.
    pub port: u16,
    /// The Unix socket, which is removed with the server.
    pub path: PathBuf,
    /// The devices of AF_XDP, where there are two of our own.
    pub xdp: Option<XdpEnds>,
}

/// A running server of ours, or the place of another.
#[derive(Debug)]
pub struct Peer {
    /// One for each connection, or one for all.
    endpoints: Vec<Endpoint>,
    name: String,
    kind: Kind,
}

enum Kind {
    /// Stops when it is dropped.
    Responders {
        _running: Vec<Responder>,
    },
    Memory {
        pairs: Vec<Arc<Pair>>,
        _thread: Thread,
    },
    Xdp {
        ends: XdpEnds,
        server: [u8; 6],
        _thread: Thread,
    },
    Rdma {
        _thread: Thread,
    },
    Elsewhere,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Responders { .. } => "Responders",
            Self::Memory { .. } => "Memory",
            Self::Xdp { .. } => "Xdp",
            Self::Rdma { .. } => "Rdma",
            Self::Elsewhere => "Elsewhere",
        })
    }
}

/// A thread that answers without a socket of the kernel's stack; stopped when dropped.
struct Thread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts it; returns when it is prepared.
    fn start(
        name: &str,
        prepare: impl FnOnce() -> Result<(), String> + Send + 'static,
        serve: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<Self, RttError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let stopped = Arc::clone(&stop);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let prepared = prepare();
                let ready = prepared.is_ok();
                // nobody listens any more only where the caller is gone
                let _ = tell.send(prepared);
                if ready {
                    serve(&stopped);
                }
            })
            .map_err(|error| RttError::Server(error.to_string()))?;
        let thread = Self {
            stop,
            thread: Some(thread),
        };
        match told.recv() {
            Ok(Ok(())) => Ok(thread),
            Ok(Err(why)) => Err(RttError::Server(why)),
            Err(_) => Err(RttError::Server(
                "its thread panicked; see above".to_owned(),
            )),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // a thread that panicked has said so on stderr
            let _ = thread.join();
        }
    }
}

impl Peer {
    /// Starts a server in the calling thread's network namespace. Each of its threads, counted
    /// from 0, runs `prepare` first, for example to bind itself to a CPU.
    ///
    /// # Errors
    /// [`RttError::Server`], [`RttError::Unavailable`].
    pub fn start(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Clone + Send + Sync + 'static,
    ) -> Result<Self, RttError> {
        match spec.proto {
            Proto::Shm => Self::in_memory(spec, prepare),
            Proto::Tcp | Proto::Unix => Self::stream(spec, prepare),
            Proto::Udp => Self::datagrams(spec, prepare),
            Proto::Xdp => Self::xdp(spec, prepare),
            Proto::RdmaSend | Proto::RdmaRead | Proto::RdmaWrite => Self::rdma(spec, prepare),
        }
    }

    /// A server that is there already.
    pub fn at(endpoint: Endpoint) -> Self {
        Self {
            name: place(&endpoint),
            endpoints: vec![endpoint],
            kind: Kind::Elsewhere,
        }
    }

    fn stream(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Clone + Send + Sync + 'static,
    ) -> Result<Self, RttError> {
        let listen = match spec.proto {
            Proto::Unix => Listen::Unix(spec.path.clone()),
            _ => Listen::Inet(SocketAddr::new(spec.address, 0)),
        };
        let architecture = match spec.mode {
            Mode::Blocking | Mode::BusyPoll | Mode::IoUring => Architecture::NullRpc,
            Mode::Nonblocking | Mode::Epoll => Architecture::EpollPerWorker,
        };
        let responder = responder(spec, architecture, listen, spec.threads.max(1), prepare)?;
        Ok(Self::of(vec![responder]))
    }

    /// As in the paper, each client has a server of its own on a port of its own.
    fn datagrams(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Clone + Send + Sync + 'static,
    ) -> Result<Self, RttError> {
        let start = |connection: usize| {
            let prepare = prepare.clone();
            let listen = Listen::Inet(SocketAddr::new(spec.address, 0));
            responder(spec, Architecture::UdpShared, listen, 1, move |thread| {
                prepare(connection + thread)
            })
        };
        let responders = (0..spec.conns).map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::of(responders))
    }

    fn of(responders: Vec<Responder>) -> Self {
        let endpoints: Vec<Endpoint> = responders.iter().map(Responder::endpoint).collect();
        Self {
            name: format!("our echo server at {}", place(&endpoints[0])),
            endpoints,
            kind: Kind::Responders {
                _running: responders,
            },
        }
    }

    fn in_memory(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, RttError> {
        let pairs: Vec<Arc<Pair>> = (0..spec.conns)
            .map(|_| Arc::new(Pair::new(spec.size)))
            .collect();
        let served = pairs.clone();
        let thread = Thread::start(
            "shm-echo",
            move || prepare(0),
            move |stop| shm::serve(&served, &mut vec![0; served.len()], stop),
        )?;
        Ok(Self {
            endpoints: Vec::new(),
            name: "our echo server in shared memory".to_owned(),
            kind: Kind::Memory {
                pairs,
                _thread: thread,
            },
        })
    }

    fn xdp(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, RttError> {
        let Some(ends) = spec.xdp else {
            return Err(RttError::Unavailable {
                proto: Proto::Xdp,
                why: "it takes all packets of a device, and needs two devices to itself: use \
                      --link veth (root)"
                    .to_owned(),
            });
        };
        let (echo, server) = Echo::open(&ends, spec.mode)?;
        let thread = Thread::start("xdp-echo", move || prepare(0), |stop| echo.serve(stop))?;
        Ok(Self {
            endpoints: Vec::new(),
            name: format!("our echo server at {} (AF_XDP)", ends.server_address),
            kind: Kind::Xdp {
                ends,
                server,
                _thread: thread,
            },
        })
    }

    fn rdma(
        spec: &PeerSpec,
        prepare: impl Fn(usize) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, RttError> {
        let at = SocketAddr::new(spec.address, spec.port);
        let server = rdma::Server::listen(at, spec.proto, spec.mode)?;
        let address = server.address();
        let thread = Thread::start("rdma-echo", move || prepare(0), |stop| server.serve(stop))?;
        Ok(Self {
            endpoints: vec![Endpoint::Tcp(address)],
            name: format!("our RDMA server at {address}"),
            kind: Kind::Rdma { _thread: thread },
        })
    }

    /// Who it is, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port of the server of the first connection, where it has one.
    pub fn port(&self) -> Option<u16> {
        match self.endpoint(0)? {
            Endpoint::Tcp(address) | Endpoint::Udp(address) => Some(address.port()),
            Endpoint::Unix(_) => None,
        }
    }

    /// Where connection number `connection` leads.
    pub(super) fn endpoint(&self, connection: usize) -> Option<Endpoint> {
        let at = connection.checked_rem(self.endpoints.len())?;
        self.endpoints.get(at).cloned()
    }

    /// Shared memory, where that is what it serves.
    pub(super) fn pairs(&self) -> Option<&[Arc<Pair>]> {
        match &self.kind {
            Kind::Memory { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    /// The devices of AF_XDP and the link-layer address of the server's, where that is what it
    /// serves.
    pub(super) fn xdp_ends(&self) -> Option<(&XdpEnds, [u8; 6])> {
        match &self.kind {
            Kind::Xdp { ends, server, .. } => Some((ends, *server)),
            _ => None,
        }
    }
}

fn responder(
    spec: &PeerSpec,
    architecture: Architecture,
    listen: Listen,
    workers: usize,
    prepare: impl Fn(usize) -> Result<(), String> + Send + Sync + 'static,
) -> Result<Responder, RttError> {
    let spec = Spec {
        listen,
        workers,
        sizes: MessageSizes {
            request_bytes: spec.size,
            response_bytes: spec.size,
        },
        busy: spec.mode == Mode::Nonblocking,
        ..Spec::new(architecture)
    };
    Responder::start_with(&spec, prepare).map_err(|error| RttError::Server(error.to_string()))
}
