//! The live view of a trace: a screen that is redrawn each second.
//!
//! A pure function from the figures to lines; the caller owns the terminal.

use taillab_model::explanation::{CauseShare, Origin};
use taillab_model::summary::{Matching, Observer, ServerResult};
use taillab_model::{Nanos, Stage};

use crate::figures::{bytes, counted, mean_length, percent, percent_of, rate};
use crate::table::{Column, Table, cell, length};
use crate::text::{Ink, Style, WIDEST, clean, columns};
use crate::{explained, stages};

/// Figures over a period: the last second, or all since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Responses per second.
    pub rate_per_s: f64,
    /// Median sojourn; `None` where the requests are too few.
    pub p50: Option<Nanos>,
    /// p99 of the sojourn.
    pub p99: Option<Nanos>,
    /// p99.9 of the sojourn.
    pub p999: Option<Nanos>,
    /// Mean stages of the complete requests in nanoseconds; `None` without one.
    pub mean_stages_ns: Option<[f64; 5]>,
    /// How responses were matched, and which events were lost.
    pub matching: Matching,
    /// Causes of the excess, as a result has them; empty where they are not known.
    pub causes: Vec<CauseShare>,
}

impl Moment {
    /// The figures of a result over that period.
    pub fn of(result: &ServerResult, rate_per_s: f64) -> Self {
        let sojourn = &result.measured.sojourn;
        let stages = &result.stages;
        let means = stages::all(stages).map(|stage| stage.mean);
        let mean_stages_ns =
            (means.iter().all(Option::is_some)).then(|| means.map(|mean| mean.unwrap_or_default()));
        Self {
            rate_per_s,
            p50: sojourn.quantile(0.5),
            p99: sojourn.quantile(0.99),
            p999: sojourn.quantile(0.999),
            mean_stages_ns,
            matching: result.matching.clone(),
            causes: result.causes.clone(),
        }
    }
}

/// Everything that the screen shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screen {
    /// What is traced.
    pub target: String,
    /// The time since the start.
    pub elapsed: Nanos,
    /// How long the trace lasts; `None` if it lasts until it is stopped.
    pub total: Option<Nanos>,
    /// The last second.
    pub last: Moment,
    /// All since the start.
    pub whole: Moment,
    /// p99 of each second, the oldest first; `None` where a second had too few requests.
    pub p99_history: Vec<Option<Nanos>>,
    /// What the observation costs.
    pub observer: Option<Observer>,
    /// A remark for the last line, such as where the recording goes.
    pub note: Option<String>,
}

/// Eighths of a cell, from the bottom.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The lines are made for at least this width, and cut to a smaller one.
const NARROWEST: usize = 40;
/// Below this width not every line fits.
const NEEDED: usize = 60;

impl Screen {
    /// The screen in at most `height` lines, none of them wider than `style.width`.
    ///
    /// Where there is little room, what matters least is left out: first the remark, then
    /// the observer, stages, causes, history.
    pub fn lines(&self, style: Style, height: usize) -> Vec<String> {
        let wide = Style {
            width: style.width.clamp(NARROWEST, WIDEST),
            ..style
        };
        let note = self.note.iter().map(|note| {
            let note = format!("  {}", clean(note));
            wide.paint(Ink::Quiet, &cut(&note, wide.width))
        });
        // each with its rank: the smaller, the longer it stays when there is little room
        let mut blocks = vec![
            (0, vec![self.title(wide)]),
            (1, self.latency(wide)),
            (3, self.history(wide)),
            (4, self.causes(wide)),
            (5, self.stages(wide)),
            (2, self.matching(wide)),
            (6, self.observer(wide)),
            (7, note.collect()),
        ];
        blocks.retain(|(_, lines)| !lines.is_empty());
        let count = |blocks: &[(u8, Vec<String>)]| -> usize {
            blocks.iter().map(|(_, lines)| lines.len()).sum()
        };
        while count(&blocks) > height && blocks.len() > 1 {
            let least = blocks.iter().map(|(rank, _)| *rank).max();
            blocks.retain(|(rank, _)| Some(*rank) != least);
        }
        // empty lines before the first parts, as far as there is room
        let mut spare = height.saturating_sub(count(&blocks));
        let mut screen = Vec::new();
        for (i, (_, lines)) in blocks.into_iter().enumerate() {
            if i > 0 && spare > 0 {
                screen.push(String::new());
                spare -= 1;
            }
            screen.extend(lines);
        }
        screen.truncate(height);
        if style.width < NEEDED {
            screen = screen
                .iter()
                .map(|line| cut_painted(line, style.width))
                .collect();
        }
        screen
    }

    fn title(&self, style: Style) -> String {
        let elapsed = clock(self.elapsed);
        let time = match self.total {
            Some(total) => format!("{elapsed} of {}", clock(total)),
            None => elapsed,
        };
        let room = style.width.saturating_sub(columns(&time) + 2);
        let title = cut(&clean(&format!("taillab trace {}", self.target)), room);
        let gap = style.width.saturating_sub(columns(&title) + columns(&time));
        format!("{}{:gap$}{time}", style.paint(Ink::Title, &title), "")
    }

    fn latency(&self, style: Style) -> Vec<String> {
        let gap = if style.width < NEEDED { 1 } else { 4 };
        let heads = ["requests/s", "p50", "p99", "p99.9"].map(|head| Column::right(head).gap(gap));
        let mut table = Table::new("", [Column::left("")].into_iter().chain(heads));
        for (name, moment) in [("last second", &self.last), ("since start", &self.whole)] {
            table.row([
                cell(name),
                cell(rate(moment.rate_per_s)),
                length(moment.p50),
                length(moment.p99).ink(Ink::Measured),
                length(moment.p999).ink(Ink::Measured),
            ]);
        }
        let mut lines = table.lines(style);
        let lacks = |moment: &Moment| {
            moment.matching.responses > 0 && (moment.p99.is_none() || moment.p999.is_none())
        };
        if lacks(&self.last) || lacks(&self.whole) {
            lines.push(style.paint(Ink::Quiet, "  – too few requests in that time"));
        }
        lines
    }

    /// p99 of each second as a row of blocks, on a logarithmic scale.
    fn history(&self, style: Style) -> Vec<String> {
        let room = style.width.saturating_sub(4);
        let shown = &self.p99_history[self.p99_history.len().saturating_sub(room)..];
        let known = || shown.iter().flatten().map(|time| time.get().max(1));
        let (Some(least), Some(most)) = (known().min(), known().max()) else {
            return Vec::new();
        };
        let (low, high) = ((least as f64).ln(), (most as f64).ln());
        let block = |time: &Option<Nanos>| match time {
            None => ' ',
            Some(_) if high - low < 1e-9 => BLOCKS[0],
            Some(time) => {
                let at = ((time.get().max(1) as f64).ln() - low) / (high - low);
                BLOCKS[((at * 8.0) as usize).min(7)]
            }
        };
        let bar: String = shown.iter().map(block).collect();
        let head = format!(
            "  p99 of each second, from {} to {} (logarithmic)",
            Nanos::new(least),
            Nanos::new(most)
        );
        vec![
            style.paint(Ink::Quiet, &cut(&head, style.width)),
            format!("  {}", style.paint(Ink::Measured, &bar)),
        ]
    }

    /// The largest causes of the last second, or of the whole trace if that second has none.
    fn causes(&self, style: Style) -> Vec<String> {
        const MOST: usize = 5;
        let (name, causes) = if self.last.causes.is_empty() {
            ("since the start", &self.whole.causes)
        } else {
            ("of the last second", &self.last.causes)
        };
        let mut rows = explained::culprits(causes);
        // one second has too few requests above p99, so the shares are of its whole excess
        rows.sort_by(|a, b| b.share.value.total_cmp(&a.share.value));
        if rows.is_empty() {
            return Vec::new();
        }
        let head = format!("  largest causes of the excess {name}");
        let mut lines = vec![style.paint(Ink::Quiet, &cut(&head, style.width))];
        for row in rows.iter().take(MOST) {
            let share = row.share.value.clamp(0.0, 1.0);
            const BAR: usize = 12;
            let filled = (share * BAR as f64).round() as usize;
            let ink = match row.cause.info().origin {
                Origin::Unknown => Ink::Quiet,
                _ => Ink::Measured,
            };
            let bar = style.paint(ink, &"█".repeat(filled));
            let what = explained::cause_and_culprit(row.cause, row.culprit.as_ref());
            let lead = format!(
                "  {:>7} {bar}{:2$} ",
                percent(row.share.value, 1),
                "",
                BAR - filled
            );
            lines.push(format!(
                "{lead}{}",
                cut(&clean(&what), style.width - 11 - BAR)
            ));
        }
        lines
    }

    fn stages(&self, style: Style) -> Vec<String> {
        let moment = if self.last.mean_stages_ns.is_some() {
            &self.last
        } else {
            &self.whole
        };
        let Some(stages) = moment.mean_stages_ns else {
            return Vec::new();
        };
        let total: f64 = stages.iter().sum();
        let mut lines = vec![style.paint(Ink::Quiet, "  mean stages")];
        let mut line = String::from(" ");
        for (stage, ns) in Stage::ALL.into_iter().zip(stages) {
            let share = if total > 0.0 { ns / total } else { 0.0 };
            let length = mean_length(ns);
            let text = format!(" {} {length} ({}) ", stage.label(), percent(share, 0));
            if columns(&line) + columns(&text) > style.width {
                lines.push(std::mem::replace(&mut line, String::from(" ")));
            }
            line.push_str(&text);
        }
        lines.push(line);
        for line in &mut lines {
            line.truncate(line.trim_end().len());
        }
        lines
    }

    fn matching(&self, style: Style) -> Vec<String> {
        let m = &self.whole.matching;
        if m.responses == 0 {
            return vec![style.paint(Ink::Quiet, "  no response yet")];
        }
        let mut parts: Vec<(Ink, String)> = [
            counted(m.responses, "response", "responses"),
            format!("{} matched", percent_of(m.matched, m.responses)),
            format!("{} complete", percent_of(m.complete, m.asked())),
        ]
        .map(|part| (Ink::Plain, part))
        .into();
        for (n, one, several) in [
            (m.ambiguous, "ambiguous", "ambiguous"),
            (m.lost_events, "event lost", "events lost"),
            (m.blind_windows, "blind window", "blind windows"),
        ] {
            if n > 0 {
                parts.push((Ink::Notable, counted(n, one, several)));
            }
        }
        flow(&parts, style)
    }

    fn observer(&self, style: Style) -> Vec<String> {
        let Some(o) = &self.observer else {
            return Vec::new();
        };
        let mut parts = vec![format!(
            "taillab itself: {} of a CPU, {}",
            percent(o.cpu_share, 1),
            bytes(o.peak_memory_bytes as f64)
        )];
        if let Some(ns) = o.program_ns_per_request {
            parts.push(format!("{} in the kernel per request", mean_length(ns)));
        }
        if o.written_bytes_per_s > 0.0 {
            parts.push(format!("{}/s to disk", bytes(o.written_bytes_per_s)));
        }
        let parts: Vec<(Ink, String)> = parts.into_iter().map(|part| (Ink::Quiet, part)).collect();
        flow(&parts, style)
    }
}

/// The parts, separated by commas, on as many lines as they need.
fn flow(parts: &[(Ink, String)], style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::from("  "), 2);
    for (i, (ink, text)) in parts.iter().enumerate() {
        let end = if i + 1 == parts.len() { "" } else { "," };
        let text = cut(text, style.width - 3);
        if used > 2 && used + 1 + columns(&text) + end.len() > style.width {
            lines.push(std::mem::replace(&mut line, String::from("  ")));
            used = 2;
        }
        if used > 2 {
            line.push(' ');
            used += 1;
        }
        used += columns(&text) + end.len();
        line.push_str(&format!("{}{end}", style.paint(*ink, &text)));
    }
    lines.push(line);
    lines
}

/// `3:07`, `1:02:05`.
fn clock(length: Nanos) -> String {
    let s = length.get() / 1_000_000_000;
    let (h, m, s) = (s / 3_600, s / 60 % 60, s % 60);
    if h > 0 {
        format!("{h}:{m:02}:{s:02}")
    } else {
        format!("{m}:{s:02}")
    }
}

/// The text, or as much of it as fits, with … at its end.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    if width == 0 {
        kept
    } else {
        format!("{kept}…")
    }
}

/// The same for text with colours, which take no room.
fn cut_painted(line: &str, width: usize) -> String {
    let mut kept = String::new();
    let mut used = 0;
    let mut in_code = false;
    for c in line.chars() {
        in_code |= c == '\u{1b}';
        if in_code {
            kept.push(c);
            in_code = c != 'm';
        } else if used < width {
            kept.push(c);
            used += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_clocks() {
        assert_eq!(clock(Nanos::from_secs(7)), "0:07");
        assert_eq!(clock(Nanos::from_secs(3_725)), "1:02:05");
    }

    #[test]
    fn cutting_keeps_the_colours_whole() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(
            cut_painted("\u{1b}[1mabc\u{1b}[0mdef", 4),
            "\u{1b}[1mabc\u{1b}[0md"
        );
    }
}
