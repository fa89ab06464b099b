//! Sockets: they carry bytes and know nothing of their meaning.

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

    /// Sleeps until something has arrived, at most `at_most`. A transport that cannot
    /// sleep returns at once.
    fn wait(&mut self, at_most: Nanos) {
        let _ = at_most;
    }

    /// The stamps that the kernel takes.
    fn stamps(&self) -> KernelStamps {
        KernelStamps::NONE
    }

    /// The kernel's stamp of what was received last (of a stream, the last packet), if there is
    /// one.
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

    /// Discards what has arrived, including refusals. What is sent next has number 0 on its
    /// connection.
    fn discard(&mut self);

    /// Takes the kernel's stamp of a datagram that has left, if there is one, without waiting.
    fn departure(&mut self) -> Option<Departure> {
        None
    }
}

/// A datagram that was passed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The connection that sent it.
    pub connection: usize,
    /// Its number on this connection, counted from 0 since the last
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

/// The result of one look at the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt<'a> {
    /// Nothing has arrived.
    Nothing,
    /// One datagram.
    Datagram {
        /// The connection that it came on.
        connection: usize,
        /// The payload.
        bytes: &'a [u8],
    },
    /// The server's host says that nothing listens there.
    Refused,
}
