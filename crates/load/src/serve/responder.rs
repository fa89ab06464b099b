//! A running server inside the process.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use rustix::net::{Shutdown, shutdown};

use super::accept::Acceptor;
use super::epoll::Epoll;
use super::listen::{self, Listener, SocketPath};
use super::null_rpc::NullRpc;
use super::service::BeforeRequest;
use super::spec::Spec;
use super::stop::Stop;
use super::tally::{Answered, Rare};
use super::{Architecture, Listen, ServeError, Served, datagram};
use crate::Endpoint;

/// The state of a server of each kind.
enum ServerState {
    NullRpc(Arc<NullRpc>),
    Epoll(Arc<Epoll>),
    Datagram(Vec<Arc<OwnedFd>>),
}

/// A running server; it stops when dropped, after the requests being served.
///
/// Its sockets are opened by the thread that starts it, in that thread's network
/// namespace, and its threads inherit that thread's CPUs.
pub struct Responder {
    architecture: Architecture,
    at: Listen,
    server: ServerState,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    answered: Vec<Arc<Answered>>,
    rare: Arc<Rare>,
    before: Option<BeforeRequest>,
    /// Removes the Unix socket after everything else has stopped.
    _path: Option<SocketPath>,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("architecture", &self.architecture)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

type PrepareThread = dyn Fn(usize) -> Result<(), String> + Send + Sync;

impl Responder {
    /// Starts a server; it accepts requests when this returns.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(spec: &Spec) -> Result<Self, ServeError> {
        Self::launch(spec, Arc::new(|_| Ok(())), None)
    }

    /// Starts a server whose workers call `before` before each request.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start_before(spec: &Spec, before: Option<BeforeRequest>) -> Result<Self, ServeError> {
        Self::launch(spec, Arc::new(|_| Ok(())), before)
    }

    /// Starts a server. Each of its threads runs `prepare` before it serves, for example to bind
    /// itself to a CPU. The argument is the thread's number: the workers come first, then the
    /// accept thread of a stream server. The accept thread of null-rpc has number 0; it starts the
    /// workers, which inherit its settings.
    ///
    /// # Errors
    /// [`ServeError`]; [`ServeError::Prepare`] with the text of the first preparation that
    /// failed.
    pub fn start_with<E: fmt::Display>(
        spec: &Spec,
        prepare: impl Fn(usize) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let prepare = move |thread| prepare(thread).map_err(|error| error.to_string());
        Self::launch(spec, Arc::new(prepare), None)
    }

    fn launch(
        spec: &Spec,
        prepare: Arc<PrepareThread>,
        before: Option<BeforeRequest>,
    ) -> Result<Self, ServeError> {
        spec.check()?;
        let start = |call| move |source| ServeError::Start { call, source };
        let stop = Arc::new(Stop::new().map_err(start("eventfd"))?);
        let rare = Arc::new(Rare::default());
        let (server, at, listener, path) = if spec.architecture.is_datagram() {
            let Listen::Inet(address) = spec.listen else {
                return Err(ServeError::UnixDatagram(spec.architecture));
            };
            let reuseport = spec.architecture == Architecture::UdpReuseport;
            let (sockets, at) = listen::datagram(address, spec.workers, reuseport)?;
            let sockets = sockets.into_iter().map(Arc::new).collect();
            (ServerState::Datagram(sockets), Listen::Inet(at), None, None)
        } else {
            let Listener { socket, at, path } = listen::stream(&spec.listen)?;
            let epoll = |workers| {
                Epoll::new(workers, spec, &stop, Arc::clone(&rare))
                    .map(|epoll| ServerState::Epoll(Arc::new(epoll)))
                    .map_err(start("epoll_create"))
            };
            let server = match spec.architecture {
                Architecture::EpollShared => epoll(None)?,
                Architecture::EpollPerWorker => epoll(Some(spec.workers))?,
                _ => ServerState::NullRpc(Arc::new(NullRpc::new(
                    spec,
                    before.clone(),
                    Arc::clone(&rare),
                )?)),
            };
            (server, at, Some(socket), path)
        };
        let mut responder = Self {
            architecture: spec.architecture,
            at,
            server,
            stop,
            threads: Vec::new(),
            answered: Vec::new(),
            rare,
            before,
            _path: path,
        };
        responder.start_threads(spec, listener, prepare)?;
        Ok(responder)
    }

    fn start_threads(
        &mut self,
        spec: &Spec,
        listener: Option<OwnedFd>,
        prepare: Arc<PrepareThread>,
    ) -> Result<(), ServeError> {
        let (tell, told) = channel();
        if !matches!(self.server, ServerState::NullRpc(_)) {
            for number in 0..spec.workers {
                let serve = self.worker(spec, number)?;
                self.spawn(format!("worker-{number}"), &prepare, &tell, serve)?;
            }
        }
        if let Some(listener) = listener {
            let accept = self.acceptor(spec, listener)?;
            self.spawn("accept".to_owned(), &prepare, &tell, accept)?;
        }
        drop(tell);
        // ends when every thread has reported or ended
        let mut ready = 0;
        for prepared in told {
            prepared.map_err(ServeError::Prepare)?;
            ready += 1;
        }
        if ready < self.threads.len() {
            return Err(ServeError::Prepare(
                "a server thread panicked while it was prepared; see above".to_owned(),
            ));
        }
        Ok(())
    }

    /// The loop of worker `number`.
    fn worker(
        &mut self,
        spec: &Spec,
        number: usize,
    ) -> Result<Box<dyn FnOnce() + Send>, ServeError> {
        let before = self.before.clone();
        let work = spec.service.worker(spec.seed, number as u64, before)?;
        let answered = Arc::new(Answered::default());
        self.answered.push(Arc::clone(&answered));
        let stop = Arc::clone(&self.stop);
        let busy = spec.busy;
        Ok(match &self.server {
            ServerState::Epoll(epoll) => {
                let epoll = Arc::clone(epoll);
                Box::new(move || epoll.serve(number, work, &answered, busy, &stop))
            }
            ServerState::Datagram(sockets) => {
                let socket = Arc::clone(&sockets[number % sockets.len()]);
                let rare = Arc::clone(&self.rare);
                let sizes = spec.sizes;
                Box::new(move || {
                    datagram::serve(&socket, sizes, work, &answered, &rare, busy, &stop);
                })
            }
            ServerState::NullRpc(_) => Box::new(|| ()),
        })
    }

    /// The loop of the accept thread.
    fn acceptor(
        &self,
        spec: &Spec,
        listener: OwnedFd,
    ) -> Result<Box<dyn FnOnce() + Send>, ServeError> {
        let no_delay = matches!(self.at, Listen::Inet(_)) && spec.in_pieces.is_none();
        let stop = Arc::clone(&self.stop);
        let rare = Arc::clone(&self.rare);
        let blocking = matches!(self.server, ServerState::NullRpc(_));
        let acceptor = Acceptor::new(listener, blocking, no_delay)?;
        Ok(match &self.server {
            ServerState::Epoll(epoll) => {
                let epoll = Arc::clone(epoll);
                Box::new(move || acceptor.run(&stop, &rare, |socket| epoll.connected(socket)))
            }
            ServerState::NullRpc(server) => {
                let server = Arc::clone(server);
                Box::new(move || acceptor.run(&stop, &rare, |socket| server.connected(socket)))
            }
            ServerState::Datagram(_) => Box::new(|| ()),
        })
    }

    fn spawn(
        &mut self,
        name: String,
        prepare: &Arc<PrepareThread>,
        tell: &Sender<Result<(), String>>,
        serve: Box<dyn FnOnce() + Send>,
    ) -> Result<(), ServeError> {
        let number = self.threads.len();
        let (prepare, tell) = (Arc::clone(prepare), tell.clone());
        let thread = Builder::new()
            .name(name)
            .spawn(move || {
                let prepared = prepare(number);
                let ready = prepared.is_ok();
                // fails if another thread's preparation has failed already
                let _ = tell.send(prepared);
                drop(tell);
                if ready {
                    serve();
                }
            })
            .map_err(|source| ServeError::Start {
                call: "clone",
                source,
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> &Listen {
        &self.at
    }

    /// Where a client connects; loopback for a server that listens on all addresses.
    pub fn endpoint(&self) -> Endpoint {
        match &self.at {
            Listen::Unix(path) => Endpoint::Unix(path.clone()),
            Listen::Inet(address) => {
                let mut address = *address;
                match address.ip() {
                    IpAddr::V4(ip) if ip.is_unspecified() => {
                        address.set_ip(Ipv4Addr::LOCALHOST.into());
                    }
                    IpAddr::V6(ip) if ip.is_unspecified() => {
                        address.set_ip(Ipv6Addr::LOCALHOST.into());
                    }
                    _ => {}
                }
                if self.architecture.is_datagram() {
                    Endpoint::Udp(address)
                } else {
                    Endpoint::Tcp(address)
                }
            }
        }
    }

    /// What it has done so far.
    pub fn served(&self) -> Served {
        self.rare.with(match &self.server {
            ServerState::NullRpc(server) => server.by_worker(),
            _ => self.answered.iter().map(|worker| worker.get()).collect(),
        })
    }

    /// Stops it and says what it has done.
    pub fn stop(mut self) -> Served {
        self.end();
        self.served()
    }

    fn end(&mut self) {
        self.stop.set();
        if let ServerState::Datagram(sockets) = &self.server {
            for socket in sockets {
                // Wakes workers in recvfrom, although it returns "not connected"
                // (inet_shutdown: "hack to wake up other listeners").
                let _ = shutdown(&**socket, Shutdown::Read);
            }
        }
        if let ServerState::NullRpc(server) = &self.server {
            server.stop();
        }
        for thread in self.threads.drain(..) {
            // a panic has been reported on stderr
            let _ = thread.join();
        }
        if let ServerState::Epoll(epoll) = &self.server {
            epoll.close();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.end();
    }
}
