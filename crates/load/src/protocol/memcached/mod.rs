//! memcached: gets and sets in any of its three dialects, on a stream or in datagrams.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ascii`] | `get`, `set` |
//! | [`binary`] | the binary protocol |
//! | [`meta`] | `mg`, `ms`; memcached 1.6 |
//! | [`udp`] | any of them behind the frame header of a datagram |
//!
//! Each dialect prepares its requests, reads an answer on a stream and the body of an
//! answer's datagram. Sources: memcached, `doc/protocol.txt` and `doc/protocol-binary.txt`.

pub mod ascii;
pub mod binary;
pub mod meta;
pub mod udp;

use super::store::{Limits, Messages, Store, StoreWorkload, Stored};
use super::{Asks, Decoded, Planned, Protocol, Question, StreamProtocol};
use crate::LoadError;

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

/// memcached's limit (`KEY_MAX_LENGTH`).
pub const MAX_KEY_BYTES: usize = 250;

/// The largest value on a stream; the server's own limit (`-I`) is 1 MiB unless told
/// otherwise.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// How memcached is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `get`, `set`: the text protocol.
    Ascii,
    /// The binary protocol. It names the request in its answer (opaque).
    Binary,
    /// `mg`, `ms`: the meta commands, with opaque.
    Meta,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 3] = [Self::Ascii, Self::Binary, Self::Meta];

    fn messages(self, workload: &StoreWorkload) -> Messages {
        let (key_bytes, value_bytes) = (workload.key_bytes, workload.value_bytes);
        match self {
            Self::Ascii => ascii::messages(key_bytes, value_bytes),
            Self::Binary => binary::messages(key_bytes, value_bytes),
            Self::Meta => meta::messages(key_bytes, value_bytes),
        }
    }
}

/// memcached on a stream.
#[derive(Clone, Debug)]
pub struct MemcachedStream {
    dialect: Dialect,
    store: Store,
}

impl MemcachedStream {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub fn new(dialect: Dialect, workload: StoreWorkload) -> Result<Self, LoadError> {
        let limits = Limits {
            key_bytes: MAX_KEY_BYTES,
            value_bytes: MAX_VALUE_BYTES,
        };
        let store = Store::new(workload, limits, |w| dialect.messages(w))?;
        Ok(Self { dialect, store })
    }
}

impl Stored for MemcachedStream {
    fn store(&self) -> &Store {
        &self.store
    }
}

impl StreamProtocol for MemcachedStream {
    #[inline]
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.store.request(what, tag));
    }

    #[inline]
    fn decode(&self, what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let asked = self.store.asked(what, tag);
        match self.dialect {
            Dialect::Ascii => ascii::decode(&asked, bytes),
            Dialect::Binary => binary::decode(&asked, bytes),
            Dialect::Meta => meta::decode(&asked, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::Operation;

    use super::*;
    use crate::protocol::Planner;
    use crate::protocol::keys::KeyDistribution;

    #[test]
    fn workloads_that_cannot_be_sent_are_refused() {
        let with = |change: &dyn Fn(&mut StoreWorkload)| {
            let mut w = StoreWorkload::default();
            change(&mut w);
            MemcachedStream::new(Dialect::Ascii, w)
        };
        assert!(with(&|_| {}).is_ok());
        assert!(with(&|w| w.keys = 0).is_err());
        assert!(with(&|w| w.key_bytes = 3).is_err());
        assert!(with(&|w| w.key_bytes = 251).is_err());
        assert!(with(&|w| w.get_share = 1.1).is_err());
        assert!(with(&|w| w.get_share = f64::NAN).is_err());
        assert!(with(&|w| w.distribution = KeyDistribution::Zipf(f64::NAN)).is_err());
        assert!(with(&|w| w.value_bytes = MAX_VALUE_BYTES + 1).is_err());
        assert!(with(&|w| w.value_bytes = 0).is_ok());
        assert!(with(&|w| (w.keys, w.key_bytes) = (1, 1)).is_ok());
        assert!(with(&|w| (w.keys, w.key_bytes) = (10_001, 4)).is_err());
    }

    #[test]
    fn the_plan_is_seeded_and_has_the_mix_wanted() {
        let m = MemcachedStream::new(Dialect::Ascii, StoreWorkload::default()).unwrap();
        let plan = m.plan(100_000, 1);
        assert_eq!(plan, m.plan(100_000, 1));
        assert_ne!(plan, m.plan(100_000, 2));
        let gets = plan
            .iter()
            .filter(|p| p.operation() == Operation::Get)
            .count();
        // five standard deviations of a binomial(100,000, 0.9)
        assert!((gets as f64 - 90_000.0).abs() < 5.0 * 94.9, "{gets}");
        let mut seen = vec![false; 10_000];
        for p in &plan {
            seen[p.key() as usize] = true;
        }
        assert!(seen.iter().filter(|&&s| s).count() > 9_990);
    }

    #[test]
    fn every_key_is_to_be_stored_once() {
        let m = MemcachedStream::new(
            Dialect::Ascii,
            StoreWorkload {
                keys: 3,
                ..StoreWorkload::default()
            },
        )
        .unwrap();
        let sets: Vec<_> = (0..3)
            .map(|key| Planned::new(Operation::Set, key))
            .collect();
        assert_eq!(m.to_store(), sets);
    }
}
