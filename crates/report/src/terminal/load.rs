//! What `taillab load` found, as a person reads it in a terminal.

use taillab_model::load_result::{ClosedLoop, Floor, Generator, LoadReport, Mode, SearchResult};
use taillab_model::summary::{LoadSummary, Verdict};
use taillab_model::{Distribution, Nanos};

use super::page::{Page, RESERVATIONS};
use crate::checks;
use crate::figures::{self, count, counted, percent, rate};
use crate::latency::QUANTILES;
use crate::load::{
    EXPLANATION, LoadDocument, chart, client, closed_table, latency_table, steps_table,
};
use crate::reservations;
use crate::text::{Ink, Style};

/// The result on one screen; `saved_in` is the directory of its files, if there is one.
pub fn load_screen(document: &LoadDocument<'_>, saved_in: Option<&str>, style: Style) -> String {
    let verdict = &document.report.verdict;
    let mut page = Page::new(style);
    page.head_of_load(document, saved_in, |page| {
        let reservations = reservations::lines(&reservations::of(verdict, &[]), None);
        page.verdict_lines(verdict, &reservations, RESERVATIONS)
    });
    page.figures_of_load(document);
    page.text
}

/// The whole result: also its chart, what was checked, and the verdict with every reservation.
pub fn render_load(document: &LoadDocument<'_>, saved_in: Option<&str>, style: Style) -> String {
    let report = document.report;
    let mut page = Page::new(style);
    page.head_of_load(document, saved_in, |page| {
        page.reservations(&report.verdict, &[])
    });
    page.figures_of_load(document);
    if let Some(chart) = chart(document) {
        page.chart(&chart);
    }
    if report.load.is_some() {
        page.line("");
        page.paragraph(Ink::Quiet, EXPLANATION);
    }
    page.checks(checks::of_load(report));
    page.verdict(&report.verdict, report.partial);
    page.text
}

fn requests_in(requests: u64, length: Nanos) -> String {
    format!("{} in {length}", counted(requests, "request", "requests"))
}

/// How many more requests a quantile needs; `None` if the sample has enough.
fn more(q: f64, has: u64, needs: &[(f64, u64)]) -> Option<String> {
    let (_, needed) = needs.iter().find(|(p, _)| (p - q).abs() < 1e-12)?;
    let more = needed.saturating_sub(has);
    (more > 0).then(|| {
        format!(
            "Too few samples for {}: about {} more needed at this correlation",
            figures::quantile_name(q),
            count(figures::two_digits_up(more))
        )
    })
}

impl Page {
    /// Title, load and client; `judged` writes what is said about the verdict below the title.
    fn head_of_load(
        &mut self,
        document: &LoadDocument<'_>,
        saved_in: Option<&str>,
        judged: impl FnOnce(&mut Self),
    ) {
        let report = document.report;
        let generator = report.generator();
        self.title_of(report);
        judged(self);
        self.assertions(&report.assertions);
        let measured = match (&report.load, &generator.closed_loop) {
            (Some(load), _) => {
                self.wanted(load);
                requests_in(load.requests, load.duration_ns)
            }
            (None, Some(closed)) => {
                self.in_flight(generator, closed);
                requests_in(closed.requests, closed.duration_ns)
            }
            (None, None) => {
                let steps = generator.steps.len() as u64;
                format!("{} one after the other", counted(steps, "load", "loads"))
            }
        };
        self.generator(report);
        let began = figures::utc(report.started_unix_s);
        self.fact("measured", &format!("{measured}, from {began}"));
        if let Some(place) = saved_in {
            self.fact("saved in", place);
        }
    }

    fn figures_of_load(&mut self, document: &LoadDocument<'_>) {
        let report = document.report;
        let generator = report.generator();
        match (&report.load, &generator.closed_loop) {
            (Some(load), _) => self.scheduled(document, load),
            (None, Some(closed)) => self.closed_loop(generator, closed, &report.verdict),
            (None, None) => self.sweep(generator),
        }
    }

    fn wanted(&mut self, load: &LoadSummary) {
        let rate = rate(load.target_rate_per_s);
        let mut wanted = format!("{rate}/s, {}", load.arrivals.process);
        if let Some(share) = load.target_utilization {
            wanted.push_str(&format!(", {} utilisation", percent(share, 1)));
        }
        self.fact("load", &wanted);
    }

    fn in_flight(&mut self, generator: &Generator, closed: &ClosedLoop) {
        let what = match generator.mode {
            Mode::PingPong => {
                let connections = u64::from(generator.connections);
                let each = if connections == 1 { "" } else { "each of " };
                let on = counted(connections, "connection", "connections");
                format!("ping-pong: one request in flight on {each}{on}")
            }
            _ => {
                let requests = counted(u64::from(closed.outstanding), "request", "requests");
                format!("closed loop: {requests} kept in flight")
            }
        };
        self.fact("load", &what);
    }

    fn generator(&mut self, report: &LoadReport) {
        let generator = report.generator();
        self.fact("client", &client(report));
        if let Some(capacity) = &generator.capacity {
            let interval = match (capacity.peak_lo_per_s, capacity.peak_hi_per_s) {
                (Some(lo), Some(hi)) => {
                    format!(" (95 % interval {} to {})", rate(lo), rate(hi))
                }
                _ => String::new(),
            };
            self.fact(
                "capacity",
                &format!(
                    "{}/s{interval}, in {}",
                    rate(capacity.peak_per_s),
                    counted(u64::from(capacity.blocks), "block", "blocks")
                ),
            );
        }
    }

    fn scheduled(&mut self, document: &LoadDocument<'_>, load: &LoadSummary) {
        let floor = document.report.generator().floor.as_ref();
        // as many intervals as there is room for: the response time’s first
        let verdict = &document.report.verdict;
        let table = latency_table(load, floor, verdict).fit(
            self.style,
            &[
                &|table| table.shorten(),
                &|table| {
                    table.hide_notes(3);
                    table.hide_notes(4);
                    table.hide_notes(5);
                },
                &|table| table.hide_notes(2),
                &|table| table.hide_notes(1),
            ],
        );
        self.latency_table(&table);
        let response = &load.response_time;
        let lacking = QUANTILES
            .iter()
            .filter(|&&q| response.quantile(q).is_none() && !verdict.withdraws(q))
            .find_map(|&q| more(q, response.count, document.needs));
        if let Some(lacking) = lacking {
            self.paragraph(Ink::Quiet, &format!("{lacking}."));
        }
        self.floors_share(response, floor.and_then(Floor::latency));
    }

    fn closed_loop(&mut self, generator: &Generator, closed: &ClosedLoop, verdict: &Verdict) {
        let floor = generator.floor.as_ref();
        self.heading(
            &format!("{} answers per second", rate(closed.answered_rate_per_s)),
            "",
        );
        self.paragraph(
            Ink::Plain,
            &format!(
                "The client costs {} of CPU per request and was busy {} of the time.",
                closed.client.cpu_ns_per_request,
                percent(closed.client.busy_share, 1)
            ),
        );
        self.heading(
            "Service time in µs",
            "from the send to the response, with 95 % intervals",
        );
        let table =
            closed_table(closed, floor, verdict).fit(self.style, &[&|table| table.hide_notes(1)]);
        self.table(&table);
        self.floors_share(&closed.service_time, floor.and_then(Floor::latency));
        self.paragraph(
            Ink::Quiet,
            "Each request waits for the previous answer, so this is not what users of an \
             independent load would wait: give a rate with -R for that.",
        );
    }

    fn sweep(&mut self, generator: &Generator) {
        let narrow = || steps_table(generator, false);
        let table = steps_table(generator, true).fit(self.style, &[&|table| *table = narrow()]);
        self.heading(
            "Response time in µs against load",
            "late: lateness at p99.9",
        );
        self.table(&table);
        if let Some(found) = &generator.found {
            self.found(found);
        }
        let least = (generator.steps.iter())
            .min_by(|a, b| (a.load.target_rate_per_s).total_cmp(&b.load.target_rate_per_s));
        if let Some(step) = least {
            let floor = generator.floor.as_ref().and_then(Floor::latency);
            self.floors_share(&step.load.response_time, floor);
        }
    }

    /// One line that says how much of the result is the client's own.
    fn floors_share(&mut self, response: &Distribution, floor: Option<&Distribution>) {
        let at = |q| Some((q, response.quantile(q)?, floor?.quantile(q)?));
        let mut line = String::new();
        for (q, response, floor) in [0.5, 0.999].into_iter().filter_map(at) {
            line.push_str(&format!(
                "{} the {} of {response} {} {floor} ({})",
                if line.is_empty() { "Of" } else { ", of" },
                figures::quantile_name(q),
                if line.is_empty() {
                    "the client’s own floor is"
                } else {
                    "it is"
                },
                percent(floor.get() as f64 / response.get().max(1) as f64, 0)
            ));
        }
        if !line.is_empty() {
            self.paragraph(Ink::Plain, &format!("{line}."));
        }
    }

    fn found(&mut self, found: &SearchResult) {
        self.line("");
        let objective = found.objective;
        let (ink, mark) = if found.held {
            (Ink::Good, "✓")
        } else {
            (Ink::Bad, "✗")
        };
        let mut text = match found.rate_per_s {
            Some(highest) => {
                let share = (found.utilization)
                    .map(|share| format!(" ({} of the capacity)", percent(share, 1)))
                    .unwrap_or_default();
                format!("{objective} is met up to {}/s{share}", rate(highest))
            }
            None => format!("no measured rate meets {objective}"),
        };
        match found.fails_at_per_s {
            Some(fails) => text.push_str(&format!(" and missed at {}/s", rate(fails))),
            None if !found.held => text.push_str(", since none was measured to its end"),
            None => text.push_str("; no measured rate misses it: search higher"),
        }
        text.push_str(". ");
        text.push_str(
            &match (found.surely_holds_per_s, found.surely_fails_per_s) {
                (Some(lo), Some(hi)) => format!(
                    "By the 95 % intervals the answer lies between {}/s and {}/s.",
                    rate(lo),
                    rate(hi)
                ),
                (Some(lo), None) => format!(
                    "By the 95 % intervals it is surely met at {}/s; where \
                                        it is surely missed is not known: measure longer.",
                    rate(lo)
                ),
                (None, Some(hi)) => format!(
                    "By the 95 % intervals it is surely missed at {}/s; \
                                        where it is surely met is not known: measure longer, or \
                                        lower rates.",
                    rate(hi)
                ),
                (None, None) => "The intervals decide nothing: measure longer.".to_owned(),
            },
        );
        self.marked(ink, mark, &text);
    }
}
