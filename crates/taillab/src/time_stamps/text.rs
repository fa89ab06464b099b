//! Text and CSV: one time stamp on each line, or in one column of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::decimal::{self, Bad};
use super::options::{TimeUnit, TraceOptions, choose, unit, usage};
use super::sink::Sink;
use crate::exit::Failure;

/// A line longer than this is no line of a trace.
const LONGEST_LINE: usize = 1 << 20;
const BUFFER: usize = 1 << 18;

/// Where the times are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    separator: Separator,
    column: usize,
    unit: TimeUnit,
    header: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Char(char),
    Blanks,
}

impl Separator {
    fn of(line: &str) -> Self {
        [',', ';', '\t']
            .into_iter()
            .find(|c| line.contains(*c))
            .map_or(Self::Blanks, Self::Char)
    }

    /// The cell, without quotes around it.
    fn cell(self, line: &str, column: usize) -> Option<&str> {
        let cell = match self {
            Self::Char(c) => line.split(c).nth(column),
            Self::Blanks => line.split_whitespace().nth(column),
        };
        cell.map(|cell| cell.trim().trim_matches('"'))
    }

    fn cells(self, line: &str) -> Vec<String> {
        (0..)
            .map_while(|column| self.cell(line, column).map(str::to_owned))
            .collect()
    }
}

/// Lines that say nothing.
fn is_idle(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

impl Layout {
    /// Looks at the first line that says something.
    pub fn find(options: &TraceOptions) -> Result<Self, Failure> {
        let mut lines = Lines::open(&options.path)?;
        let first = loop {
            match lines.next()? {
                None => {
                    return Err(usage(
                        &options.path,
                        "is empty; a trace needs at least two time stamps, one on each line",
                    ));
                }
                Some(line) if is_idle(line) => {}
                Some(line) => break line.to_owned(),
            }
        };
        let separator = Separator::of(&first);
        let cells = separator.cells(&first);
        // a header's cells are words; a line of data has a number somewhere
        let is_number = |cell: &String| decimal::nanos(cell, TimeUnit::Ns) != Err(Bad::NotANumber);
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
        let mut lines = Lines::open(path)?;
        let mut header = self.header;
        loop {
            let Some(line) = lines.next()? else {
                return Ok(());
            };
            if is_idle(line) {
                continue;
            }
            if std::mem::take(&mut header) {
                continue;
            }
            let bytes = line.len() as u64 + 1;
            let parsed = match self.separator.cell(line, self.column) {
                None => Err(format!("has no column {}", self.column + 1)),
                Some(cell) => decimal::nanos(cell, self.unit).map_err(|bad| match bad {
                    Bad::NotANumber => format!("`{}` is not a number", shortened(cell)),
                    Bad::Negative => format!("{cell} is negative"),
                    Bad::TooLarge => format!(
                        "{cell} {} is more than 584 years; choose the unit with --trace-unit",
                        self.unit.name()
                    ),
                }),
            };
            let number = lines.number;
            match parsed {
                Ok(value) => sink.push(value, bytes, || format!("line {number}"))?,
                Err(what) => return Err(usage(path, format!("line {number}: {what}"))),
            }
        }
    }
}

/// Whether a cell can be the name of a column.
fn is_name(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && !["nan", "inf", "infinity"].contains(&cell.to_ascii_lowercase().as_str())
}

fn shortened(cell: &str) -> String {
    const MOST: usize = 40;
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    if cell.chars().count() <= MOST {
        return cell.chars().map(clean).collect();
    }
    cell.chars().map(clean).take(MOST).chain(['…']).collect()
}

struct Lines<'a> {
    path: &'a Path,
    file: BufReader<File>,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file =
            File::open(path).map_err(|error| usage(path, format!("cannot be read: {error}")))?;
        Ok(Self {
            path,
            file: BufReader::with_capacity(BUFFER, file),
            line: Vec::new(),
            number: 0,
        })
    }

    /// The next line; the first without a byte order mark.
    fn next(&mut self) -> Result<Option<&str>, Failure> {
        use std::io::Read;
        self.line.clear();
        let mut bounded = (&mut self.file).take(LONGEST_LINE as u64);
        let read = bounded
            .read_until(b'\n', &mut self.line)
            .map_err(|error| usage(self.path, format!("cannot be read: {error}")))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        let text = std::str::from_utf8(&self.line)
            .ok()
            .filter(|_| read < LONGEST_LINE);
        let Some(text) = text else {
            return Err(usage(
                self.path,
                format!("line {number} is no text; give a text, CSV or Parquet file"),
            ));
        };
        let text = text.trim_end_matches(['\n', '\r']);
        Ok(Some(text.strip_prefix('\u{feff}').unwrap_or(text)))
    }
}
