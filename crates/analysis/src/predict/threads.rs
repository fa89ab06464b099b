//! The class of a thread, told by its name.
//!
//! A recording has names, not flags, so the kernel's threads are known by theirs
//! (`Documentation/admin-guide/kernel-per-CPU-kthreads.rst` and the names that the kernel's
//! sources give to `kthread_create`).

/// Kinds of threads that a mitigation can keep off a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// All that a real-time thread of the middle priority goes before.
    LowerThanRealTime,
    /// All that the fair scheduler runs.
    Fair,
    /// All but the kernel's.
    Programs,
    /// All that can be moved to other CPUs.
    Movable,
    /// The kernel's that belong to no CPU.
    UnboundKernel,
    /// The kernel's for memory: huge pages, compaction, reclaim, monitoring.
    MemoryDaemons,
}

/// Names that the kernel's unbound threads begin with.
const UNBOUND_KERNEL: &[&str] = &[
    "kthreadd",
    "kworker/u",
    "rcu_",
    "rcuo",
    "kswapd",
    "kcompactd",
    "khugepaged",
    "ksmd",
    "kdamond",
    "kauditd",
    "khungtaskd",
    "oom_reaper",
    "kdevtmpfs",
    "jbd2/",
    "ext4-",
    "xfs",
    "btrfs",
    "loop",
    "nvme",
    "scsi_",
    "md",
    "kblockd",
    "khvcd",
    "ecryptfs",
    "hwrng",
    "napi/",
    "vhost-",
    "kvm-",
];

/// Names that the kernel's threads for one CPU begin with.
const PER_CPU_KERNEL: &[&str] = &[
    "kworker/",
    "ksoftirqd/",
    "migration/",
    "cpuhp/",
    "idle_inject/",
    "rcuc/",
    "irq/",
    "watchdog/",
    "ktimers/",
    "backlog_napi/",
    "cpu_stopper/",
];

/// Of the real-time or stop class, above the middle priority.
const ABOVE_REAL_TIME: &[&str] = &[
    "migration/",
    "cpu_stopper/",
    "watchdog/",
    "irq/",
    "idle_inject/",
];

const MEMORY: &[&str] = &["khugepaged", "kcompactd", "kswapd", "ksmd", "kdamond"];

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|begin| name.starts_with(begin))
}

fn is_unbound_kernel(name: &str) -> bool {
    begins(name, UNBOUND_KERNEL)
}

fn is_per_cpu_kernel(name: &str) -> bool {
    begins(name, PER_CPU_KERNEL) && !is_unbound_kernel(name)
}

impl Class {
    /// Whether a thread of this name, not one of the server's, is of this kind.
    pub fn has(self, name: &str) -> bool {
        match self {
            Self::LowerThanRealTime | Self::Fair => !begins(name, ABOVE_REAL_TIME),
            Self::Programs => !is_unbound_kernel(name) && !is_per_cpu_kernel(name),
            Self::Movable => !is_per_cpu_kernel(name),
            Self::UnboundKernel => is_unbound_kernel(name),
            Self::MemoryDaemons => begins(name, MEMORY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_kinds_apart() {
        use Class::*;
        let kinds = [
            LowerThanRealTime,
            Fair,
            Programs,
            Movable,
            UnboundKernel,
            MemoryDaemons,
        ];
        let of = |name: &str| kinds.map(|kind| u8::from(kind.has(name)));
        assert_eq!(of("dpkg"), [1, 1, 1, 1, 0, 0]);
        assert_eq!(of("kworker/0:1"), [1, 1, 0, 0, 0, 0]);
        assert_eq!(of("kworker/u4:2"), [1, 1, 0, 1, 1, 0]);
        assert_eq!(of("ksoftirqd/1"), [1, 1, 0, 0, 0, 0]);
        assert_eq!(of("migration/0"), [0, 0, 0, 0, 0, 0]);
        assert_eq!(of("kdamond.0"), [1, 1, 0, 1, 1, 1]);
        assert_eq!(of("khugepaged"), [1, 1, 0, 1, 1, 1]);
    }
}
