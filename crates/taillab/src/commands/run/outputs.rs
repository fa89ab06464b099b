//! Files of the run directory and what is printed.

use std::io::{self, IsTerminal, Write};

use taillab_host::environment::Environment;
use taillab_report::terminal::{self, Style};
use taillab_report::{Curve, Document, hlog, html, json, requests};

use super::result::RunResult;
use super::rundir::RunDir;
use crate::cli::Output;
use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::Experiment;

/// The page that a person opens.
const REPORT: &str = "report.html";
/// Upper bound of what one request takes on disk, in all files.
const BYTES_PER_REQUEST: f64 = 120.0;
/// What the other files take.
const BYTES_FIXED: f64 = 8e6;
/// A rate that a single-core server does not exceed; used before calibration.
const RATE_BOUND_PER_S: f64 = 150_000.0;

/// Cores that serve at that rate at most; one machine has room for no more and its client.
const MOST_CORES: u32 = 8;

/// Disk space that the run may need.
pub fn expected_bytes(experiment: &Experiment) -> u64 {
    let workload = &experiment.workload;
    let seconds = (workload.warmup + workload.duration).as_secs_f64();
    let rate = workload
        .rate_per_s
        .unwrap_or_else(|| RATE_BOUND_PER_S * f64::from(experiment.workers().min(MOST_CORES)));
    (seconds * rate * BYTES_PER_REQUEST + BYTES_FIXED) as u64
}

/// Writes every file.
pub fn save(
    dir: &mut RunDir,
    result: &RunResult,
    experiment: &Experiment,
    environment: &Environment,
) -> Result<(), Failure> {
    let toml = experiment.to_toml()?;
    let facts = serde_json::to_value(environment).or_exit(Exit::Failed)?;
    let report = report(result, &facts, &toml);
    dir.write("experiment.toml", |out| out.write_all(toml.as_bytes()))?;
    dir.write("environment.json", |out| {
        serde_json::to_writer_pretty(&mut *out, &facts)?;
        out.write_all(b"\n")
    })?;
    let summary = json::pretty(&result.summary).or_exit(Exit::Failed)?;
    dir.write("summary.json", |out| out.write_all(&summary))?;
    dir.write("requests.parquet", |out| {
        requests::write_parquet(result.rows(), out).map(drop)
    })?;
    dir.write("latency.hlog", |out| {
        let started = result.started();
        hlog::write(result.rows(), started, result.summary.started_unix_s, out).map(drop)
    })?;
    let page = html::render(&report);
    dir.write(REPORT, |out| out.write_all(&page))
}

/// Prints the result on stdout.
pub fn show(
    dir: &RunDir,
    result: &RunResult,
    experiment: &Experiment,
    environment: &Environment,
    common: Output,
) -> Result<(), Failure> {
    let bytes = if common.json {
        json::pretty(&result.summary).or_exit(Exit::Failed)?
    } else {
        let toml = experiment.to_toml()?;
        let facts = serde_json::to_value(environment).or_exit(Exit::Failed)?;
        let place = dir.path().join(REPORT).display().to_string();
        let report = report(result, &facts, &toml);
        let mut text = terminal::render(&report, Some(&place), style());
        if common.verbose > 0 {
            text.push_str(&terminal::details(&report, style()));
        }
        text.into_bytes()
    };
    match io::stdout().write_all(&bytes) {
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Failed,
            format!(
                "cannot print the result: {error}; it is saved in {}",
                dir.path().display()
            ),
        )),
        _ => Ok(()),
    }
}

fn report<'a>(
    result: &'a RunResult,
    environment: &'a serde_json::Value,
    experiment_toml: &'a str,
) -> Document<'a> {
    let curves: &[Curve] = &result.curves;
    Document {
        report: &result.summary,
        environment: Some(environment),
        experiment_toml: Some(experiment_toml),
        curves,
    }
}

/// Colour on a terminal unless NO_COLOR says otherwise; the terminal's width.
fn style() -> Style {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return Style::PLAIN;
    }
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (_, columns) = console::Term::stdout().size();
    Style {
        colour,
        width: usize::from(columns),
    }
}
