//! Any error of this crate, and what kind of failure it is.

use crate::cpu_lock::CpuLockError;
use crate::cpu_time::CpuTimeError;
use crate::cpus::CpuError;
use crate::disk::DiskError;
use crate::interrupt::InterruptError;
use crate::journal::JournalError;
use crate::keep_awake::KeepAwakeError;
use crate::netns::NetnsError;
use crate::noise::NoiseError;
use crate::private_folder::PrivateFolderError;
use crate::server::ServerError;
use crate::socket_buffers::SocketBufferError;
use crate::target::{CommandError, TargetError};
use crate::testbed::TestbedError;
use crate::tune::TuneError;
use crate::user::UnknownUser;
use crate::user_files::UserFileError;
use crate::veth::VethError;

/// What a failure means for the command's exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Something failed (1).
    Failed,
    /// What the user asked for makes no sense (2).
    Usage,
    /// A privilege or a feature of the machine or its kernel is missing (5).
    Unsupported,
}

/// Any error of this crate.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum HostError {
    /// CPUs that cannot be used as wanted.
    Cpu(#[from] CpuError),
    /// CPUs that another measurement has.
    CpuLock(#[from] CpuLockError),
    /// CPU times that cannot be read.
    CpuTime(#[from] CpuTimeError),
    /// A command that cannot be started or watched.
    Command(#[from] CommandError),
    /// Too little free space, or it is unknown.
    Disk(#[from] DiskError),
    /// Signals that cannot be handled.
    Interrupt(#[from] InterruptError),
    /// The crash journal cannot be kept or followed.
    Journal(#[from] JournalError),
    /// CPUs that cannot be kept awake.
    KeepAwake(#[from] KeepAwakeError),
    /// A network namespace that cannot be made or entered.
    Netns(#[from] NetnsError),
    /// A loop of `noise` that cannot run.
    Noise(#[from] NoiseError),
    /// The folder for the server's files cannot be made or filled.
    PrivateFolder(#[from] PrivateFolderError),
    /// The server does not run.
    Server(#[from] ServerError),
    /// The receive buffers of the server's sockets cannot be set.
    SocketBuffer(#[from] SocketBufferError),
    /// A running server that cannot be found or watched.
    Target(#[from] TargetError),
    /// The testbed cannot be made or removed.
    Testbed(#[from] TestbedError),
    /// A setting that could not be changed or put back.
    Tune(#[from] TuneError),
    /// The server's user does not exist.
    User(#[from] UnknownUser),
    /// A file that the user asked for cannot be written.
    UserFile(#[from] UserFileError),
}

impl HostError {
    /// What it means for the command's exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Cpu(CpuError::TooFew { .. }) => ErrorKind::Unsupported,
            Self::Cpu(
                CpuError::BadList { .. }
                | CpuError::NoneLeft { .. }
                | CpuError::Overlap { .. }
                | CpuError::Unusable { .. },
            )
            | Self::User(_)
            | Self::UserFile(UserFileError::Foreign { .. } | UserFileError::Link { .. }) => {
                ErrorKind::Usage
            }
            Self::KeepAwake(_) | Self::PrivateFolder(PrivateFolderError::Make(_)) => {
                ErrorKind::Unsupported
            }
            Self::Command(CommandError::Empty) => ErrorKind::Usage,
            Self::Target(
                TargetError::NotPermitted { .. }
                | TargetError::UnknownListener { .. }
                | TargetError::PidNamespace,
            ) => ErrorKind::Unsupported,
            Self::Target(_) => ErrorKind::Usage,
            Self::Noise(e) => noise_kind(e),
            Self::Tune(e) => tune_kind(e),
            Self::Netns(e) => netns_kind(e),
            Self::Testbed(e) => match e {
                TestbedError::Namespace(e) | TestbedError::Veth(VethError::Namespace(e)) => {
                    netns_kind(e)
                }
                TestbedError::Veth(VethError::Setting { .. })
                | TestbedError::Steering { .. }
                | TestbedError::SteeringDiffers { .. }
                | TestbedError::Veth(VethError::Sysfs(_)) => ErrorKind::Unsupported,
                TestbedError::Veth(e) if e.is_unsupported() => ErrorKind::Unsupported,
                TestbedError::Veth(_) => ErrorKind::Failed,
            },
            _ => ErrorKind::Failed,
        }
    }
}

fn noise_kind(error: &NoiseError) -> ErrorKind {
    match error {
        NoiseError::NoTsc
        | NoiseError::Unstable { .. }
        | NoiseError::ClockUnknown
        | NoiseError::NoRealTime { .. } => ErrorKind::Unsupported,
        NoiseError::Offline { .. } | NoiseError::WouldHang | NoiseError::Cpu(_) => ErrorKind::Usage,
        NoiseError::Thread(_) => ErrorKind::Failed,
    }
}

const fn tune_kind(error: &TuneError) -> ErrorKind {
    match error {
        TuneError::Unavailable { .. }
        | TuneError::Refused {
            unsupported: true, ..
        } => ErrorKind::Unsupported,
        TuneError::Unknown { .. }
        | TuneError::ByHand(_)
        | TuneError::Scope(_)
        | TuneError::Harmful(_)
        | TuneError::NoApply(_)
        | TuneError::InUse { .. }
        | TuneError::NoHome => ErrorKind::Usage,
        _ => ErrorKind::Failed,
    }
}

fn netns_kind(error: &NetnsError) -> ErrorKind {
    match error {
        NetnsError::NoPrivilege | NetnsError::NoSupport => ErrorKind::Unsupported,
        NetnsError::System { .. } => ErrorKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuSet;

    #[test]
    fn what_the_machine_lacks_is_told_from_what_went_wrong() {
        let cpus = CpuSet::single(0);
        assert_eq!(
            HostError::from(CpuError::TooFew { cpus }).kind(),
            ErrorKind::Unsupported
        );
        assert_eq!(
            HostError::from(NetnsError::NoPrivilege).kind(),
            ErrorKind::Unsupported
        );
        let no_root = TestbedError::from(VethError::from(NetnsError::NoPrivilege));
        assert_eq!(HostError::from(no_root).kind(), ErrorKind::Unsupported);
        let bad = "x".parse::<CpuSet>().unwrap_err();
        assert_eq!(HostError::from(bad).kind(), ErrorKind::Usage);
        let missing = crate::programs::find("no-such-program".as_ref()).unwrap_err();
        let missing = ServerError::from(missing);
        assert_eq!(HostError::from(missing).kind(), ErrorKind::Failed);
    }
}
