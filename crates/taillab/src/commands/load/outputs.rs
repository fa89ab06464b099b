//! Files of a load and what is printed.

use std::path::PathBuf;

use taillab_analysis::verdict::Supported;
use taillab_console::args::{LimitArgs, Output};
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::rundir::RunDir;
use taillab_experiment::pipeline::{limits, show_load};
use taillab_load::{Entry, FleetRun};
use taillab_report::load::{LoadDocument, LoadRow, LoadSeries, chart, write_hlog, write_parquet};
use taillab_report::{ReportError, html, json};

use super::judge::JudgedLoad;
use super::plan::{Level, LoadPlan, Work};

/// The outputs that were asked for.
pub struct Outputs {
    directory: Option<RunDir>,
    common: Output,
    limits: LimitArgs,
}

impl Outputs {
    /// Makes the directory first, so that nothing is measured that cannot be saved.
    pub fn new(
        directory: Option<PathBuf>,
        common: Output,
        limits: LimitArgs,
        plan: &LoadPlan,
    ) -> Result<Self, Failure> {
        Ok(Self {
            directory: RunDir::create_if_asked(directory, expected_bytes(plan))?,
            common,
            limits,
        })
    }

    /// Writes every file, `result.json` last, and prints the result.
    ///
    /// # Errors
    /// The first file that could not be written, once the result is printed.
    pub fn show(mut self, judged: &JudgedLoad) -> Result<(), Failure> {
        let junit = limits::write(&self.limits, &judged.report);
        let document = judged.document();
        if let Some(dir) = &mut self.directory {
            let written = write_files(dir, &document, judged.run.as_ref(), judged.supported);
            dir.note(written);
        }
        let saved = self.directory.as_ref().and_then(RunDir::whole);
        show_load(&document, saved, self.common)?;
        (self.directory.map_or(Ok(()), RunDir::outcome)).and(junit)
    }
}

/// Every file, also those after one that could not be written.
fn write_files(
    dir: &mut RunDir,
    document: &LoadDocument<'_>,
    run: Option<&FleetRun>,
    supported: Option<Supported>,
) -> Result<(), Failure> {
    let mut written = Ok(());
    if let Some(chart) = chart(document) {
        let figure = match run {
            Some(_) => "ccdf.svg",
            None => "sweep.svg",
        };
        written = dir.put(figure, &chart.svg());
        let page = html::render_load(document);
        written = written.and(dir.put("report.html", &page));
    }
    if let Some(run) = run {
        written = written.and(write_requests(
            dir,
            run,
            supported,
            document.report.started_unix_s,
        ));
    }
    let bytes = json::of(document.report).or_exit(Exit::Failed);
    written.and(bytes.and_then(|bytes| dir.put("result.json", &bytes)))
}

/// The files with every request, or with the distribution of all, and that of the percentiles that are `supported`.
fn write_requests(
    dir: &mut RunDir,
    run: &FleetRun,
    supported: Option<Supported>,
    started_unix_s: u64,
) -> Result<(), Failure> {
    dir.write("requests.parquet", |out| {
        write_parquet(rows(run), out).map(drop)
    })?;
    let Some(first) = run.iter_measured().next() else {
        return Ok(());
    };
    let mut totals = None;
    dir.write("latency.hlog", |out| {
        totals = Some(write_hlog(
            rows(run),
            first.times.intended,
            started_unix_s,
            out,
        )?);
        Ok::<_, ReportError>(())
    })?;
    let Some(supported) = supported.filter(Supported::anything) else {
        return Ok(());
    };
    let is_known = |q| supported.percentile(q);
    match totals.and_then(|totals| totals.percentiles(LoadSeries::ResponseTime, is_known)) {
        Some(text) => dir.put("latency.hgrm", &text),
        None => Ok(()),
    }
}

/// Disk space that the files may need.
fn expected_bytes(plan: &LoadPlan) -> u64 {
    /// Bytes of one request in all files.
    const EACH: f64 = 80.0;
    const FIXED: f64 = 4e6;
    let requests = match &plan.work {
        Work::Open(open) if open.levels.len() == 1 => {
            let rate = match open.levels[0] {
                Level::Rate(rate) => rate,
                _ => open.shape.own_rate_per_s().unwrap_or(100_000.0),
            };
            let length = open.duration.or_else(|| open.shape.own_length(Some(rate)));
            rate * (length.unwrap_or_default() + open.warmup).as_secs_f64()
        }
        _ => 0.0,
    };
    (requests * EACH + FIXED) as u64
}

/// All requests in order of the intended time. They are made one by one, as there may be millions.
fn rows(run: &FleetRun) -> impl Iterator<Item = LoadRow> {
    let entries = run.iter_with_threads();
    entries.map(|(thread, entry)| row(&entry, thread))
}

fn row(entry: &Entry, thread: usize) -> LoadRow {
    LoadRow {
        times: entry.times,
        wire: entry.wire,
        waited: entry.waited,
        connecting: entry.connecting_took(),
        operation: entry.operation,
        outcome: entry.outcome,
        connection: entry
            .connection
            .map_or(0, |c| u32::try_from(c).unwrap_or(u32::MAX)),
        thread: u32::try_from(thread).unwrap_or(u32::MAX),
        port: entry.port,
        id: entry.key.map(|key| key.id),
        warm_up: entry.warm_up,
    }
}
