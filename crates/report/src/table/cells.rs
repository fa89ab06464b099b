//! What a table consists of: columns, cells, rows.

use taillab_model::Nanos;

use crate::text::Ink;

/// Shown instead of a value that is not known.
pub(super) const DASH: &str = "–";

/// The edge at which the texts of a column line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A column: its heading and how its cells are aligned.
#[derive(Clone, Debug)]
pub struct Column {
    pub(super) head: String,
    pub(super) short_head: Option<&'static str>,
    pub(super) note: String,
    pub(super) ink: Ink,
    pub(super) side: Side,
    pub(super) gap: Option<usize>,
    pub(super) shows_notes: bool,
    pub(super) widest: Option<usize>,
    pub(super) on_page: bool,
}

impl Column {
    fn new(head: impl Into<String>, side: Side) -> Self {
        Self {
            head: head.into(),
            short_head: None,
            note: String::new(),
            ink: Ink::Quiet,
            side,
            gap: None,
            shows_notes: false,
            widest: None,
            on_page: false,
        }
    }

    /// A column of words.
    pub fn left(head: impl Into<String>) -> Self {
        Self::new(head, Side::Left)
    }

    /// A column of numbers.
    pub fn right(head: impl Into<String>) -> Self {
        Self::new(head, Side::Right)
    }

    /// The heading in a terminal with little room.
    pub fn short(mut self, head: &'static str) -> Self {
        self.short_head = Some(head);
        self
    }

    /// The colour of the heading.
    pub fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }

    /// A remark below the heading, on the page.
    pub fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// Spaces before the column in a terminal, instead of the usual number.
    pub fn gap(mut self, gap: usize) -> Self {
        self.gap = Some(gap);
        self
    }

    /// Shows the notes of the cells (intervals, mostly) in a terminal as well.
    pub fn notes(mut self) -> Self {
        self.shows_notes = true;
        self
    }

    /// Leaves the column out of terminals.
    pub fn on_page(mut self) -> Self {
        self.on_page = true;
        self
    }

    /// Wraps long texts in a terminal at `widest` columns, or earlier where there is less room.
    pub fn wrapped(mut self, widest: usize) -> Self {
        self.widest = Some(widest);
        self
    }
}

/// A text with its colour, and a note below it (page) or next to it (terminal).
#[derive(Clone, Debug)]
pub struct Cell {
    pub(super) text: String,
    pub(super) ink: Ink,
    pub(super) note: String,
    pub(super) lacks: bool,
    pub(super) mark: Option<(Ink, char, String)>,
    pub(super) bars: Vec<(&'static str, f64)>,
}

/// A cell in the usual colour.
pub fn cell(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        ink: Ink::Plain,
        note: String::new(),
        lacks: false,
        mark: None,
        bars: Vec::new(),
    }
}

/// The text, or a dash if it is not known.
pub fn known(text: Option<String>) -> Cell {
    text.map_or_else(|| cell(DASH), cell)
}

/// A length of time with its unit, or a dash if it is not known.
pub fn length(length: Option<Nanos>) -> Cell {
    known(length.map(|length| length.to_string()))
}

/// The name of a row.
pub fn name(text: impl Into<String>) -> Cell {
    cell(text).ink(Ink::Title)
}

/// A missing value: what the sample would need for it.
pub fn lacking(what: impl Into<String>) -> Cell {
    Cell {
        lacks: true,
        ..cell(what).ink(Ink::Quiet)
    }
}

impl Cell {
    /// In this colour.
    pub fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }

    /// With a quieter text behind it.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// A patch of colour before the text: a character in a terminal, a class on the page.
    pub fn mark(mut self, ink: Ink, mark: char, class: String) -> Self {
        self.mark = Some((ink, mark, class));
        self
    }

    /// Bars on top of each other instead of a text, as shares of the cell; page only.
    pub fn bars(mut self, bars: Vec<(&'static str, f64)>) -> Self {
        self.bars = bars;
        self
    }
}

/// The cells of one row and the texts below them.
#[derive(Clone, Debug)]
pub struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) below: Vec<(Ink, String)>,
    pub(super) commands: Vec<String>,
}

impl Row {
    /// A sentence below the row.
    pub fn below(&mut self, ink: Ink, text: impl Into<String>) -> &mut Self {
        self.below.push((ink, text.into()));
        self
    }

    /// A command below the row, on one line so that it can be copied.
    pub fn command(&mut self, command: &str) -> &mut Self {
        self.commands.push(command.to_owned());
        self
    }

    /// What to show for a row without any value: the first reason that a cell gives.
    pub(super) fn lacks_all(&self) -> Option<&Cell> {
        let mut others = self.cells.iter().skip(1);
        let has_none = others.clone().all(|cell| cell.lacks || cell.text == DASH);
        others.find(|cell| cell.lacks).filter(|_| has_none)
    }
}

/// Columns and rows; the first cell of a row is its name. The last cell of a row with too few
/// cells spans the remaining columns.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) caption: String,
    pub(super) class: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    pub(super) short: bool,
}

impl Table {
    /// A table without rows. `caption` says on the page what it shows and in which unit.
    pub fn new(caption: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: caption.into(),
            class: "",
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            short: false,
        }
    }

    /// A further class in the page's style sheet.
    pub fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    /// Adds a row, to which texts can be added.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Row {
        self.rows.push(Row {
            cells: cells.into_iter().collect(),
            below: Vec::new(),
            commands: Vec::new(),
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Leaves out the notes of a column in the terminal.
    pub fn hide_notes(&mut self, column: usize) {
        if let Some(column) = self.columns.get_mut(column) {
            column.shows_notes = false;
        }
    }

    /// Leaves a column out of the terminal.
    pub fn hide(&mut self, column: usize) {
        if let Some(column) = self.columns.get_mut(column) {
            column.on_page = true;
        }
    }

    /// Uses the short headings in the terminal.
    pub fn shorten(&mut self) {
        self.short = true;
    }

    /// Whether a terminal shows the notes of any column.
    pub fn shows_notes(&self) -> bool {
        self.columns.iter().any(|column| column.shows_notes)
    }

    /// What the dashes mean: each missing value of a row that has other values, as
    /// (name of the row, heading, what it lacks).
    pub fn lacks(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let rows = self.rows.iter().filter(|row| row.lacks_all().is_none());
        rows.flat_map(|row| {
            let cells = row.cells.iter().zip(&self.columns);
            let lacking = cells.filter(|(cell, _)| cell.lacks);
            lacking.map(|(cell, column)| {
                (
                    row.cells[0].text.as_str(),
                    column.head.as_str(),
                    cell.text.as_str(),
                )
            })
        })
    }
}
