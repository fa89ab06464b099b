//! Ports for servers that need a fixed port number.

#![allow(
    unreachable_pub,
    reason = "test binaries of two crates include this file"
)]

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that nobody uses over TCP or UDP and that nobody gets by chance: it is below the range from
/// which the kernel picks ports. No other test of this process gets it, and another process starts its
/// search elsewhere.
pub fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const MANY: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let taken = ports_in_use(&["tcp", "tcp6", "udp", "udp6"]);
    let from = std::process::id().wrapping_mul(97);
    let numbers = (0..MANY).map(|_| from.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut ports = numbers.map(|number| (FIRST + number % MANY) as u16);
    ports
        .find(|port| !taken.contains(port))
        .expect("a free port")
}

/// The ports of all sockets in these tables of the kernel. They are read, not tried: a process that another thread starts
/// meanwhile would have a copy of the socket that tries, and keep its port until it has become its program.
pub fn ports_in_use(tables: &[&str]) -> HashSet<u16> {
    // the host may be without IPv6
    let table = |name: &&str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
    let text: String = tables.iter().filter_map(table).collect();
    let local = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    // in the first line of each table there are words
    let ports =
        local.filter_map(|address| u16::from_str_radix(address.rsplit(':').next()?, 16).ok());
    ports.collect()
}
