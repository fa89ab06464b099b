//! The result of `taillab budget`: tables and figures, for a terminal and for a page.

mod figure;
mod tables;

use taillab_model::budget::BudgetResult;

use crate::error::ReportError;
use crate::json::indented;

pub use self::figure::{components_charts, networks_chart};
pub(crate) use self::tables::{
    PAPER, STAND_IN, earlier_table, networks_table, parameters, reproduces, rows_beside_paper,
    rows_screen, rows_table, title,
};

/// The JSON of `--json`, with a newline at its end.
///
/// # Errors
/// [`ReportError::Format`], which no result is known to cause.
pub fn json(result: &BudgetResult) -> Result<Vec<u8>, ReportError> {
    indented(result, "the result as JSON")
}
