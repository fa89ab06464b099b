//! The key of a TCP request is the sequence number that the server's kernel has.

use crate::support;
use crate::support::streams;

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

use streams::{Server, client, request, serve};
use support::run;
use taillab_load::NoHooks;
use taillab_model::{Nanos, SentKey};

/// Whether this process may ask for sequence numbers: CAP_NET_ADMIN, bit 12 (capabilities(7)).
fn is_privileged() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap() >> 12 & 1 == 1
}

/// The sequence number after the last byte that a socket has received (`rcv_nxt`).
fn received_up_to(stream: &TcpStream) -> u32 {
    let fd = stream.as_raw_fd();
    let set = |option, value: libc::c_int| {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the pointer is to a live c_int of that size, and the socket is open.
        let result = unsafe {
            libc::setsockopt(
                fd,
                libc::IPPROTO_TCP,
                option,
                (&raw const value).cast(),
                size,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    // linux/tcp.h: on, the receive queue, off without a window probe
    set(libc::TCP_REPAIR, 1);
    set(libc::TCP_REPAIR_QUEUE, 1);
    let mut value = 0_u32;
    let mut size = size_of::<u32>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `size` is the first one's size.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_QUEUE_SEQ,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    set(libc::TCP_REPAIR, -1);
    value
}

#[test]
fn keys_are_what_the_servers_kernel_counts() {
    if !is_privileged() {
        let server = Server::start(|_, stream| serve(stream));
        let result = run(
            &mut client(&server.endpoint(), 3),
            Nanos::from_secs(60),
            &mut NoHooks,
        );
        assert!(result.record.iter().all(|e| e.key.is_none()));
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    let server = Server::start(move |_, mut stream| {
        let tell = tell.lock().unwrap().clone();
        let port = stream.peer_addr().unwrap().port();
        while let Some(request) = request(&mut stream) {
            let tag = u32::from_be_bytes([request[0], request[1], request[2], request[3]]);
            let id = received_up_to(&stream) as u16;
            tell.send((tag, SentKey { port, id })).unwrap();
            stream.write_all(&request).unwrap();
        }
    });
    // Enough connections that each request finds an idle one: then this request is the last thing
    // that the server has received on its connection.
    let mut client = client(&server.endpoint(), 300);
    let mut before = 0;
    for _ in 0..2 {
        let result = run(&mut client, Nanos::from_secs(60), &mut NoHooks);
        let n = result.record.iter().len();
        let mut seen: Vec<_> = told.iter().take(n).collect();
        seen.sort_unstable_by_key(|&(tag, _)| tag);
        for (k, (tag, key)) in seen.into_iter().enumerate() {
            assert_eq!(tag as usize, before + k);
            assert_eq!(result.record.get(k).unwrap().key, Some(key));
        }
        before += n;
    }
}
