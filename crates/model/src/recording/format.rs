//! A recording as a file.
//!
//! A header, then blocks, then a footer, which is a block too, and a trailer. All numbers
//! are little-endian; checksums are CRC-32 (IEEE 802.3); times count from the base, in
//! nanoseconds.
//!
//! | header: bytes | what |
//! |---|---|
//! | 8 | `taillabE` |
//! | 4 | version |
//! | 4 | length of the context |
//! | 8 | base, nanoseconds since boot |
//! | 4 | checksum of the 24 bytes before |
//! | 4 | checksum of the context |
//! | … | what is known at the start: [`RecordingContext`] as JSON |
//!
//! | block: bytes | what |
//! |---|---|
//! | 4 | mark: B1 `TLB` |
//! | 1 | 0: events, 1: footer, 2: losses so far |
//! | 1 | 0: not compressed, 1: compressed (LZ4 block format) |
//! | 2 | CPU |
//! | 4 | events |
//! | 4 | length of the payload |
//! | 4 | length of the payload once decompressed |
//! | 4 | checksum of the payload |
//! | 8 | base, as in the header |
//! | 8 | time of the first event |
//! | 8 | time of the last event |
//! | 8 | events of this CPU in the blocks before |
//! | 8 | settled: no block after this one has an event before this time |
//! | 4 | checksum of the 64 bytes before |
//! | … | payload: columns (see `columns.rs`), or a [`Footer`] or [`LostEvents`] as JSON |
//!
//! | trailer: bytes | what |
//! |---|---|
//! | 8 | where the footer begins |
//! | 8 | `taillabF` |
//!
//! A block can be read without the others, and is found by its mark and its checksum. So
//! damage costs only the blocks that it hits; the number of events before a block shows how
//! many events these held.

use std::io;

use serde::{Deserialize, Serialize};

use super::columns::{MAX_EVENT_BYTES, PREFIX_BYTES};
use super::packed::TIME_MASK;
use super::{LostEvents, RecordingContext, VERSION};

pub(super) const MAGIC: [u8; 8] = *b"taillabE";
pub(super) const FIXED_HEADER_BYTES: usize = 32;

pub(super) const MARK: [u8; 4] = *b"\xb1TLB";
pub(super) const BLOCK_HEADER_BYTES: usize = 68;

const TRAILER_MAGIC: [u8; 8] = *b"taillabF";
pub(super) const TRAILER_BYTES: usize = 16;

/// Events of a full block.
pub(super) const BLOCK_EVENTS: usize = 16_384;

/// The longest block of events that is believed.
pub(super) const MAX_BLOCK_BYTES: usize = PREFIX_BYTES + BLOCK_EVENTS * MAX_EVENT_BYTES;
/// The longest context or footer that is believed: a million names.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 26;

/// More CPUs than the probe records on are not believed: each costs the reader an unpacked block.
const MAX_CPUS: u16 = 1024;
/// The latest base that is believed: 73 years after boot.
const MAX_BASE: u64 = 1 << 61;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Events,
    Footer,
    /// The losses so far: all that is known of losses where the footer is missing.
    Losses,
}

impl Holds {
    const ALL: [Self; 3] = [Self::Events, Self::Footer, Self::Losses];
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) holds: Holds,
    pub(super) compressed: bool,
    pub(super) cpu: u16,
    pub(super) events: u32,
    pub(super) packed_len: u32,
    pub(super) unpacked_len: u32,
    pub(super) checksum: u32,
    pub(super) base: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) events_before: u64,
    pub(super) settled: u64,
}

impl BlockHeader {
    pub(super) fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4] = self.holds as u8;
        bytes[5] = u8::from(self.compressed);
        bytes[6..8].copy_from_slice(&self.cpu.to_le_bytes());
        let lengths = [
            self.events,
            self.packed_len,
            self.unpacked_len,
            self.checksum,
        ];
        for (field, value) in bytes[8..24].chunks_exact_mut(4).zip(lengths) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        let times = [
            self.base,
            self.first,
            self.last,
            self.events_before,
            self.settled,
        ];
        for (field, value) in bytes[24..64].chunks_exact_mut(8).zip(times) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        let checksum = checksum(&bytes[..64]);
        bytes[64..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The header in these bytes, if they are one.
    pub(super) fn from_bytes(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let sum = u32_at(bytes, BLOCK_HEADER_BYTES - 4);
        if bytes[..4] != MARK || checksum(&bytes[..BLOCK_HEADER_BYTES - 4]) != sum {
            return None;
        }
        let header = Self {
            holds: *Holds::ALL.get(usize::from(bytes[4]))?,
            compressed: match bytes[5] {
                0 => false,
                1 => true,
                _ => return None,
            },
            cpu: u16::from_le_bytes([bytes[6], bytes[7]]),
            events: u32_at(bytes, 8),
            packed_len: u32_at(bytes, 12),
            unpacked_len: u32_at(bytes, 16),
            checksum: u32_at(bytes, 20),
            base: u64_at(bytes, 24),
            first: u64_at(bytes, 32),
            last: u64_at(bytes, 40),
            events_before: u64_at(bytes, 48),
            settled: u64_at(bytes, 56),
        };
        let longest = match header.holds {
            Holds::Events => MAX_BLOCK_BYTES,
            Holds::Footer | Holds::Losses => MAX_TEXT_BYTES,
        };
        let sane = header.packed_len.max(header.unpacked_len) as usize <= longest
            && header.events as usize <= header.unpacked_len as usize
            && header.first <= header.last
            && header.last <= TIME_MASK
            && header.cpu < MAX_CPUS
            && header.base <= MAX_BASE;
        sane.then_some(header)
    }
}

/// The payload of a block, decompressed into `unpacked` where that is needed.
pub(super) fn unpack<'a>(
    header: &BlockHeader,
    payload: &'a [u8],
    unpacked: &'a mut Vec<u8>,
) -> Result<&'a [u8], &'static str> {
    let expected = header.unpacked_len as usize;
    if !header.compressed {
        return Ok(payload);
    }
    unpacked.resize(expected, 0);
    match lz4_flex::block::decompress_into(payload, unpacked) {
        Ok(len) if len == expected => Ok(unpacked),
        _ => Err("a block cannot be decompressed"),
    }
}

/// The first bytes of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileHeader {
    pub(super) base: u64,
    pub(super) context_len: u32,
    pub(super) context_checksum: u32,
}

impl FileHeader {
    pub(super) fn to_bytes(self) -> [u8; FIXED_HEADER_BYTES] {
        let mut bytes = [0; FIXED_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.context_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        let sum = checksum(&bytes[..24]);
        bytes[24..28].copy_from_slice(&sum.to_le_bytes());
        bytes[28..].copy_from_slice(&self.context_checksum.to_le_bytes());
        bytes
    }

    /// The header, if it is intact; its magic and its version were checked before.
    pub(super) fn from_bytes(bytes: &[u8; FIXED_HEADER_BYTES]) -> Option<Self> {
        let header = Self {
            base: u64_at(bytes, 16),
            context_len: u32_at(bytes, 12),
            context_checksum: u32_at(bytes, 28),
        };
        let sound = checksum(&bytes[..24]) == u32_at(bytes, 24)
            && header.context_len as usize <= MAX_TEXT_BYTES
            && header.base <= MAX_BASE;
        sound.then_some(header)
    }
}

/// What is known at the end of a recording.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Footer {
    pub(super) context: RecordingContext,
    pub(super) lost: LostEvents,
    pub(super) streams: Vec<StreamEnd>,
}

/// The number of events of a CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct StreamEnd {
    pub(super) cpu: u16,
    pub(super) events: u64,
}

/// The last bytes of a file whose footer begins at this byte.
pub(super) fn trailer(footer_at: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..8].copy_from_slice(&footer_at.to_le_bytes());
    bytes[8..].copy_from_slice(&TRAILER_MAGIC);
    bytes
}

/// Where the footer begins, if these are a file's last bytes.
pub(super) fn footer_at(trailer: &[u8; TRAILER_BYTES]) -> Option<u64> {
    (trailer[8..] == TRAILER_MAGIC).then(|| u64_at(trailer, 0))
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A context or footer as JSON.
pub(super) fn to_json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(value)?;
    if json.len() > MAX_TEXT_BYTES {
        return Err(io::Error::other(
            "a recording cannot hold more than 64 MiB of names: record fewer threads",
        ));
    }
    Ok(json)
}

/// The four bytes at this place, which must exist.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
