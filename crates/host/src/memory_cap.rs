//! A cap on the memory of a part of a command that reads what others wrote: a small file may ask for a lot.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::roots::{Roots, read_optional, status};

/// The share of the memory that is available now.
const SHARE: f64 = 0.75;
/// What every machine can give, by swapping if need be.
const LEAST: u64 = 1 << 30;

/// What is said where the memory does not suffice.
const REFUSED: &[u8] = b"taillab: error: the analysis needs more memory than this machine has to spare: analyse a part of \
the recording, or on another machine\n";

/// While it lives, this process may take only so much more memory. Programs that are started meanwhile inherit it.
#[derive(Debug)]
pub struct MemoryCap {
    before: Rlimit,
}

impl MemoryCap {
    /// Three quarters of what is available now.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn begin(roots: &Roots) -> io::Result<Self> {
        let available = available(roots).unwrap_or(0);
        let room = (available as f64 * SHARE) as u64;
        Self::with_room(roots, room.max(LEAST))
    }

    fn with_room(roots: &Roots, room: u64) -> io::Result<Self> {
        let before = getrlimit(Resource::Data);
        let used = status(roots, "self", "VmData").and_then(|text| kib(&text));
        let wanted = used.unwrap_or(0).saturating_add(room);
        let lowest = |limit: Option<u64>| limit.map_or(wanted, |limit| limit.min(wanted));
        setrlimit(
            Resource::Data,
            Rlimit {
                current: Some(lowest(before.current).min(lowest(before.maximum))),
                maximum: before.maximum,
            },
        )?;
        IS_CAPPED.store(true, Ordering::Relaxed);
        Ok(Self { before })
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        // back to what it was, which the kernel allows
        let _ = setrlimit(Resource::Data, self.before);
        IS_CAPPED.store(false, Ordering::Relaxed);
    }
}

/// A cap is in force: an allocation that fails ends this process.
static IS_CAPPED: AtomicBool = AtomicBool::new(false);

/// The system's allocator. Where a cap is in force, this process ends with the reason as soon as it has no memory
/// left. The standard library would print a message first, for which it takes locks and allocates: in a child that
/// was forked while another thread printed, or where the message itself does not fit, that never ends.
struct CappedAllocator;

#[global_allocator]
static ALLOCATOR: CappedAllocator = CappedAllocator;

// SAFETY: each call is passed on as it came to the system's allocator, which keeps the contract; its answer is returned
// unchanged.
unsafe impl GlobalAlloc for CappedAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this method.
        given(unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(place, layout, bytes) })
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

/// What the system gave, unless that is nothing and a cap is in force.
#[inline]
fn given(place: *mut u8) -> *mut u8 {
    if place.is_null() && IS_CAPPED.load(Ordering::Relaxed) {
        say_and_end();
    }
    place
}

/// Two system calls, and no lock.
#[cold]
fn say_and_end() -> ! {
    // SAFETY: the pointer and the length are those of a constant.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, REFUSED.as_ptr().cast(), REFUSED.len()) };
    // SAFETY: takes a number only, and does not return.
    unsafe { libc::_exit(1) }
}

/// Bytes that programs can have without swapping (`MemAvailable` of proc_meminfo(5)).
pub fn available(roots: &Roots) -> Option<u64> {
    let text = read_optional(&roots.proc.join("meminfo"))?;
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    kib(found?)
}

/// `1234 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use crate::invoker::Invoker;
    use crate::roots::testing::tree;
    use crate::run_unprivileged;

    #[test]
    fn what_is_available_is_read_in_bytes() {
        let (_folder, roots) = tree(&[(
            "proc/meminfo",
            "MemTotal:       2048 kB\nMemAvailable:    1024 kB\n",
        )]);
        assert_eq!(available(&roots), Some(1 << 20));
    }

    /// In a child, since other tests run in this process.
    fn allocate(room: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let roots = Roots::default();
        let user = match Invoker::find(&roots) {
            user if user.is_root() => Invoker::nobody(),
            user => user,
        };
        run_unprivileged(&user, || {
            let limit = |before: &Rlimit| before.current.unwrap_or(u64::MAX);
            let before = limit(&getrlimit(Resource::Data));
            let cap = MemoryCap::with_room(&roots, room).unwrap();
            let held = vec![1_u8; bytes];
            assert!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
            drop(cap);
            let after = limit(&getrlimit(Resource::Data));
            vec![u8::from(after == before)]
        })
    }

    #[test]
    fn more_than_the_cap_ends_the_process_and_less_does_not() {
        let enough = allocate(256 << 20, 16 << 20).unwrap();
        assert_eq!(enough, [1], "the limit is what it was before");
        let error = allocate(64 << 20, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("memory"), "{error}");
    }

    /// Only that is said, so nothing was printed before: printing takes locks, which a thread of the parent may have
    /// held at the fork.
    #[test]
    fn without_memory_nothing_is_printed_but_the_reason() {
        let (mut reader, writer) = io::pipe().unwrap();
        let user = match Invoker::find(&Roots::default()) {
            user if user.is_root() => Invoker::nobody(),
            user => user,
        };
        let failed = run_unprivileged(&user, || {
            // SAFETY: both are numbers of open files, and the child's standard error is nobody else's.
            let stderr = unsafe { libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO) };
            assert_eq!(stderr, libc::STDERR_FILENO);
            let _cap = MemoryCap::with_room(&Roots::default(), 64 << 20).unwrap();
            vec![1; 1 << 30]
        });
        drop(writer);
        let mut said = Vec::new();
        reader.read_to_end(&mut said).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&said),
            String::from_utf8_lossy(REFUSED)
        );
        assert!(failed.is_err());
    }
}
