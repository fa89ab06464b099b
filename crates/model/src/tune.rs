//! What `taillab tune` reports: which mitigations there are, what each would change, what is
//! changed now, and what was restored.

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
    /// Settings were changed.
    Apply,
    /// What is changed now.
    Status,
    /// Whether the changes still hold.
    Verify,
    /// Settings were restored.
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
    /// All for `list`, those asked for with `plan` and `apply`, otherwise none.
    pub mitigations: Vec<MitigationRow>,
    /// What would overwrite the planned values, and what does harm.
    pub conflicts: Vec<ConflictRow>,
    /// The new one for `apply`, all for `status` and `verify`, those that were reverted for `revert`.
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
    /// How it is undone.
    pub undo: String,
    /// What shows that it works.
    pub proof: String,
    /// What it costs or risks.
    pub risk: String,
    /// Where it is described.
    pub reference: String,
    /// Why it cannot be applied here, and what to do; `None` where it can, and in `list`.
    pub unavailable: Option<String>,
    /// What a person should know about it on this machine.
    pub notes: Vec<String>,
    /// What a process must hold open while it is applied; the kernel undoes it when the process ends.
    pub holds: Vec<String>,
    /// What it would change here; for `apply`, what it changed.
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
    /// The old value holds: somebody else has restored it.
    AsBefore,
    /// Somebody else has set another value, which stays.
    ChangedByOthers,
    /// What it belonged to has ended: a thread, a device, a group, a boot.
    Gone,
    /// The old value was restored.
    Restored,
    /// A later apply has changed it again and must be reverted first.
    Covered,
    /// It could not be restored; the next revert tries again.
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

    /// Whether a person need not look after it.
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
    /// The value that it is set to.
    pub new: String,
    /// The value that holds now, where it is neither the old nor the new one.
    pub now: Option<String>,
    /// Why it is changed.
    pub why: String,
    /// The state of the setting.
    pub state: ChangeState,
    /// The reason for the state, where something is wrong.
    pub problem: Option<String>,
}

/// An apply that has not been reverted, or was just reverted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApplyRow {
    /// Its number.
    pub id: u32,
    /// Its mitigations.
    pub mitigations: Vec<String>,
    /// When it was made, in seconds since 1970; `None` for `revert`.
    pub began_unix_s: Option<u64>,
    /// It was carried out to its end; otherwise it was killed in the middle.
    pub complete: bool,
    /// The process that holds it and reverts it when it ends.
    pub held_by: Option<u32>,
    /// For `status` and `verify`: everything that still exists has our value. For `revert`: nothing is left
    /// to be restored.
    pub good: bool,
    /// Its settings.
    pub changes: Vec<ChangeRow>,
}

/// Something that gets in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConflictRow {
    /// Who or what it is.
    pub who: String,
    /// What it does.
    pub effect: String,
    /// What helps.
    pub remedy: String,
    /// It does harm: nothing is applied without `--force`.
    pub harmful: bool,
}
