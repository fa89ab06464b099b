//! A table on a page.

use super::cells::{Cell, Row, Side, Table};
use crate::figures;
use crate::markup::{Esc, Markup, patch, put, swatch};

impl Table {
    /// The table as an element of a page that scrolls where it is too wide.
    pub fn put(&self, page: &mut Markup) {
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
                put!(page, "{} ", swatch(class, ""));
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
            put!(page, "<th scope=\"row\"");
            if over > 1 {
                put!(page, " colspan=\"{over}\"");
            }
            put!(page, ">");
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
            put!(page, "{} ", patch(class));
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
