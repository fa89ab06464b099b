//! What a recording says besides its events, so that it can be explained elsewhere.

use serde::{Deserialize, Serialize};

use crate::summary::Hook;
use crate::{Nanos, Tid};

/// The recorded server, its machine, and the names behind the numbers of the events.
///
/// Everything is optional: what the recorder did not know has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingContext {
    /// What was recorded: `memcached over UDP`, `pid 4711 (nginx), port 80 over TCP`.
    pub server: String,
    /// `udp` or `tcp`; empty where unknown.
    pub transport: String,
    /// The server's port.
    pub port: u16,
    /// When the recording began, seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The release of the kernel.
    pub kernel: String,
    /// The hypervisor's name, where there is one.
    pub hypervisor: Option<String>,
    /// The CPUs whose threads and interrupts were recorded.
    pub server_cpus: Vec<u16>,
    /// Which hook gave each stamp and each kind of disturbance.
    pub hooks: Vec<Hook>,
    /// Every thread that was on one of these CPUs, and those of the server.
    pub threads: Vec<ThreadName>,
    /// The interrupts of devices.
    pub interrupts: Vec<InterruptName>,
    /// t, where it was measured beforehand.
    pub service_time_ns: Option<Nanos>,
    /// Workers of the server, where that is known.
    pub workers: Option<u32>,
    /// Warm-up before this time does not count, in nanoseconds since boot.
    pub measure_from_ns: Option<u64>,
    /// How long the client waits, where it is ours; else the longest sojourn looked for.
    pub timeout_ns: Option<Nanos>,
    /// The server answers each connection's requests in order, all that it has read before
    /// it reads more.
    pub sequential: bool,
    /// A datagram begins with two bytes that name its request, a response with those of its
    /// own; false where only the datagrams can show it.
    pub datagram_ids: bool,
    /// Requests are told apart by their content: `http`, `memcached`, `resp`, `fixed:N`.
    pub framing: Option<String>,
    /// The part of the recording in which the observer itself was on a CPU.
    pub observer_cpu_share: Option<f64>,
}

/// Who a thread is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadName {
    /// The thread.
    pub tid: Tid,
    /// Its process (the kernel's `tgid`); 0 where unknown.
    pub pid: Tid,
    /// Its name (`comm`), of at most 15 bytes.
    pub comm: String,
    /// It is one of the server's.
    pub server: bool,
    /// It goes before ordinary threads: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE; `None` where
    /// that is not known.
    #[serde(default)]
    pub real_time: Option<bool>,
}

/// What an interrupt's number means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptName {
    /// Its number in `/proc/interrupts`.
    pub number: u32,
    /// The devices behind it: `virtio0-input.0`.
    pub name: String,
}
