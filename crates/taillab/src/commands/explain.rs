//! `taillab explain`: the analysis of a recording, once more.

use std::fs::File;
use std::path::{Path, PathBuf};

use taillab_console::exit::{Exit, Failure};
use taillab_console::rights::{Remaining, give_up_root};
use taillab_console::rundir::{RECORDING, RunDir, with_files};
use taillab_experiment::pipeline::{
    self, Attachments, MeasurementFacts, Presentation, Source, Spool, limits, next_steps,
};
use taillab_host::Roots;

use crate::cli::ExplainArgs;

/// Reads, analyses, prints, and saves if asked to.
pub fn run(args: ExplainArgs) -> Result<Exit, Failure> {
    let path = recording(args.recording);
    let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
    let facts = MeasurementFacts {
        command: "explain",
        path: Some(path.clone()),
        limits: args.limits.limits.clone(),
        ..MeasurementFacts::default()
    };
    let mut dir = RunDir::create_if_asked(args.output, 0)?;
    give_up_root(&Roots::default(), Remaining::Files)?;
    let mut spool = Spool::in_file(file);
    let source = Source::of(&mut spool);
    let analysed = pipeline::analyse(source, &args.analysis, facts, dir.as_mut())?;
    let mut written = limits::write(&args.limits, &analysed.report);
    let attachments = Attachments::default();
    if let Some(dir) = &mut dir {
        pipeline::save(dir, &analysed, &attachments);
    }
    let shown = Presentation {
        saved: dir.as_ref().and_then(RunDir::whole),
        common: args.common,
        slowest: args.analysis.slowest.is_some(),
        next: next_steps::of_recording(&path, &analysed),
    };
    pipeline::show(&analysed, &attachments, &shown)?;
    written = dir.map_or(Ok(()), RunDir::outcome).and(written);
    with_files(Ok(analysed.exit()), written)
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
        _ => "check that it can be read",
    };
    Failure::failed(format!("cannot read {}: {error}; {remedy}", path.display()))
}
