//! The one way of a recording: what `run` and `trace` write while they record, and what every analysis reads.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use taillab_host::{Roots, available_memory, disk};
use taillab_model::{Event, RecordingError, RecordingReader};

/// What is allocated at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// The recording of a load of our own may take this part (1/N) of the memory that is available.
const PART_OF_AVAILABLE: u64 = 4;
/// What every machine can give.
const LEAST_OF_LOAD: u64 = 4 << 20;
/// The memory for the recording of a server that others use. They need theirs, and it may be watched for hours.
const OF_LIVE_SERVER: u64 = 32 << 20;

/// A recording (see [`taillab_model::RecordingWriter`]): in memory up to a limit, and after that in a file that nobody
/// else can open and that disappears with it. Or in a file from the start, where it is to be kept.
///
/// A kernel event takes about 2 bytes of it, a request 15 to 50.
pub struct Spool {
    /// All of them full, except for the last.
    memory: Vec<Vec<u8>>,
    /// The bytes in memory.
    in_memory: u64,
    limit: u64,
    file: Option<File>,
    /// The folder for the file, where there is none yet.
    folder: PathBuf,
    /// Bytes that were written to the file.
    in_file: u64,
    /// Why something could not be written to the file. Nothing more is then written there: a part would be taken for
    /// all of it.
    failure: Option<String>,
    /// What came after that is kept in memory, so that the recording has an end. Whoever makes it asks for the failure
    /// and stops soon.
    keeps_end: bool,
    end: Vec<u8>,
    /// Events that became known after it was written.
    added: Vec<Event>,
}

impl Spool {
    /// For a load of our own: nothing is written to the disk while it runs, unless a quarter of the memory that is
    /// available now does not suffice.
    pub fn of_load(roots: &Roots) -> Self {
        let available = available_memory(roots).unwrap_or(0);
        let limit = (available / PART_OF_AVAILABLE).max(LEAST_OF_LOAD);
        Self::within(limit, std::env::temp_dir()).with_end()
    }

    /// For a server that others use.
    pub fn of_live_server() -> Self {
        Self::within(OF_LIVE_SERVER, std::env::temp_dir()).with_end()
    }

    /// If its disk is full, what comes then is kept in memory.
    const fn with_end(mut self) -> Self {
        self.keeps_end = true;
        self
    }

    /// Why nothing more can be written to the disk; `None` as long as that is possible, or no disk is needed.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// How many bytes of a recording of this length are missing in memory and on the disk; 0 if there is enough room.
    /// `None` where the disk does not say how much is free.
    pub fn lacks(&self, bytes: u64) -> Option<u64> {
        let on_disk = bytes.saturating_sub(self.limit);
        if on_disk == 0 {
            return Some(0);
        }
        let folder = File::open(&self.folder).ok()?;
        let free = disk::free_bytes(folder).ok()?;
        Some(on_disk.saturating_sub(free))
    }

    /// The folder for what does not fit into memory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// In this file, which is to be kept or is a recording already.
    pub fn in_file(file: File) -> Self {
        Self {
            file: Some(file),
            ..Self::within(0, PathBuf::new())
        }
    }

    /// With this limit, and its file in this folder.
    pub(super) fn within(limit: u64, folder: PathBuf) -> Self {
        Self {
            memory: Vec::new(),
            in_memory: 0,
            limit,
            file: None,
            folder,
            in_file: 0,
            failure: None,
            keeps_end: false,
            end: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Adds events that became known only after it was written, in any order; they are read at their times.
    pub fn add(&mut self, events: impl IntoIterator<Item = Event>) {
        self.added.extend(events);
    }

    /// Frees its memory, and closes its file.
    pub(super) fn clear(&mut self) {
        *self = Self::within(0, PathBuf::new());
    }

    /// The bytes that are in memory.
    #[cfg(test)]
    pub(super) const fn in_memory(&self) -> u64 {
        self.in_memory
    }

    /// The file, where there is one.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Bytes that were written to the disk.
    pub fn written_to_disk(&self) -> u64 {
        self.in_file
    }

    /// Reads it from its start. The end has been read already: its context is complete.
    ///
    /// # Errors
    /// [`RecordingError`], but not for damage after the first bytes.
    pub fn read(&self) -> Result<RecordingReader<SpoolReader<'_>>, RecordingError> {
        let input = SpoolReader { spool: self, at: 0 };
        let mut reader = RecordingReader::open_whole(input)?;
        reader.insert(self.added.iter().copied());
        Ok(reader)
    }

    /// Writes it as a file, with the events that were added.
    ///
    /// # Errors
    /// When it cannot be written, or not be read.
    pub fn write_to(&self, out: impl Write) -> io::Result<()> {
        self.read().map_err(io::Error::other)?.write(out)
    }

    /// Takes as many bytes into memory as fit.
    fn keep(&mut self, bytes: &[u8]) -> usize {
        let fits = usize::try_from(self.limit - self.in_memory).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(fits)];
        if self
            .memory
            .last()
            .is_none_or(|last| last.len() == BLOCK_BYTES)
            && !bytes.is_empty()
        {
            self.memory.push(Vec::with_capacity(BLOCK_BYTES));
        }
        let Some(last) = self.memory.last_mut() else {
            return 0;
        };
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES - last.len())];
        last.extend_from_slice(bytes);
        self.in_memory += bytes.len() as u64;
        bytes.len()
    }

    fn keep_end(&mut self, bytes: &[u8]) -> usize {
        self.end.extend_from_slice(bytes);
        bytes.len()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(unnamed_file(&self.folder)?),
        };
        let written = file.write(bytes)?;
        self.in_file += written as u64;
        Ok(written)
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_some() {
            return match self.keeps_end {
                true => Ok(self.keep_end(bytes)),
                false => Err(io::Error::other("a part of it could not be written")),
            };
        }
        if self.in_memory < self.limit {
            return Ok(self.keep(bytes));
        }
        match self.append(bytes) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failure = Some(error.to_string());
                match self.keeps_end {
                    true => Ok(self.keep_end(bytes)),
                    false => Err(error),
                }
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}

/// A file that nobody else can open and that disappears with its last descriptor.
fn unnamed_file(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(error) => Err(io::Error::other(format!(
            "cannot make a temporary file in {}: {error}; name another folder in TMPDIR",
            folder.display()
        ))),
    }
}

/// Reads a [`Spool`]; there may be several readers, in several processes.
pub struct SpoolReader<'s> {
    spool: &'s Spool,
    /// The next byte.
    at: u64,
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let spool = self.spool;
        let read = match (self.at.checked_sub(spool.in_memory), &spool.file) {
            (None, _) => {
                let place = self.at as usize;
                let block = &spool.memory[place / BLOCK_BYTES][place % BLOCK_BYTES..];
                let bytes = block.len().min(out.len());
                out[..bytes].copy_from_slice(&block[..bytes]);
                bytes
            }
            (Some(place), _) if spool.failure.is_some() && place >= spool.in_file => {
                let left = (spool.end).get((place - spool.in_file) as usize..);
                left.unwrap_or_default().read(out)?
            }
            // not from the file's position, which processes share
            (Some(place), Some(file)) => file.read_at(out, place)?,
            (Some(_), None) => 0,
        };
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for SpoolReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = || match &self.spool.file {
            _ if self.spool.failure.is_some() => {
                let spool = self.spool;
                Ok(spool.in_memory + spool.in_file + spool.end.len() as u64)
            }
            Some(file) => Ok(self.spool.in_memory + (&*file).seek(SeekFrom::End(0))?),
            None => Ok::<_, io::Error>(self.spool.in_memory),
        };
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end()?.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{
        EventKind, EventSink, LostEvents, Monotonic, Nanos, PackedEvent, RecordingContext,
        RecordingWriter,
    };

    use super::*;

    const EVENTS: u64 = 1_000_000;

    /// An event that does not compress well.
    fn event(n: u64) -> PackedEvent {
        // multiplicative hashing, twice: nothing repeats
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let some = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33;
        let at = Nanos::new(n * 1_000 + some % 900);
        PackedEvent::new(
            at,
            EventKind::WriteCalled {
                tid: some as u32 >> 1,
            },
        )
    }

    /// Writes many events; returns what was in memory and on the disk after each part.
    fn recorded(spool: Spool, folder: &Path) -> (Spool, Vec<(u64, u64)>) {
        let base = Monotonic::from_nanos_since_boot(5);
        let context = RecordingContext::default();
        let mut writer = RecordingWriter::new(spool, base, &context).unwrap();
        let mut sizes = Vec::new();
        for part in 0..EVENTS / 1_000 {
            let events: Vec<PackedEvent> = (part * 1_000..(part + 1) * 1_000).map(event).collect();
            writer.take(3, &events).unwrap();
            writer.settle(events[0].since_base()).unwrap();
            let spool = writer.out();
            let memory: usize = spool.memory.iter().map(Vec::capacity).sum();
            sizes.push((memory as u64, spool.written_to_disk()));
        }
        // the file has no name
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
        let known = RecordingContext {
            server: "of the end".to_owned(),
            ..context
        };
        (writer.finish(&known, LostEvents::default()).unwrap(), sizes)
    }

    fn check(spool: &Spool) {
        let mut reader = spool.read().unwrap();
        assert_eq!(reader.context().server, "of the end");
        let base = reader.base();
        let read = reader.by_ref().map(|event| (event.at, event.kind));
        let expected = (0..EVENTS).map(event);
        assert!(read.eq(expected.map(|event| (base + event.since_base(), event.kind()))));
        assert_eq!(reader.damage(), None);
    }

    #[test]
    fn what_is_partly_in_memory_and_partly_in_a_file_comes_back_and_takes_no_more_memory() {
        let folder = tempfile::tempdir().unwrap();
        // a part of a block
        let limit = 2 * BLOCK_BYTES as u64 + 12_345;
        let spool = Spool::within(limit, folder.path().to_owned());
        let (spool, sizes) = recorded(spool, folder.path());
        assert!(
            spool.written_to_disk() > limit,
            "{}",
            spool.written_to_disk()
        );
        assert_eq!(spool.in_memory, limit);
        let most = sizes.iter().map(|(memory, _)| *memory).max().unwrap();
        assert!(most <= limit + BLOCK_BYTES as u64, "{most}");
        check(&spool);
        // once more, and while another one reads
        let mut other = spool.read().unwrap();
        assert!(other.next().is_some());
        check(&spool);
        assert_eq!(other.count() as u64, EVENTS - 1);
    }

    #[test]
    fn below_the_limit_nothing_is_written_to_the_disk() {
        // a file could not even be made
        let nowhere = PathBuf::from("/nonexistent");
        let folder = tempfile::tempdir().unwrap();
        let (spool, sizes) = recorded(Spool::within(1 << 30, nowhere), folder.path());
        assert!(sizes.iter().all(|(_, disk)| *disk == 0));
        assert!(spool.file().is_none());
        check(&spool);
        assert!(Spool::of_load(&Roots::default()).limit >= LEAST_OF_LOAD);
    }

    #[test]
    fn a_file_that_is_kept_has_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        let (spool, _) = recorded(Spool::in_file(file.try_clone().unwrap()), folder.path());
        assert_eq!(spool.memory.len(), 0);
        check(&spool);
        check(&Spool::in_file(file));
    }

    #[test]
    fn what_could_not_be_written_fails_to_the_end() {
        let mut spool = Spool::within(10, PathBuf::from("/nonexistent"));
        assert_eq!(spool.write(&[7; 20]).unwrap(), 10);
        let error = spool.write(&[7; 10]).unwrap_err();
        assert!(error.to_string().contains("TMPDIR"), "{error}");
        spool.folder = std::env::temp_dir();
        assert!(spool.write(&[7; 10]).is_err());
    }

    /// A file system with room for 1 MiB.
    fn full_disk() -> Option<File> {
        let disk = rustix::fs::memfd_create("full", rustix::fs::MemfdFlags::ALLOW_SEALING).ok()?;
        let disk = File::from(disk);
        disk.set_len(1 << 20).ok()?;
        rustix::fs::fcntl_add_seals(&disk, rustix::fs::SealFlags::GROW).ok()?;
        Some(disk)
    }

    #[test]
    fn a_recording_whose_disk_is_full_has_all_that_came_before_and_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let limit = BLOCK_BYTES as u64 + 77;
        let mut spool = Spool::within(limit, folder.path().to_owned()).with_end();
        spool.file = Some(full_disk().unwrap());
        assert_eq!(spool.failure(), None);
        // nobody looks at the failure here, so all is kept
        let (spool, _) = recorded(spool, folder.path());
        assert!(
            spool.failure().unwrap().contains("not permitted"),
            "{:?}",
            spool.failure()
        );
        assert_eq!((spool.in_memory, spool.in_file), (limit, 1 << 20));
        assert!(spool.end.len() > 1 << 20);
        check(&spool);
        let mut copy = Vec::new();
        spool.write_to(&mut copy).unwrap();
        assert!(copy.len() as u64 > limit + (2 << 20));
        // where not even a file can be made
        let nowhere = Spool::within(limit, PathBuf::from("/nonexistent")).with_end();
        let (spool, _) = recorded(nowhere, folder.path());
        assert!(spool.failure().unwrap().contains("TMPDIR"));
        check(&spool);
    }

    #[test]
    fn the_room_for_a_recording_is_that_in_memory_and_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::within(1 << 20, folder.path().to_owned());
        assert_eq!(spool.lacks(1 << 20), Some(0));
        assert!(spool.lacks(1 << 60).unwrap() > 1 << 59);
        let nowhere = Spool::within(1 << 20, PathBuf::from("/nonexistent"));
        assert_eq!(
            (nowhere.lacks(1 << 20), nowhere.lacks(2 << 20)),
            (Some(0), None)
        );
    }

    #[test]
    fn events_that_are_added_are_read_and_copied() {
        let context = RecordingContext::default();
        let base = Monotonic::from_nanos_since_boot(5);
        let mut writer =
            RecordingWriter::new(Spool::within(1 << 20, PathBuf::new()), base, &context).unwrap();
        writer.take(0, &[event(1), event(9)]).unwrap();
        let mut spool = writer.finish(&context, LostEvents::default()).unwrap();
        let kind = EventKind::Stalled {
            lasted: Nanos::new(3),
        };
        spool.add([9, 4].map(|n| Event {
            at: base + event(n).since_base(),
            cpu: 1,
            kind,
        }));
        let ends: Vec<Monotonic> = [1, 4, 9, 9].map(|n| base + event(n).since_base()).to_vec();
        let times = |spool: &Spool| -> Vec<Monotonic> {
            spool.read().unwrap().map(|event| event.at).collect()
        };
        assert_eq!(times(&spool), ends);
        let file = tempfile::tempfile().unwrap();
        spool.write_to(&file).unwrap();
        assert_eq!(times(&Spool::in_file(file)), ends);
    }
}
