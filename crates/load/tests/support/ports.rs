//! Ports for servers that need a fixed port number.

#![allow(
    unreachable_pub,
    reason = "test binaries of two crates include this file"
)]

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// A port that nobody uses over TCP or UDP and that nobody gets by chance: it is below the range from
/// which the kernel picks ports. No other test of this process gets it, and another process starts its
/// search elsewhere.
pub fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const MANY: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| {
        // the host may be without IPv6
        ["0.0.0.0", "::"].iter().all(|address| {
            let taken = |error: std::io::Error| error.kind() == ErrorKind::AddrInUse;
            !TcpListener::bind((*address, port)).is_err_and(taken)
                && !UdpSocket::bind((*address, port)).is_err_and(taken)
        })
    };
    let from = std::process::id().wrapping_mul(97);
    let numbers = (0..MANY).map(|_| from.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut ports = numbers.map(|number| (FIRST + number % MANY) as u16);
    ports.find(|port| is_free(*port)).expect("a free port")
}
