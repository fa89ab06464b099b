//! One change of a setting, and the points between the steps of making it.

use serde::{Deserialize, Serialize};

use super::setting::Setting;

/// A setting that gets another value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The mitigation that wants it.
    pub mitigation: String,
    /// What is changed.
    pub setting: Setting,
    /// The value that it gets.
    pub new: String,
    /// Why, in words: `memcached's thread 42 …`.
    pub why: String,
    /// If the kernel refuses this one or alters its value, the rest is still worth making.
    pub optional: bool,
}

impl Change {
    /// A change that the mitigation cannot do without.
    pub fn new(setting: Setting, new: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            mitigation: String::new(),
            setting,
            new: new.into(),
            why: why.into(),
            optional: false,
        }
    }

    /// Makes it optional: the mitigation can do without it.
    #[must_use]
    pub fn if_possible(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }
}

/// What has become of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeState {
    /// It was changed.
    Changed,
    /// It had that value already.
    AlreadySo,
    /// It was refused or altered, or its thread has ended (the reason), and the rest can do without.
    Skipped(String),
    /// Our value still holds.
    Holds,
    /// The old value holds: somebody has put it back, or it was never changed.
    AsBefore,
    /// Somebody else has given it this value, which stays.
    ChangedByOthers(String),
    /// What it belonged to has ended: a thread, a device, a control group, a boot.
    Gone,
    /// It cannot be read.
    Unknown(String),
    /// The old value was put back.
    Restored,
    /// A later apply has changed it again: that one is to be reverted first.
    Covered {
        /// The later apply.
        by: u32,
    },
    /// It could not be put back; the next revert tries again.
    Failed(String),
}

/// A change, and what has become of its setting: by an apply, since then, or by a revert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeResult {
    /// The change.
    pub change: Change,
    /// The value before.
    pub old: String,
    /// Its state.
    pub state: ChangeState,
}

/// Something that holds only while a process holds it: the kernel takes it back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// `/dev/cpu_dma_latency`, open with 0 µs.
    CpuDmaLatency,
}

impl Hold {
    /// What is held, in words.
    pub const fn label(self) -> &'static str {
        match self {
            Self::CpuDmaLatency => "/dev/cpu_dma_latency, open with 0 µs",
        }
    }
}

/// What is about to happen or has just happened. The process may be killed at any of these points;
/// the next [`super::Tuner::revert`] puts back what it has changed.
#[derive(Clone, Copy, Debug)]
pub enum Point<'a> {
    /// The journal's file exists, with nothing but its head.
    Begun,
    /// The old values are in the journal, perhaps not yet on the disk.
    IntentsWritten,
    /// They are on the disk.
    IntentsSynced,
    /// A value is about to be written.
    Write {
        /// The change that is made.
        change: &'a Change,
        /// The value until now.
        old: &'a str,
    },
    /// The value is written and not yet read back.
    Written {
        /// The change that is made.
        change: &'a Change,
    },
    /// The kernel has taken it.
    Confirmed {
        /// The change that was made.
        change: &'a Change,
        /// The value as read back.
        effective: &'a str,
    },
    /// The kernel refused or altered a change, or its thread has ended; the rest works without it.
    Skipped {
        /// The change that is left out.
        change: &'a Change,
        /// Why, in words.
        reason: &'a str,
    },
    /// All changes are made and journaled.
    Completed,
    /// An old value is about to be put back.
    Undo {
        /// The change that is undone.
        change: &'a Change,
        /// The value that is put back.
        old: &'a str,
    },
    /// The old value is written and not yet read back.
    Undone {
        /// The change that is undone.
        change: &'a Change,
    },
    /// The journal says what was put back, perhaps not yet on the disk.
    UndoneWritten,
    /// It is on the disk.
    UndoneSynced,
    /// The journal's file is gone.
    Forgotten,
}

/// Sees each step, to tell a person about it.
pub type Watch<'w> = dyn FnMut(Point<'_>) + 'w;
