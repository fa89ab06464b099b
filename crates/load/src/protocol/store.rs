//! Gets and sets of a key-value store: what the protocols of all stores have in common.

use taillab_model::Operation;

use super::keys::{self, Key, KeySet};
use super::{MessageSizes, Planned, Planner, StoreWorkload};
use crate::LoadError;

/// The largest key and value that a protocol sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

/// A request with room for its key and for its tag.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) bytes: Vec<u8>,
    /// Where the key ends.
    pub(super) key_end: usize,
    pub(super) tag: Tag,
}

/// Where a request has its tag, and in which form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tag {
    /// It has none.
    None,
    /// Four bytes, big endian, at this offset.
    Binary(usize),
    /// Eight hexadecimal digits at this offset.
    Hexadecimal(usize),
}

impl Template {
    /// A request without a tag: `before`, the key, `after`.
    pub(super) fn untagged(before: &[u8], key_bytes: usize, after: &[u8]) -> Self {
        Self {
            bytes: [before, &vec![b'0'; key_bytes], after].concat(),
            key_end: before.len() + key_bytes,
            tag: Tag::None,
        }
    }

    /// The same request with the header of a datagram before it.
    pub(super) fn behind(self, frame: &[u8]) -> Self {
        let shift = frame.len();
        Self {
            bytes: [frame, &self.bytes].concat(),
            key_end: self.key_end + shift,
            tag: match self.tag {
                Tag::None => Tag::None,
                Tag::Binary(at) => Tag::Binary(at + shift),
                Tag::Hexadecimal(at) => Tag::Hexadecimal(at + shift),
            },
        }
    }

    #[inline]
    pub(super) fn fill(&mut self, key: Key<'_>, tag: u32) -> &[u8] {
        key.write(&mut self.bytes[..self.key_end]);
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

/// What a response is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedAnswer<'a> {
    pub(super) operation: Operation,
    pub(super) key: Key<'a>,
    pub(super) value_bytes: usize,
    pub(super) tag: u32,
}

#[cfg(test)]
impl ExpectedAnswer<'static> {
    /// Key 0042, with a value of three bytes.
    pub(super) const fn of_42(operation: Operation, tag: u32) -> Self {
        Self {
            operation,
            key: Key::of_four(42),
            value_bytes: 3,
            tag,
        }
    }
}

/// The requests of a protocol for a workload, and the lengths of their responses.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    pub(super) get: Template,
    pub(super) set: Template,
    /// Bytes of the response to a get that finds its value.
    pub(super) hit_bytes: usize,
    /// Bytes of the response to a set that is stored.
    pub(super) stored_bytes: usize,
}

/// The prepared requests of a workload.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) workload: StoreWorkload,
    keys: KeySet,
    messages: Messages,
}

impl Store {
    /// Checks the workload and prepares its requests.
    ///
    /// # Errors
    /// [`LoadError::Keys`], [`LoadError::KeySize`], [`LoadError::KeyDistribution`],
    /// [`LoadError::GetShare`] or [`LoadError::MessageSize`].
    pub(super) fn new(
        workload: StoreWorkload,
        limits: Limits,
        messages: impl FnOnce(&StoreWorkload) -> Messages,
    ) -> Result<Self, LoadError> {
        workload.distribution.validate()?;
        if !(0.0..=1.0).contains(&workload.get_share) {
            return Err(LoadError::GetShare(workload.get_share));
        }
        if workload.value_bytes > limits.value_bytes {
            return Err(LoadError::MessageSize {
                what: "a value",
                bytes: workload.value_bytes,
                min: 0,
                max: limits.value_bytes,
            });
        }
        Ok(Self {
            keys: KeySet::new(workload.keys, workload.key_bytes, limits.key_bytes)?,
            messages: messages(&workload),
            workload,
        })
    }

    /// The bytes of a request.
    #[inline]
    pub(super) fn request(&mut self, what: Planned, tag: u32) -> &mut [u8] {
        let template = match what.operation() {
            Operation::Set => &mut self.messages.set,
            // nothing plans a call
            Operation::Get | Operation::Call => &mut self.messages.get,
        };
        template.fill(self.keys.get(what.key()), tag);
        &mut template.bytes
    }

    /// What the response to a request must contain.
    #[inline]
    pub(super) fn asked(&self, what: Planned, tag: u32) -> ExpectedAnswer<'_> {
        ExpectedAnswer {
            operation: what.operation(),
            key: self.keys.get(what.key()),
            value_bytes: self.workload.value_bytes,
            tag,
        }
    }
}

/// A protocol of a store.
pub(super) trait Stored {
    fn store(&self) -> &Store;
}

impl<P: Stored> Planner for P {
    fn plan(&self, n: usize, seed: u64) -> Vec<Planned> {
        let w = &self.store().workload;
        keys::plan_store(w.keys, w.distribution, w.get_share, n, seed)
    }

    /// The sizes of the more frequent operation.
    fn sizes(&self) -> MessageSizes {
        let store = self.store();
        let m = &store.messages;
        let (request, response_bytes) = if store.workload.get_share >= 0.5 {
            (&m.get, m.hit_bytes)
        } else {
            (&m.set, m.stored_bytes)
        };
        MessageSizes {
            request_bytes: request.bytes.len(),
            response_bytes,
        }
    }

    fn to_store(&self) -> Vec<Planned> {
        self.store().keys.sets()
    }
}
