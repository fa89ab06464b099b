//! memcached: gets and sets in any of its three dialects, on a stream or in datagrams.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ascii`] | `get`, `set` |
//! | [`binary`] | the binary protocol |
//! | [`meta`] | `mg`, `ms`; memcached 1.6 |
//! | `stream` | any of them on a stream |
//! | [`udp`] | any of them behind the frame header of a datagram |
//!
//! Each dialect prepares its requests, reads an answer on a stream and the body of an
//! answer's datagram. Sources: memcached, `doc/protocol.txt` and `doc/protocol-binary.txt`.

pub mod ascii;
pub mod binary;
mod dialect;
pub mod meta;
mod stream;
pub mod udp;

use super::{Asks, Protocol, Question};

pub use dialect::{Dialect, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use stream::MemcachedStream;
pub use udp::MemcachedUdp;

/// The text protocol in the table of protocols.
pub const ASCII: Protocol = Protocol {
    name: "memcached",
    scheme: "memcached",
    label: "memcached-ascii",
    default_port: 11211,
    asks: Asks::Store,
    stream: |w| {
        Ok(Box::new(MemcachedStream::new(
            Dialect::Ascii,
            w.store.clone(),
        )?))
    },
    datagrams: Some(|w| {
        Ok(Box::new(MemcachedUdp::new(
            Dialect::Ascii,
            w.store.clone(),
        )?))
    }),
    question: |_, datagrams| Question {
        bytes: if datagrams {
            b"\0\x01\0\0\0\x01\0\0version\r\n".to_vec()
        } else {
            b"version\r\n".to_vec()
        },
        answer: b"VERSION",
    },
};

/// The binary protocol in the table of protocols.
pub const BINARY: Protocol = Protocol {
    scheme: "memcached-binary",
    label: "memcached-binary",
    stream: |w| {
        Ok(Box::new(MemcachedStream::new(
            Dialect::Binary,
            w.store.clone(),
        )?))
    },
    datagrams: Some(|w| {
        Ok(Box::new(MemcachedUdp::new(
            Dialect::Binary,
            w.store.clone(),
        )?))
    }),
    ..ASCII
};

/// The meta commands in the table of protocols.
pub const META: Protocol = Protocol {
    scheme: "memcached-meta",
    label: "memcached-meta",
    stream: |w| {
        Ok(Box::new(MemcachedStream::new(
            Dialect::Meta,
            w.store.clone(),
        )?))
    },
    datagrams: Some(|w| Ok(Box::new(MemcachedUdp::new(Dialect::Meta, w.store.clone())?))),
    ..ASCII
};
