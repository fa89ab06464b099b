//! Files and what is printed.

use std::path::PathBuf;

use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::print::{print, style};
use taillab_console::rundir::RunDir;
use taillab_experiment::round_trips::{Row, RttPlan};
use taillab_host::clock;
use taillab_model::rtt::RttCurves;
use taillab_report::json;

use crate::figure::{around_slowest, ccdf, over_time};
use crate::hlog::write_hlog;
use crate::parquet::write_parquet;
use crate::result::{RttReport, RttResult, file_name};
use crate::{page, terminal};

/// The outputs that were asked for.
#[derive(Debug)]
pub struct Outputs {
    directory: Option<RunDir>,
    common: Output,
    started_unix_s: u64,
}

impl Outputs {
    /// Makes the directory first, so that nothing is measured that cannot be saved.
    pub fn new(
        directory: Option<PathBuf>,
        common: Output,
        plan: &RttPlan,
    ) -> Result<Self, Failure> {
        /// The most bytes that a round trip takes in all files.
        const EACH: u64 = 16;
        const FIXED: u64 = 4_000_000;
        let bytes = plan.round_trips() * EACH + FIXED;
        Ok(Self {
            directory: RunDir::create_if_asked(directory, bytes)?,
            common,
            started_unix_s: clock::unix_s(),
        })
    }

    /// The files of one row. The measurement goes on if one cannot be written.
    pub fn row(&mut self, row: &Row) {
        let started = self.started_unix_s;
        if let Some(dir) = &mut self.directory {
            let written = row_files(dir, row, started);
            dir.note(written);
        }
    }

    /// Writes `result.json` last, then prints. [`Self::outcome`] says whether all files are written.
    pub fn result(&mut self, result: &RttResult, curves: &[RttCurves]) -> Result<(), Failure> {
        let report = RttReport { result, curves };
        let json = json::of(report.result).or_exit(Exit::Failed)?;
        let mut place = None;
        if let Some(dir) = &mut self.directory {
            for (name, bytes) in [
                ("ccdf.svg", &ccdf(&report).svg()),
                ("report.html", &page::render(&report)),
                ("result.json", &json),
            ] {
                let written = dir.put(name, bytes);
                dir.note(written);
            }
            place = dir.whole().map(|folder| folder.display().to_string());
        }
        if self.common.json {
            return print(&json);
        }
        if self.common.quiet {
            return Ok(());
        }
        let all = self.common.verbose > 0;
        print(terminal::render(&report, place.as_deref(), all, style()).as_bytes())
    }

    /// Whether all files are written.
    ///
    /// # Errors
    /// The first that could not be written.
    pub fn outcome(self) -> Result<(), Failure> {
        self.directory.map_or(Ok(()), RunDir::outcome)
    }
}

fn row_files(dir: &mut RunDir, row: &Row, started_unix_s: u64) -> Result<(), Failure> {
    let Row {
        row, curves, runs, ..
    } = row;
    let name = file_name(row);
    let mut written = dir.write(&format!("{name}.parquet"), |out| {
        write_parquet(runs, out).map(drop)
    });
    written = written.and(dir.write(&format!("{name}.hlog"), |out| {
        write_hlog(runs.iter().flatten(), started_unix_s, out)
    }));
    for (figure, chart) in [
        ("over-time", over_time(row, curves)),
        ("around-slowest", around_slowest(row, curves)),
    ] {
        if !chart.is_empty() {
            written = written.and(dir.put(&format!("{name}-{figure}.svg"), &chart.svg()));
        }
    }
    written
}
