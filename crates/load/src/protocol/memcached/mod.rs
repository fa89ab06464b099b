//! memcached: gets and sets in any of its three dialects, on a stream or in datagrams.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ascii`] | `get`, `set` |
//! | [`binary`] | the binary protocol |
//! | [`meta`] | `mg`, `ms`; memcached 1.6 |
//! | [`udp`] | any of them behind the frame header of a datagram |
//!
//! Each dialect prepares its requests as templates, reads an answer on a stream and the
//! body of an answer's datagram. Sources: memcached, `doc/protocol.txt` and
//! `doc/protocol-binary.txt`.

pub mod ascii;
pub mod binary;
pub mod meta;
pub mod udp;

use taillab_model::Operation;

use super::keys::{self, KeyDistribution, KeySet};
use super::{Decoded, MessageSizes, Planned, StreamProtocol};
use crate::LoadError;

pub use udp::MemcachedUdp;

/// memcached's limit (`KEY_MAX_LENGTH`).
pub const MAX_KEY_BYTES: usize = 250;

/// The largest value on a stream; the server's own limit (`-I`) is 1 MiB unless told
/// otherwise.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// How memcached is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `get`, `set`: the text protocol.
    #[default]
    Ascii,
    /// The binary protocol. It names the request in its answer (opaque).
    Binary,
    /// `mg`, `ms`: the meta commands, with opaque.
    Meta,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ascii, Self::Binary, Self::Meta];
}

/// What the requests ask for, and in which dialect.
#[derive(Clone, Debug, PartialEq)]
pub struct MemcachedWorkload {
    /// How many keys there are.
    pub keys: u32,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Share of gets; the others are sets.
    pub get_share: f64,
    /// The language.
    pub dialect: Dialect,
    /// How popular each key is.
    pub distribution: KeyDistribution,
}

impl Default for MemcachedWorkload {
    /// The memcached workload of Tales of the Tail, section 3.1.
    fn default() -> Self {
        Self {
            keys: 10_000,
            key_bytes: 64,
            value_bytes: 1024,
            get_share: 0.9,
            dialect: Dialect::Ascii,
            distribution: KeyDistribution::Uniform,
        }
    }
}

impl MemcachedWorkload {
    /// Checks that the workload can be sent on a stream.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub fn validate(&self) -> Result<(), LoadError> {
        self.validate_keys()?;
        if self.value_bytes > MAX_VALUE_BYTES {
            return Err(LoadError::MessageSize {
                what: "a value",
                bytes: self.value_bytes,
                min: 0,
                max: MAX_VALUE_BYTES,
            });
        }
        Ok(())
    }

    /// Checks that the workload can be sent in datagrams.
    ///
    /// # Errors
    /// As [`MemcachedWorkload::validate`], and [`LoadError::ValueTooLarge`] when a set
    /// would not fit one datagram.
    pub fn validate_datagrams(&self) -> Result<(), LoadError> {
        self.validate_keys()?;
        let limit = self.datagram_value_limit();
        if self.value_bytes > limit {
            return Err(LoadError::ValueTooLarge {
                value_bytes: self.value_bytes,
                limit,
            });
        }
        Ok(())
    }

    /// The largest value that fits one datagram together with a key of this size.
    pub fn datagram_value_limit(&self) -> usize {
        // a size of four digits, which is what the largest one has
        let nothing = Template::set(self.dialect, self.key_bytes, 1000)
            .bytes
            .len()
            - 1000;
        udp::MAX_DATAGRAM_BYTES.saturating_sub(udp::FRAME_BYTES + nothing)
    }

    fn validate_keys(&self) -> Result<(), LoadError> {
        KeySet::validate(self.keys, self.key_bytes, MAX_KEY_BYTES)?;
        self.distribution.validate()?;
        keys::validate_get_share(self.get_share)
    }

    /// Keys and templates; the workload must be valid.
    fn prepare(self) -> Result<Prepared, LoadError> {
        Ok(Prepared {
            keys: KeySet::new(self.keys, self.key_bytes, MAX_KEY_BYTES)?,
            get: Template::get(self.dialect, self.key_bytes),
            set: Template::set(self.dialect, self.key_bytes, self.value_bytes),
            workload: self,
        })
    }
}

/// A request with room for its key and for its tag.
#[derive(Clone, Debug)]
struct Template {
    bytes: Vec<u8>,
    key_at: usize,
    tag: Tag,
}

/// Where and how a request carries its tag.
#[derive(Clone, Copy, Debug)]
enum Tag {
    /// Nowhere.
    None,
    /// Four bytes, big endian, at this place.
    Binary(usize),
    /// Eight hexadecimal digits, at this place.
    Hexadecimal(usize),
}

impl Template {
    fn get(dialect: Dialect, key_bytes: usize) -> Self {
        match dialect {
            Dialect::Ascii => ascii::get(key_bytes),
            Dialect::Binary => binary::get(key_bytes),
            Dialect::Meta => meta::get(key_bytes),
        }
    }

    fn set(dialect: Dialect, key_bytes: usize, value_bytes: usize) -> Self {
        match dialect {
            Dialect::Ascii => ascii::set(key_bytes, value_bytes),
            Dialect::Binary => binary::set(key_bytes, value_bytes),
            Dialect::Meta => meta::set(key_bytes, value_bytes),
        }
    }

    /// The same with `frame` before it.
    fn behind(self, frame: &[u8]) -> Self {
        let on = frame.len();
        Self {
            bytes: [frame, &self.bytes].concat(),
            key_at: self.key_at + on,
            tag: match self.tag {
                Tag::None => Tag::None,
                Tag::Binary(at) => Tag::Binary(at + on),
                Tag::Hexadecimal(at) => Tag::Hexadecimal(at + on),
            },
        }
    }

    #[inline]
    fn fill(&mut self, key: &[u8], tag: u32) -> &[u8] {
        self.bytes[self.key_at..][..key.len()].copy_from_slice(key);
        match self.tag {
            Tag::None => {}
            Tag::Binary(at) => self.bytes[at..][..4].copy_from_slice(&tag.to_be_bytes()),
            Tag::Hexadecimal(at) => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                for (n, digit) in self.bytes[at..][..8].iter_mut().enumerate() {
                    *digit = DIGITS[(tag >> (28 - 4 * n) & 15) as usize];
                }
            }
        }
        &self.bytes
    }
}

/// What an answer is compared with.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    operation: Operation,
    key: &'a [u8],
    value_bytes: usize,
    tag: u32,
}

/// Keys and templates of a workload.
#[derive(Clone, Debug)]
struct Prepared {
    workload: MemcachedWorkload,
    keys: KeySet,
    get: Template,
    set: Template,
}

impl Prepared {
    #[inline]
    fn request(&mut self, what: Planned, tag: u32) -> &mut Template {
        let template = match what.operation() {
            Operation::Set => &mut self.set,
            // nothing plans a call
            Operation::Get | Operation::Call => &mut self.get,
        };
        template.fill(self.keys.get(what.key()), tag);
        template
    }

    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        let w = &self.workload;
        keys::plan_store(w.keys, w.distribution, w.get_share, n, seed)
    }

    /// Those of the commoner operation.
    fn sizes(&self) -> MessageSizes {
        let w = &self.workload;
        let (hit, stored) = match w.dialect {
            Dialect::Ascii => ascii::answer_bytes(w.key_bytes, w.value_bytes),
            Dialect::Binary => binary::answer_bytes(w.value_bytes),
            Dialect::Meta => meta::answer_bytes(w.key_bytes, w.value_bytes),
        };
        let (request, response_bytes) = if w.get_share >= 0.5 {
            (&self.get, hit)
        } else {
            (&self.set, stored)
        };
        MessageSizes {
            request_bytes: request.bytes.len(),
            response_bytes,
        }
    }
}

/// memcached on a stream.
#[derive(Clone, Debug)]
pub struct MemcachedStream(Prepared);

impl MemcachedStream {
    /// Prepares the requests of a workload.
    ///
    /// # Errors
    /// As [`MemcachedWorkload::validate`].
    pub fn new(workload: MemcachedWorkload) -> Result<Self, LoadError> {
        workload.validate()?;
        Ok(Self(workload.prepare()?))
    }

    /// The workload that it was made for.
    pub fn workload(&self) -> &MemcachedWorkload {
        &self.0.workload
    }
}

impl StreamProtocol for MemcachedStream {
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        self.0.plan(n, seed)
    }

    #[inline]
    fn encode(&mut self, what: Planned, tag: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.request(what, tag).bytes);
    }

    #[inline]
    fn decode(&self, what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let asked = Asked {
            operation: what.operation(),
            key: self.0.keys.get(what.key()),
            value_bytes: self.0.workload.value_bytes,
            tag,
        };
        match self.0.workload.dialect {
            Dialect::Ascii => ascii::decode(&asked, bytes),
            Dialect::Binary => binary::decode(&asked, bytes),
            Dialect::Meta => meta::decode(&asked, bytes),
        }
    }

    fn sizes(&self) -> MessageSizes {
        self.0.sizes()
    }

    fn to_store(&self) -> Vec<Planned> {
        self.0.keys.sets()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_that_cannot_be_sent_are_refused() {
        let ok = MemcachedWorkload::default();
        let with = |change: &dyn Fn(&mut MemcachedWorkload)| {
            let mut w = ok.clone();
            change(&mut w);
            w.validate()
        };
        assert!(ok.validate().is_ok());
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
        let m = MemcachedStream::new(MemcachedWorkload::default()).unwrap();
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
        let m = MemcachedStream::new(MemcachedWorkload {
            keys: 3,
            ..MemcachedWorkload::default()
        })
        .unwrap();
        let sets: Vec<_> = (0..3)
            .map(|key| Planned::new(Operation::Set, key))
            .collect();
        assert_eq!(m.to_store(), sets);
    }
}
