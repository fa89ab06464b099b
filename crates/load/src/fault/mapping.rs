//! A memory mapping that is owned by a value.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// The size of a page (x86-64, and arm64 as it is usually built).
pub(super) const PAGE: usize = 4096;

/// A memory mapping; dropping the value unmaps it.
pub(super) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and lives as long as it does.
unsafe impl Send for Mapping {}
// SAFETY: without a unique reference it is only read; concurrent reads are allowed.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of a file for reading. The file must be the caller's own and keep that length.
    pub(super) fn of(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Self::new(at, bytes)
    }

    /// New memory, to be read and written.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping anywhere touches no memory of ours.
        let at = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        Self::new(at, bytes)
    }

    fn new(at: *mut c_void, bytes: usize) -> io::Result<Self> {
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells the kernel how the memory is used (madvise(2)).
    pub(super) fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is our own mapping. Dropped pages of a file are read again, and the content of
        // other memory is not used.
        unsafe { madvise(self.at.as_ptr().cast(), self.bytes, advice) }
    }

    /// Reads a byte.
    pub(super) fn touch(&self, byte: usize) {
        assert!(byte < self.bytes);
        // SAFETY: within our own mapping, which is readable.
        unsafe { self.at.as_ptr().add(byte).read_volatile() };
    }

    /// Writes a byte of new memory.
    pub(super) fn dirty(&mut self, byte: usize) {
        assert!(byte < self.bytes);
        // SAFETY: within our own mapping, which is writable and, by `&mut self`, used by nobody else.
        unsafe { self.at.as_ptr().add(byte).write_volatile(1) };
    }

    /// The first `bytes` of new memory that begin at a multiple of `bytes`.
    pub(super) fn aligned_mut(&mut self, bytes: usize) -> &mut [u8] {
        let before = self.at.as_ptr().align_offset(bytes);
        assert!(before + bytes <= self.bytes);
        // SAFETY: within our own mapping, which is writable and, by `&mut self`, used by nobody else.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(before), bytes) }
    }

    /// Whether all of it is in memory.
    pub(super) fn is_present(&self) -> io::Result<bool> {
        let mut present = vec![0_u8; self.bytes.div_ceil(PAGE)];
        // SAFETY: the range is our mapping, and there is a byte of the vector for each page.
        let failed =
            unsafe { libc::mincore(self.at.as_ptr().cast(), self.bytes, present.as_mut_ptr()) };
        match failed {
            0 => Ok(present.iter().all(|page| page & 1 == 1)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, used by nobody after this. It cannot fail.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
