//! Where the kernel's pseudo file systems are mounted.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

/// Mount points that every reader of kernel files takes, so that tests can hand
/// it a temporary tree and no reader depends on the machine it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
}

impl Default for Roots {
    /// The running machine's own.
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
            etc: "/etc".into(),
        }
    }
}

impl Roots {
    /// `proc`, `sys` and `etc` below one folder.
    pub fn below(folder: &Path) -> Self {
        Self {
            proc: folder.join("proc"),
            sys: folder.join("sys"),
            etc: folder.join("etc"),
        }
    }
}

/// The trimmed text of a small file, or `None` where it is missing, unreadable or
/// empty: for facts that a machine may not have.
pub(crate) fn read_optional(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The choice in brackets of a small file: `always [madvise] never`; the whole text without any.
pub(crate) fn chosen(path: &Path) -> Option<String> {
    Some(bracketed(&read_optional(path)?).to_owned())
}

/// What is in brackets; the whole text without any.
pub(crate) fn bracketed(text: &str) -> &str {
    let rest = text.split_once('[').map(|(_, rest)| rest);
    let choice = rest.and_then(|rest| rest.split_once(']'));
    choice.map_or(text, |(choice, _)| choice)
}

/// The value of the first line `name: value` with one of these names.
pub(crate) fn field(text: &str, names: &[&str]) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        names
            .contains(&name.trim())
            .then(|| value.trim().to_owned())
    })
}

/// A field of `/proc/PROCESS/status` (proc_pid_status(5)); `process` is a number, `self` or
/// `PID/task/TID`.
pub(crate) fn status(roots: &Roots, process: impl Display, name: &str) -> Option<String> {
    let path = roots.proc.join(format!("{process}/status"));
    // the name of a program may hold any bytes
    field(&String::from_utf8_lossy(&fs::read(path).ok()?), &[name])
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A tree of files in place of the machine's own.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots::below(folder.path());
        (folder, roots)
    }
}
