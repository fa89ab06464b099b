//! Limits that control groups put on this process.

use std::fmt;
use std::path::Path;

use taillab_model::Nanos;

use crate::roots::{Roots, read_optional};
use crate::target::cpu_groups;

/// The limit on CPU time of one control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Time for all CPUs together in each period.
    pub quota: Nanos,
    /// The period.
    pub period: Nanos,
    /// How often the group was held back since it was made, and for how long, summed over its CPUs; `None`
    /// where the kernel does not count.
    pub throttled: Option<(u64, Nanos)>,
}

impl fmt::Display for CpuQuota {
    /// As the kernel writes it: quota and period in µs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Nanos| time.get() / 1_000;
        write!(f, "{} {}", us(self.quota), us(self.period))
    }
}

/// The limit on CPU time of the nearest of this process's control groups that has one (`cpu.max` of
/// version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1). `None` without a limit.
pub fn cpu_quota(roots: &Roots) -> Option<CpuQuota> {
    let groups = cpu_groups(roots, "self");
    groups.iter().find_map(|group| {
        let (quota_us, period_us) = version_2(group).or_else(|| version_1(group))?;
        Some(CpuQuota {
            quota: Nanos::from_micros(quota_us),
            period: Nanos::from_micros(period_us),
            throttled: throttled(group),
        })
    })
}

fn version_2(folder: &Path) -> Option<(u64, u64)> {
    let text = read_optional(&folder.join("cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}

fn version_1(folder: &Path) -> Option<(u64, u64)> {
    let number = |name: &str| read_optional(&folder.join(name))?.parse().ok();
    Some((number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
}

fn throttled(folder: &Path) -> Option<(u64, Nanos)> {
    let text = read_optional(&folder.join("cpu.stat"))?;
    Some((value(&text, "nr_throttled ")?, throttled_time(&text)?))
}

fn value(stat: &str, key: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().parse().ok()
}

/// For how long a group was held back, by its `cpu.stat`. Version 2 counts in microseconds, version 1 in
/// nanoseconds.
pub fn throttled_time(stat: &str) -> Option<Nanos> {
    let in_us = value(stat, "throttled_usec ").map(Nanos::from_micros);
    in_us.or_else(|| value(stat, "throttled_time ").map(Nanos::new))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn quota(groups: &str, files: &[(&str, &str)]) -> Option<CpuQuota> {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/cgroup"), groups).unwrap();
        for (path, text) in files {
            let path = roots.sys.join("fs/cgroup").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        cpu_quota(&roots)
    }

    fn limit(quota_us: u64, period_us: u64) -> Option<CpuQuota> {
        Some(CpuQuota {
            quota: Nanos::from_micros(quota_us),
            period: Nanos::from_micros(period_us),
            throttled: None,
        })
    }

    #[test]
    fn both_versions_count_how_often_they_held_the_group_back() {
        let stat = "nr_periods 9\nnr_throttled 4\nthrottled_time 30000\n";
        let old = [
            ("cpu/cpu.cfs_quota_us", "2000\n"),
            ("cpu/cpu.cfs_period_us", "4000\n"),
            ("cpu/cpu.stat", stat),
        ];
        let found = quota("1:cpu:/\n", &old).unwrap();
        assert_eq!(found.throttled, Some((4, Nanos::from_micros(30))));
        let stat = "usage_usec 7\nnr_periods 9\nnr_throttled 5\nthrottled_usec 60\n";
        let new = [("a/cpu.max", "1 2\n"), ("a/cpu.stat", stat)];
        let found = quota("0::/a\n", &new).unwrap();
        assert_eq!(found.throttled, Some((5, Nanos::from_micros(60))));
    }

    #[test]
    fn limits_of_both_versions_and_of_parents_are_found() {
        assert_eq!(quota("0::/a/b\n", &[("a/b/cpu.max", "max 100000\n")]), None);
        let parent = [
            ("a/b/cpu.max", "max 100000\n"),
            ("a/cpu.max", "5000 10000\n"),
        ];
        assert_eq!(quota("0::/a/b\n", &parent), limit(5_000, 10_000));
        let unified = [("unified/a/cpu.max", "1 2\n")];
        assert_eq!(quota("1:name=x:/\n0::/a\n", &unified), limit(1, 2));
        let old = [
            ("cpu/a/cpu.cfs_quota_us", "2000\n"),
            ("cpu/a/cpu.cfs_period_us", "4000\n"),
        ];
        assert_eq!(quota("3:cpu,cpuacct:/a\n", &old), limit(2_000, 4_000));
        let none = [
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "4000\n"),
        ];
        assert_eq!(quota("1:cpu:/\n", &none), None);
    }
}
