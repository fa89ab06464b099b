//! A file below /proc or /sys.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError, write_namespace};
use crate::cpus::CpuSet;
use crate::netns::NetNamespace;
use crate::process::ProcessIdentity;
use crate::roots::{Roots, bracketed};
use crate::sysfs::{Sysfs, SysfsError};

/// How the text of a file is read and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As it is, without blanks at its ends.
    Text,
    /// The kernel shows all choices and puts brackets around the one that holds.
    Choice,
    /// A list of CPUs: `0-1,3`.
    CpuList,
    /// A bitmap of CPUs: `00000003`.
    CpuMask,
}

/// A file below /proc or /sys that holds one value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileSetting {
    /// Its path on the running machine: `/proc/…` or `/sys/…`.
    pub path: String,
    /// How it is read and compared.
    pub form: Form,
    /// The inode of the network namespace whose value is meant; `None` for ours.
    pub namespace: Option<u64>,
    /// The thread whose file it is; `None` for a file of the machine.
    pub thread: Option<ProcessIdentity>,
}

impl FileSetting {
    /// A file of the machine, of the caller's network namespace.
    pub fn new(path: impl Into<String>, form: Form) -> Self {
        Self {
            path: path.into(),
            form,
            namespace: None,
            thread: None,
        }
    }

    /// The same file in another network namespace.
    #[must_use]
    pub fn within(self, namespace: Option<u64>) -> Self {
        Self { namespace, ..self }
    }

    fn place(&self, roots: &Roots) -> Result<PathBuf, SettingError> {
        let below = |root: &PathBuf, prefix| Some(root.join(self.path.strip_prefix(prefix)?));
        let place = below(&roots.proc, "/proc/").or_else(|| below(&roots.sys, "/sys/"));
        // only files of the kernel, whatever the journal says
        place
            .filter(|_| !leaves_kernel(&self.path))
            .ok_or_else(|| self.unreadable(rustix::io::Errno::INVAL))
    }

    /// Whether it is the slack of a thread's timers, of which a real-time thread has none: it reads 0, and what is
    /// written is ignored.
    fn is_timer_slack(&self) -> bool {
        self.path.ends_with(TIMER_SLACK)
    }

    fn check_thread(&self, roots: &Roots) -> Result<(), SettingError> {
        match self.thread {
            Some(thread) if !thread.is_alive(roots) => Err(SettingError::Ended {
                what: self.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Runs `act` on the file, opened as asked, in the namespace that is meant.
    fn with_file<T: Send>(
        &self,
        roots: &Roots,
        for_writing: bool,
        act: impl FnOnce(File) -> io::Result<T> + Send,
    ) -> Result<io::Result<T>, SettingError> {
        self.check_thread(roots)?;
        let Some(inode) = self.namespace else {
            let place = self.place(roots)?;
            return Ok(open(&place, for_writing).and_then(act));
        };
        let namespace = NetNamespace::with_inode(roots, inode).ok_or_else(|| self.missing())?;
        let in_namespace =
            |error: crate::netns::NetnsError| self.unreadable(io::Error::other(error));
        if let Some(below) = self.path.strip_prefix("/sys/") {
            let sysfs = Sysfs::of(&namespace).map_err(|error| match error {
                SysfsError::Open(source) => self.unreadable(source),
                other => self.unreadable(io::Error::other(other)),
            })?;
            return Ok(sysfs.open(below, for_writing).and_then(act));
        }
        // /proc/sys/net shows the namespace of the thread that opens it
        let place = self.place(roots)?;
        namespace
            .run(move || open(&place, for_writing).and_then(act))
            .map_err(in_namespace)
    }
}

/// The end of the path of a thread's timer slack (proc_pid_timerslack_ns(5)).
const TIMER_SLACK: &str = "/timerslack_ns";

/// Whether a path below /proc or /sys leads to files of anybody: upwards, or by a process's links to its root, its
/// folder and its open files (proc_pid(5)). Elsewhere these are names as any other, e.g. of a network device.
fn leaves_kernel(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let of_process = match parts.as_slice() {
        ["proc", process, rest @ ..]
            if process.bytes().all(|byte| byte.is_ascii_digit())
                || ["self", "thread-self"].contains(process) =>
        {
            rest
        }
        _ => &[],
    };
    let links = ["root", "cwd", "exe", "fd", "map_files", "ns"];
    parts.contains(&"..") || of_process.iter().any(|part| links.contains(part))
}

fn open(place: &PathBuf, for_writing: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(!for_writing)
        .write(for_writing)
        // a file of the kernel has nothing to truncate, one of a recorded tree has
        .truncate(for_writing)
        .custom_flags(libc::O_NOFOLLOW)
        .open(place)
}

impl Knob for FileSetting {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let text = self.with_file(roots, false, |mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        })?;
        let text = text.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => self.missing(),
            _ => self.unreadable(source),
        })?;
        let text = text.trim();
        Ok(match self.form {
            Form::Choice => bracketed(text).to_owned(),
            Form::Text | Form::CpuList | Form::CpuMask => text.to_owned(),
        })
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        // in one call: the kernel takes each write for a whole value
        let line = format!("{value}\n");
        let written =
            self.with_file(roots, true, move |mut file| file.write_all(line.as_bytes()))?;
        written.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound
                if !self
                    .place(roots)
                    .is_ok_and(|path| fs::exists(path).unwrap_or(true)) =>
            {
                self.missing()
            }
            _ => self.refused(value, source),
        })
    }

    fn same(&self, left: &str, right: &str) -> bool {
        // none at all is less than the least that can be asked for
        let none_or_least = |value: &str| matches!(value, "0" | "1");
        if left == right || self.is_timer_slack() && none_or_least(left) && none_or_least(right) {
            return true;
        }
        match self.form {
            Form::Text => (left.split_ascii_whitespace()).eq(right.split_ascii_whitespace()),
            Form::Choice => false,
            Form::CpuList => {
                let (left, right) = (left.parse::<CpuSet>(), right.parse::<CpuSet>());
                matches!((left, right), (Ok(left), Ok(right)) if left == right)
            }
            Form::CpuMask => {
                let (left, right) = (CpuSet::from_mask(left), CpuSet::from_mask(right));
                matches!((left, right), (Ok(left), Ok(right)) if left == right)
            }
        }
    }
}

impl fmt::Display for FileSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        write_namespace(f, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn each_form_is_read_written_and_compared_as_the_kernel_does() {
        let (_folder, roots) = tree(&[
            ("sys/thp", "always [madvise] never\n"),
            ("proc/sys/vm/stat_interval", "1\n"),
            ("sys/cpus", "0-1\n"),
        ]);
        let thp = FileSetting::new("/sys/thp", Form::Choice);
        assert_eq!(thp.read(&roots).unwrap(), "madvise");
        let interval = FileSetting::new("/proc/sys/vm/stat_interval", Form::Text);
        interval.write(&roots, "1000").unwrap();
        assert_eq!(interval.read(&roots).unwrap(), "1000");
        assert!(interval.same("4096 131072", "4096\t131072"));
        let cpus = FileSetting::new("/sys/cpus", Form::CpuList);
        assert!(cpus.same("0-1", "0,1") && !cpus.same("0-1", "0") && cpus.same("", ""));
        let slack = FileSetting::new("/proc/7/timerslack_ns", Form::Text);
        assert!(slack.same("0", "1") && !slack.same("0", "50000"));
        let mask = FileSetting::new("/sys/cpus", Form::CpuMask);
        assert!(mask.same("3", "00000000,00000003") && !mask.same("3", "1"));
    }

    #[test]
    fn a_device_may_be_called_like_a_link_of_a_process() {
        let path = "proc/sys/net/ipv4/conf/root/rp_filter";
        let (_folder, roots) = tree(&[(path, "1\n")]);
        let setting = FileSetting::new(format!("/{path}"), Form::Text);
        assert_eq!(setting.read(&roots).unwrap(), "1");
    }

    #[test]
    fn nothing_but_files_of_the_kernel_is_touched() {
        let (folder, roots) = tree(&[("etc/shadow", "secret\n"), ("sys/a", "1\n")]);
        let root = roots.proc.join("7/task/8");
        fs::create_dir_all(&root).unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("root")).unwrap();
        std::os::unix::fs::symlink(folder.path(), roots.proc.join("7/cwd")).unwrap();
        for path in [
            "/etc/shadow",
            "/sys/../etc/shadow",
            "etc/shadow",
            "/proc/7/task/8/root/etc/shadow",
            "/proc/7/cwd/etc/shadow",
        ] {
            let setting = FileSetting::new(path, Form::Text);
            assert!(setting.read(&roots).is_err(), "{path}");
            assert!(setting.write(&roots, "x").is_err(), "{path}");
        }
        std::os::unix::fs::symlink(folder.path().join("etc/shadow"), roots.sys.join("link"))
            .unwrap();
        let link = FileSetting::new("/sys/link", Form::Text);
        assert!(link.write(&roots, "x").is_err());
        let shadow = fs::read_to_string(folder.path().join("etc/shadow")).unwrap();
        assert_eq!(shadow, "secret\n");
        let missing = FileSetting::new("/sys/b", Form::Text);
        assert!(missing.read(&roots).unwrap_err().is_gone());
        assert!(missing.write(&roots, "1").unwrap_err().is_gone());
        assert!(!roots.sys.join("b").exists());
    }
}
