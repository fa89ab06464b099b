//! Text and CSV: one time stamp on each line, or in one column of it.

use std::fs::File;
use std::path::Path;

use taillab_console::exit::Failure;
use taillab_model::text::plain;

use super::decimal::{self, ParseFailure};
use super::options::{TimeUnit, TraceOptions, choose, unit, usage};
use super::sink::Sink;
use crate::rows::{Rows, Separator};

/// Where the times are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    separator: Separator,
    column: usize,
    unit: TimeUnit,
    header: bool,
}

impl Layout {
    /// Finds the layout from the first line that is neither blank nor a comment.
    pub fn find(options: &TraceOptions) -> Result<Self, Failure> {
        let refused = |what: String| usage(&options.path, what);
        let empty = "is empty; a trace needs at least two time stamps, one on each line";
        let separator = Rows::separator(open(&options.path)?)
            .map_err(refused)?
            .ok_or_else(|| usage(&options.path, empty))?;
        let mut rows = Rows::new(open(&options.path)?, separator);
        rows.advance().map_err(refused)?;
        let cells = rows.cells();
        // a header's cells are words; a line of data has a number somewhere
        let is_number =
            |cell: &String| decimal::nanos(cell, TimeUnit::Ns) != Err(ParseFailure::NotANumber);
        let header = !cells.iter().any(is_number) && cells.iter().all(|cell| is_name(cell));
        let column = choose(options, &cells, header)?;
        let name = header.then(|| cells[column].as_str());
        Ok(Self {
            separator,
            column,
            unit: unit(options, name)?,
            header,
        })
    }

    pub fn read(&self, path: &Path, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let mut rows = Rows::new(open(path)?, self.separator);
        let mut header = self.header;
        while rows.advance().map_err(|what| usage(path, what))? {
            if std::mem::take(&mut header) {
                continue;
            }
            let parsed = match rows.cell(self.column) {
                None => Err(format!("has no column {}", self.column + 1)),
                Some(cell) => decimal::nanos(cell, self.unit).map_err(|bad| match bad {
                    ParseFailure::NotANumber => format!("`{}` is not a number", shortened(cell)),
                    ParseFailure::Negative => format!("{cell} is negative"),
                    ParseFailure::TooLarge => format!(
                        "{cell} {} is more than 584 years; choose the unit with --trace-unit",
                        self.unit.name()
                    ),
                }),
            };
            let number = rows.number();
            match parsed {
                Ok(value) => sink.push(value, rows.bytes(), || format!("line {number}"))?,
                Err(what) => return Err(usage(path, format!("line {number}: {what}"))),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| usage(path, format!("cannot be read: {error}")))
}

/// Whether a cell can be the name of a column.
fn is_name(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && !["nan", "inf", "infinity"].contains(&cell.to_ascii_lowercase().as_str())
}

fn shortened(cell: &str) -> String {
    const MOST: usize = 40;
    let cell = plain(cell);
    if cell.chars().count() <= MOST {
        return cell;
    }
    cell.chars().take(MOST).chain(['…']).collect()
}
