//! Types that describe requests and responses between the parts of the matcher.

use taillab_model::{Monotonic, SendLimit, Tid};

use crate::matched::{SendPause, SentAgain};
use crate::spoken::OtherProtocol;

/// A request's number, in the order in which requests came in.
pub(super) type Slot = u32;

/// A position in a client's stream; its low 16 bits are those of the sequence number.
pub(super) type Position = u64;

/// A segment of a response at the moment when the driver takes it.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) at: Monotonic,
    pub(super) tid: Tid,
    /// The socket had more to send after it.
    pub(super) more: bool,
    pub(super) resent: bool,
    /// What TCP had waited for before it.
    pub(super) limit: Option<SendLimit>,
}

/// How a segment of a response relates to the requests of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The first segment that answers the batch, or a later one that was written separately: the
    /// thread's last write led to it.
    Begins,
    /// The rest of a response that this thread began to send.
    Continues(Tid),
    /// A retransmission: it was sent before.
    Again,
    /// It answers no request that was seen.
    Unknown,
    /// It answers a request from before the recording.
    FromBefore,
    /// More of a response that was counted as one of the two.
    Rest,
    /// The server sends it unasked: it speaks first, or the connection is set aside.
    Unasked,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settled {
    /// It was answered: T5 if known, and T6.
    Answered(Slot, Option<Monotonic>, Monotonic),
    /// It is one of several that may have been answered; the time is that of the last response that
    /// may be to it.
    Ambiguous(Slot, Monotonic),
    /// It came when it was not yet known what its connection, which was open before the recording, owed; the time is
    /// that of the response in the same turn.
    Early(Slot, Monotonic),
    /// It was only the beginning of a request.
    Part(Slot),
    /// It was a part of a request, as far as the turns of this server's connections show.
    Joined(Slot),
    /// A request to which no response is due, with its slot if it has one.
    Silent(Option<Slot>),
    /// It was read, or the matcher lost track of it, and no response to it was seen.
    Unanswered(Slot),
    /// The server sends unasked on the connection with this number.
    Aside(u32),
    /// No socket of the server received it.
    Elsewhere(Slot),
    /// The response to a turn begins to leave.
    Turn,
    /// A turn ended in which the server read on before it wrote anything.
    InParts,
    /// A turn ended whose segments were read at once, and are of different sizes.
    ReadAtOnce {
        /// The first is larger than the last.
        larger_first: bool,
    },
    /// A turn ended in which the client did not wait, or a response left that answers nothing.
    Overlapped,
    /// Another process received it, which shares the server's port.
    OfOther(Slot),
    /// The response that had left last was sent again.
    SentAgain(SentAgain),
    /// TCP could not send on for a while.
    Paused(SendPause),
    /// The first content of a connection came in: that of a protocol without a framing, or any other.
    Began(Option<OtherProtocol>),
    /// The end of a response was not seen; its request counts as unanswered.
    Unfinished(Monotonic),
}

/// A write that a thread has called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    /// T5.
    pub(super) at: Monotonic,
    pub(super) tid: Tid,
    /// How far the server had read by then.
    pub(super) upto: Position,
}
