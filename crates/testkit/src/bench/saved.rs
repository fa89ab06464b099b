//! A saved block: its recording, its truth, and its experiment.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::rundir::{RECORDING, RunDir};
use taillab_model::Recording;
use taillab_testkit::causes::BlockTruth;

use super::trial::Trial;

const TRUTH: &str = "truth.json";

/// What a block is explained from.
pub struct SavedBlock {
    pub recording: Recording,
    pub truth: BlockTruth,
}

/// Writes a block.
///
/// # Errors
/// Where the folder cannot be written.
pub fn write(folder: &Path, trial: &Trial) -> Result<(), Failure> {
    let mut dir = RunDir::create(folder.to_owned(), 0)?;
    dir.write_large(RECORDING, |out| trial.recorded.spool.write_to(out))?;
    let truth = serde_json::to_vec(&trial.truth).or_exit(Exit::Failed)?;
    dir.put(TRUTH, &truth)?;
    let toml = trial.experiment.to_toml()?;
    dir.put("experiment.toml", toml.as_bytes())
}

/// Reads a block; `None` where there is no such folder.
///
/// # Errors
/// Where it is damaged or incomplete.
pub fn read(folder: &Path) -> Result<Option<SavedBlock>, Failure> {
    if !folder.is_dir() {
        return Ok(None);
    }
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        let path = path.display();
        Failure::failed(format!(
            "{path}: {why}; name a directory that `taillab-testkit causes -o` has written"
        ))
    };
    let path = folder.join(RECORDING);
    let file = File::open(&path).map_err(|error| failed(&path, &error))?;
    let recording = Recording::read(file).map_err(|error| failed(&path, &error))?;
    let path = folder.join(TRUTH);
    let truth = fs::read(&path)
        .and_then(|text| serde_json::from_slice(&text).map_err(io::Error::from))
        .map_err(|error| failed(&path, &error))?;
    Ok(Some(SavedBlock { recording, truth }))
}
