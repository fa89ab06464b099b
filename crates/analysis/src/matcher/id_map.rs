//! A hash map for small integer ids: a multiplication instead of SipHash, whose
//! protection against chosen keys is not needed here and costs most of the matching.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use taillab_model::RequestKey;

pub(crate) type IdMap<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// A key as one number.
pub(crate) const fn packed(key: RequestKey) -> u32 {
    (key.port as u32) << 16 | key.id as u32
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
        // 2^64 ÷ the golden ratio
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The map takes the bucket from the low bits, and the mixed bits are high.
        self.0.rotate_left(26)
    }
}
