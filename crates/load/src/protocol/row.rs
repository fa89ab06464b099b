//! The row of a protocol: all that the rest of the program needs to know of it.

use super::codec::{DatagramProtocol, Planner, StreamProtocol};
use super::workload::Workload;
use crate::LoadError;

/// All that the rest of the program needs to know of a protocol.
#[derive(Debug)]
pub struct Protocol {
    /// Its usual name, which is also an experiment's `server.protocol`.
    pub name: &'static str,
    /// Its scheme in a target, without the transport.
    pub scheme: &'static str,
    /// Its name in results, which is also a scheme.
    pub label: &'static str,
    /// The usual port of its servers.
    pub default_port: u16,
    /// The part of a [`Workload`] that it uses.
    pub asks: Asks,
    /// Its codec for streams.
    pub(super) stream: Prepare<dyn StreamProtocol>,
    /// Its codec for datagrams; `None` if it does not run over UDP.
    pub(super) datagrams: Option<Prepare<dyn DatagramProtocol>>,
    /// See [`Protocol::question`].
    pub(super) question: fn(&Workload, bool) -> Question,
}

/// Makes a codec for a workload.
type Prepare<C> = fn(&Workload) -> Result<Box<C>, LoadError>;

impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.label == other.label
    }
}

impl Eq for Protocol {}

/// The part of a [`Workload`] that a protocol uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// [`Workload::store`]
    Store,
    /// [`Workload::http`]
    Http,
    /// [`Workload::echo`]
    Echo,
}

/// A request that a server answers once it is ready, whatever data it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The request.
    pub bytes: Vec<u8>,
    /// A part of the answer; empty if any answer is right.
    pub answer: &'static [u8],
}

/// A codec with the transport that it is for.
pub enum Codec {
    /// For UDP.
    Datagrams(Box<dyn DatagramProtocol>),
    /// For TCP and Unix stream sockets.
    Streams(Box<dyn StreamProtocol>),
}

impl Codec {
    /// Plans its requests.
    pub fn planner(&self) -> &dyn Planner {
        match self {
            Self::Datagrams(codec) => &**codec,
            Self::Streams(codec) => &**codec,
        }
    }
}

impl Protocol {
    /// The name of its dialect, if it has several.
    pub fn dialect(&self) -> Option<&'static str> {
        self.label.strip_prefix(self.name)?.strip_prefix('-')
    }

    /// Whether it runs over UDP.
    pub fn over_udp(&self) -> bool {
        self.datagrams.is_some()
    }

    /// Its codec for a workload, over UDP if it has one for that.
    ///
    /// # Errors
    /// The part of the workload that the protocol cannot send.
    pub fn codec(&self, workload: &Workload, over_udp: bool) -> Result<Codec, LoadError> {
        match self.datagrams {
            Some(datagrams) if over_udp => datagrams(workload).map(Codec::Datagrams),
            _ => (self.stream)(workload).map(Codec::Streams),
        }
    }

    /// A request that shows whether a server is ready.
    pub fn question(&self, workload: &Workload, over_udp: bool) -> Question {
        (self.question)(workload, over_udp)
    }
}
