//! Tables: built once from a result, written to a terminal or to a page.

use crate::figures;
use crate::html::markup::{Esc, Markup, put};
use crate::terminal::text::{Ink, clean, columns, wrap};
use crate::terminal::{INDENT, Style};

/// A wrapped last column with less room than this moves below its row.
const LEAST_ROOM: usize = 28;
/// What stands for a value that is not known.
const DASH: &str = "–";

/// The edge at which the texts of a column line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// A column: its heading and how its cells are aligned.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    head: String,
    short_head: Option<&'static str>,
    note: String,
    ink: Ink,
    side: Side,
    gap: Option<usize>,
    shows_notes: bool,
    widest: Option<usize>,
    on_page: bool,
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
    pub(crate) fn left(head: impl Into<String>) -> Self {
        Self::new(head, Side::Left)
    }

    /// A column of numbers.
    pub(crate) fn right(head: impl Into<String>) -> Self {
        Self::new(head, Side::Right)
    }

    /// The heading in a terminal with little room.
    pub(crate) fn short(mut self, head: &'static str) -> Self {
        self.short_head = Some(head);
        self
    }

    /// The colour of the heading.
    pub(crate) fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }

    /// A remark below the heading, on the page.
    pub(crate) fn note(mut self, note: String) -> Self {
        self.note = note;
        self
    }

    /// Blanks before the column in a terminal, where the usual number is not right.
    pub(crate) fn gap(mut self, gap: usize) -> Self {
        self.gap = Some(gap);
        self
    }

    /// Shows the notes of the cells (intervals, mostly) in a terminal as well.
    pub(crate) fn notes(mut self) -> Self {
        self.shows_notes = true;
        self
    }

    /// Leaves the column out of terminals.
    pub(crate) fn on_page(mut self) -> Self {
        self.on_page = true;
        self
    }

    /// Wraps long texts in a terminal at `widest` columns, or earlier where there is less room.
    pub(crate) fn wrapped(mut self, widest: usize) -> Self {
        self.widest = Some(widest);
        self
    }
}

/// A text with its colour, and a note below it (page) or next to it (terminal).
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    ink: Ink,
    note: String,
    lacks: bool,
    mark: Option<(Ink, char, String)>,
    bars: Vec<(&'static str, f64)>,
}

/// A cell in the usual colour.
pub(crate) fn cell(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        ink: Ink::Plain,
        note: String::new(),
        lacks: false,
        mark: None,
        bars: Vec::new(),
    }
}

/// The text, or a dash where it is not known.
pub(crate) fn known(text: Option<String>) -> Cell {
    text.map_or_else(|| cell(DASH), cell)
}

/// The name of a row.
pub(crate) fn name(text: impl Into<String>) -> Cell {
    cell(text).ink(Ink::Title)
}

/// What a sample lacks for a value.
pub(crate) fn lacking(what: impl Into<String>) -> Cell {
    Cell {
        lacks: true,
        ..cell(what).ink(Ink::Quiet)
    }
}

impl Cell {
    pub(crate) fn ink(mut self, ink: Ink) -> Self {
        self.ink = ink;
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// A patch of colour before the text: a character in a terminal, a class on the page.
    pub(crate) fn mark(mut self, ink: Ink, mark: char, class: String) -> Self {
        self.mark = Some((ink, mark, class));
        self
    }

    /// Bars on top of each other instead of a text, as shares of the cell; page only.
    pub(crate) fn bars(mut self, bars: Vec<(&'static str, f64)>) -> Self {
        self.bars = bars;
        self
    }
}

/// The cells of one row and what is said below them.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    cells: Vec<Cell>,
    below: Vec<(Ink, String)>,
    commands: Vec<String>,
}

impl Row {
    /// A sentence below the row.
    pub(crate) fn below(&mut self, ink: Ink, text: impl Into<String>) -> &mut Self {
        self.below.push((ink, text.into()));
        self
    }

    /// A command below the row, on one line so that it can be copied.
    pub(crate) fn command(&mut self, command: &str) -> &mut Self {
        self.commands.push(command.to_owned());
        self
    }

    /// The reason that is left of a row without any value.
    fn lacks_all(&self) -> Option<&Cell> {
        let mut others = self.cells.iter().skip(1);
        let has_none = others.clone().all(|cell| cell.lacks || cell.text == DASH);
        others.find(|cell| cell.lacks).filter(|_| has_none)
    }
}

/// Columns and rows; the first cell of a row is its name. The last cell of a row with too few
/// cells runs over the columns that are left.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    caption: String,
    class: &'static str,
    columns: Vec<Column>,
    rows: Vec<Row>,
    short: bool,
}

/// A column of the terminal: a [`Column`] or the notes of its cells.
struct Slot {
    side: Side,
    gap: usize,
    widest: Option<usize>,
    width: usize,
}

/// A cell of the terminal.
struct Piece {
    mark: Option<(Ink, char)>,
    ink: Ink,
    text: String,
}

impl Piece {
    fn new(ink: Ink, text: &str) -> Self {
        Self {
            mark: None,
            ink,
            text: clean(text),
        }
    }

    fn width(&self) -> usize {
        columns(&self.text) + 2 * usize::from(self.mark.is_some())
    }

    fn paint(&self, style: Style) -> String {
        let text = style.paint(self.ink, &self.text);
        match self.mark {
            Some((ink, mark)) => format!("{} {text}", style.paint(ink, &mark.to_string())),
            None => text,
        }
    }
}

impl Table {
    /// A table without rows. `caption` says on the page what it shows and in which unit.
    pub(crate) fn new(
        caption: impl Into<String>,
        columns: impl IntoIterator<Item = Column>,
    ) -> Self {
        Self {
            caption: caption.into(),
            class: "",
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            short: false,
        }
    }

    /// A further class in the page's style sheet.
    pub(crate) fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Row {
        self.rows.push(Row {
            cells: cells.into_iter().collect(),
            below: Vec::new(),
            commands: Vec::new(),
        });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    /// Leaves out the notes of a column in the terminal.
    pub(crate) fn hide_notes(&mut self, column: usize) {
        if let Some(column) = self.columns.get_mut(column) {
            column.shows_notes = false;
        }
    }

    /// Uses the short headings in the terminal.
    pub(crate) fn shorten(&mut self) {
        self.short = true;
    }

    /// Whether a terminal shows the notes of any column.
    pub(crate) fn shows_notes(&self) -> bool {
        self.columns.iter().any(|column| column.shows_notes)
    }

    /// The table after as many of the `steps` as it takes to fit the terminal.
    pub(crate) fn fit(mut self, style: Style, steps: &[&dyn Fn(&mut Self)]) -> Self {
        let plain = Style {
            colour: false,
            ..style
        };
        for step in steps {
            let fits = |line: &String| columns(line) <= style.width;
            if self.lines(plain).iter().all(fits) {
                break;
            }
            step(&mut self);
        }
        self
    }

    /// What the dashes mean: each value that is lacking in a row which has others, as
    /// (name of the row, heading, what it lacks).
    pub(crate) fn lacks(&self) -> impl Iterator<Item = (&str, &str, &str)> {
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

    /// The lines of the table in a terminal, the headings first.
    pub(crate) fn lines(&self, style: Style) -> Vec<String> {
        let mut rows: Vec<Vec<Piece>> = Vec::new();
        if self.columns.iter().any(|column| !column.head.is_empty()) {
            rows.push(self.heads());
        }
        let heads = rows.len();
        rows.extend(self.rows.iter().map(|row| self.pieces(row)));
        let (slots, is_below) = self.slots(&rows, style);
        let mut lines = Vec::new();
        for (i, pieces) in rows.iter().enumerate() {
            let is_head = i < heads;
            put_pieces(&mut lines, pieces, &slots, is_below, is_head, style);
            if let Some(row) = i.checked_sub(heads).map(|i| &self.rows[i]) {
                let lead = " ".repeat(INDENT + 2);
                // what is true of the next row as well is said once, after the last
                let next = self.rows.get(i + 1 - heads).map(|next| &next.below);
                let is_said_later = |said: &&(Ink, String)| next.is_some_and(|n| n.contains(said));
                for (ink, text) in row.below.iter().filter(|said| !is_said_later(said)) {
                    let wrapped = wrap(&clean(text), style.width.saturating_sub(INDENT + 2));
                    lines.extend(
                        wrapped
                            .iter()
                            .map(|line| lead.clone() + &style.paint(*ink, line)),
                    );
                }
                for command in &row.commands {
                    let command = style.paint(Ink::Good, &format!("$ {}", clean(command)));
                    lines.push(lead.clone() + &command);
                }
            }
        }
        for line in &mut lines {
            line.truncate(line.trim_end().len());
        }
        lines
    }

    fn heads(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for column in self.columns.iter().filter(|column| !column.on_page) {
            let short = column.short_head.filter(|_| self.short);
            pieces.push(Piece::new(column.ink, short.unwrap_or(&column.head)));
            if column.shows_notes {
                pieces.push(Piece::new(Ink::Quiet, ""));
            }
        }
        pieces
    }

    fn pieces(&self, row: &Row) -> Vec<Piece> {
        if let Some(reason) = row.lacks_all() {
            let name = &row.cells[0];
            return vec![
                Piece::new(name.ink, &name.text),
                Piece::new(Ink::Quiet, &reason.text),
            ];
        }
        let mut pieces = Vec::new();
        let cells = row.cells.iter().zip(&self.columns);
        for (cell, column) in cells.filter(|(_, column)| !column.on_page) {
            let text = if cell.lacks { DASH } else { &cell.text };
            let mut piece = Piece::new(cell.ink, text);
            piece.mark = cell.mark.as_ref().map(|(ink, mark, _)| (*ink, *mark));
            pieces.push(piece);
            if column.shows_notes {
                pieces.push(Piece::new(Ink::Quiet, &cell.note));
            }
        }
        pieces
    }

    /// The columns of the terminal with their widths, and whether the wrapped one, which is the
    /// last, stands below each row.
    fn slots(&self, rows: &[Vec<Piece>], style: Style) -> (Vec<Slot>, bool) {
        let usual_gap = if style.width < 70 { 2 } else { 3 };
        let mut slots = Vec::new();
        let columns = self.columns.iter().filter(|column| !column.on_page);
        for (i, column) in columns.enumerate() {
            let gap = if i == 0 { INDENT } else { usual_gap };
            slots.push(Slot {
                side: column.side,
                gap: column.gap.unwrap_or(gap),
                widest: column.widest,
                width: 0,
            });
            if column.shows_notes {
                slots.push(Slot {
                    side: Side::Left,
                    gap: 1,
                    widest: None,
                    width: 0,
                });
            }
        }
        for pieces in rows {
            let own = pieces.len() - usize::from(pieces.len() < slots.len());
            for (slot, piece) in slots.iter_mut().zip(&pieces[..own]) {
                slot.width = slot.width.max(piece.width());
            }
        }
        let fixed = |slot: &Slot| match slot.widest {
            Some(_) => slot.gap,
            None => slot.gap + slot.width,
        };
        let room = style.width.saturating_sub(slots.iter().map(fixed).sum());
        let ends_wrapped = slots.last().is_some_and(|slot| slot.widest.is_some());
        let is_below = ends_wrapped && room < LEAST_ROOM;
        for slot in &mut slots {
            if let Some(widest) = slot.widest {
                slot.width = slot.width.min(widest).min(room.max(LEAST_ROOM - 4));
            }
        }
        (slots, is_below)
    }

    /// The table as an element of a page that scrolls where it is too wide.
    pub(crate) fn put(&self, page: &mut Markup) {
        let caption = figures::glued(&self.caption);
        put!(
            page,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\">\n\
             <table class=\"figures {1}\">\n<caption>{0}</caption>\n<thead><tr>",
            Esc(&caption),
            self.class,
        );
        for column in &self.columns {
            if column.head.is_empty() {
                put!(page, "<td></td>");
                continue;
            }
            let words = match column.side {
                Side::Left => " class=\"words\"",
                Side::Right => "",
            };
            put!(page, "<th scope=\"col\"{words}>");
            if let Some(class) = column.ink.series_class() {
                put!(page, "{} ", crate::html::swatch(class, ""));
            }
            put!(page, "{}", Esc(&column.head));
            put_note(page, &column.note);
            put!(page, "</th>");
        }
        put!(page, "</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            put!(page, "<tr>");
            for (i, cell) in row.cells.iter().enumerate() {
                let is_last = i + 1 == row.cells.len();
                let over = if is_last { self.columns.len() - i } else { 1 };
                self.put_cell(page, row, i, cell, over);
            }
            put!(page, "</tr>\n");
        }
        put!(page, "</tbody>\n</table>\n</div>\n");
    }

    fn put_cell(&self, page: &mut Markup, row: &Row, i: usize, cell: &Cell, over: usize) {
        if i == 0 {
            put!(page, "<th scope=\"row\">");
        } else {
            let words = self.columns.get(i).is_some_and(|c| c.side == Side::Left);
            let class = match (cell.lacks, cell.bars.is_empty()) {
                (true, _) => "lacking",
                (_, false) => "drawn",
                _ => cell.ink.class(),
            };
            put!(
                page,
                "<td class=\"{class}{}\"",
                if words { " words" } else { "" }
            );
            if over > 1 {
                put!(page, " colspan=\"{over}\"");
            }
            put!(page, ">");
        }
        if let Some((_, _, class)) = &cell.mark {
            put!(page, "{} ", crate::html::patch(class));
        }
        put!(page, "{}", Esc(&cell.text));
        put_note(page, &cell.note);
        if !cell.bars.is_empty() {
            put!(page, "<svg aria-hidden=\"true\">");
            for (class, share) in &cell.bars {
                let width = 100.0 * share;
                put!(
                    page,
                    "<rect class=\"{class}\" width=\"{width:.1}%\" height=\"100%\" rx=\"2\"/>"
                );
            }
            put!(page, "</svg>");
        }
        if i > 0 {
            put!(page, "</td>");
            return;
        }
        for (_, text) in &row.below {
            put!(page, "<small class=\"explained\">{}</small>", Esc(text));
        }
        for command in &row.commands {
            put!(page, "<small><code>{}</code></small>", Esc(command));
        }
        put!(page, "</th>");
    }
}

fn put_note(page: &mut Markup, note: &str) {
    for line in note.lines() {
        put!(page, "<small>{}</small>", Esc(line));
    }
}

/// One row of the terminal, with further lines for a wrapped text.
fn put_pieces(
    lines: &mut Vec<String>,
    pieces: &[Piece],
    slots: &[Slot],
    is_below: bool,
    is_head: bool,
    style: Style,
) {
    let runs_over = pieces.len() < slots.len();
    let mut line = String::new();
    let mut at = 0;
    let mut further: Option<(usize, Ink, Vec<String>)> = None;
    for (i, (piece, slot)) in pieces.iter().zip(slots).enumerate() {
        let is_last = i + 1 == pieces.len();
        if is_last && is_below {
            let room = style.width.saturating_sub(2 * INDENT);
            further = (!is_head).then(|| (2 * INDENT, piece.ink, wrap(&piece.text, room)));
            break;
        }
        let mut wrapped = Vec::new();
        let first;
        let piece = match slot.widest {
            Some(_) if !(is_last && runs_over) => {
                wrapped = wrap(&piece.text, slot.width);
                first = Piece {
                    mark: piece.mark,
                    ink: piece.ink,
                    text: wrapped.remove(0),
                };
                &first
            }
            _ => piece,
        };
        let free = slot.width.saturating_sub(piece.width());
        let (before, after) = match slot.side {
            _ if is_last && runs_over => (0, 0),
            Side::Left => (0, if is_last { 0 } else { free }),
            Side::Right => (free, 0),
        };
        line.push_str(&" ".repeat(slot.gap + before));
        line.push_str(&piece.paint(style));
        line.push_str(&" ".repeat(after));
        if !wrapped.is_empty() {
            further = Some((at + slot.gap, piece.ink, wrapped));
        }
        at += slot.gap + slot.width;
    }
    lines.push(line);
    if let Some((lead, ink, texts)) = further {
        let painted = texts.iter().map(|text| style.paint(ink, text));
        lines.extend(painted.map(|text| " ".repeat(lead) + &text));
    }
}
