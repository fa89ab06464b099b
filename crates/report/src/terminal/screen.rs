//! The result on one screen: what to believe, how far from the ideal, why, what would help, what next.

use taillab_model::explanation::{CauseShare, Explanation, Finding, Prediction};

use super::page::{Page, RESERVATIONS};
use crate::causes::wholes_table;
use crate::document::Document;
use crate::explained;
use crate::figures::counted;
use crate::schedule;
use crate::text::{INDENT, Ink, Style, columns};

/// A command that the reader may want to run next, as it is to be typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// The whole command line.
    pub command: String,
    /// What it is for, in a few words.
    pub purpose: String,
}

impl NextStep {
    /// A step.
    pub fn new(command: impl Into<String>, purpose: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            purpose: purpose.into(),
        }
    }
}

/// Causes on the screen.
const CAUSES: usize = 3;
/// Findings on the screen that no other part of it shows.
const FINDINGS: usize = 2;
/// A forecast that leaves more than this of the percentile is not worth a line.
const WORTH_TRYING: f64 = 0.95;

/// Lines of a screen.
const LINES: usize = 45;

/// How much of its optional parts a screen shows.
#[derive(Clone, Copy)]
struct Room {
    reservations: usize,
    findings: usize,
    /// What the change of the best forecast costs: `tune plan`, which the screen names, says it too.
    costs: bool,
}

/// The result on one screen; `saved_in` is the page of the report, if it was saved, and `next`
/// what can be done with the result. Everything else is in [`render`](super::render).
pub fn screen(
    document: &Document<'_>,
    saved_in: Option<&str>,
    next: &[NextStep],
    style: Style,
) -> String {
    let rooms = (1..=RESERVATIONS).rev().map(|reservations| Room {
        reservations,
        findings: FINDINGS,
        costs: true,
    });
    let one_finding = Room {
        reservations: 1,
        findings: 1,
        costs: true,
    };
    let least = Room {
        costs: false,
        ..one_finding
    };
    let draw = |room| drawn(document, saved_in, next, style, room);
    (rooms.chain([one_finding]).map(draw))
        .find(|text| text.lines().count() <= LINES)
        .unwrap_or_else(|| draw(least))
}

fn drawn(
    document: &Document<'_>,
    saved_in: Option<&str>,
    next: &[NextStep],
    style: Style,
    room: Room,
) -> String {
    let report = document.report;
    let mut page = Page::new(style);
    page.title_of(report);
    page.verdict_lines(&report.verdict, room.reservations);
    page.off_schedule(schedule::notably_off_schedule(report));
    page.assertions(&report.assertions);
    for (name, fact) in super::report::chief_facts(document) {
        page.fact(name, &fact);
    }
    if let Some(place) = saved_in {
        page.fact("saved in", place);
    }
    page.latency_of_server(document);
    if let Some(explanation) = &report.server.explanation {
        page.chief_findings(explanation, room.findings);
        page.chief_causes(&report.server.causes);
        page.best_forecast(document, room.costs);
    } else {
        page.line("");
        page.paragraph(Ink::Quiet, explained::NOT_EXPLAINED);
    }
    page.fixes(document);
    page.factorial(document);
    page.next_steps(next);
    page.text
}

impl Page {
    /// What neither the table of causes nor the forecast says.
    fn chief_findings(&mut self, explanation: &Explanation, most: usize) {
        let own = |finding: &&Finding| finding.cause.is_none();
        let chief: Vec<&Finding> = (explanation.findings.iter())
            .filter(own)
            .take(most)
            .collect();
        if chief.is_empty() {
            return;
        }
        self.heading("What was found", "");
        for finding in chief {
            self.finding(finding);
        }
    }

    /// The largest causes of the excess above p99 whose interval does not reach 0.
    fn chief_causes(&mut self, causes: &[CauseShare]) {
        let above = |row: &&CauseShare| row.excess_share_above_p99;
        let mut chief: Vec<&CauseShare> = (causes.iter())
            .filter(|row| row.culprit.is_none() && above(row).is_sure())
            .filter(|row| above(row).value >= explained::LEAST_IN_TABLE)
            .collect();
        chief.sort_by(|a, b| above(b).value.total_cmp(&above(a).value));
        chief.truncate(CAUSES);
        let doubt = explained::doubt_sentence(causes);
        if chief.is_empty() && doubt.is_none() {
            return;
        }
        let has_intervals = chief.iter().any(|row| above(row).lo.is_some());
        let note = match has_intervals || chief.is_empty() {
            true => "share of it above p99, with its 95 % interval",
            false => "share of it above p99; too few bursts for an interval",
        };
        self.heading("Where the excess comes from", note);
        if !chief.is_empty() {
            self.table(&wholes_table(&chief, causes));
        }
        if let Some(doubt) = doubt {
            self.paragraph(Ink::Quiet, &doubt);
        }
    }

    fn best_forecast(&mut self, document: &Document<'_>, costs: bool) {
        let server = &document.report.server;
        if let Some(mut best) = best(&server.predictions).cloned() {
            best.cost = best.cost.filter(|_| costs);
            self.heading("What would help most", "as forecast by the replay");
            self.forecasts(&[&best]);
            let others = server.predictions.len() - 1;
            if others > 0 {
                let more = counted(others as u64, "other forecast", "other forecasts");
                self.paragraph(Ink::Quiet, &format!("{more}: -v"));
            }
        }
    }

    /// The commands to run next, each with its purpose.
    pub(super) fn next_steps(&mut self, next: &[NextStep]) {
        if next.is_empty() {
            return;
        }
        self.heading("Next", "");
        for step in next {
            let command = format!("{:INDENT$}$ {}", "", step.command);
            let lead = format!("{}  ", self.style.paint(Ink::Title, &command));
            let width = columns(&command) + 2;
            if width + columns(&step.purpose) <= self.style.width {
                self.hanging(&lead, width, Ink::Quiet, &step.purpose);
            } else {
                self.line(&lead);
                let indent = INDENT + 2;
                self.hanging(&" ".repeat(indent), indent, Ink::Quiet, &step.purpose);
            }
        }
    }
}

/// The best forecast of a change that somebody can make, if it is worth making.
fn best(predictions: &[Prediction]) -> Option<&Prediction> {
    let worth = |prediction: &&Prediction| {
        let far = prediction.points.last();
        far.is_some_and(|far| {
            let now = far.measured_ns.get() as f64;
            far.predicted_ns.get() as f64 <= WORTH_TRYING * now
                && far.hi_ns.is_none_or(|hi| hi < far.measured_ns)
        })
    };
    let mut changes = predictions.iter().filter(worth);
    // those that can be made by a command come first
    let by_command = changes.clone().find(|change| change.command.is_some());
    by_command.or_else(|| changes.find(|change| change.cost.is_some()))
}
