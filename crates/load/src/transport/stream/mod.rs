//! Connections that carry bytes in order: TCP and Unix stream sockets.

mod opening;
mod sequence;
mod sockets;

use taillab_model::Nanos;

pub use sockets::StreamSockets;

use super::Sockets;

/// Connections that carry bytes, may end, and are opened again.
///
/// The life of a connection: it is up from the beginning or since [`Event::Opened`], until
/// [`Event::Ended`] is reported or [`StreamTransport::abandon`] is called. It is then
/// opened again in calls of [`StreamTransport::tend`].
pub trait StreamTransport: Sockets {
    /// Where the packets of a connection that is up come from.
    fn origin(&self, connection: usize) -> Option<Origin>;

    /// Hands bytes to the kernel, which need not take all of them at once: the rest
    /// follows by itself. Either all bytes will be sent, or none.
    ///
    /// # Errors
    /// [`NotTaken`].
    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), NotTaken>;

    /// Looks once for bytes, first on the connection where they are `expected`.
    fn receive(&mut self, expected: Option<usize>) -> Event;

    /// The bytes of the last [`Event::Bytes`].
    fn bytes(&self) -> &[u8];

    /// Closes a connection that is up, to open it again.
    fn abandon(&mut self, connection: usize);

    /// Opens what is closed, one connection a call, in a moment when nothing is due for
    /// `until_next`.
    fn tend(&mut self, until_next: Nanos);
}

/// The beginning of a connection as packets show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's port.
    pub port: u16,
    /// The TCP sequence number of the first byte sent.
    pub sequence: u32,
}

/// Why bytes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The connection has ended. What has come before may still be received, and then
    /// [`Event::Ended`] will be.
    Ended,
    /// The server does not read what is sent, and no room is left.
    Full,
}

/// What one look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    Nothing,
    /// Bytes came by this connection: see [`StreamTransport::bytes`].
    Bytes(usize),
    /// A connection ended.
    Ended {
        /// Its number.
        connection: usize,
        /// How it ended.
        ending: Ending,
    },
    /// A connection is up again.
    Opened(usize),
    /// No connection is up, and none can be opened.
    Refused,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closed it.
    Closed,
    /// The server's host reset it, or the network gave it up.
    Reset,
}
