//! What a recording says besides its events, so that it can be explained elsewhere.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::cut::{self, Cut};
use super::packed::TIME_MASK;
use crate::summary::{Hook, ServiceTimeSource};
use crate::{MiddleStamps, Nanos, Tid};

/// The recorded server, its machine, and the names behind the numbers of the events.
///
/// Everything is optional: what the recorder did not know has its default value.
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
    /// t, where it was known beforehand.
    pub service_time_ns: Option<Nanos>,
    /// Where that t comes from; absent in older recordings, where it was calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_time_source: Option<ServiceTimeSource>,
    /// Workers of the server, where that is known.
    pub workers: Option<u32>,
    /// Warm-up before this time does not count, in nanoseconds since boot.
    pub measure_from_ns: Option<u64>,
    /// How long the client waits, where it is ours; else the longest sojourn that is considered.
    pub timeout_ns: Option<Nanos>,
    /// When the recording ended, the client had the whole response to each of its requests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// The server answers each connection's requests in order, and answers all that it has read
    /// before it reads more.
    pub sequential: bool,
    /// Every datagram begins with two bytes that identify its request, which a response repeats;
    /// false where only the datagrams themselves can show this.
    pub datagram_ids: bool,
    /// For which requests T2 to T5 were recorded.
    #[serde(skip_serializing_if = "MiddleStamps::are_complete")]
    pub stamps: MiddleStamps,
    /// Requests are identified by their content: the name of a framing, as `--protocol` takes it.
    pub framing: Option<String>,
    /// CPU time of the observer's threads while it recorded, as a share of one CPU.
    pub observer_cpu_share: Option<f64>,
    /// The servers to which this one had TCP connections of its own when the recording began or ended, and those that it
    /// was seen to ask; those with the most connections first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<UpstreamServer>,
    /// Stretches in which the generator did not keep its schedule, in order of time.
    pub cuts: Vec<Cut>,
    /// It was recorded in version 1 of the format: numbers of connections are hashes of addresses, and ports
    /// ([`RequestKey::hashed`](crate::RequestKey::hashed)).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hashed_clients: bool,
}

/// The longest length of time that is believed: 78 hours, the longest time that an event can have. Sums of
/// 65,536 such lengths still fit 64 bits.
const MAX_LENGTH: Nanos = Nanos::new(TIME_MASK);
/// The latest instant that is believed: 73 years after boot.
const MAX_SINCE_BOOT: u64 = 1 << 61;
/// The latest start that is believed: in the year 10680.
const MAX_UNIX_S: u64 = 1 << 38;
/// More workers than any kernel has threads (`PID_MAX_LIMIT` of Linux) are not believed.
const MAX_WORKERS: u32 = 1 << 22;

impl RecordingContext {
    /// Checks that its numbers can be used in calculations; called once, when a context is read.
    ///
    /// # Errors
    /// The first field that is out of range, and its limit.
    pub fn check(&self) -> Result<(), String> {
        let lengths = [
            ("service_time_ns", self.service_time_ns),
            ("timeout_ns", self.timeout_ns),
        ];
        for (name, length) in lengths {
            if length.is_some_and(|length| length > MAX_LENGTH) {
                return Err(format!("{name} is longer than {MAX_LENGTH}"));
            }
        }
        if self.service_time_ns == Some(Nanos::ZERO) {
            return Err("service_time_ns is 0".into());
        }
        if self
            .workers
            .is_some_and(|workers| !(1..=MAX_WORKERS).contains(&workers))
        {
            return Err(format!("workers is not between 1 and {MAX_WORKERS}"));
        }
        if self
            .measure_from_ns
            .is_some_and(|from| from > MAX_SINCE_BOOT)
        {
            return Err("measure_from_ns is more than 73 years after boot".into());
        }
        if self.started_unix_s > MAX_UNIX_S {
            return Err("started_unix_s is after the year 10680".into());
        }
        if self
            .observer_cpu_share
            .is_some_and(|share| !(0.0..=1e6).contains(&share))
        {
            return Err("observer_cpu_share is out of range".into());
        }
        cut::check(&self.cuts, MAX_SINCE_BOOT)
    }
}

/// The name of a thread, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadName {
    /// The thread.
    pub tid: Tid,
    /// Its process (the kernel's `tgid`); 0 where unknown.
    pub pid: Tid,
    /// Its name (`comm`), of at most 15 bytes.
    pub comm: String,
    /// It belongs to the server.
    pub server: bool,
    /// It takes precedence over ordinary threads: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE; `None` where
    /// that is not known.
    #[serde(default)]
    pub real_time: Option<bool>,
}

/// A server that the recorded one asks itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamServer {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The program (`comm`), if it runs on the same machine; else empty.
    pub program: String,
    /// How many connections there were when somebody looked; 0 where there was none.
    pub connections: u32,
    /// Its number in events; 0: it was not seen to be asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(number: &u16) -> bool {
    *number == 0
}

impl fmt::Display for UpstreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = SocketAddr::new(self.address, self.port);
        match self.program.as_str() {
            "" => write!(f, "{address}"),
            program => write!(f, "{address} ({program})"),
        }
    }
}

/// What an interrupt's number means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptName {
    /// Its number in `/proc/interrupts`.
    pub number: u32,
    /// The devices behind it: `virtio0-input.0`.
    pub name: String,
}
