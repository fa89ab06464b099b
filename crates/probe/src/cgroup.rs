//! A cgroup as the eBPF programs recognise it: its number and its level.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::btf::{Btf, types::Enum};
use rustix::io::Errno;

/// The initial cgroup namespace (`PROC_CGROUP_INIT_INO`). In another one, mount points do not
/// show how deep a cgroup is.
const INITIAL_NAMESPACE: u64 = 0xeffffffb;

/// The length of `subsys` of the kernel's `css_set` in the programs (`MAX_SUBSYSTEMS`).
const MAX_SUBSYSTEMS: u32 = 12;

/// A cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroup {
    /// The inode of its directory, unique in its hierarchy.
    pub(crate) inode: u64,
    /// Its level below the root of its hierarchy.
    pub(crate) level: u32,
    /// In version 1, the kernel's number of a controller of its hierarchy; [`MAX_SUBSYSTEMS`]
    /// for version 2.
    pub(crate) subsystem: u32,
}

impl Cgroup {
    /// The cgroup with this directory.
    ///
    /// # Errors
    /// One line with the cause and the remedy.
    pub(crate) fn of(directory: &Path) -> Result<Self, String> {
        let shown = directory.display();
        let path = directory
            .canonicalize()
            .map_err(|error| format!("{shown} is not a cgroup directory: {error}"))?;
        let inode = fs::metadata(&path)
            .map_err(|error| format!("{shown} cannot be read: {error}"))?
            .ino();
        let namespace = fs::metadata("/proc/self/ns/cgroup").map(|found| found.ino());
        if namespace.ok() != Some(INITIAL_NAMESPACE) {
            return Err(format!(
                "{shown} can only be watched from the initial cgroup namespace: run taillab \
                 outside of the container, or name processes instead"
            ));
        }
        let mounts = read_mounts()
            .map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
        let (level, hierarchy) = place(&mounts, &path).ok_or_else(|| {
            format!("{shown} is not in a cgroup file system: give a directory below /sys/fs/cgroup")
        })?;
        let subsystem = match hierarchy {
            Hierarchy::V2 => MAX_SUBSYSTEMS,
            Hierarchy::V1(options) => subsystem(&options).ok_or_else(|| {
                format!(
                    "{shown} is in a version 1 hierarchy without a controller ({options}): give the \
                     cgroup's directory in the hierarchy of a controller, e.g. below /sys/fs/cgroup/cpu"
                )
            })?,
        };
        Ok(Self {
            inode,
            level,
            subsystem,
        })
    }
}

/// The root of the version 2 tree, which contains every process and socket of the host.
///
/// # Errors
/// `NotFound` (`ENOENT`) if it is not mounted, or only a part of it is.
pub(crate) fn root() -> io::Result<File> {
    /// The inode of the root of every kernfs tree.
    const ROOT: u64 = 1;
    let mounts = read_mounts()?;
    let trees = mounts.lines().filter_map(|line| match mount(line)? {
        (_, point, Hierarchy::V2) => File::open(point).ok(),
        _ => None,
    });
    let mut whole = trees.filter(|tree| tree.metadata().is_ok_and(|found| found.ino() == ROOT));
    whole.next().ok_or_else(|| Errno::NOENT.into())
}

fn read_mounts() -> io::Result<String> {
    // the path of a mount point may hold any bytes
    Ok(String::from_utf8_lossy(&fs::read("/proc/self/mountinfo")?).into_owned())
}

/// A hierarchy of cgroups.
#[derive(Debug, PartialEq, Eq)]
enum Hierarchy {
    V2,
    /// With its mount options, which name its controllers.
    V1(String),
}

/// The level of a directory below the root of its hierarchy, and that hierarchy, from the text of
/// `/proc/self/mountinfo` (proc(5)).
fn place(mounts: &str, path: &Path) -> Option<(u32, Hierarchy)> {
    let mut best: Option<(PathBuf, u32, Hierarchy)> = None;
    for (root, point, hierarchy) in mounts.lines().filter_map(mount) {
        let Ok(below) = path.strip_prefix(point) else {
            continue;
        };
        let point = PathBuf::from(point);
        // a mount point below another one hides it
        if best.as_ref().is_some_and(|(known, ..)| *known > point) {
            continue;
        }
        let root = Path::new(root).components().count().saturating_sub(1);
        let level = (root + below.components().count()) as u32;
        best = Some((point, level, hierarchy));
    }
    best.map(|(_, level, hierarchy)| (level, hierarchy))
}

/// The mounted directory, the mount point and the hierarchy of a line of `/proc/self/mountinfo`, if
/// it mounts cgroups.
fn mount(line: &str) -> Option<(&str, &str, Hierarchy)> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut after = after.split(' ');
    let hierarchy = match after.next()? {
        "cgroup2" => Hierarchy::V2,
        "cgroup" => Hierarchy::V1(after.nth(1).unwrap_or_default().into()),
        _ => return None,
    };
    Some((root, point, hierarchy))
}

/// The kernel's number of the first controller in these mount options.
fn subsystem(options: &str) -> Option<u32> {
    let btf = Btf::from_vmlinux().ok()?;
    let known = btf.type_by_name::<Enum<'_>>("cgroup_subsys_id")?;
    let number = |name: &str| {
        let member = format!("{name}_cgrp_id");
        let found = known
            .iter()
            .find(|entry| entry.name.is_some_and(|known| *known == *member));
        found.and_then(|entry| u32::try_from(entry.value).ok())
    };
    // the block controller is called io inside the kernel
    options
        .split(',')
        .map(|name| if name == "blkio" { "io" } else { name })
        .find_map(number)
        .filter(|&number| number < MAX_SUBSYSTEMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
25 30 0:23 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
26 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
27 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
28 25 0:26 /pods /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
";

    #[test]
    fn a_directory_has_its_hierarchy_and_level() {
        let of = |path: &str| place(MOUNTS, Path::new(path));
        let v1 = |options: &str| Hierarchy::V1(options.into());
        assert_eq!(of("/sys/fs/cgroup/unified"), Some((0, Hierarchy::V2)));
        assert_eq!(of("/sys/fs/cgroup/unified/a/b"), Some((2, Hierarchy::V2)));
        let cpu = of("/sys/fs/cgroup/cpu,cpuacct/web");
        assert_eq!(cpu, Some((1, v1("rw,cpu,cpuacct"))));
        // only a part of the hierarchy is mounted
        assert_eq!(of("/sys/fs/cgroup/memory/x"), Some((2, v1("rw,memory"))));
        assert_eq!(of("/sys/fs/cgroup"), None);
        assert_eq!(of("/home"), None);
    }
}
