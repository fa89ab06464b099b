//! Recordings of format versions 1 and 2: uncompressed, one CPU after the other.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `taillabE` |
//! | 4 | version |
//! | 4 | streams, n |
//! | 24 | lost events: ring full, recursion, unreadable, 8 bytes each |
//! | 16 × n | for each stream: CPU (8 bytes), events (8 bytes) |
//! | 16 × events | the streams, one after the other; times are since boot, in 56 bits |
//! | 8 | checksum of everything before: FNV-1a, 64 bits, taken word by word of 8 bytes |
//!
//! Version 1 lacks the events of streams (kinds 8 to 11). There is one checksum for all,
//! so such a file is read wholly or not at all.

use std::collections::BTreeSet;
use std::io::{self, Read};

use super::{
    Chunk, CpuStream, LostEvents, PackedEvent, Recording, RecordingContext, RecordingError,
};
use crate::Monotonic;

/// The last version of this kind.
pub(super) const LAST_VERSION: u32 = 2;

/// Events read into one chunk: 1 MiB.
const CHUNK_EVENTS: usize = 65_536;

/// Reads a whole file whose magic and version have been looked at.
pub(super) fn read(input: impl Read) -> Result<Recording, RecordingError> {
    let mut input = Checked::new(io::BufReader::with_capacity(1 << 16, input));
    let mut progress = Progress::default();
    let _magic = progress.check(input.take())?;
    let streams = progress.check(input.take())? >> 32;
    let lost = LostEvents {
        ring_full: progress.check(input.take())?,
        recursion: progress.check(input.take())?,
        unreadable: progress.check(input.take())?,
        damaged: 0,
    };

    // the table's length comes from the file: grow with what is really there
    let mut table = Vec::new();
    let mut cpus = BTreeSet::new();
    let mut expected = 0_u64;
    for _ in 0..streams {
        let cpu = progress.check(input.take())?;
        let events = progress.check(input.take())?;
        let Ok(cpu) = u16::try_from(cpu) else {
            return Err(progress.damaged("a stream's CPU number is too large"));
        };
        if !cpus.insert(cpu) {
            return Err(progress.damaged("a CPU has two streams"));
        }
        let Some(sum) = expected.checked_add(events) else {
            return Err(progress.damaged("the number of events is too large"));
        };
        expected = sum;
        table.push((cpu, events));
    }
    progress.expected = expected;

    let mut streams = Vec::with_capacity(table.len());
    for (cpu, events) in table {
        let words = read_stream(&mut input, &mut progress, events)?;
        streams.push((cpu, words));
    }
    let checksum = input.checksum;
    if progress.check(input.take())? != checksum {
        return Err(progress.damaged("the checksum does not match"));
    }
    let first = streams
        .iter()
        .filter_map(|(_, words)| Some(words.first()?.0))
        .min();
    let base = first.unwrap_or(0);
    let streams = streams.into_iter().map(|(cpu, words)| {
        let chunks = words.chunks(CHUNK_EVENTS).map(|words| {
            let event = |&(at, head, values): &(u64, u64, u64)| {
                PackedEvent::from_words([head | (at - base) & AT_MASK, values])
            };
            Box::new(words.iter().filter_map(event).collect::<Vec<_>>()) as Chunk
        });
        CpuStream::new(cpu, chunks.collect())
    });
    Ok(Recording {
        base: Monotonic::from_nanos_since_boot(base),
        streams: streams.collect(),
        lost,
        context: RecordingContext::default(),
    })
}

/// Bits of an event's first word that hold its time.
const AT_MASK: u64 = (1 << 48) - 1;
/// The same in a file.
const OLD_AT_MASK: u64 = (1 << 56) - 1;

/// Time, the rest of the first word, and the second word of each event.
fn read_stream(
    input: &mut Checked<impl Read>,
    progress: &mut Progress,
    events: u64,
) -> Result<Vec<(u64, u64, u64)>, RecordingError> {
    let mut read = Vec::new();
    let mut latest = 0;
    for _ in 0..events {
        let words = [progress.check(input.take())?, progress.check(input.take())?];
        if PackedEvent::from_words(words).is_none() {
            return Err(progress.damaged("an event of unknown kind"));
        }
        let at = words[0] & OLD_AT_MASK;
        if at < latest {
            return Err(progress.damaged("time goes backwards within one CPU's stream"));
        }
        latest = at;
        read.push((at, words[0] & !OLD_AT_MASK, words[1]));
        progress.read += 1;
    }
    Ok(read)
}

/// How far a read has come, for its error.
#[derive(Default)]
struct Progress {
    read: u64,
    expected: u64,
}

impl Progress {
    fn check(&self, word: io::Result<u64>) -> Result<u64, RecordingError> {
        word.map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => RecordingError::Truncated {
                read: self.read,
                expected: self.expected,
            },
            _ => e.into(),
        })
    }

    fn damaged(&self, what: &'static str) -> RecordingError {
        RecordingError::Damaged {
            read: self.read,
            expected: self.expected,
            what,
        }
    }
}

/// A stream of words with the checksum of those that were read.
struct Checked<T> {
    inner: T,
    checksum: u64,
}

impl<T> Checked<T> {
    /// FNV offset basis.
    fn new(inner: T) -> Self {
        Self {
            inner,
            checksum: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// FNV-1a with words in place of bytes: any single changed word changes it.
    fn mix(&mut self, word: u64) {
        self.checksum = (self.checksum ^ word).wrapping_mul(0x0100_0000_01b3);
    }
}

impl<T: Read> Checked<T> {
    fn take(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.inner.read_exact(&mut bytes)?;
        let word = u64::from_le_bytes(bytes);
        self.mix(word);
        Ok(word)
    }
}
