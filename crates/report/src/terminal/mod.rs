//! The result as a person reads it in a terminal.

mod chart;
mod doctor;
mod explanation;
mod load;
mod plot;
mod reproduction;
mod simulation;
mod slowest;
pub(crate) mod text;

use taillab_model::summary::{LoadSummary, Reason, Stages, Verdict};
use taillab_model::{Distribution, Stage};

use self::text::{Ink, Side, Table, clean, columns};
use crate::Document;
use crate::Series;
use crate::figures::{self, count, micros, micros_f64, percent, rate};
use crate::findings::{self, Finding, State};
use crate::latency::{self, Cell, Interval};

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
/// Every line but the headings stands this far in.
const INDENT: usize = 2;

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

    /// Columns between the figures of a table.
    const fn gap(&self) -> usize {
        if self.is_narrow() { 2 } else { 3 }
    }

    const fn is_narrow(&self) -> bool {
        self.style.width < 70
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
        for line in wrap(text, self.style.width - INDENT) {
            let line = self.style.paint(ink, &line);
            self.line(&format!("{:INDENT$}{line}", ""));
        }
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
            self.fact("saved in", &clean(place));
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
        let mut lead = format!(
            "{:INDENT$}{}",
            "",
            self.style.paint(Ink::Quiet, &format!("{name:NAME$}"))
        );
        for line in wrap(fact, self.style.width - INDENT - NAME) {
            self.line(&format!("{lead}{line}"));
            lead = " ".repeat(INDENT + NAME);
        }
    }

    fn latency(&mut self, document: &Document<'_>) {
        // as many intervals as there is room for: the measured one first
        let choices = [
            [true, true, true],
            [false, true, true],
            [false, true, false],
            [false, false, false],
        ];
        let tables = choices.map(|intervals| (intervals, latency_table(document, intervals)));
        let fitting = tables
            .iter()
            .find(|(_, (table, _))| table.width() <= self.style.width);
        let Some(([_, any_interval, _], (table, notes))) = fitting.or(tables.last()) else {
            return;
        };
        self.heading(
            "Latency in µs",
            if *any_interval {
                "with 95 % intervals"
            } else {
                ""
            },
        );
        self.table(table);
        for note in notes {
            self.paragraph(Ink::Quiet, note);
        }
        let excess = &document.report.server.excess;
        if let (Some(p50), Some(p99)) = (excess.quantile(0.5), excess.quantile(0.99)) {
            self.paragraph(
                Ink::Quiet,
                &format!(
                    "Request by request, the excess over its own ideal is {p50} (p50) and {p99} (p99).",
                ),
            );
        }
    }

    fn figure(&mut self, document: &Document<'_>) {
        if let Some(lines) = plot::lines(document.curves, self.style) {
            self.heading("Share of requests that are faster, against time", "");
            for line in lines {
                self.line(&line);
            }
        }
    }

    fn views_explained(&mut self, document: &Document<'_>) {
        self.line("");
        self.paragraph(Ink::Quiet, document.views_explained());
    }

    fn stages(&mut self, document: &Document<'_>) {
        let stages = stage_distributions(&document.report.server.stages);
        let total_ns: f64 = stages.iter().filter_map(|(_, d)| d.mean).sum();
        self.heading(
            "Stages in µs",
            &format!("over {} complete requests", count(stages[0].1.count)),
        );
        let gap = self.gap();
        let mut table = Table::new(&[
            (Side::Left, INDENT),
            (Side::Left, 1),
            (Side::Right, gap),
            (Side::Right, gap),
            (Side::Right, gap),
            (Side::Right, gap),
        ]);
        let share = if self.is_narrow() {
            "share"
        } else {
            "mean share"
        };
        let head = ["", "", "p50", "p99", "p99.9", share];
        table.row(head.map(|name| (Ink::Quiet, name.to_owned())).to_vec());
        let mut notes = Vec::new();
        for (stage, distribution) in stages {
            let mut cells = vec![
                (Ink::Title, span(stage)),
                (Ink::Plain, stage.label().to_owned()),
            ];
            for q in [0.5, 0.99, 0.999] {
                cells.push((
                    Ink::Plain,
                    match latency::quantile(distribution, q) {
                        Cell::Known(value, _) => micros(value),
                        Cell::Unsupported(what) => {
                            notes.push(format!("– {}: {what}", figures::quantile_name(q)));
                            "–".to_owned()
                        }
                    },
                ));
            }
            let share = distribution.mean.map(|mean| mean / total_ns);
            cells.push((
                Ink::Plain,
                share.map_or_else(|| "–".to_owned(), |share| percent(share, 1)),
            ));
            table.row(cells);
        }
        self.table(&table);
        notes.sort();
        notes.dedup();
        for note in notes {
            self.paragraph(Ink::Quiet, &note);
        }
    }

    fn hooks_of_stamps(&mut self, document: &Document<'_>) {
        let hooks = &document.report.server.matching.hooks;
        if hooks.is_empty() {
            return;
        }
        self.heading("Kernel hooks", "");
        let mut table = Table::new(&[(Side::Left, INDENT), (Side::Left, 2)]);
        for hook in hooks {
            table.row(vec![
                (Ink::Title, clean(&hook.stamp)),
                (Ink::Plain, clean(&hook.hook)),
            ]);
        }
        let lines = table.lines(self.style);
        for (line, hook) in lines.iter().zip(hooks) {
            self.line(line);
            let lost = hook.lost_precision.as_deref();
            let text = lost.map(|lost| format!("lacks: {}", clean(lost)));
            for line in wrap(&text.unwrap_or_default(), self.style.width - INDENT - 4) {
                if !line.is_empty() {
                    let line = self.style.paint(Ink::Quiet, &line);
                    self.line(&format!("{:1$}{line}", "", INDENT + 4));
                }
            }
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
        let mut sides = vec![(Side::Right, self.gap()); 2 + Stage::ALL.len()];
        sides[0] = (Side::Left, INDENT);
        let mut table = Table::new(&sides);
        let mut head = vec![
            (Ink::Quiet, String::new()),
            (Ink::Quiet, "sojourn".to_owned()),
        ];
        head.extend(Stage::ALL.map(|stage| (Ink::Quiet, span(stage))));
        table.row(head);
        for at in &document.report.server.stages_at {
            let mut cells = vec![(Ink::Title, figures::quantile_name(at.q))];
            if at.requests == 0 {
                cells.push((Ink::Quiet, "no complete request in the band".to_owned()));
                table.running_row(cells);
                continue;
            }
            let largest = at.mean_stage_ns.iter().copied().fold(0.0, f64::max);
            cells.push((Ink::Plain, micros_f64(at.mean_sojourn_ns)));
            for ns in at.mean_stage_ns {
                let ink = if ns >= largest {
                    Ink::Title
                } else {
                    Ink::Plain
                };
                cells.push((ink, micros_f64(ns)));
            }
            table.row(cells);
        }
        self.table(&table);
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
                for line in wrap(&clean(text), self.style.width - lead) {
                    self.line(&format!("{lead_text}{line}"));
                    lead_text = " ".repeat(lead);
                }
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
                let mut lead = format!("{:INDENT$}{} ", "", self.style.paint(ink, mark));
                for line in wrap(&clean(text), self.style.width - INDENT - 2) {
                    self.line(&format!("{lead}{line}"));
                    lead = " ".repeat(INDENT + 2);
                }
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
                clean(&load.arrivals.process),
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

/// The main table, with the intervals of ideal, measured and client as `intervals`
/// says, and what its gaps mean.
fn latency_table(document: &Document<'_>, intervals: [bool; 3]) -> (Table, Vec<String>) {
    let mut sides = vec![(Side::Left, INDENT)];
    let mut head = vec![(Ink::Quiet, String::new())];
    for (i, (series, _)) in document.views().into_iter().enumerate() {
        sides.push((Side::Right, 3));
        head.push((Ink::of(series), series.label().to_owned()));
        if intervals[i] {
            sides.push((Side::Left, 1));
            head.push((Ink::Quiet, String::new()));
        }
        // the ratio stands after the one of which it is
        if series == Series::Measured {
            sides.push((Side::Right, 2));
            head.push((Ink::Title, "ratio".to_owned()));
        }
    }
    let mut table = Table::new(&sides);
    table.row(head);
    let mut notes = Vec::new();
    for row in latency::rows(document) {
        let name = (Ink::Title, row.name.clone());
        let lacking = |(_, cell): &(Series, Cell)| matches!(cell, Cell::Unsupported(_));
        if let Some((_, Cell::Unsupported(what))) = row.cells.first()
            && row.cells.iter().all(lacking)
        {
            table.running_row(vec![name, (Ink::Quiet, what.clone())]);
            continue;
        }
        let mut cells = vec![name];
        for (i, (series, cell)) in row.cells.iter().enumerate() {
            let (value, interval) = match cell {
                Cell::Known(value, interval) => (
                    micros(*value),
                    interval.map(Interval::micros).unwrap_or_default(),
                ),
                Cell::Unsupported(what) => {
                    notes.push(format!("– {} of {}: {what}", row.name, series.label()));
                    ("–".to_owned(), String::new())
                }
            };
            cells.push((Ink::of(*series), value));
            if intervals[i] {
                cells.push((Ink::Quiet, interval));
            }
            if *series == Series::Measured {
                let ratio = row.ratio.map_or_else(|| "–".to_owned(), figures::ratio);
                cells.push((Ink::Title, ratio));
            }
        }
        table.row(cells);
    }
    (table, notes)
}

fn stage_distributions(stages: &Stages) -> [(Stage, &Distribution); 5] {
    let of = [
        &stages.t1_t2,
        &stages.t2_t3,
        &stages.t3_t4,
        &stages.t4_t5,
        &stages.t5_t6,
    ];
    std::array::from_fn(|i| (Stage::ALL[i], of[i]))
}

/// `T1–T2`.
fn span(stage: Stage) -> String {
    stage.key().to_uppercase().replace('_', "–")
}
