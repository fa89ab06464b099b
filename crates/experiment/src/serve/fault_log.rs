//! The file that says when the faults of a server happened.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::user_files;
use taillab_load::ground_truth::GroundTruth;

/// Created before the server starts, so that an unwritable place is known at once.
pub struct FaultLog {
    path: PathBuf,
    file: File,
}

impl FaultLog {
    /// Makes or empties the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn create(path: PathBuf) -> Result<Self, Failure> {
        match user_files::create_named(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => {
                let failure = host(error);
                let message = format!("{failure} (--fault-log)");
                Err(Failure::new(failure.exit, message))
            }
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
            .map_err(|error| {
                let path = self.path.display();
                Failure::failed(format!(
                    "cannot write {path}: {error}; choose another file with --fault-log"
                ))
            })
    }
}
