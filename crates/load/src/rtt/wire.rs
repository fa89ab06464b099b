//! The interface between the engine and the ways in which messages travel.

use taillab_model::rtt::XdpAttachment;

use super::error::RttError;

/// Carries messages between the client and its peer over numbered connections.
pub(super) trait Wire {
    /// Sends a whole message.
    ///
    /// # Errors
    /// When the connection is gone or cannot carry the message.
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError>;

    /// Waits, for a bounded time and in the wire's own way, until a message has arrived.
    ///
    /// # Errors
    /// When a connection is gone.
    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError>;

    /// Looks once for a message, for a caller that must not wait.
    ///
    /// # Errors
    /// When a connection is gone.
    fn look(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        self.receive()
    }

    /// The client's ports, one for each connection; empty if there are none.
    fn ports(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Checks after the last message that the server has what was sent, if that was not checked
    /// before.
    ///
    /// # Errors
    /// When the server has something else.
    fn finish(&mut self) -> Result<(), RttError> {
        Ok(())
    }

    /// Why its times do not measure the protocol, if they do not.
    fn functional_only(&self) -> Option<&'static str> {
        None
    }

    /// Where the kernel takes the packets of AF_XDP, if it is that.
    fn xdp_attachment(&self) -> Option<XdpAttachment> {
        None
    }
}

/// The result of one wait.
#[derive(Debug)]
pub(super) enum WaitOutcome<'a> {
    /// No whole message.
    Nothing,
    /// A message.
    Message {
        /// The connection that it came on.
        connection: usize,
        /// The whole message.
        bytes: &'a [u8],
    },
}
