//! Plain text with columns: colours, wrapping and aligned tables.

use super::Style;
use crate::{Series, figures};

/// What a piece of text is, from which its colour follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Plain,
    Title,
    Quiet,
    Good,
    Notable,
    Bad,
    Ideal,
    Measured,
    Client,
    /// One of the causes that a figure tells apart, by its place among them.
    Cause(u8),
}

impl Ink {
    /// The colour of a view's figures and marks.
    pub(crate) const fn of(series: Series) -> Self {
        match series {
            Series::Ideal => Self::Ideal,
            Series::Measured => Self::Measured,
            Series::Client => Self::Client,
        }
    }

    /// The SGR parameters of ECMA-48; the 16 basic colours follow the user's theme.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Title => Some("1"),
            Self::Quiet => Some("2"),
            Self::Good => Some("32"),
            Self::Notable => Some("33"),
            Self::Bad => Some("1;31"),
            Self::Ideal => Some("34"),
            Self::Measured => Some("1;33"),
            Self::Client => Some("36"),
            Self::Cause(0) => Some("31"),
            Self::Cause(1) => Some("33"),
            Self::Cause(2) => Some("36"),
            Self::Cause(3) => Some("35"),
            Self::Cause(4) => Some("34"),
            Self::Cause(5) => Some("32"),
            Self::Cause(_) => Some("2"),
        }
    }
}

impl Style {
    /// The text in its colour, if colours are wanted.
    pub(crate) fn paint(self, ink: Ink, text: &str) -> String {
        match ink.code() {
            Some(code) if self.colour && !text.is_empty() => {
                format!("\u{1b}[{code}m{text}\u{1b}[0m")
            }
            _ => text.to_owned(),
        }
    }
}

/// Text from outside without control characters, which a terminal would obey.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Columns that the text takes; every character that taillab prints takes one.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The text broken between words, but not between a number and its unit, into lines of
/// at most `width` columns; a word that is longer has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in figures::glued(text)
        .split(' ')
        .filter(|word| !word.is_empty())
    {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    // a plain space, so that the output can be searched as it reads
    for line in &mut lines {
        *line = line.replace(figures::NO_BREAK_SPACE, " ");
    }
    lines
}

/// Which side a column's texts share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(Side, usize)>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    cells: Vec<(Ink, String)>,
    /// The last cell runs over the columns that are left and does not widen its own.
    runs_over: bool,
}

impl Table {
    /// Columns with the side their texts share and the gap before each.
    pub(crate) fn new(columns: &[(Side, usize)]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<(Ink, String)>) {
        self.rows.push(Row {
            cells,
            runs_over: false,
        });
    }

    /// A row whose last cell runs over the columns that are left.
    pub(crate) fn running_row(&mut self, cells: Vec<(Ink, String)>) {
        self.rows.push(Row {
            cells,
            runs_over: true,
        });
    }

    /// Columns of the longest line.
    pub(crate) fn width(&self) -> usize {
        let lines = self.lines(Style::PLAIN);
        lines.iter().map(|line| columns(line)).max().unwrap_or(0)
    }

    pub(crate) fn lines(&self, style: Style) -> Vec<String> {
        let mut widths = vec![0; self.columns.len()];
        for row in &self.rows {
            let own = row.cells.len() - usize::from(row.runs_over);
            for (width, (_, text)) in widths.iter_mut().zip(&row.cells[..own]) {
                *width = columns(text).max(*width);
            }
        }
        self.rows
            .iter()
            .map(|row| {
                let mut line = String::new();
                for (i, ((ink, text), ((side, gap), width))) in row
                    .cells
                    .iter()
                    .zip(self.columns.iter().zip(&widths))
                    .enumerate()
                {
                    let free = width.saturating_sub(columns(text));
                    let last = i + 1 == row.cells.len();
                    let (before, after) = match side {
                        _ if last && row.runs_over => (0, 0),
                        Side::Left => (0, if last { 0 } else { free }),
                        Side::Right => (free, 0),
                    };
                    line.push_str(&" ".repeat(gap + before));
                    line.push_str(&style.paint(*ink, text));
                    line.push_str(&" ".repeat(after));
                }
                line.truncate(line.trim_end().len());
                line
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        let lines = wrap("a few words and aratherlongoneindeed in between", 12);
        assert_eq!(
            lines,
            ["a few words", "and", "aratherlongoneindeed", "in between"]
        );
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("late by 12.5 µs", 12), ["late by", "12.5 µs"]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
