//! What the probe watches.

use std::net::IpAddr;
use std::path::PathBuf;

use taillab_model::{MiddleStamps, Transport};

use crate::Disturbances;

/// The network devices of one namespace through which requests come and responses leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The inode of the server's network namespace, as in `/proc/PID/ns/net`.
    pub netns_inode: u64,
    /// The devices' indices, at most 8; empty for every device of the namespace, including those
    /// that appear later.
    ///
    /// In that case a device on top of others (a bridge, a bond, a VLAN) is left out, so that each
    /// packet is stamped once.
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

/// The hook for T5 of datagrams that sees only those with an address. Avoid it
/// ([`Probe::load_avoiding`](crate::Probe::load_avoiding)) for a server with connected sockets.
pub const UNCONNECTED_T5: &str = "cgroup/sendmsg4, sendmsg6";

/// Which threads are the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerProcesses {
    /// The threads of these processes (at most 64), by their ids in the initial pid
    /// namespace. Processes that start later are not included.
    These(Vec<u32>),
    /// The threads of every process in the devices' network namespace, whenever it starts.
    InNamespace,
    /// The threads of every process in this cgroup or below it, whenever it starts. The path is the
    /// cgroup's directory, of version 2 or of a version 1 controller.
    Cgroup(PathBuf),
}

/// At which local addresses the server is, of those of its namespace: another server may have its port at
/// another address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// All of them.
    All,
    /// These, at most [`Addresses::MOST`]: it listens on them and on no other.
    Only(Vec<IpAddr>),
    /// All but these, at most [`Addresses::MOST`]: others listen on them.
    AllBut(Vec<IpAddr>),
}

impl Addresses {
    /// The most that can be told apart.
    pub const MOST: usize = 8;
}

/// One server and where its requests come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The server's end: the devices that receive requests and send responses.
    pub devices: Devices,
    /// Whether a queue may hold packets back before the driver of one of the devices takes them: any but
    /// `noqueue`, which veth and loopback have.
    pub queues: bool,
    /// The transport of its requests.
    pub transport: Transport,
    /// The server's UDP or TCP port.
    pub server_port: u16,
    /// Its addresses.
    pub addresses: Addresses,
    /// Other TCP ports on which it waits for clients: what it writes there is no question to another server.
    pub served_ports: Vec<u16>,
    /// The server's processes.
    pub server: ServerProcesses,
    /// Processes of others (at most 64) that share the server's port by sockets of their own (SO_REUSEPORT): what they
    /// and their children read is no request to the server.
    pub others: Vec<u32>,
    /// The CPUs whose thread changes, interrupts and idle times are recorded.
    pub server_cpus: Vec<u16>,
    /// The CPUs of a generator that taillab runs. On these only the threads that come onto the CPU
    /// are recorded, and only if thread switches are. A CPU that is also the server's counts as the
    /// server's.
    pub generator_cpus: Vec<u16>,
    /// When T2 to T5, thread switches and disturbances are recorded.
    pub stamps: MiddleStamps,
    /// What is recorded in addition to the stamps and the thread switches.
    pub disturbances: Disturbances,
    /// Bytes of payload to record of each segment of a stream, at most 2,048; 0 for
    /// none. Each 8 bytes take an event.
    pub payload_bytes: u16,
    /// Room for events that are not drained yet, for each possible CPU, rounded up to
    /// a power of two; an event takes 16 bytes. It is locked memory and counts once in
    /// the process's resident memory.
    pub ring_bytes_per_cpu: usize,
}

/// The cost of one eBPF program so far, by the kernel's own count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// The program's name.
    pub program: String,
    /// How often it ran, including runs whose event was filtered out.
    pub runs: u64,
    /// Its total run time in nanoseconds, including the kernel's two clock reads around it,
    /// which happen only while statistics are on.
    pub run_time_ns: u64,
}
