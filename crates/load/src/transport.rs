//! Sockets: bytes out, bytes in, and nothing about what they mean.

pub(crate) mod descriptors;
pub(crate) mod poll;
pub mod stream;
pub mod udp;

use taillab_model::{Monotonic, Nanos};

use crate::stamps::KernelStamps;

/// Connections that never block.
pub trait Sockets {
    /// Number of connections.
    fn connections(&self) -> usize;

    /// Sleeps until something has arrived, at most for `at_most`; a transport that cannot
    /// sleep returns at once.
    fn wait(&mut self, at_most: Nanos) {
        let _ = at_most;
    }

    /// Which stamps the kernel takes.
    fn stamps(&self) -> KernelStamps {
        KernelStamps::NONE
    }

    /// When the device handed over what was received last (of a stream, its last packet), if
    /// the kernel stamps it.
    #[inline]
    fn stamp(&self) -> Option<Monotonic> {
        None
    }
}

/// Connections that carry whole datagrams.
pub trait DatagramTransport: Sockets {
    /// The client's port of a connection.
    fn port(&self, connection: usize) -> u16;

    /// Hands one datagram to the kernel.
    ///
    /// # Errors
    /// [`NotSent`] when the kernel did not take it.
    fn send(&mut self, connection: usize, datagram: &[u8]) -> Result<(), NotSent>;

    /// Looks once, without waiting, for a datagram.
    fn receive(&mut self) -> Receipt<'_>;

    /// Throws away what has arrived, refusals included, and begins to count what is
    /// sent anew.
    fn discard(&mut self);

    /// Takes the kernel's stamp of a datagram that has left, if there is one. Looks
    /// once, without waiting.
    fn departure(&mut self) -> Option<Departure> {
        None
    }
}

/// A datagram that was handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The connection it left by.
    pub connection: usize,
    /// Which datagram of this connection it was, counted from 0 since the last
    /// [`DatagramTransport::discard`].
    pub number: usize,
    /// When the device took it.
    pub at: Monotonic,
}

/// The kernel did not take a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The server's host says that nothing listens there.
    Refused,
    /// Anything else: no buffer space, no route, interface down.
    Failed,
}

/// What one look at the connections found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt<'a> {
    /// Nothing there.
    Nothing,
    /// One datagram.
    Datagram {
        /// The connection it came by.
        connection: usize,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// The server's host says that nothing listens there.
    Refused,
}
