//! Changes of the machine's settings: planned, journaled, made, verified and put back.
//!
//! A [`Mitigation`] only plans: it lists [`Change`]s with their reasons. A [`Setting`] knows how to
//! read and write itself. The [`Tuner`] makes sure that nothing is lost: it reads the old value,
//! journals it with fsync, writes, and reads back what holds. It puts back only what still holds
//! our value, and reports the rest.

mod apply;
mod change;
mod conflicts;
mod error;
mod heirs;
mod journal;
pub mod mitigations;
mod plan;
mod proposal;
mod reach;
mod revert;
mod scene;
mod setting;
mod status;
#[cfg(test)]
mod tests;

use crate::journal::JournalFolder;
use crate::roots::Roots;

pub use self::apply::Applied;
pub use self::change::{Change, ChangeResult, ChangeState, Hold, Point, Watch};
pub use self::error::TuneError;
pub use self::mitigations::{Evidence, MITIGATIONS, Mitigation};
pub use self::plan::{Part, Plan};
pub use self::proposal::{Conflict, Proposal, Unavailable};
pub use self::revert::{RevertSelection, Reverted};
pub use self::scene::{Scene, Scope, ServerThreads, Thread};
pub use self::setting::{
    EthtoolSetting, FileSetting, Form, GovernorSetting, GroupFolder, Membership, NapiSuspension,
    Parameter, Policy, SchedulingValue, Setting, SettingError, ThreadAffinity, ThreadScheduling,
    UnitCpus,
};
pub use self::status::ApplyStatus;

/// Changes settings and puts them back. Two at once take turns: a lock on the journal's folder is
/// held while settings are changed.
#[derive(Clone, Debug)]
pub struct Tuner {
    roots: Roots,
    folder: JournalFolder,
}

impl Tuner {
    /// On a machine or a recorded tree, with the journals in `folder`.
    pub const fn new(roots: Roots, folder: JournalFolder) -> Self {
        Self { roots, folder }
    }

    /// On this machine, with the journals of this user. They must outlive the process and a
    /// crash: `/var/lib/taillab/tune` for root, else `$XDG_STATE_HOME/taillab/tune` or
    /// `~/.local/state/taillab/tune`.
    ///
    /// # Errors
    /// [`TuneError::NoHome`] for a user without a home.
    pub fn of_this_user() -> Result<Self, TuneError> {
        Ok(Self::new(Roots::default(), journal::folder_of_this_user()?))
    }

    /// Whether this user may read the journals. One who may not (without privileges, but with root's
    /// `HOME`) has changed nothing.
    pub fn may_look(&self) -> bool {
        let listed = std::fs::read_dir(self.folder.path());
        !listed.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    }
}
