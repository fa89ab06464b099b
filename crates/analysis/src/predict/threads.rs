//! Classifies threads by their names.
//!
//! A recording has the names of threads but not their flags, so kernel threads are recognised by name
//! (`Documentation/admin-guide/kernel-per-CPU-kthreads.rst`, and the names that the kernel's sources give
//! to `kthread_create`).

/// Classes of threads that a mitigation can keep off a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Threads that a real-time thread of middle priority preempts.
    LowerThanRealTime,
    /// Threads of the fair scheduler.
    Fair,
    /// Threads of programs, not of the kernel.
    Programs,
    /// Threads that can be moved to other CPUs.
    Movable,
}

/// Prefixes of the names of the kernel's unbound threads, with as much as distinguishes them from programs
/// (`xfs_repair`, `nvme`, `btrfs`).
const UNBOUND_KERNEL: &[&str] = &[
    "kthreadd",
    "kworker/u",
    "kworker/R-",
    "rcu_",
    "rcuo",
    "rcub/",
    "pr/",
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
    "xfs-",
    "xfsaild/",
    "xfsalloc",
    "xfs_mru_cache",
    "btrfs-",
    "nvme-wq",
    "nvme-reset-wq",
    "nvme-delete-wq",
    "nvme_tcp_wq",
    "nvmet-",
    "scsi_eh_",
    "scsi_tmf_",
    "md_",
    "kblockd",
    "khvcd",
    "ecryptfs",
    "hwrng",
    "napi/",
    "vhost-",
    "kvm-",
];

/// Prefixes of the names of the kernel's per-CPU threads.
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
    "irq_work/",
];

/// Kernel threads of the stop class, or of the real-time class above the middle priority.
const ABOVE_REAL_TIME: &[&str] = &[
    "migration/",
    "cpu_stopper/",
    "watchdog/",
    "irq/",
    "idle_inject/",
];

fn begins(name: &str, with: &[&str]) -> bool {
    with.iter().any(|prefix| name.starts_with(prefix))
}

fn is_unbound_kernel(name: &str) -> bool {
    begins(name, UNBOUND_KERNEL) || is_of_block_device(name)
}

/// `loop0` or `md127_raid1`, but not `md5sum`.
fn is_of_block_device(name: &str) -> bool {
    let after_number = |device: &str| {
        let numbered = name.strip_prefix(device)?;
        let rest = numbered.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < numbered.len()).then_some(rest)
    };
    after_number("loop") == Some("") || after_number("md").is_some_and(|rest| rest.starts_with('_'))
}

fn is_per_cpu_kernel(name: &str) -> bool {
    begins(name, PER_CPU_KERNEL) && !is_unbound_kernel(name)
}

impl Class {
    /// Whether a thread of this name, which is not one of the server's, is in this class.
    pub fn has(self, name: &str) -> bool {
        match self {
            Self::LowerThanRealTime | Self::Fair => !begins(name, ABOVE_REAL_TIME),
            Self::Programs => !is_unbound_kernel(name) && !is_per_cpu_kernel(name),
            Self::Movable => !is_per_cpu_kernel(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_classified_by_their_names() {
        use Class::*;
        let kinds = [LowerThanRealTime, Fair, Programs, Movable];
        let of = |name: &str| kinds.map(|kind| u8::from(kind.has(name)));
        assert_eq!(of("dpkg"), [1, 1, 1, 1]);
        assert_eq!(of("kworker/0:1"), [1, 1, 0, 0]);
        assert_eq!(of("kworker/u4:2"), [1, 1, 0, 1]);
        assert_eq!(of("ksoftirqd/1"), [1, 1, 0, 0]);
        assert_eq!(of("migration/0"), [0, 0, 0, 0]);
        assert_eq!(of("kdamond.0"), [1, 1, 0, 1]);
        assert_eq!(of("khugepaged"), [1, 1, 0, 1]);
        for kernel in [
            "md0_raid1",
            "md127_resync",
            "loop0",
            "xfs-buf/sda1",
            "xfsaild/sda1",
            "nvme-wq",
            "btrfs-cleaner",
            "scsi_eh_0",
        ] {
            assert_eq!(of(kernel), [1, 1, 0, 1], "{kernel}");
        }
        for program in [
            "mdadm",
            "md5sum",
            "loopback",
            "xfs_repair",
            "xfsdump",
            "nvme",
            "btrfs",
            "scsi_id",
        ] {
            assert_eq!(of(program), [1, 1, 1, 1], "{program}");
        }
    }
}
