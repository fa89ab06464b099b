//! CPUs that a measurement has for itself: two measurements on one CPU would measure each other.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::cpus::CpuSet;
use crate::journal::{JournalError, JournalFolder};

/// Why the CPUs cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum CpuLockError {
    /// Another measurement has one of them.
    #[error(
        "CPU {cpu} is in use by another measurement ({holder}): wait until it ends, or choose \
         other CPUs (-C, --client-cpus)"
    )]
    Taken {
        /// The CPU.
        cpu: u32,
        /// `pid 4711`.
        holder: String,
    },
    /// The folder for the locks cannot be used.
    #[error(transparent)]
    Folder(#[from] JournalError),
    /// The file of a lock cannot be used.
    #[error("cannot lock CPU {cpu} with {path}: {source}; remove that file")]
    File {
        /// The CPU.
        cpu: u32,
        /// The file.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// CPUs that no other measurement of this user gets while this is held; the kernel gives them back when we end.
#[derive(Debug)]
pub struct CpuLocks(Vec<CpuLock>);

#[derive(Debug)]
struct CpuLock {
    path: PathBuf,
    _file: File,
}

impl CpuLocks {
    /// Takes all of `cpus`, or none.
    ///
    /// # Errors
    /// [`CpuLockError`]; it never waits.
    pub fn take(folder: &JournalFolder, cpus: &CpuSet) -> Result<Self, CpuLockError> {
        folder.ensure()?;
        let mut locks = Self(Vec::new());
        for cpu in cpus.iter() {
            locks.0.push(lock(folder.path(), cpu)?);
        }
        Ok(locks)
    }
}

impl Drop for CpuLock {
    fn drop(&mut self) {
        // A file left behind is not locked and does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

fn lock(folder: &Path, cpu: u32) -> Result<CpuLock, CpuLockError> {
    let path = folder.join(format!("cpu-{cpu}"));
    let failed = |source: io::Error| CpuLockError::File {
        cpu,
        path: path.display().to_string(),
        source,
    };
    loop {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(CpuLockError::Taken {
                    cpu,
                    holder: holder(&mut file),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The last holder may have removed the file between our opening and our locking it.
        let is_there = fs::metadata(&path)
            .is_ok_and(|there| file.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
        if is_there {
            file.set_len(0)
                .and_then(|()| writeln!(file, "{}", std::process::id()))
                .map_err(failed)?;
            return Ok(CpuLock { path, _file: file });
        }
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // the holder may be writing its number right now; the CPU is taken anyway
    let _ = file.read_to_string(&mut text);
    match text.trim() {
        "" => "just started".to_owned(),
        pid => format!("pid {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_had_once_and_by_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = JournalFolder::at(place.path().join("locks"));
        let cpus = |numbers: &[u32]| numbers.iter().copied().collect::<CpuSet>();
        let first = CpuLocks::take(&folder, &cpus(&[1, 2])).unwrap();
        let error = CpuLocks::take(&folder, &cpus(&[0, 2]))
            .unwrap_err()
            .to_string();
        let named = format!(
            "CPU 2 is in use by another measurement (pid {})",
            std::process::id()
        );
        assert!(error.starts_with(&named), "{error}");
        // what it took before it was refused is free again
        let other = CpuLocks::take(&folder, &cpus(&[0])).unwrap();
        drop(first);
        CpuLocks::take(&folder, &cpus(&[1, 2])).unwrap();
        drop(other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
