//! Reading a recording: event by event, or completely into memory.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, Write};

use super::blocks::{self, Blocks, Item, Wrong};
use super::format::{BlockHeader, Footer};
use super::merge::Merge;
use super::queue::BlockQueue;
use super::writer::write_in_order;
use super::{
    CpuStream, Damage, Gap, LostEvents, PackedEvent, RecordedEvent, Recording, RecordingContext,
    RecordingError,
};
use crate::{Event, Monotonic, Nanos};

/// Compressed bytes that may wait for the events of other CPUs; an intact recording stays far below.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Unpacked events of all CPUs that may wait beyond one block each; an intact recording has a block or two.
const MAX_UNPACKED_EVENTS: usize = 1 << 22;

/// The events of a file in order of time, in bounded memory.
///
/// Where the file is damaged it continues after the damage; when there are no more events,
/// [`RecordingReader::damage`] says what is missing.
pub struct RecordingReader<R> {
    blocks: Blocks<R>,
    pub(super) merge: Merge<BlockQueue>,
    /// The rest of the file has no event before this time.
    settled: u64,
    /// The footer, or the end of the file, has been read.
    ended: bool,
    context: RecordingContext,
    lost: LostEvents,
    accounts: Accounts,
    failure: Option<io::Error>,
    base: Monotonic,
    read: u64,
    /// Events that the file does not have, in order of time.
    inserted: VecDeque<RecordedEvent>,
    /// Events before this time come before the next of them; [`u64::MAX`] if there is none.
    inserted_after: u64,
}

impl<R: Read> RecordingReader<R> {
    /// Opens a file; `input` need not be buffered.
    ///
    /// # Errors
    /// [`RecordingError`], but not for damage after the first bytes.
    pub fn open(input: R) -> Result<Self, RecordingError> {
        let (blocks, context) = blocks::open(input)?;
        let mut reader = Self {
            base: Monotonic::from_nanos_since_boot(blocks.base.unwrap_or(0)),
            blocks,
            merge: Merge::new(Vec::new()),
            settled: 0,
            ended: false,
            context,
            lost: LostEvents::default(),
            accounts: Accounts::default(),
            failure: None,
            read: 0,
            inserted: VecDeque::new(),
            inserted_after: u64::MAX,
        };
        // where the header is damaged, the first block has the base
        reader.read_block();
        Ok(reader)
    }

    /// What is known besides the events: at first what the recorder knew when it began; after
    /// the last event, everything.
    pub fn context(&self) -> &RecordingContext {
        &self.context
    }

    /// What the events' times count from.
    pub fn base(&self) -> Monotonic {
        self.base
    }

    /// What is missing; complete after the last event.
    pub fn lost(&self) -> LostEvents {
        LostEvents {
            damaged: self.lost.damaged.saturating_add(self.accounts.lost()),
            ..self.lost
        }
    }

    /// What could not be read; complete after the last event.
    pub fn damage(&self) -> Option<Damage> {
        self.accounts.damage(self.blocks.wrong, self.read)
    }

    /// Why there are no more events, where reading the file failed.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    /// Takes the next block, or notes that there is none.
    fn read_block(&mut self) {
        let item = self.blocks.next().unwrap_or_else(|error| {
            self.failure = Some(error);
            Item::CutOff
        });
        self.base = Monotonic::from_nanos_since_boot(self.blocks.base.unwrap_or(0));
        match item {
            Item::Events(header, payload) => self.take_block(header, payload),
            Item::Footer(footer) => {
                self.accounts.close(&footer, self.base, &mut self.blocks);
                self.context = footer.context;
                self.lost = footer.lost;
                (self.settled, self.ended) = (u64::MAX, true);
            }
            // the end, where it has been read already, knows more than the middle
            Item::Losses(lost) => self.lost = self.lost.max(lost),
            Item::CutOff => {
                self.accounts.cut_off = true;
                self.blocks.note("its end is missing");
                (self.settled, self.ended) = (u64::MAX, true);
            }
        }
        self.note_unreadable();
    }

    /// Takes note of the blocks that were unpacked since and whose contents could not be read.
    fn note_unreadable(&mut self) {
        for queue in self.merge.streams_mut() {
            for (header, what) in queue.unreadable.drain(..) {
                self.blocks.note(what);
                self.accounts.forget(&header, self.base);
            }
        }
    }

    fn take_block(&mut self, header: BlockHeader, payload: Vec<u8>) {
        let lost = self.accounts.enter(&header, self.base, &mut self.blocks);
        if let Some(lost) = lost {
            let queues = self.merge.streams_mut();
            let index = usize::from(header.cpu);
            if queues.len() <= index {
                queues.resize_with(index + 1, BlockQueue::default);
                let share = MAX_UNPACKED_EVENTS / queues.len();
                let last_kind = self.blocks.version.last_kind();
                for queue in queues.iter_mut() {
                    (queue.most_unpacked, queue.last_kind) = (share, last_kind);
                }
            }
            queues[index].push(header, payload, lost);
        }
        self.settled = self.settled.max(header.settled);
        self.merge.look_again();
        let queues = self.merge.streams();
        let waiting: usize = queues.iter().map(|queue| queue.bytes).sum();
        if waiting > MAX_WAITING_BYTES {
            let lasts = queues.iter().filter_map(BlockQueue::first_last);
            self.settled = self.settled.max(lasts.min().map_or(0, |last| last + 1));
        }
    }

    /// Adds events that the file does not have, in any order, before the first event is read. Each comes at its time,
    /// after events of the file with the same time.
    ///
    /// An event before the recording's base counts as at the base.
    pub fn insert(&mut self, events: impl IntoIterator<Item = Event>) {
        let base = self.base;
        self.inserted.extend(events.into_iter().map(|event| {
            let packed = PackedEvent::new(event.at.saturating_since(base), event.kind);
            RecordedEvent::new(packed, base, event.cpu)
        }));
        (self.inserted.make_contiguous()).sort_by_key(|event| (event.at(), event.cpu()));
        self.look_at_inserted();
    }

    fn look_at_inserted(&mut self) {
        let after = |event: &RecordedEvent| event.packed().since_base().get() + 1;
        self.inserted_after = self.inserted.front().map_or(u64::MAX, after);
    }

    /// The next inserted event, if every earlier one has been returned.
    #[cold]
    fn next_inserted(&mut self) -> Option<RecordedEvent> {
        if self.inserted_after > self.settled {
            return None;
        }
        let event = self.inserted.pop_front();
        self.look_at_inserted();
        event
    }

    /// Writes all events, those that were inserted as well, as another file; `out` need not be buffered. To state what
    /// is known at the end, it must have been opened with [`RecordingReader::open_whole`].
    ///
    /// # Errors
    /// When it cannot be written, or this file cannot be read.
    pub fn write(mut self, out: impl Write) -> io::Result<()> {
        let (base, context, lost) = (self.base, self.context.clone(), self.lost());
        let events = (self.recorded()).map(|event| (event.packed(), event.cpu()));
        write_in_order(out, base, (&context, lost), events)?;
        self.failure.map_or(Ok(()), Err)
    }

    /// The events in order of time, as they were recorded.
    pub fn recorded(&mut self) -> Recorded<'_, R> {
        Recorded(self)
    }

    #[inline]
    fn next_recorded(&mut self) -> Option<RecordedEvent> {
        loop {
            let before = self.settled.min(self.inserted_after);
            if let Some((event, cpu)) = self.merge.next_before(before) {
                // the index is the CPU's number
                let event = RecordedEvent::new(event, self.base, cpu as u16);
                self.read += u64::from(!event.is_of_reader());
                return Some(event);
            }
            if let Some(event) = self.next_inserted() {
                return Some(event);
            }
            if self.ended {
                // most blocks are unpacked when the end has been read already
                self.note_unreadable();
                return None;
            }
            self.read_block();
        }
    }
}

impl<R: Read + Seek> RecordingReader<R> {
    /// Opens a file and reads its end first, so that [`RecordingReader::context`] and the
    /// recorder's own losses are complete at once, unless the end is damaged.
    ///
    /// # Errors
    /// As [`RecordingReader::open`].
    pub fn open_whole(mut input: R) -> Result<Self, RecordingError> {
        let start = input.stream_position()?;
        let footer = blocks::footer_from_end(&mut input, start)?;
        input.seek(io::SeekFrom::Start(start))?;
        let mut reader = Self::open(input)?;
        if let Some(footer) = footer {
            reader.context = footer.context;
            reader.lost = footer.lost;
        }
        Ok(reader)
    }
}

impl<R: Read> Iterator for RecordingReader<R> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        self.next_recorded().map(Event::from)
    }
}

/// See [`RecordingReader::recorded`].
pub struct Recorded<'r, R>(&'r mut RecordingReader<R>);

impl<R: Read> Iterator for Recorded<'_, R> {
    type Item = RecordedEvent;

    #[inline]
    fn next(&mut self) -> Option<RecordedEvent> {
        self.0.next_recorded()
    }
}

/// How many events of each CPU have been read, and how many should have been.
#[derive(Default)]
struct Accounts {
    /// By CPU.
    seen: Vec<Seen>,
    gaps: Vec<Gap>,
    cut_off: bool,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    events: u64,
    /// When the last of them was, since the base.
    last: Option<u64>,
}

impl Accounts {
    fn of(&mut self, cpu: u16) -> &mut Seen {
        let index = usize::from(cpu);
        if self.seen.len() <= index {
            self.seen.resize(index + 1, Seen::default());
        }
        &mut self.seen[index]
    }

    /// Takes note of a block. Returns since when events before it are missing, if they are, or
    /// `None` if it cannot come next, because its events have been read already.
    fn enter<R: Read>(
        &mut self,
        header: &BlockHeader,
        base: Monotonic,
        blocks: &mut Blocks<R>,
    ) -> Option<Option<u64>> {
        let seen = self.of(header.cpu);
        let Some(missing) = header.events_before.checked_sub(seen.events) else {
            blocks.note("a block that was there already");
            return None;
        };
        let after = seen.last;
        seen.events = header.events_before.saturating_add(header.events.into());
        seen.last = Some(after.map_or(header.last, |last| last.max(header.last)));
        if missing > 0 {
            blocks.note("blocks are missing");
            self.gaps.push(Gap {
                cpu: header.cpu,
                after: since(base, after.unwrap_or(0)),
                until: Some(since(base, header.first)),
                events: missing,
            });
        }
        Some((missing > 0).then(|| after.unwrap_or(0)))
    }

    /// Takes note of a block whose contents could not be read.
    fn forget(&mut self, header: &BlockHeader, base: Monotonic) {
        self.gaps.push(Gap {
            cpu: header.cpu,
            after: since(base, header.first),
            until: Some(since(base, header.last)),
            events: header.events.into(),
        });
    }

    /// Compares what was read with what the footer says there should be.
    fn close<R: Read>(&mut self, footer: &Footer, base: Monotonic, blocks: &mut Blocks<R>) {
        for end in &footer.streams {
            let seen = *self.of(end.cpu);
            let missing = end.events.saturating_sub(seen.events);
            if missing > 0 {
                blocks.note("blocks are missing");
                self.gaps.push(Gap {
                    cpu: end.cpu,
                    after: since(base, seen.last.unwrap_or(0)),
                    until: None,
                    events: missing,
                });
            }
        }
    }

    fn lost(&self) -> u64 {
        Gap::events_of(&self.gaps)
    }

    fn damage(&self, wrong: Option<Wrong>, read: u64) -> Option<Damage> {
        let Wrong { what, at_byte } = wrong?;
        Some(Damage {
            what,
            at_byte,
            cut_off: self.cut_off,
            read,
            gaps: self.gaps.clone(),
        })
    }
}

fn since(base: Monotonic, ns: u64) -> Monotonic {
    base + Nanos::new(ns)
}

impl Recording {
    /// Reads a whole file; `input` need not be buffered.
    ///
    /// # Errors
    /// [`RecordingError`], also for a damaged file: see [`Recording::recover`].
    pub fn read(input: impl Read) -> Result<Self, RecordingError> {
        match Self::recover(input)? {
            (recording, None) => Ok(recording),
            (_, Some(damage)) => Err(RecordingError::Incomplete(damage)),
        }
    }

    /// Reads what can be read of a file, and says what could not; `input` need not be
    /// buffered.
    ///
    /// Events that are known to be gone are counted in [`LostEvents::damaged`].
    ///
    /// # Errors
    /// [`RecordingError`] when nothing can be recovered.
    pub fn recover(input: impl Read) -> Result<(Self, Option<Damage>), RecordingError> {
        let mut reader = RecordingReader::open(input)?;
        let mut by_cpu: Vec<Vec<PackedEvent>> = Vec::new();
        for event in reader.recorded().filter(|event| !event.is_of_reader()) {
            let index = usize::from(event.cpu());
            if by_cpu.len() <= index {
                by_cpu.resize_with(index + 1, Vec::new);
            }
            by_cpu[index].push(event.packed());
        }
        if let Some(error) = reader.failure.take() {
            return Err(error.into());
        }
        let (lost, damage) = (reader.lost(), reader.damage());
        let streams = (0..).zip(by_cpu).filter(|(_, events)| !events.is_empty());
        let stream = |(cpu, mut events): (u16, Vec<PackedEvent>)| {
            // an event may come out late where a damaged file makes others wait too long
            events.sort_by_key(|event| event.since_base());
            CpuStream::new(cpu, events)
        };
        let recording = Self {
            base: reader.base,
            streams: streams.map(stream).collect(),
            lost,
            context: reader.context,
        };
        Ok((recording, damage))
    }
}
