//! Puts old values back: only where our value still holds.

use super::Tuner;
use super::change::{Point, Watch};
use super::error::TuneError;
use super::heirs;
use super::journal::{self, ChangeJournal, Entry, Head, Record};
use super::setting::Setting;
use crate::roots::Roots;

/// What has become of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The old value holds again.
    Restored,
    /// The old value held already.
    AsBefore,
    /// Somebody else has given it this value, which stays.
    ChangedByOthers(String),
    /// What it belonged to has ended: a thread, a device, a control group, a boot.
    Gone,
    /// A later apply has changed it again: that one is to be reverted first.
    Covered {
        /// The later apply.
        by: u32,
    },
    /// It could not be put back; the next revert tries again.
    Failed(String),
}

/// A setting and the result of its revert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevertedChange {
    /// The mitigation that had changed it.
    pub mitigation: String,
    /// The setting.
    pub setting: Setting,
    /// The value before.
    pub old: String,
    /// Our value.
    pub new: String,
    /// The result.
    pub outcome: Outcome,
}

/// An apply that was put back.
#[derive(Debug)]
pub struct Reverted {
    /// Its number.
    pub id: u32,
    /// Its mitigations.
    pub mitigations: Vec<String>,
    /// Each setting, in the order in which they were put back.
    pub changes: Vec<RevertedChange>,
    /// Nothing is left to be done.
    pub is_done: bool,
}

/// Which applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that no living process holds, the latest first.
    All,
    /// Those held by processes that have ended without putting them back.
    Abandoned,
    /// One.
    One(u32),
}

impl Tuner {
    /// Puts back what was applied. One apply after the other; the latest first.
    ///
    /// # Errors
    /// [`TuneError`] where a journal cannot be read or the apply is not there. What could not be
    /// put back is in the result.
    pub fn revert(&self, which: Which, watch: &mut Watch) -> Result<Vec<Reverted>, TuneError> {
        if journal::ids(&self.folder)?.is_empty() && !matches!(which, Which::One(_)) {
            return Ok(Vec::new());
        }
        let _lock = journal::lock(&self.folder)?;
        let mut records = Vec::new();
        for id in journal::ids(&self.folder)? {
            match journal::read(&self.folder, id)? {
                Some(record) => records.push(record),
                // cut off before anything was changed
                None => ChangeJournal::open(&self.folder, id)?.forget(watch)?,
            }
        }
        let mut all = Vec::new();
        while let Some(record) = records.pop() {
            let is_meant = match which {
                Which::All => record.head.holder().is_none(),
                Which::Abandoned => record.head.is_held && record.head.holder().is_none(),
                Which::One(id) => id == record.id,
            };
            if !is_meant {
                continue;
            }
            if let Some(pid) = record.head.holder()
                && pid != std::process::id()
            {
                let id = record.id;
                return Err(TuneError::InUse { id, pid });
            }
            all.push(self.revert_one(record, watch)?);
        }
        match which {
            Which::One(id) if all.is_empty() => Err(TuneError::NoApply(id)),
            _ => Ok(all),
        }
    }

    fn revert_one(&self, record: Record, watch: &mut Watch) -> Result<Reverted, TuneError> {
        let mut journal = ChangeJournal::open(&self.folder, record.id)?;
        let (covered, entries) = self.covered(&record)?;
        let mut changes = covered;
        if record.head.is_of_this_boot(&self.roots) {
            changes.extend(undo(
                &self.roots,
                &record.head,
                &entries,
                &mut journal,
                watch,
            ));
        } else {
            let gone = |entry: Entry| outcome_of(entry, Outcome::Gone);
            changes.extend(entries.into_iter().map(gone));
        }
        let is_left = |change: &RevertedChange| {
            matches!(change.outcome, Outcome::Failed(_) | Outcome::Covered { .. })
        };
        let is_done = !changes.iter().any(is_left);
        if is_done {
            journal.forget(watch)?;
        }
        Ok(Reverted {
            id: record.id,
            mitigations: record.head.mitigations,
            changes,
            is_done,
        })
    }

    /// The settings that later applies have changed again, and the others. To put back the
    /// older one first would leave the later one with an old value that never was.
    fn covered(&self, record: &Record) -> Result<(Vec<RevertedChange>, Vec<Entry>), TuneError> {
        let mut later = Vec::new();
        for id in journal::ids(&self.folder)? {
            if id > record.id {
                later.extend(journal::read(&self.folder, id)?);
            }
        }
        let (mut covered, mut free) = (Vec::new(), Vec::new());
        for entry in record.entries.iter().cloned() {
            let has = |other: &&Record| {
                let mut settings = other.entries.iter().map(|entry| &entry.change.setting);
                other.head.is_of_this_boot(&self.roots)
                    && settings.any(|setting| *setting == entry.change.setting)
            };
            match later.iter().find(has) {
                Some(other) => {
                    covered.push(outcome_of(entry, Outcome::Covered { by: other.id }));
                }
                None => free.push(entry),
            }
        }
        Ok((covered, free))
    }
}

fn outcome_of(entry: Entry, outcome: Outcome) -> RevertedChange {
    RevertedChange {
        mitigation: entry.change.mitigation,
        setting: entry.change.setting,
        old: entry.old,
        new: entry.change.new,
        outcome,
    }
}

/// Puts the old values of `entries` back, the last change first, and notes it in the journal.
pub(super) fn undo(
    roots: &Roots,
    head: &Head,
    entries: &[Entry],
    journal: &mut ChangeJournal,
    watch: &mut Watch,
) -> Vec<RevertedChange> {
    let mut changes = Vec::new();
    let groups: Vec<String> = entries.iter().filter_map(group_of).collect();
    let mut done = Vec::new();
    for entry in entries.iter().rev() {
        let outcome = match goes_with(&groups, entry) {
            true => Outcome::Gone,
            false => put_back(roots, entry, watch),
        };
        if !matches!(outcome, Outcome::Failed(_)) {
            done.push(entry.number);
        }
        changes.push(outcome_of(entry.clone(), outcome));
    }
    // last: a thread still in a control group of ours cannot have its old CPUs back, and one that
    // starts from now on inherits the old values
    for heir in heirs::of(roots, head, entries) {
        let outcome = put_back(roots, &heir, watch);
        changes.push(outcome_of(heir, outcome));
    }
    journal.undone(&done, watch);
    changes
}

/// The folder of a control group that the apply has made.
fn group_of(entry: &Entry) -> Option<String> {
    match &entry.change.setting {
        Setting::Group(group) => Some(format!("{}/", group.folder)),
        _ => None,
    }
}

/// A file of a control group that is removed as a whole.
fn goes_with(groups: &[String], entry: &Entry) -> bool {
    match &entry.change.setting {
        Setting::File(file) => groups.iter().any(|group| file.path.starts_with(group)),
        _ => false,
    }
}

fn put_back(roots: &Roots, entry: &Entry, watch: &mut Watch) -> Outcome {
    let (change, old) = (&entry.change, entry.old.as_str());
    let setting = &change.setting;
    let found = match setting.read(roots) {
        Ok(found) => found,
        Err(error) if error.is_gone() => return Outcome::Gone,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    if setting.same(&found, old) {
        return Outcome::AsBefore;
    }
    if !setting.same(&found, &change.new) {
        return Outcome::ChangedByOthers(found);
    }
    watch(Point::Undo { change, old });
    match setting.write(roots, old) {
        Ok(()) => {}
        Err(error) if error.is_gone() => return Outcome::Gone,
        Err(error) => return Outcome::Failed(error.to_string()),
    }
    watch(Point::Undone { change });
    match setting.read(roots) {
        Ok(now) if setting.same(&now, old) => Outcome::Restored,
        Ok(now) => Outcome::Failed(format!(
            "\"{old}\" was written and \"{now}\" holds: something limits it now (a CPU that is \
             offline, a cpuset)"
        )),
        Err(error) if error.is_gone() => Outcome::Gone,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
