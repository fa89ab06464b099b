//! JSON files and `--json`; the shapes are in `schemas`.

use serde::Serialize;
use taillab_model::summary::Report;
use taillab_model::text::escaped_json;

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

/// A result as JSON, indented for people, with a newline at its end. What a terminal would obey is escaped.
///
/// # Errors
/// [`ReportError::Format`], which no result is known to cause.
pub fn of(result: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    let json = serde_json::to_string_pretty(result).map_err(|e| ReportError::Format {
        output: "the result as JSON",
        cause: e.to_string(),
    })?;
    Ok((escaped_json(json) + "\n").into_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_terminal_finds_nothing_to_obey_in_a_string() {
        let written = super::of(&["a\u{1b}\u{9b}2J\u{202e}z"]).unwrap();
        let expected = "[\n  \"a\\u001b\\u009b2J\\u202ez\"\n]\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
