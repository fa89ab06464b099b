//! Tables: built once from a result, written to a terminal or to a page.

mod cells;
mod page;
mod terminal;

pub use self::cells::{Cell, Column, Table, cell, known, lacking, length, name};
