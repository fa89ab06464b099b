//! What to watch.

/// A network device, unique on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceId {
    /// Its index, unique only within its network namespace.
    pub ifindex: u32,
    /// The inode of its network namespace, as in `/proc/PID/ns/net`.
    pub netns_inode: u64,
}

/// How requests come to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram is a request, another one its response.
    Udp,
    /// Requests and responses follow each other on connections.
    Tcp,
}

/// Whose system calls are the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerProcesses {
    /// Those of these processes (at most 64), by their ids as seen from the initial pid
    /// namespace; processes that start later are not among them.
    These(Vec<u32>),
    /// Those of every process in the device's network namespace, whenever it starts.
    InNamespace,
}

/// One server and where its requests come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// The server's end: the device that receives requests and sends responses.
    pub device: DeviceId,
    /// How they come in.
    pub transport: Transport,
    /// The server's UDP or TCP port.
    pub server_port: u16,
    /// The server's processes.
    pub server: ServerProcesses,
    /// The CPUs whose thread changes are recorded.
    pub server_cpus: Vec<u16>,
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
