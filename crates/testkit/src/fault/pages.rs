//! Memory whose pages are new each time they are touched.

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The size of a page (x86-64, and arm64 as it is usually built).
pub(super) const PAGE: usize = 4096;

/// Anonymous memory that is given back to the kernel before each touch (MADV_DONTNEED), so
/// that the touch makes a page fault for each page. A worker has its own.
pub(super) struct FreshPages {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone; it may be used on any one thread.
unsafe impl Send for FreshPages {}

impl FreshPages {
    pub(super) fn new(pages: usize) -> io::Result<Self> {
        let bytes = pages * PAGE;
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let at = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let made = Self { at, bytes };
        // one large page would be one fault; a kernel without them refuses this
        let _ = made.advise(Advice::LinuxNoHugepage);
        Ok(made)
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is our own mapping, of which nobody has a reference.
        unsafe { madvise(self.at.as_ptr().cast::<c_void>(), self.bytes, advice) }
    }

    /// Gives the pages back and touches each.
    pub(super) fn touch(&mut self) {
        // a private anonymous mapping that is not locked: cannot be refused
        let _ = self.advise(Advice::LinuxDontNeed);
        for page in (0..self.bytes).step_by(PAGE) {
            // SAFETY: within our own mapping, which is writable.
            unsafe { self.at.as_ptr().add(page).write_volatile(1) };
        }
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used by nobody after this. It cannot fail.
        let _ = unsafe { munmap(self.at.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
