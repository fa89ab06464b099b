//! A chart as text: marks on a grid of cells, percentiles or latencies at the left.

use crate::chart::{Axis, Chart, Curve, FittedAxis, Look};
use crate::text::{INDENT, Ink, Style, WIDEST, clean, columns, wrap};

/// Rows of a plot whose rows are not percentiles.
const ROWS: usize = 18;
/// Rows between two ticks of the share of slower requests, which are mostly a decade apart.
const ROWS_PER_DECADE: f64 = 3.0;
/// A narrower figure shows nothing useful.
const NARROWEST: usize = 40;

/// Colours and marks, all different.
const MARKS: [(Ink, char); 8] = [
    (Ink::Ideal, '●'),
    (Ink::Measured, '○'),
    (Ink::Client, '◆'),
    (Ink::Good, '◇'),
    (Ink::Notable, '▲'),
    (Ink::Bad, '△'),
    (Ink::Plain, '■'),
    (Ink::Quiet, '□'),
];

/// Shades of a heat map, from the lightest.
const SHADES: [char; 8] = ['·', '·', '░', '░', '▒', '▒', '▓', '█'];

/// The colour and the mark of the n-th curve.
const fn mark(curve: &Curve, n: usize) -> (Ink, char) {
    let (ink, mark) = MARKS[n % MARKS.len()];
    match curve.look {
        Look::Line | Look::Marked => (ink, mark),
        Look::Bars => (ink, '█'),
        Look::Cells => (Ink::Plain, SHADES[n % SHADES.len()]),
    }
}

/// The chart with its title, a legend and axes.
pub fn render(chart: &Chart, style: Style) -> String {
    let style = Style {
        width: style.width.clamp(NARROWEST, WIDEST),
        ..style
    };
    let axis_y = FittedAxis::new(chart.y, chart, |p| p.1, 9);
    let rows = match chart.y {
        Axis::Slower => {
            let decades = axis_y.ticks.len().saturating_sub(1) as f64;
            (decades * ROWS_PER_DECADE) as usize + 1
        }
        _ => ROWS,
    };
    let labels = axis_y.ticks.iter().map(|(_, label)| columns(label)).max();
    let labels = labels.unwrap_or(0) + INDENT;
    let width = style.width.saturating_sub(labels + 3).max(10);
    let axis_x = FittedAxis::new(chart.x, chart, |p| p.0, width / 9);
    let grid = Grid {
        axis_x: &axis_x,
        axis_y: &axis_y,
        width,
        rows,
    };

    let mut text = String::new();
    let mut line = |line: &str| {
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&style.paint(Ink::Title, &clean(&chart.title)));
    let quiet = |text: &str| style.paint(Ink::Quiet, text);
    let subtitle = wrap(&clean(&chart.subtitle), style.width - INDENT);
    for part in subtitle.iter().filter(|part| !part.is_empty()) {
        line(&format!("{:INDENT$}{}", "", quiet(part)));
    }
    line(&format!("{:INDENT$}{}", "", quiet(chart.y.label())));
    let cells = grid.cells(&chart.curves);
    for (row, cells) in cells.iter().enumerate() {
        let label = axis_y
            .ticks
            .iter()
            .find(|(value, _)| grid.row(*value) == Some(row));
        let (label, tick) = label.map_or(("", '│'), |(_, label)| (label, '┤'));
        let mut out = quiet(&format!("{label:>labels$} {tick}"));
        for cell in cells {
            match cell {
                Some(n) => {
                    let (ink, mark) = mark(&chart.curves[*n], *n);
                    out.push_str(&style.paint(ink, &mark.to_string()));
                }
                None => out.push(' '),
            }
        }
        line(&out);
    }
    for part in grid.foot(labels) {
        line(&quiet(&part));
    }
    let end = columns(chart.x.label());
    let lead = (labels + 2 + width).saturating_sub(end);
    line(&quiet(&format!("{:lead$}{}", "", chart.x.label())));
    for part in legend(chart, style, labels + 2) {
        line(&part);
    }
    text
}

struct Grid<'a> {
    axis_x: &'a FittedAxis,
    axis_y: &'a FittedAxis,
    width: usize,
    rows: usize,
}

impl Grid<'_> {
    fn column(&self, x: f64) -> Option<usize> {
        let at = self.axis_x.position(x)?;
        Some((at * (self.width - 1) as f64).round() as usize)
    }

    /// From the top.
    fn row(&self, y: f64) -> Option<usize> {
        let at = 1.0 - self.axis_y.position(y)?;
        Some((at * (self.rows - 1) as f64).round() as usize)
    }

    /// Which curve, if any, is in each cell.
    fn cells(&self, curves: &[Curve]) -> Vec<Vec<Option<usize>>> {
        let mut cells = vec![vec![None; self.width]; self.rows];
        // the first curves are drawn last: the others are compared with them
        for (n, curve) in curves.iter().enumerate().rev() {
            match curve.look {
                Look::Line | Look::Marked => self.put_line(n, curve, &mut cells),
                Look::Bars => {
                    for &(x, y) in &curve.points {
                        let (Some(column), Some(row)) = (self.column(x), self.row(y)) else {
                            continue;
                        };
                        cells[row..]
                            .iter_mut()
                            .for_each(|row| row[column] = Some(n));
                    }
                }
                Look::Cells => self.put_cells(n, curve, &mut cells),
            }
        }
        cells
    }

    fn put_line(&self, n: usize, curve: &Curve, cells: &mut [Vec<Option<usize>>]) {
        let foot = self.rows - 1;
        let mut before = None;
        for &(x, y) in &curve.points {
            let Some(column) = self.column(x) else {
                continue;
            };
            let row = self.row(y).unwrap_or(foot);
            for (column, row) in steps(before.unwrap_or((column, row)), (column, row)) {
                cells[row][column] = Some(n);
            }
            before = Some((column, row));
        }
    }

    /// Of several shades in one place the darkest shows, which comes first.
    fn put_cells(&self, n: usize, curve: &Curve, cells: &mut [Vec<Option<usize>>]) {
        let edges = |from: f64, to: f64, most: usize| {
            let [from, to] = [from, to].map(|at| (at * most as f64).round() as usize);
            let from = from.min(most - 1);
            from..to.clamp(from + 1, most)
        };
        for corners in curve.points.chunks_exact(2) {
            let x = |i: usize| self.axis_x.position(corners[i].0);
            let y = |i: usize| self.axis_y.position(corners[i].1);
            let (Some(left), Some(right), Some(bottom), Some(top)) = (x(0), x(1), y(0), y(1))
            else {
                continue;
            };
            for row in edges(1.0 - top, 1.0 - bottom, self.rows) {
                for column in edges(left, right, self.width) {
                    cells[row][column].get_or_insert(n);
                }
            }
        }
    }

    /// The axis and its labels.
    fn foot(&self, labels: usize) -> [String; 2] {
        let mut axis = vec!['─'; self.width];
        let mut text = vec![' '; self.width];
        for (value, label) in &self.axis_x.ticks {
            let Some(at) = self.column(*value) else {
                continue;
            };
            axis[at] = '┴';
            let label: Vec<char> = label.chars().collect();
            let start = at
                .saturating_sub(label.len() / 2)
                .min(self.width.saturating_sub(label.len()));
            let end = (start + label.len()).min(self.width);
            let clear = start.saturating_sub(1)..(end + 1).min(self.width);
            if text[clear].iter().all(|c| *c == ' ') {
                text[start..end].copy_from_slice(&label[..end - start]);
            }
        }
        [
            format!("{:labels$} └{}", "", String::from_iter(axis)),
            format!("{:labels$}  {}", "", String::from_iter(text).trim_end()),
        ]
    }
}

/// The cells on the way from one to the other, without the first and with the last.
fn steps(from: (usize, usize), to: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let length = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
    let between = move |a: usize, b: usize, step: usize| {
        let part = step as f64 / length as f64;
        (a as f64 + (b as f64 - a as f64) * part).round() as usize
    };
    (1..=length).map(move |step| (between(from.0, to.0, step), between(from.1, to.1, step)))
}

fn legend(chart: &Chart, style: Style, lead: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (" ".repeat(lead), lead);
    for (n, curve) in chart.drawn() {
        let (ink, mark) = mark(curve, n);
        let label = clean(&curve.label);
        let width = columns(&label) + 5;
        if used > lead && used + width > style.width {
            lines.push(std::mem::replace(&mut line, " ".repeat(lead)));
            used = lead;
        }
        line.push_str(&format!(
            "{} {label}   ",
            style.paint(ink, &mark.to_string())
        ));
        used += width;
    }
    lines.push(line);
    lines
}
