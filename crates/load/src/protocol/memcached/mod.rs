//! memcached: gets and sets in its three dialects, on a stream or in datagrams.
//!
//! | module | contents |
//! |---|---|
//! | [`ascii`] | `get`, `set` |
//! | [`binary`] | the binary protocol |
//! | [`meta`] | `mg`, `ms`; memcached 1.6 |
//! | `stream` | any of them on a stream |
//! | [`udp`] | any of them in datagrams, after a frame header |
//!
//! Each dialect prepares its requests and decodes responses, on a stream and in a datagram.
//! Sources: memcached, `doc/protocol.txt` and `doc/protocol-binary.txt`.

pub mod ascii;
pub mod binary;
mod dialect;
pub mod meta;
mod stream;
pub mod udp;

use super::{Ask, DatagramProtocol, Protocol, Question, StreamProtocol, Workload};
use crate::LoadError;

pub use dialect::{Dialect, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use stream::MemcachedStream;
pub use udp::MemcachedUdp;

fn on_stream(dialect: Dialect, w: &Workload) -> Result<Box<dyn StreamProtocol>, LoadError> {
    Ok(Box::new(MemcachedStream::new(dialect, w.store.clone())?))
}

fn over_udp(dialect: Dialect, w: &Workload) -> Result<Box<dyn DatagramProtocol>, LoadError> {
    Ok(Box::new(MemcachedUdp::new(dialect, w.store.clone())?))
}

/// The text protocol in the table of protocols.
pub const ASCII: Protocol = Protocol {
    name: "memcached",
    scheme: "memcached",
    label: "memcached-ascii",
    default_port: 11211,
    pipelines: true,
    asks: &[Ask::Keys],
    stream: |w| on_stream(Dialect::Ascii, w),
    datagrams: Some(|w| over_udp(Dialect::Ascii, w)),
    question: |_, datagrams| Question {
        bytes: match datagrams {
            true => b"\0\x01\0\0\0\x01\0\0version\r\n".to_vec(),
            false => b"version\r\n".to_vec(),
        },
        answer: b"VERSION",
    },
};

/// The binary protocol in the table of protocols.
pub const BINARY: Protocol = Protocol {
    scheme: "memcached-binary",
    label: "memcached-binary",
    stream: |w| on_stream(Dialect::Binary, w),
    datagrams: Some(|w| over_udp(Dialect::Binary, w)),
    ..ASCII
};

/// The meta commands in the table of protocols.
pub const META: Protocol = Protocol {
    scheme: "memcached-meta",
    label: "memcached-meta",
    stream: |w| on_stream(Dialect::Meta, w),
    datagrams: Some(|w| over_udp(Dialect::Meta, w)),
    ..ASCII
};
