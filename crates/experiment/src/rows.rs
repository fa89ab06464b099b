//! Rows of cells from a text: CSV with any usual separator, or columns between blanks.

use std::io::{self, Read};

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Terminator};

/// A text with a longer row than this many bytes is not a table.
const LONGEST_ROW: usize = 1 << 20;
const BUFFER: usize = 1 << 18;
/// A separator that no text has: each line is then one cell.
const NONE: u8 = 0x1f;

/// What separates the cells of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// One character.
    Byte(u8),
    /// Any number of blanks.
    Blanks,
}

impl Separator {
    fn of(line: &str) -> Self {
        let found = [b',', b';', b'\t']
            .into_iter()
            .find(|byte| line.as_bytes().contains(byte));
        found.map_or(Self::Blanks, Self::Byte)
    }
}

/// The rows of a text, without blank lines and comments (`# …`).
pub struct Rows<R: Read> {
    reader: Reader<Bounded<io::Chain<R, &'static [u8]>>>,
    separator: Separator,
    row: StringRecord,
    bytes: u64,
}

impl<R: Read> Rows<R> {
    /// The separator that the first row has; `None` where there is no row.
    ///
    /// # Errors
    /// What is wrong, with the number of the line.
    pub fn separator(text: R) -> Result<Option<Separator>, String> {
        let mut lines = Self::new(text, Separator::Blanks);
        Ok(lines.advance()?.then(|| Separator::of(&lines.row[0])))
    }

    /// The rows of a text whose cells are separated like this.
    pub fn new(text: R, separator: Separator) -> Self {
        // rows are numbered by the ends of lines, so the last one needs an end, too
        let bounded = Bounded {
            inner: text.chain(&b"\n"[..]),
            since_row: 0,
        };
        let mut builder = ReaderBuilder::new();
        builder
            .has_headers(false)
            .flexible(true)
            .terminator(Terminator::Any(b'\n'))
            .buffer_capacity(BUFFER);
        match separator {
            Separator::Byte(byte) => builder.delimiter(byte),
            Separator::Blanks => builder.delimiter(NONE).quoting(false),
        };
        Self {
            reader: builder.from_reader(bounded),
            separator,
            row: StringRecord::new(),
            bytes: 0,
        }
    }

    /// Goes to the next row; `false` after the last.
    ///
    /// # Errors
    /// What is wrong, with the number of the line.
    pub fn advance(&mut self) -> Result<bool, String> {
        let before = self.reader.position().byte();
        loop {
            let more = self.reader.read_record(&mut self.row);
            self.reader.get_mut().since_row = 0;
            if !more.map_err(|error| self.refusal(&error))? {
                return Ok(false);
            }
            let first = self.row[0].trim();
            if !first.starts_with('#') && (self.row.len() > 1 || !first.is_empty()) {
                break;
            }
        }
        self.bytes = self.reader.position().byte() - before;
        Ok(true)
    }

    fn refusal(&self, error: &csv::Error) -> String {
        let line = match error.kind() {
            ErrorKind::Io(error) if error.kind() != io::ErrorKind::InvalidData => {
                return format!("cannot be read: {error}");
            }
            ErrorKind::Io(_) => self.reader.position().line(),
            _ => self.number(),
        };
        format!("line {line} is not text; give a text, CSV or Parquet file")
    }

    /// The number of the row's line, from 1.
    pub fn number(&self) -> u64 {
        self.reader.position().line() - 1
    }

    /// Bytes of the text that the row took.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A cell of the row, counted from 0, without the blanks around it.
    pub fn cell(&self, column: usize) -> Option<&str> {
        match self.separator {
            Separator::Byte(_) => self.row.get(column).map(str::trim),
            Separator::Blanks => self.row[0].split_whitespace().nth(column),
        }
    }

    /// All cells of the row.
    pub fn cells(&self) -> Vec<String> {
        match self.separator {
            Separator::Byte(_) => {
                let cells = self.row.iter().map(str::trim);
                cells.map(str::to_owned).collect()
            }
            Separator::Blanks => self.row[0].split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// Ends a text that has no rows before it fills the memory.
struct Bounded<R> {
    inner: R,
    /// Bytes read since the last row.
    since_row: usize,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since_row > LONGEST_ROW {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let read = self.inner.read(buffer)?;
        self.since_row += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row with the number of its line.
    fn rows(text: &str) -> Vec<(u64, Vec<String>)> {
        let separator = Rows::separator(text.as_bytes()).unwrap();
        let mut rows = Rows::new(text.as_bytes(), separator.unwrap_or(Separator::Blanks));
        let mut found = Vec::new();
        while rows.advance().unwrap() {
            found.push((rows.number(), rows.cells()));
        }
        found
    }

    #[test]
    fn rows_are_numbered_by_their_lines() {
        let cells = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect();
        for text in [
            "# head\n\na;b\n1;2",
            "# head\r\n \r\na;b\r\n1;2\r\n",
            "#\n\n\"a\";b\n1; 2\n\n",
        ] {
            assert_eq!(
                rows(text),
                [(3, cells(&["a", "b"])), (4, cells(&["1", "2"]))],
                "{text:?}"
            );
        }
        assert_eq!(
            rows("\u{feff}1  2\n3\t4"),
            [(1, cells(&["1", "2"])), (2, cells(&["3", "4"]))]
        );
        assert_eq!(rows(" 1  2\n"), [(1, cells(&["1", "2"]))]);
        assert_eq!(rows("\"a,b\",c\n"), [(1, cells(&["a,b", "c"]))]);
        assert_eq!(rows("\n# nothing\n"), []);
    }

    #[test]
    fn what_is_no_text_ends_with_the_number_of_its_line() {
        let refusal = |text: &[u8]| {
            let mut rows = Rows::new(text, Separator::Byte(b','));
            loop {
                match rows.advance() {
                    Ok(true) => {}
                    Ok(false) => panic!("all of it is text"),
                    Err(refusal) => return refusal,
                }
            }
        };
        assert!(refusal(b"1\n\n\xff\xfe\n").starts_with("line 3 is not text"));
        let endless = [b"1\n\"".to_vec(), vec![b'x'; 4 * LONGEST_ROW]].concat();
        assert!(refusal(&endless).starts_with("line 2 is not text"));
    }
}
