//! Sockets: bytes out, bytes in, and nothing about what they mean.

pub(crate) mod descriptors;
pub mod stream;
pub mod udp;

/// Connections that carry whole datagrams and never block.
pub trait Transport {
    /// Number of connections.
    fn connections(&self) -> usize;

    /// The client's port of a connection.
    fn port(&self, connection: usize) -> u16;

    /// Hands one datagram to the kernel.
    ///
    /// # Errors
    /// [`NotSent`] when the kernel did not take it.
    fn send(&mut self, connection: usize, datagram: &[u8]) -> Result<(), NotSent>;

    /// Looks once, without waiting, for a datagram.
    fn receive(&mut self) -> Receipt<'_>;

    /// Throws away what has arrived, refusals included.
    fn discard(&mut self);
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
