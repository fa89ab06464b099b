//! Where drained events wait until somebody has the time to pass them on: memory that is allocated before they come.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use taillab_model::{EventSink, Nanos, PackedEvent};

/// Events in a chunk: 1 MiB.
const CHUNK_EVENTS: usize = 65_536;

/// A reservation may take this part (1/N) of the memory that is available.
const PART_OF_AVAILABLE: u64 = 2;

/// What is passed on at a time: so short that a reader need not hold the events of one CPU while it waits for those
/// of another.
const WINDOW: Nanos = Nanos::from_millis(50);

/// After this time an event is assumed to be in its ring.
///
/// A program first reads the clock and then takes its place in the ring; an interrupt or
/// the hypervisor may delay it in between. An event that comes even later is kept and counts as
/// late.
pub(crate) const SLACK: Nanos = Nanos::from_secs(1);

/// The events of all CPUs, each CPU's in the order in which they came.
pub(crate) struct Store {
    /// The chunks of each CPU, the oldest first.
    streams: Vec<VecDeque<ChunkMemory>>,
    /// Empty chunks, touched already.
    free: Vec<ChunkMemory>,
    /// Room was made for the events that were expected.
    reserved: bool,
}

impl Store {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            streams: (0..cpus).map(|_| VecDeque::new()).collect(),
            free: Vec::new(),
            reserved: false,
        }
    }

    /// Makes room for this many more events, however they are distributed over `busy_cpus` CPUs, or for as many
    /// as half of the available memory holds.
    pub(crate) fn reserve(&mut self, events: u64, busy_cpus: usize) -> io::Result<()> {
        self.reserve_within(events, busy_cpus, available_memory()? / PART_OF_AVAILABLE)
    }

    fn reserve_within(&mut self, events: u64, busy_cpus: usize, bytes: u64) -> io::Result<()> {
        // the kernel promises more memory than it has, and kills the process later
        let most = (bytes / BLOCK_BYTES as u64).max(1 + busy_cpus as u64);
        let wanted = events.div_ceil(CHUNK_EVENTS as u64) + busy_cpus as u64;
        let wanted = wanted.min(most) as usize;
        while self.free.len() < wanted {
            self.free.push(ChunkMemory::new()?);
        }
        for stream in &mut self.streams {
            stream.reserve(wanted);
        }
        self.reserved = true;
        Ok(())
    }

    /// Room for events of this CPU: its last chunk, a reserved one or, with a system call, a new one.
    ///
    /// `None` when there is no memory.
    #[inline]
    pub(crate) fn appender(&mut self, cpu: usize) -> Option<&mut ChunkMemory> {
        let chunks = &mut self.streams[cpu];
        if chunks.back().is_none_or(|last| last.room() == 0) {
            let chunk = match self.free.pop() {
                Some(chunk) => chunk,
                // more events than were reserved: allocating now is better than losing them
                None => ChunkMemory::new().ok()?,
            };
            chunks.push_back(chunk);
        }
        chunks.back_mut()
    }

    /// Whether all of the room that was made is used.
    pub(crate) fn is_full(&self) -> bool {
        self.reserved && self.free.is_empty()
    }

    /// Passes the events of the oldest [`WINDOW`] to the sink and keeps their memory; says whether there were any.
    pub(crate) fn pass_on(&mut self, sink: &mut (impl EventSink + ?Sized)) -> io::Result<bool> {
        let firsts = (self.streams.iter()).filter_map(|chunks| chunks.front()?.events().first());
        let Some(oldest) = firsts.map(|event| event.since_base()).min() else {
            return Ok(false);
        };
        let end = oldest + WINDOW;
        // Linux has at most 8,192 CPUs
        for (cpu, chunks) in (0..).zip(&mut self.streams) {
            while let Some(chunk) = chunks.front_mut() {
                sink.take(cpu, chunk.pass_until(end))?;
                if !chunk.events().is_empty() {
                    break;
                }
                let chunk = chunks.pop_front().map(ChunkMemory::emptied);
                self.free.extend(chunk);
            }
        }
        sink.settle(end.saturating_sub(SLACK))?;
        Ok(true)
    }

    /// As [`Self::pass_on`] for all events, but frees their memory.
    pub(crate) fn pass_all_on(&mut self, sink: &mut (impl EventSink + ?Sized)) -> io::Result<()> {
        while self.pass_on(sink)? {
            self.free.clear();
        }
        *self = Self::new(self.streams.len());
        Ok(())
    }

    /// Drops all events and keeps the memory.
    pub(crate) fn clear(&mut self) {
        let chunks = self.streams.iter_mut().flat_map(|chunks| chunks.drain(..));
        self.free.extend(chunks.map(ChunkMemory::emptied));
    }
}

/// Bytes that are available without swapping.
fn available_memory() -> io::Result<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let available = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok(available.saturating_mul(1024))
}

/// A chunk's memory, mapped directly so that freeing it returns it to the system, whatever the
/// allocator's policy.
pub(crate) struct ChunkMemory {
    start: NonNull<PackedEvent>,
    /// The events before this place have been passed on.
    passed: usize,
    /// Events that were pushed, at most [`CHUNK_EVENTS`].
    len: usize,
}

const BLOCK_BYTES: usize = CHUNK_EVENTS * size_of::<PackedEvent>();

// SAFETY: it owns its memory, which holds plain values.
unsafe impl Send for ChunkMemory {}

impl ChunkMemory {
    fn new() -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                BLOCK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                // touched now, not while a sender waits
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            passed: 0,
            len: 0,
        })
    }

    fn emptied(mut self) -> Self {
        (self.passed, self.len) = (0, 0);
        self
    }

    /// How many events can be pushed.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        CHUNK_EVENTS - self.len
    }

    /// Appends an event; drops it if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, event: PackedEvent) {
        if self.len < CHUNK_EVENTS {
            // SAFETY: within the mapping, which self owns.
            unsafe { self.start.as_ptr().add(self.len).write(event) };
            self.len += 1;
        }
    }

    /// The events that have not been passed on.
    fn events(&self) -> &[PackedEvent] {
        // SAFETY: the first `len` events were written by push, and `passed` is at most `len`.
        unsafe {
            let first = self.start.as_ptr().add(self.passed);
            std::slice::from_raw_parts(first, self.len - self.passed)
        }
    }

    /// The events up to the first one that is not before `end`, which count as passed on.
    fn pass_until(&mut self, end: Nanos) -> &[PackedEvent] {
        let events = self.events();
        let later = events.iter().position(|event| event.since_base() >= end);
        let passed = later.unwrap_or(events.len());
        let from = self.passed;
        self.passed += passed;
        // SAFETY: as above; the places from `from` to `passed` are of events that were written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(from), passed) }
    }
}

impl Drop for ChunkMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length and no reference outlives self. It
        // cannot fail with these arguments, and nothing could be done if it did.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), BLOCK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use taillab_model::{EventKind, Recording};

    fn event(at: u64, tid: u32) -> PackedEvent {
        PackedEvent::new(Nanos::new(at), EventKind::WriteCalled { tid })
    }

    fn push(store: &mut Store, cpu: usize, event: PackedEvent) {
        let appender = store.appender(cpu).unwrap();
        assert!(appender.room() > 0);
        appender.push(event);
    }

    /// What a sink gets of the store, by CPU.
    fn passed(mut store: Store) -> Vec<Vec<(u64, EventKind)>> {
        let mut recording = Recording::default();
        store.pass_all_on(&mut recording).unwrap();
        assert!(store.free.is_empty() && store.streams.iter().all(VecDeque::is_empty));
        let of = |stream: &taillab_model::CpuStream| {
            let events = stream.events().iter();
            events.map(|e| (e.since_base().get(), e.kind())).collect()
        };
        recording.streams.iter().map(of).collect()
    }

    /// What it takes and when it is settled.
    #[derive(Default)]
    struct Log {
        windows: Vec<Vec<(u16, u64)>>,
        settled: Nanos,
    }

    impl EventSink for Log {
        fn take(&mut self, cpu: u16, events: &[PackedEvent]) -> io::Result<()> {
            if self.windows.is_empty() {
                self.windows.push(Vec::new());
            }
            let events = events.iter().map(|event| event.since_base());
            for at in events {
                assert!(at >= self.settled);
                self.windows.last_mut().unwrap().push((cpu, at.get()));
            }
            Ok(())
        }

        fn settle(&mut self, before: Nanos) -> io::Result<()> {
            self.settled = before;
            self.windows.push(Vec::new());
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_an_interrupt_disordered_is_put_in_order(
            steps in prop::collection::vec((0_u64..50_000_000, 0_u64..200), 1..400)
        ) {
            let mut store = Store::new(1);
            let mut now = 1_000;
            let mut expected = Vec::new();
            for (tid, (step, back)) in (0..).zip(steps) {
                now += step;
                let e = event(now - back, tid);
                push(&mut store, 0, e);
                expected.push((now - back, e.kind()));
            }
            // stable: events at the same time keep the order in which they came
            expected.sort_by_key(|&(at, _)| at);
            prop_assert_eq!(passed(store), vec![expected]);
        }
    }

    #[test]
    fn all_cpus_are_passed_on_window_by_window() {
        let mut store = Store::new(3);
        let second = 1_000_000_000;
        // CPU 2 recorded more than a chunk at once, the others something now and then
        for i in 0..CHUNK_EVENTS as u64 + 10 {
            push(&mut store, 2, event(3 * second + i, 0));
        }
        push(&mut store, 0, event(5, 0));
        push(&mut store, 0, event(3 * second, 0));
        push(&mut store, 1, event(9 * second, 0));
        let mut log = Log::default();
        store.pass_all_on(&mut log).unwrap();
        let sizes: Vec<usize> = log.windows.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, CHUNK_EVENTS + 11, 1, 0]);
        assert_eq!(log.windows[1][0], (0, 3 * second));
        assert_eq!(log.settled, Nanos::from_secs(8) + WINDOW);
    }

    #[test]
    fn reserved_chunks_are_enough_and_used_again() {
        let mut store = Store::new(3);
        let events = 2 * CHUNK_EVENTS as u64 + 1;
        assert!(!store.is_full());
        store.reserve(events, 2).unwrap();
        for _ in 0..2 {
            for i in 0..events {
                push(&mut store, (i % 2) as usize, event(i, 0));
            }
            // 2 chunks are full and 1 is begun, of the 5 reserved
            assert_eq!(store.free.len(), 2);
            store.clear();
            assert_eq!(store.free.len(), 5);
        }
        assert!(passed(store).is_empty());
    }

    #[test]
    fn a_full_store_passes_its_oldest_events_on_and_has_room_again() {
        let mut store = Store::new(1);
        store
            .reserve_within(u64::MAX / 2, 1, 3 * BLOCK_BYTES as u64)
            .unwrap();
        assert_eq!(store.free.len(), 3);
        let (window, mut at, mut log) = (WINDOW.get(), 0, Log::default());
        while !store.is_full() {
            push(&mut store, 0, event(at, 0));
            // six windows in a chunk
            at += 6 * window / CHUNK_EVENTS as u64;
        }
        let mut windows = 0;
        while store.is_full() {
            assert!(store.pass_on(&mut log).unwrap());
            windows += 1;
        }
        assert!((6..=7).contains(&windows), "{windows}");
        assert_eq!(store.free.len(), 1);
        assert!(log.windows.concat().is_sorted());
    }

    #[test]
    fn more_than_there_is_is_not_tried() {
        let mut store = Store::new(1);
        for events in [1 << 40, u64::MAX - 1] {
            store.reserve_within(events, 2, 0).unwrap();
            assert_eq!(store.free.len(), 3);
        }
        assert!(available_memory().unwrap() > 0);
    }

    #[test]
    fn without_a_reservation_events_are_kept_all_the_same() {
        let mut store = Store::new(1);
        push(&mut store, 0, event(1, 0));
        assert!(!store.is_full());
        assert_eq!(passed(store)[0].len(), 1);
    }
}
