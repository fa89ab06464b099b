//! A hash map for small integer ids, and a list that grows to them. The map hashes with a
//! multiplication: SipHash's protection against chosen keys is not needed here, and would take most of
//! the time of the matching.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use taillab_model::RequestKey;
use taillab_queueing::random::lanes::GOLDEN;

pub(crate) type IdMap<V, K = u32> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Values by id, with a cache of the last one found, which is often looked up again.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFound<V> {
    values: IdMap<V>,
    last: Option<(u32, V)>,
}

impl<V: Copy> LastFound<V> {
    #[inline]
    pub(crate) fn get(&mut self, id: u32) -> Option<V> {
        match self.last {
            Some((last, value)) if last == id => Some(value),
            _ => {
                let value = *self.values.get(&id)?;
                self.last = Some((id, value));
                Some(value)
            }
        }
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.values.contains_key(&id)
    }

    /// Adds the value of an id that has none yet: the cached value is not updated.
    pub(crate) fn insert(&mut self, id: u32, value: V) {
        self.values.insert(id, value);
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.values.remove(&id);
        self.last = self.last.filter(|(last, _)| *last != id);
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Values by number; a small table in front holds recently used ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbered<V> {
    values: IdMap<V, u64>,
    lately: [Option<(u64, V)>; 16],
}

impl<V: Copy> Numbered<V> {
    const fn place(number: u64) -> usize {
        (number.wrapping_mul(GOLDEN) >> 60) as usize
    }

    #[inline]
    pub(crate) fn contains(&self, number: u64) -> bool {
        matches!(self.lately[Self::place(number)], Some((lately, _)) if lately == number)
            || self.values.contains_key(&number)
    }

    /// The value of `number`; if it has none yet, `new` makes it.
    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, number: u64, new: impl FnOnce() -> V) -> V {
        let place = Self::place(number);
        match self.lately[place] {
            Some((lately, value)) if lately == number => value,
            _ => {
                let value = *self.values.entry(number).or_insert_with(new);
                self.lately[place] = Some((number, value));
                value
            }
        }
    }
}

/// The item at `place` of a list that grows to it if need be.
#[inline]
pub(crate) fn grow_to<T: Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if place >= list.len() {
        list.resize_with(place + 1, T::default);
    }
    &mut list[place]
}

/// A key packed into one number.
pub(crate) const fn packed(key: RequestKey) -> u64 {
    (key.connection as u64) << 16 | key.id as u64
}

/// Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4).
#[derive(Clone, Copy, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.write_u64(u64::from(id));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(GOLDEN);
    }

    fn finish(&self) -> u64 {
        // The map takes the bucket from the low bits, and the mixed bits are high.
        self.0.rotate_left(26)
    }
}
