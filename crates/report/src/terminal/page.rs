//! A text under construction, with the parts that several results have.

use taillab_model::REPORTED_QUANTILES;
use taillab_model::explanation::Prediction;
use taillab_model::summary::{Reason, Report, Verdict};
use taillab_model::threshold::{Assertion, AssertionOutcome};

use super::chart;
use crate::causes::predictions_table;
use crate::chart::Chart;
use crate::checks::{State, TrustCheck};
use crate::document::Document;
use crate::figures::{counted, quantile_name};
use crate::latency;
use crate::reservations::{self, Reservation};
use crate::server::{foremost, verdict_word};
use crate::table::Table;
use crate::text::{INDENT, Ink, Style, WIDEST, clean, columns, wrap};

/// Reservations on a screen; the others are counted.
pub(super) const RESERVATIONS: usize = 3;

/// A text under construction.
#[derive(Debug)]
pub struct Page {
    /// How wide it is, and whether it has colours.
    pub style: Style,
    /// What there is of it so far.
    pub text: String,
}

impl Page {
    /// An empty text of this style.
    pub fn new(style: Style) -> Self {
        Self {
            style: Style {
                width: style.width.clamp(40, WIDEST),
                ..style
            },
            text: String::new(),
        }
    }

    /// A line as it is.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A heading after an empty line, with a quiet remark beside it or below it.
    pub fn heading(&mut self, title: &str, remark: &str) {
        let title_text = self.style.paint(Ink::Title, title);
        self.line("");
        if columns(title) + 2 + columns(remark) <= self.style.width {
            let remark = self.style.paint(Ink::Quiet, remark);
            self.line(&format!("{title_text}  {remark}"));
        } else {
            self.line(&title_text);
            self.paragraph(Ink::Quiet, remark);
        }
    }

    /// A text in lines that fit, set in.
    pub fn paragraph(&mut self, ink: Ink, text: &str) {
        self.hanging(&" ".repeat(INDENT), INDENT, ink, text);
    }

    /// A text after `lead`, which takes `width` columns; its further lines begin below it.
    pub fn hanging(&mut self, lead: &str, width: usize, ink: Ink, text: &str) {
        let mut lead = lead.to_owned();
        for line in wrap(&clean(text), self.style.width.saturating_sub(width)) {
            self.line(&format!("{lead}{}", self.style.paint(ink, &line)));
            lead = " ".repeat(width);
        }
    }

    /// A text after a mark.
    pub fn marked(&mut self, ink: Ink, mark: &str, text: &str) {
        let lead = format!("{:INDENT$}{} ", "", self.style.paint(ink, mark));
        self.hanging(&lead, INDENT + 2, Ink::Plain, text);
    }

    /// A table as wide as the page.
    pub fn table(&mut self, table: &Table) {
        for line in table.lines(self.style) {
            self.line(&line);
        }
    }

    /// The first line: the subject and the verdict.
    pub fn title(&mut self, title: &str, (ink, word): (Ink, &str)) {
        let mut lines = wrap(&clean(title), self.style.width);
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            let line = self.style.paint(Ink::Title, &line);
            self.line(&line);
        }
        // the word goes to the end of the last line, or below it if there is no room
        let gap = self.style.width.checked_sub(columns(&last) + columns(word));
        let painted = self.style.paint(Ink::Title, &last);
        let word = self.style.paint(ink, word);
        match gap.filter(|gap| *gap >= 2) {
            Some(gap) => self.line(&format!("{painted}{:gap$}{word}", "")),
            None => {
                self.line(&painted);
                self.line(&word);
            }
        }
    }

    /// The title of a report, with its verdict.
    pub(super) fn title_of<Server>(&mut self, report: &Report<Server>) {
        let (ink, word) = verdict_word(&report.verdict, report.partial);
        let title = format!("taillab {} {}", report.command, report.target);
        self.title(&title, (ink, &word));
    }

    /// The title of a result without a verdict.
    pub fn title_of_done(&mut self, title: &str, partial: bool) {
        let word = match partial {
            true => (Ink::Notable, "PARTIAL"),
            false => (Ink::Good, "DONE"),
        };
        self.title(title, word);
    }

    /// The kernel and the hypervisor.
    pub fn machine(&mut self, kernel: Option<&str>, hypervisor: Option<&str>) {
        let machine = match (kernel, hypervisor) {
            (Some(kernel), Some(hypervisor)) => format!("Linux {kernel} on {hypervisor}"),
            (Some(kernel), None) => format!("Linux {kernel}, no hypervisor seen"),
            (None, _) => "not known".to_owned(),
        };
        self.fact("machine", &machine);
    }

    /// What the reader should know, at the end.
    pub fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.heading("Notes", "");
        }
        for note in notes {
            self.marked(Ink::Notable, "!", note);
        }
    }

    /// Below the title: what must be known before the first figure, and has no key in `told`.
    pub(super) fn reservations(&mut self, verdict: &Verdict, told: &[&str]) {
        let ink = match verdict.valid {
            true => Ink::Notable,
            false => Ink::Bad,
        };
        for text in foremost(verdict, told) {
            self.marked(ink, "!", &text);
        }
    }

    /// What a generator that was held up means for the result.
    pub(super) fn off_schedule(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.marked(Ink::Notable, "!", &text);
        }
    }

    /// Below the title of a screen: why it is invalid, and at most this number of reservations.
    pub(super) fn verdict_lines(&mut self, verdict: &Verdict, reservations: &[&str], most: usize) {
        for Reason { text, .. } in &verdict.reasons {
            self.marked(Ink::Bad, "✗", text);
        }
        for text in reservations.iter().take(most) {
            self.marked(Ink::Notable, "!", text);
        }
        let left = reservations.len().saturating_sub(most);
        if left > 0 {
            let more = counted(left as u64, "more reservation", "more reservations");
            self.paragraph(Ink::Quiet, &format!("and {more}: -v"));
        }
    }

    /// What the dashes of a table mean: the most that any of its rows needs for each quantile.
    pub fn needs(&mut self, needs: &[(f64, u64)], write: impl Fn(u64) -> String) {
        for q in REPORTED_QUANTILES {
            let of_q = needs.iter().filter(|(of, _)| *of == q);
            if let Some(most) = of_q.map(|(_, n)| *n).max() {
                let text = format!("– {}: needs {}", quantile_name(q), write(most));
                self.paragraph(Ink::Quiet, &text);
            }
        }
    }

    /// The limits that the result had to meet.
    pub(super) fn assertions(&mut self, assertions: &[Assertion]) {
        for Assertion {
            assertion,
            outcome,
            text,
        } in assertions
        {
            let (ink, mark, word) = match outcome {
                AssertionOutcome::Pass => (Ink::Good, "✓", "pass"),
                AssertionOutcome::Fail => (Ink::Bad, "✗", "fail"),
                AssertionOutcome::Undecided => (Ink::Notable, "?", "not decided"),
            };
            self.marked(ink, mark, &format!("{assertion}: {word}, {text}"));
        }
    }

    /// A fact with its name before it.
    pub fn fact(&mut self, name: &str, fact: &str) {
        /// The length of the longest name plus 2.
        const NAME: usize = 14;
        let name = self.style.paint(Ink::Quiet, &format!("{name:NAME$}"));
        self.hanging(
            &format!("{:INDENT$}{name}", ""),
            INDENT + NAME,
            Ink::Plain,
            fact,
        );
    }

    /// The latency of a server, with as many intervals as fit; that of the measured latency goes last.
    pub(super) fn latency_of_server(&mut self, document: &Document<'_>) -> Table {
        // the columns of the ideal, of connecting and of the client, then that of the measured latency
        let (ideal, client, measured) = match document.is_compared() {
            true => (1, 4, 2),
            false => (2, 2, 1),
        };
        let table = latency::of_server(document).fit(
            self.style,
            &[
                &|table| table.hide_notes(ideal),
                // where there is one
                &|table| table.hide_notes(client + 1),
                &|table| table.hide_notes(client),
                &|table| table.shorten(),
                &|table| table.hide_notes(measured),
            ],
        );
        self.latency_table(&table);
        let more = [
            latency::with_own_work(document),
            latency::against_schedule(document),
            latency::without_host(document),
        ];
        for text in latency::ratios(document)
            .into_iter()
            .chain(more.into_iter().flatten())
        {
            self.paragraph(Ink::Quiet, &text);
        }
        table
    }

    /// Forecasts, with as many intervals as fit; that of the highest percentile goes last.
    pub(super) fn forecasts(&mut self, predictions: &[&Prediction]) {
        let table = predictions_table(predictions).fit(
            self.style,
            &[
                &|table| table.hide_notes(1),
                &|table| table.hide_notes(2),
                &|table| {
                    table.hide_notes(3);
                    table.shorten();
                },
            ],
        );
        self.table(&table);
    }

    /// A table of latencies, with its heading.
    pub fn latency_table(&mut self, table: &Table) {
        let remark = match table.shows_notes() {
            true => "with 95 % intervals",
            false => "",
        };
        self.heading("Latency in µs", remark);
        self.table(table);
    }

    /// A figure, if it has any points and the terminal is wide enough.
    pub fn chart(&mut self, chart: &Chart) {
        const NARROWEST: usize = 60;
        if !chart.is_empty() && self.style.width >= NARROWEST {
            self.line("");
            self.text.push_str(&chart::render(chart, self.style));
        }
    }

    pub(super) fn checks(&mut self, checks: Vec<TrustCheck>) {
        self.heading("Can it be trusted?", "");
        let name_width = checks
            .iter()
            .map(|check| columns(check.name))
            .max()
            .unwrap_or(0);
        let lead = INDENT + 2 + name_width + 2;
        for check in checks {
            let (ink, mark) = match check.state {
                State::Good => (Ink::Good, "✓"),
                State::Notable => (Ink::Notable, "!"),
                State::Bad => (Ink::Bad, "✗"),
            };
            let mut lead_text = format!(
                "{:INDENT$}{} {:name_width$}  ",
                "",
                self.style.paint(ink, mark),
                check.name,
            );
            for text in &check.lines {
                self.hanging(&lead_text, lead, Ink::Plain, text);
                lead_text = " ".repeat(lead);
            }
        }
    }

    pub(super) fn verdict(&mut self, verdict: &Verdict, partial: bool) {
        let (ink, word) = verdict_word(verdict, partial);
        let meaning = match (verdict.valid, partial) {
            (true, false) if verdict.warnings.is_empty() => "  no problem was found",
            (true, false) => ":",
            (true, true) => "  the measurement ended early; what it recorded is valid",
            (false, _) => "  do not use these figures:",
        };
        self.line("");
        let line = format!("{}{meaning}", self.style.paint(ink, &word));
        self.line(&line);
        for Reason { text, .. } in &verdict.reasons {
            self.marked(Ink::Bad, "✗", text);
        }
        for Reservation { chief, others, .. } in reservations::of(verdict, &[]) {
            self.marked(Ink::Notable, "!", &chief.text);
            for Reason { text, .. } in others {
                self.marked(Ink::Quiet, "·", text);
            }
        }
    }
}
