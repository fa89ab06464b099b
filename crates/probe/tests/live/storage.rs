//! Page faults, reads and writes that wait for a disk, which the guests of `scripts/vm.sh` do not have.
//!
//! Needs the build directory on a disk.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use crate::testbed::recorded::{events_of, own_tid};
use crate::testbed::{Testbed, live};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use rustix::io::{pread, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use taillab_model::EventKind;
use taillab_probe::Disturbances;
use tempfile::NamedTempFile;

const PAGE: usize = 4_096;
const PAGES: usize = 64;

/// Faults of the calling thread that waited for storage, as the kernel counts them.
fn counted() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel fills the whole structure, or says that it did not.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_majflt as u64
}

/// A file of [`PAGES`] pages in the build directory.
fn on_disk() -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("it can be written");
    fs::write(file.path(), vec![7; PAGES * PAGE]).expect("there is room");
    file
}

/// Reads one byte of each page of a file that is not in memory.
fn read_from_disk(path: &Path) {
    let file = File::open(path).expect("it was written");
    file.sync_all().expect("there is room");
    fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
    // SAFETY: a new mapping at an address of the kernel's choice of a file that nobody cuts;
    // it is read within its length and unmapped whole, with no reference to it left.
    unsafe {
        let flags = MapFlags::PRIVATE;
        let length = PAGES * PAGE;
        let at = mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ,
            flags,
            &file,
            0,
        )
        .expect("there is memory");
        for page in 0..PAGES {
            at.cast::<u8>().add(page * PAGE).read_volatile();
        }
        munmap(at, length).expect("it is mapped");
    }
}

#[test]
fn a_fault_that_waits_for_a_disk_has_an_end() {
    let Some(_alone) = live("a_fault_that_waits_for_a_disk_has_an_end") else {
        return;
    };
    let testbed = Testbed::veth();
    let file = on_disk();
    let me = own_tid();
    let mut truth = 0;
    let (mut events, _) = events_of(&testbed.spec, Disturbances::FAULT, || {
        let before = counted();
        for _ in 0..5 {
            read_from_disk(file.path());
        }
        truth = counted() - before;
    });
    assert!(truth >= 5, "is {} on a disk?", file.path().display());
    events.sort_by_key(|event| event.at);
    let mut begun = false;
    let mut ended = 0;
    for event in &events {
        match event.kind {
            EventKind::PageFault { tid, .. } if tid == me => begun = true,
            EventKind::MajorFault { tid } if tid == me => {
                assert!(begun, "an end without a beginning: {event:?}");
                begun = false;
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!(ended, truth);
}

/// System calls of x86-64.
const READ: u16 = 0;
const PREAD64: u16 = 17;
const PWRITE64: u16 = 18;

/// Bytes of a transfer past the page cache: no disk is done with so many before the thread has gone to sleep.
const TRANSFER: usize = 2 << 20;
const TRANSFERS: usize = 10;

/// Memory for transfers past the page cache, which must begin at a page.
struct Transfer(Vec<u8>);

impl Transfer {
    fn new() -> Self {
        Self(vec![7; TRANSFER + PAGE])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let first = self.0.as_ptr().align_offset(PAGE);
        &mut self.0[first..first + TRANSFER]
    }
}

#[test]
fn reads_and_writes_that_wait_for_a_disk_say_for_how_long() {
    let Some(_alone) = live("reads_and_writes_that_wait_for_a_disk_say_for_how_long") else {
        return;
    };
    let testbed = Testbed::veth();
    let file = on_disk();
    let path = file.path();
    fs::write(path, vec![7; TRANSFERS * TRANSFER]).expect("there is room");
    let direct = OFlags::RDWR | OFlags::DIRECT;
    let direct = open(path, direct, Mode::empty()).expect("a file system on a disk allows it");
    let mut cached = File::open(path).expect("it was written");
    let mut transfer = Transfer::new();
    let me = own_tid();
    let at = |place: usize| (place * TRANSFER) as u64;
    let mut took_ns = 0;
    let (events, _) = events_of(&testbed.spec, Disturbances::STORAGE, || {
        let from = Instant::now();
        for place in 0..TRANSFERS {
            pread(&direct, transfer.bytes(), at(place)).expect("it is there");
        }
        for place in 0..TRANSFERS / 2 {
            pwrite(&direct, transfer.bytes(), at(place)).expect("it is there");
        }
        // what is read through the page cache waits for the disk once, then it is in memory
        cached.sync_all().expect("there is room");
        fadvise(&cached, 0, None, Advice::DontNeed).expect("it is a file");
        cached.read_exact(transfer.bytes()).expect("it is there");
        for _ in 0..20 {
            pread(&cached, transfer.bytes(), 0).expect("it is there");
        }
        took_ns = from.elapsed().as_nanos() as u64;
    });
    let waits = |of: u16| {
        let waited = events.iter().filter_map(move |event| match event.kind {
            EventKind::StorageWaited { tid, call, waited } if tid == me && call == of => {
                Some(waited.get())
            }
            _ => None,
        });
        waited.collect::<Vec<_>>()
    };
    let (reads, writes, from_cache) = (waits(PREAD64), waits(PWRITE64), waits(READ));
    assert_eq!(reads.len(), TRANSFERS, "{events:?}");
    assert_eq!(writes.len(), TRANSFERS / 2, "{events:?}");
    assert!(!from_cache.is_empty(), "{events:?}");
    let waited = || reads.iter().chain(&writes).chain(&from_cache);
    let all: u64 = waited().sum();
    assert!(all < took_ns, "{all} of {took_ns}");
    assert!(waited().all(|waited| *waited > 0), "{events:?}");
}
