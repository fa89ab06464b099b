//! What a connection is told, and what it says of its requests.

use taillab_model::{Monotonic, Tid};

use crate::matcher::Slot;

/// A position in a client's stream; its low 16 bits are those of the sequence number.
pub(in crate::matcher) type Position = u64;

/// A segment of a response as the driver takes it.
#[derive(Clone, Copy)]
pub(in crate::matcher) struct Leaving {
    pub(in crate::matcher) at: Monotonic,
    pub(in crate::matcher) tid: Tid,
    pub(in crate::matcher) more: bool,
    pub(in crate::matcher) resent: bool,
}

/// What a segment of a response is to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::matcher) enum Role {
    /// The first one that answers the batch, or a further one behind which nothing was
    /// waiting: what the thread has called led to it.
    Begins,
    /// The rest of what the segments before it began, left by this thread.
    Continues(Tid),
    /// It was sent before.
    Again,
    /// It answers no request that was seen.
    Unknown,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::matcher) enum Settled {
    /// It was answered: T5 if known, and T6.
    Answered(Slot, Option<Monotonic>, Monotonic),
    /// One of several, at the time of the last response that may be its own.
    Ambiguous(Slot, Monotonic),
    /// It was only the beginning of a request.
    Part(Slot),
    /// It was read or lost from sight, and no response to it was seen.
    Unanswered(Slot),
    /// The end of a response was not seen; its request counts as unanswered.
    Unfinished(Monotonic),
}

/// A write that a thread has called.
#[derive(Clone, Copy, Debug)]
pub(in crate::matcher) struct Write {
    /// T5.
    pub(in crate::matcher) at: Monotonic,
    pub(in crate::matcher) tid: Tid,
    /// How far the server had read by then.
    pub(in crate::matcher) upto: Position,
}
