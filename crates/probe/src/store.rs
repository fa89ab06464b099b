//! Where drained events are kept: memory that is allocated before they come.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use taillab_model::{Chunk, CpuStream, PackedEvent};

/// Events in a chunk: 1 MiB.
const CHUNK_EVENTS: usize = 65_536;

/// The events of all CPUs, each CPU's in order of time.
pub(crate) struct Store {
    /// The chunks of each CPU.
    streams: Vec<Vec<ChunkMemory>>,
    /// Empty chunks, touched already.
    free: Vec<ChunkMemory>,
}

impl Store {
    pub(crate) fn new(cpus: usize) -> Self {
        Self {
            streams: (0..cpus).map(|_| Vec::new()).collect(),
            free: Vec::new(),
        }
    }

    /// Makes room for this many more events, however they are distributed
    /// over `busy_cpus` CPUs.
    pub(crate) fn reserve(&mut self, events: u64, busy_cpus: usize) -> io::Result<()> {
        let wanted = usize::try_from(events)
            .ok()
            .map(|events| events.div_ceil(CHUNK_EVENTS))
            .and_then(|chunks| chunks.checked_add(busy_cpus))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        // the kernel promises more memory than it has, and kills the process later
        let missing = wanted.saturating_sub(self.free.len());
        if missing.saturating_mul(BLOCK_BYTES) as u64 > available_memory()? {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        while self.free.len() < wanted {
            self.free.push(ChunkMemory::new()?);
        }
        for stream in &mut self.streams {
            stream.reserve(wanted);
        }
        Ok(())
    }

    /// Room for events of this CPU: in its last chunk, a reserved one or, with a system call, a new
    /// one.
    ///
    /// `None` when there is no memory.
    #[inline]
    pub(crate) fn appender(&mut self, cpu: usize) -> Option<Appender<'_>> {
        let blocks = &mut self.streams[cpu];
        if blocks.last().is_none_or(ChunkMemory::is_full) {
            let block = match self.free.pop() {
                Some(block) => block,
                // more events than were reserved: allocating now is better than losing them
                None => ChunkMemory::new().ok()?,
            };
            blocks.push(block);
        }
        Some(Appender { blocks })
    }

    /// Drops all events and keeps the memory.
    pub(crate) fn clear(&mut self) {
        for stream in &mut self.streams {
            for mut block in stream.drain(..) {
                block.len = 0;
                self.free.push(block);
            }
        }
    }

    /// The streams of the CPUs that have events; frees unused memory.
    pub(crate) fn into_streams(self) -> Vec<CpuStream> {
        let streams = self.streams.into_iter().enumerate();
        streams
            .filter(|(_, blocks)| !blocks.is_empty())
            .map(|(cpu, blocks)| {
                let chunk = |block| Arc::new(block) as Chunk;
                // Linux has at most 8,192 CPUs
                CpuStream::new(cpu as u16, blocks.into_iter().map(chunk).collect())
            })
            .collect()
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

/// The end of one CPU's stream, with room for at least one event.
pub(crate) struct Appender<'a> {
    blocks: &'a mut Vec<ChunkMemory>,
}

impl Appender<'_> {
    /// How many events can be pushed.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| CHUNK_EVENTS - block.len)
    }

    /// Appends an event; drops it if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, event: PackedEvent) {
        let Some(block) = self.blocks.last_mut() else {
            return;
        };
        let earlier = block
            .events()
            .last()
            .map(|last| last.since_base() > event.since_base());
        block.push(event);
        // an interrupt came between a program's read of the clock and its event
        if earlier != Some(false) {
            self.sort_last();
        }
    }

    /// Moves the last event back to its place in time.
    #[cold]
    fn sort_last(&mut self) {
        let mut block = self.blocks.len() - 1;
        let mut index = self.blocks[block].len - 1;
        loop {
            let (to_block, to_index) = match (block, index) {
                (0, 0) => return,
                (_, 0) => (block - 1, self.blocks[block - 1].len - 1),
                _ => (block, index - 1),
            };
            let event = self.blocks[block].events()[index];
            let before = self.blocks[to_block].events()[to_index];
            if before.since_base() <= event.since_base() {
                return;
            }
            self.blocks[block].events_mut()[index] = before;
            self.blocks[to_block].events_mut()[to_index] = event;
            (block, index) = (to_block, to_index);
        }
    }
}

/// A chunk's memory, mapped directly so that freeing it returns it to the system, whatever the
/// allocator's policy.
struct ChunkMemory {
    start: NonNull<PackedEvent>,
    /// Events in it, at most [`CHUNK_EVENTS`].
    len: usize,
}

const BLOCK_BYTES: usize = CHUNK_EVENTS * size_of::<PackedEvent>();

// SAFETY: it owns its memory, which holds plain values.
unsafe impl Send for ChunkMemory {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for ChunkMemory {}

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
        Ok(Self { start, len: 0 })
    }

    fn is_full(&self) -> bool {
        self.len == CHUNK_EVENTS
    }

    #[inline]
    fn push(&mut self, event: PackedEvent) {
        if self.len < CHUNK_EVENTS {
            // SAFETY: within the mapping, which self owns.
            unsafe { self.start.as_ptr().add(self.len).write(event) };
            self.len += 1;
        }
    }

    #[inline]
    fn events(&self) -> &[PackedEvent] {
        // SAFETY: the first `len` events were written by push.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn events_mut(&mut self) -> &mut [PackedEvent] {
        // SAFETY: as above, and self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[PackedEvent]> for ChunkMemory {
    fn as_ref(&self) -> &[PackedEvent] {
        self.events()
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
    use taillab_model::{EventKind, Nanos};

    fn event(at: u64, tid: u32) -> PackedEvent {
        PackedEvent::new(Nanos::new(at), EventKind::WriteCalled { tid })
    }

    fn push(store: &mut Store, cpu: usize, event: PackedEvent) {
        let mut appender = store.appender(cpu).unwrap();
        assert!(appender.room() > 0);
        appender.push(event);
    }

    fn times(streams: &[CpuStream]) -> Vec<Vec<(u64, EventKind)>> {
        let of = |s: &CpuStream| {
            let events = s.slices().flatten();
            events.map(|e| (e.since_base().get(), e.kind())).collect()
        };
        streams.iter().map(of).collect()
    }

    proptest! {
        #[test]
        fn what_an_interrupt_disordered_is_put_in_order(
            steps in prop::collection::vec((0_u64..50, 0_u64..200), 1..400)
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
            prop_assert_eq!(times(&store.into_streams()), vec![expected]);
        }
    }

    #[test]
    fn disorder_is_repaired_across_chunks() {
        let mut store = Store::new(1);
        for i in 0..CHUNK_EVENTS as u64 {
            push(&mut store, 0, event(10 + 2 * i, 0));
        }
        push(&mut store, 0, event(15, 1));
        let streams = store.into_streams();
        assert_eq!(streams[0].slices().count(), 2);
        let times = &times(&streams)[0];
        assert_eq!(times.len(), CHUNK_EVENTS + 1);
        assert!(times.is_sorted_by_key(|&(at, _)| at));
        assert_eq!(times[3], (15, EventKind::WriteCalled { tid: 1 }));
    }

    #[test]
    fn reserved_chunks_are_enough_and_used_again() {
        let mut store = Store::new(3);
        let events = 2 * CHUNK_EVENTS as u64 + 1;
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
        assert!(store.into_streams().is_empty());
    }

    #[test]
    fn more_than_there_is_is_refused_and_not_tried() {
        let mut store = Store::new(1);
        for events in [available_memory().unwrap() / 8, u64::MAX] {
            let error = store.reserve(events, 1).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        }
        assert!(store.free.is_empty());
    }

    #[test]
    fn without_a_reservation_events_are_kept_all_the_same() {
        let mut store = Store::new(1);
        push(&mut store, 0, event(1, 0));
        assert_eq!(times(&store.into_streams())[0].len(), 1);
    }
}
