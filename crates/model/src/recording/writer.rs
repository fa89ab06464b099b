//! Writing a recording while it is made.

use std::io::{self, BufWriter, Write};

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::columns::Encoder;
use super::format::{
    BLOCK_EVENTS, BLOCK_HEADER_BYTES, BlockHeader, FileHeader, Footer, Holds, StreamEnd, checksum,
    to_json, trailer,
};
use super::sink::push_in_order;
use super::{EventSink, LostEvents, PackedEvent, Recording, RecordingContext};
use crate::{Event, Monotonic, Nanos};

/// The longest time that a settled event waits for its block to fill.
pub(super) const BLOCK_SPAN: Nanos = Nanos::from_millis(250);

/// Events held back when a full block is written, since an event that they overtook may still come.
const HELD_BACK: usize = 2_048;

/// Writes a recording as its events come, in bounded memory.
///
/// A file that is never finished can still be read. It lacks what is known only at the end, and
/// the reader reports that it is cut off.
pub struct RecordingWriter<W: Write> {
    pub(super) out: BufWriter<W>,
    base: Monotonic,
    /// By CPU.
    pub(super) streams: Vec<WaitingEvents>,
    /// No event before this time will come.
    settled: u64,
    blocks: BlockMaker,
    events: u64,
    bytes: u64,
    /// The losses that the file states already.
    lost: LostEvents,
}

/// Events of a CPU that have yet to be written, in order of time.
#[derive(Default)]
pub(super) struct WaitingEvents {
    pub(super) events: Vec<PackedEvent>,
    written: u64,
}

impl WaitingEvents {
    fn first(&self) -> Option<u64> {
        self.events.first().map(|event| event.since_base().get())
    }
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording whose times count from `base`; `out` need not be buffered.
    ///
    /// The context is what is known now; a file that is never finished has no other.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(out: W, base: Monotonic, context: &RecordingContext) -> io::Result<Self> {
        let context = to_json(context)?;
        let header = FileHeader {
            base: base.nanos_since_boot(),
            context_len: context.len() as u32,
            context_checksum: checksum(&context),
        };
        let mut writer = Self {
            out: BufWriter::with_capacity(1 << 16, out),
            base,
            streams: Vec::new(),
            settled: 0,
            blocks: BlockMaker::default(),
            events: 0,
            bytes: 0,
            lost: LostEvents::default(),
        };
        writer.write(&header.to_bytes())?;
        writer.write(&context)?;
        Ok(writer)
    }

    /// Adds an event that was made in user space.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn insert(&mut self, event: Event) -> io::Result<()> {
        let since_base = event.at.saturating_since(self.base);
        self.take(event.cpu, &[PackedEvent::new(since_base, event.kind)])
    }

    /// Writes all events that it holds, in blocks that may be smaller than usual.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        for cpu in 0..self.streams.len() {
            self.write_events(cpu, usize::MAX)?;
        }
        self.out.flush()
    }

    /// Writes what is left and everything that is known at the end, and returns `out`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, context: &RecordingContext, lost: LostEvents) -> io::Result<W> {
        self.flush()?;
        let streams = self.streams.iter().enumerate();
        let footer = Footer {
            context: context.clone(),
            lost,
            streams: streams
                .filter(|(_, stream)| stream.written > 0)
                .map(|(cpu, stream)| StreamEnd {
                    // the index is the CPU's number
                    cpu: cpu as u16,
                    events: stream.written,
                })
                .collect(),
        };
        self.write_footer(&footer)?;
        self.out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }

    /// Notes how much has been lost so far, if that has changed, so that a file without its end states it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_lost(&mut self, lost: LostEvents) -> io::Result<()> {
        if lost == self.lost {
            return Ok(());
        }
        self.lost = lost;
        let json = to_json(&lost)?;
        let payload = self.blocks.text(json);
        let header = payload.header(Holds::Losses, self.base).to_bytes();
        self.bytes += (BLOCK_HEADER_BYTES + payload.bytes.len()) as u64;
        self.out.write_all(&header)?;
        self.out.write_all(payload.bytes)
    }

    /// Events taken so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Bytes written so far; some may still be in the buffer.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where they go.
    pub fn out(&self) -> &W {
        self.out.get_ref()
    }
}

impl<W: Write> EventSink for RecordingWriter<W> {
    fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
        let index = usize::from(cpu);
        if self.streams.len() <= index {
            self.streams.resize_with(index + 1, WaitingEvents::default);
        }
        // in parts, so that the waiting events are never much more than a block
        for events in events.chunks(HELD_BACK) {
            push_in_order(&mut self.streams[index].events, events);
            self.events += events.len() as u64;
            if self.streams[index].events.len() >= BLOCK_EVENTS + HELD_BACK {
                self.write_block(index, BLOCK_EVENTS)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, before: Nanos) -> io::Result<()> {
        self.settled = self.settled.max(before.get());
        let due = before.saturating_sub(BLOCK_SPAN).get();
        let mut wrote = false;
        for cpu in 0..self.streams.len() {
            let waiting = &self.streams[cpu];
            if waiting.first().is_some_and(|first| first < due) {
                let settled = |event: &PackedEvent| event.since_base() < before;
                let events = waiting.events.partition_point(settled);
                self.write_events(cpu, events)?;
                wrote = true;
            }
        }
        if wrote {
            // so that the file has these blocks even if the process is killed
            self.out.flush()?;
        }
        Ok(())
    }
}

impl<W: Write> RecordingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes up to `limit` waiting events of a CPU.
    fn write_events(&mut self, cpu: usize, limit: usize) -> io::Result<()> {
        let mut left = limit.min(self.streams[cpu].events.len());
        while left > 0 {
            let events = left.min(BLOCK_EVENTS);
            self.write_block(cpu, events)?;
            left -= events;
        }
        Ok(())
    }

    /// Writes this many waiting events of a CPU, the oldest first; there must be as many.
    fn write_block(&mut self, cpu: usize, events: usize) -> io::Result<()> {
        let stream = &mut self.streams[cpu];
        let (block, rest) = stream.events.split_at(events);
        let at = |event: Option<&PackedEvent>| event.map_or(0, |event| event.since_base().get());
        let (first, last) = (at(block.first()), at(block.last()));
        let payload = self.blocks.events(block, first);
        let after = rest.first().map(|event| event.since_base().get());
        let header = BlockHeader {
            cpu: cpu as u16,
            events: events as u32,
            first,
            last,
            events_before: stream.written,
            ..payload.header(Holds::Events, self.base)
        };
        stream.written += events as u64;
        let others = self.streams.iter().enumerate();
        let waiting = others.filter_map(|(other, stream)| match other == cpu {
            true => after,
            false => stream.first(),
        });
        let settled = waiting.min().map_or(self.settled, |t| t.min(self.settled));
        let header = BlockHeader { settled, ..header }.to_bytes();
        self.bytes += (BLOCK_HEADER_BYTES + payload.bytes.len()) as u64;
        self.out.write_all(&header)?;
        self.out.write_all(payload.bytes)?;
        self.streams[cpu].events.drain(..events);
        Ok(())
    }

    fn write_footer(&mut self, footer: &Footer) -> io::Result<()> {
        let at = self.bytes;
        let json = to_json(footer)?;
        let payload = self.blocks.text(json);
        let header = BlockHeader {
            settled: u64::MAX,
            ..payload.header(Holds::Footer, self.base)
        };
        self.out.write_all(&header.to_bytes())?;
        self.out.write_all(payload.bytes)?;
        self.out.write_all(&trailer(at))?;
        self.out.flush()
    }
}

/// Makes payloads; reuses its memory from block to block.
struct BlockMaker {
    encoder: Encoder,
    table: CompressTable,
    unpacked: Vec<u8>,
    packed: Vec<u8>,
}

impl Default for BlockMaker {
    fn default() -> Self {
        Self {
            encoder: Encoder::default(),
            table: CompressTable::large(),
            unpacked: Vec::new(),
            packed: Vec::new(),
        }
    }
}

struct Payload<'a> {
    bytes: &'a [u8],
    compressed: bool,
    unpacked_len: usize,
}

impl Payload<'_> {
    /// A header with the fields that every payload has.
    fn header(&self, holds: Holds, base: Monotonic) -> BlockHeader {
        BlockHeader {
            holds,
            compressed: self.compressed,
            cpu: 0,
            events: 0,
            packed_len: self.bytes.len() as u32,
            unpacked_len: self.unpacked_len as u32,
            checksum: checksum(self.bytes),
            base: base.nanos_since_boot(),
            first: 0,
            last: 0,
            events_before: 0,
            settled: 0,
        }
    }
}

impl BlockMaker {
    fn events(&mut self, events: &[PackedEvent], first: u64) -> Payload<'_> {
        self.unpacked.clear();
        self.encoder.encode(events, first, &mut self.unpacked);
        self.compress()
    }

    fn text(&mut self, text: Vec<u8>) -> Payload<'_> {
        self.unpacked = text;
        self.compress()
    }

    fn compress(&mut self) -> Payload<'_> {
        let unpacked_len = self.unpacked.len();
        let room = get_maximum_output_size(unpacked_len);
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        let packed = compress_into_with_table(&self.unpacked, &mut self.packed, &mut self.table);
        match packed {
            Ok(len) if len < unpacked_len => Payload {
                bytes: &self.packed[..len],
                compressed: true,
                unpacked_len,
            },
            _ => Payload {
                bytes: &self.unpacked,
                compressed: false,
                unpacked_len,
            },
        }
    }
}

/// Writes a recording of events that are in order of time, each with its CPU.
pub(super) fn write_in_order(
    out: impl Write,
    base: Monotonic,
    (context, lost): (&RecordingContext, LostEvents),
    events: impl Iterator<Item = (PackedEvent, u16)>,
) -> io::Result<()> {
    let mut writer = RecordingWriter::new(out, base, context)?;
    // in windows of time, so that a reader need not hold the events of one CPU while it waits for
    // those of another
    let mut end = Nanos::ZERO;
    for (event, cpu) in events {
        if event.since_base() >= end {
            writer.settle(end)?;
            end = event.since_base() + BLOCK_SPAN;
        }
        writer.take(cpu, &[event])?;
    }
    writer.finish(context, lost)?;
    Ok(())
}

impl Recording {
    /// Writes the recording as a file; `out` need not be buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut events = self.events();
        let events = std::iter::from_fn(|| events.next_packed());
        write_in_order(out, self.base, (&self.context, self.lost), events)
    }
}
