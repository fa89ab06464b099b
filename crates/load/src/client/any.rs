//! One client for whatever the command line names.

use taillab_model::{Monotonic, Nanos};

use super::{Client, DatagramClient, Keys, Received, StreamClient};
use crate::protocol::{DatagramProtocol, MessageSizes, Planned, StreamProtocol};
use crate::stamps::KernelStamps;
use crate::transport::NotSent;
use crate::{Endpoint, LoadError};

/// A protocol chosen while the program runs.
pub enum AnyProtocol {
    /// For UDP.
    Datagrams(Box<dyn DatagramProtocol + Send>),
    /// For TCP and Unix stream sockets.
    Streams(Box<dyn StreamProtocol + Send>),
}

/// A client whose transport and protocol are chosen while the program runs. It costs a
/// predicted branch and an indirect call more per request.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per thread, and a box would be followed for each request"
)]
pub enum AnyClient {
    /// Over UDP.
    Datagrams(DatagramClient<Box<dyn DatagramProtocol + Send>>),
    /// Over TCP or a Unix stream socket.
    Streams(StreamClient<Box<dyn StreamProtocol + Send>>),
}

impl AnyClient {
    /// Opens `connections` connections in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`DatagramClient::connect`] and [`StreamClient::connect`];
    /// [`LoadError::WrongTransport`] when endpoint and protocol do not fit.
    pub fn connect(
        server: &Endpoint,
        connections: usize,
        protocol: AnyProtocol,
    ) -> Result<Self, LoadError> {
        Self::connect_stamped(server, connections, protocol, KernelStamps::NONE)
    }

    /// As [`StreamClient::hold_back`]; datagrams wait for nobody and need no reserve.
    pub fn hold_back(&mut self, reserve: usize) {
        if let Self::Streams(client) = self {
            client.hold_back(reserve);
        }
    }

    /// The same with the kernel's stamps, as far as the transport has them: of what is
    /// sent, only UDP.
    ///
    /// # Errors
    /// As [`AnyClient::connect`].
    pub fn connect_stamped(
        server: &Endpoint,
        connections: usize,
        protocol: AnyProtocol,
        stamps: KernelStamps,
    ) -> Result<Self, LoadError> {
        match (server, protocol) {
            (Endpoint::Udp(address), AnyProtocol::Datagrams(protocol)) => {
                DatagramClient::connect_stamped(*address, connections, protocol, stamps)
                    .map(Self::Datagrams)
            }
            (Endpoint::Tcp(_) | Endpoint::Unix(_), AnyProtocol::Streams(protocol)) => {
                StreamClient::connect_stamped(server, connections, protocol, stamps)
                    .map(Self::Streams)
            }
            _ => Err(LoadError::WrongTransport {
                server: server.clone(),
            }),
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
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        either!(self, client => client.plan(n, seed))
    }

    fn to_store(&self) -> Vec<Planned> {
        either!(self, client => client.to_store())
    }

    fn sizes(&self) -> MessageSizes {
        either!(self, client => client.sizes())
    }

    fn connections(&self) -> usize {
        either!(self, client => client.connections())
    }

    fn begin(&mut self, requests: usize) {
        either!(self, client => client.begin(requests));
    }

    fn key_period(&self) -> usize {
        either!(self, client => client.key_period())
    }

    fn is_lossy(&self) -> bool {
        either!(self, client => client.is_lossy())
    }

    fn keys(&mut self) -> Keys {
        either!(self, client => client.keys())
    }

    #[inline]
    fn send(&mut self, what: Planned) -> Result<(), NotSent> {
        either!(self, client => client.send(what))
    }

    #[inline]
    fn receive(&mut self, outstanding: impl Fn(usize) -> Option<Planned>) -> Received {
        either!(self, client => client.receive(outstanding))
    }

    #[inline]
    fn tend(&mut self, until_next: Nanos) {
        either!(self, client => client.tend(until_next));
    }

    fn takes_idle_connection(&self) -> bool {
        either!(self, client => client.takes_idle_connection())
    }

    fn wait(&mut self, at_most: Nanos) {
        either!(self, client => client.wait(at_most));
    }

    fn kernel_stamps(&self) -> KernelStamps {
        either!(self, client => client.kernel_stamps())
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
