//! What to do next with a result: commands that can be typed as they are printed.

use std::path::Path;

use taillab_model::MiddleStamps;
use taillab_report::terminal::NextStep;

use super::analyse::Analysed;

/// The number of requests that the suggested command shows one by one.
const SLOWEST: u32 = 3;

/// For a recording that can be analysed again: look at single requests, then at everything.
pub fn of_recording(recording: &Path, analysed: &Analysed) -> Vec<NextStep> {
    let recording = quoted(recording);
    let explained = analysed.report.server.explanation.as_ref();
    let slow = explained.is_some_and(|explanation| !explanation.slowest.is_empty());
    let slowest = slow.then(|| {
        NextStep::new(
            format!("taillab explain {recording} --slowest {SLOWEST}"),
            "what delayed the slowest requests, one by one",
        )
    });
    let everything = NextStep::new(
        format!("taillab explain {recording} -v"),
        "every cause, forecast, stage and check",
    );
    slowest.into_iter().chain([everything]).collect()
}

/// For a run: try what its forecasts promise, unless that was done, the run follows no request, or nothing of it
/// holds.
pub fn of_run(folder: &Path, recorded: bool, analysed: &Analysed) -> Vec<NextStep> {
    let mut steps = match recorded {
        true => of_recording(folder, analysed),
        false => Vec::new(),
    };
    let report = &analysed.report;
    let is_followed = report.server.matching.stamps != MiddleStamps::Ends;
    if analysed.supported.anything() && report.fixes.is_empty() && is_followed {
        let experiment = quoted(&folder.join("experiment.toml"));
        let fix = NextStep::new(
            format!("sudo taillab run -f {experiment} --fix"),
            "tries the mitigations one by one, and says which helped",
        );
        steps.insert(0, fix);
    }
    steps
}

/// The path, quoted so that a shell reads it as one word.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    // quoting fails only for a NUL, and a path with a NUL cannot have been opened
    shlex::try_quote(&path).map_or_else(|_| path.clone(), |quoted| quoted.into_owned())
}
