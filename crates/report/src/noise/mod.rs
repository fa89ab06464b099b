//! The result of `taillab noise`: tables and the figure, for a terminal and for a page.

mod figure;
mod tables;
mod texts;
mod worst;

pub(crate) use self::figure::chart;
pub(crate) use self::tables::{causes_page, causes_screen, longest_table, rows_screen, rows_table};
pub(crate) use self::texts::{attributed, clock, held, name};
pub(crate) use self::worst::{not_shown, worst};
