//! `taillab explain`: the analysis of a recording, once more.

pub mod evaluate;
pub mod outputs;
pub mod rows;
pub mod service_time;
pub mod windows;

use std::fs::File;
use std::path::{Path, PathBuf};

use self::evaluate::Beside;
use super::run::rundir::RunDir;
use crate::cli::ExplainArgs;
use crate::exit::{Exit, Failure};

/// What a directory of a result calls its recording.
pub const RECORDING: &str = "capture.tlc";

/// Reads, analyses, prints, and saves where that is asked for.
pub fn run(args: ExplainArgs) -> Result<Exit, Failure> {
    let path = recording(args.recording);
    let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
    let beside = Beside {
        command: "explain",
        path: Some(path),
        ..Beside::default()
    };
    let mut dir = match args.output {
        Some(output) => Some(RunDir::create(Some(output), "explain", 0)?),
        None => None,
    };
    let evaluated = evaluate::file(file, &args.analysis, beside, dir.as_mut())?;
    if let Some(dir) = &mut dir {
        outputs::save(dir, &evaluated, None)?;
    }
    let shown = outputs::Shown {
        saved: dir.as_ref().map(RunDir::path),
        common: args.common,
        slowest: args.analysis.slowest.is_some(),
    };
    outputs::show(&evaluated, None, shown)?;
    Ok(match evaluated.is_valid() {
        true => Exit::Ok,
        false => Exit::Invalid,
    })
}

fn recording(path: PathBuf) -> PathBuf {
    if path.is_dir() {
        path.join(RECORDING)
    } else {
        path
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "name a recording of `taillab trace`, or of `taillab run --save-capture`, or the \
             directory that holds it"
        }
        _ => "see that it can be read",
    };
    Failure::new(
        Exit::Failed,
        format!("cannot read {}: {error}; {remedy}", path.display()),
    )
}
