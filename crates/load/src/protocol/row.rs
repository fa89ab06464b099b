//! The row of a protocol: everything that the rest of the program needs to know about it.

use super::codec::{DatagramProtocol, Planner, StreamProtocol};
use super::workload::Workload;
use crate::LoadError;

/// Everything that the rest of the program needs to know about a protocol.
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
    /// Its clients usually send the next request on a connection before the last one is answered.
    pub pipelines: bool,
    /// The parts of a [`Workload`] that it uses.
    pub(super) asks: &'static [Ask],
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

/// A part of a [`Workload`] that a protocol may use. Options for other parts are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// [`Workload::store`]
    Keys,
    /// The path of [`Workload::resource`], which is a part of the target.
    Path,
    /// The headers of [`Workload::resource`].
    Headers,
    /// The length of a request: of [`Workload::echo`], and of [`Workload::resource`].
    RequestBytes,
    /// The length of a response: of [`Workload::echo`].
    ResponseBytes,
}

/// A request that a server answers once it is ready, whatever data it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The request.
    pub bytes: Vec<u8>,
    /// A part of the answer; empty if any answer is right.
    pub answer: &'static [u8],
}

/// A codec and the kind of transport that it is for.
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

    /// Whether it uses this part of a workload.
    pub fn asks(&self, ask: Ask) -> bool {
        self.asks.contains(&ask)
    }

    /// Whether it runs over UDP.
    pub fn over_udp(&self) -> bool {
        self.datagrams.is_some()
    }

    /// Its codec for a workload: for datagrams if `over_udp` and it has one, else for streams.
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
