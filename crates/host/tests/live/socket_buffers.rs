//! Receive buffers of another process's sockets, for real: needs root.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

use rustix::net::sockopt;
use taillab_host::{Roots, socket_buffers::set_receive_buffers};

#[test]
fn a_udp_socket_gets_the_buffer_and_no_other_does() {
    if !crate::common::live("a_udp_socket_gets_the_buffer_and_no_other_does") {
        return;
    }
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixDatagram::unbound().unwrap();
    let of_others = || {
        [
            sockopt::socket_recv_buffer_size(&stream).unwrap(),
            sockopt::socket_recv_buffer_size(&unix).unwrap(),
        ]
    };
    let before = of_others();
    let bytes = 3 << 20;
    let effective = set_receive_buffers(&Roots::default(), std::process::id(), bytes).unwrap();
    assert_eq!(effective, 2 * bytes as usize);
    assert_eq!(
        sockopt::socket_recv_buffer_size(&datagrams).unwrap(),
        effective
    );
    assert_eq!(of_others(), before);
}
