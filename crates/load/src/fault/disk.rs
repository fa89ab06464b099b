//! An unnamed file on a disk. Workers must wait for its data.
//!
//! An occurrence should be a wait, not work. If pages were read one at a time, a third of it would be CPU
//! time of the kernel. So each read takes [`REGION`] bytes at once, into large pages, and the kernel's CPU
//! time is about 4 %.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self as rfs, Advice as FileAdvice, Mode, OFlags};
use rustix::mm::Advice;

use super::account::ThreadAccount;
use super::mapping::{Mapping, PAGE};
use super::record::Recorder;

/// Bytes that are read from the disk at once: a large page.
const REGION: usize = 512 * PAGE;
/// Regions of the file, and the most that one occurrence touches. With this many, dropping the file from
/// memory takes less than 1 % of the time to read it.
pub(super) const REGIONS: usize = 32;
/// The step through the file, in regions, so that successive reads are apart on the disk. It is odd, so that
/// every region is used.
const STRIDE: usize = 13;
/// The system call that [`Access::Direct`] waits in.
pub(super) const READ: &str = "pread64";
/// A file system in memory (`TMPFS_MAGIC`, `RAMFS_MAGIC` in linux/magic.h).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A file whose content is on disk only; the kernel removes it with the process.
pub(super) struct DiskFile {
    file: File,
    /// Regions for each occurrence.
    at_once: usize,
    next: AtomicUsize,
    access: Access,
}

/// How the file is read.
enum Access {
    /// Mapped into memory: a touch is a page fault that waits for the disk.
    Mapped(Mapping),
    /// Past the page cache, into this buffer, whose content is not used: a read waits for the disk.
    Direct(Mutex<Mapping>),
}

impl DiskFile {
    /// Makes the file in this folder, to be read past the page cache.
    pub(super) fn direct_in(folder: &Path, at_once: usize) -> io::Result<Self> {
        let file = written(folder)?;
        let flags = rfs::fcntl_getfl(&file)?;
        rfs::fcntl_setfl(&file, flags | OFlags::DIRECT)?;
        // room for a region that is aligned to a large page
        let buffer = Mapping::anonymous(2 * REGION)?;
        // a kernel without large pages refuses this; then a read is more work for it
        let _ = buffer.advise(Advice::LinuxHugepage);
        let made = Self::new(file, at_once, Access::Direct(Mutex::new(buffer)));
        // a file system that cannot read past the page cache fails at the first read
        made.wait_for(0)?;
        Ok(made)
    }

    /// Makes the file in this folder and maps it.
    pub(super) fn mapped_in(folder: &Path, at_once: usize) -> io::Result<Self> {
        let file = written(folder)?;
        let map = Mapping::of(&file, REGIONS * REGION)?;
        map.advise(Advice::Random)?;
        // a kernel without large pages refuses this; then a touch reads a small page
        let _ = map.advise(Advice::LinuxHugepage);
        let made = Self::new(file, at_once, Access::Mapped(map));
        made.evict()?;
        Ok(made)
    }

    const fn new(file: File, at_once: usize, access: Access) -> Self {
        Self {
            file,
            at_once,
            next: AtomicUsize::new(0),
            access,
        }
    }

    /// One occurrence. Once the whole file has been used, it is dropped from memory again, which is not
    /// part of the occurrence.
    pub(super) fn strike(&self, recorder: &Recorder, account: &ThreadAccount) {
        let first = self.next.fetch_add(self.at_once, Relaxed);
        let regions = (first..first + self.at_once).map(|n| n.wrapping_mul(STRIDE) % REGIONS);
        // on some machines a disk request stops the CPU; that time is part of the fault
        recorder.unhindered_in(account, || {
            for region in regions {
                // if the disk refuses a read, the occurrence is only shorter
                let _ = self.wait_for(region);
            }
        });
        if (first + self.at_once) % REGIONS < self.at_once {
            // pages that stay in memory make shorter faults, and the truth shows that
            let _ = self.evict();
        }
    }

    /// Reads the next region.
    pub(super) fn read_next(&self) {
        let region = self.next.fetch_add(1, Relaxed).wrapping_mul(STRIDE) % REGIONS;
        // if the disk refuses it, the caller has waited less
        let _ = self.wait_for(region);
    }

    /// Reads a region from the disk.
    fn wait_for(&self, region: usize) -> io::Result<()> {
        match &self.access {
            Access::Mapped(map) => map.touch(region * REGION),
            Access::Direct(buffer) => {
                let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                let region_mut = buffer.aligned_mut(REGION);
                rustix::io::pread(&self.file, region_mut, (region * REGION) as u64)?;
            }
        }
        Ok(())
    }

    /// Drops the file from memory where it is mapped.
    fn evict(&self) -> io::Result<()> {
        let Access::Mapped(map) = &self.access else {
            return Ok(());
        };
        map.advise(Advice::LinuxDontNeed)?;
        rfs::fadvise(&self.file, 0, None, FileAdvice::DontNeed)?;
        if map.is_present()? {
            return Err(io::Error::other("the kernel keeps the file in memory"));
        }
        Ok(())
    }
}

/// A new file without a name, whose content has reached the disk.
fn written(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut file = File::from(rfs::open(folder, flags, Mode::RUSR | Mode::WUSR)?);
    let kind = rfs::fstatfs(&file)?.f_type as u64;
    if IN_MEMORY.contains(&kind) {
        return Err(io::Error::other(format!(
            "{} is in memory",
            folder.display()
        )));
    }
    let region = vec![0x5a; REGION];
    for _ in 0..REGIONS {
        file.write_all(&region)?;
    }
    file.sync_all()?;
    Ok(file)
}
