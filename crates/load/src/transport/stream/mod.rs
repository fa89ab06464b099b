//! Connections that carry bytes in order: TCP and Unix stream sockets.

mod opening;
mod ports;
mod sequence;
mod sockets;

use taillab_model::Nanos;

pub use ports::Ports;
pub use sockets::StreamSockets;

use super::{NotSent, Sockets};

/// Connections that carry bytes, may end, and are reopened.
///
/// A connection is up from the beginning, or from [`Event::Opened`], until
/// [`Event::Ended`] is reported or [`StreamTransport::abandon`] is called. Then calls of
/// [`StreamTransport::tend`] reopen it.
pub trait StreamTransport: Sockets {
    /// Where the packets of a connection that is up come from.
    fn origin(&self, connection: usize) -> Option<Origin>;

    /// Hands bytes to the kernel. If it does not take all of them at once, the rest
    /// is sent later: either all bytes are sent, or none.
    ///
    /// # Errors
    /// [`NotTaken`].
    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), NotTaken>;

    /// Looks once for bytes, first on the `expected` connection.
    fn receive(&mut self, expected: Option<usize>) -> Event;

    /// The bytes of the last [`Event::Bytes`].
    fn bytes(&self) -> &[u8];

    /// Notes that the server has answered on a connection. One that ends is then reopened at once, and otherwise
    /// later and later.
    fn serves(&mut self, connection: usize);

    /// Closes a connection that is up; it will be reopened.
    fn abandon(&mut self, connection: usize);

    /// Reopens closed connections, one in each call. Nothing is due for `until_next`.
    fn tend(&mut self, until_next: Nanos);
}

/// Connections that are opened one by one, each for one request.
///
/// They are closed at first. Opening one begins with [`DialTransport::dial`], and [`Event::Opened`] or
/// [`Event::NotOpened`] says how that ended. It is closed again when [`Event::Ended`] is reported or
/// [`StreamTransport::abandon`] is called.
pub trait DialTransport: StreamTransport {
    /// Begins to open a connection that is closed.
    ///
    /// # Errors
    /// [`NotSent`] where that fails at once.
    fn dial(&mut self, connection: usize) -> Result<(), NotSent>;
}

/// How the packets of a connection identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's port.
    pub port: u16,
    /// The TCP sequence number of the first byte sent; `None` where the kernel does not tell it.
    pub sequence: Option<u32>,
}

/// Why bytes were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The connection has ended. Bytes that came before can still be received; then
    /// [`Event::Ended`] follows.
    Ended,
    /// The server does not read, and no room is left.
    Full,
}

/// The result of one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing.
    Nothing,
    /// Bytes came on this connection: see [`StreamTransport::bytes`].
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
    /// A connection that was dialled cannot be opened.
    NotOpened {
        /// Its number.
        connection: usize,
        /// Why.
        why: NotSent,
    },
    /// No connection is up, and none can be opened.
    Refused,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closed it.
    Closed,
    /// The server's host reset it, or it failed in the network.
    Reset,
}
