//! The result of `taillab noise`: tables and the figure, for a terminal and for a page.

mod figure;
mod tables;
mod texts;

use taillab_model::noise::NoiseResult;

use crate::error::ReportError;
use crate::json::indented;

pub use self::figure::chart;
pub(crate) use self::tables::{causes_page, causes_screen, longest_table, rows_screen, rows_table};
pub(crate) use self::texts::{attributed, clock, held, name};

/// The JSON of `--json`, with a newline at its end.
///
/// # Errors
/// [`ReportError::Format`], which no result is known to cause.
pub fn json(result: &NoiseResult) -> Result<Vec<u8>, ReportError> {
    indented(result, "the result as JSON")
}
