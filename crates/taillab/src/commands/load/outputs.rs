//! Files of a load and what is printed.

use std::iter::Peekable;
use std::path::PathBuf;

use taillab_analysis::load::LoadCurves;
use taillab_load::{Entry, FleetRun, Outcome};
use taillab_model::Nanos;
use taillab_model::load_result::{ClosedLoopResult, LoadResult, LoadSweepResult};
use taillab_report::load::{
    LoadCurve, LoadReport, LoadRow, LoadSeries, RequestOutcome, chart, json, json_pretty,
    sweep_chart, write_hlog, write_parquet,
};
use taillab_report::{html, terminal};

use super::plan::{Plan, Work};
use crate::exit::{Exit, Failure, OrExit};
use crate::pipeline::{RunDir, print, style};

/// What a person and a program want to see.
#[derive(Debug)]
pub struct Wanted {
    directory: Option<RunDir>,
    json: bool,
}

/// One load with everything that its outputs need.
pub struct Single<'a> {
    pub result: &'a LoadResult,
    pub curves: Vec<LoadCurve>,
    pub needs: Vec<(f64, u64)>,
    pub run: &'a FleetRun,
}

impl Wanted {
    /// Makes the directory first: what cannot be saved is not measured.
    pub fn new(directory: Option<PathBuf>, json: bool, plan: &Plan) -> Result<Self, Failure> {
        let directory = directory
            .map(|path| RunDir::create(Some(path), "load", expected_bytes(plan)))
            .transpose()?;
        Ok(Self { directory, json })
    }

    /// One load.
    pub fn single(&mut self, single: &Single<'_>) -> Result<(), Failure> {
        let report = LoadReport {
            result: single.result,
            curves: &single.curves,
            needs: &single.needs,
        };
        if let Some(dir) = &mut self.directory {
            let run = single.run;
            let svg = chart(&report).svg();
            dir.write("ccdf.svg", |out| std::io::Write::write_all(out, &svg))?;
            let page = html::render_load(&report);
            dir.write("report.html", |out| std::io::Write::write_all(out, &page))?;
            dir.write("requests.parquet", |out| {
                write_parquet(rows(run), out).map(drop)
            })?;
            let begin = run.iter_measured().next().map(|entry| entry.times.intended);
            if let Some(begin) = begin {
                let mut totals = None;
                dir.write("latency.hlog", |out| {
                    let started = single.result.started_unix_s;
                    totals = Some(write_hlog(rows(run), begin, started, out)?);
                    Ok::<_, taillab_report::ReportError>(())
                })?;
                let percentiles = totals.and_then(|t| t.percentiles(LoadSeries::ResponseTime));
                if let Some(text) = percentiles {
                    dir.write("latency.hgrm", |out| std::io::Write::write_all(out, &text))?;
                }
            }
        }
        self.show(single.result, |saved| {
            terminal::render_load(&report, saved, style())
        })
    }

    /// Several loads.
    pub fn sweep(&mut self, result: &LoadSweepResult) -> Result<(), Failure> {
        if let Some(dir) = &mut self.directory {
            let svg = sweep_chart(result).svg();
            dir.write("sweep.svg", |out| std::io::Write::write_all(out, &svg))?;
            let page = html::render_load_sweep(result);
            dir.write("report.html", |out| std::io::Write::write_all(out, &page))?;
        }
        self.show(result, |saved| {
            terminal::render_load_sweep(result, saved, style())
        })
    }

    /// A closed loop.
    pub fn closed(&mut self, result: &ClosedLoopResult) -> Result<(), Failure> {
        self.show(result, |saved| {
            terminal::render_closed_loop(result, saved, style())
        })
    }

    /// Writes `result.json` last, then prints.
    fn show<R: serde::Serialize>(
        &mut self,
        result: &R,
        text: impl FnOnce(Option<&str>) -> String,
    ) -> Result<(), Failure> {
        let mut place = None;
        if let Some(dir) = &mut self.directory {
            let bytes = json_pretty(result).or_exit(Exit::Failed)?;
            dir.write("result.json", |out| std::io::Write::write_all(out, &bytes))?;
            place = Some(dir.path().display().to_string());
        }
        if self.json {
            return print(&json(result).or_exit(Exit::Failed)?);
        }
        print(text(place.as_deref()).as_bytes())
    }
}

/// The curves of a figure.
pub fn curves(load: &LoadCurves, floor: Option<LoadCurves>) -> Vec<LoadCurve> {
    let curve = |series, points: &Vec<(Nanos, f64)>| LoadCurve {
        series,
        points: points.clone(),
    };
    let mut curves = vec![
        curve(LoadSeries::ResponseTime, &load.response_time),
        curve(LoadSeries::ServiceTime, &load.service_time),
        curve(LoadSeries::Lateness, &load.lateness),
    ];
    if let Some(floor) = floor {
        curves.push(curve(LoadSeries::Floor, &floor.response_time));
    }
    curves
}

/// Disk space that the files may need.
fn expected_bytes(plan: &Plan) -> u64 {
    /// Of one request in all files.
    const EACH: f64 = 80.0;
    const FIXED: f64 = 4e6;
    let requests = match &plan.work {
        Work::Open(open) if open.levels.len() == 1 => {
            let rate = match open.levels[0] {
                super::plan::Level::Rate(rate) => rate,
                _ => open.shape.own_rate_per_s().unwrap_or(100_000.0),
            };
            let length = open.duration.or_else(|| open.shape.own_length(Some(rate)));
            rate * (length.unwrap_or_default() + open.warmup).as_secs_f64()
        }
        _ => 0.0,
    };
    (requests * EACH + FIXED) as u64
}

/// All requests, in order of the intended time, made one by one: there may be millions.
fn rows(run: &FleetRun) -> impl Iterator<Item = LoadRow> {
    let mut parts: Vec<_> = run
        .runs
        .iter()
        .enumerate()
        .map(|(thread, part)| {
            part.record
                .iter()
                .map(move |entry| row(&entry, thread))
                .peekable()
        })
        .collect();
    std::iter::from_fn(move || {
        let next = |(at, part): (usize, &mut Peekable<_>)| {
            let row: &LoadRow = part.peek()?;
            Some((row.times.intended, at))
        };
        let (_, first) = parts.iter_mut().enumerate().filter_map(next).min()?;
        parts[first].next()
    })
}

fn row(entry: &Entry, thread: usize) -> LoadRow {
    LoadRow {
        times: entry.times,
        wire: entry.wire,
        operation: entry.operation,
        outcome: outcome(entry.outcome),
        connection: entry
            .connection
            .map_or(0, |c| u32::try_from(c).unwrap_or(u32::MAX)),
        thread: u32::try_from(thread).unwrap_or(u32::MAX),
        warm_up: entry.warm_up,
    }
}

fn outcome(outcome: Outcome) -> RequestOutcome {
    match outcome {
        Outcome::Done => RequestOutcome::Done,
        Outcome::Hit => RequestOutcome::Hit,
        Outcome::Miss => RequestOutcome::Miss,
        Outcome::Stored => RequestOutcome::Stored,
        Outcome::TimedOut => RequestOutcome::TimedOut,
        Outcome::SendFailed => RequestOutcome::SendFailed,
        Outcome::ServerError => RequestOutcome::ServerError,
        Outcome::ConnectionLost => RequestOutcome::ConnectionLost,
        Outcome::Malformed => RequestOutcome::Malformed,
    }
}
