//! What has been changed, on disk, so that it can be put back after a crash.
//!
//! One file for each apply, to which lines are only added: a torn line is the last one of its
//! file, a full disk stops the apply that fills it and no other, and an apply that is put back is
//! forgotten by one unlink(2), which is atomic and works on a full disk. One shared file would
//! need to be compacted, which is where crashes hurt. Files are numbered, so the later apply is
//! known; all of them change under one lock on the folder.
//!
//! All settings are state of the running kernel: a reboot undoes them, and a journal of another
//! boot is only removed.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::change::{Change, ChangeResult, ChangeState, Point, Watch};
use super::error::TuneError;
use super::setting::{FileSetting, Form, Setting};
use crate::clock::unix_s;
use crate::journal::{JournalFolder, boot_id, failed, state_of};
use crate::process::ProcessIdentity;
use crate::roots::Roots;

/// Version of the file's format; a file of another version is left alone.
const VERSION: u32 = 1;

/// `USER_HZ` of x86_64.
const TICKS_PER_SECOND: u64 = 100;

/// The mitigations of a journal that cannot be read.
pub(super) const UNKNOWN: &str = "unknown";

/// Where the journals of this user are.
pub(super) fn folder_of_this_user() -> Result<JournalFolder, TuneError> {
    let uid = rustix::process::geteuid().as_raw();
    folder_of(uid, |name| std::env::var_os(name))
}

/// As the rigs' journals, but not in a folder for everybody: what is found in it later is put back.
fn folder_of(
    uid: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<JournalFolder, TuneError> {
    if uid == 0 {
        return Ok(JournalFolder::at("/var/lib/taillab/tune"));
    }
    let state = state_of(uid, &variable).ok_or(TuneError::NoHome)?;
    Ok(JournalFolder::at(state.join("taillab/tune")))
}

/// Makes the folder and those above it, and takes the lock.
pub(super) fn lock(folder: &JournalFolder) -> Result<File, TuneError> {
    if let Some(above) = folder.path().parent() {
        let made = DirBuilder::new().mode(0o755).recursive(true).create(above);
        made.map_err(failed("make", above))?;
    }
    folder.ensure()?;
    Ok(folder.lock()?)
}

/// Who changed what, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    version: u32,
    /// The boot in which the settings were made.
    boot_id: String,
    /// The process that applied it.
    pub(super) owner: ProcessIdentity,
    /// The owner holds the settings and puts them back when it ends.
    pub(super) is_held: bool,
    /// When, in seconds since 1970.
    pub(super) began_unix_s: u64,
    /// When, in clock ticks since boot, the unit of processes' start times.
    pub(super) began_ticks: u64,
    /// The mitigations.
    pub(super) mitigations: Vec<String>,
}

impl Head {
    pub(super) fn new(roots: &Roots, is_held: bool, mitigations: Vec<String>) -> Option<Self> {
        let boot = clock_gettime(ClockId::Boottime);
        Some(Self {
            version: VERSION,
            boot_id: boot_id(roots),
            owner: ProcessIdentity::current(&Roots::default())?,
            is_held,
            began_unix_s: unix_s(),
            began_ticks: boot.tv_sec as u64 * TICKS_PER_SECOND
                + boot.tv_nsec as u64 * TICKS_PER_SECOND / 1_000_000_000,
            mitigations,
        })
    }

    /// The kernel whose settings were changed still runs.
    pub(super) fn is_of_this_boot(&self, roots: &Roots) -> bool {
        self.boot_id == boot_id(roots)
    }

    /// The process that holds it, if it lives.
    pub(super) fn holder(&self) -> Option<u32> {
        let alive = self.is_held && self.owner.is_alive(&Roots::default());
        alive.then_some(self.owner.pid)
    }
}

/// A change that was about to be made, with the value that held before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its place in the apply, from 0.
    pub(super) number: usize,
    /// The value before.
    pub(super) old: String,
    /// What was to be changed.
    pub(super) change: Change,
}

impl Entry {
    /// What has become of it.
    pub(super) fn result(self, state: ChangeState) -> ChangeResult {
        ChangeResult {
            change: self.change,
            old: self.old,
            state,
        }
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
enum Line {
    Head(Head),
    Intent(Entry),
    Complete,
    Undone { numbers: Vec<usize> },
}

/// An apply, as its journal tells.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Its number.
    pub(super) id: u32,
    pub(super) head: Head,
    /// What may have been changed and was not put back, in the order of the changes.
    pub(super) entries: Vec<Entry>,
    /// Whether all changes were made.
    pub(super) is_complete: bool,
}

/// The journal of an apply, open for more lines.
#[derive(Debug)]
pub(super) struct ChangeJournal {
    /// The number of the apply.
    pub(super) id: u32,
    path: PathBuf,
    folder: PathBuf,
    file: File,
}

impl ChangeJournal {
    /// Begins the journal of the next apply, on disk before this returns. The lock must be held.
    pub(super) fn begin(folder: &JournalFolder, head: &Head) -> Result<Self, TuneError> {
        let id = ids(folder)?.last().map_or(1, |last| last + 1);
        let path = path(folder, id);
        let make = || {
            let file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            let mut journal = Self {
                id,
                path: path.clone(),
                folder: folder.path().to_owned(),
                file,
            };
            let begun = journal.add(&[Line::Head(head.clone())]);
            let begun = begun.and_then(|()| journal.file.sync_all());
            match begun.and_then(|()| sync(&journal.folder)) {
                Ok(()) => Ok(journal),
                Err(error) => {
                    // mostly a full disk: nothing has been changed, so there is nothing to keep
                    let _ = fs::remove_file(&journal.path);
                    Err(error)
                }
            }
        };
        Ok(make().map_err(failed("write", &path))?)
    }

    /// Opens the journal of an apply that is to be reverted.
    pub(super) fn open(folder: &JournalFolder, id: u32) -> Result<Self, TuneError> {
        let path = path(folder, id);
        let open = || {
            let file = OpenOptions::new()
                .append(true)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            // what is added must not become the end of a torn line
            file.set_len(whole_lines(&fs::read(&path)?) as u64)?;
            Ok(file)
        };
        Ok(Self {
            id,
            file: open().map_err(failed("open", &path))?,
            folder: folder.path().to_owned(),
            path,
        })
    }

    fn add(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let before = self.file.metadata()?.len();
        let written = self.file.write_all(&text);
        if written.is_err() {
            // a full disk may have taken part of the line: cut it off, so that later lines are readable
            self.file.set_len(before)?;
        }
        written
    }

    /// Records what is about to be changed, on disk before this returns.
    pub(super) fn intend(&mut self, entries: &[Entry], watch: &mut Watch) -> Result<(), TuneError> {
        let lines: Vec<Line> = entries.iter().cloned().map(Line::Intent).collect();
        let mut write = || {
            self.add(&lines)?;
            watch(Point::IntentsWritten);
            self.file.sync_all()?;
            watch(Point::IntentsSynced);
            Ok(())
        };
        let written: io::Result<()> = write();
        Ok(written.map_err(failed("write", &self.path))?)
    }

    /// Records that all changes are made.
    pub(super) fn complete(&mut self) -> Result<(), TuneError> {
        let written = self
            .add(&[Line::Complete])
            .and_then(|()| self.file.sync_all());
        Ok(written.map_err(failed("write", &self.path))?)
    }

    /// Records that these are put back. A full disk does not stop a revert: a later one sees that the
    /// old values hold.
    pub(super) fn undone(&mut self, numbers: &[usize], watch: &mut Watch) {
        let numbers = numbers.to_vec();
        if self.add(&[Line::Undone { numbers }]).is_ok() {
            watch(Point::UndoneWritten);
            let _ = self.file.sync_all();
            watch(Point::UndoneSynced);
        }
    }

    /// Forgets the apply: nothing of it is left.
    pub(super) fn forget(self, watch: &mut Watch) -> Result<(), TuneError> {
        fs::remove_file(&self.path).map_err(failed("remove", &self.path))?;
        sync(&self.folder).map_err(failed("write", &self.folder))?;
        watch(Point::Forgotten);
        Ok(())
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn file_name(id: u32) -> String {
    format!("{id:06}.jsonl")
}

fn path(folder: &JournalFolder, id: u32) -> PathBuf {
    folder.path().join(file_name(id))
}

/// The bytes up to the last line break.
fn whole_lines(text: &[u8]) -> usize {
    let last = text.iter().rposition(|byte| *byte == b'\n');
    last.map_or(0, |at| at + 1)
}

/// The numbers of all applies, in ascending order.
pub(super) fn ids(folder: &JournalFolder) -> Result<Vec<u32>, TuneError> {
    let entries = match fs::read_dir(folder.path()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed("list", folder.path())(e).into()),
    };
    let number = |name: &str| {
        let id = name.strip_suffix(".jsonl")?.parse().ok()?;
        // not a copy that somebody has made
        (name == file_name(id)).then_some(id)
    };
    let mut ids: Vec<u32> = entries
        .filter_map(|entry| number(entry.ok()?.file_name().to_str()?))
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// A stand-in for the settings of a journal that cannot be read.
pub(super) fn unread(folder: &JournalFolder, id: u32, state: ChangeState) -> ChangeResult {
    let path = path(folder, id).display().to_string();
    let setting = Setting::File(FileSetting::new(path, Form::Text));
    ChangeResult {
        change: Change::new(setting, "?", ""),
        old: "?".into(),
        state,
    }
}

/// The journal of an apply; `None` where it was cut off before its first line was whole, so
/// that nothing had been changed, and where the apply was put back meanwhile (only without the lock).
pub(super) fn read(folder: &JournalFolder, id: u32) -> Result<Option<Record>, TuneError> {
    let path = path(folder, id);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("read", &path)(e).into()),
    };
    let damaged = |reason: String| TuneError::Damaged {
        path: path.clone(),
        reason,
    };
    // What follows the last line break is torn: it was never on the disk as a whole, so what it
    // announces was not done.
    let whole = whole_lines(&text);
    let mut record: Option<Record> = None;
    for line in text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let line: Line = serde_json::from_slice(line).map_err(|e| {
            damaged(format!(
                "a line cannot be understood ({e}): look at it, then remove the file"
            ))
        })?;
        match (line, &mut record) {
            (Line::Head(head), None) if head.version == VERSION => {
                record = Some(Record {
                    id,
                    head,
                    entries: Vec::new(),
                    is_complete: false,
                });
            }
            (Line::Head(head), None) => {
                return Err(damaged(format!(
                    "another version of taillab wrote it (format {}): let that version revert it",
                    head.version
                )));
            }
            (Line::Intent(entry), Some(record)) => record.entries.push(entry),
            (Line::Complete, Some(record)) => record.is_complete = true,
            (Line::Undone { numbers }, Some(record)) => {
                record
                    .entries
                    .retain(|entry| !numbers.contains(&entry.number));
            }
            (_, _) => {
                return Err(damaged(
                    "its lines are out of order: look at it, then remove it".into(),
                ));
            }
        }
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `su` and `setpriv` leave HOME and XDG_STATE_HOME of the user before.
    #[test]
    fn a_folder_of_somebody_else_is_no_place_for_a_journal() {
        let place = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        // somebody who is not root, whoever runs this
        let owner = fs::symlink_metadata(place.path())
            .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta));
        assert_eq!(owner.unwrap(), uid);
        let named = |name: &'static str, of: u32| {
            let home = place.path().as_os_str().to_owned();
            folder_of(of, move |asked| (asked == name).then(|| home.clone()))
        };
        let other = uid + 1;
        for name in ["HOME", "XDG_STATE_HOME"] {
            assert!(
                matches!(named(name, other), Err(TuneError::NoHome)),
                "{name}"
            );
        }
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::chown(&own, Some(other), None).ok();
        let is_other =
            fs::symlink_metadata(&own).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta));
        // only root can give a folder away
        let of = if is_other.unwrap() == other {
            other
        } else {
            uid
        };
        let found = folder_of(of, |asked| {
            (asked == "HOME").then(|| own.clone().into_os_string())
        });
        if of != 0 {
            assert_eq!(
                found.unwrap(),
                JournalFolder::at(own.join(".local/state/taillab/tune"))
            );
        }
        assert_eq!(
            folder_of(0, |_| None).unwrap(),
            JournalFolder::at("/var/lib/taillab/tune")
        );
    }
}
