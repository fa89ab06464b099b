//! The servers to which a server has connections of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use taillab_model::{Transport, UpstreamServer};

use super::sockets::{held_by, lines};
use super::{all_held, comm};
use crate::process::numbers_in;
use crate::roots::Roots;

/// The largest number that is told.
const MOST: usize = 64;

/// An end of a connection.
type Socket = (IpAddr, u16);

/// The servers to which these processes have TCP connections that they opened themselves, those with the most
/// connections first; none where their sockets cannot be read.
pub fn upstreams(roots: &Roots, processes: &[u32]) -> Vec<UpstreamServer> {
    let (Some(&pid), Ok(held)) = (processes.first(), all_held(roots, processes)) else {
        return Vec::new();
    };
    let lines = lines(roots, pid, Transport::Tcp);
    let own = lines.iter().filter(|line| held.contains(&line.inode));
    let waiting = own.clone().filter_map(|line| line.waiting(Transport::Tcp));
    let served: BTreeSet<u16> = waiting.map(|socket| socket.port).collect();
    let opened: Vec<(Socket, Socket)> = own
        .filter(|line| line.is_connected() && !served.contains(&line.port))
        .map(|line| {
            let own_end = (line.address, line.port);
            (own_end, (line.peer_address, line.peer_port))
        })
        .collect();
    if opened.is_empty() {
        return Vec::new();
    }
    // the other ends of connections within this machine
    let ends = lines.iter().filter(|line| line.inode != 0).map(|line| {
        let ends = (
            (line.address, line.port),
            (line.peer_address, line.peer_port),
        );
        (ends, line.inode)
    });
    let ends: BTreeMap<(Socket, Socket), u64> = ends.collect();
    let mut found: BTreeMap<Socket, (u32, Option<u64>)> = BTreeMap::new();
    for (own_end, peer) in opened {
        let other_end = ends.get(&(peer, own_end)).copied();
        // it talks to itself
        if other_end.is_some_and(|inode| held.contains(&inode)) {
            continue;
        }
        let (connections, inode) = found.entry(peer).or_default();
        *connections += 1;
        *inode = inode.or(other_end);
    }
    let local: BTreeSet<u64> = found.values().filter_map(|(_, inode)| *inode).collect();
    let programs = programs(roots, &local);
    let mut servers: Vec<UpstreamServer> = (found.into_iter())
        .map(|((address, port), (connections, inode))| UpstreamServer {
            address,
            port,
            program: inode
                .and_then(|inode| programs.get(&inode).cloned())
                .unwrap_or_default(),
            connections,
        })
        .collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.connections));
    servers.truncate(MOST);
    servers
}

/// The names of the programs that have these sockets open, by their inodes.
fn programs(roots: &Roots, inodes: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut programs = BTreeMap::new();
    if inodes.is_empty() {
        return programs;
    }
    for pid in numbers_in(&roots.proc) {
        for inode in held_by(roots, pid).unwrap_or_default().intersection(inodes) {
            programs.entry(*inode).or_insert_with(|| comm(roots, pid));
        }
    }
    programs
}
