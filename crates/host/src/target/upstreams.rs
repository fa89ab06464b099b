//! The servers to which a server has connections of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use taillab_model::{Transport, UpstreamServer};

use super::sockets::{SocketLine, held_by, lines};
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
    let served = ports_served(&lines, &held);
    let own = lines.iter().filter(|line| held.contains(&line.inode));
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
            number: 0,
        })
        .collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.connections));
    servers.truncate(MOST);
    servers
}

/// The TCP ports on which these processes wait for clients; none where their sockets cannot be read.
pub(super) fn served_ports(roots: &Roots, processes: &[u32]) -> BTreeSet<u16> {
    match (processes.first(), all_held(roots, processes)) {
        (Some(&pid), Ok(held)) => ports_served(&lines(roots, pid, Transport::Tcp), &held),
        _ => BTreeSet::new(),
    }
}

/// The ports on which sockets with one of these inodes wait for clients.
fn ports_served(lines: &[SocketLine], held: &BTreeSet<u64>) -> BTreeSet<u16> {
    let own = lines.iter().filter(|line| held.contains(&line.inode));
    let waiting = own.filter_map(|line| line.waiting(Transport::Tcp));
    waiting.map(|socket| socket.port).collect()
}

/// A server that was asked: its number in events ([`UpstreamServer::number`]), and its address.
pub type UpstreamNumber = (u16, SocketAddr);

/// Adds the numbers of the servers that these processes were seen to ask, and those of them that are not known: their
/// connections may have been too short to be found.
pub fn add_asked(
    known: &mut Vec<UpstreamServer>,
    roots: &Roots,
    processes: &[u32],
    asked: &[UpstreamNumber],
) {
    let mut new = Vec::new();
    for &(number, address) in asked {
        let (address, port) = (address.ip(), address.port());
        let same = |server: &&mut UpstreamServer| (server.address, server.port) == (address, port);
        match known.iter_mut().find(same) {
            Some(server) => server.number = number,
            None => new.push(UpstreamServer {
                address,
                port,
                program: String::new(),
                connections: 0,
                number,
            }),
        }
    }
    name_local(&mut new, roots, processes);
    known.extend(new);
}

/// Names the programs of those servers that are in the network namespace of these processes.
fn name_local(servers: &mut [UpstreamServer], roots: &Roots, processes: &[u32]) {
    let (Some(&pid), false) = (processes.first(), servers.is_empty()) else {
        return;
    };
    let lines = lines(roots, pid, Transport::Tcp);
    let waiting: Vec<_> = (lines.iter())
        .filter_map(|line| line.waiting(Transport::Tcp))
        .collect();
    let listener = |server: &UpstreamServer| {
        let here = waiting.iter().filter(|socket| socket.port == server.port);
        let mut here = here.filter(|socket| {
            let is_here = || {
                let address = server.address;
                address.is_loopback() || lines.iter().any(|line| line.address == address)
            };
            socket.address == server.address || socket.address.is_unspecified() && is_here()
        });
        here.next().map(|socket| socket.inode)
    };
    let inodes: Vec<Option<u64>> = servers.iter().map(listener).collect();
    let programs = programs(roots, &inodes.iter().flatten().copied().collect());
    for (server, inode) in servers.iter_mut().zip(inodes) {
        let program = inode.and_then(|inode| programs.get(&inode));
        server.program = program.cloned().unwrap_or_default();
    }
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
