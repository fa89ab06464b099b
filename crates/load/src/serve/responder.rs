//! A running server inside the process.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown, sockopt};
use rustix::time::Timespec;

use super::connection::Message;
use super::epoll::Epoll;
use super::listen::{self, Listener, SocketPath};
use super::null_rpc::NullRpc;
use super::service::BeforeRequest;
use super::tally::{Answered, Rare};
use super::{Architecture, Listen, ServeError, Served, ServiceTime, datagram};
use crate::Endpoint;
use crate::protocol::MessageSizes;

/// More workers than this help nobody.
const MOST_WORKERS: usize = 4096;
/// The largest messages on a stream: each connection has a buffer.
const LARGEST_MESSAGE: usize = 16 << 20;
/// The largest UDP payload over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;
/// The id of a datagram's request.
const ID_BYTES: usize = 2;

/// What a server is to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How requests are divided among threads.
    pub architecture: Architecture,
    /// Where it listens.
    pub listen: Listen,
    /// Worker threads; without meaning for null-rpc, which has one for each connection.
    pub workers: usize,
    /// What a worker does between request and answer.
    pub service: ServiceTime,
    /// Seed of the service times; each worker has a stream of its own.
    pub seed: u64,
    /// Lengths of request and answer.
    pub sizes: MessageSizes,
    /// Workers never sleep: they look again and again whether there is something to do.
    /// For measuring a client, whose floor must not be the server's wake-up.
    pub busy: bool,
}

impl Spec {
    /// One worker on a free port of loopback that answers 128 bytes with 128 bytes at
    /// once, the paper's message sizes.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            architecture,
            listen: Listen::loopback(),
            workers: 1,
            service: ServiceTime::None,
            seed: 1,
            sizes: MessageSizes {
                request_bytes: 128,
                response_bytes: 128,
            },
            busy: false,
        }
    }

    fn check(&self) -> Result<(), ServeError> {
        if self.workers == 0 || self.workers > MOST_WORKERS {
            return Err(ServeError::Workers {
                workers: self.workers,
                max: MOST_WORKERS,
            });
        }
        let (min, max) = if self.architecture.is_datagram() {
            (ID_BYTES, LARGEST_DATAGRAM)
        } else {
            (1, LARGEST_MESSAGE)
        };
        let lengths = [
            ("requests", self.sizes.request_bytes),
            ("responses", self.sizes.response_bytes),
        ];
        for (what, bytes) in lengths {
            if !(min..=max).contains(&bytes) {
                return Err(ServeError::Size {
                    what,
                    bytes,
                    min,
                    max,
                    architecture: self.architecture,
                });
            }
        }
        if self.busy && self.architecture == Architecture::NullRpc {
            return Err(ServeError::BusyNullRpc);
        }
        Ok(())
    }
}

/// Tells all threads to stop: a flag, and a file that wakes who waits.
pub(super) struct Stop {
    flag: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            flag: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC)?,
        })
    }

    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Relaxed)
    }

    /// Readable once the flag is set.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    pub(super) fn set(&self) {
        self.flag.store(true, Relaxed);
        // adding one to zero cannot fail
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// Who takes new connections, and what else must be woken to stop.
enum Kind {
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
    kind: Kind,
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    answered: Vec<Arc<Answered>>,
    rare: Arc<Rare>,
    before: Option<BeforeRequest>,
    /// Dropped, and so removed, after all else has stopped.
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

type Prepare = dyn Fn(usize) -> Result<(), String> + Send + Sync;

impl Responder {
    /// Starts a server; it accepts requests when this returns.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(spec: &Spec) -> Result<Self, ServeError> {
        Self::launch(spec, Arc::new(|_| Ok(())), None)
    }

    /// Starts a server whose workers call what `before` makes before they serve a request.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start_before(spec: &Spec, before: Option<BeforeRequest>) -> Result<Self, ServeError> {
        Self::launch(spec, Arc::new(|_| Ok(())), before)
    }

    /// Starts a server each of whose threads runs `prepare` before it serves, for example
    /// to bind itself to a CPU. Its argument counts the threads: first the workers, then
    /// the accept thread of a stream server. The workers of null-rpc are started by the
    /// accept thread, which is its number 0, and inherit what it has.
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
        prepare: Arc<Prepare>,
        before: Option<BeforeRequest>,
    ) -> Result<Self, ServeError> {
        spec.check()?;
        let start = |call| move |source| ServeError::Start { call, source };
        let stop = Arc::new(Stop::new().map_err(start("eventfd"))?);
        let rare = Arc::new(Rare::default());
        let message = Message::new(spec.sizes);
        let (kind, at, listener, path) = if spec.architecture.is_datagram() {
            let Listen::Inet(address) = spec.listen else {
                return Err(ServeError::UnixDatagram(spec.architecture));
            };
            let reuseport = spec.architecture == Architecture::UdpReuseport;
            let (sockets, at) = listen::datagram(address, spec.workers, reuseport)?;
            let sockets = sockets.into_iter().map(Arc::new).collect();
            (Kind::Datagram(sockets), Listen::Inet(at), None, None)
        } else {
            let Listener { socket, at, path } = listen::stream(&spec.listen)?;
            let epoll = |workers| {
                Epoll::new(workers, message, &stop, Arc::clone(&rare))
                    .map(|epoll| Kind::Epoll(Arc::new(epoll)))
                    .map_err(start("epoll_create"))
            };
            let kind = match spec.architecture {
                Architecture::EpollShared => epoll(None)?,
                Architecture::EpollPerWorker => epoll(Some(spec.workers))?,
                _ => Kind::NullRpc(Arc::new(NullRpc::new(
                    spec,
                    before.clone(),
                    Arc::clone(&rare),
                )?)),
            };
            (kind, at, Some(socket), path)
        };
        let mut responder = Self {
            architecture: spec.architecture,
            at,
            kind,
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
        prepare: Arc<Prepare>,
    ) -> Result<(), ServeError> {
        let (tell, told) = channel();
        if !matches!(self.kind, Kind::NullRpc(_)) {
            for number in 0..spec.workers {
                let serve = self.worker(spec, number)?;
                self.spawn(format!("worker-{number}"), &prepare, &tell, serve)?;
            }
        }
        if let Some(listener) = listener {
            let accept = self.acceptor(listener)?;
            self.spawn("accept".to_owned(), &prepare, &tell, accept)?;
        }
        drop(tell);
        // ends when every thread has told, or is gone
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

    /// What worker `number` is to do.
    fn worker(
        &mut self,
        spec: &Spec,
        number: usize,
    ) -> Result<Box<dyn FnOnce() + Send>, ServeError> {
        let work = spec.service.worker(spec.seed, number as u64)?;
        let work = work.with_before(&self.before);
        let answered = Arc::new(Answered::default());
        self.answered.push(Arc::clone(&answered));
        let stop = Arc::clone(&self.stop);
        let busy = spec.busy;
        Ok(match &self.kind {
            Kind::Epoll(epoll) => {
                let epoll = Arc::clone(epoll);
                Box::new(move || epoll.serve(number, work, &answered, busy, &stop))
            }
            Kind::Datagram(sockets) => {
                let socket = Arc::clone(&sockets[number % sockets.len()]);
                let rare = Arc::clone(&self.rare);
                let message = Message::new(spec.sizes);
                Box::new(move || {
                    datagram::serve(&socket, message, work, &answered, &rare, busy, &stop);
                })
            }
            Kind::NullRpc(_) => Box::new(|| ()),
        })
    }

    /// What the accept thread is to do.
    fn acceptor(&self, listener: OwnedFd) -> Result<Box<dyn FnOnce() + Send>, ServeError> {
        let no_delay = matches!(self.at, Listen::Inet(_));
        let stop = Arc::clone(&self.stop);
        let rare = Arc::clone(&self.rare);
        let spare = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| ServeError::Start {
            call: "eventfd",
            source: errno.into(),
        })?;
        let mut acceptor = Acceptor {
            listener,
            flags: SocketFlags::CLOEXEC,
            no_delay,
            spare: Some(spare),
        };
        Ok(match &self.kind {
            Kind::Epoll(epoll) => {
                let epoll = Arc::clone(epoll);
                acceptor.flags |= SocketFlags::NONBLOCK;
                Box::new(move || acceptor.run(&stop, &rare, |socket| epoll.connected(socket)))
            }
            Kind::NullRpc(server) => {
                let server = Arc::clone(server);
                Box::new(move || acceptor.run(&stop, &rare, |socket| server.connected(socket)))
            }
            Kind::Datagram(_) => Box::new(|| ()),
        })
    }

    fn spawn(
        &mut self,
        name: String,
        prepare: &Arc<Prepare>,
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
                // nobody listens any more where another thread's preparation failed
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

    /// Where a client connects to. A server on all addresses is reached on loopback.
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

    /// The address and the port, unless it is a Unix socket.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.at.socket_address()
    }

    /// What it has done so far.
    pub fn served(&self) -> Served {
        self.rare.with(match &self.kind {
            Kind::NullRpc(server) => server.by_worker(),
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
        if let Kind::Datagram(sockets) = &self.kind {
            for socket in sockets {
                // Wakes who waits in recvfrom; "not connected" is all it says of it
                // (inet_shutdown: "hack to wake up other listeners").
                let _ = shutdown(&**socket, Shutdown::Read);
            }
        }
        if let Kind::NullRpc(server) = &self.kind {
            server.stop();
        }
        for thread in self.threads.drain(..) {
            // a thread that panicked has said so on stderr
            let _ = thread.join();
        }
        if let Kind::Epoll(epoll) = &self.kind {
            epoll.close();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.end();
    }
}

/// The accept thread.
struct Acceptor {
    listener: OwnedFd,
    flags: SocketFlags,
    no_delay: bool,
    /// Given up for a moment when the process may open no more files, so that a client
    /// that cannot be served is told so at once.
    spare: Option<OwnedFd>,
}

impl Acceptor {
    fn run(mut self, stop: &Stop, rare: &Rare, connected: impl Fn(OwnedFd) -> io::Result<()>) {
        while !stop.is_set() {
            match accept_with(&self.listener, self.flags) {
                Ok(socket) => {
                    if self.no_delay {
                        // an answer never waits for the acknowledgement of another
                        let _ = sockopt::set_tcp_nodelay(&socket, true);
                    }
                    match connected(socket) {
                        Ok(()) => Rare::count(&rare.connections),
                        Err(_) => Rare::count(&rare.refused),
                    }
                }
                Err(Errno::AGAIN) => self.wait(stop),
                Err(Errno::MFILE | Errno::NFILE) => self.refuse(stop, rare),
                Err(Errno::NOBUFS | Errno::NOMEM) => pause(stop),
                // a client that left before it was accepted
                Err(_) => {}
            }
        }
    }

    fn wait(&self, stop: &Stop) {
        let mut files = [
            PollFd::new(&self.listener, PollFlags::IN),
            PollFd::new(stop.event(), PollFlags::IN),
        ];
        // interrupted by a signal: looked at again
        let _ = poll(&mut files, None);
    }

    fn refuse(&mut self, stop: &Stop, rare: &Rare) {
        self.spare = None;
        match accept_with(&self.listener, self.flags) {
            Ok(_) => Rare::count(&rare.refused),
            Err(_) => pause(stop),
        }
        self.spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}

/// A moment for the machine to recover, shorter if the server is to stop.
fn pause(stop: &Stop) {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    let _ = poll(
        &mut [PollFd::new(stop.event(), PollFlags::IN)],
        Some(&moment),
    );
}
