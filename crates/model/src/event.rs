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

/// Whose request a packet carries: the client's UDP port and the protocol's
/// request id (memcached's UDP frame header), which wraps at 65,536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// The client's port.
    pub port: u16,
    /// The request id in the packet.
    pub id: u16,
}
