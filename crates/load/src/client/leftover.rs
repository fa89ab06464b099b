//! Bytes of answers that are not complete yet.

/// Buffers kept for use again; more than that many connections with an incomplete
/// answer at once are rare.
const SPARE: usize = 64;

/// A buffer larger than this is not kept for use again.
const KEPT_BYTES: usize = 64 << 10;

/// For each connection, the beginning of an answer that has more to come. Only
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
    /// There is no answer in fewer bytes than this.
    at_least: usize,
}

impl Leftovers {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            of: (0..connections).map(|_| None).collect(),
            spare: Vec::with_capacity(SPARE),
        }
    }

    /// What a connection has.
    #[inline]
    pub(super) fn of(&self, connection: usize) -> Option<&[u8]> {
        self.of[connection].as_ref().map(|left| &left.bytes[..])
    }

    /// Adds what came to what a connection has, and says whether that could be an answer
    /// now; `None` if it has nothing, and nothing was added.
    #[inline]
    pub(super) fn append(&mut self, connection: usize, bytes: &[u8]) -> Option<bool> {
        let left = self.of[connection].as_mut()?;
        left.bytes.extend_from_slice(bytes);
        Some(left.bytes.len() >= left.at_least)
    }

    /// Keeps the beginning of an answer for a connection that has nothing.
    pub(super) fn keep(&mut self, connection: usize, bytes: &[u8], at_least: usize) {
        let mut left = self.spare.pop().unwrap_or_default();
        left.bytes.extend_from_slice(bytes);
        left.at_least = at_least;
        self.of[connection] = Some(left);
    }

    /// Forgets the first `read` bytes of a connection.
    pub(super) fn shorten(&mut self, connection: usize, read: usize, at_least: usize) {
        if let Some(left) = &mut self.of[connection] {
            left.bytes.drain(..read);
            left.at_least = at_least;
        }
    }

    /// Forgets all that a connection has.
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
