//! A packet of a stream, put together from the events that carry its content.

use taillab_model::{Event, EventKind, Monotonic};

/// Which part of a stream a packet carries: how many bytes, and the place of the first: of the client its sequence
/// number, of the server how many bytes of the stream come before it.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) bytes: u32,
    pub(super) place: u32,
}

impl Extent {
    /// What it adds to a stream whose next byte has this place.
    pub(super) fn after(self, next: u32) -> PacketPart {
        let ahead = self.place.wrapping_sub(next) as i32;
        match u32::try_from(ahead) {
            Ok(hole) => PacketPart::New { leave_out: 0, hole },
            Err(_) if ahead.unsigned_abs() >= self.bytes => PacketPart::Again,
            Err(_) => PacketPart::New {
                leave_out: ahead.unsigned_abs(),
                hole: 0,
            },
        }
    }

    /// The place of the byte after it.
    pub(super) const fn end(self) -> u32 {
        self.place.wrapping_add(self.bytes)
    }
}

/// What a packet adds to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketPart {
    /// Nothing: it was sent before.
    Again,
    /// New bytes: all but the first `leave_out` bytes of the packet. Before them, `hole` bytes were
    /// not seen.
    New { leave_out: u32, hole: u32 },
}

impl PacketPart {
    /// It begins where the stream ended.
    pub(super) const NEXT: Self = Self::New {
        leave_out: 0,
        hole: 0,
    };
}

/// The bytes of a packet of the server that are new to its stream.
#[derive(Clone, Copy)]
pub(super) struct NewBytes<'p> {
    /// How many bytes of the stream before them were not seen.
    pub(super) hole: u32,
    /// The first of them, as far as they were recorded.
    pub(super) recorded: &'p [u8],
    /// How many there are.
    pub(super) bytes: u32,
}

impl<'p> NewBytes<'p> {
    /// Those of a packet of this `extent` of which the first `leave_out` bytes were seen before.
    pub(super) fn of(payload: &'p [u8], extent: Extent, leave_out: u32, hole: u32) -> Self {
        Self {
            hole,
            recorded: payload.get(leave_out as usize..).unwrap_or_default(),
            bytes: extent.bytes - leave_out,
        }
    }
}

/// A packet whose content may still follow in further events.
pub(super) struct Packet {
    pub(super) cpu: u16,
    pub(super) at: Monotonic,
    pub(super) kind: EventKind,
    /// The beginning of its content: the bytes that were recorded.
    pub(super) payload: Vec<u8>,
    pub(super) extent: Option<Extent>,
}

impl Packet {
    /// The packet that begins with this event, if one does; it takes over the `memory` for its
    /// content.
    pub(super) fn begin(event: &Event, memory: &mut Vec<u8>) -> Option<Self> {
        let is_packet = matches!(
            event.kind,
            EventKind::SegmentIn { bytes: 1.., .. } | EventKind::SegmentOut { .. }
        );
        is_packet.then(|| Self {
            cpu: event.cpu,
            at: event.at,
            kind: event.kind,
            payload: std::mem::take(memory),
            extent: None,
        })
    }

    /// Adds the content that an event carries, if it belongs to this packet; an event with length 0
    /// carries the packet's extent.
    pub(super) fn add(&mut self, event: &Event, bytes: [u8; 8], len: u8) {
        if (self.cpu, self.at) != (event.cpu, event.at) {
            return;
        }
        let word = u64::from_le_bytes(bytes);
        match usize::from(len) {
            0 => {
                self.extent = Some(Extent {
                    bytes: word as u32,
                    place: (word >> 32) as u32,
                });
            }
            len => self.payload.extend_from_slice(&bytes[..len.min(8)]),
        }
    }
}
