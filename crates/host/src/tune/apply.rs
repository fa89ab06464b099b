//! Makes the changes of a plan, all of them or none.

use std::fmt;
use std::mem::discriminant;

use super::Tuner;
use super::change::{Change, ChangeResult, ChangeState, Hold, Point, Watch};
use super::error::TuneError;
use super::journal::{self, ChangeJournal, Entry, Head};
use super::plan::Plan;
use super::revert::undo;
use super::setting::SettingError;
use crate::keep_awake::KeepAwake;

/// What an apply has done. Dropping this value ends its holds; the other settings stay until
/// [`Tuner::revert`].
#[derive(Debug)]
pub struct Applied {
    /// The number of the apply; `None` where nothing had to be changed.
    pub id: Option<u32>,
    /// What became of each change.
    pub changes: Vec<ChangeResult>,
    /// What is held by this process.
    pub holds: Vec<Hold>,
    _held: Vec<Box<dyn fmt::Debug + Send>>,
}

/// Starts a hold; the kernel takes it back when the value is dropped.
fn held(hold: Hold) -> Result<Box<dyn fmt::Debug + Send>, TuneError> {
    let refused = |error: &dyn fmt::Display| TuneError::Refused {
        why: error.to_string(),
        unsupported: true,
    };
    Ok(match hold {
        Hold::CpuDmaLatency => Box::new(KeepAwake::hold().map_err(|error| refused(&error))?),
    })
}

impl Tuner {
    /// Makes the changes of `plan`. `is_held`: this process puts them back itself, and nobody
    /// else does while it lives.
    ///
    /// # Errors
    /// [`TuneError`]: then what was changed before is put back, or the error says what is not.
    pub fn apply(
        &self,
        plan: &Plan,
        is_held: bool,
        watch: &mut Watch,
    ) -> Result<Applied, TuneError> {
        let _lock = journal::lock(&self.folder)?;
        let mut applied = Applied {
            id: None,
            changes: Vec::new(),
            holds: Vec::new(),
            _held: Vec::new(),
        };
        for hold in plan.holds() {
            applied._held.push(held(hold)?);
            applied.holds.push(hold);
        }
        let head = Head::new(&self.roots, is_held, plan.names()).ok_or_else(|| {
            TuneError::Scope("/proc does not show this process: mount proc on /proc".into())
        })?;
        let changes: Vec<Change> = plan.changes().cloned().collect();
        let mut making = PendingChange {
            tuner: self,
            head,
            journal: None,
            entries: Vec::new(),
            watch,
        };
        let made = making
            .all(&changes, &mut applied.changes)
            .and_then(|()| self.is_worth_it(plan, &applied.changes))
            .and_then(|()| making.complete());
        let PendingChange { journal, .. } = &mut making;
        applied.id = journal.as_ref().map(|journal| journal.id);
        match made {
            Ok(()) => Ok(applied),
            Err(error) => Err(making.back_out(error)),
        }
    }
}

impl Tuner {
    /// Checks that the server still lives and that each mitigation has an effect left.
    fn is_worth_it(&self, plan: &Plan, done: &[ChangeResult]) -> Result<(), Failure> {
        if let Some(process) = plan.process
            && !process.is_alive(&self.roots)
        {
            return Err(Failure::Other(format!(
                "process {} has ended meanwhile",
                process.pid
            )));
        }
        for name in plan.names() {
            let mut of_it = done
                .iter()
                .filter(|change| change.change.mitigation == name);
            let first = of_it.clone().next();
            let all_refused = of_it.all(|change| matches!(change.state, ChangeState::Skipped(_)));
            if all_refused
                && let Some(ChangeState::Skipped(reason)) = first.map(|change| &change.state)
            {
                return Err(Failure::Other(format!(
                    "none of {name} is possible here: {reason}"
                )));
            }
        }
        Ok(())
    }
}

/// Why a change came to nothing.
enum Failure {
    Setting(SettingError),
    /// The kernel made another value of it, and the old one is written back.
    Altered(String),
    Tune(TuneError),
    Other(String),
}

impl From<TuneError> for Failure {
    fn from(error: TuneError) -> Self {
        Self::Tune(error)
    }
}

struct PendingChange<'t, 'w, 'x> {
    tuner: &'t Tuner,
    head: Head,
    /// Begun with the first change that has to be made.
    journal: Option<ChangeJournal>,
    /// The entries in the journal.
    entries: Vec<Entry>,
    watch: &'w mut Watch<'x>,
}

impl PendingChange<'_, '_, '_> {
    fn all(&mut self, changes: &[Change], done: &mut Vec<ChangeResult>) -> Result<(), Failure> {
        // Changes of one kind do not need each other, so their old values go to the disk together;
        // those of the next kind may (a file of a group that was just made).
        let same_kind =
            |a: &Change, b: &Change| discriminant(&a.setting) == discriminant(&b.setting);
        for batch in changes.chunk_by(same_kind) {
            self.batch(batch, done)?;
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<(), Failure> {
        if let Some(journal) = &mut self.journal {
            journal.complete()?;
            (self.watch)(Point::Completed);
        }
        Ok(())
    }

    fn batch(&mut self, batch: &[Change], done: &mut Vec<ChangeResult>) -> Result<(), Failure> {
        let mut intended = Vec::new();
        for change in batch {
            let old = match change.setting.read(&self.tuner.roots) {
                Ok(old) => old,
                // a thread that has ended needs no change any more
                Err(error) if change.optional || is_ended(&error) => {
                    self.skip(change, &error.to_string(), "", done);
                    continue;
                }
                Err(error) => return Err(Failure::Setting(error)),
            };
            let is_so = change.setting.same(&old, &change.new);
            let entry = Entry {
                number: self.entries.len() + intended.len(),
                old,
                change: change.clone(),
            };
            match is_so {
                true => done.push(entry.result(ChangeState::AlreadySo)),
                false => intended.push(entry),
            }
        }
        if intended.is_empty() {
            return Ok(());
        }
        if self.journal.is_none() {
            self.journal = Some(ChangeJournal::begin(&self.tuner.folder, &self.head)?);
            (self.watch)(Point::Begun);
        }
        if let Some(journal) = &mut self.journal {
            journal.intend(&intended, self.watch)?;
        }
        self.entries.extend(intended.iter().cloned());
        for entry in &intended {
            match self.one(entry) {
                Ok(()) => done.push(entry.clone().result(ChangeState::Changed)),
                Err(Failure::Setting(error)) if entry.change.optional || is_ended(&error) => {
                    self.leave_out(entry, &error.to_string(), done);
                }
                Err(Failure::Altered(why)) if entry.change.optional => {
                    self.leave_out(entry, &why, done);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Skips a change that is in the journal, where it stays unless its old value is there.
    fn leave_out(&mut self, entry: &Entry, reason: &str, done: &mut Vec<ChangeResult>) {
        let setting = &entry.change.setting;
        let now = setting.read(&self.tuner.roots);
        if now.is_ok_and(|now| setting.same(&now, &entry.old))
            && let Some(journal) = &mut self.journal
        {
            journal.undone(&[entry.number], self.watch);
        }
        self.skip(&entry.change, reason, &entry.old, done);
    }

    fn skip(&mut self, change: &Change, reason: &str, old: &str, done: &mut Vec<ChangeResult>) {
        (self.watch)(Point::Skipped { change, reason });
        done.push(ChangeResult {
            change: change.clone(),
            old: old.to_owned(),
            state: ChangeState::Skipped(reason.to_owned()),
        });
    }

    /// Writes and reads back.
    fn one(&mut self, entry: &Entry) -> Result<(), Failure> {
        let (roots, change) = (&self.tuner.roots, &entry.change);
        let setting = &change.setting;
        (self.watch)(Point::Write {
            change,
            old: &entry.old,
        });
        setting
            .write(roots, &change.new)
            .map_err(Failure::Setting)?;
        (self.watch)(Point::Written { change });
        let effective = setting.read(roots).map_err(Failure::Setting)?;
        if setting.same(&effective, &change.new) {
            (self.watch)(Point::Confirmed {
                change,
                effective: &effective,
            });
            return Ok(());
        }
        // This value is ours, but only we know that: a later revert would take it for
        // somebody else's. So put the old one back now.
        let why = format!(
            "the kernel accepted \"{}\" for {setting} and turned it into \"{effective}\": it \
             does not allow that value here",
            change.new
        );
        Err(match setting.put_back(roots, &entry.old) {
            Ok(()) => Failure::Altered(why),
            Err(error) => Failure::Other(format!("{why}; it stays so: {error}")),
        })
    }

    /// Puts back what was changed.
    fn back_out(mut self, failure: Failure) -> TuneError {
        let mut left = Vec::new();
        if let Some(mut journal) = self.journal.take() {
            let entries = std::mem::take(&mut self.entries);
            let undone = undo(
                &self.tuner.roots,
                &self.head,
                &entries,
                &mut journal,
                self.watch,
            );
            for change in undone {
                if let ChangeState::Failed(reason) = change.state {
                    left.push(format!("{} ({reason})", change.change.setting));
                }
            }
            if left.is_empty()
                && let Err(error) = journal.forget(self.watch)
            {
                left.push(error.to_string());
            }
        }
        let (why, unsupported) = match failure {
            Failure::Tune(error) if left.is_empty() => return error,
            Failure::Tune(error) => (error.to_string(), false),
            Failure::Setting(error) => (error.to_string(), error.is_unsupported()),
            Failure::Altered(why) | Failure::Other(why) => (why, false),
        };
        match left.is_empty() {
            true => TuneError::Refused { why, unsupported },
            false => TuneError::HalfApplied { why, left },
        }
    }
}

const fn is_ended(error: &SettingError) -> bool {
    matches!(error, SettingError::Ended { .. })
}
