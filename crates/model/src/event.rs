//! One kernel event as the probe records it and the matcher reads it.

use crate::Monotonic;

/// A kernel thread id, unique on the host (the kernel's `pid`).
pub type Tid = u32;

/// What happened, with what the matcher needs to join it to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// T1: the driver handed a request's packet to the stack.
    PacketIn {
        /// Identity of the packet buffer, valid until it is recycled.
        packet: PacketId,
        /// Whose request it is.
        key: RequestKey,
    },
    /// T2: the transport queued the packet at the server's socket.
    Enqueued {
        /// Identity of the packet buffer, as at its last `PacketIn`.
        packet: PacketId,
    },
    /// T4: a read of the server's thread returned a request.
    ReadReturned {
        /// The reading thread.
        tid: Tid,
        /// What the call returned, in bytes (for a multi-message call: messages).
        returned: u32,
    },
    /// T5: the server's thread called a write.
    WriteCalled {
        /// The writing thread.
        tid: Tid,
    },
    /// T6: the driver took the response.
    PacketOut {
        /// The thread that was current; the writer, except when the send was deferred.
        tid: Tid,
        /// Whose response it is.
        key: RequestKey,
    },
    /// T1 of a stream: the driver handed a segment of a connection to the stack.
    SegmentIn {
        /// Whose, and where it ends.
        key: RequestKey,
        /// How many bytes of the stream it carries; 0 where the client opens the connection,
        /// and `key` says where its stream begins.
        bytes: u32,
        /// The sender pushed it (PSH): a write of the client ends here.
        push: bool,
    },
    /// T2 of a stream: the transport queued data in order at the server's socket.
    SegmentQueued {
        /// Whose, and the end of what has been queued so far.
        key: RequestKey,
    },
    /// T4 of a stream: a read of the server's thread returned data.
    SegmentRead {
        /// The reading thread.
        tid: Tid,
        /// Whose, and the end of what has been read so far.
        key: RequestKey,
        /// The lowest ten bits of the number of bytes that the call returned.
        bytes_mod_1024: u16,
    },
    /// T6 of a stream: the driver took a segment of a response.
    SegmentOut {
        /// The thread that was current; the writer, except when the send was deferred.
        tid: Tid,
        /// Whose, and the end of what the server had read by then.
        key: RequestKey,
        /// The server had written more of the stream, which has yet to leave.
        more: bool,
        /// It begins before the end of what has been sent: it is sent again.
        resent: bool,
    },
    /// A CPU of the server changed from one thread to another.
    Switched {
        /// The thread that left the CPU (0: idle).
        prev: Tid,
        /// The thread that came onto it (0: idle).
        next: Tid,
        /// `prev` could have gone on: it was preempted, it did not sleep.
        preempted: bool,
    },
}

/// A [`EventKind`] with its time and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by the host's monotonic clock.
    pub at: Monotonic,
    /// On which CPU.
    pub cpu: u16,
    /// What.
    pub kind: EventKind,
}

/// Identity of a kernel packet buffer: bits 6 to 37 of its distance from a fixed address.
///
/// Buffers are at least 64-byte aligned, so two live buffers within 256 GiB of
/// each other differ. Addresses are reused as soon as a buffer is freed: an id
/// names a packet only from its `PacketIn` to the next `PacketIn` with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(pub u32);

/// Whose request a packet carries: the client's port, and which of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// The client's port.
    pub port: u16,
    /// Over UDP the protocol's request id (the first two bytes of the payload, as in
    /// memcached's frame header). Over TCP the low 16 bits of the sequence number just
    /// after the request's last byte. Both wrap at 65,536.
    pub id: u16,
}
