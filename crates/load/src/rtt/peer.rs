//! The server at the other end: a built-in one that waits in the same mode, or any other.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use super::error::RttError;
use super::kinds::{Mode, Proto};
use super::rdma;
use super::shm::{self, Pair};
use super::xdp::{Echo, XdpEnds, XdpServer};
use crate::endpoint::Endpoint;
use crate::protocol::MessageSizes;
use crate::serve::{Architecture, Listen, Responder, Spec};

/// The specification of a built-in server.
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
    /// Threads, where one thread can serve several connections.
    pub threads: usize,
    /// The address that it listens on.
    pub address: IpAddr,
    /// The port that it listens on, 0 for any free one; only RDMA uses it.
    pub port: u16,
    /// The Unix socket, which is removed with the server.
    pub path: PathBuf,
    /// The two devices of AF_XDP, if there are any.
    pub xdp: Option<XdpEnds>,
}

/// A running built-in server, or the address of another one.
#[derive(Debug)]
pub struct Peer {
    /// One for each connection, or one for all.
    endpoints: Vec<Endpoint>,
    name: String,
    pairs: Option<Vec<Arc<Pair>>>,
    xdp: Option<XdpServer>,
    /// The server; it stops when it is dropped.
    _server: Box<dyn Any + Send + Sync>,
}

type Prepare = Arc<dyn Fn(usize) -> Result<(), String> + Send + Sync>;

/// The thread of a server that is not a [`Responder`]; it stops when dropped.
struct PeerThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PeerThread {
    /// Starts the thread; returns once it is prepared.
    fn start(
        name: &str,
        prepare: Prepare,
        serve: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<Self, RttError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = channel();
        let stopped = Arc::clone(&stop);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let prepared = prepare(0);
                let ready = prepared.is_ok();
                // fails only if the caller is gone
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

impl Drop for PeerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // a panic has been reported on stderr
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
        prepare: impl Fn(usize) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<Self, RttError> {
        let prepare: Prepare = Arc::new(prepare);
        match spec.proto {
            Proto::Shm => Self::in_memory(spec, prepare),
            Proto::Tcp | Proto::Unix => Self::stream(spec, prepare),
            Proto::Udp => Self::datagrams(spec, &prepare),
            Proto::Xdp => Self::xdp(spec, prepare),
            Proto::RdmaSend | Proto::RdmaRead | Proto::RdmaWrite => Self::rdma(spec, prepare),
        }
    }

    /// A server that exists already.
    pub fn at(endpoint: Endpoint) -> Self {
        Self::new(endpoint.to_string(), vec![endpoint], ())
    }

    fn new(
        name: String,
        endpoints: Vec<Endpoint>,
        server: impl Any + Send + Sync + 'static,
    ) -> Self {
        Self {
            endpoints,
            name,
            pairs: None,
            xdp: None,
            _server: Box::new(server),
        }
    }

    fn stream(spec: &PeerSpec, prepare: Prepare) -> Result<Self, RttError> {
        let listen = match spec.proto {
            Proto::Unix => Listen::Unix(spec.path.clone()),
            _ => Listen::Inet(SocketAddr::new(spec.address, 0)),
        };
        let architecture = match spec.mode {
            Mode::Blocking | Mode::BusyPoll | Mode::IoUring => Architecture::NullRpc,
            Mode::Nonblocking | Mode::Epoll => Architecture::EpollPerWorker,
        };
        let threads = spec.threads.max(1);
        let prepare = move |thread| prepare(thread);
        let responder = responder(spec, architecture, listen, threads, prepare)?;
        Ok(Self::of(vec![responder]))
    }

    /// As in the paper, each client has its own server on its own port.
    fn datagrams(spec: &PeerSpec, prepare: &Prepare) -> Result<Self, RttError> {
        let start = |connection: usize| {
            let prepare = Arc::clone(prepare);
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
        let name = format!("our echo server at {}", endpoints[0]);
        Self::new(name, endpoints, responders)
    }

    fn in_memory(spec: &PeerSpec, prepare: Prepare) -> Result<Self, RttError> {
        let pairs: Vec<Arc<Pair>> = (0..spec.conns)
            .map(|_| Arc::new(Pair::new(spec.size)))
            .collect();
        let served = pairs.clone();
        let thread = PeerThread::start("shm-echo", prepare, move |stop| {
            shm::serve(&served, &mut vec![0; served.len()], stop);
        })?;
        let name = "our echo server in shared memory".to_owned();
        Ok(Self {
            pairs: Some(pairs),
            ..Self::new(name, Vec::new(), thread)
        })
    }

    fn xdp(spec: &PeerSpec, prepare: Prepare) -> Result<Self, RttError> {
        let Some(ends) = spec.xdp else {
            return Err(RttError::Unavailable {
                proto: Proto::Xdp,
                why: "AF_XDP takes all packets of a device, so it needs two devices for itself: \
                      use --link veth (root)"
                    .to_owned(),
            });
        };
        let (echo, server) = Echo::open(ends, spec.mode)?;
        let thread = PeerThread::start("xdp-echo", prepare, |stop| echo.serve(stop))?;
        let name = format!("our echo server at {} (AF_XDP)", ends.server_address);
        Ok(Self {
            xdp: Some(server),
            ..Self::new(name, Vec::new(), thread)
        })
    }

    fn rdma(spec: &PeerSpec, prepare: Prepare) -> Result<Self, RttError> {
        let at = SocketAddr::new(spec.address, spec.port);
        let server = rdma::RdmaServer::listen(at, spec.proto, spec.mode)?;
        let address = server.address();
        let thread = PeerThread::start("rdma-echo", prepare, |stop| server.serve(stop))?;
        let name = format!("our RDMA server at {address}");
        Ok(Self::new(name, vec![Endpoint::Tcp(address)], thread))
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port of the first connection's server, if it has one.
    pub fn port(&self) -> Option<u16> {
        match self.endpoint(0)? {
            Endpoint::Tcp(address) | Endpoint::Udp(address) => Some(address.port()),
            Endpoint::Unix(_) => None,
        }
    }

    /// The server's address for this connection.
    pub(super) fn endpoint(&self, connection: usize) -> Option<Endpoint> {
        let at = connection.checked_rem(self.endpoints.len())?;
        self.endpoints.get(at).cloned()
    }

    /// The shared memory of each connection, if it serves that.
    pub(super) fn pairs(&self) -> Option<&[Arc<Pair>]> {
        self.pairs.as_deref()
    }

    /// Its end of AF_XDP, if it serves that.
    pub(super) fn xdp_server(&self) -> Option<&XdpServer> {
        self.xdp.as_ref()
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
