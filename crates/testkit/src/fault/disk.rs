//! A file without a name on a disk, from which workers must wait for data.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self as rfs, Advice as FileAdvice, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::account::ThreadAccount;
use super::pages::PAGE;
use super::record::Recorder;

/// Pages of the file: enough for minutes of faults before the first page is used again.
const PAGES: usize = 8192;
/// Bytes of one read past the page cache: so many that nearly all of the time is waiting. What the
/// thread computes before it asks the disk, some 15 µs, is work on its core.
const CHUNK: usize = 512 * PAGE;
/// The system call that reads.
pub(super) const READ: &str = "pread64";
/// A file system in memory (`TMPFS_MAGIC`, `RAMFS_MAGIC` in linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// The step through the file: successive pages lie far apart on the disk. It is odd, so that every
/// page is used.
const STRIDE: usize = 2_377;

/// A file whose pages are on disk only; the kernel removes it with the process.
pub(super) struct DiskFile {
    file: File,
    /// Pages for each occurrence.
    at_once: usize,
    next: AtomicUsize,
    /// A buffer for what is read past the page cache; its content is not used.
    buffer: Mutex<Vec<u8>>,
    /// The file in memory; `None` where it is read past the page cache.
    map: Option<NonNull<u8>>,
}

// SAFETY: the mapping is read-only and lives as long as the value; the rest is a file and a
// counter.
unsafe impl Send for DiskFile {}
// SAFETY: as above; concurrent reads of a read-only mapping are allowed.
unsafe impl Sync for DiskFile {}

impl DiskFile {
    /// In the folder for temporary files, mapped: a touch is a page fault that waits for
    /// the disk.
    pub(super) fn mapped(at_once: usize) -> io::Result<Self> {
        Self::mapped_in(&std::env::temp_dir(), at_once)
    }

    /// In the folder for temporary files: a read waits for the disk.
    pub(super) fn direct(at_once: usize) -> io::Result<Self> {
        Self::direct_in(&std::env::temp_dir(), at_once)
    }

    pub(super) fn direct_in(folder: &Path, at_once: usize) -> io::Result<Self> {
        let file = written(folder)?;
        let flags = rfs::fcntl_getfl(&file)?;
        rfs::fcntl_setfl(&file, flags | OFlags::DIRECT)?;
        let made = Self {
            file,
            at_once,
            next: AtomicUsize::new(0),
            buffer: Mutex::new(vec![0; CHUNK + PAGE]),
            map: None,
        };
        // a file system that cannot read past the page cache says so at the first read
        made.read(0)?;
        Ok(made)
    }

    pub(super) fn mapped_in(folder: &Path, at_once: usize) -> io::Result<Self> {
        let file = written(folder)?;
        // SAFETY: a new mapping anywhere touches no memory of ours; the file is our own and
        // is never truncated.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                PAGES * PAGE,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let made = Self {
            file,
            at_once,
            next: AtomicUsize::new(0),
            buffer: Mutex::default(),
            map: NonNull::new(at.cast()),
        };
        made.evict()?;
        Ok(made)
    }

    /// One occurrence. The kernel gives the pages up again when all have been used, which
    /// is not part of it.
    pub(super) fn strike(&self, recorder: &Recorder, account: &ThreadAccount) {
        let first = self.next.fetch_add(self.at_once, Relaxed);
        let pages = (first..first + self.at_once).map(|n| n.wrapping_mul(STRIDE) % PAGES);
        // on some machines asking the disk stops the CPU, which is a part of the fault
        recorder.unhindered_in(account, || pages.for_each(|page| self.wait_for(page)));
        if self.map.is_some() && (first + self.at_once) % PAGES < self.at_once {
            // pages that stay make shorter faults, which the truth shows
            let _ = self.evict();
        }
    }

    fn wait_for(&self, page: usize) {
        match self.map {
            Some(map) => {
                // SAFETY: within our own mapping, which is readable.
                unsafe { map.as_ptr().add(page * PAGE).read_volatile() };
            }
            None => {
                // an occurrence that the disk refuses is a short one
                let _ = self.read(page);
            }
        }
    }

    fn read(&self, page: usize) -> io::Result<()> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let aligned = buffer.as_ptr().align_offset(PAGE);
        let chunk = page % (PAGES * PAGE / CHUNK);
        rustix::io::pread(
            &self.file,
            &mut buffer[aligned..aligned + CHUNK],
            (chunk * CHUNK) as u64,
        )?;
        Ok(())
    }

    /// Gives all pages of the mapping up, here and in the page cache.
    fn evict(&self) -> io::Result<()> {
        let Some(map) = self.map else {
            return Ok(());
        };
        let at = map.as_ptr().cast::<c_void>();
        // SAFETY: our own read-only mapping of a file: its pages come back when touched.
        unsafe {
            madvise(at, PAGES * PAGE, Advice::Random)?;
            madvise(at, PAGES * PAGE, Advice::LinuxDontNeed)?;
        }
        rfs::fadvise(&self.file, 0, None, FileAdvice::DontNeed)?;
        let mut present = vec![0_u8; PAGES];
        // SAFETY: the range is our mapping, and there is a byte of the vector for each page.
        let failed = unsafe { libc::mincore(at, PAGES * PAGE, present.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        if present.iter().all(|page| page & 1 == 1) {
            return Err(io::Error::other("the kernel keeps the file in memory"));
        }
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        if let Some(map) = self.map {
            // SAFETY: our own mapping, used by nobody after this. It cannot fail.
            let _ = unsafe { munmap(map.as_ptr().cast(), PAGES * PAGE) };
        }
    }
}

/// A new file without a name, whose content has reached the disk.
fn written(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut file = File::from(rfs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
    let kind = rfs::fstatfs(&file)?.f_type as u64;
    if IN_MEMORY.contains(&kind) {
        return Err(io::Error::other(format!(
            "{} is in memory (file {})",
            folder.display(),
            file.as_raw_fd()
        )));
    }
    let block = vec![0x5a; 64 * PAGE];
    for _ in 0..PAGES / 64 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    Ok(file)
}
