//! The defaults of an experiment: the paper's workloads at 75 %.

use taillab_load::Ask;
use taillab_load::serve::Architecture;
use taillab_model::Transport;
use taillab_model::summary::ClientKind;

use super::kind::{Protocol, ServerKind};

/// Our own program, wherever it is: every user can read it by this name.
pub const OURSELVES: &str = "/proc/self/exe";

/// Independent clients over TCP. While fewer than ten requests are in the server on average, fewer than 1 % find their
/// connection busy; more connections would displace more of the server's caches.
const STREAM_CLIENTS: u16 = 1024;
/// Connections of a pool, which carry the load as long as nothing stalls.
const POOLED_CONNECTIONS: u16 = 256;
/// Connections that take over in a stall, so that no request waits behind another on its own connection:
/// their packets could not be matched, and nginx answers such requests much more slowly. With only 256
/// connections, at 28,000 requests per second, nginx did not recover from a stall.
const POOLED_RESERVE: u16 = 3840;
/// The same if each connection has its own thread in the server.
const THREADED_RESERVE: u16 = 768;
/// Sockets of a datagram client; its requests never wait for each other.
const DATAGRAM_CONNECTIONS: u16 = 16;

/// The ring of each CPU, unless there are so many CPUs that all rings together would take too much
/// memory. It is drained more often here than by `trace`.
pub(super) const RING_BYTES: usize = 4 << 20;

/// The choices on which the other defaults depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) kind: ServerKind,
    pub(super) transport: Transport,
    pub(super) protocol: Protocol,
    pub(super) architecture: Option<Architecture>,
    pub(super) clients: ClientKind,
}

impl Choice {
    /// The defaults for a server of this kind, with independent clients.
    pub(super) fn of(kind: ServerKind, architecture: Option<Architecture>) -> Self {
        let transport = match kind {
            ServerKind::Memcached => Transport::Udp,
            ServerKind::NullRpc if architecture.is_some_and(Architecture::is_datagram) => {
                Transport::Udp
            }
            _ => Transport::Tcp,
        };
        Self {
            kind,
            transport,
            // a custom server must name its protocol
            protocol: kind.protocol().unwrap_or_default(),
            architecture,
            clients: ClientKind::Independent,
        }
    }
}

/// What is usual for a choice: the paper's workloads (*Tales of the Tail*, section 3.1). What depends on no choice stands with
/// its setting.
impl Choice {
    /// How a built-in server divides requests among its threads; `None` for other servers.
    pub(super) fn built_in(self) -> Option<Architecture> {
        let usual = match self.transport {
            Transport::Tcp => Architecture::NullRpc,
            Transport::Udp => Architecture::UdpShared,
        };
        (self.kind == ServerKind::NullRpc).then(|| self.architecture.unwrap_or(usual))
    }

    /// One worker, except where each connection has a thread.
    pub(super) fn workers(self) -> Option<u32> {
        (self.built_in() != Some(Architecture::NullRpc)).then_some(1)
    }

    /// The server's program; a custom one must be given.
    pub(super) const fn program(self) -> &'static str {
        match self.kind {
            ServerKind::NullRpc => OURSELVES,
            ServerKind::Memcached => "memcached",
            ServerKind::Nginx => "nginx",
            ServerKind::Custom => "",
        }
    }

    /// Its port; that of a custom one must be given.
    pub(super) const fn port(self) -> u16 {
        match self.kind {
            ServerKind::NullRpc => 7777,
            ServerKind::Memcached => 11_211,
            ServerKind::Nginx => 8080,
            ServerKind::Custom => 0,
        }
    }

    /// Room for the requests of a stall, where nothing tells the client to wait.
    pub(super) fn receive_buffer_bytes(self) -> Option<u32> {
        (self.transport == Transport::Udp).then_some(8 << 20)
    }

    /// Connections of the client, without a reserve.
    pub(super) const fn connections(self) -> u16 {
        match (self.transport, self.clients) {
            (Transport::Udp, _) => DATAGRAM_CONNECTIONS,
            (Transport::Tcp, ClientKind::Independent) => STREAM_CLIENTS,
            (Transport::Tcp, ClientKind::Pooled) => POOLED_CONNECTIONS,
        }
    }

    /// The reserve of a pool.
    pub(super) fn reserve(self) -> u16 {
        match (self.transport, self.clients, self.built_in()) {
            (Transport::Udp, ..) | (_, ClientKind::Independent, _) => 0,
            (Transport::Tcp, ClientKind::Pooled, Some(Architecture::NullRpc)) => THREADED_RESERVE,
            (Transport::Tcp, ClientKind::Pooled, _) => POOLED_RESERVE,
        }
    }

    /// Whether a connection usually carries several requests at once.
    pub(super) fn may_pipeline(self) -> bool {
        self.transport == Transport::Udp || self.protocol.pipelines
    }

    /// Whether requests have keys: 64 bytes, with values of 1,024 bytes, 90 % reads.
    pub(super) fn has_keys(self) -> bool {
        self.protocol.asks(Ask::Keys)
    }

    /// What HTTP asks for.
    pub(super) fn path(self) -> Option<String> {
        let path = match self.kind {
            ServerKind::Nginx => "/index.html",
            _ => "/",
        };
        self.protocol.asks(Ask::Path).then(|| path.to_owned())
    }

    /// Length of a request: 85 bytes to nginx, 128 of the null RPC.
    pub(super) fn request_bytes(self) -> Option<u32> {
        match self.kind {
            ServerKind::Nginx => Some(85),
            _ => self.protocol.asks(Ask::ResponseBytes).then_some(128),
        }
    }

    /// Length of a response: 849 bytes from nginx, 128 of the null RPC.
    pub(super) fn response_bytes(self) -> Option<u32> {
        match self.kind {
            ServerKind::Nginx => Some(849),
            _ => self.protocol.asks(Ask::ResponseBytes).then_some(128),
        }
    }
}
