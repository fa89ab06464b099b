//! Limits that control groups put on this process.

use std::path::Path;

use crate::roots::{Roots, read_optional};
use crate::target::cpu_groups;

/// The limit on CPU time of the nearest of this process's control groups that has
/// one: `quota period` in µs (`cpu.max` of version 2, `cpu.cfs_quota_us` and
/// `cpu.cfs_period_us` of version 1). `None` without a limit.
pub(crate) fn cpu_quota(roots: &Roots) -> Option<String> {
    let groups = cpu_groups(roots, "self");
    groups
        .iter()
        .find_map(|group| version_2(group).or_else(|| version_1(group)))
}

fn version_2(folder: &Path) -> Option<String> {
    read_optional(&folder.join("cpu.max")).filter(|text| !text.starts_with("max"))
}

fn version_1(folder: &Path) -> Option<String> {
    let number = |name: &str| read_optional(&folder.join(name))?.parse::<i64>().ok();
    let quota_us = number("cpu.cfs_quota_us").filter(|&us| us >= 0)?;
    Some(format!("{quota_us} {}", number("cpu.cfs_period_us")?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn quota(groups: &str, files: &[(&str, &str)]) -> Option<String> {
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

    #[test]
    fn limits_of_both_versions_and_of_parents_are_found() {
        assert_eq!(quota("0::/a/b\n", &[("a/b/cpu.max", "max 100000\n")]), None);
        let parent = [
            ("a/b/cpu.max", "max 100000\n"),
            ("a/cpu.max", "5000 10000\n"),
        ];
        assert_eq!(quota("0::/a/b\n", &parent), Some("5000 10000".into()));
        let unified = [("unified/a/cpu.max", "1 2\n")];
        assert_eq!(quota("1:name=x:/\n0::/a\n", &unified), Some("1 2".into()));
        let old = [
            ("cpu/a/cpu.cfs_quota_us", "2000\n"),
            ("cpu/a/cpu.cfs_period_us", "4000\n"),
        ];
        assert_eq!(quota("3:cpu,cpuacct:/a\n", &old), Some("2000 4000".into()));
        let none = [
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "4000\n"),
        ];
        assert_eq!(quota("1:cpu:/\n", &none), None);
    }
}
