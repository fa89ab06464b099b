//! A recording as a file.
//!
//! All numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `taillabE` |
//! | 4 | version |
//! | 4 | streams, n |
//! | 8 | base: nanoseconds since boot that the events' times count from |
//! | 24 | lost events: ring full, recursion, unreadable, 8 bytes each |
//! | 16 × n | for each stream: CPU (8 bytes), events (8 bytes) |
//! | 16 × events | the streams, one after the other, as [`PackedEvent`]s |
//! | 8 | checksum of everything before: FNV-1a, 64 bits, taken word by word of 8 bytes |

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Read, Write};

use thiserror::Error;

use super::{Chunk, CpuStream, LostEvents, PackedEvent, Recording, RecordingContext};
use crate::Monotonic;

const MAGIC: [u8; 8] = *b"taillabE";

/// The version that [`Recording::write`] writes.
///
/// [`Recording::read`] reads all versions up to it: version 1 lacks the events of
/// streams (kinds 8 to 11); 1 and 2 have no base, and times since boot of 56 bits.
pub const VERSION: u32 = 3;

/// Events read into one chunk: 1 MiB.
const CHUNK_EVENTS: u64 = 65_536;

/// Why a file is not a recording that can be read.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// Reading failed.
    #[error("cannot read the recorded stream: {0}")]
    Io(#[from] io::Error),
    /// It does not begin as a recording does.
    #[error("not a recorded stream of taillab (it does not begin with `taillabE`): check the path")]
    NotARecording,
    /// It was written by a version unknown here.
    #[error(
        "the recorded stream has format version {found}, this taillab reads versions up to {VERSION}: \
         use the taillab that recorded it, or record again"
    )]
    UnsupportedVersion {
        /// The file's version.
        found: u32,
    },
    /// It ends too early.
    #[error(
        "the recorded stream is cut off: {read} of {expected} events could be read; \
         copy it again, or record again"
    )]
    Truncated {
        /// Events before the end.
        read: u64,
        /// Events that the header promises (0 if the header itself is cut off).
        expected: u64,
    },
    /// What it holds cannot be.
    #[error(
        "the recorded stream is damaged after {read} of {expected} events: {what}; \
         copy it again, or record again"
    )]
    Damaged {
        /// Events read before the damage was seen.
        read: u64,
        /// Events that the header promises.
        expected: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl Recording {
    /// Writes the recording as a file of format [`VERSION`]; `out` need not be buffered.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = Checked::new(BufWriter::with_capacity(1 << 16, out));
        out.put(u64::from_le_bytes(MAGIC))?;
        let streams = u32::try_from(self.streams.len()).map_err(io::Error::other)?;
        out.put(u64::from(streams) << 32 | u64::from(VERSION))?;
        out.put(self.base.nanos_since_boot())?;
        for lost in [
            self.lost.ring_full,
            self.lost.recursion,
            self.lost.unreadable,
        ] {
            out.put(lost)?;
        }
        for stream in &self.streams {
            out.put(u64::from(stream.cpu()))?;
            out.put(stream.len())?;
        }
        for event in self.streams.iter().flat_map(CpuStream::slices).flatten() {
            for word in event.words() {
                out.put(word)?;
            }
        }
        let checksum = out.checksum;
        out.put(checksum)?;
        out.inner.flush()
    }

    /// Reads a whole file; `input` need not be buffered.
    ///
    /// # Errors
    /// [`RecordingError`], which says how much of a damaged or cut-off file is sound.
    pub fn read(input: impl Read) -> Result<Self, RecordingError> {
        let mut input = Checked::new(io::BufReader::with_capacity(1 << 16, input));
        let mut progress = Progress::default();
        match input.take() {
            Ok(word) if word == u64::from_le_bytes(MAGIC) => {}
            Ok(_) => return Err(RecordingError::NotARecording),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(RecordingError::NotARecording);
            }
            Err(e) => return Err(e.into()),
        }
        let word = progress.check(input.take())?;
        let (version, streams) = (word as u32, word >> 32);
        if !(1..=VERSION).contains(&version) {
            return Err(RecordingError::UnsupportedVersion { found: version });
        }
        let base = match version {
            1 | 2 => None,
            _ => Some(progress.check(input.take())?),
        };
        let lost = LostEvents {
            ring_full: progress.check(input.take())?,
            recursion: progress.check(input.take())?,
            unreadable: progress.check(input.take())?,
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
            let words = read_stream(&mut input, &mut progress, events, base.is_none())?;
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
        let (base, offset) = match base {
            Some(base) => (base, 0),
            None => (first.unwrap_or(0), first.unwrap_or(0)),
        };
        let streams = streams.into_iter().map(|(cpu, words)| {
            let chunks = words.chunks(CHUNK_EVENTS as usize).map(|words| {
                let event = |&(at, head, values): &(u64, u64, u64)| {
                    PackedEvent::from_words([head | (at - offset) & AT_MASK, values])
                };
                Box::new(words.iter().filter_map(event).collect::<Vec<_>>()) as Chunk
            });
            CpuStream::new(cpu, chunks.collect())
        });
        Ok(Self {
            base: Monotonic::from_nanos_since_boot(base),
            streams: streams.collect(),
            lost,
            context: RecordingContext::default(),
        })
    }
}

/// Bits of an event's first word that hold its time.
const AT_MASK: u64 = (1 << 48) - 1;
/// The same before version 3.
const OLD_AT_MASK: u64 = (1 << 56) - 1;

/// Time, the rest of the first word, and the second word of each event.
fn read_stream(
    input: &mut Checked<impl Read>,
    progress: &mut Progress,
    events: u64,
    old: bool,
) -> Result<Vec<(u64, u64, u64)>, RecordingError> {
    let mask = if old { OLD_AT_MASK } else { AT_MASK };
    let mut read = Vec::new();
    let mut latest = 0;
    for _ in 0..events {
        let words = [progress.check(input.take())?, progress.check(input.take())?];
        if PackedEvent::from_words(words).is_none() {
            return Err(progress.damaged("an event of unknown kind"));
        }
        let at = words[0] & mask;
        if at < latest {
            return Err(progress.damaged("time goes backwards within one CPU's stream"));
        }
        latest = at;
        read.push((at, words[0] & !mask, words[1]));
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

/// A stream of words with the checksum of those that went through.
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

impl<T: Write> Checked<T> {
    fn put(&mut self, word: u64) -> io::Result<()> {
        self.mix(word);
        self.inner.write_all(&word.to_le_bytes())
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
