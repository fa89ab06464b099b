//! One client for any transport.

use taillab_model::{Monotonic, Nanos};

use super::{
    Client, DatagramClient, Habits, Handed, Keys, Received, Released, Sending, StreamClient, Traits,
};
use crate::protocol::{Codec, Planned, Planner};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;
use crate::transport::stream::StreamSockets;
use crate::transport::udp::UdpSockets;
use crate::wrong_answer::WrongAnswer;
use crate::{Endpoint, LoadError};

/// A client whose transport is chosen at run time; each request costs a predicted branch.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per thread, and a box would cost an indirection for each request"
)]
pub enum AnyClient {
    /// Over UDP.
    Datagrams(DatagramClient),
    /// Over TCP or a Unix stream socket.
    Streams(StreamClient),
}

impl AnyClient {
    /// Opens `connections` connections in the calling thread's network namespace, with the
    /// kernel's `stamps` that the transport supports: only UDP has stamps of sends.
    ///
    /// # Errors
    /// As [`UdpSockets::connect`] and [`StreamSockets::connect`];
    /// [`LoadError::WrongTransport`] when the endpoint and the codec do not fit together.
    pub fn connect(
        server: &Endpoint,
        connections: usize,
        codec: Codec,
        stamps: KernelStamps,
    ) -> Result<Self, LoadError> {
        match (server, codec) {
            (Endpoint::Udp(address), Codec::Datagrams(protocol)) => {
                let sockets = UdpSockets::connect(*address, connections, stamps)?;
                Ok(Self::Datagrams(DatagramClient::new(sockets, protocol)))
            }
            (Endpoint::Tcp(_) | Endpoint::Unix(_), Codec::Streams(protocol)) => {
                let sockets = StreamSockets::connect(server, connections, stamps)?;
                Ok(Self::Streams(StreamClient::new(sockets, protocol)))
            }
            _ => Err(LoadError::WrongTransport {
                server: server.clone(),
            }),
        }
    }

    /// The same client whose requests use its connections in this way; without it, as [`Habits::POOL`] says. Only
    /// before its first request.
    #[must_use]
    pub fn with(self, habits: Habits) -> Self {
        match self {
            Self::Datagrams(client) => Self::Datagrams(client.with(habits)),
            Self::Streams(client) => Self::Streams(client.with(habits)),
        }
    }
}

/// The same call on whichever client it is.
macro_rules! either {
    ($any:expr, $client:ident => $call:expr) => {
        match $any {
            AnyClient::Datagrams($client) => $call,
            AnyClient::Streams($client) => $call,
        }
    };
}

impl Client for AnyClient {
    fn traits(&self) -> Traits {
        either!(self, client => client.traits())
    }

    fn planner(&self) -> &dyn Planner {
        either!(self, client => client.planner())
    }

    fn wrong_answer(&self) -> Option<&WrongAnswer> {
        either!(self, client => client.wrong_answer())
    }

    fn begin(&mut self, requests: usize, sending: Sending) {
        either!(self, client => client.begin(requests, sending));
    }

    fn keys(&mut self) -> Keys {
        either!(self, client => client.keys())
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<Handed, NotSent> {
        either!(self, client => client.send(what))
    }

    #[inline]
    fn send_waiting(&mut self, wanted: impl Fn(usize, Monotonic) -> bool) -> Option<Released> {
        either!(self, client => client.send_waiting(wanted))
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> Received {
        either!(self, client => client.receive(outstanding))
    }

    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        either!(self, client => client.tend(until_next));
    }

    fn wait(&mut self, at_most: Nanos) {
        either!(self, client => client.wait(at_most));
    }

    #[inline]
    fn kernel_received(&self) -> Option<Monotonic> {
        either!(self, client => client.kernel_received())
    }

    #[inline]
    fn kernel_sent(&mut self) -> Option<(usize, Monotonic)> {
        either!(self, client => client.kernel_sent())
    }
}
