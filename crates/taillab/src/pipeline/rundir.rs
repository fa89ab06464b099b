//! The directory of a result: made before anything is measured, filled at the end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use taillab_host::disk;
use taillab_report::utc;

use crate::exit::{Exit, Failure};
use crate::fail::host;

/// What a directory of a result calls its recording.
pub const RECORDING: &str = "capture.tlc";

/// Files and folders can be read by everybody and written by their owner only.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

/// A directory that takes one run's files.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    owner: Option<(u32, u32)>,
    /// Nothing was written yet, and we made the folder: it goes if the run fails.
    disposable: bool,
}

impl RunDir {
    /// Makes `path`, or `taillab-<server>-<UTC time>` in the working directory, and sees that
    /// the disk has room for `bytes`.
    pub fn create(path: Option<PathBuf>, server: &str, bytes: u64) -> Result<Self, Failure> {
        let path = path.unwrap_or_else(|| PathBuf::from(format!("taillab-{server}-{}", stamp())));
        let existed = path.is_dir();
        DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(&path)
            .map_err(|error| unwritable(&path, &error))?;
        let dir = Self {
            owner: invoking_user(),
            disposable: !existed,
            path,
        };
        dir.give_to_owner(&dir.path);
        disk::ensure_free(&dir.path, bytes).map_err(host)?;
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one file: whole, or not at all.
    pub fn write<E: std::fmt::Display>(
        &mut self,
        name: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    ) -> Result<(), Failure> {
        let (unfinished, mut out) = self.begin(name)?;
        content(&mut out).map_err(|error| Failure::new(Exit::Failed, error))?;
        self.finish(unfinished, out)
    }

    /// Begins a file that is there, whole, after [`RunDir::finish`], or not at all.
    pub fn begin(&self, name: &str) -> Result<(Unfinished, BufWriter<File>), Failure> {
        let unfinished = Unfinished {
            path: self.path.join(name),
            temporary: self.path.join(format!(".{name}.tmp")),
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(&unfinished.temporary)
            .map_err(|error| unwritable(&unfinished.path, &error))?;
        Ok((unfinished, BufWriter::with_capacity(1 << 18, file)))
    }

    /// Puts a file in its place.
    pub fn finish(
        &mut self,
        unfinished: Unfinished,
        mut out: BufWriter<File>,
    ) -> Result<(), Failure> {
        out.flush()
            .and_then(|()| std::fs::rename(&unfinished.temporary, &unfinished.path))
            .map_err(|error| unwritable(&unfinished.path, &error))?;
        self.disposable = false;
        self.give_to_owner(&unfinished.path);
        Ok(())
    }

    /// A file that is written over time, and kept however the command ends; one that is there
    /// already is not touched.
    pub fn stream(&mut self, name: &str) -> Result<File, Failure> {
        let path = self.path.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Failure::new(
                    Exit::Usage,
                    format!(
                        "{} is there already and is not overwritten: choose another directory \
                         with --output, or remove it",
                        path.display()
                    ),
                ),
                _ => unwritable(&path, &error),
            })?;
        self.disposable = false;
        self.give_to_owner(&path);
        Ok(file)
    }

    /// Who asked for root by sudo should not need it to read or remove the result.
    fn give_to_owner(&self, path: &Path) {
        if let Some((user, group)) = self.owner {
            // A file that stays root's can still be read by everybody.
            let _ = std::os::unix::fs::lchown(path, Some(user), Some(group));
        }
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
    temporary: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Ours and useless, or in its place already; a failure to remove it changes nothing.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.disposable {
            // Only an empty folder goes; anything in it is not ours to remove.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull => "free some space or choose another place with --output",
        _ => "choose a place that can be written with --output",
    };
    Failure::new(
        Exit::Failed,
        format!("cannot write {}: {error}; {remedy}", path.display()),
    )
}

/// User and group that called sudo, if sudo was called.
fn invoking_user() -> Option<(u32, u32)> {
    let id = |name| std::env::var(name).ok()?.parse().ok();
    Some((id("SUDO_UID")?, id("SUDO_GID")?))
}

/// The time as `20261120-214512`, UTC.
fn stamp() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    compact(&utc(seconds))
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

    #[test]
    fn a_time_becomes_a_part_of_a_name() {
        assert_eq!(compact(&utc(951_782_400)), "20000229-000000");
    }

    #[test]
    fn files_are_whole_and_not_writable_by_others() {
        let place = tempfile::tempdir().unwrap();
        let mut dir = RunDir::create(Some(place.path().join("run")), "memcached", 0).unwrap();
        dir.write("a.txt", |out| out.write_all(b"whole")).unwrap();
        let failed = dir.write("b.txt", |_| Err("no"));
        assert!(failed.is_err());
        let names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["a.txt"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o022;
        assert_eq!(mode(dir.path()), 0);
        assert_eq!(mode(&dir.path().join("a.txt")), 0);
    }

    #[test]
    fn a_run_that_wrote_nothing_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        drop(RunDir::create(Some(path.clone()), "memcached", 0).unwrap());
        assert!(!path.exists());
    }
}
