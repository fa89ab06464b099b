//! `summary.json` and `--json`; the shapes are `schemas/run.schema.json` and, for traces,
//! `schemas/trace.schema.json`.

use serde::Serialize;

use crate::ReportError;

/// The summary, indented for people, with a newline at its end.
///
/// # Errors
/// [`ReportError::Format`], which no summary is known to cause.
pub fn pretty(summary: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    finish(serde_json::to_vec_pretty(summary))
}

/// The summary on one line, with a newline at its end.
///
/// # Errors
/// [`ReportError::Format`], which no summary is known to cause.
pub fn compact(summary: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    finish(serde_json::to_vec(summary))
}

fn finish(encoded: Result<Vec<u8>, serde_json::Error>) -> Result<Vec<u8>, ReportError> {
    let mut bytes = encoded.map_err(|e| ReportError::Format {
        output: "summary.json",
        cause: e.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
