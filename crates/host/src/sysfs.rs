//! The /sys of a network namespace, without mounting it anywhere.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, openat};

use crate::detached;
use crate::netns::{NetNamespace, NetnsError};

/// Why a file of the namespace's /sys could not be used.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// sysfs could not be opened.
    #[error(
        "cannot open the namespace's sysfs: {0}; this needs root (sudo) and Linux 5.2 or later"
    )]
    Open(io::Error),
    /// A file in it cannot be read or written.
    #[error("cannot {what} /sys/{path} in the namespace: {source}")]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// Below /sys.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A sysfs instance that shows one network namespace.
///
/// The visible /sys shows the namespace in which it was mounted. This one is a
/// detached mount (fsopen, fsmount): it is in no mount table, so nothing is left
/// behind when the process dies.
#[derive(Debug)]
pub(crate) struct Sysfs(OwnedFd);

impl Sysfs {
    pub(crate) fn of(namespace: &NetNamespace) -> Result<Self, SysfsError> {
        // sysfs takes the network namespace of the thread that opens the file system
        let mount = namespace.run(|| detached::mount("sysfs", &[]))?;
        Ok(Self(mount.map_err(|e| SysfsError::Open(e.into()))?))
    }

    /// The trimmed text of a file below /sys.
    pub(crate) fn read(&self, path: &str) -> Result<String, SysfsError> {
        let read = || {
            let mut text = String::new();
            self.open(path, false)?.read_to_string(&mut text)?;
            Ok(text.trim().to_owned())
        };
        read().map_err(|source| SysfsError::File {
            what: "read",
            path: path.to_owned(),
            source,
        })
    }

    /// Writes a file below /sys in one call.
    pub(crate) fn write(&self, path: &str, text: &str) -> Result<(), SysfsError> {
        let write = || self.open(path, true)?.write_all(text.as_bytes());
        write().map_err(|source| SysfsError::File {
            what: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// A file below /sys, opened for one read or one write. A link at the end of the path is
    /// not followed.
    pub(crate) fn open(&self, path: &str, for_writing: bool) -> io::Result<std::fs::File> {
        let access = match for_writing {
            true => OFlags::WRONLY,
            false => OFlags::RDONLY,
        };
        let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, path, flags, Mode::empty())?.into())
    }
}
