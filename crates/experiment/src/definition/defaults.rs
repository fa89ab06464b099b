//! The defaults of an experiment: the paper's workloads at 75 %.

use std::path::PathBuf;

use taillab_load::Ask;
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_model::summary::{ClientKind, Connect};
use taillab_model::{MiddleStamps, Nanos, Transport};
use taillab_probe::Disturbances;

use super::server::{Protocol, Server, ServerKind};
use super::settings::{Calibration, Client, Experiment, Probe, Testbed, TestbedKind, Workload};
use crate::rings::ring_bytes_per_cpu;

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
const RING_BYTES: usize = 4 << 20;

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

/// The clients of a load over this transport, to a server of this architecture.
fn client(choice: Choice, architecture: Option<Architecture>) -> Client {
    let (connections, reserve) = match (choice.transport, choice.clients) {
        (Transport::Udp, _) => (DATAGRAM_CONNECTIONS, 0),
        (Transport::Tcp, ClientKind::Independent) => (STREAM_CLIENTS, 0),
        (Transport::Tcp, ClientKind::Pooled) => match architecture {
            Some(Architecture::NullRpc) => (POOLED_CONNECTIONS, THREADED_RESERVE),
            _ => (POOLED_CONNECTIONS, POOLED_RESERVE),
        },
    };
    let may_pipeline = choice.transport == Transport::Udp || choice.protocol.pipelines;
    Client {
        cpus: "1".to_owned(),
        kind: choice.clients,
        connect: Connect::Once,
        connections,
        reserve,
        pipeline: u16::from(!may_pipeline),
        timeout: Nanos::from_secs(1),
    }
}

impl Experiment {
    /// The defaults: the paper's workloads (*Tales of the Tail*, section 3.1) at 75 % for 20 s.
    pub(super) fn defaults(choice: Choice) -> Self {
        let Choice {
            kind,
            transport,
            protocol,
            architecture,
            clients: _,
        } = choice;
        let architecture = (kind == ServerKind::NullRpc).then(|| {
            architecture.unwrap_or(match transport {
                Transport::Tcp => Architecture::NullRpc,
                Transport::Udp => Architecture::UdpShared,
            })
        });
        let (program, port) = match kind {
            ServerKind::NullRpc => (OURSELVES, 7777),
            ServerKind::Memcached => ("memcached", 11_211),
            ServerKind::Nginx => ("nginx", 8080),
            // both must be given
            ServerKind::Custom => ("", 0),
        };
        Self {
            server: Server {
                kind,
                program: PathBuf::from(program),
                args: Vec::new(),
                user: "nobody".to_owned(),
                cpus: "0".to_owned(),
                workers: (architecture != Some(Architecture::NullRpc)).then_some(1),
                transport,
                protocol,
                port,
                receive_buffer_bytes: (transport == Transport::Udp).then_some(8 << 20),
                architecture,
                service: architecture.map(|_| ServiceTime::None),
            },
            client: client(choice, architecture),
            workload: workload(choice),
            background: None,
            testbed: Testbed {
                kind: TestbedKind::Veth,
            },
            calibration: Calibration {
                pairs: 9,
                block: Nanos::from_millis(400),
                outstanding: None,
                service_time: None,
            },
            probe: Probe {
                ring_bytes: RING_BYTES.min(ring_bytes_per_cpu()) as u32,
                stamps: MiddleStamps::All,
                disturbances: Disturbances::ALL,
            },
        }
    }
}

/// The paper's sizes: 64-byte keys with 1,024-byte values, 90 % reads; 128 bytes each way for
/// the null RPC; 85-byte requests and 849-byte responses for nginx.
fn workload(choice: Choice) -> Workload {
    let (protocol, kind) = (choice.protocol, choice.kind);
    let keys = protocol.asks(Ask::Keys);
    let (request_bytes, response_bytes) = match kind {
        ServerKind::Nginx => (Some(85), Some(849)),
        _ if protocol.asks(Ask::ResponseBytes) => (Some(128), Some(128)),
        _ => (None, None),
    };
    Workload {
        duration: Nanos::from_secs(20),
        precision: None,
        max_duration: None,
        warmup: Nanos::from_secs(3),
        utilization: 0.75,
        rate_per_s: None,
        seed: 1,
        get_share: keys.then_some(0.9),
        keys: keys.then_some(10_000),
        key_bytes: keys.then_some(64),
        value_bytes: keys.then_some(1024),
        path: protocol.asks(Ask::Path).then(|| match kind {
            ServerKind::Nginx => "/index.html".to_owned(),
            _ => "/".to_owned(),
        }),
        request_bytes,
        response_bytes,
    }
}
