//! The CPUs that a thread may use.

use std::fmt;

use rustix::thread::sched_setaffinity;

use super::{Knob, SettingError, ThreadAffinity, with_thread};
use crate::cpus::CpuSet;
use crate::roots::{Roots, status};

impl Knob for ThreadAffinity {
    /// A list of CPUs. From /proc and not from sched_getaffinity(2), which leaves out CPUs that
    /// are offline: they would be lost when the old value is written back.
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        with_thread(self, roots, self.thread, |_| {
            status(roots, self.thread.pid, "Cpus_allowed_list").ok_or_else(|| self.missing())
        })
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let cpus: CpuSet = value
            .parse()
            .map_err(|_| self.refused(value, rustix::io::Errno::INVAL))?;
        with_thread(self, roots, self.thread, |pid| {
            sched_setaffinity(Some(pid), &cpus.to_affinity()).map_err(|e| self.refused(value, e))
        })
    }

    fn same(&self, left: &str, right: &str) -> bool {
        match (left.parse::<CpuSet>(), right.parse::<CpuSet>()) {
            (Ok(left), Ok(right)) => left == right,
            _ => left == right,
        }
    }
}

impl fmt::Display for ThreadAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sched_setaffinity(thread {})", self.thread.pid)
    }
}
