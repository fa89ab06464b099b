//! What `taillab doctor` finds: what a kernel, a machine and a user allow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of this shape.
pub const SCHEMA_VERSION: u32 = 1;

/// The pattern of a text that is shown on one line.
const ONE_LINE: &str = r"^[^\n]+$";

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnosis {
    /// Version of this shape: [`SCHEMA_VERSION`].
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `doctor`.
    #[schemars(extend("const" = "doctor"))]
    pub command: String,
    /// Version of taillab.
    pub taillab_version: String,
    /// What was examined or tried, group by group.
    #[schemars(length(min = 1))]
    pub checks: Vec<Check>,
    /// The probe's hooks, the preferred ones first. Empty when none could be tried; a check of the
    /// group [`Group::Probe`] then says why.
    pub hooks: Vec<HookTrial>,
    /// What may spoil a measurement here.
    pub hazards: Vec<FoundHazard>,
    /// Which commands work here.
    #[schemars(length(min = 1))]
    pub commands: Vec<CommandVerdict>,
}

/// The subject of a group of checks.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// What this user may do.
    Privilege,
    /// What the kernel has.
    Kernel,
    /// What the network of the testbed and of the generator needs.
    Network,
    /// What else the machine needs.
    Machine,
    /// What the probe needs besides its hooks.
    Probe,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// It is there.
    Ok,
    /// It is not there or not right; the main commands work without it.
    Warning,
    /// It is not there, and something fails without it.
    Missing,
    /// It could not be found out.
    Unknown,
}

/// One fact or trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend(
    "if" = {"properties": {"state": {"const": "ok"}}},
    "then" = {"properties": {"remedy": false}},
    "else" = {"required": ["remedy"]},
))]
pub struct Check {
    /// The group that it belongs to.
    pub group: Group,
    /// What was examined, in a word or two.
    pub name: String,
    /// How it ended.
    pub state: CheckState,
    /// What was found.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub found: String,
    /// What a reader can do about it, in one line; present whenever the state is not `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = ONE_LINE))]
    pub remedy: Option<String>,
}

impl Check {
    /// A check without a complaint.
    pub fn ok(group: Group, name: &str, found: impl Into<String>) -> Self {
        Self {
            group,
            name: name.into(),
            state: CheckState::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    /// Something is not as it should be; `state` says how bad that is.
    pub fn not_ok(
        group: Group,
        name: &str,
        state: CheckState,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            state,
            remedy: Some(remedy.into()),
            ..Self::ok(group, name, found)
        }
    }
}

/// A hook that the kernel really loaded and attached, or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookTrial {
    /// `udp` or `tcp`.
    pub transport: String,
    /// `T1` … `T6`, `switch`, or `all`: everything that is used, loaded together.
    pub stamp: String,
    /// The hook, e.g. `tp_btf/netif_rx`.
    pub hook: String,
    /// It was loaded and attached.
    pub works: bool,
    /// It is the one that a measurement uses: the best that works.
    pub used: bool,
    /// What a measurement with this hook lacks, compared with the best one known.
    pub lost_precision: Option<String>,
    /// What a measurement lacks without any hook for this stamp; `null` if it is then useless.
    pub without: Option<String>,
    /// The kernel's refusal in words; `null` where it works.
    pub refusal: Option<String>,
    /// What would make it work; `null` where it works or a better one does.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub remedy: Option<String>,
}

/// What the probe found by trying.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// What the probe needs besides its hooks.
    pub features: Vec<Check>,
    /// Every hook of every stamp, best first.
    pub hooks: Vec<HookTrial>,
}

/// Where a hazard comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HazardGroup {
    /// Others who want the same CPUs or memory.
    Load,
    /// Processors, power management, hypervisor.
    Hardware,
    /// Settings of the kernel.
    Setting,
}

/// What may spoil a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundHazard {
    /// Where it comes from.
    pub group: HazardGroup,
    /// Its name for programs, snake_case.
    pub key: String,
    /// The condition and its effect.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub text: String,
    /// What a reader can do about it, in one line.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub remedy: Option<String>,
}

/// Whether a command works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandVerdict {
    /// As typed, e.g. `run`.
    pub name: String,
    /// It works.
    pub works: bool,
    /// With what precision it works, or why it does not.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub remark: String,
    /// What to do first, where it does not work.
    #[schemars(extend("pattern" = ONE_LINE))]
    pub remedy: Option<String>,
}
