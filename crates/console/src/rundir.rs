//! The directory of a result: made before anything is measured, filled at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use taillab_host::user_files::{Readers, UnfinishedFile, UserFileError, UserFolder};
use taillab_host::{clock, disk};
use taillab_report::utc;

use crate::exit::{Exit, Failure};
use crate::fail::host;
use crate::messages;

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

/// A directory that takes one run's files.
#[derive(Debug)]
pub struct RunDir {
    folder: Arc<UserFolder>,
    /// We made the folder and have not written to it yet: remove it if the run fails.
    disposable: bool,
    /// The first file that could not be written.
    failure: Option<Failure>,
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
            folder: Arc::new(UserFolder::make(path, Readers::Owner).map_err(host)?),
            disposable: !existed,
            failure: None,
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
        self.folder.path()
    }

    /// Keeps the first failure to write a file. What was measured is shown all the same, so it is no reason to stop:
    /// the command ends with [`Self::outcome`].
    pub fn note(&mut self, written: Result<(), Failure>) {
        if let Err(failure) = written {
            self.failure.get_or_insert(failure);
        }
    }

    /// Its path, if no file is missing from it.
    pub fn whole(&self) -> Option<&Path> {
        self.failure.is_none().then_some(self.path())
    }

    /// The failure to write a file, if there was one: a command returns it once its result is shown.
    ///
    /// # Errors
    /// That failure.
    pub fn outcome(mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Why files that grow with the measurement must not grow further: they leave room for the others.
    pub fn space(&self) -> Space {
        Space(Arc::clone(&self.folder))
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
        content(&mut out).map_err(|error| {
            let path = self.path().join(name);
            Failure::failed(format!(
                "cannot write {}: {error}; free some space or choose another place with --output",
                path.display()
            ))
        })?;
        self.finish(unfinished, out)
    }

    /// Writes a file that may be large: it leaves room for the others.
    pub fn write_large<E: std::fmt::Display>(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut Leaving<'_>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let space = self.space();
        self.write(name, |out| {
            content(&mut Leaving {
                out,
                space,
                unchecked: 0,
            })
        })
    }

    /// Begins a file. It appears, whole, with [`RunDir::finish`], or not at all.
    pub fn begin(&self, name: &str) -> Result<(UnfinishedFile, BufWriter<File>), Failure> {
        let readers = match name {
            RECORDING => Readers::Owner,
            _ => Readers::Everybody,
        };
        self.folder.begin(name, readers).map_err(host)
    }

    /// Puts a file in its place.
    pub fn finish(&mut self, file: UnfinishedFile, out: BufWriter<File>) -> Result<(), Failure> {
        file.finish(out).map_err(host)?;
        self.disposable = false;
        Ok(())
    }

    /// A file that is written over time and kept however the command ends. An existing file is not
    /// touched.
    pub fn stream(&mut self, name: &str) -> Result<File, Failure> {
        let made = self.folder.make_file(name, Readers::Owner);
        let file = made.map_err(|error| match error {
            UserFileError::Unwritable { source, .. }
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                Failure::usage(format!(
                    "{} exists and is not overwritten: choose another directory \
                     with --output, or remove it",
                    self.path().join(name).display()
                ))
            }
            error => host(error),
        })?;
        self.disposable = false;
        Ok(file)
    }
}

/// The space for the files of a result.
#[derive(Debug)]
pub struct Space(Arc<UserFolder>);

impl Space {
    /// What the files take that do not grow with the measurement, and a report.
    const RESERVED: u64 = 8 << 20;

    /// The free bytes, where they do not suffice for more than the other files.
    pub fn ensure_left(&self) -> io::Result<()> {
        // a file system that does not say goes on until it refuses
        match self.0.free_bytes() {
            Ok(free) if free < Self::RESERVED => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "only {} are free, which the report needs",
                    disk::Bytes(free)
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// A file that grows only while there is room for the others.
pub struct Leaving<'a> {
    out: &'a mut BufWriter<File>,
    space: Space,
    /// Bytes since the last look at the disk.
    unchecked: usize,
}

impl Write for Leaving<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LOOK_EVERY: usize = 1 << 20;
        if self.unchecked == 0 {
            self.space.ensure_left()?;
        }
        let written = self.out.write(bytes)?;
        self.unchecked += written;
        if self.unchecked > LOOK_EVERY {
            self.unchecked = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.disposable {
            self.folder.remove_if_empty();
        }
    }
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

/// The end of a command whose result is shown: how it `ended`, and then whether its files are written. Where both
/// failed, the files have a line of their own.
///
/// # Errors
/// Why it ended, or the file that could not be written.
pub fn with_files(
    ended: Result<Exit, Failure>,
    written: Result<(), Failure>,
) -> Result<Exit, Failure> {
    match (ended, written) {
        (Err(failure), Err(of_file)) => {
            messages::line(&of_file);
            Err(failure)
        }
        (ended, written) => written.and(ended),
    }
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
    fn a_file_that_cannot_be_written_is_kept_for_the_end_and_the_others_are_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        std::fs::create_dir_all(path.join("first.json/in-the-way")).unwrap();
        let mut dir = RunDir::create(path.clone(), 0).unwrap();
        assert!(dir.whole().is_some());
        for name in ["first.json", "second.json"] {
            let written = dir.put(name, b"{}");
            dir.note(written);
        }
        dir.note(Err(Failure::failed("a later one")));
        assert!(dir.whole().is_none());
        let failure = dir.outcome().unwrap_err();
        assert!(failure.message.contains("first.json"), "{failure}");
        assert_eq!(failure.exit, Exit::Failed);
        assert!(path.join("second.json").is_file());
    }

    #[test]
    fn a_run_that_wrote_nothing_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        drop(RunDir::create(path.clone(), 0).unwrap());
        assert!(!path.exists());
    }
}
