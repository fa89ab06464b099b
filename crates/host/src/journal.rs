//! A record on disk of what a run has made, so that the next start can clean up after a SIGKILL.
//!
//! The first line of defence is that nothing survives us: namespaces are held by
//! descriptors, servers get the kernel's death signal. The journal is the second.
//! It records intentions: the run's mark is on disk before a server starts, and the
//! server carries the mark in its environment. So a server is found even when we died
//! between starting it and writing its number down.
//!
//! A run is alive as long as it holds a lock (flock(2)) on its file; the kernel drops
//! the lock with the process. Runs at the same time do not touch each other.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::lock_holder::holder;
use crate::process::{ProcessIdentity, numbers_in};
use crate::roots::{Roots, read_optional};

/// The environment variable that marks what a run has started.
pub const MARK: &str = "TAILLAB_RUN";

/// Version of the file's format; a file of another version is left alone.
const VERSION: u32 = 1;

/// How long a killed server may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How many names in a folder for everybody may be taken before we give up.
const MOST_TAKEN: u32 = 1_000;

/// How long another command may take with the lock: an apply makes thousands of changes, each in milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// How many times, and how far apart, to look again for a server in the middle of exec.
const EXEC_LOOKS: u32 = 10;
const EXEC_PAUSE: Duration = Duration::from_millis(20);

/// Why the journal cannot be kept or followed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder of the journal cannot be used.
    #[error(
        "cannot {what} {path}: {source}; make room there, or make it writable: without its journal taillab could not clean up \
         after a crash"
    )]
    File {
        /// `make`, `write`, …
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another command does not give the lock back.
    #[error(
        "{} has been locked for {} s by {holder}: let it go on (kill -CONT) or end it; two at the same time could \
         undo each other", path.display(), waited.as_secs()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// `taillab (pid 4711), which is stopped`.
        holder: String,
        /// How long we have waited.
        waited: Duration,
    },
    /// Somebody else could have written into the folder.
    #[error(
        "{path} is not a folder of this user alone ({why}): remove it, taillab makes a new one"
    )]
    Unsafe {
        /// The folder of the journals.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::File {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Where a user keeps the state of programs (`$XDG_STATE_HOME`, `~/.local/state`), if that is a folder of that user's.
pub(crate) fn state_of(uid: u32, variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let state = own_folder(uid, variable, "XDG_STATE_HOME");
    state.or_else(|| Some(own_folder(uid, variable, "HOME")?.join(".local/state")))
}

/// The folder that a variable names. `setpriv` and `su` leave the variables of the user before, whose folders are closed
/// to this one.
fn own_folder(
    uid: u32,
    variable: &impl Fn(&str) -> Option<OsString>,
    name: &str,
) -> Option<PathBuf> {
    let folder = variable(name).filter(|value| !value.is_empty());
    let folder = folder.map(PathBuf::from);
    folder.filter(|folder| is_of(uid, folder))
}

fn is_of(uid: u32, folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
}

/// The folder of all journals of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFolder(PathBuf);

impl JournalFolder {
    /// `/run/taillab` for root, else `$XDG_RUNTIME_DIR/taillab`, else `taillab/run` where this user keeps its state
    /// (`$XDG_STATE_HOME`, `~/.local/state`), else `/tmp/taillab-UID`. Nothing is made yet.
    pub fn of_this_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        if uid == 0 {
            return Self("/run/taillab".into());
        }
        Self::for_user(uid, "/tmp".into(), |name| std::env::var_os(name))
    }

    /// A folder for everybody comes last, and another name in it where somebody has taken the first: what others
    /// could take would keep this user from measuring.
    fn for_user(uid: u32, for_all: PathBuf, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        if let Some(folder) = own_folder(uid, &variable, "XDG_RUNTIME_DIR") {
            return Self(folder.join("taillab"));
        }
        if let Some(state) = state_of(uid, &variable) {
            return Self(state.join("taillab/run"));
        }
        let mut folder = for_all.join(format!("taillab-{uid}"));
        let mut number = 1;
        while fs::symlink_metadata(&folder).is_ok() && !is_of(uid, &folder) && number < MOST_TAKEN {
            folder = for_all.join(format!("taillab-{uid}-{number}"));
            number += 1;
        }
        Self(folder)
    }

    /// A given folder.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder (0700) or checks that it is ours alone: what a journal names
    /// gets killed.
    pub(crate) fn ensure(&self) -> Result<(), JournalError> {
        if let Some(above) = self.0.parent() {
            let made = DirBuilder::new().mode(0o755).recursive(true).create(above);
            made.map_err(failed("make", above))?;
        }
        match DirBuilder::new()
            .mode(0o700)
            .recursive(false)
            .create(&self.0)
        {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed("make", &self.0)(e)),
        }
        let meta = fs::symlink_metadata(&self.0).map_err(failed("inspect", &self.0))?;
        let why = if !meta.is_dir() {
            "it is something else"
        } else if meta.uid() != rustix::process::geteuid().as_raw() {
            "another user owns it"
        } else if meta.mode() & 0o077 != 0 {
            "others have access"
        } else {
            return Ok(());
        };
        Err(JournalError::Unsafe {
            path: self.0.clone(),
            why,
        })
    }

    /// Held while journals are made and removed, so that a new one that is not yet locked is not
    /// taken for a dead one.
    pub(crate) fn lock(&self) -> Result<File, JournalError> {
        self.lock_within(LOCK_PATIENCE)
    }

    /// One that is stopped keeps the lock for as long as it is.
    fn lock_within(&self, patience: Duration) -> Result<File, JournalError> {
        let path = self.0.join("lock");
        let file = open_private(&path).map_err(failed("open", &path))?;
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < patience => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(JournalError::Locked {
                        holder: holder(&Roots::default(), &file),
                        path,
                        waited: patience,
                    });
                }
                Err(error) => return Err(failed("lock", &path)(error.into())),
            }
        }
    }

    /// Starts the journal of a run.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn begin(&self, roots: &Roots) -> Result<Journal, JournalError> {
        self.ensure()?;
        let _guard = self.lock()?;
        let owner = ProcessIdentity::current(roots).ok_or_else(|| {
            failed("read", &roots.proc.join("self/stat"))(io::ErrorKind::NotFound.into())
        })?;
        let boot_id = boot_id(roots);
        for serial in 0_u32.. {
            // unique on this machine for good: the boot, the process, the serial number
            let boot: String = boot_id.chars().take(8).collect();
            let run = format!("{boot}-{}-{}-{serial}", owner.pid, owner.start_time_ticks);
            let lock_path = self.0.join(format!("{run}.lock"));
            let lock = match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&lock_path)
            {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(failed("make", &lock_path)(e)),
            };
            flock(&lock, FlockOperation::NonBlockingLockExclusive)
                .map_err(|e| failed("lock", &lock_path)(e.into()))?;
            let journal = Journal {
                folder: self.0.clone(),
                record: JournalRecord {
                    version: VERSION,
                    run,
                    boot_id,
                    owner,
                    servers: Vec::new(),
                    control_groups: Vec::new(),
                },
                _lock: lock,
            };
            journal.write()?;
            return Ok(journal);
        }
        unreachable!("a process has fewer than 2^32 journals")
    }

    /// Ends what dead runs have left and forgets them. One item for each thing
    /// found; empty when the last runs ended in order. Runs that are alive are left
    /// alone.
    ///
    /// # Errors
    /// [`JournalError`] when the folder cannot be read. What went wrong with one
    /// journal is reported in its [`Recovered`], and the next start tries again.
    pub fn recover(&self, roots: &Roots) -> Result<Vec<Recovered>, JournalError> {
        if !self.0.exists() {
            return Ok(Vec::new());
        }
        self.ensure()?;
        let _guard = self.lock()?;
        let entries = fs::read_dir(&self.0).map_err(failed("list", &self.0))?;
        let mut locks: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|x| x == "lock"))
            .collect();
        locks.sort();
        let mut found = Vec::new();
        for lock_path in locks {
            let lock = open_private(&lock_path).map_err(failed("open", &lock_path))?;
            // a lock that is still held belongs to a run that is still alive
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                recover_one(roots, &lock_path, &mut found);
            }
        }
        Ok(found)
    }
}

fn recover_one(roots: &Roots, lock_path: &Path, found: &mut Vec<Recovered>) {
    let path = lock_path.with_extension("json");
    let complete = match read_record(&path) {
        Ok(Some(record)) => {
            let before = found.len();
            end_servers(roots, &record, found);
            remove_control_groups(&record, found);
            found[before..].iter().all(|item| item.failure.is_none())
        }
        // died before the first record: nothing had been made
        Ok(None) => true,
        Err(reason) => {
            found.push(Recovered::left(
                format!("the journal {}", path.display()),
                reason,
            ));
            return;
        }
    };
    if complete {
        for file in [&path, &path.with_extension("new"), &lock_path.to_owned()] {
            match fs::remove_file(file) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => found.push(Recovered::left(
                    format!("the journal {}", file.display()),
                    format!("cannot remove it: {e}"),
                )),
            }
        }
    }
}

fn read_record(path: &Path) -> Result<Option<JournalRecord>, String> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("cannot read it: {e}")),
    };
    let record: JournalRecord = serde_json::from_slice(&text)
        .map_err(|e| format!("cannot understand it ({e}): look at it, then remove it"))?;
    if record.version != VERSION {
        return Err(format!(
            "another version of taillab wrote it (format {}): let that version clean up, or remove it",
            record.version
        ));
    }
    Ok(Some(record))
}

/// Kills what carries the run's mark and, where a server is recorded, that very
/// process, in case it has overwritten its environment.
fn end_servers(roots: &Roots, record: &JournalRecord, found: &mut Vec<Recovered>) {
    if record.boot_id != boot_id(roots) {
        return; // no process survives a reboot
    }
    let mark = format!("{MARK}={}", record.run);
    let mut processes = marked(roots, &mark);
    // One that was planned and never recorded may be on its way through exec, where
    // the kernel shows no environment.
    if record.servers.iter().any(|server| server.process.is_none()) {
        for _ in 0..EXEC_LOOKS {
            if !processes.is_empty() {
                break;
            }
            thread::sleep(EXEC_PAUSE);
            processes = marked(roots, &mark);
        }
    }
    processes.extend(record.servers.iter().filter_map(|server| server.process));
    processes.sort_unstable_by_key(|process| (process.pid, process.start_time_ticks));
    processes.dedup();
    for process in processes {
        let program = record
            .servers
            .iter()
            .find(|server| server.process == Some(process))
            .or(record.servers.first())
            .map_or("process", |server| &server.program);
        let what = format!(
            "{program} (pid {}), left by a run that was killed (pid {})",
            process.pid, record.owner.pid
        );
        match process.kill(roots, KILL_PATIENCE) {
            Ok(false) => {}
            Ok(true) => found.push(Recovered::removed(what)),
            Err(e) => found.push(Recovered::left(
                what,
                format!(
                    "cannot end it: {e}; end it yourself: kill -9 {}",
                    process.pid
                ),
            )),
        }
    }
}

/// Removes the control groups that are left. Our processes have ended, so a group that still has
/// some is in use by others and stays.
fn remove_control_groups(record: &JournalRecord, found: &mut Vec<Recovered>) {
    for path in &record.control_groups {
        let what = format!("the control group {}", path.display());
        match fs::remove_dir(path) {
            Ok(()) => found.push(Recovered::removed(what)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => found.push(Recovered::left(
                what,
                format!(
                    "cannot remove it: {e}; end its processes, then rmdir {}",
                    path.display()
                ),
            )),
        }
    }
}

/// The processes with this variable in their environment.
fn marked(roots: &Roots, mark: &str) -> Vec<ProcessIdentity> {
    let carries_mark = |pid: &u32| {
        fs::read(roots.proc.join(pid.to_string()).join("environ")).is_ok_and(|text| {
            text.split(|&byte| byte == 0)
                .any(|var| var == mark.as_bytes())
        })
    };
    numbers_in(&roots.proc)
        .into_iter()
        .filter(carries_mark)
        .filter_map(|pid| ProcessIdentity::of(roots, pid))
        .collect()
}

/// One thing that a dead run had left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// What it was, and of which run.
    pub what: String,
    /// Why it is still there, and the remedy; `None` when it is gone.
    pub failure: Option<String>,
}

impl Recovered {
    fn removed(what: String) -> Self {
        Self {
            what,
            failure: None,
        }
    }

    fn left(what: String, failure: String) -> Self {
        Self {
            what,
            failure: Some(failure),
        }
    }
}

impl std::fmt::Display for Recovered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.failure {
            None => write!(f, "removed {}", self.what),
            Some(failure) => write!(f, "could not clean up {}: {failure}", self.what),
        }
    }
}

/// The journal of a live run. Dropping it without [`Journal::finish`] leaves it for
/// [`JournalFolder::recover`], as a crash does.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    record: JournalRecord,
    _lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct JournalRecord {
    version: u32,
    run: String,
    boot_id: String,
    owner: ProcessIdentity,
    servers: Vec<ServerRecord>,
    /// Directories of control groups; older versions made none.
    #[serde(default)]
    control_groups: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ServerRecord {
    program: String,
    /// `None` from the intention until the start has succeeded.
    process: Option<ProcessIdentity>,
}

impl Journal {
    /// Records that a server is about to be started. Call it before the start, and
    /// give the server the variable it returns ([`crate::ServerSpec::env`]).
    ///
    /// # Errors
    /// [`JournalError`]; then do not start the server.
    pub fn plan_server(&mut self, program: &str) -> Result<(OsString, OsString), JournalError> {
        self.record.servers.push(ServerRecord {
            program: program.to_owned(),
            process: None,
        });
        self.write()?;
        Ok((MARK.into(), self.record.run.clone().into()))
    }

    /// The name of the run, which no other run on this machine has.
    pub fn name(&self) -> &str {
        &self.record.run
    }

    /// Records that a control group is about to be made. Call it before making it.
    ///
    /// # Errors
    /// [`JournalError`]; then do not make it.
    pub fn plan_control_group(&mut self, path: &Path) -> Result<(), JournalError> {
        self.record.control_groups.push(path.to_owned());
        self.write()
    }

    /// Records the process of the server planned last. Nothing is recorded of one that
    /// has already ended.
    ///
    /// # Errors
    /// [`JournalError`]; the mark still finds the server.
    pub fn server_started(&mut self, roots: &Roots, pid: u32) -> Result<(), JournalError> {
        if let Some(server) = self.record.servers.last_mut() {
            server.process = ProcessIdentity::of(roots, pid);
        }
        self.write()
    }

    /// Forgets the run: everything it made is gone.
    ///
    /// # Errors
    /// [`JournalError`] when a file cannot be removed.
    pub fn finish(self) -> Result<(), JournalError> {
        for extension in ["json", "lock"] {
            let path = self.path(extension);
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        Ok(())
    }

    fn path(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.record.run))
    }

    /// Replaces the file as a whole, on disk before this returns.
    fn write(&self) -> Result<(), JournalError> {
        let (new, path) = (self.path("new"), self.path("json"));
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(&self.record)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| {
            // mostly a full disk; `finish` does not know of this file
            let _ = fs::remove_file(&new);
            failed("write", &path)(error)
        })
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Identifies the boot, so that a journal of an earlier one is recognised.
pub(crate) fn boot_id(roots: &Roots) -> String {
    read_optional(&roots.proc.join("sys/kernel/random/boot_id")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
