//! The result on one screen: what to believe, how far from the ideal, why, what would help, what next.

use taillab_model::explanation::{
    Cause, CauseShare, Explanation, Finding, PredictedPoint, Prediction,
};

use super::page::{Page, RESERVATIONS};
use crate::causes::wholes_table;
use crate::document::Document;
use crate::explained;
use crate::figures::counted;
use crate::reservations;
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
/// Findings on the screen: the main cause, and what no other part of it shows.
const FINDINGS: usize = 2;
/// A forecast that leaves more than this of the percentile is not worth a line.
const WORTH_TRYING: f64 = 0.95;

/// It is recommended for what it does from this percentile on.
const LEAST_TAIL: f64 = 0.99;

/// Lines of a screen.
const LINES: usize = 45;

/// How much of its optional parts a screen shows.
#[derive(Clone, Copy)]
struct Room {
    reservations: usize,
    findings: usize,
    /// What the change of the best forecast costs: `tune plan`, which the screen names, says it too.
    costs: bool,
    /// The stages around each percentile, where nothing is compared with an ideal.
    stages: bool,
}

/// The result on one screen; `saved_in` is the page of the report, if it was saved, and `next`
/// what can be done with the result. Everything else is in [`render`](super::render).
pub fn screen(
    document: &Document<'_>,
    saved_in: Option<&str>,
    next: &[NextStep],
    style: Style,
) -> String {
    let room = |(reservations, findings)| Room {
        reservations,
        findings,
        costs: true,
        stages: true,
    };
    let rooms = [
        (RESERVATIONS, FINDINGS),
        (RESERVATIONS - 1, FINDINGS),
        (RESERVATIONS - 1, 1),
        (1, 1),
    ];
    let least = Room {
        costs: false,
        stages: false,
        ..room((1, 1))
    };
    let draw = |room| drawn(document, saved_in, next, style, room);
    (rooms.into_iter().map(room).map(draw))
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
    page.chief_reservations(document, room.reservations);
    page.assertions(&report.assertions);
    for (name, fact) in super::report::chief_facts(document) {
        page.fact(name, &fact);
    }
    if let Some(place) = saved_in {
        page.fact("saved in", place);
    }
    page.latency_of_server(document);
    if room.stages && !report.server.ideal.is_compared() {
        page.stages_at(document);
    }
    if let Some(explanation) = &report.server.explanation {
        let forecast = best(&report.server.predictions);
        let chief = chief_findings(explanation, room.findings);
        page.chief_found(&chief, forecast);
        page.chief_causes(document, chief.iter().any(is_of_chance));
        if let Some(forecast) = forecast {
            page.best_forecast(document, forecast, room.costs);
        }
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
    /// What must be known before the first figure, and is said nowhere else on the screen.
    fn chief_reservations(&mut self, document: &Document<'_>, most: usize) {
        let report = document.report;
        let schedule = schedule::notably_off_schedule(report);
        let told = reservations::told(report, schedule.is_some());
        let reservations = reservations::of(&report.verdict, &told);
        let lines = reservations::lines(&reservations, schedule.as_ref());
        self.verdict_lines(&report.verdict, &lines, most);
    }

    /// These findings, without the command of the forecast, which follows below.
    fn chief_found(&mut self, chief: &[&Finding], forecast: Option<&Prediction>) {
        if chief.is_empty() {
            return;
        }
        self.heading("What was found", "");
        let command = forecast.and_then(|forecast| forecast.command.as_ref());
        for finding in chief {
            self.found_text(finding);
            if let Some(advice) = finding.advice.as_ref().filter(|of| Some(*of) != command) {
                self.advice(advice);
            }
        }
    }

    /// The largest causes above p99 whose interval does not reach 0.
    fn chief_causes(&mut self, document: &Document<'_>, doubt_is_told: bool) {
        let (causes, of) = (&document.report.server.causes, document.shared_out());
        let above = |row: &&CauseShare| row.excess_share_above_p99;
        let mut chief: Vec<&CauseShare> = (causes.iter())
            .filter(|row| row.culprit.is_none() && above(row).is_sure())
            .filter(|row| above(row).value >= explained::LEAST_IN_TABLE)
            .collect();
        chief.sort_by(|a, b| above(b).value.total_cmp(&above(a).value));
        chief.truncate(CAUSES);
        let doubt = explained::doubt_sentence(causes, of).filter(|_| !doubt_is_told);
        if chief.is_empty() && doubt.is_none() {
            return;
        }
        let has_intervals = chief.iter().any(|row| above(row).lo.is_some());
        let note = match has_intervals || chief.is_empty() {
            true => "share of it above p99, with its 95 % interval",
            false => "share of it above p99; too few bursts for an interval",
        };
        self.heading(of.heading(), note);
        if !chief.is_empty() {
            self.table(&wholes_table(&chief, causes));
        }
        if let Some(doubt) = doubt {
            self.paragraph(Ink::Quiet, &doubt);
        }
    }

    fn best_forecast(&mut self, document: &Document<'_>, best: &Prediction, costs: bool) {
        let mut best = best.clone();
        best.cost = best.cost.filter(|_| costs);
        self.heading("What would help most", "as forecast by the replay");
        self.forecasts(&[&best]);
        let others = document.report.server.predictions.len() - 1;
        if others > 0 {
            let more = counted(others as u64, "other forecast", "other forecasts");
            self.paragraph(Ink::Quiet, &format!("{more}: -v"));
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

/// At most this number of findings: the first about a cause, since the table has the others, and those about
/// something else.
fn chief_findings(explanation: &Explanation, most: usize) -> Vec<&Finding> {
    let findings = explanation.findings.iter();
    let main = findings.clone().find(|finding| finding.cause.is_some());
    let chief = findings.filter(|finding| {
        finding.cause.is_none() || main.is_some_and(|main| std::ptr::eq(main, *finding))
    });
    chief.take(most).collect()
}

/// Whether it says that causes may be due to chance.
fn is_of_chance(finding: &&Finding) -> bool {
    let is_known = |cause: Cause| !matches!(cause, Cause::Unexplained | Cause::Unobserved);
    finding.inconclusive && finding.cause.is_some_and(is_known)
}

/// The best forecast of a change that somebody can make, if it is worth making.
fn best(predictions: &[Prediction]) -> Option<&Prediction> {
    let is_surely_better =
        |point: &PredictedPoint| point.hi_ns.is_none_or(|hi| hi < point.measured_ns);
    let worth = |prediction: &&Prediction| {
        // a percentile that the replay knows only from below says nothing against the one before it
        let mut tail = prediction.points.iter().rev();
        let is_only = prediction.points.len() == 1;
        let far = tail.find(|point| is_surely_better(point) && (is_only || point.q >= LEAST_TAIL));
        far.is_some_and(|far| {
            far.predicted_ns.get() as f64 <= WORTH_TRYING * far.measured_ns.get() as f64
        })
    };
    let mut changes = predictions.iter().filter(worth);
    // those that can be made by a command come first
    let by_command = changes.clone().find(|change| change.command.is_some());
    by_command.or_else(|| changes.find(|change| change.cost.is_some()))
}
