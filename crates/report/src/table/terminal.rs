//! A table in a terminal.

use super::cells::{DASH, Row, Side, Table};
use crate::text::{INDENT, Ink, Style, clean, columns, wrap};

/// A wrapped last column with less room than this moves below its row.
const LEAST_ROOM: usize = 28;

/// A column of the terminal: one of the table, or the notes of its cells.
struct CellSlot {
    side: Side,
    gap: usize,
    widest: Option<usize>,
    width: usize,
}

/// A cell of the terminal.
struct TextPiece {
    mark: Option<(Ink, char)>,
    ink: Ink,
    text: String,
}

impl TextPiece {
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
    /// The table narrowed by the `steps`, in order, until it fits the terminal.
    pub fn fit(mut self, style: Style, steps: &[&dyn Fn(&mut Self)]) -> Self {
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

    /// The lines of the table in a terminal, the headings first.
    pub fn lines(&self, style: Style) -> Vec<String> {
        let mut rows: Vec<Vec<TextPiece>> = Vec::new();
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
                // a remark that several rows in sequence share is written once, after the last of them
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

    fn heads(&self) -> Vec<TextPiece> {
        let mut pieces = Vec::new();
        for column in self.columns.iter().filter(|column| !column.on_page) {
            let short = column.short_head.filter(|_| self.short);
            pieces.push(TextPiece::new(column.ink, short.unwrap_or(&column.head)));
            if column.shows_notes {
                pieces.push(TextPiece::new(Ink::Quiet, ""));
            }
        }
        pieces
    }

    fn pieces(&self, row: &Row) -> Vec<TextPiece> {
        if let Some(reason) = row.lacks_all() {
            let name = &row.cells[0];
            return vec![
                TextPiece::new(name.ink, &name.text),
                TextPiece::new(Ink::Quiet, &reason.text),
            ];
        }
        let mut pieces = Vec::new();
        let cells = row.cells.iter().zip(&self.columns);
        for (cell, column) in cells.filter(|(_, column)| !column.on_page) {
            let text = if cell.lacks { DASH } else { &cell.text };
            let mut piece = TextPiece::new(cell.ink, text);
            piece.mark = cell.mark.as_ref().map(|(ink, mark, _)| (*ink, *mark));
            pieces.push(piece);
            if column.shows_notes {
                pieces.push(TextPiece::new(Ink::Quiet, &cell.note));
            }
        }
        pieces
    }

    /// The columns of the terminal with their widths, and whether the wrapped one, which is the
    /// last, is written below each row.
    fn slots(&self, rows: &[Vec<TextPiece>], style: Style) -> (Vec<CellSlot>, bool) {
        let usual_gap = if style.width < 70 { 2 } else { 3 };
        let mut slots = Vec::new();
        let columns = self.columns.iter().filter(|column| !column.on_page);
        for (i, column) in columns.enumerate() {
            let gap = if i == 0 { INDENT } else { usual_gap };
            slots.push(CellSlot {
                side: column.side,
                gap: column.gap.unwrap_or(gap),
                widest: column.widest,
                width: 0,
            });
            if column.shows_notes {
                slots.push(CellSlot {
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
        let fixed = |slot: &CellSlot| match slot.widest {
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
}

/// One row of the terminal, with further lines for a wrapped text.
fn put_pieces(
    lines: &mut Vec<String>,
    pieces: &[TextPiece],
    slots: &[CellSlot],
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
                first = TextPiece {
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
