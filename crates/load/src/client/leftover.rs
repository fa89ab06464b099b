//! Bytes of answers that are not complete yet.

/// Buffers kept for reuse. More connections with an incomplete answer at once are rare.
const SPARE: usize = 64;

/// A larger buffer is not kept for reuse.
const KEPT_BYTES: usize = 64 << 10;

/// For each connection, the beginning of an incomplete answer. Only
/// connections with such an answer have a buffer.
#[derive(Debug)]
pub(super) struct Leftovers {
    of: Vec<Option<Box<Leftover>>>,
    #[expect(clippy::vec_box, reason = "the boxes move in and out of `of`")]
    spare: Vec<Box<Leftover>>,
}

#[derive(Debug, Default)]
struct Leftover {
    bytes: Vec<u8>,
    /// The answer has at least this many bytes.
    at_least: usize,
}

impl Leftovers {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            of: (0..connections).map(|_| None).collect(),
            spare: Vec::with_capacity(SPARE),
        }
    }

    /// The bytes kept for a connection.
    #[inline]
    pub(super) fn of(&self, connection: usize) -> Option<&[u8]> {
        self.of[connection].as_ref().map(|left| &left.bytes[..])
    }

    /// Adds bytes to those kept for a connection and returns whether they could be a whole answer
    /// now. If none are kept, adds nothing and returns `None`.
    #[inline]
    pub(super) fn append(&mut self, connection: usize, bytes: &[u8]) -> Option<bool> {
        let left = self.of[connection].as_mut()?;
        left.bytes.extend_from_slice(bytes);
        Some(left.bytes.len() >= left.at_least)
    }

    /// Keeps the beginning of an answer that has `at_least` so many bytes: what is there from `read` on, of the bytes that
    /// are kept already or else of those that `came`.
    pub(super) fn keep(&mut self, connection: usize, read: usize, at_least: usize, came: &[u8]) {
        if let Some(left) = &mut self.of[connection] {
            left.bytes.drain(..read);
            left.at_least = at_least;
            return;
        }
        let mut left = self.spare.pop().unwrap_or_default();
        left.bytes.extend_from_slice(&came[read..]);
        left.at_least = at_least;
        self.of[connection] = Some(left);
    }

    /// Drops all bytes of a connection.
    #[inline]
    pub(super) fn clear(&mut self, connection: usize) {
        let Some(mut left) = self.of[connection].take() else {
            return;
        };
        if self.spare.len() < SPARE && left.bytes.capacity() <= KEPT_BYTES {
            left.bytes.clear();
            self.spare.push(left);
        }
    }
}
