//! Network namespaces without a name: nothing but a file descriptor holds them, so
//! the kernel removes them with all they contain when the process ends, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::process::numbers_in;
use crate::roots::Roots;

/// Why a network namespace could not be made or entered.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// Making or entering one needs CAP_SYS_ADMIN.
    #[error(
        "no permission to make or enter a network namespace: run as root (sudo), or with the \
         capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NoPrivilege,
    /// The kernel was built without network namespaces.
    #[error(
        "this kernel has no network namespaces (CONFIG_NET_NS): use loopback (run: --testbed loopback; rtt: --link loopback)"
    )]
    NoSupport,
    /// Anything else.
    #[error("cannot {what} a network namespace: {source}")]
    System {
        /// `make`, `enter` or `identify`.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl NetnsError {
    fn new(what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source
            .raw_os_error()
            .map(rustix::io::Errno::from_raw_os_error)
        {
            Some(rustix::io::Errno::PERM) => Self::NoPrivilege,
            Some(rustix::io::Errno::INVAL) if what == "make" => Self::NoSupport,
            _ => Self::System { what, source },
        }
    }
}

/// A network namespace, alive as long as this value, a process in it, or a socket
/// made in it.
#[derive(Debug)]
pub struct NetNamespace {
    fd: OwnedFd,
    inode: u64,
}

impl NetNamespace {
    /// Makes an empty one. The calling thread stays where it is.
    ///
    /// # Errors
    /// [`NetnsError`], mostly `NoPrivilege`.
    pub fn new() -> Result<Self, NetnsError> {
        // A thread of its own: unshare() changes the calling thread for good.
        let fd = in_fresh_thread(|| {
            // SAFETY: CLONE_NEWNET changes only this short-lived thread's network
            // namespace; no memory or descriptor table is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|e| NetnsError::new("make", e))?;
            File::open("/proc/thread-self/ns/net").map_err(|e| NetnsError::new("identify", e))
        })??;
        Self::from_fd(fd.into())
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// [`NetnsError::System`] when /proc does not show it.
    pub fn current() -> Result<Self, NetnsError> {
        let file =
            File::open("/proc/thread-self/ns/net").map_err(|e| NetnsError::new("identify", e))?;
        Self::from_fd(file.into())
    }

    /// The one that a process is in; `None` where it has ended or may not be inspected.
    pub fn of_process(roots: &Roots, pid: u32) -> Option<Self> {
        let file = File::open(roots.proc.join(format!("{pid}/ns/net"))).ok()?;
        Self::from_fd(file.into()).ok()
    }

    /// The one with this inode number, if any process is in it.
    pub(crate) fn with_inode(roots: &Roots, inode: u64) -> Option<Self> {
        let pids = numbers_in(&roots.proc).into_iter();
        let mut namespaces = pids.filter_map(|pid| Self::of_process(roots, pid));
        namespaces.find(|namespace| namespace.inode == inode)
    }

    fn from_fd(fd: OwnedFd) -> Result<Self, NetnsError> {
        let stat = rustix::fs::fstat(&fd).map_err(|e| NetnsError::new("identify", e))?;
        Ok(Self {
            fd,
            inode: stat.st_ino,
        })
    }

    /// Another handle on the same namespace.
    ///
    /// # Errors
    /// [`NetnsError::System`] when there are no descriptors left.
    pub fn try_clone(&self) -> Result<Self, NetnsError> {
        let fd = self.fd.try_clone();
        Ok(Self {
            fd: fd.map_err(|e| NetnsError::new("identify", e))?,
            inode: self.inode,
        })
    }

    /// Its inode number, which `readlink /proc/PID/ns/net` shows. The probe finds its packets by it
    /// (`net->ns.inum`).
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Moves the calling thread into it, for good. Sockets made before stay where
    /// they were made.
    ///
    /// # Errors
    /// [`NetnsError`], mostly `NoPrivilege`.
    pub fn enter(&self) -> Result<(), NetnsError> {
        enter(self.fd.as_fd()).map_err(|e| NetnsError::new("enter", e))
    }

    /// Runs `work` inside it, in a fresh thread, and waits for the result. Processes
    /// that `work` starts are inside too.
    ///
    /// # Errors
    /// [`NetnsError`] when it cannot be entered.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        in_fresh_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `setns(2)` alone: async-signal-safe, so that a child may call it between fork and exec.
pub(crate) fn enter(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    rustix::thread::move_into_link_name_space(fd, Some(LinkNameSpaceType::Network))
}

fn in_fresh_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)
            .map_err(|e| NetnsError::new("enter", e))?;
        match thread.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_it_may_have_refused() {
        for what in ["make", "enter"] {
            let error = NetnsError::new(what, rustix::io::Errno::PERM);
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
