//! JSON files and `--json`; the shapes are in `schemas`.

use serde::Serialize;
use taillab_model::summary::Report;

use crate::error::ReportError;

/// The maximum numbers of stretches, and of activities of each CPU, for each of the slowest requests. The
/// Perfetto trace has more.
const STRETCHES: usize = 24;
const ACTIVITIES: usize = 12;

/// A report as [`of`] writes it, with the slowest requests in short.
///
/// # Errors
/// [`ReportError::Format`], which no report is known to cause.
pub fn of_report(report: &Report) -> Result<Vec<u8>, ReportError> {
    let mut report = report.clone();
    for request in (report.server.explanation.iter_mut()).flat_map(|of| &mut of.slowest) {
        request.shorten(STRETCHES, ACTIVITIES);
    }
    of(&report)
}

/// A result as JSON, indented for people, with a newline at its end.
///
/// # Errors
/// [`ReportError::Format`], which no result is known to cause.
pub fn of(result: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    let mut bytes = serde_json::to_vec_pretty(result).map_err(|e| ReportError::Format {
        output: "the result as JSON",
        cause: e.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
