//! What `taillab tune` says: which mitigations there are, what each would change, what is
//! changed, and what was put back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explanation::Cause;

/// The version of this shape.
pub const SCHEMA_VERSION: u32 = 1;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The mitigations that there are.
    List,
    /// What applying would change here. Nothing was changed.
    Plan,
    /// Changed.
    Apply,
    /// What is changed.
    Status,
    /// Whether it still holds.
    Verify,
    /// Put back.
    Revert,
}

/// One call of `taillab tune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TuneResult {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `tune`.
    #[schemars(extend("const" = "tune"))]
    pub command: String,
    /// Version of taillab.
    pub taillab_version: String,
    /// What was asked for.
    pub action: Action,
    /// Of `list` all, of `plan` and `apply` those asked for; else none.
    pub mitigations: Vec<MitigationRow>,
    /// Who would overwrite what is planned, and what does harm.
    pub conflicts: Vec<ConflictRow>,
    /// Of `apply` the new one, of `status` and `verify` all, of `revert` those that were put back.
    pub applies: Vec<ApplyRow>,
}

/// A mitigation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MitigationRow {
    /// The name that `taillab tune apply` takes.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// The causes that it takes away, wholly or in part.
    pub treats: Vec<Cause>,
    /// What it needs of the machine and of the command line.
    pub needs: String,
    /// What it reads and writes.
    pub interface: String,
    /// How it ends.
    pub undo: String,
    /// What shows that it works.
    pub proof: String,
    /// What it costs or risks.
    pub risk: String,
    /// Where it is described.
    pub reference: String,
    /// Why it cannot be applied here, and what to do; `None` where it can, and in `list`.
    pub unavailable: Option<String>,
    /// What a person should know of it here.
    pub notes: Vec<String>,
    /// What a process has to hold meanwhile; the kernel takes it back with the process.
    pub holds: Vec<String>,
    /// What it would change here; of `apply`: what came of it.
    pub changes: Vec<ChangeRow>,
}

/// The state of a setting: planned, applied or reverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// It would be changed.
    Planned,
    /// It was changed.
    Changed,
    /// It has that value already.
    AlreadySo,
    /// The kernel refused it; the rest works without it.
    Skipped,
    /// The new value still holds.
    Holds,
    /// The old value holds: somebody has put it back.
    AsBefore,
    /// Somebody else has given it another value, which stays.
    ChangedByOthers,
    /// What it belonged to has ended: a thread, a device, a group, a boot.
    Gone,
    /// The old value was put back.
    Restored,
    /// A later apply has changed it again and must be reverted first.
    Covered,
    /// It could not be put back; the next revert tries again.
    Failed,
    /// It cannot be read.
    Unknown,
}

impl ChangeState {
    /// What a person reads.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Changed => "changed",
            Self::AlreadySo => "already so",
            Self::Skipped => "skipped",
            Self::Holds => "holds",
            Self::AsBefore => "as before",
            Self::ChangedByOthers => "changed by others",
            Self::Gone => "gone",
            Self::Restored => "restored",
            Self::Covered => "changed again",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Nothing that a person has to look after.
    pub const fn is_good(self) -> bool {
        !matches!(
            self,
            Self::ChangedByOthers | Self::Covered | Self::Failed | Self::Unknown
        )
    }
}

/// A setting that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeRow {
    /// The mitigation that changes it.
    pub mitigation: String,
    /// The path of a file, or the system call and the thread.
    pub setting: String,
    /// The value before; `None` where it cannot be read yet (a file of a group to be made).
    pub old: Option<String>,
    /// The value that it gets.
    pub new: String,
    /// The value that holds now, where it is neither of these.
    pub now: Option<String>,
    /// Why it is changed.
    pub why: String,
    /// Its state.
    pub state: ChangeState,
    /// Why it is so, where something is wrong.
    pub problem: Option<String>,
}

/// An apply that is not put back, or was just put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyRow {
    /// Its number.
    pub id: u32,
    /// Its mitigations.
    pub mitigations: Vec<String>,
    /// When it was made, in seconds since 1970; of `revert` `None`.
    pub began_unix_s: Option<u64>,
    /// It was made to its end. Else it was killed in the middle.
    pub complete: bool,
    /// The process that holds it and puts it back at its end.
    pub held_by: Option<u32>,
    /// Of `status` and `verify`: everything that still exists has our value. Of `revert`: nothing is left to
    /// be put back.
    pub good: bool,
    /// Its settings.
    pub changes: Vec<ChangeRow>,
}

/// Something that gets in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConflictRow {
    /// Who or what.
    pub who: String,
    /// What it does.
    pub effect: String,
    /// What helps.
    pub remedy: String,
    /// Nothing is applied without `--force`.
    pub harmful: bool,
}
