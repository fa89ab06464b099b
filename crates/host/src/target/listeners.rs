//! Which of the sockets on one port belong to one server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::sockets::{WaitingSocket, holders};
use super::{comm, serving};
use crate::roots::Roots;

/// A server's sockets on one port of a network namespace.
pub(super) struct Listeners {
    /// In ascending order, at least one.
    pub(super) processes: Vec<u32>,
    pub(super) sockets: Vec<WaitingSocket>,
}

impl Listeners {
    /// `nginx (pid 7) at 127.0.0.1`.
    pub(super) fn name(&self, roots: &Roots) -> String {
        let addresses: BTreeSet<IpAddr> =
            (self.sockets.iter()).map(|socket| socket.address).collect();
        let addresses: Vec<String> = (addresses.iter())
            .map(|address| match address.is_unspecified() {
                true => format!("all addresses ({address})"),
                false => address.to_string(),
            })
            .collect();
        let pid = self.processes[0];
        format!(
            "{} (pid {pid}) at {}",
            comm(roots, pid),
            addresses.join(" and ")
        )
    }

    /// Whether any process has a socket of both.
    fn shares_a_process(&self, other: &Self) -> bool {
        self.processes
            .iter()
            .any(|pid| other.processes.contains(pid))
    }
}

/// The servers behind the sockets on one port of a namespace: those at one address are one server, and so are those
/// of one process. Sockets of which no process can be seen are left out.
pub(super) fn apart(roots: &Roots, sockets: Vec<WaitingSocket>) -> Vec<Listeners> {
    let mut by_address: BTreeMap<IpAddr, Vec<WaitingSocket>> = BTreeMap::new();
    for socket in sockets {
        by_address.entry(socket.address).or_default().push(socket);
    }
    let mut servers: Vec<Listeners> = Vec::new();
    for sockets in by_address.into_values() {
        let inodes = sockets.iter().map(|socket| socket.inode).collect();
        let processes = serving(holders(roots, &inodes));
        if processes.is_empty() {
            continue;
        }
        let mut one = Listeners { processes, sockets };
        for same in servers
            .extract_if(.., |server| server.shares_a_process(&one))
            .collect::<Vec<_>>()
        {
            one.sockets.extend(same.sockets);
            one.processes.extend(same.processes);
        }
        one.processes.sort_unstable();
        one.processes.dedup();
        servers.push(one);
    }
    servers.sort_by_key(|server| server.processes[0]);
    servers
}
