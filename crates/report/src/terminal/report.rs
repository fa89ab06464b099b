//! The result of a run or of a trace, and the details that it leaves out.

use std::collections::BTreeSet;

use taillab_model::summary::LoadSummary;

use super::page::Page;
use crate::chart::Chart;
use crate::document::Document;
use crate::figures::{self, rate};
use crate::table::Table;
use crate::text::{Ink, Style};
use crate::{bursts, checks, reservations, schedule, server, stages, tail};

/// The result on one screen or two, the most important first; `saved_in` is the page of the
/// report, if it was saved.
pub fn render(document: &Document<'_>, saved_in: Option<&str>, style: Style) -> String {
    let report = document.report;
    let mut page = Page::new(style);
    page.header(document, saved_in);
    page.findings(document);
    page.latency(document);
    page.causes(document);
    page.fixes(document);
    page.factorial(document);
    if report.server.explanation.is_none() {
        page.figure(document);
    }
    page.stages_at(document);
    page.application(document);
    page.checks(checks::of(document));
    page.verdict(&report.verdict, report.partial);
    page.assertions(&report.assertions);
    page.text
}

/// What the result leaves out: the figure, every cause and every forecast, the workers, the
/// stages by themselves, the servers that this one asks, and the kernel hook behind each stamp.
pub fn details(document: &Document<'_>, style: Style) -> String {
    let mut page = Page::new(style);
    page.views_explained(document);
    if document.report.server.explanation.is_some() {
        page.figure(document);
    }
    page.all_causes(document);
    page.bursts(document);
    page.stages(document);
    page.upstreams(document);
    page.hooks_of_stamps(document);
    page.text
}

impl Page {
    fn header(&mut self, document: &Document<'_>, saved_in: Option<&str>) {
        let report = document.report;
        self.title_of(report);
        let schedule = schedule::off_schedule_in_numbers(report);
        let told = reservations::told(report, schedule.is_some());
        self.reservations(&report.verdict, &told);
        self.off_schedule(schedule);
        for (name, fact) in facts(document, true) {
            self.fact(name, &fact);
        }
        if let Some(place) = saved_in {
            self.fact("saved in", place);
        }
    }

    fn latency(&mut self, document: &Document<'_>) {
        let table = self.latency_of_server(document);
        let lacking: Vec<String> = (table.lacks())
            .map(|(name, head, what)| format!("– {name} of {head}: {what}"))
            .collect();
        for note in lacking {
            self.paragraph(Ink::Quiet, &note);
        }
        if let Some(excess) = server::excess_sentence(&document.report.server) {
            self.paragraph(Ink::Quiet, &excess);
        }
    }

    fn figure(&mut self, document: &Document<'_>) {
        // the forecasts would be too many curves for a terminal
        self.chart(&Chart {
            curves: tail::views(document),
            ..tail::chart(document)
        });
    }

    /// The heat map, and how slow requests follow each other.
    fn bursts(&mut self, document: &Document<'_>) {
        let Some(explanation) = &document.report.server.explanation else {
            return;
        };
        let clustering = explanation.clustering.as_ref();
        let lags = clustering.and_then(bursts::autocorrelation);
        for chart in [bursts::heat_map(&explanation.heat_map), lags] {
            chart.iter().for_each(|chart| self.chart(chart));
        }
    }

    fn views_explained(&mut self, document: &Document<'_>) {
        self.line("");
        self.paragraph(Ink::Quiet, &document.views_explained());
    }

    fn stages(&mut self, document: &Document<'_>) {
        let complete = document.report.server.stages.t1_t2.count;
        let complete = figures::counted(complete, "complete request", "complete requests");
        self.heading("Stages in µs", &format!("over {complete}"));
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

    /// The stages of the requests around each percentile.
    pub(super) fn stages_at(&mut self, document: &Document<'_>) {
        if document.report.server.stages_at.is_empty() {
            return;
        }
        self.heading(
            "Where the time goes",
            "mean µs of the complete requests around each percentile",
        );
        self.table(&stages::at_percentiles(&document.report.server));
    }

    /// What the server did between T4 and T5.
    fn application(&mut self, document: &Document<'_>) {
        self.titled(
            "T4–T5 by what the server did",
            "mean µs around each percentile",
            stages::application(&document.report.server),
        );
    }

    /// How long other servers take to answer this one.
    fn upstreams(&mut self, document: &Document<'_>) {
        self.titled(
            "Other servers that it asks",
            "µs from the question to the first data of the answer",
            stages::upstreams(&document.report.server),
        );
    }

    /// A table under its heading; nothing where there is none.
    fn titled(&mut self, title: &str, note: &str, table: Option<Table>) {
        if let Some(table) = table {
            self.heading(title, note);
            self.table(&table);
        }
    }

    fn hooks_of_stamps(&mut self, document: &Document<'_>) {
        let hooks = &document.report.server.matching.hooks;
        if !hooks.is_empty() {
            self.heading("Kernel hooks", "");
            self.table(&checks::hooks_table(hooks));
        }
    }
}

/// What the head says, with the date or without it.
fn facts(document: &Document<'_>, is_dated: bool) -> Vec<(&'static str, String)> {
    let began = document.report.started_unix_s;
    let date = |text: String| {
        if is_dated {
            format!(", from {text}")
        } else {
            String::new()
        }
    };
    match &document.report.load {
        Some(load) => load_facts(document, load, &date(figures::utc(began))),
        None => trace_facts(document, &date(figures::began(began))),
    }
}

/// What the head of a screen says: without the origin of the service time and the date.
pub(super) fn chief_facts(document: &Document<'_>) -> Vec<(&'static str, String)> {
    let mut chief = facts(document, false);
    chief.retain(|(name, _)| *name != "service time");
    chief
}

/// What the head says about a server under a load of ours.
fn load_facts(
    document: &Document<'_>,
    load: &LoadSummary,
    date: &str,
) -> Vec<(&'static str, String)> {
    let report = document.report;
    let mut facts = vec![
        (
            "load",
            format!(
                "{} of {}/s on {}, {}{}",
                rate(load.target_rate_per_s),
                rate(server::capacity_per_s(&report.server)),
                server::workers(&report.server),
                load.arrivals.process,
                server::followed(load).map_or_else(String::new, |how| format!("; {how}")),
            ),
        ),
        ("utilisation", utilization(document)),
        (
            "service time",
            format!(
                "t = {}{} = {}",
                report.server.service_time_ns,
                server::service_time_interval(&report.server),
                server::service_time_origin(document),
            ),
        ),
        (
            "measured",
            format!(
                "{} in {}{date}",
                figures::counted(load.requests, "request", "requests"),
                report.duration_ns
            ),
        ),
    ];
    facts.extend(server::scaling(report).map(|text| ("scaling", text)));
    facts
}

/// What the head says about a server that was watched.
fn trace_facts(document: &Document<'_>, date: &str) -> Vec<(&'static str, String)> {
    let report = document.report;
    let server = &report.server;
    let mut facts = vec![
        (
            "traced",
            format!(
                "{} in {} = {}/s{date}",
                figures::counted(server.matching.responses, "response", "responses"),
                report.duration_ns,
                rate(report.arrival_rate_per_s)
            ),
        ),
        (
            "service time",
            format!(
                "t = {}{} = {}; {} ({})",
                server::service_time(server),
                server::service_time_interval(server),
                server::service_time_origin(document),
                server::workers(server),
                server::workers_origin(server),
            ),
        ),
        ("utilisation", utilization(document)),
    ];
    facts.extend(server::left_out(server).map(|text| ("left out", text)));
    facts.extend(server::sent_again(server).map(|text| ("sent again", text)));
    facts
}

/// How busy the server was, and what a request cost it.
fn utilization(document: &Document<'_>) -> String {
    let cost = server::cost_of_a_request(&document.report.server);
    let cost = cost.map_or_else(String::new, |cost| format!("; {cost}"));
    format!("{}{cost}", server::utilization(document))
}
