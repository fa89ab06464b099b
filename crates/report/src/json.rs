//! `summary.json` and `--json`; the shapes are `schemas/run.schema.json` and, for traces,
//! `schemas/trace.schema.json`.

use serde::Serialize;
use taillab_model::summary::{RunSummary, ServerResult, TraceSummary};

use crate::ReportError;

/// Of each of the slowest requests: stretches, and activities of each CPU. The Perfetto trace
/// has more.
const STRETCHES: usize = 24;
const ACTIVITIES: usize = 12;

/// A summary with a server's result in it.
pub trait Summary: Serialize + Clone {
    /// The server's result.
    fn result_mut(&mut self) -> &mut ServerResult;
}

impl Summary for RunSummary {
    fn result_mut(&mut self) -> &mut ServerResult {
        &mut self.result
    }
}

impl Summary for TraceSummary {
    fn result_mut(&mut self) -> &mut ServerResult {
        &mut self.result
    }
}

/// The summary, indented for people, with a newline at its end; the slowest requests in
/// short.
///
/// # Errors
/// [`ReportError::Format`], which no summary is known to cause.
pub fn pretty(summary: &impl Summary) -> Result<Vec<u8>, ReportError> {
    let mut summary = summary.clone();
    for request in (summary.result_mut().explanation.iter_mut()).flat_map(|of| &mut of.slowest) {
        request.shorten(STRETCHES, ACTIVITIES);
    }
    let mut bytes = serde_json::to_vec_pretty(&summary).map_err(|e| ReportError::Format {
        output: "summary.json",
        cause: e.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}
