//! `taillab compare`: two saved results side by side.

mod starts;

use std::fs;
use std::path::Path;

use serde::Deserialize;
use taillab_console::exit::{Exit, Failure};
use taillab_console::print::{print_result, style};
use taillab_experiment::pipeline::limits;
use taillab_model::Distribution;
use taillab_model::compare::{
    ComparedLatency, ComparedResult, Comparison, SCHEMA_VERSION, compared,
};
use taillab_model::summary::{LoadSummary, Verdict};
use taillab_model::threshold::{ErrorCount, Figures, Standing};
use taillab_report::terminal;

use crate::cli::CompareArgs;

/// The file of a result: of `run`, `trace` and `explain`, and of `load`.
const RESULTS: [&str; 2] = ["summary.json", "result.json"];

/// The part of a result that we read. Other keys are ignored, so that results of other versions can be
/// compared too.
#[derive(Debug, Deserialize)]
struct Saved {
    command: String,
    target: String,
    started_unix_s: u64,
    partial: bool,
    arrival_rate_per_s: f64,
    verdict: Verdict,
    #[serde(default)]
    load: Option<LoadSummary>,
    #[serde(default)]
    measured: Option<ServerSide>,
}

/// The server's side.
#[derive(Debug, Deserialize)]
struct ServerSide {
    sojourn: Distribution,
}

/// Reads both, compares and prints.
pub fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    let (before_file, before) = read(&args.before)?;
    let (after_file, after) = read(&args.after)?;
    let (latency, before_ns, after_ns) = common(&before, &after)?;
    let figures = Figures {
        latency: after_ns,
        latency_name: match latency {
            ComparedLatency::ResponseTime => "response time",
            ComparedLatency::Sojourn => "sojourn",
        },
        before: Some(before_ns),
        errors: errors(&after),
        standing: match before.verdict.valid {
            true => limits::standing(&after.verdict),
            false => Standing::Invalid,
        },
    };
    let starts = starts::again(args, [&before, &after], latency)?;
    let comparison = Comparison {
        schema_version: SCHEMA_VERSION,
        command: "compare".into(),
        latency,
        quantiles: compared(before_ns, after_ns),
        assertions: args
            .limits
            .iter()
            .map(|limit| limit.hold(&figures))
            .collect(),
        before: named(before_file, &before),
        after: named(after_file, &after),
        starts,
    };
    print_result(args.common, &comparison, || {
        terminal::render_comparison(&comparison, style())
    })?;
    Ok(match figures.standing {
        Standing::Invalid => Exit::Invalid,
        _ => limits::exit(&comparison.assertions),
    })
}

/// The sojourn of all requests if the server was recorded in both results, otherwise the response time of the
/// client.
fn common<'a>(
    before: &'a Saved,
    after: &'a Saved,
) -> Result<(ComparedLatency, &'a Distribution, &'a Distribution), Failure> {
    for latency in [ComparedLatency::Sojourn, ComparedLatency::ResponseTime] {
        let both = latency_of(before, latency).zip(latency_of(after, latency));
        if let Some((before, after)) = both {
            return Ok((latency, before, after));
        }
    }
    Err(Failure::failed(
        "the two have no latency in common: compare two results of run, two of trace, or two of load \
         at one rate",
    ))
}

/// This latency of a result.
fn latency_of(saved: &Saved, latency: ComparedLatency) -> Option<&Distribution> {
    match latency {
        ComparedLatency::Sojourn => saved.measured.as_ref().map(|server| &server.sojourn),
        ComparedLatency::ResponseTime => saved.load.as_ref().map(|load| &load.response_time),
    }
}

fn errors(of: &Saved) -> ErrorCount {
    match (&of.load, &of.measured) {
        (Some(load), _) => ErrorCount {
            failed: load.errors.failed_requests(),
            all: load.requests,
        },
        (None, Some(measured)) => {
            let sojourn = &measured.sojourn;
            ErrorCount {
                failed: sojourn.unanswered,
                all: sojourn.count + sojourn.unanswered,
            }
        }
        (None, None) => ErrorCount::default(),
    }
}

fn named(file: String, of: &Saved) -> ComparedResult {
    ComparedResult {
        file,
        command: of.command.clone(),
        target: of.target.clone(),
        started_unix_s: of.started_unix_s,
        rate_per_s: of.arrival_rate_per_s,
        partial: of.partial,
        verdict: of.verdict.clone(),
    }
}

/// The result in a file, or in the file of a directory.
fn read(path: &Path) -> Result<(String, Saved), Failure> {
    let file = match path.is_dir() {
        true => RESULTS
            .iter()
            .map(|name| path.join(name))
            .find(|file| file.is_file())
            .unwrap_or_else(|| path.join(RESULTS[0])),
        false => path.to_owned(),
    };
    let name = file.display().to_string();
    let wrong = |why: &dyn std::fmt::Display| {
        let text = format!(
            "cannot read {name}: {why}; name the directory, or the summary.json or result.json, that \
             run, trace, explain or load has saved"
        );
        Failure::failed(text)
    };
    let text = fs::read(&file).map_err(|error| wrong(&error))?;
    let saved = serde_json::from_slice(&text).map_err(|error| wrong(&error))?;
    Ok((name, saved))
}
