//! `summary.json` and `--json`; the shape is `schemas/report.schema.json`.

use serde::Serialize;
use taillab_model::load_result::LoadReport;
use taillab_model::summary::Report;

use crate::error::ReportError;

/// Of each of the slowest requests: stretches, and activities of each CPU. The Perfetto trace
/// has more.
const STRETCHES: usize = 24;
const ACTIVITIES: usize = 12;

/// The report, indented for people, with a newline at its end; the slowest requests in short.
///
/// # Errors
/// [`ReportError::Format`], which no report is known to cause.
pub fn pretty(report: &Report) -> Result<Vec<u8>, ReportError> {
    let mut report = report.clone();
    for request in (report.server.explanation.iter_mut()).flat_map(|of| &mut of.slowest) {
        request.shorten(STRETCHES, ACTIVITIES);
    }
    indented(&report, "summary.json")
}

/// The same of a load.
///
/// # Errors
/// [`ReportError::Format`], which no report is known to cause.
pub fn load(report: &LoadReport) -> Result<Vec<u8>, ReportError> {
    indented(report, "result.json")
}

/// A value as JSON, indented for people, with a newline at its end.
pub(crate) fn indented(
    value: &impl Serialize,
    output: &'static str,
) -> Result<Vec<u8>, ReportError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| ReportError::Format {
        output,
        cause: e.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
