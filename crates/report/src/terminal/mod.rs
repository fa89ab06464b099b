//! The result as a person reads it in a terminal.

mod chart;
mod doctor;
mod explanation;
mod load;
mod reproduction;
mod simulation;
mod slowest;
pub(crate) mod text;

use std::collections::BTreeSet;

use taillab_model::summary::{LoadSummary, Reason, Verdict};

use self::text::{Ink, clean, columns};
use crate::Document;
use crate::chart::Chart;
use crate::figures::{self, count, rate};
use crate::findings::{self, Finding, State};
use crate::table::Table;
use crate::{latency, stages, tail};

pub use self::chart::render as render_chart;
pub use self::doctor::{Detail, render as render_doctor};
pub use self::load::{render_closed_loop, render_load, render_load_sweep};
pub use self::reproduction::render as render_reproduction;
pub use self::simulation::render as render_simulation;
pub use self::slowest::render as slowest;
pub use self::text::wrap;

/// How the terminal wants its text; the caller decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Use colours: standard output is a terminal and `NO_COLOR` is not set.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Style {
    /// No colours, 80 columns: a file or a pipe.
    pub const PLAIN: Self = Self {
        colour: false,
        width: 80,
    };
}

/// Lines longer than this are hard to read, however wide the terminal is.
const WIDEST: usize = 110;
/// Columns before every line but the headings.
pub(crate) const INDENT: usize = 2;

/// The result on one screen or two, the most important first; `saved_in` is the page of the
/// report, if it was saved.
pub fn render(document: &Document<'_>, saved_in: Option<&str>, style: Style) -> String {
    let report = document.report;
    let mut page = Page::new(style);
    page.header(document, saved_in);
    page.findings(document);
    page.latency(document);
    page.causes(document);
    if report.server.explanation.is_none() {
        page.figure(document);
    }
    page.stages_at(document);
    page.checks(findings::of(document));
    page.verdict(&report.verdict, report.partial);
    page.text
}

/// What the result leaves out: the figure, every cause and every forecast, the workers, the
/// stages by themselves and the kernel hook behind each stamp.
pub fn details(document: &Document<'_>, style: Style) -> String {
    let mut page = Page::new(style);
    page.views_explained(document);
    if document.report.server.explanation.is_some() {
        page.figure(document);
    }
    page.all_causes(document);
    page.stages(document);
    page.hooks_of_stamps(document);
    page.text
}

/// Whether a run can be believed, in one word and its colour.
const fn verdict_word(verdict: &Verdict, partial: bool) -> (Ink, &'static str) {
    match (verdict.valid, partial) {
        (false, false) => (Ink::Bad, "INVALID"),
        (false, true) => (Ink::Bad, "INVALID, PARTIAL"),
        (true, true) => (Ink::Notable, "PARTIAL"),
        (true, false) => (Ink::Good, "VALID"),
    }
}

struct Page {
    style: Style,
    text: String,
}

impl Page {
    fn new(style: Style) -> Self {
        Self {
            style: Style {
                width: style.width.clamp(40, WIDEST),
                ..style
            },
            text: String::new(),
        }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, title: &str, remark: &str) {
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

    fn paragraph(&mut self, ink: Ink, text: &str) {
        self.hanging(&" ".repeat(INDENT), INDENT, ink, text);
    }

    /// A text after `lead`, which takes `width` columns; its further lines begin below it.
    fn hanging(&mut self, lead: &str, width: usize, ink: Ink, text: &str) {
        let mut lead = lead.to_owned();
        for line in wrap(&clean(text), self.style.width.saturating_sub(width)) {
            self.line(&format!("{lead}{}", self.style.paint(ink, &line)));
            lead = " ".repeat(width);
        }
    }

    /// A text after a mark.
    fn marked(&mut self, ink: Ink, mark: &str, text: &str) {
        let lead = format!("{:INDENT$}{} ", "", self.style.paint(ink, mark));
        self.hanging(&lead, INDENT + 2, Ink::Plain, text);
    }

    fn table(&mut self, table: &Table) {
        for line in table.lines(self.style) {
            self.line(&line);
        }
    }

    fn header(&mut self, document: &Document<'_>, saved_in: Option<&str>) {
        let report = document.report;
        self.title(
            &format!("taillab {} {}", report.command, report.target),
            verdict_word(&report.verdict, report.partial),
        );
        let facts = match &report.load {
            Some(load) => load_facts(document, load),
            None => trace_facts(document),
        };
        for (name, fact) in facts {
            self.fact(name, &fact);
        }
        if let Some(place) = saved_in {
            self.fact("saved in", place);
        }
    }

    /// The first line: what it is about, and whether it can be believed.
    fn title(&mut self, title: &str, (ink, word): (Ink, &str)) {
        let mut lines = wrap(&clean(title), self.style.width);
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            let line = self.style.paint(Ink::Title, &line);
            self.line(&line);
        }
        // the word at the end of the last line, or on a line of its own
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

    fn fact(&mut self, name: &str, fact: &str) {
        /// Columns of the longest name, and two.
        const NAME: usize = 14;
        let name = self.style.paint(Ink::Quiet, &format!("{name:NAME$}"));
        self.hanging(
            &format!("{:INDENT$}{name}", ""),
            INDENT + NAME,
            Ink::Plain,
            fact,
        );
    }

    fn latency(&mut self, document: &Document<'_>) {
        // as many intervals as there is room for: the measured one first
        let table = latency::of_server(document).fit(
            self.style,
            &[
                &|table| table.hide_notes(1),
                &|table| table.hide_notes(4),
                &|table| table.hide_notes(2),
            ],
        );
        self.latency_table(&table);
        let lacking: Vec<String> = (table.lacks())
            .map(|(name, head, what)| format!("– {name} of {head}: {what}"))
            .collect();
        for note in lacking {
            self.paragraph(Ink::Quiet, &note);
        }
        if let Some(excess) = figures::excess_sentence(&document.report.server) {
            self.paragraph(Ink::Quiet, &excess);
        }
    }

    fn latency_table(&mut self, table: &Table) {
        let remark = match table.shows_notes() {
            true => "with 95 % intervals",
            false => "",
        };
        self.heading("Latency in µs", remark);
        self.table(table);
    }

    fn figure(&mut self, document: &Document<'_>) {
        // the forecasts would be too many curves for a terminal
        self.chart(&Chart {
            curves: tail::views(document),
            ..tail::chart(document)
        });
    }

    /// A figure, where there is anything to draw and room for it.
    fn chart(&mut self, chart: &Chart) {
        const NARROWEST: usize = 60;
        if !chart.is_empty() && self.style.width >= NARROWEST {
            self.line("");
            self.text.push_str(&render_chart(chart, self.style));
        }
    }

    fn views_explained(&mut self, document: &Document<'_>) {
        self.line("");
        self.paragraph(Ink::Quiet, document.views_explained());
    }

    fn stages(&mut self, document: &Document<'_>) {
        let complete = count(document.report.server.stages.t1_t2.count);
        self.heading(
            "Stages in µs",
            &format!("over {complete} complete requests"),
        );
        let table = stages::distributions(&document.report.server)
            .fit(self.style, &[&|table| table.shorten()]);
        self.table(&table);
        let lacking = table
            .lacks()
            .map(|(_, head, what)| format!("– {head}: {what}"));
        for note in lacking.collect::<BTreeSet<String>>() {
            self.paragraph(Ink::Quiet, &note);
        }
    }

    fn stages_at(&mut self, document: &Document<'_>) {
        if document.report.server.stages_at.is_empty() {
            return;
        }
        self.heading(
            "Where the time goes",
            "mean µs of the complete requests around each percentile",
        );
        self.table(&stages::at_percentiles(&document.report.server));
    }

    fn hooks_of_stamps(&mut self, document: &Document<'_>) {
        let hooks = &document.report.server.matching.hooks;
        if !hooks.is_empty() {
            self.heading("Kernel hooks", "");
            self.table(&findings::hooks_table(hooks));
        }
    }

    fn checks(&mut self, findings: Vec<Finding>) {
        self.heading("Can it be believed?", "");
        let name_width = findings
            .iter()
            .map(|finding| columns(finding.name))
            .max()
            .unwrap_or(0);
        let lead = INDENT + 2 + name_width + 2;
        for finding in findings {
            let (ink, mark) = match finding.state {
                State::Good => (Ink::Good, "✓"),
                State::Notable => (Ink::Notable, "!"),
                State::Bad => (Ink::Bad, "✗"),
            };
            let mut lead_text = format!(
                "{:INDENT$}{} {:name_width$}  ",
                "",
                self.style.paint(ink, mark),
                finding.name,
            );
            for text in &finding.lines {
                self.hanging(&lead_text, lead, Ink::Plain, text);
                lead_text = " ".repeat(lead);
            }
        }
    }

    fn verdict(&mut self, verdict: &Verdict, partial: bool) {
        let (ink, word) = verdict_word(verdict, partial);
        let meaning = match (verdict.valid, partial) {
            (true, false) => "nothing speaks against this result",
            (true, true) => "the measurement ended before its time; what there is can be believed",
            (false, _) => "do not use these figures:",
        };
        self.line("");
        let line = format!("{}  {meaning}", self.style.paint(ink, word));
        self.line(&line);
        for (ink, mark, reasons) in [
            (Ink::Bad, "✗", &verdict.reasons),
            (Ink::Notable, "!", &verdict.warnings),
        ] {
            for Reason { text, .. } in reasons {
                self.marked(ink, mark, text);
            }
        }
    }
}

/// What the head says of a server under a load of ours.
fn load_facts(document: &Document<'_>, load: &LoadSummary) -> Vec<(&'static str, String)> {
    let report = document.report;
    vec![
        (
            "load",
            format!(
                "{} of {}/s on {} = {} utilisation, {}",
                rate(load.target_rate_per_s),
                rate(figures::capacity_per_s(&report.server)),
                figures::workers(&report.server),
                figures::known_percent(load.target_utilization),
                load.arrivals.process,
            ),
        ),
        (
            "service time",
            format!(
                "t = {} = {}",
                report.server.service_time_ns,
                figures::service_time_origin(document),
            ),
        ),
        (
            "measured",
            format!(
                "{} in {}, from {}",
                figures::counted(load.requests, "request", "requests"),
                load.duration_ns,
                figures::utc(report.started_unix_s)
            ),
        ),
    ]
}

/// What the head says of a server that was watched.
fn trace_facts(document: &Document<'_>) -> Vec<(&'static str, String)> {
    let report = document.report;
    let server = &report.server;
    vec![
        (
            "traced",
            format!(
                "{} in {} = {}/s, from {}",
                figures::counted(server.matching.responses, "response", "responses"),
                report.duration_ns,
                rate(report.arrival_rate_per_s),
                figures::began(report.started_unix_s)
            ),
        ),
        (
            "service time",
            format!(
                "t = {} = {}; {} {} utilised",
                server.service_time_ns,
                figures::service_time_origin(document),
                figures::workers(server),
                figures::known_percent(Some(server.ideal.utilization)),
            ),
        ),
    ]
}
