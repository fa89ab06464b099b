//! Control groups: one that we make, and which one a thread or a process is in.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError, ThreadAffinity, with_thread};
use crate::process::ProcessIdentity;
use crate::roots::Roots;

/// The values of [`GroupFolder`].
const ABSENT: &str = "absent";
const PRESENT: &str = "present";

/// For how long to empty a group again and again, since its processes start others and ending ones
/// leave it late, and the pause between two tries.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// Whether a control group exists: `absent` or `present`. Removing it moves what is in it to
/// the group above.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupFolder {
    /// Its folder on the running machine: `/sys/fs/cgroup/…`.
    pub folder: String,
}

impl GroupFolder {
    fn place(&self, roots: &Roots) -> Result<PathBuf, SettingError> {
        below_sys(roots, &self.folder).ok_or_else(|| self.unreadable(rustix::io::Errno::INVAL))
    }
}

fn below_sys(roots: &Roots, path: &str) -> Option<PathBuf> {
    let below = path.strip_prefix("/sys/fs/cgroup/")?;
    let leaves = below.split('/').any(|part| part == "..");
    (!leaves).then(|| roots.sys.join("fs/cgroup").join(below))
}

/// The file that lists and takes a group's members: single threads in version 1, processes in version 2.
fn members_file(group: &Path) -> PathBuf {
    let threads = group.join("tasks");
    match threads.exists() {
        true => threads,
        false => group.join("cgroup.procs"),
    }
}

/// Moves all members of `group` to the group above it.
fn empty(group: &Path) -> io::Result<()> {
    let Some(above) = group.parent() else {
        return Ok(());
    };
    let members = fs::read_to_string(members_file(group)).unwrap_or_default();
    for member in members.lines() {
        match fs::write(members_file(above), member) {
            // it has ended meanwhile
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            other => other?,
        }
    }
    Ok(())
}

impl Knob for GroupFolder {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let exists = fs::exists(self.place(roots)?).map_err(|e| self.unreadable(e))?;
        Ok(match exists {
            true => PRESENT.into(),
            false => ABSENT.into(),
        })
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let place = self.place(roots)?;
        if value == PRESENT {
            return fs::create_dir(&place).map_err(|e| self.refused(value, e));
        }
        let last = Instant::now() + PATIENCE;
        loop {
            empty(&place).map_err(|e| self.refused(value, e))?;
            match fs::remove_dir(&place) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < last => {
                    thread::sleep(PAUSE);
                }
                Err(e) => return Err(self.refused(value, e)),
            }
        }
    }
}

impl fmt::Display for GroupFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mkdir({})", self.folder)
    }
}

/// The control group of a thread (version 1) or of a process (version 2), as its path below the
/// mount point: `/web.slice`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The thread, or the process.
    pub member: ProcessIdentity,
    /// The mount point on the running machine: `/sys/fs/cgroup/cpuset`, `/sys/fs/cgroup`.
    pub mount: String,
    /// The controller that names the hierarchy in /proc/PID/cgroup; empty for version 2.
    pub controller: String,
}

impl Knob for Membership {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        with_thread(self, roots, self.member, |_| {
            let path = roots.proc.join(format!("{}/cgroup", self.member.pid));
            let text = fs::read_to_string(path).map_err(|e| self.unreadable(e))?;
            let group = text.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                controllers
                    .split(',')
                    .any(|name| name == self.controller)
                    .then(|| path.to_owned())
            });
            group.ok_or_else(|| self.missing())
        })
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let group = format!("{}/{}", self.mount, value.trim_start_matches('/'));
        let place = below_sys(roots, &group)
            .ok_or_else(|| self.refused(value, rustix::io::Errno::INVAL))?;
        let affinity = ThreadAffinity {
            thread: self.member,
        };
        let bound = match self.controller.is_empty() {
            true => None,
            false => affinity.read(roots).ok(),
        };
        with_thread(self, roots, self.member, |_| {
            let file = match self.controller.is_empty() {
                true => place.join("cgroup.procs"),
                false => members_file(&place),
            };
            fs::write(file, self.member.pid.to_string()).map_err(|e| self.refused(value, e))
        })?;
        // Before Linux 6.2 the kernel forgets what a thread was bound to, and gives it all CPUs of its new
        // cpuset. Where that has none of the old ones, the kernel refuses, and its choice stays.
        if let Some(bound) = bound
            && affinity
                .read(roots)
                .is_ok_and(|now| !affinity.same(&now, &bound))
        {
            let _ = affinity.write(roots, &bound);
        }
        Ok(())
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "control group of thread {} in {}",
            self.member.pid, self.mount
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn a_group_is_made_and_removed_and_only_below_the_mount_point() {
        let (_folder, roots) = tree(&[("sys/fs/cgroup/cpuset/tasks", "")]);
        let group = GroupFolder {
            folder: "/sys/fs/cgroup/cpuset/taillab".into(),
        };
        assert_eq!(group.read(&roots).unwrap(), ABSENT);
        group.write(&roots, PRESENT).unwrap();
        assert_eq!(group.read(&roots).unwrap(), PRESENT);
        group.write(&roots, ABSENT).unwrap();
        assert_eq!(group.read(&roots).unwrap(), ABSENT);
        for folder in ["/tmp/x", "/sys/fs/cgroup/../../x"] {
            let other = GroupFolder {
                folder: folder.into(),
            };
            assert!(other.read(&roots).is_err(), "{folder}");
        }
    }

    #[test]
    fn membership_is_that_of_its_hierarchy() {
        let line = "7 (x) S 1 7 7 0 -1 0 100 0 0 0 7 9 0 0 20 0 5 0 12345 1 2 3 1 1 0 0 0 0 0 0 \
                    0 0 0 0 0 17 3 0 0 0";
        let (_folder, roots) = tree(&[
            ("proc/7/stat", line),
            ("proc/7/cgroup", "3:cpuset:/a\n1:cpu,cpuacct:/b\n0::/c\n"),
            ("sys/fs/cgroup/cpuset/z/tasks", ""),
        ]);
        let member = ProcessIdentity::of(&roots, 7).unwrap();
        let read = |controller: &str| {
            let membership = Membership {
                member,
                mount: "/sys/fs/cgroup/cpuset".into(),
                controller: controller.into(),
            };
            membership.write(&roots, "/z").unwrap_or_default();
            membership.read(&roots).unwrap()
        };
        assert_eq!(
            (read("cpuset"), read("cpuacct"), read("")),
            ("/a".into(), "/b".into(), "/c".into())
        );
        let tasks = roots.sys.join("fs/cgroup/cpuset/z/tasks");
        assert_eq!(fs::read_to_string(tasks).unwrap(), "7");

        // a process that is ending is in the root group already, which is not a failure of ours
        let exiting = line.replace(" -1 0 100", " -1 4 100");
        fs::write(roots.proc.join("7/stat"), exiting).unwrap();
        fs::write(roots.proc.join("7/cgroup"), "3:cpuset:/\n").unwrap();
        let membership = Membership {
            member,
            mount: "/sys/fs/cgroup/cpuset".into(),
            controller: "cpuset".into(),
        };
        let read = membership.read(&roots);
        assert!(matches!(read, Err(SettingError::Ended { .. })), "{read:?}");
    }
}
