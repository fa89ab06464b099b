//! Questions to another server, in the middle of a request.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU16;

use super::account::ThreadAccount;
use super::record::Recorder;

/// Where the other server listens.
pub(super) fn address(port: NonZeroU16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.get()))
}

/// A worker's connection to the other server, made with the first question: that server may start later than this one.
pub(super) struct UpstreamClient {
    port: NonZeroU16,
    connection: Option<TcpStream>,
}

impl UpstreamClient {
    pub(super) const fn new(port: NonZeroU16) -> Self {
        Self {
            port,
            connection: None,
        }
    }

    /// Asks with one byte and waits for one. A question without an answer is not recorded: the truth shows none.
    pub(super) fn ask(&mut self, recorder: &Recorder, account: &ThreadAccount) {
        let Ok(mut connection) = self.take_connection() else {
            return;
        };
        let from = crate::clock::now();
        let mut answered = false;
        let asleep = account.asleep_in(|| answered = exchange(&mut connection).is_ok());
        if answered {
            recorder.keep(from, from + asleep);
            self.connection = Some(connection);
        }
    }

    fn take_connection(&mut self) -> io::Result<TcpStream> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => {
                let made = TcpStream::connect(address(self.port))?;
                made.set_nodelay(true)?;
                Ok(made)
            }
        }
    }
}

fn exchange(connection: &mut TcpStream) -> io::Result<()> {
    connection.write_all(&[1])?;
    connection.read_exact(&mut [0])
}
