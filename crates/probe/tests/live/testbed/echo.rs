//! Servers that read and write in unusual ways; each sends back what comes, and ends when
//! that is empty.

use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};

const BYTES: usize = 2048;

/// A message, with everything that the kernel needs for it; it must not move.
struct Message {
    header: libc::msghdr,
    vector: libc::iovec,
    peer: libc::sockaddr_storage,
    buffer: [u8; BYTES],
    socket: RawFd,
}

impl Message {
    fn of(socket: &impl AsFd) -> Box<Self> {
        // SAFETY: plain C structures and bytes, all of which may be zero.
        let mut message: Box<Self> = unsafe { Box::new(MaybeUninit::zeroed().assume_init()) };
        message.socket = socket.as_fd().as_raw_fd();
        message.vector.iov_base = message.buffer.as_mut_ptr().cast();
        message.header.msg_iov = &raw mut message.vector;
        message.header.msg_iovlen = 1;
        message.header.msg_name = (&raw mut message.peer).cast();
        message.prepare_read();
        message
    }

    fn prepare_read(&mut self) {
        self.vector.iov_len = BYTES;
        self.header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
    }

    fn prepare_write(&mut self, bytes: usize) {
        self.vector.iov_len = bytes;
    }
}

/// Reads all datagrams that are there in one call, and answers them in one.
pub(crate) fn in_batches(socket: UdpSocket) {
    let mut messages: Vec<_> = (0..16).map(|_| Message::of(&socket)).collect();
    loop {
        let mut headers: Vec<libc::mmsghdr> = messages
            .iter_mut()
            .map(|message| {
                message.prepare_read();
                libc::mmsghdr {
                    msg_hdr: message.header,
                    msg_len: 0,
                }
            })
            .collect();
        let (first, most) = (headers.as_mut_ptr(), headers.len() as u32);
        let (fd, wait) = (socket.as_raw_fd(), libc::MSG_WAITFORONE);
        // SAFETY: as many headers, whose buffers and addresses live in `messages`.
        let n = unsafe { libc::recvmmsg(fd, first, most, wait, std::ptr::null_mut()) };
        let read = &mut headers[..usize::try_from(n).expect("datagrams")];
        for (header, message) in read.iter_mut().zip(&mut messages) {
            if header.msg_len == 0 {
                return;
            }
            message.prepare_write(header.msg_len as usize);
        }
        // SAFETY: as above; the kernel wrote the first `n`.
        let sent = unsafe { libc::sendmmsg(fd, first, n as u32, 0) };
        assert_eq!(sent, n);
    }
}

/// Reads datagrams one by one as long as there are any, and then answers them one by one.
pub(crate) fn all_then_all(socket: UdpSocket) {
    let mut read: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    let mut buffer = [0; BYTES];
    loop {
        socket.set_nonblocking(!read.is_empty()).expect("a flag");
        match socket.recv_from(&mut buffer) {
            Ok((0, _)) => return,
            Ok((n, from)) => read.push((from, buffer[..n].to_vec())),
            Err(_) => {
                for (from, bytes) in read.drain(..) {
                    socket.send_to(&bytes, from).expect("the client is there");
                }
            }
        }
    }
}

/// The same, but never sleeps: it is looking when a datagram is queued.
pub(crate) fn spinning(socket: UdpSocket) {
    let mut read: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    let mut buffer = [0; BYTES];
    socket.set_nonblocking(true).expect("a flag");
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((0, _)) => return,
            Ok((n, from)) => read.push((from, buffer[..n].to_vec())),
            Err(_) => {
                for (from, bytes) in read.drain(..) {
                    socket.send_to(&bytes, from).expect("the client is there");
                }
            }
        }
    }
}

/// Reads a datagram, answers it.
pub(crate) fn one_by_one(socket: UdpSocket) {
    let mut buffer = [0; BYTES];
    while let Ok((n @ 1.., from)) = socket.recv_from(&mut buffer) {
        socket
            .send_to(&buffer[..n], from)
            .expect("the client is there");
    }
}

/// By io_uring, with several reads of the socket under way.
pub(crate) fn by_ring(socket: UdpSocket) {
    ring(
        (0..4).map(|_| Message::of(&socket)).collect(),
        Flags::empty(),
    );
}

/// The same, with a kernel thread for each operation.
pub(crate) fn by_ring_of_threads(socket: UdpSocket) {
    ring((0..4).map(|_| Message::of(&socket)).collect(), Flags::ASYNC);
}

/// Streams by io_uring.
pub(crate) fn streams_by_ring(streams: Vec<TcpStream>) {
    ring(streams.iter().map(Message::of).collect(), Flags::empty());
}

/// The same, with a kernel thread for each operation.
pub(crate) fn streams_by_ring_of_threads(streams: Vec<TcpStream>) {
    ring(streams.iter().map(Message::of).collect(), Flags::ASYNC);
}

#[expect(
    clippy::vec_box,
    reason = "a message points to itself, so it must stay where it is"
)]
fn ring(mut messages: Vec<Box<Message>>, flags: Flags) {
    let mut ring = IoUring::new(64).expect("the kernel has io_uring, and allows it");
    let push = |ring: &mut IoUring, operation: Entry| {
        // SAFETY: what it points to is in a message, which lives until the ring is gone.
        unsafe { ring.submission().push(&operation) }.expect("there is room");
    };
    let read = |message: &mut Message, place: usize| {
        message.prepare_read();
        let operation = opcode::RecvMsg::new(types::Fd(message.socket), &raw mut message.header);
        operation.build().flags(flags).user_data(2 * place as u64)
    };
    for (place, message) in messages.iter_mut().enumerate() {
        push(&mut ring, read(message, place));
    }
    loop {
        ring.submit_and_wait(1).expect("an operation ends");
        let done: Vec<_> = ring.completion().collect();
        for done in done {
            let Ok(bytes @ 1..) = usize::try_from(done.result()) else {
                // a reset, if the client closed first
                drop(ring);
                return;
            };
            let place = done.user_data() as usize / 2;
            let message = &mut *messages[place];
            let was_read = done.user_data() % 2 == 0;
            let next = if was_read {
                message.prepare_write(bytes);
                let operation =
                    opcode::SendMsg::new(types::Fd(message.socket), &raw const message.header);
                operation
                    .build()
                    .flags(flags)
                    .user_data(done.user_data() + 1)
            } else {
                read(message, place)
            };
            push(&mut ring, next);
        }
    }
}
