//! The directory of a result: made before anything is measured, filled at the end.
//!
//! All files in it are made with the rights of the user who asked, also under sudo, and through the
//! directory's descriptor. So neither a swapped directory nor a planted link can redirect what we write.

use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};
use taillab_host::{Invoker, Roots, clock, disk};
use taillab_report::utc;

use crate::exit::Failure;
use crate::fail::host;

/// The name of the recording in a result's directory.
pub const RECORDING: &str = "capture.tlc";

/// The files of the commands' results: a directory with one of these holds a result.
const RESULTS: [&str; 9] = [
    "summary.json",
    "result.json",
    "report.html",
    "noise.json",
    "budget.json",
    "sim.json",
    "causes.json",
    "tales.json",
    "deconstructing.json",
];

/// Only the owner may enter the directory: a recording may hold parts of what the server was sent.
const FOLDER_MODE: u32 = 0o700;
/// Only the owner may read a recording, even in a directory that others can enter.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// A result, which its owner may want to share.
const SHAREABLE: Mode = PRIVATE.union(Mode::RGRP).union(Mode::ROTH);

/// A directory that takes one run's files.
#[derive(Debug)]
pub struct RunDir {
    folder: Arc<Folder>,
    /// We made the folder and have not written to it yet: remove it if the run fails.
    disposable: bool,
}

/// The open directory, and the user with whose rights we work in it.
#[derive(Debug)]
struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    invoker: Invoker,
    /// Temporary files begun so far.
    begun: AtomicU32,
}

impl RunDir {
    /// [`RunDir::create`] of `path`, or of `taillab-<server>-<UTC time>` in the working directory.
    pub fn create_or_name(
        path: Option<PathBuf>,
        server: &str,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let path = path.unwrap_or_else(|| PathBuf::from(format!("taillab-{server}-{}", stamp())));
        Self::create(path, bytes)
    }

    /// [`RunDir::create`] of the directory that was asked for, if one was.
    pub fn create_if_asked(path: Option<PathBuf>, bytes: u64) -> Result<Option<Self>, Failure> {
        path.map(|path| Self::create(path, bytes)).transpose()
    }

    /// Makes `path` unless it exists, and ensures that the disk has room for `bytes` and that no result
    /// would be overwritten.
    pub fn create(path: PathBuf, bytes: u64) -> Result<Self, Failure> {
        let existed = path.is_dir();
        let dir = Self {
            folder: Arc::new(Folder::open(path, Invoker::find(&Roots::default()))?),
            disposable: !existed,
        };
        if let Some(result) = RESULTS.into_iter().find(|name| dir.folder.has_file(name)) {
            let message = format!(
                "{} holds a result already ({result}): name another directory with -o, or remove \
                 it",
                dir.path().display()
            );
            return Err(Failure::usage(message));
        }
        disk::ensure_free(dir.path(), bytes).map_err(host)?;
        Ok(dir)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.folder.path
    }

    /// Writes a file from memory, whole or not at all.
    pub fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.write(name, |out| out.write_all(bytes))
    }

    /// Writes a file piece by piece, whole or not at all.
    pub fn write<E: std::fmt::Display>(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let (unfinished, mut out) = self.begin(name)?;
        content(&mut out).map_err(Failure::failed)?;
        self.finish(unfinished, out)
    }

    /// Begins a file. It appears, whole, with [`RunDir::finish`], or not at all.
    pub fn begin(&self, name: &str) -> Result<(Unfinished, BufWriter<File>), Failure> {
        let number = self.folder.begun.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}-{number}.tmp", std::process::id());
        let mode = match name {
            RECORDING => PRIVATE,
            _ => SHAREABLE,
        };
        let file = self.folder.make(&temporary, mode);
        let file = file.map_err(|error| self.folder.unwritable(name, &error))?;
        let unfinished = Unfinished {
            name: name.to_owned(),
            temporary,
            folder: Arc::clone(&self.folder),
        };
        Ok((unfinished, BufWriter::with_capacity(1 << 18, file)))
    }

    /// Puts a file in its place once its content is on the disk, so that a crash leaves it whole or absent.
    pub fn finish(&mut self, unfinished: Unfinished, out: BufWriter<File>) -> Result<(), Failure> {
        let folder = &self.folder;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all())
            .and_then(|()| {
                let (from, to) = (&unfinished.temporary, &unfinished.name);
                let moved = || renameat(&folder.descriptor, from, &folder.descriptor, to);
                Ok(folder.invoker.act(moved)??)
            })
            .map_err(|error| folder.unwritable(&unfinished.name, &error))?;
        self.disposable = false;
        Ok(())
    }

    /// A file that is written over time and kept however the command ends. An existing file is not
    /// touched.
    pub fn stream(&mut self, name: &str) -> Result<File, Failure> {
        let file = self
            .folder
            .make(name, PRIVATE)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::usage(format!(
                    "{} exists and is not overwritten: choose another directory \
                         with --output, or remove it",
                    self.path().join(name).display()
                )),
                _ => self.folder.unwritable(name, &error),
            })?;
        self.disposable = false;
        Ok(file)
    }
}

impl Folder {
    /// Whether a regular file of this name exists, not a link.
    fn has_file(&self, name: &str) -> bool {
        statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile)
    }

    fn open(path: PathBuf, invoker: Invoker) -> Result<Self, Failure> {
        let open = || -> io::Result<OwnedFd> {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(&path)?;
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            Ok(rustix::fs::open(&path, flags, Mode::empty())?)
        };
        let opened = invoker.act(open).and_then(|opened| opened);
        let descriptor = opened.map_err(|error| unwritable(&path, &error, &invoker))?;
        let owner = fstat(&descriptor)
            .map_err(|error| unwritable(&path, &error.into(), &invoker))?
            .st_uid;
        // the owner of a directory can replace its files while root works there
        if rustix::process::geteuid().is_root() && ![0, invoker.uid()].contains(&owner) {
            return Err(Failure::usage(format!(
                "{} belongs to another user (number {owner}), who could replace its files: \
                     choose a directory of your own with --output",
                path.display()
            )));
        }
        Ok(Self {
            descriptor,
            path,
            invoker,
            begun: AtomicU32::new(0),
        })
    }

    /// Makes a new file.
    fn make(&self, name: &str, mode: Mode) -> io::Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let make = || openat(&self.descriptor, name, flags, mode);
        Ok(self.invoker.act(make)??.into())
    }

    fn unwritable(&self, name: &str, error: &io::Error) -> Failure {
        unwritable(&self.path.join(name), error, &self.invoker)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Unfinished {
    name: String,
    temporary: String,
    folder: Arc<Folder>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let folder = &self.folder;
        // our unfinished file, or nothing if it has been renamed to its place; a failure changes nothing
        let _ = folder
            .invoker
            .act(|| unlinkat(&folder.descriptor, &self.temporary, AtFlags::empty()));
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.disposable {
            // this removes only an empty folder; anything in it is not ours
            let _ = self
                .folder
                .invoker
                .act(|| std::fs::remove_dir(&self.folder.path));
        }
    }
}

fn unwritable(path: &Path, error: &io::Error, invoker: &Invoker) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull => {
            "free some space or choose another place with --output".into()
        }
        io::ErrorKind::PermissionDenied => format!(
            "results are written with the rights of user {}; use --output to choose a place that \
             this user can write to",
            invoker.uid()
        ),
        _ => "choose a writable place with --output".into(),
    };
    Failure::failed(format!(
        "cannot write {}: {error}; {remedy}",
        path.display()
    ))
}

/// The time as `20261120-214512`, UTC.
fn stamp() -> String {
    compact(&utc(clock::unix_s()))
}

/// `2026-11-20 21:45:12 UTC` as a part of a file's name: `20261120-214512`.
fn compact(utc: &str) -> String {
    utc.trim_end_matches(" UTC")
        .replace(['-', ':'], "")
        .replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_time_becomes_a_part_of_a_name() {
        assert_eq!(compact(&utc(951_782_400)), "20000229-000000");
    }

    #[test]
    fn files_are_whole_and_not_writable_by_others() {
        let place = tempfile::tempdir().unwrap();
        let mut dir = RunDir::create(place.path().join("run"), 0).unwrap();
        dir.put("a.txt", b"whole").unwrap();
        let failed = dir.write("b.txt", |_| Err("no"));
        assert!(failed.is_err());
        let names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["a.txt"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(dir.path()) & 0o077, 0);
        assert_eq!(mode(&dir.path().join("a.txt")) & 0o022, 0);
        dir.stream(RECORDING).unwrap();
        assert_eq!(mode(&dir.path().join(RECORDING)) & 0o077, 0);
    }

    #[test]
    fn a_link_that_waits_under_a_name_is_replaced_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let path = place.path().join("run");
        std::fs::create_dir(&path).unwrap();
        let mut dir = RunDir::create(path.clone(), 0).unwrap();
        let names = ["report.html", ".report.html.tmp", RECORDING];
        let next = format!(".report.html.{}-0.tmp", std::process::id());
        for name in names.into_iter().chain([next.as_str()]) {
            std::os::unix::fs::symlink(&victim, path.join(name)).unwrap();
        }
        // the name of the temporary file was guessed: refused, and the next name is free
        assert!(dir.put("report.html", b"mine").is_err());
        dir.put("report.html", b"mine").unwrap();
        assert!(dir.stream(RECORDING).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        assert_eq!(std::fs::read(path.join("report.html")).unwrap(), b"mine");
        assert!(!path.join("report.html").is_symlink());
    }

    #[test]
    fn a_result_is_never_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let mut dir = RunDir::create(path.clone(), 0).unwrap();
        dir.put("summary.json", b"first").unwrap();
        drop(dir);
        let refused = RunDir::create(path.clone(), 0).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("summary.json"), "{refused}");
        assert_eq!(std::fs::read(path.join("summary.json")).unwrap(), b"first");
    }

    #[test]
    fn a_run_that_wrote_nothing_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        drop(RunDir::create(path.clone(), 0).unwrap());
        assert!(!path.exists());
    }
}
