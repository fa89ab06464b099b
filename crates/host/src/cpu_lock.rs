//! CPUs that a measurement has for itself: two measurements on one CPU would measure each other.
//!
//! The kernel's own folder of a CPU is locked (flock(2)): every user finds it at the same place, nobody can put
//! another one there, and nothing is left behind.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use crate::cpus::CpuSet;
use crate::lock_holder::holder;
use crate::roots::Roots;

/// Why the CPUs cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum CpuLockError {
    /// Another measurement has one of them.
    #[error(
        "CPU {cpu} is in use by another measurement, of {holder}: wait until it ends, or choose \
         other CPUs (-C, --client-cpus)"
    )]
    Taken {
        /// The CPU.
        cpu: u32,
        /// `taillab (pid 4711)`.
        holder: String,
    },
    /// The CPU's folder cannot be used.
    #[error("cannot lock CPU {cpu} with {}: {source}; mount sysfs on /sys", path.display())]
    Folder {
        /// The CPU.
        cpu: u32,
        /// The folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// CPUs that no other measurement, of any user, gets while this is held; the kernel gives them back when we end.
#[derive(Debug)]
pub struct CpuLocks(Vec<File>);

impl CpuLocks {
    /// Takes all of `cpus`, or none.
    ///
    /// # Errors
    /// [`CpuLockError`]; it never waits.
    pub fn take(roots: &Roots, cpus: &CpuSet) -> Result<Self, CpuLockError> {
        let mut locks = Self(Vec::new());
        for cpu in cpus.iter() {
            locks.0.push(lock(roots, cpu)?);
        }
        Ok(locks)
    }
}

fn lock(roots: &Roots, cpu: u32) -> Result<File, CpuLockError> {
    let path = roots.sys.join(format!("devices/system/cpu/cpu{cpu}"));
    let locked = File::open(&path).and_then(|folder| {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Ok(folder)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Err(holder(roots, &folder))),
            Err(error) => Err(error.into()),
        }
    });
    match locked {
        Ok(Ok(folder)) => Ok(folder),
        Ok(Err(holder)) => Err(CpuLockError::Taken { cpu, holder }),
        Err(source) => Err(CpuLockError::Folder { cpu, path, source }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cpu_is_had_once_by_whatever_user_and_by_name() {
        let place = tempfile::tempdir().unwrap();
        let machine = Roots::below(place.path());
        // the locks of this machine name their holders, and the tests must not disturb a measurement
        let roots = Roots {
            sys: machine.sys,
            ..Roots::default()
        };
        for cpu in 0..3 {
            let folder = roots.sys.join(format!("devices/system/cpu/cpu{cpu}"));
            fs::create_dir_all(folder).unwrap();
        }
        let cpus = |numbers: &[u32]| numbers.iter().copied().collect::<CpuSet>();
        let first = CpuLocks::take(&roots, &cpus(&[1, 2])).unwrap();
        let error = CpuLocks::take(&roots, &cpus(&[0, 2])).unwrap_err();
        let error = error.to_string();
        let start = "CPU 2 is in use by another measurement, of ";
        let named = format!("(pid {})", std::process::id());
        assert!(
            error.starts_with(start) && error.contains(&named),
            "{error}"
        );
        // what it took before it was refused is free again
        let other = CpuLocks::take(&roots, &cpus(&[0])).unwrap();
        drop(first);
        CpuLocks::take(&roots, &cpus(&[1, 2])).unwrap();
        drop(other);
        let error = CpuLocks::take(&roots, &cpus(&[7])).unwrap_err().to_string();
        assert!(error.contains("cpu7") && error.contains("sysfs"), "{error}");
    }
}
