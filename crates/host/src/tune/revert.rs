//! Puts old values back: only where our value still holds.

use super::Tuner;
use super::change::{Change, ChangeResult, ChangeState, Point, Watch};
use super::error::TuneError;
use super::heirs;
use super::journal::{self, ChangeJournal, Entry, Head, Record};
use super::setting::Setting;
use crate::roots::Roots;

/// An apply that was put back.
#[derive(Debug)]
pub struct Reverted {
    /// Its number.
    pub id: u32,
    /// Its mitigations.
    pub mitigations: Vec<String>,
    /// Each setting, in the order in which they were put back.
    pub changes: Vec<ChangeResult>,
    /// Nothing is left to be done.
    pub is_done: bool,
}

/// Which applies to revert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevertSelection {
    /// All that no living process holds, the latest first.
    All,
    /// Those held by processes that have ended without putting them back.
    Abandoned,
    /// The one with this number.
    One(u32),
}

impl Tuner {
    /// Puts back what was applied, one apply after the other, the latest first.
    ///
    /// # Errors
    /// [`TuneError`] where the journals cannot be listed, or the one asked for cannot be read or is
    /// not there. What could not be put back is in the result, and so are other journals that cannot
    /// be read.
    pub fn revert(
        &self,
        which: RevertSelection,
        watch: &mut Watch,
    ) -> Result<Vec<Reverted>, TuneError> {
        if journal::ids(&self.folder)?.is_empty() && !matches!(which, RevertSelection::One(_)) {
            return Ok(Vec::new());
        }
        let _lock = journal::lock(&self.folder)?;
        let mut found = Vec::new();
        for id in journal::ids(&self.folder)? {
            match journal::read(&self.folder, id) {
                Ok(Some(record)) => found.push(Ok(record)),
                // cut off before anything was changed
                Ok(None) => ChangeJournal::open(&self.folder, id)?.forget(watch)?,
                Err(error) => found.push(Err((id, error))),
            }
        }
        let mut all = Vec::new();
        while let Some(next) = found.pop() {
            let record = match (next, which) {
                (Ok(record), _) => record,
                (Err((id, error)), RevertSelection::One(meant)) if id == meant => {
                    return Err(error);
                }
                (Err(_), RevertSelection::One(_)) => continue,
                (Err((id, error)), _) => {
                    all.push(self.unread_result(id, &error));
                    continue;
                }
            };
            let is_meant = match which {
                RevertSelection::All => record.head.holder().is_none(),
                RevertSelection::Abandoned => record.head.is_held && record.head.holder().is_none(),
                RevertSelection::One(id) => id == record.id,
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
            RevertSelection::One(id) if all.is_empty() => Err(TuneError::NoApply(id)),
            _ => Ok(all),
        }
    }

    /// Nothing of it is put back: its journal cannot be read.
    fn unread_result(&self, id: u32, error: &TuneError) -> Reverted {
        let state = ChangeState::Failed(error.to_string());
        Reverted {
            id,
            mitigations: vec![journal::UNKNOWN.into()],
            changes: vec![journal::unread(&self.folder, id, state)],
            is_done: false,
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
            let gone = |entry: Entry| entry.result(ChangeState::Gone);
            changes.extend(entries.into_iter().map(gone));
        }
        let is_left = |change: &ChangeResult| {
            matches!(
                change.state,
                ChangeState::Failed(_) | ChangeState::Covered { .. }
            )
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

    /// The settings that later applies have changed again, and the others. If the older one were put
    /// back first, the later one would later restore a value that is no longer the old one.
    ///
    /// A later apply whose journal cannot be read may have changed every setting where our value does
    /// not hold.
    fn covered(&self, record: &Record) -> Result<(Vec<ChangeResult>, Vec<Entry>), TuneError> {
        let (mut later, mut unread) = (Vec::new(), None);
        for id in journal::ids(&self.folder)? {
            if id > record.id {
                match journal::read(&self.folder, id) {
                    Ok(record) => later.extend(record),
                    Err(_) => unread = Some(id),
                }
            }
        }
        let unread = unread.filter(|_| record.head.is_of_this_boot(&self.roots));
        let is_changed = |Change { setting, new, .. }: &Change| {
            let now = setting.read(&self.roots);
            now.is_ok_and(|now| !setting.same(&now, new))
        };
        let (mut covered, mut free) = (Vec::new(), Vec::new());
        for entry in record.entries.iter().cloned() {
            let has = |other: &&Record| {
                let mut settings = other.entries.iter().map(|entry| &entry.change.setting);
                other.head.is_of_this_boot(&self.roots)
                    && settings.any(|setting| *setting == entry.change.setting)
            };
            let by = later.iter().find(has).map(|other| other.id);
            match by.or_else(|| unread.filter(|_| is_changed(&entry.change))) {
                Some(by) => covered.push(entry.result(ChangeState::Covered { by })),
                None => free.push(entry),
            }
        }
        Ok((covered, free))
    }
}

/// Puts the old values of `entries` back, the last change first, and notes it in the journal.
pub(super) fn undo(
    roots: &Roots,
    head: &Head,
    entries: &[Entry],
    journal: &mut ChangeJournal,
    watch: &mut Watch,
) -> Vec<ChangeResult> {
    let mut changes = Vec::new();
    let groups: Vec<String> = entries.iter().filter_map(group_of).collect();
    let mut members: Vec<Entry> = (entries.iter())
        .filter(|entry| matches!(entry.change.setting, Setting::Membership(_)))
        .cloned()
        .collect();
    let mut done = Vec::new();
    for entry in entries.iter().rev() {
        if group_of(entry).is_some() {
            // before it is removed, which moves what is left in it to the group above
            let heirs = heirs::of(roots, head, &std::mem::take(&mut members));
            put_heirs_back(roots, heirs, &mut done, &mut changes, watch);
        }
        let outcome = match goes_with(&groups, entry) {
            true => ChangeState::Gone,
            false => put_back(roots, entry, watch),
        };
        if !matches!(outcome, ChangeState::Failed(_)) {
            done.push(entry.number);
        }
        changes.push(entry.clone().result(outcome));
    }
    // last: a thread still in a control group of ours cannot have its old CPUs back, and one that
    // starts from now on inherits the old values
    let heirs = heirs::of(roots, head, entries);
    put_heirs_back(roots, heirs, &mut done, &mut changes, watch);
    journal.undone(&done, watch);
    changes
}

fn put_heirs_back(
    roots: &Roots,
    heirs: Vec<Entry>,
    done: &mut Vec<usize>,
    changes: &mut Vec<ChangeResult>,
    watch: &mut Watch,
) {
    for heir in heirs {
        let outcome = put_back(roots, &heir, watch);
        if matches!(outcome, ChangeState::Failed(_)) {
            // its parent's entry leads the next revert to it
            done.retain(|number| *number != heir.number);
        }
        changes.push(heir.result(outcome));
    }
}

/// The folder of a control group that the apply has made.
fn group_of(entry: &Entry) -> Option<String> {
    match &entry.change.setting {
        Setting::Group(group) => Some(format!("{}/", group.folder)),
        _ => None,
    }
}

/// Whether it is a file of a control group that is removed as a whole.
fn goes_with(groups: &[String], entry: &Entry) -> bool {
    match &entry.change.setting {
        Setting::File(file) => groups.iter().any(|group| file.path.starts_with(group)),
        _ => false,
    }
}

fn put_back(roots: &Roots, entry: &Entry, watch: &mut Watch) -> ChangeState {
    let (change, old) = (&entry.change, entry.old.as_str());
    let setting = &change.setting;
    let found = match setting.read(roots) {
        Ok(found) => found,
        Err(error) if error.is_gone() => return ChangeState::Gone,
        Err(error) => return ChangeState::Failed(error.to_string()),
    };
    if setting.same(&found, old) {
        return ChangeState::AsBefore;
    }
    if !setting.same(&found, &change.new) {
        return ChangeState::ChangedByOthers(found);
    }
    watch(Point::Undo { change, old });
    match setting.put_back(roots, old) {
        Ok(()) => {}
        Err(error) if error.is_gone() => return ChangeState::Gone,
        Err(error) => return ChangeState::Failed(error.to_string()),
    }
    watch(Point::Undone { change });
    match setting.read(roots) {
        Ok(now) if setting.same(&now, old) => ChangeState::Restored,
        Ok(now) => ChangeState::Failed(format!(
            "\"{old}\" was written and \"{now}\" holds: something limits it now (a CPU that is \
             offline, a cpuset)"
        )),
        Err(error) if error.is_gone() => ChangeState::Gone,
        Err(error) => ChangeState::Failed(error.to_string()),
    }
}
