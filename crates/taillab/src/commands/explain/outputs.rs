//! Files of a result and what is printed of it.

use std::io::Write;
use std::path::Path;

use taillab_model::explanation::SlowRequest;
use taillab_report::terminal;
use taillab_report::{Document, html, json, perfetto};

use super::evaluate::Evaluated;
use crate::cli::Output;
use crate::commands::run::rundir::RunDir;
use crate::commands::sim::outputs::{print, style};
use crate::exit::{Exit, Failure, OrExit};

/// The page that a person opens.
const REPORT: &str = "report.html";

/// How a result is shown.
pub struct Shown<'a> {
    /// Where its files are.
    pub saved: Option<&'a Path>,
    pub common: Output,
    /// Also the slowest requests one by one.
    pub slowest: bool,
}

/// Writes every file but the recording and those with rows.
pub fn save(
    dir: &mut RunDir,
    evaluated: &Evaluated,
    environment: Option<&serde_json::Value>,
) -> Result<(), Failure> {
    let summary = json::pretty(evaluated.summary()).or_exit(Exit::Failed)?;
    dir.write("summary.json", |out| out.write_all(&summary))?;
    let slowest = slowest(evaluated);
    if !slowest.is_empty() {
        let trace = perfetto::trace(&evaluated.summary().target, slowest);
        dir.write("slowest.pftrace", |out| out.write_all(&trace))?;
    }
    let page = html::render(&report(evaluated, environment));
    dir.write(REPORT, |out| out.write_all(&page))
}

/// Prints the result on stdout.
pub fn show(
    evaluated: &Evaluated,
    environment: Option<&serde_json::Value>,
    shown: Shown<'_>,
) -> Result<(), Failure> {
    let bytes = if shown.common.json {
        json::pretty(evaluated.summary()).or_exit(Exit::Failed)?
    } else {
        let place = shown
            .saved
            .map(|dir| dir.join(REPORT).display().to_string());
        let report = report(evaluated, environment);
        let mut text = terminal::render(&report, place.as_deref(), style());
        if shown.common.verbose > 0 {
            text.push_str(&terminal::details(&report, style()));
        }
        if shown.slowest {
            text.push_str(&terminal::slowest(slowest(evaluated), style()));
        }
        text.into_bytes()
    };
    print(&bytes)
}

fn slowest(evaluated: &Evaluated) -> &[SlowRequest] {
    let explanation = evaluated.summary().server.explanation.as_ref();
    explanation.map_or(&[], |explanation| &explanation.slowest)
}

fn report<'a>(
    evaluated: &'a Evaluated,
    environment: Option<&'a serde_json::Value>,
) -> Document<'a> {
    Document {
        report: evaluated.summary(),
        environment,
        experiment_toml: None,
        curves: &evaluated.curves,
    }
}
