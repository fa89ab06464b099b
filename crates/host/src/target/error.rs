//! Why a server cannot be watched.

use std::fmt;

use super::sockets::Endpoint;
use taillab_model::Transport;

/// Why a server cannot be found or watched; each text is one line with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// There is no process with this number.
    #[error(
        "there is no process {pid}: look for the server's with `pgrep -a NAME`, or name its port \
         with --port"
    )]
    NoProcess {
        /// The number asked for.
        pid: u32,
    },
    /// Its descriptors may not be read.
    #[error(
        "no permission to see which sockets process {pid} ({name}) has: run as root (sudo); where \
         root may not either, the kernel protects that process, and it cannot be traced"
    )]
    NotPermitted {
        /// The process.
        pid: u32,
        /// The process's name (`/proc/PID/comm`).
        name: String,
    },
    /// It is a thread of the kernel.
    #[error(
        "process {pid} ({name}) is a kernel thread and serves no requests: name the server's process"
    )]
    KernelThread {
        /// The process.
        pid: u32,
        /// The process's name (`/proc/PID/comm`).
        name: String,
    },
    /// It waits for no client on any port.
    #[error(
        "process {pid} ({name}) listens on no TCP or UDP port: name the process that does (`ss \
         -tulpn` lists them), or its port with --port"
    )]
    NoPort {
        /// The process.
        pid: u32,
        /// The process's name (`/proc/PID/comm`).
        name: String,
    },
    /// It listens on Unix sockets alone.
    #[error("process {pid} ({name}) listens only on Unix sockets ({}): they carry no packets, so arrivals and departures cannot be stamped; let it listen on a TCP or UDP port as well, or trace the proxy in front of it", .paths.join(", "))]
    UnixOnly {
        /// The process.
        pid: u32,
        /// The process's name (`/proc/PID/comm`).
        name: String,
        /// Paths of the Unix sockets.
        paths: Vec<String>,
    },
    /// It listens on several ports.
    #[error("{name} listens on {}: choose one with --port{}", list(.endpoints), how(.endpoints))]
    SeveralPorts {
        /// Process or control group.
        name: String,
        /// Every address and port on which it listens.
        endpoints: Vec<Endpoint>,
    },
    /// One port over both transports.
    #[error("{name} listens on port {port} over TCP and over UDP: choose with --tcp or --udp")]
    BothTransports {
        /// Process or control group.
        name: String,
        /// The port.
        port: u16,
    },
    /// It listens, but not there.
    #[error("{name} does not listen on {wanted}; it listens on {}", list(.endpoints))]
    OtherPort {
        /// Process or control group.
        name: String,
        /// What was asked for: `port 80 over UDP`.
        wanted: String,
        /// The addresses and ports on which it listens.
        endpoints: Vec<Endpoint>,
    },
    /// Nobody listens on this port.
    #[error(
        "no process listens on {wanted} in any network namespace that can be seen: start the \
         server, or look for its port with `ss -tulpn`"
    )]
    NobodyListens {
        /// The port or endpoint that was asked for.
        wanted: String,
    },
    /// Somebody listens, and it cannot be seen who.
    #[error(
        "a process listens on {wanted}, but this user may not see which one: run as root (sudo)"
    )]
    UnknownListener {
        /// The port or endpoint that was asked for.
        wanted: String,
    },
    /// Several servers listen on this port.
    #[error("several servers listen on {wanted}, at different addresses or in different network namespaces ({}): choose \
             one with -p PID", .servers.join(", "))]
    SeveralServers {
        /// The port or endpoint that was asked for.
        wanted: String,
        /// `nginx (pid 4711) at 127.0.0.1`, one for each.
        servers: Vec<String>,
    },
    /// What is meant as one server is several.
    #[error(
        "{servers} share a port or a control group and are not one server, so settings for one would hold back \
         the others: name one that serves alone (-p PID)"
    )]
    NotOneServer {
        /// `nginx (pid 4711), envoy (pid 20)`.
        servers: String,
    },
    /// No such control group.
    #[error(
        "there is no control group {path}: give its folder below /sys/fs/cgroup, e.g. \
         system.slice/nginx.service (`systemd-cgls` lists them)"
    )]
    NoCgroup {
        /// The path asked for.
        path: String,
    },
    /// Nobody is in the control group.
    #[error("the control group {path} has no process: start the server in it first")]
    EmptyCgroup {
        /// The path asked for.
        path: String,
    },
    /// We cannot name processes as the kernel does.
    #[error(
        "taillab runs in a pid namespace of its own (a container), where process numbers are not \
         the kernel's: run it in the host's (docker run --pid=host), or on the host"
    )]
    PidNamespace,
}

/// `port 80 over TCP, port 53 over UDP`.
fn list(endpoints: &[Endpoint]) -> String {
    let names: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// The rest of the hint, where the port alone does not decide.
fn how(endpoints: &[Endpoint]) -> &'static str {
    let both = endpoints.iter().any(|one| {
        let same = |other: &Endpoint| other.port == one.port && other.transport != one.transport;
        endpoints.iter().any(same)
    });
    if both {
        ", and with --tcp or --udp"
    } else {
        ""
    }
}

/// What was asked for, in words.
pub(super) struct WantedServer(pub(super) Option<u16>, pub(super) Option<Transport>);

impl fmt::Display for WantedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(port), Some(transport)) => write!(f, "port {port} over {transport}"),
            (Some(port), None) => write!(f, "port {port}"),
            (None, Some(transport)) => write!(f, "any port over {transport}"),
            (None, None) => f.write_str("any port"),
        }
    }
}
