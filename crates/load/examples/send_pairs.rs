//! How far apart two datagrams arrive that are sent together, each from its own socket, in several ways.
//!
//! The sender is on CPU 1, the receiver on CPU 0. The kernel stamps each datagram when its device hands it
//! over, still on the sender's CPU. Prints the median and the quartiles of the gap, and the median time of
//! the calls:
//!
//! ```text
//! sudo unshare -nm sh -c 'mount -t sysfs none /sys; ip link set lo up;
//!     echo 1 > /sys/class/net/lo/queues/rx-0/rps_cpus; target/release/examples/send_pairs [PAIRS]'
//! ```
//!
//! The second line has the receive work done on CPU 0, as `taillab run` does; without it, the sender's CPU
//! does it.
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, mem, ptr, thread};

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::thread::{CpuSet, sched_setaffinity};

const MESSAGE: [u8; 64] = [b'a'; 64];

/// Between two pairs, as at 20,000 requests per second.
const GAP: Duration = Duration::from_micros(50);

/// How two datagrams are sent.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// One call each.
    Apart,
    /// One call of io_uring for both.
    Together,
    /// One call of io_uring each.
    RingApart,
}

const WAYS: [(Way, &str); 3] = [
    (Way::Apart, "send, send"),
    (Way::Together, "io_uring, both in one call"),
    (Way::RingApart, "io_uring, one call each"),
];

fn main() {
    let pairs: usize = env::args().nth(1).map_or(2_000, |n| n.parse().unwrap());
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let (tell, stamps) = channel();
    // ends when the program does
    thread::spawn(move || {
        pin(0);
        turn_stamps_on(&server);
        while tell.send(received_ns(&server)).is_ok() {}
    });
    pin(1);
    let sockets = [(); 2].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        socket
    });
    let mut ring = IoUring::new(8).unwrap();
    // the kernel begins to stamp a moment after the first socket asked for it
    thread::sleep(Duration::from_millis(50));
    let mut found = WAYS.map(|_| Vec::with_capacity(pairs));
    for _ in 0..pairs {
        for ((way, _), found) in WAYS.iter().zip(&mut found) {
            wait(GAP);
            let from = Instant::now();
            send(*way, &sockets, &mut ring);
            let took = from.elapsed().as_nanos() as u64;
            let gap = gap_ns(&stamps);
            found.push((gap, took));
        }
    }
    for ((_, name), found) in WAYS.iter().zip(found) {
        print(name, found);
    }
}

fn print(name: &str, found: Vec<(u64, u64)>) {
    let (mut gaps, mut took): (Vec<u64>, Vec<u64>) = found.into_iter().unzip();
    gaps.sort_unstable();
    took.sort_unstable();
    let at = |sorted: &[u64], quarter: usize| sorted[sorted.len() * quarter / 4] as f64 / 1e3;
    println!(
        "{name:28} gap {:5.2} µs ({:.2} to {:.2}), calls {:5.2} µs",
        at(&gaps, 2),
        at(&gaps, 1),
        at(&gaps, 3),
        at(&took, 2)
    );
}

fn send(way: Way, sockets: &[UdpSocket; 2], ring: &mut IoUring) {
    match way {
        Way::Apart => sockets.iter().for_each(|socket| {
            socket.send(&MESSAGE).unwrap();
        }),
        Way::Together => submit(sockets, ring),
        Way::RingApart => sockets.chunks(1).for_each(|one| submit(one, ring)),
    }
}

/// Sends a message from each socket by one call.
fn submit(sockets: &[UdpSocket], ring: &mut IoUring) {
    for socket in sockets {
        let length = MESSAGE.len() as u32;
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), MESSAGE.as_ptr(), length).build();
        // SAFETY: the socket is open until the entry completes below, and the message is a constant.
        unsafe { ring.submission().push(&entry) }.unwrap();
    }
    ring.submit_and_wait(sockets.len()).unwrap();
    assert!(
        ring.completion()
            .all(|entry| entry.result() == MESSAGE.len() as i32)
    );
}

fn wait(length: Duration) {
    let from = Instant::now();
    while from.elapsed() < length {
        std::hint::spin_loop();
    }
}

/// The gap between the next two datagrams, whichever came first.
fn gap_ns(stamps: &Receiver<u64>) -> u64 {
    let [a, b] = [(); 2].map(|()| stamps.recv().unwrap());
    a.abs_diff(b)
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).unwrap();
}

fn turn_stamps_on(socket: &UdpSocket) {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open, and the option is an integer of the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            ptr::from_ref(&on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

/// Waits for a datagram and returns the kernel's stamp of it, in nanoseconds since 1970.
fn received_ns(socket: &UdpSocket) -> u64 {
    let mut message = [0_u8; 64];
    let mut control = [0_u64; 16];
    let mut vector = libc::iovec {
        iov_base: message.as_mut_ptr().cast(),
        iov_len: message.len(),
    };
    // SAFETY: for this C struct, all zeros mean: no address, no buffers, no control data.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to buffers of the lengths given, which live until the call returns.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    assert_eq!(length, MESSAGE.len() as isize);
    // SAFETY: the kernel has filled in the header and the control data.
    let stamp = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    assert!(!stamp.is_null(), "the datagram has no stamp");
    // SAFETY: the only control data that was asked for is a stamp, which is a timespec.
    let stamp: libc::timespec = unsafe {
        libc::CMSG_DATA(stamp)
            .cast::<libc::timespec>()
            .read_unaligned()
    };
    stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64
}
