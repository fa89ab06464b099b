//! What can be changed: each kind of setting knows how to read, write and compare its values.
//!
//! A value is a text, in the kernel's own notation where it has one, so that the journal, a
//! person and the kernel say the same.

mod affinity;
mod ethtool;
mod file;
mod governor;
mod group;
mod napi;
mod scheduling;
mod unit;

use std::fmt;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::netns::NetNamespace;
use crate::process::ProcessIdentity;
use crate::roots::Roots;

pub use self::ethtool::{EthtoolSetting, Parameter};
pub use self::file::{FileSetting, Form};
pub use self::governor::GovernorSetting;
pub use self::group::{GroupFolder, Membership};
pub use self::napi::NapiSuspension;
pub(crate) use self::napi::suspensions;
pub use self::scheduling::{Policy, SchedulingValue};
pub use self::unit::UnitCpus;

/// Why a setting cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The kernel or the machine has no such setting (any longer).
    #[error("{what} is not there: this kernel or this machine lacks it")]
    Missing {
        /// The setting.
        what: String,
    },
    /// The process or thread has ended; its number may belong to another one now.
    #[error("{what} is not there any more: the thread has ended")]
    Ended {
        /// The setting.
        what: String,
    },
    /// The kernel's answer.
    #[error("cannot {doing} {what}: {source}{}", remedy(source))]
    System {
        /// `read`, or `write "VALUE" to`.
        doing: String,
        /// The setting.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl SettingError {
    /// What it belongs to is gone, and the setting with it.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Ended { .. })
    }

    /// A privilege or a feature is missing.
    pub(crate) fn is_unsupported(&self) -> bool {
        let refused = [
            Errno::PERM,
            Errno::ACCESS,
            Errno::ROFS,
            Errno::OPNOTSUPP,
            Errno::NOSYS,
        ];
        match self {
            Self::Missing { .. } => true,
            Self::Ended { .. } => false,
            Self::System { source, .. } => {
                Errno::from_io_error(source).is_some_and(|errno| refused.contains(&errno))
            }
        }
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "; run as root (sudo); in a container or under kernel lockdown run it on the host"
        }
        Some(Errno::ROFS) => "; it is mounted read-only: run on the host, not in a container",
        Some(Errno::INVAL | Errno::RANGE | Errno::NOENT) => "; the kernel does not take this value",
        Some(Errno::IO) => "; the kernel does not let it be moved (e.g. a managed interrupt)",
        Some(Errno::OPNOTSUPP) => "; the driver cannot do that",
        Some(Errno::BUSY) => {
            "; something in use forbids it (SCHED_DEADLINE forbids a change of CPUs)"
        }
        _ => "",
    }
}

/// How a kind of setting is read, written and compared.
pub(crate) trait Knob: fmt::Display {
    /// The value that holds now, as [`Knob::write`] takes it.
    fn read(&self, roots: &Roots) -> Result<String, SettingError>;

    /// Asks the kernel for another value. The kernel may set a different one: read it back.
    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError>;

    /// Asks the kernel for a value that held before; nothing of ours stays.
    fn put_back(&self, roots: &Roots, old: &str) -> Result<(), SettingError> {
        self.write(roots, old)
    }

    /// Whether two texts mean the same value.
    fn same(&self, left: &str, right: &str) -> bool {
        left == right
    }

    /// The setting does not exist.
    fn missing(&self) -> SettingError {
        SettingError::Missing {
            what: self.to_string(),
        }
    }

    /// The kernel's answer to a read.
    fn unreadable(&self, source: impl Into<io::Error>) -> SettingError
    where
        Self: Sized,
    {
        self.failed("read".into(), source.into())
    }

    /// The kernel's answer to a write.
    fn refused(&self, value: &str, source: impl Into<io::Error>) -> SettingError
    where
        Self: Sized,
    {
        self.failed(format!("write \"{value}\" to"), source.into())
    }

    /// The error that an error number means for this setting.
    fn failed(&self, doing: String, source: io::Error) -> SettingError {
        let what = self.to_string();
        match Errno::from_io_error(&source) {
            Some(Errno::SRCH) => SettingError::Ended { what },
            Some(Errno::NODEV) => SettingError::Missing { what },
            _ => SettingError::System {
                doing,
                what,
                source,
            },
        }
    }
}

/// One thing that can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Setting {
    /// A file below /proc or /sys.
    File(FileSetting),
    /// The governor of a frequency policy, with its tunables.
    Governor(GovernorSetting),
    /// How a thread is scheduled (sched_setattr(2)).
    Scheduling(ThreadScheduling),
    /// The CPUs that a thread may use (sched_setaffinity(2)).
    Affinity(ThreadAffinity),
    /// Whether a control group exists.
    Group(GroupFolder),
    /// The control group of a thread or a process.
    Membership(Membership),
    /// A parameter of a network device (ioctl SIOCETHTOOL).
    Ethtool(EthtoolSetting),
    /// How long a receive context's interrupts stay off (netlink).
    Napi(NapiSuspension),
    /// The CPUs of a unit of systemd.
    Unit(UnitCpus),
}

impl Setting {
    fn knob(&self) -> &dyn Knob {
        match self {
            Self::File(setting) => setting,
            Self::Governor(setting) => setting,
            Self::Scheduling(setting) => setting,
            Self::Affinity(setting) => setting,
            Self::Group(setting) => setting,
            Self::Membership(setting) => setting,
            Self::Ethtool(setting) => setting,
            Self::Napi(setting) => setting,
            Self::Unit(setting) => setting,
        }
    }

    /// The value that holds now.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        self.knob().read(roots)
    }

    /// Asks the kernel for another value. The kernel may set a different one: read it back.
    ///
    /// # Errors
    /// [`SettingError`].
    pub(crate) fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        self.knob().write(roots, value)
    }

    /// Asks the kernel for a value that held before; nothing of ours stays.
    ///
    /// # Errors
    /// [`SettingError`].
    pub(crate) fn put_back(&self, roots: &Roots, old: &str) -> Result<(), SettingError> {
        self.knob().put_back(roots, old)
    }

    /// Whether two texts mean the same value.
    pub fn same(&self, left: &str, right: &str) -> bool {
        self.knob().same(left, right)
    }

    /// The setting's thread, if its new threads and child processes inherit the setting.
    pub(crate) const fn inherited_from(&self) -> Option<ProcessIdentity> {
        match self {
            Self::Scheduling(ThreadScheduling { thread })
            | Self::Affinity(ThreadAffinity { thread })
            | Self::Membership(Membership { member: thread, .. }) => Some(*thread),
            _ => None,
        }
    }

    /// The thread or process whose setting it is; `None` for one of the machine.
    pub const fn thread(&self) -> Option<ProcessIdentity> {
        match self {
            Self::File(file) => file.thread,
            _ => self.inherited_from(),
        }
    }

    /// What is set, without naming the thread or process whose setting it is.
    pub fn what(&self) -> String {
        match self {
            Self::Scheduling(_) => "sched_setattr".into(),
            Self::Affinity(_) => "CPUs".into(),
            Self::Membership(_) => "control group".into(),
            Self::File(file) if file.thread.is_some() => {
                let name = file.path.rsplit('/').next();
                name.unwrap_or(&file.path).to_owned()
            }
            other => other.to_string(),
        }
    }

    /// The same setting of another thread.
    pub(crate) fn of_thread(&self, thread: ProcessIdentity) -> Option<Self> {
        match self {
            Self::Scheduling(_) => Some(Self::scheduling(thread)),
            Self::Affinity(_) => Some(Self::affinity(thread)),
            Self::Membership(of) => Some(Self::Membership(Membership {
                member: thread,
                ..of.clone()
            })),
            _ => None,
        }
    }

    /// How a thread is scheduled.
    pub const fn scheduling(thread: ProcessIdentity) -> Self {
        Self::Scheduling(ThreadScheduling { thread })
    }

    /// The CPUs of a thread.
    pub const fn affinity(thread: ProcessIdentity) -> Self {
        Self::Affinity(ThreadAffinity { thread })
    }

    /// The control group of a thread or a process in the hierarchy that is mounted at `mount`; no
    /// `controller` means version 2.
    pub fn membership(member: ProcessIdentity, mount: &str, controller: &str) -> Self {
        Self::Membership(Membership {
            member,
            mount: mount.into(),
            controller: controller.into(),
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.knob().fmt(f)
    }
}

/// How a thread is scheduled. The number may be used again; the start time tells whether it is
/// still the same thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ThreadScheduling {
    /// The thread.
    pub thread: ProcessIdentity,
}

/// The CPUs that a thread may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ThreadAffinity {
    /// The thread.
    pub thread: ProcessIdentity,
}

/// Runs `act` in the network namespace with this inode, or in ours.
fn within<T: Send>(
    roots: &Roots,
    namespace: Option<u64>,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let Some(inode) = namespace else { return act() };
    let namespace = NetNamespace::with_inode(roots, inode).ok_or(Errno::NODEV)?;
    namespace.run(act).map_err(io::Error::other)?
}

/// Names the network namespace of a setting, unless it is ours.
fn write_namespace(f: &mut fmt::Formatter<'_>, namespace: Option<u64>) -> fmt::Result {
    match namespace {
        Some(inode) => write!(f, " (network namespace {inode})"),
        None => Ok(()),
    }
}

/// Runs `act` on a thread. The thread is checked before and after, so that a number that has gone to
/// another thread in between is noticed.
pub(crate) fn with_thread<T>(
    knob: &impl Knob,
    roots: &Roots,
    thread: ProcessIdentity,
    act: impl FnOnce(rustix::process::Pid) -> Result<T, SettingError>,
) -> Result<T, SettingError> {
    let ended = || SettingError::Ended {
        what: knob.to_string(),
    };
    let pid = i32::try_from(thread.pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .ok_or_else(ended)?;
    if !thread.is_alive(roots) {
        return Err(ended());
    }
    let result = act(pid);
    match thread.goes_on(roots) {
        true => result,
        // for a thread that ends meanwhile the kernel returns any of several errors
        false => Err(ended()),
    }
}
