//! Control groups and their processes.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::roots::Roots;

/// A control group of either version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its folder below /sys/fs/cgroup.
    pub folder: PathBuf,
}

impl Cgroup {
    /// The group at `path`: its folder, or its path below the mount point of any hierarchy.
    pub fn find(roots: &Roots, path: &Path) -> Option<Self> {
        let mount = roots.sys.join("fs/cgroup");
        let below = path.strip_prefix("/").unwrap_or(path);
        let mut mounts = vec![mount.clone(), mount.join("unified")];
        // version 1: a folder for each controller, the one of CPUs before all others
        mounts.push(mount.join("cpu"));
        mounts.extend(
            (fs::read_dir(&mount).into_iter().flatten())
                .filter_map(|entry| Some(entry.ok()?.path())),
        );
        let mut candidates = vec![path.to_owned()];
        candidates.extend(mounts.into_iter().map(|mount| mount.join(below)));
        candidates.into_iter().find_map(Self::at)
    }

    /// The group of version 2 that has exactly these processes, given in ascending order.
    pub fn of_exactly(roots: &Roots, processes: &[u32]) -> Option<Self> {
        let of_first = roots.proc.join(format!("{}/cgroup", processes.first()?));
        let text = fs::read_to_string(of_first).ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        let group = Self::find(roots, Path::new(path))?;
        (group.processes() == processes).then_some(group)
    }

    fn at(folder: PathBuf) -> Option<Self> {
        let is_group = folder.is_absolute() && folder.join("cgroup.procs").is_file();
        is_group.then_some(Self { folder })
    }

    /// The processes in it and in the groups below it, in ascending order.
    pub fn processes(&self) -> Vec<u32> {
        let mut processes = Vec::new();
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            // a process of another pid namespace shows as 0
            let numbers = text.lines().filter_map(|line| line.parse::<u32>().ok());
            processes.extend(numbers.filter(|&pid| pid > 0));
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        processes.sort_unstable();
        processes.dedup();
        processes
    }
}

/// The folders of the groups that can hold back the CPU time of a process (a number, or `self`): its
/// group and those above it, the nearest first, in the hierarchy that has the `cpu` controller.
pub fn cpu_groups(roots: &Roots, process: impl Display) -> Vec<PathBuf> {
    let text = fs::read_to_string(roots.proc.join(format!("{process}/cgroup")));
    let mount = roots.sys.join("fs/cgroup");
    // which of these a group has depends on the version and on whether it is the root
    const FILES: [&str; 3] = ["cpu.stat", "cpu.max", "cpu.cfs_quota_us"];
    let mut folders = Vec::new();
    for line in text.unwrap_or_default().lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let mounts = if controllers.is_empty() {
            vec![mount.clone(), mount.join("unified")]
        } else if controllers.split(',').any(|name| name == "cpu") {
            vec![mount.join("cpu"), mount.join(controllers)]
        } else {
            continue;
        };
        let path = Path::new(path.trim_start_matches('/'));
        for mount in mounts {
            let groups = path.ancestors().map(|group| mount.join(group));
            folders
                .extend(groups.filter(|group| FILES.iter().any(|file| group.join(file).is_file())));
        }
    }
    // `cpu` and `cpu,cpuacct` are often one folder under two names
    let mut seen = Vec::new();
    folders.retain(|folder| {
        let id = fs::metadata(folder)
            .map(|meta| (meta.dev(), meta.ino()))
            .ok();
        let new = id.is_none_or(|id| !seen.contains(&id));
        seen.extend(id);
        new
    });
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn a_group_is_found_by_its_folder_and_by_its_path() {
        let (folder, roots) = tree(&[
            ("sys/fs/cgroup/web.slice/cgroup.procs", "7\n"),
            ("sys/fs/cgroup/web.slice/a/cgroup.procs", "9\n0\n8\n"),
        ]);
        let whole = folder.path().join("sys/fs/cgroup/web.slice");
        for path in [
            whole.as_path(),
            Path::new("/web.slice"),
            Path::new("web.slice"),
        ] {
            let group = Cgroup::find(&roots, path).unwrap();
            assert_eq!(group.processes(), [7, 8, 9]);
            assert_eq!(group.folder, whole);
        }
        assert_eq!(Cgroup::find(&roots, Path::new("other.slice")), None);
    }

    #[test]
    fn a_service_has_a_group_with_its_processes_and_no_others() {
        let (_folder, roots) = tree(&[
            ("proc/7/cgroup", "1:name=x:/\n0::/web.service\n"),
            ("proc/9/cgroup", "0::/user.slice\n"),
            ("sys/fs/cgroup/web.service/cgroup.procs", "8\n7\n"),
            ("sys/fs/cgroup/user.slice/cgroup.procs", "9\n10\n11\n"),
        ]);
        let group = Cgroup::of_exactly(&roots, &[7, 8]).unwrap();
        assert!(group.folder.ends_with("web.service"));
        assert_eq!(Cgroup::of_exactly(&roots, &[9, 10]), None);
        assert_eq!(Cgroup::of_exactly(&roots, &[12]), None);
        assert_eq!(Cgroup::of_exactly(&roots, &[]), None);
    }

    #[test]
    fn groups_of_version_1_are_found_below_their_controllers() {
        let (_folder, roots) = tree(&[
            ("sys/fs/cgroup/memory/web/cgroup.procs", "5\n"),
            ("sys/fs/cgroup/cpu/web/cgroup.procs", "6\n"),
        ]);
        let group = Cgroup::find(&roots, Path::new("/web")).unwrap();
        assert_eq!(group.processes(), [6]);
    }

    #[test]
    fn the_groups_above_can_hold_a_process_back_too() {
        let (folder, roots) = tree(&[
            ("proc/7/cgroup", "3:memory:/x\n0::/web.slice/a\n"),
            ("sys/fs/cgroup/web.slice/a/cpu.stat", ""),
            ("sys/fs/cgroup/web.slice/cpu.stat", ""),
        ]);
        let mount = folder.path().join("sys/fs/cgroup");
        assert_eq!(
            cpu_groups(&roots, 7),
            [mount.join("web.slice/a"), mount.join("web.slice")]
        );
        assert!(cpu_groups(&roots, 8).is_empty());
    }
}
