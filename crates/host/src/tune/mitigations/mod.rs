//! The mitigations that can be applied, one row each, one file for each family.
//!
//! A row's plan only looks: it names the settings, their new values and why. Making, journaling
//! and undoing them is the same for all. How to add one: `README.md` beside this file.

mod cpus;
mod interrupts;
mod memory;
mod power;
mod quota;
mod receive;
mod scheduling;

use std::fmt;

use taillab_model::mitigation;

use super::change::Change;
use super::error::TuneError;
use super::proposal::{Proposal, Unavailable};
use super::scene::Scene;
use super::setting::{FileSetting, Form, Setting};

/// A mitigation that can be applied and undone.
#[derive(Debug)]
pub struct Mitigation {
    /// Its name, what it treats, what it costs and risks.
    pub is: mitigation::Mitigation,
    /// What it needs of the machine and of the command line.
    pub needs: &'static str,
    /// What it reads and writes.
    pub interface: &'static str,
    /// How it is undone.
    pub undo: &'static str,
    /// What shows that it works.
    pub proof: &'static str,
    /// Where it is described.
    pub reference: &'static str,
    /// What shows that it can win.
    pub evidence: Evidence,
    /// What it would change here.
    pub plan: fn(&Scene) -> Result<Proposal, Unavailable>,
}

/// What shows that a mitigation can win.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// These sections of *Tales of the Tail*.
    Paper(&'static str),
    /// A trial of ours kept it: it has such a row in `docs/benchmarks.md#fixes-tried`.
    Trial,
    /// Nothing yet: the kernel's documentation says what it does, and no trial of ours has kept it.
    Documented,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paper(sections) => write!(f, "Tales of the Tail, {sections}"),
            Self::Trial => f.write_str("kept in a trial of ours"),
            Self::Documented => f.write_str("documented by the kernel; not yet seen to win here"),
        }
    }
}

/// All mitigations, in the order in which a plan lists them.
pub const MITIGATIONS: &[&Mitigation] = &[
    &scheduling::RT_PRIORITY,
    &scheduling::RT_RUNTIME,
    &scheduling::NICE,
    &scheduling::OTHERS_IDLE,
    &scheduling::SLICE,
    &cpus::DEDICATED_CPUS,
    &cpus::OTHERS_AFFINITY,
    &quota::CPU_QUOTA,
    &interrupts::IRQ_AFFINITY,
    &interrupts::INTERRUPT_CPU,
    &receive::SOFTIRQ_CPU,
    &receive::BUSY_POLL,
    &receive::IRQ_SUSPENSION,
    &power::CPU_DMA_LATENCY,
    &power::GOVERNOR,
    &memory::NUMA,
];

/// How most of them are undone.
const PUT_BACK: &str = "the old value is written back";
const ENDS_WITH_THREAD: &str = "the old value is written back; the change ends with the thread";

/// The mitigation with this name; the error names the nearest one.
pub(super) fn by_name(name: &str) -> Result<&'static Mitigation, TuneError> {
    let found = MITIGATIONS.iter().find(|row| row.is.name == name);
    let unknown = || match mitigation::advice().any(|advice| advice == name) {
        true => TuneError::ByHand(name.to_owned()),
        false => TuneError::Unknown {
            name: name.to_owned(),
            near: nearest(name),
        },
    };
    found.copied().ok_or_else(unknown)
}

/// A name that contains the wrong one, or else begins with the same three characters or more.
fn nearest(name: &str) -> Option<&'static str> {
    let common = |other: &str| {
        let same = name.chars().zip(other.chars());
        same.take_while(|(a, b)| a == b).count()
    };
    let best = MITIGATIONS
        .iter()
        .map(|row| row.is.name)
        .max_by_key(|other| common(other))?;
    let contained = MITIGATIONS.iter().map(|row| row.is.name);
    let contained = contained
        .filter(|_| name.len() > 2)
        .find(|other| other.contains(name));
    contained.or((common(best) >= 3).then_some(best))
}

/// A file of the machine that gets another value; `None` where there is no such file.
fn existing(
    scene: &Scene,
    path: impl Into<String>,
    form: Form,
    new: impl Into<String>,
    why: impl Into<String>,
) -> Option<Change> {
    let setting = Setting::File(FileSetting::new(path, form));
    setting.read(&scene.roots).ok()?;
    Some(Change::new(setting, new, why))
}

/// A proposal of changes, or why there is none.
fn proposal(changes: Vec<Change>, otherwise: &str) -> Result<Proposal, Unavailable> {
    match changes.is_empty() {
        true => Err(Unavailable(otherwise.to_owned())),
        false => Ok(changes.into()),
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod rows {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_row_is_complete_and_there_once() {
        let mut names = HashSet::new();
        for row in MITIGATIONS {
            assert!(names.insert(row.is.name), "{} is there twice", row.is.name);
            for text in [row.needs, row.interface, row.undo, row.proof, row.reference] {
                assert!(!text.is_empty(), "{}", row.is.name);
            }
            assert!(mitigation::MITIGATIONS.contains(&row.is), "{}", row.is.name);
        }
    }

    #[test]
    fn what_is_done_by_hand_has_no_row_and_everything_else_has_one() {
        for known in mitigation::MITIGATIONS {
            let has_row = MITIGATIONS.iter().any(|row| row.is == *known);
            assert_eq!(has_row, !known.by_hand, "{}", known.name);
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_one_that_is_meant() {
        let near = |name: &str| match by_name(name) {
            Err(TuneError::Unknown { near, .. }) => near,
            other => panic!("{other:?}"),
        };
        assert_eq!(near("rt-prio"), Some("rt-priority"));
        assert_eq!(near("affinity"), Some("others-affinity"));
        assert_eq!(near("zzz"), None);
    }
}
