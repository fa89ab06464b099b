//! The file that says when the faults of a server happened.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use taillab_console::exit::Failure;
use taillab_host::{Invoker, Roots};
use taillab_load::ground_truth::GroundTruth;

/// Created before the server starts, so that an unwritable place is known at once.
pub struct FaultLog {
    path: PathBuf,
    file: File,
}

impl FaultLog {
    /// Makes or empties the file, with the rights of the user who asked.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: PathBuf) -> Result<Self, Failure> {
        let open = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .open(&path)
        };
        let opened = Invoker::find(&Roots::default()).act(open);
        match opened.and_then(|opened| opened) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(unwritable(&path, &error)),
        }
    }

    /// Writes the faults into it.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(mut self, truth: &GroundTruth) -> Result<(), Failure> {
        serde_json::to_vec(truth)
            .map_err(std::io::Error::other)
            .and_then(|text| self.file.write_all(&text))
            .map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "cannot write {}: {error}; choose another file with --fault-log",
        path.display()
    ))
}
