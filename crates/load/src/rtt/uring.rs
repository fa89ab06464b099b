//! Sockets through io_uring: a send and a receive are queued and submitted by one call, which
//! sleeps until there is a completion.

use std::os::fd::AsRawFd;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use taillab_model::Nanos;

use super::error::RttError;
use super::kinds::Mode;
use super::socket::{LONGEST_SLEEP, Socket};
use super::wire::{WaitOutcome, Wire};
use crate::endpoint::Endpoint;

/// The lowest bit of a completion's user data: set for a receive, clear for a send. The other bits
/// are the connection.
const RECEIVED: u64 = 1;

/// One connection.
struct Port {
    socket: Socket,
    output: Box<[u8]>,
    sent: usize,
    /// A send is queued or with the kernel.
    sends: bool,
    /// A receive is queued or with the kernel.
    reads: bool,
}

/// Sockets of one thread on one ring.
pub(super) struct Ring {
    ring: IoUring,
    ports: Vec<Port>,
    /// Entries queued or with the kernel.
    in_flight: usize,
    /// The connection whose message was delivered last, until its next receive is queued.
    taken: Option<usize>,
    sleep: Timespec,
}

impl Ring {
    /// Connects the sockets and makes the ring.
    ///
    /// # Errors
    /// As [`Socket::connect`], and [`RttError::IoUring`].
    pub(super) fn connect(
        endpoints: &[Endpoint],
        size: usize,
        timeout: Nanos,
    ) -> Result<Self, RttError> {
        let entries = (2 * endpoints.len()).next_power_of_two() as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .build(entries)
            .map_err(|source| RttError::IoUring { source })?;
        let port = |endpoint: &Endpoint| {
            // a blocking socket: the ring waits for it without an extra thread
            let socket = Socket::connect(endpoint, Mode::Blocking, size, timeout)?;
            Ok(Port {
                socket,
                output: vec![1; size].into_boxed_slice(),
                sent: 0,
                sends: false,
                reads: false,
            })
        };
        let ports = (endpoints.iter())
            .map(port)
            .collect::<Result<Vec<_>, RttError>>()?;
        let sleep = timeout.min(LONGEST_SLEEP).get();
        Ok(Self {
            ring,
            ports,
            in_flight: 0,
            taken: None,
            sleep: Timespec::new()
                .sec(sleep / 1_000_000_000)
                .nsec((sleep % 1_000_000_000) as u32),
        })
    }

    /// Queues the rest of the message, or of the answer.
    fn queue(&mut self, connection: usize, what: u64) -> Result<(), RttError> {
        let port = &mut self.ports[connection];
        let descriptor = Fd(port.socket.descriptor.as_raw_fd());
        let data = (connection as u64) << 1 | what;
        let entry = if what == RECEIVED {
            port.reads = true;
            let rest = &mut port.socket.buffer[port.socket.have..];
            opcode::Recv::new(descriptor, rest.as_mut_ptr(), rest.len() as u32).build()
        } else {
            port.sends = true;
            let rest = &port.output[port.sent..];
            opcode::Send::new(descriptor, rest.as_ptr(), rest.len() as u32)
                .flags(libc::MSG_NOSIGNAL)
                .build()
        };
        // SAFETY: descriptor and buffer belong to the port, which lives as long as the ring; the
        // buffer is not moved, and not touched until the completion: by `sends` and `reads`, a port
        // has at most one entry of each kind with the kernel.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(data)) };
        pushed.map_err(|_| RttError::IoUring {
            source: std::io::Error::other("the submission queue is full"),
        })?;
        self.in_flight += 1;
        Ok(())
    }

    /// Takes one completion, if there is one; the inner value is the connection whose message is now
    /// whole.
    fn complete(&mut self) -> Result<Option<Option<usize>>, RttError> {
        let Some(entry) = self.ring.completion().next() else {
            return Ok(None);
        };
        self.in_flight -= 1;
        let (data, result) = (entry.user_data(), entry.result());
        let connection = (data >> 1) as usize;
        let port = &mut self.ports[connection];
        let what = data & RECEIVED;
        match what {
            RECEIVED => port.reads = false,
            _ => port.sends = false,
        }
        let bytes = match result {
            0 if what == RECEIVED && port.socket.is_stream => {
                return Err(port.socket.gone());
            }
            n if n >= 0 => n as usize,
            error => match Errno::from_raw_os_error(-error) {
                // a receive timeout of the socket, or a signal: queued again
                Errno::AGAIN | Errno::INTR => 0,
                why => return Err(port.socket.ended(why)),
            },
        };
        if what != RECEIVED {
            port.sent += bytes;
            if port.sent < port.output.len() {
                self.queue(connection, 0)?;
            }
            return Ok(Some(None));
        }
        port.socket.have += bytes;
        let whole = match port.socket.is_stream {
            true => port.socket.have == port.socket.buffer.len(),
            false => bytes > 0,
        };
        if whole {
            return Ok(Some(Some(connection)));
        }
        self.queue(connection, RECEIVED)?;
        Ok(Some(None))
    }
}

impl Drop for Ring {
    /// Waits until the kernel no longer uses the buffers.
    fn drop(&mut self) {
        for port in &self.ports {
            // ends a waiting receive; fails if the connection is gone
            let _ = shutdown(&port.socket.descriptor, Shutdown::Both);
        }
        while self.in_flight > 0 {
            if self.ring.completion().next().is_some() {
                self.in_flight -= 1;
            } else if self.ring.submit_and_wait(1).is_err() {
                std::thread::yield_now();
            }
        }
    }
}

impl Wire for Ring {
    fn ports(&self) -> Vec<u16> {
        let ports = self.ports.iter();
        ports.filter_map(|port| port.socket.port()).collect()
    }

    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        let port = &mut self.ports[connection];
        // The kernel still reads the message before, which was given up. This one is lost too, and
        // counted as such.
        if port.sends {
            return Ok(());
        }
        self.taken = self.taken.filter(|taken| *taken != connection);
        port.output.copy_from_slice(message);
        port.sent = 0;
        let reads = port.reads;
        self.queue(connection, 0)?;
        if !reads {
            self.ports[connection].socket.have = 0;
            self.queue(connection, RECEIVED)?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        // the last message was not the answer, which is still to come, or it was the connection's last
        if let Some(connection) = self.taken.take() {
            self.queue(connection, RECEIVED)?;
        }
        let mut slept = false;
        loop {
            match self.complete()? {
                Some(Some(connection)) => {
                    self.taken = Some(connection);
                    return Ok(WaitOutcome::Message {
                        connection,
                        bytes: self.ports[connection].socket.message(),
                    });
                }
                Some(None) => {}
                None if slept => return Ok(WaitOutcome::Nothing),
                None => {
                    let args = SubmitArgs::new().timespec(&self.sleep);
                    match self.ring.submitter().submit_with_args(1, &args) {
                        Ok(_) => {}
                        Err(error) if error.raw_os_error() == Some(libc::ETIME) => slept = true,
                        Err(error) if error.raw_os_error() == Some(libc::EINTR) => slept = true,
                        Err(source) => {
                            return Err(RttError::Kernel {
                                call: "io_uring_enter",
                                source,
                            });
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_message_that_the_kernel_still_reads_is_not_overwritten() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Udp(server.local_addr().unwrap());
        let mut ring = match Ring::connect(&[endpoint], 16, Nanos::from_millis(1)) {
            Ok(ring) => ring,
            // some kernels and containers forbid it
            Err(RttError::IoUring { source }) => {
                eprintln!(
                    "SKIPPED a_message_that_the_kernel_still_reads_is_not_overwritten: {source}"
                );
                return;
            }
            Err(error) => panic!("{error}"),
        };
        // nothing is submitted before the first wait, so the first send cannot be over
        ring.send(0, &[1; 16]).unwrap();
        ring.send(0, &[2; 16]).unwrap();
        assert_eq!(ring.in_flight, 2);
        assert!(matches!(ring.receive().unwrap(), WaitOutcome::Nothing));
        ring.send(0, &[3; 16]).unwrap();
        assert!(matches!(ring.receive().unwrap(), WaitOutcome::Nothing));
        let arrived = || {
            let mut buffer = [0; 16];
            server.recv(&mut buffer).unwrap();
            buffer
        };
        assert_eq!([arrived(), arrived()], [[1; 16], [3; 16]]);
    }
}
