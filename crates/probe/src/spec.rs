//! What to watch.

use std::path::PathBuf;

use taillab_model::MiddleStamps;

use crate::Disturbances;

/// A network device, unique on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId {
    /// Its index, unique only within its network namespace.
    pub ifindex: u32,
    /// The inode of its network namespace, as in `/proc/PID/ns/net`.
    pub netns_inode: u64,
}

/// Network devices of one namespace: those through which requests come and responses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The inode of the server's network namespace, as in `/proc/PID/ns/net`.
    pub netns_inode: u64,
    /// The devices' indices, at most 8; empty for every device of the namespace, those that
    /// appear later included.
    ///
    /// Then a device on top of others (a bridge, a bond, a VLAN) does not count, only those
    /// below: so each packet is stamped once.
    pub ifindexes: Vec<u32>,
}

impl Devices {
    /// Every device of this network namespace: loopback, veth and NICs together.
    pub const fn all_in(netns_inode: u64) -> Self {
        Self {
            netns_inode,
            ifindexes: Vec::new(),
        }
    }
}

impl From<DeviceId> for Devices {
    fn from(device: DeviceId) -> Self {
        Self {
            netns_inode: device.netns_inode,
            ifindexes: vec![device.ifindex],
        }
    }
}

/// How requests come to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram is a request, another one its response.
    Udp,
    /// Requests and responses follow each other on connections.
    Tcp,
}

/// The hook for T5 of datagrams that sees only those with an address: to be avoided
/// ([`Probe::load_avoiding`](crate::Probe::load_avoiding)) for a server with connected sockets.
pub const UNCONNECTED_T5: &str = "cgroup/sendmsg4, sendmsg6";

/// Whose threads are the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerProcesses {
    /// Those of these processes (at most 64), by their ids as seen from the initial pid
    /// namespace; processes that start later are not among them.
    These(Vec<u32>),
    /// Those of every process in the devices' network namespace, whenever it starts.
    InNamespace,
    /// Those of every process in this cgroup or below it, whenever it starts: the cgroup's
    /// directory, of version 2 or of a controller of version 1.
    Cgroup(PathBuf),
}

/// One server and where its requests come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The server's end: the devices that receive requests and send responses.
    pub devices: Devices,
    /// How they come in.
    pub transport: Transport,
    /// The server's UDP or TCP port.
    pub server_port: u16,
    /// The server's processes.
    pub server: ServerProcesses,
    /// The CPUs whose thread changes, interrupts and idle times are recorded.
    pub server_cpus: Vec<u16>,
    /// The CPUs of a generator that taillab runs: of these, only who comes onto them is recorded,
    /// and only together with the thread switches. One that is the server's too is left to that.
    pub generator_cpus: Vec<u16>,
    /// For which requests T2 to T5 are recorded. Where for none, no thread switches are either.
    pub stamps: MiddleStamps,
    /// What is recorded in addition to the stamps and the thread switches.
    pub disturbances: Disturbances,
    /// Of each segment of a stream, how many bytes of payload are recorded, at most 256; 0 for
    /// none. They take an event for each 8 bytes.
    pub payload_bytes: u16,
    /// Room for events that are not drained yet, for each possible CPU, rounded up to
    /// a power of two; an event takes 16 bytes. It is locked memory and counts once in
    /// the process's resident memory.
    pub ring_bytes_per_cpu: usize,
}

/// What one eBPF program has cost so far, by the kernel's own count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The program's name.
    pub program: String,
    /// Times it ran, those included whose event was filtered out.
    pub runs: u64,
    /// Time in it, in all, in nanoseconds; the kernel's two clock reads around it,
    /// which are only there while statistics are on, included.
    pub run_time_ns: u64,
}
