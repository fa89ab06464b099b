//! What is to be measured.

use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::{Placement, RequestedCpus, Roots};
use taillab_load::Endpoint;
use taillab_load::rtt::{Mode, Proto, XdpMode};
use taillab_model::Nanos;
use taillab_model::rtt::Link;

/// Default number of round trips before those that count.
const WARM_UP: u64 = 1_000;
/// Default time to wait for an answer.
const TIMEOUT: Nanos = Nanos::from_secs(1);
/// The name of our own server.
pub const OURS: &str = "taillab";

/// One combination of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlan {
    /// The protocol.
    pub proto: Proto,
    /// How both ends wait for it.
    pub mode: Mode,
    /// Bytes of a message.
    pub size: usize,
    /// Connections, each with one message in flight.
    pub conns: usize,
}

/// The rate of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenRate {
    /// Messages per second.
    PerS(f64),
    /// A share of the capacity, which is measured first.
    OfCapacity(f64),
}

/// Everything that is to be measured.
#[derive(Debug)]
pub struct RttPlan {
    /// In the order of the command line.
    pub rows: Vec<RowPlan>,
    /// The combinations of the command line that are impossible, in words.
    pub left_out: Vec<String>,
    /// Round trips in a run.
    pub count: u64,
    /// Runs of each row.
    pub runs: u32,
    /// A run ends after this time, whatever its count. The warm-up is included in an open loop.
    pub at_most: Option<Nanos>,
    /// Round trips on each connection before those that count.
    pub warm_up: u64,
    /// How long to wait for an answer.
    pub timeout: Nanos,
    /// How client and server are connected.
    pub link: Link,
    /// MTU of our own link, if it differs from the kernel's default.
    pub mtu: Option<u32>,
    /// How AF_XDP gets packets.
    pub xdp: XdpMode,
    /// Send by a schedule, instead of each message after the answer to the one before.
    pub open: Option<OpenRate>,
    /// Measure each row once more with the probe, to say where its tail comes from.
    pub explain: bool,
    /// Who answers, for people.
    pub server: String,
    /// The server, if it is not ours.
    pub target: Option<Target>,
    /// The CPUs of the client.
    pub client_cpus: Vec<u32>,
    /// Empty if the server is not ours.
    pub server_cpus: Vec<u32>,
}

/// A server that is already running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its address for each kind of protocol: of several of a name, some may have a server for only one.
    Inet {
        /// For what needs a connection.
        stream: SocketAddr,
        /// For datagrams.
        datagrams: SocketAddr,
    },
    /// The path of its socket.
    Unix(std::path::PathBuf),
}

impl Target {
    /// Its endpoint for this protocol.
    pub fn endpoint(&self, proto: Proto) -> Option<Endpoint> {
        match (self, proto) {
            // RDMA is set up over TCP
            (Self::Inet { stream, .. }, proto) if proto.is_rdma() => Some(Endpoint::Tcp(*stream)),
            (Self::Inet { stream, .. }, Proto::Tcp) => Some(Endpoint::Tcp(*stream)),
            (Self::Inet { datagrams, .. }, Proto::Udp) => Some(Endpoint::Udp(*datagrams)),
            (Self::Unix(path), Proto::Unix) => Some(Endpoint::Unix(path.clone())),
            _ => None,
        }
    }
}

impl RttPlan {
    /// Combinations against servers of our own over loopback, for this many round trips in each of this
    /// many runs, on these CPUs.
    pub fn own(
        rows: Vec<RowPlan>,
        count: u64,
        runs: u32,
        cpus: RequestedCpus<'_>,
    ) -> Result<Self, Failure> {
        let placement = Placement::choose(&Roots::default(), cpus).map_err(host)?;
        Ok(Self {
            rows,
            left_out: Vec::new(),
            count,
            runs,
            at_most: None,
            warm_up: WARM_UP,
            timeout: TIMEOUT,
            link: Link::Loopback,
            mtu: None,
            xdp: XdpMode::Copy,
            open: None,
            explain: false,
            server: OURS.to_owned(),
            target: None,
            client_cpus: placement.client.iter().collect(),
            server_cpus: placement.server.iter().collect(),
        })
    }

    /// Who runs where.
    pub fn placement(&self) -> Placement {
        Placement {
            server: self.server_cpus.iter().copied().collect(),
            client: self.client_cpus.iter().copied().collect(),
        }
    }

    /// Round trips of all rows and runs, including the warm-up.
    pub fn round_trips(&self) -> u64 {
        let of_row = |row: &RowPlan| {
            let of_run = self.count + self.warm_up * row.conns as u64;
            of_run * (u64::from(self.runs) + u64::from(self.explains(row)))
        };
        self.rows.iter().map(of_row).sum()
    }

    /// Whether the row is to be explained and the kernel can stamp its packets.
    pub fn explains(&self, row: &RowPlan) -> bool {
        self.explain && matches!(row.proto, Proto::Tcp | Proto::Udp)
    }
}
