//! Protocols: what requests contain and what responses mean.
//!
//! A protocol is one module of this folder and one row of [`PROTOCOLS`]. The row contains everything
//! that the rest of the program needs to know about the protocol.

mod codec;
pub mod echo;
pub mod http;
pub mod keys;
pub mod memcached;
pub mod redis;
mod row;
mod scan;
pub mod store;
mod workload;

pub use codec::{
    Body, DatagramProtocol, Decoded, MAX_DATAGRAM_BYTES, Malformed, MessageSizes, Planned, Planner,
    Response, StreamProtocol,
};
pub use row::{Ask, Codec, Protocol, Question};
pub use workload::{EchoWorkload, Resource, StoreWorkload, Workload};

/// The protocols of the generator. Several rows with one name are dialects of one protocol,
/// the usual one first.
pub static PROTOCOLS: [Protocol; 6] = [
    echo::PROTOCOL,
    memcached::ASCII,
    memcached::BINARY,
    memcached::META,
    http::PROTOCOL,
    redis::PROTOCOL,
];

impl Protocol {
    /// The protocol with this name, in its usual dialect.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROTOCOLS.iter().find(|protocol| protocol.name == name)
    }

    /// The names of all protocols.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        names.dedup();
        names
    }

    /// The names of the protocols that use this part of a workload, for a sentence:
    /// `memcached and redis`.
    pub fn names_of(ask: Ask) -> String {
        let of = |name: &&str| Self::named(name).is_some_and(|protocol| protocol.asks(ask));
        let names: Vec<_> = Self::names().into_iter().filter(of).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, before)) => format!("{} and {last}", before.join(", ")),
            None => String::new(),
        }
    }

    /// The protocol with this scheme, in lower case and without its transport.
    pub(crate) fn of_scheme(scheme: &str) -> Option<&'static Self> {
        PROTOCOLS
            .iter()
            .find(|protocol| protocol.scheme == scheme || protocol.label == scheme)
    }

    /// The same protocol in another of its dialects, e.g. `binary`.
    pub(crate) fn in_dialect(&self, dialect: &str) -> Option<&'static Self> {
        PROTOCOLS
            .iter()
            .find(|protocol| protocol.name == self.name && protocol.dialect() == Some(dialect))
    }
}
