//! The result as a person reads it in a terminal.

use crate::RunReport;

/// How the terminal wants its text; the caller decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Use colours: standard output is a terminal and `NO_COLOR` is not set.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Style {
    /// No colours, 80 columns: a file or a pipe.
    pub const PLAIN: Self = Self {
        colour: false,
        width: 80,
    };
}

/// The whole result; `saved_in` is the run directory, if there is one.
pub fn render(report: &RunReport<'_>, saved_in: Option<&str>, style: Style) -> String {
    let _ = (report, saved_in, style);
    String::new()
}
