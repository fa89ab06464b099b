//! Time in which quotas of control groups held a server back.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use taillab_model::Nanos;

use crate::cgroup::throttled_time;
use crate::roots::Roots;
use crate::target::cpu_groups;

/// Reads `cpu.stat` of the control groups that can hold some processes back.
#[derive(Debug, Default)]
pub(super) struct ThrottleSampler {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    file: File,
    last: Nanos,
}

impl ThrottleSampler {
    /// Begins to count, in the groups of these processes and in all above them.
    pub(super) fn new(roots: &Roots, processes: &[u32]) -> Self {
        let mut folders: Vec<PathBuf> = processes
            .iter()
            .flat_map(|pid| cpu_groups(roots, *pid))
            .collect();
        folders.sort_unstable();
        folders.dedup();
        let group = |folder: PathBuf| {
            let file = File::open(folder.join("cpu.stat")).ok()?;
            // a group without these counts has no quota
            let last = throttled(&file)?;
            Some(Group { file, last })
        };
        Self {
            groups: folders.into_iter().filter_map(group).collect(),
        }
    }

    /// For how long they were held back since the last look, summed over the groups and,
    /// in each, over its CPUs.
    pub(super) fn sample(&mut self) -> Nanos {
        let mut sum = Nanos::ZERO;
        for group in &mut self.groups {
            // a group that is gone holds nobody back
            if let Some(now) = throttled(&group.file) {
                sum += now.saturating_sub(group.last);
                group.last = now;
            }
        }
        sum
    }
}

fn throttled(file: &File) -> Option<Nanos> {
    let mut bytes = [0_u8; 2048];
    let read = file.read_at(&mut bytes, 0).ok()?;
    throttled_time(&String::from_utf8_lossy(&bytes[..read]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_group_and_those_above_it_are_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for pid in [7, 8] {
            write(&format!("proc/{pid}/cgroup"), "0::/web/a\n");
        }
        let mount = "sys/fs/cgroup";
        write(&format!("{mount}/cpu.stat"), "usage_usec 5\n");
        write(
            &format!("{mount}/web/cpu.stat"),
            "nr_throttled 1\nthrottled_usec 40\n",
        );
        write(&format!("{mount}/web/a/cpu.stat"), "throttled_time 1000\n");
        let mut sampler = ThrottleSampler::new(&roots, &[7, 8]);
        assert_eq!(sampler.sample(), Nanos::ZERO);
        write(
            &format!("{mount}/web/cpu.stat"),
            "nr_throttled 2\nthrottled_usec 90\n",
        );
        write(&format!("{mount}/web/a/cpu.stat"), "throttled_time 1500\n");
        assert_eq!(sampler.sample(), Nanos::new(50_500));
        assert_eq!(sampler.sample(), Nanos::ZERO);
    }
}
