//! One client for any transport.

use taillab_model::summary::Closing;
use taillab_model::{Monotonic, Nanos};

use super::{
    Client, DatagramClient, EachClient, Habits, Keys, ReceiveOutcome, ReleasedRequest, SendOutcome,
    Sending, StreamClient, Traits,
};
use crate::protocol::{Codec, Planned, Planner};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;
use crate::transport::stream::{Ports, StreamSockets};
use crate::transport::udp::UdpSockets;
use crate::wrong_answer::WrongAnswer;
use crate::{Endpoint, LoadError};

/// A client whose transport is chosen at run time; each request costs a predicted branch.
pub enum AnyClient {
    /// Over UDP.
    Datagrams(DatagramClient),
    /// Over TCP or a Unix stream socket.
    Streams(StreamClient),
    /// The same with a connection for each request.
    Each(EachClient),
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

    /// A client that opens a connection for each request, at most `connections` at once, from the calling thread's
    /// network namespace. `rate_per_s` says how many a second all such clients of this host will open; `None`: as many as
    /// the server takes. To see that the server is there, one is opened and closed now.
    ///
    /// # Errors
    /// As [`Self::connect`]; [`LoadError::WrongTransport`] also for datagrams, which have no connections.
    pub fn connect_each(
        server: &Endpoint,
        connections: usize,
        codec: Codec,
        stamps: KernelStamps,
        rate_per_s: Option<f64>,
    ) -> Result<Self, LoadError> {
        let Codec::Streams(protocol) = codec else {
            return Err(LoadError::WrongTransport {
                server: server.clone(),
            });
        };
        drop(StreamSockets::connect(server, 1, KernelStamps::NONE)?);
        let own = match Ports::to(server) {
            Some(ports) => ports.closing(rate_per_s),
            None => Closing::Client,
        };
        let resets = own == Closing::Reset;
        let sockets = StreamSockets::one_by_one(server, connections, stamps, resets)?;
        let closing = match protocol.lets_server_close() {
            true => Closing::Server,
            false => own,
        };
        Ok(Self::Each(EachClient::new(sockets, protocol, closing)))
    }

    /// The same client whose requests use its connections in this way; without it, as [`Habits::POOL`] says. Only
    /// before its first request.
    #[must_use]
    pub fn with(self, habits: Habits) -> Self {
        match self {
            Self::Datagrams(client) => Self::Datagrams(client.with(habits)),
            Self::Streams(client) => Self::Streams(client.with(habits)),
            // each of its requests has a connection of its own
            Self::Each(client) => Self::Each(client),
        }
    }
}

/// The same call on whichever client it is.
macro_rules! either {
    ($any:expr, $client:ident => $call:expr) => {
        match $any {
            AnyClient::Datagrams($client) => $call,
            AnyClient::Streams($client) => $call,
            AnyClient::Each($client) => $call,
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

    fn be_patient(&mut self, patience: Nanos) {
        either!(self, client => client.be_patient(patience));
    }

    fn begin(&mut self, requests: usize, sending: Sending) {
        either!(self, client => client.begin(requests, sending));
    }

    fn keys(&mut self) -> Keys {
        either!(self, client => client.keys())
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<SendOutcome, NotSent> {
        either!(self, client => client.send(what))
    }

    #[inline]
    fn send_waiting(
        &mut self,
        wanted: impl Fn(usize, Monotonic) -> bool,
    ) -> Option<ReleasedRequest> {
        either!(self, client => client.send_waiting(wanted))
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> ReceiveOutcome {
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
