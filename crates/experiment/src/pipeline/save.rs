//! The files of a result, and what is printed of it.

use std::path::Path;

use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::print::{print_saved, style};
use taillab_console::rundir::RunDir;
use taillab_model::explanation::SlowRequest;
use taillab_report::terminal::NextStep;
use taillab_report::{Document, html, json, perfetto, terminal};

use super::analyse::Analysed;

/// The page that a person opens.
const REPORT: &str = "report.html";

/// The circumstances that the report shows, where they are known.
#[derive(Default)]
pub struct Attachments {
    /// Host, kernel and settings.
    pub environment: Option<serde_json::Value>,
    /// The experiment with every default filled in.
    pub experiment_toml: Option<String>,
}

impl Attachments {
    fn document<'a>(&'a self, analysed: &'a Analysed) -> Document<'a> {
        Document {
            report: &analysed.report,
            environment: self.environment.as_ref(),
            experiment_toml: self.experiment_toml.as_deref(),
            curves: &analysed.curves,
        }
    }
}

/// How a result is shown.
pub struct Presentation<'a> {
    /// Where its files are.
    pub saved: Option<&'a Path>,
    /// The options that all commands share.
    pub common: Output,
    /// Also show the slowest requests one by one.
    pub slowest: bool,
    /// What the reader can do next.
    pub next: Vec<NextStep>,
}

/// Writes every file but the recording and those with rows; `dir` notes if one cannot be written.
pub fn save(dir: &mut RunDir, analysed: &Analysed, attachments: &Attachments) {
    let mut put = |name: &str, bytes: Result<Vec<u8>, Failure>| {
        let written = bytes.and_then(|bytes| dir.put(name, &bytes));
        dir.note(written);
    };
    // what is needed most comes first, and the largest last
    let summary = json::of_report(&analysed.report).or_exit(Exit::Failed);
    put("summary.json", summary);
    put(REPORT, Ok(html::render(&attachments.document(analysed))));
    if let Some(toml) = &attachments.experiment_toml {
        put("experiment.toml", Ok(toml.clone().into_bytes()));
    }
    if let Some(environment) = &attachments.environment {
        let text = serde_json::to_vec_pretty(environment).or_exit(Exit::Failed);
        put(
            "environment.json",
            text.map(|text| [text.as_slice(), b"\n"].concat()),
        );
    }
    let slowest = slowest(analysed);
    if !slowest.is_empty() {
        let trace = perfetto::trace(&analysed.report.target, slowest);
        put("slowest.pftrace", Ok(trace));
    }
}

/// Prints the result on stdout.
pub fn show(
    analysed: &Analysed,
    attachments: &Attachments,
    shown: &Presentation<'_>,
) -> Result<(), Failure> {
    if shown.common.is_silent() {
        return Ok(());
    }
    let bytes = if shown.common.json {
        json::of_report(&analysed.report).or_exit(Exit::Failed)?
    } else {
        let place = shown
            .saved
            .map(|dir| dir.join(REPORT).display().to_string());
        let document = attachments.document(analysed);
        let mut text = String::new();
        if shown.slowest {
            text += &terminal::slowest(slowest(analysed), style());
            text.push('\n');
        }
        match shown.common.verbose {
            0 => text += &terminal::screen(&document, place.as_deref(), &shown.next, style()),
            _ => {
                text += &terminal::render(&document, place.as_deref(), style());
                text += &terminal::details(&document, style());
            }
        }
        text.into_bytes()
    };
    print_saved(&bytes, shown.saved)
}

fn slowest(analysed: &Analysed) -> &[SlowRequest] {
    let explanation = analysed.report.server.explanation.as_ref();
    explanation.map_or(&[], |explanation| &explanation.slowest)
}
