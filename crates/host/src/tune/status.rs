//! What is applied now, and whether it still holds.

use super::Tuner;
use super::change::{ChangeResult, ChangeState};
use super::error::TuneError;
use super::journal::{self, Record};

/// An apply that is not put back.
#[derive(Clone, Debug)]
pub struct ApplyStatus {
    /// Its number.
    pub id: u32,
    /// Its mitigations.
    pub mitigations: Vec<String>,
    /// When, in seconds since 1970; 0 where its journal cannot be read.
    pub began_unix_s: u64,
    /// All changes were made; otherwise it was killed in the middle.
    pub is_complete: bool,
    /// The process that holds it and puts it back itself.
    pub holder: Option<u32>,
    /// A reboot has undone it.
    pub is_of_earlier_boot: bool,
    /// Its settings, in the order of the changes.
    pub entries: Vec<ChangeResult>,
}

impl ApplyStatus {
    /// Every setting that still exists has our value.
    pub fn holds(&self) -> bool {
        let good =
            |entry: &ChangeResult| matches!(entry.state, ChangeState::Holds | ChangeState::Gone);
        self.is_complete && !self.is_of_earlier_boot && self.entries.iter().all(good)
    }
}

impl Tuner {
    /// All applies that are not put back, in the order in which they were made. Reads only. Of one
    /// whose journal cannot be read, the only entry is that file, with the reason.
    ///
    /// # Errors
    /// [`TuneError`] where the journals cannot be listed.
    pub fn status(&self) -> Result<Vec<ApplyStatus>, TuneError> {
        let mut all = Vec::new();
        for id in journal::ids(&self.folder)? {
            match journal::read(&self.folder, id) {
                Ok(Some(record)) => all.push(self.status_of(record)),
                Ok(None) => {}
                Err(error) => all.push(self.unread_status(id, &error)),
            }
        }
        Ok(all)
    }

    fn unread_status(&self, id: u32, error: &TuneError) -> ApplyStatus {
        let state = ChangeState::Unknown(error.to_string());
        ApplyStatus {
            id,
            mitigations: vec![journal::UNKNOWN.into()],
            began_unix_s: 0,
            // nothing says that it was killed
            is_complete: true,
            holder: None,
            is_of_earlier_boot: false,
            entries: vec![journal::unread(&self.folder, id, state)],
        }
    }

    fn status_of(&self, record: Record) -> ApplyStatus {
        let holder = record.head.holder();
        let is_of_earlier_boot = !record.head.is_of_this_boot(&self.roots);
        let entries = record.entries.into_iter().map(|entry| {
            let setting = &entry.change.setting;
            let state = match setting.read(&self.roots) {
                _ if is_of_earlier_boot => ChangeState::Gone,
                Ok(now) if setting.same(&now, &entry.change.new) => ChangeState::Holds,
                Ok(now) if setting.same(&now, &entry.old) => ChangeState::AsBefore,
                Ok(now) => ChangeState::ChangedByOthers(now),
                Err(error) if error.is_gone() => ChangeState::Gone,
                Err(error) => ChangeState::Unknown(error.to_string()),
            };
            entry.result(state)
        });
        ApplyStatus {
            id: record.id,
            mitigations: record.head.mitigations,
            began_unix_s: record.head.began_unix_s,
            is_complete: record.is_complete,
            holder,
            is_of_earlier_boot,
            entries: entries.collect(),
        }
    }
}
