//! What the engine asks of a way of the messages.

use super::error::RttError;

/// Carries messages between the client and its peer over numbered connections.
pub(super) trait Wire {
    /// Sends a message whole.
    ///
    /// # Errors
    /// When the connection cannot carry it or is gone.
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError>;

    /// Waits in the wire's own way until a message has arrived, for a bounded time.
    ///
    /// # Errors
    /// When a connection is gone.
    fn receive(&mut self) -> Result<Received<'_>, RttError>;

    /// Looks once for a message, where waiting would make the next send late.
    ///
    /// # Errors
    /// When a connection is gone.
    fn look(&mut self) -> Result<Received<'_>, RttError> {
        self.receive()
    }

    /// The client's ports, one for each connection; none where there is no port.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Checks after the last message what could not be checked before.
    ///
    /// # Errors
    /// When something else has arrived than was sent.
    fn finish(&mut self) -> Result<(), RttError> {
        Ok(())
    }

    /// Why its times are no measure of the protocol, where they are none.
    fn functional_only(&self) -> Option<&'static str> {
        None
    }
}

/// What one wait brought.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// Nothing whole.
    Nothing,
    /// A message.
    Message {
        /// The connection it came by.
        connection: usize,
        /// All of it.
        bytes: &'a [u8],
    },
}
