//! A running server that somebody else started: its processes, ports and CPUs.
//!
//! Everything is read from /proc, nothing is changed. A server is named by a process, a
//! port or a control group ([`Target`]); which of its ports is meant is decided after
//! that ([`Target::endpoint`]), and the port says which processes serve it
//! ([`Target::server`]): the workers of nginx are found from any one of them.

mod cgroup;
mod command;
mod error;
mod listeners;
mod processes;
mod sockets;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::cpus::{self, CpuSet};
use crate::process::{Stat, family, numbers_in, threads};
use crate::roots::{Roots, read_optional, status};

pub use self::cgroup::{Cgroup, cpu_groups};
pub use self::command::{CommandError, StartedCommand};
pub use self::error::TargetError;
use self::error::WantedServer;
use self::listeners::apart;
use self::processes::own_and_others;
pub use self::processes::{ensure_one_server, whole_server};
pub use self::sockets::Endpoint;
use self::sockets::{
    WaitingSocket, has_connected, held_by, holders, namespace_of, namespaces, unix_listeners,
    waiting,
};
use self::upstreams::served_ports;
pub use self::upstreams::{UpstreamNumber, add_asked, upstreams};
pub use taillab_model::Transport;

/// The inode of the first pid namespace (`PROC_PID_INIT_INO` of the kernel).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Processes that may be a server, and where they listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The process asked for, or the first that was found.
    pub pid: u32,
    /// What messages call it: `pid 4711 (nginx)`, `control group web.slice`.
    pub name: String,
    /// The inode of its network namespace.
    pub namespace: u64,
    /// The processes that are meant, in ascending order.
    pub processes: Vec<u32>,
    /// The control group, if that is how it was named.
    pub cgroup: Option<Cgroup>,
    /// Its sockets that wait for clients.
    waiting: Vec<WaitingSocket>,
    /// Ports from which the kernel picks a client's own; see [`likely`].
    chosen_by_kernel: RangeInclusive<u16>,
}

/// A server on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The process that messages name.
    pub pid: u32,
    /// Its name (`comm`).
    pub comm: String,
    /// What messages call it.
    pub name: String,
    /// The inode of its network namespace.
    pub namespace: u64,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Other addresses of its namespace at which somebody else listens on its port, in ascending order.
    pub taken_addresses: Vec<IpAddr>,
    /// All processes that serve there, in ascending order.
    pub processes: Vec<u32>,
    /// Other TCP ports on which they wait for clients, in ascending order.
    pub served_ports: Vec<u16>,
    /// Processes of others that share its port by sockets of their own (SO_REUSEPORT), in ascending order.
    pub others: Vec<u32>,
    /// The CPUs on which any of their threads may run.
    pub cpus: CpuSet,
    /// The control group, if that is how it was named.
    pub cgroup: Option<Cgroup>,
    /// Whether it has datagram sockets on its port that are connected to one client each.
    pub has_connected_datagrams: bool,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.endpoint)
    }
}

impl Target {
    /// The process `pid` and those that come from it.
    ///
    /// # Errors
    /// [`TargetError`]: there is none, it may not be looked at, it listens nowhere.
    pub fn of_process(roots: &Roots, pid: u32) -> Result<Self, TargetError> {
        let processes = family(roots, pid);
        if processes.is_empty() {
            return Err(TargetError::NoProcess { pid });
        }
        let name = comm(roots, pid);
        // nobody may read the descriptors and namespaces of a process that is ending
        let not_permitted = || match Stat::of(roots, pid) {
            Some(stat) if !stat.is_ending() => TargetError::NotPermitted {
                pid,
                name: name.clone(),
            },
            _ => TargetError::NoProcess { pid },
        };
        // first, since everybody may see that, and root's rights would not help
        if Stat::of(roots, pid).is_some_and(|stat| stat.is_kernel()) {
            return Err(TargetError::KernelThread { pid, name });
        }
        let namespace = namespace_of(roots, pid).ok_or_else(not_permitted)?;
        let held = all_held(roots, &processes).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => not_permitted(),
            _ => TargetError::NoProcess { pid },
        })?;
        let waiting = of_servers(roots, pid, |socket| held.contains(&socket.inode));
        if waiting.is_empty() {
            let paths = unix_listeners(roots, pid, &held);
            return Err(match paths.is_empty() {
                true => TargetError::NoPort { pid, name },
                false => TargetError::UnixOnly { pid, name, paths },
            });
        }
        Ok(Self {
            pid,
            name: format!("pid {pid} ({name})"),
            namespace,
            processes,
            cgroup: None,
            waiting,
            chosen_by_kernel: ephemeral_ports(roots),
        })
    }

    /// The server that listens on `port`, in any network namespace.
    ///
    /// # Errors
    /// [`TargetError`]: none does, several do, or the listener cannot be seen.
    pub fn of_port(
        roots: &Roots,
        port: u16,
        transport: Option<Transport>,
    ) -> Result<Self, TargetError> {
        let wanted = || WantedServer(Some(port), transport).to_string();
        let mut found = Vec::new();
        let mut listened = false;
        for (namespace, seen_by) in namespaces(roots) {
            let sockets = of_servers(roots, seen_by, |socket| {
                is_wanted(socket, Some(port), transport)
            });
            listened |= !sockets.is_empty();
            let servers = apart(roots, sockets).into_iter();
            found.extend(servers.map(|listeners| (namespace, listeners)));
        }
        if found.len() > 1 {
            let names = found.iter().map(|(_, server)| server.name(roots));
            return Err(TargetError::SeveralServers {
                wanted: wanted(),
                servers: names.collect(),
            });
        }
        let Some((namespace, server)) = found.pop() else {
            return Err(match listened {
                true => TargetError::UnknownListener { wanted: wanted() },
                false => TargetError::NobodyListens { wanted: wanted() },
            });
        };
        let pid = server.processes[0];
        Ok(Self {
            pid,
            name: format!("pid {pid} ({})", comm(roots, pid)),
            namespace,
            processes: server.processes,
            cgroup: None,
            waiting: server.sockets,
            chosen_by_kernel: ephemeral_ports(roots),
        })
    }

    /// The processes of a control group and of those below it.
    ///
    /// # Errors
    /// [`TargetError`]: there is no such group, it is empty, or its processes do not listen.
    pub fn of_cgroup(roots: &Roots, path: &Path) -> Result<Self, TargetError> {
        let shown = path.display().to_string();
        let Some(cgroup) = Cgroup::find(roots, path) else {
            return Err(TargetError::NoCgroup { path: shown });
        };
        let processes = cgroup.processes();
        let held = all_held(roots, &processes).unwrap_or_default();
        // take the first that listens, else report the first reason why none does
        let mut first_error = None;
        for &pid in &processes {
            let error = match Self::of_process(roots, pid) {
                Ok(target) => {
                    let waiting = of_servers(roots, pid, |socket| held.contains(&socket.inode));
                    if !waiting.is_empty() {
                        return Ok(Self {
                            name: format!("control group {shown}"),
                            waiting,
                            processes,
                            cgroup: Some(cgroup),
                            ..target
                        });
                    }
                    // what listens came from it, and is in another group
                    let name = comm(roots, pid);
                    TargetError::NoPort { pid, name }
                }
                Err(error) => error,
            };
            first_error = first_error.or(Some(error));
        }
        Err(first_error.unwrap_or(TargetError::EmptyCgroup { path: shown }))
    }

    /// The ports on which it listens, each once.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let mut addresses: BTreeMap<(u16, Transport), BTreeSet<IpAddr>> = BTreeMap::new();
        for socket in &self.waiting {
            let key = (socket.port, socket.transport);
            addresses.entry(key).or_default().insert(socket.address);
        }
        let one = |((port, transport), addresses): (_, BTreeSet<IpAddr>)| Endpoint {
            port,
            transport,
            addresses: addresses.into_iter().collect(),
        };
        addresses.into_iter().map(one).collect()
    }

    /// The port that is meant: the one asked for, or the only one there is.
    ///
    /// # Errors
    /// [`TargetError`] when that is none or several.
    pub fn endpoint(
        &self,
        port: Option<u16>,
        transport: Option<Transport>,
    ) -> Result<Endpoint, TargetError> {
        let all = self.endpoints();
        let wanted = |one: &&Endpoint| {
            port.is_none_or(|port| one.port == port)
                && transport.is_none_or(|transport| one.transport == transport)
        };
        let mut chosen: Vec<Endpoint> = all.iter().filter(wanted).cloned().collect();
        if port.is_none() {
            chosen = likely(chosen, &all, &self.chosen_by_kernel);
        }
        let name = || self.name.clone();
        match (chosen.len(), chosen.pop()) {
            (1, Some(endpoint)) => Ok(endpoint),
            (2, Some(last)) if chosen.iter().all(|one| one.port == last.port) => {
                Err(TargetError::BothTransports {
                    name: name(),
                    port: last.port,
                })
            }
            (_, Some(last)) => {
                chosen.push(last);
                Err(TargetError::SeveralPorts {
                    name: name(),
                    endpoints: chosen,
                })
            }
            (_, None) => Err(TargetError::OtherPort {
                name: name(),
                wanted: WantedServer(port, transport).to_string(),
                endpoints: all,
            }),
        }
    }

    /// The whole server behind one of its ports: also those processes that have the sockets of the ones asked for, or
    /// come from the same process. Others that share the port by sockets of their own (SO_REUSEPORT) are named apart.
    ///
    /// # Errors
    /// [`TargetError::NoProcess`] when it has ended.
    pub fn server(&self, roots: &Roots, endpoint: Endpoint) -> Result<Server, TargetError> {
        let at_port = of_servers(roots, self.pid, |socket| {
            is_wanted(socket, Some(endpoint.port), Some(endpoint.transport))
        });
        let (own, others): (Vec<_>, Vec<_>) =
            (at_port.into_iter()).partition(|socket| endpoint.addresses.contains(&socket.address));
        let taken: BTreeSet<IpAddr> = others.iter().map(|socket| socket.address).collect();
        let inodes: BTreeSet<u64> = own.iter().map(|socket| socket.inode).collect();
        let mut processes: BTreeSet<u32> = self.processes.iter().copied().collect();
        // another namespace may have a socket with the port, but not with the inode
        let sharers = serving(holders(roots, &inodes));
        let (own, others) = own_and_others(roots, &self.processes, &sharers);
        processes.extend(own);
        let processes: Vec<u32> = processes
            .into_iter()
            .filter(|&pid| !threads(roots, pid).is_empty())
            .collect();
        if processes.is_empty() {
            return Err(TargetError::NoProcess { pid: self.pid });
        }
        let mut served_ports = served_ports(roots, &processes);
        served_ports.remove(&endpoint.port);
        Ok(Server {
            pid: self.pid,
            comm: comm(roots, self.pid),
            name: self.name.clone(),
            namespace: self.namespace,
            has_connected_datagrams: endpoint.transport == Transport::Udp
                && has_connected(roots, self.pid, endpoint.port),
            endpoint,
            taken_addresses: taken.into_iter().collect(),
            others,
            served_ports: served_ports.into_iter().collect(),
            cpus: cpus_of(roots, &processes),
            processes,
            cgroup: self.cgroup.clone(),
        })
    }
}

/// Checks that process numbers here are those that BPF programs see.
///
/// # Errors
/// [`TargetError::PidNamespace`].
pub fn ensure_first_pid_namespace(roots: &Roots) -> Result<(), TargetError> {
    match fs::read_link(roots.proc.join("self/ns/pid")) {
        Ok(link) if link.as_os_str() != FIRST_PID_NAMESPACE => Err(TargetError::PidNamespace),
        _ => Ok(()),
    }
}

/// The CPUs on which any thread of these processes may run, and which are online.
fn cpus_of(roots: &Roots, processes: &[u32]) -> CpuSet {
    let tasks = processes.iter().flat_map(|pid| {
        let task = format!("{pid}/task");
        let threads = numbers_in(&roots.proc.join(&task)).into_iter();
        threads.map(move |tid| format!("{task}/{tid}"))
    });
    let allowed: CpuSet = tasks
        .filter_map(|thread| {
            status(roots, thread, "Cpus_allowed_list")?
                .parse::<CpuSet>()
                .ok()
        })
        .flat_map(|cpus| cpus.iter().collect::<Vec<_>>())
        .collect();
    match cpus::online(roots) {
        Some(online) if allowed.is_empty() => online,
        Some(online) => allowed.intersection(&online),
        None => allowed,
    }
}

/// The waiting sockets in the network namespace of a process for which `is_its` holds.
fn of_servers(
    roots: &Roots,
    pid: u32,
    is_its: impl Fn(&WaitingSocket) -> bool,
) -> Vec<WaitingSocket> {
    waiting(roots, pid).into_iter().filter(is_its).collect()
}

/// Leaves out datagram sockets on a port that the kernel may have chosen, unless nothing else is
/// left: a client's socket looks the same. With a TCP port of the same number among `all` it is the
/// server's.
fn likely(
    wanted: Vec<Endpoint>,
    all: &[Endpoint],
    chosen_by_kernel: &RangeInclusive<u16>,
) -> Vec<Endpoint> {
    let is_likely = |one: &&Endpoint| {
        let tcp = |other: &Endpoint| other.transport == Transport::Tcp && other.port == one.port;
        !chosen_by_kernel.contains(&one.port) || all.iter().any(tcp)
    };
    let likely: Vec<Endpoint> = wanted.iter().filter(is_likely).cloned().collect();
    if likely.is_empty() { wanted } else { likely }
}

/// The ports that the kernel gives to clients, in our network namespace; others nearly
/// always have the same.
fn ephemeral_ports(roots: &Roots) -> RangeInclusive<u16> {
    /// Where the kernel does not say (`Documentation/networking/ip-sysctl.rst`).
    const USUAL: RangeInclusive<u16> = 32_768..=60_999;
    let text = read_optional(&roots.proc.join("sys/net/ipv4/ip_local_port_range"));
    text.and_then(|text| {
        let mut fields = text.split_ascii_whitespace();
        Some(fields.next()?.parse().ok()?..=fields.next()?.parse().ok()?)
    })
    .unwrap_or(USUAL)
}

fn is_wanted(socket: &WaitingSocket, port: Option<u16>, transport: Option<Transport>) -> bool {
    port.is_none_or(|port| socket.port == port)
        && transport.is_none_or(|transport| socket.transport == transport)
}

/// Leaves out process 1, which holds sockets for services that it starts later, unless it is
/// the only one.
fn serving(processes: Vec<u32>) -> Vec<u32> {
    let others: Vec<u32> = processes.iter().copied().filter(|&pid| pid != 1).collect();
    if others.is_empty() { processes } else { others }
}

/// The sockets that any of these processes has open.
fn all_held(roots: &Roots, processes: &[u32]) -> io::Result<BTreeSet<u64>> {
    let mut all = BTreeSet::new();
    let mut refused = Err(io::Error::from(io::ErrorKind::NotFound));
    for &pid in processes {
        match held_by(roots, pid) {
            Ok(held) => {
                all.extend(held);
                refused = Ok(());
            }
            // a child that may not be inspected does not hide its parent's sockets, and one that has ended
            // does not hide that its parent may not be inspected
            Err(error) if matches!(&refused, Err(e) if e.kind() == io::ErrorKind::NotFound) => {
                refused = Err(error);
            }
            Err(_) => {}
        }
    }
    refused.map(|()| all)
}

/// The name of a process, as `ps` shows it.
pub fn comm(roots: &Roots, pid: u32) -> String {
    Stat::of(roots, pid).map_or_else(|| "?".to_owned(), |stat| stat.comm)
}

#[cfg(test)]
mod tests;
