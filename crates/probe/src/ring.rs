//! The rings that the eBPF programs fill, mapped and read without entering the kernel.
//!
//! Each CPU has its own ring; `common.bpf.h` describes the protocol. The reader
//! looks only at the slots: a slot's top bit tells whether the event expected there
//! has been written. So it touches the producer's cache lines as little as possible:
//! each line with events once, when a whole batch is ready.

use std::ffi::c_void;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use taillab_model::{LostEvents, PackedEvent};

/// The fewest events for which a ring is drained during the measurement.
pub(crate) const BATCH: u64 = 64;

/// The bit of a slot's first word that alternates from lap to lap.
const LAP: u64 = 1 << 63;

/// `struct ring` in common.bpf.h.
#[repr(C)]
struct Positions {
    head: AtomicU64,
    no_room: AtomicU64,
    unreadable: AtomicU64,
    /// Used by the programs.
    scratch: [AtomicU64; 13],
    tail: AtomicU64,
    /// Of the programs' hashes of clients.
    seed: AtomicU64,
    /// Used by the programs, and kept when they are attached again.
    asked: AtomicU64,
    unused2: [u64; 13],
}

/// `struct slot` in common.bpf.h.
#[repr(C)]
struct Slot {
    head: AtomicU64,
    values: AtomicU64,
}

/// The rings of all CPUs.
pub(crate) struct Rings {
    positions: Mapping<Positions>,
    slots: Mapping<Slot>,
    slots_per_cpu: u64,
}

impl Rings {
    /// Maps the rings in these two maps of a loaded object.
    pub(crate) fn map(
        positions: impl AsFd,
        slots: impl AsFd,
        cpus: usize,
        slots_per_cpu: u32,
    ) -> io::Result<Self> {
        debug_assert!(slots_per_cpu.is_power_of_two());
        let readable = ProtFlags::READ;
        let rings = Self {
            positions: Mapping::new(positions, cpus, readable | ProtFlags::WRITE)?,
            slots: Mapping::new(slots, cpus * slots_per_cpu as usize, readable)?,
            slots_per_cpu: slots_per_cpu.into(),
        };
        rings.renumber();
        Ok(rings)
    }

    /// Makes the programs forget the numbers of all connections, so that each is announced again.
    pub(crate) fn renumber(&self) {
        // from its random keys
        let seed = RandomState::new().hash_one(0);
        for ring in self.positions.items() {
            ring.seed.store(seed, Ordering::Relaxed);
        }
    }

    /// The number of possible CPUs.
    pub(crate) fn cpus(&self) -> usize {
        self.positions.len
    }

    /// Forgets what the programs noted for themselves: what had begun when they were detached has ended
    /// unseen. None may be attached.
    pub(crate) fn clear_scratch(&self) {
        let words = self.positions.items().iter().flat_map(|ring| &ring.scratch);
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// The number of events in all rings that have not been taken.
    pub(crate) fn pending(&self) -> u64 {
        let pending = |ring: &Positions| {
            let tail = ring.tail.load(Ordering::Relaxed);
            ring.head.load(Ordering::Relaxed).saturating_sub(tail)
        };
        self.positions.items().iter().map(pending).sum()
    }

    /// Events that the programs could not record on any CPU since they were loaded.
    pub(crate) fn losses(&self) -> LostEvents {
        let sum = |counter: fn(&Positions) -> &AtomicU64| {
            let rings = self.positions.items().iter();
            rings
                .map(|ring| counter(ring).load(Ordering::Relaxed))
                .sum()
        };
        LostEvents {
            ring_full: sum(|ring| &ring.no_room),
            unreadable: sum(|ring| &ring.unreadable),
            ..LostEvents::default()
        }
    }

    /// Whether at least a batch is ready on this CPU.
    #[inline]
    pub(crate) fn has_batch(&self, cpu: usize) -> bool {
        let tail = self.positions.items()[cpu].tail.load(Ordering::Relaxed);
        self.word(cpu, tail + BATCH - 1).is_some()
    }

    /// The first word of the event at this position, if it has been written.
    #[inline]
    fn word(&self, cpu: usize, position: u64) -> Option<u64> {
        let lap = if position & self.slots_per_cpu == 0 {
            LAP
        } else {
            0
        };
        let index = cpu as u64 * self.slots_per_cpu + (position & (self.slots_per_cpu - 1));
        // acquire: the other word was written before this one
        let word = self.slots.items()[index as usize]
            .head
            .load(Ordering::Acquire);
        // no event has kind 0: so an unwritten slot is not taken for one of the second lap
        (word & LAP == lap && word & !LAP != 0).then_some(word & !LAP)
    }

    /// Takes up to `max` events of one CPU, up to the first one that is not written yet.
    #[inline]
    pub(crate) fn take(&mut self, cpu: usize, max: u64, mut sink: impl FnMut(PackedEvent)) -> u64 {
        let ring = &self.positions.items()[cpu];
        let first = ring.tail.load(Ordering::Relaxed);
        let mut position = first;
        while position - first < max {
            let Some(head) = self.word(cpu, position) else {
                break;
            };
            let index = cpu as u64 * self.slots_per_cpu + (position & (self.slots_per_cpu - 1));
            let values = self.slots.items()[index as usize]
                .values
                .load(Ordering::Relaxed);
            position += 1;
            if let Some(event) = PackedEvent::from_words([head, values]) {
                sink(event);
            }
        }
        if position != first {
            // release: the slots are read before the producer may fill them again
            ring.tail.store(position, Ordering::Release);
        }
        position - first
    }

    /// Whether every event that was begun on this CPU has been taken.
    pub(crate) fn is_empty(&self, cpu: usize) -> bool {
        let ring = &self.positions.items()[cpu];
        ring.head.load(Ordering::Acquire) == ring.tail.load(Ordering::Relaxed)
    }
}

/// A shared mapping of an eBPF array.
pub(crate) struct Mapping<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: it is plain shared memory; T is made of atomics and unused words only.
unsafe impl<T> Send for Mapping<T> {}

impl<T> Mapping<T> {
    pub(crate) fn new(map: impl AsFd, len: usize, protection: ProtFlags) -> io::Result<Self> {
        let bytes = len * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                map.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    #[inline]
    pub(crate) fn items(&self) -> &[T] {
        // SAFETY: `len` items are mapped for as long as self lives, and T is valid for
        // any bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        let bytes = self.len * size_of::<T>();
        // SAFETY: it was mapped with this length and no reference outlives self. It
        // cannot fail with these arguments, and nothing could be done if it did.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), bytes) };
    }
}

#[cfg(test)]
mod tests;
