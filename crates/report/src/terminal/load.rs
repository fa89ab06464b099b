//! What `taillab load` found, as a person reads it in a terminal.

use taillab_model::Distribution;
use taillab_model::load_result::{
    Capacity, ClosedLoopResult, LoadSweepResult, Mode, SearchResult, Setup,
};

use super::page::Page;
use crate::checks;
use crate::figures::{self, count, counted, percent, rate};
use crate::latency::QUANTILES;
use crate::load::{
    EXPLANATION, LoadReport, awake, chart, closed_table, latency_table, steps_table, sweep_chart,
};
use crate::server::verdict_word;
use crate::text::{Ink, Style};

/// The result of one load; `saved_in` is the directory of its files, if there is one.
pub fn render_load(report: &LoadReport<'_>, saved_in: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    let result = report.result;
    page.load_title(&result.setup, verdict_word(&result.verdict, result.partial));
    let load = &result.load;
    let mut wanted = format!(
        "{}/s, {}",
        rate(load.target_rate_per_s),
        load.arrivals.process
    );
    if let Some(share) = load.target_utilization {
        wanted.push_str(&format!(", {} utilisation", percent(share, 1)));
    }
    page.fact("load", &wanted);
    page.setup(&result.setup, result.capacity.as_ref());
    page.fact(
        "measured",
        &format!(
            "{} in {}, from {}",
            counted(load.requests, "request", "requests"),
            load.duration_ns,
            figures::utc(result.started_unix_s)
        ),
    );
    page.saved(saved_in);
    page.load_latency(report);
    page.floors_share(
        &load.response_time,
        (result.floor.as_ref()).map(|floor| &floor.load.response_time),
    );
    page.chart(&chart(report));
    page.line("");
    page.paragraph(Ink::Quiet, EXPLANATION);
    page.checks(checks::of_load(result));
    page.verdict(&result.verdict, result.partial);
    page.text
}

/// The result of a sweep or of a search.
pub fn render_load_sweep(result: &LoadSweepResult, saved_in: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    page.load_title(&result.setup, verdict_word(&result.verdict, result.partial));
    page.setup(&result.setup, result.capacity.as_ref());
    page.fact(
        "measured",
        &format!(
            "{} one after the other, from {}",
            counted(result.steps.len() as u64, "load", "loads"),
            figures::utc(result.started_unix_s)
        ),
    );
    page.saved(saved_in);
    page.steps(result);
    if let Some(found) = &result.found {
        page.found(found);
    }
    let least = (result.steps.iter())
        .min_by(|a, b| (a.load.target_rate_per_s).total_cmp(&b.load.target_rate_per_s));
    if let Some(step) = least {
        page.floors_share(
            &step.load.response_time,
            (result.floor.as_ref()).map(|floor| &floor.load.response_time),
        );
    }
    page.chart(&sweep_chart(result));
    let floor = checks::floor(
        result.floor.as_ref(),
        result.floor_absent_because.as_deref(),
    );
    page.checks(vec![floor]);
    page.verdict(&result.verdict, result.partial);
    page.text
}

/// The result of a closed loop or of a ping-pong.
pub fn render_closed_loop(
    result: &ClosedLoopResult,
    saved_in: Option<&str>,
    style: Style,
) -> String {
    let mut page = Page::new(style);
    page.load_title(&result.setup, verdict_word(&result.verdict, result.partial));
    page.fact(
        "load",
        &match result.mode {
            Mode::PingPong => format!(
                "ping-pong: one request in flight on {}",
                counted(
                    u64::from(result.setup.connections),
                    "connection",
                    "each connection"
                )
            ),
            _ => format!(
                "closed loop: {} kept in flight",
                counted(u64::from(result.outstanding), "request", "requests")
            ),
        },
    );
    page.setup(&result.setup, None);
    page.fact(
        "measured",
        &format!(
            "{} in {}, from {}",
            counted(result.requests, "request", "requests"),
            result.duration_ns,
            figures::utc(result.started_unix_s)
        ),
    );
    page.saved(saved_in);
    page.heading(
        &format!("{} answers per second", rate(result.answered_rate_per_s)),
        "",
    );
    page.paragraph(
        Ink::Plain,
        &format!(
            "The client costs {} of CPU per request and was busy {} of the time.",
            result.client.cpu_ns_per_request,
            percent(result.client.busy_share, 1)
        ),
    );
    page.heading(
        "Service time in µs",
        "from the send to the response, with 95 % intervals",
    );
    let table = closed_table(result).fit(style, &[&|table| table.hide_notes(1)]);
    page.table(&table);
    page.floors_share(
        &result.service_time,
        (result.floor.as_ref()).map(|floor| &floor.service_time),
    );
    page.paragraph(
        Ink::Quiet,
        "The next request waits for an answer, so this is not what a user waits under a load of \
         its own: give a rate with -R for that.",
    );
    page.checks(vec![
        checks::closed_floor(result),
        checks::errors(&result.errors),
    ]);
    page.verdict(&result.verdict, result.partial);
    page.text
}

/// Where the sample lacks what a quantile needs: how many requests more.
fn more(q: f64, has: u64, needs: &[(f64, u64)]) -> Option<String> {
    let (_, needed) = needs.iter().find(|(p, _)| (p - q).abs() < 1e-12)?;
    let more = needed.saturating_sub(has);
    (more > 0).then(|| {
        format!(
            "{} needs about {} more requests as correlated as these",
            figures::quantile_name(q),
            count(figures::two_digits_up(more))
        )
    })
}

impl Page {
    fn load_title(&mut self, setup: &Setup, word: (Ink, &str)) {
        self.title(&format!("taillab load {}", setup.target), word);
    }

    fn setup(&mut self, setup: &Setup, capacity: Option<&Capacity>) {
        self.fact(
            "client",
            &format!(
                "{} over {}, {}, {}{}",
                setup.protocol,
                setup.transport,
                counted(u64::from(setup.connections), "connection", "connections"),
                counted(u64::from(setup.threads), "thread", "threads"),
                awake(setup),
            ),
        );
        if let Some(capacity) = capacity {
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

    fn saved(&mut self, saved_in: Option<&str>) {
        if let Some(place) = saved_in {
            self.fact("saved in", place);
        }
    }

    fn load_latency(&mut self, report: &LoadReport<'_>) {
        // as many intervals as there is room for: the response time’s first
        let table = latency_table(report.result).fit(
            self.style,
            &[
                &|table| table.shorten(),
                &|table| {
                    table.hide_notes(3);
                    table.hide_notes(4);
                },
                &|table| table.hide_notes(2),
                &|table| table.hide_notes(1),
            ],
        );
        self.latency_table(&table);
        let response = &report.result.load.response_time;
        let lacking = QUANTILES
            .iter()
            .filter(|&&q| response.quantile(q).is_none())
            .find_map(|&q| more(q, response.count, report.needs));
        if let Some(lacking) = lacking {
            self.paragraph(Ink::Quiet, &format!("{lacking}."));
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

    fn steps(&mut self, result: &LoadSweepResult) {
        let narrow = || steps_table(result, false);
        let table = steps_table(result, true).fit(self.style, &[&|table| *table = narrow()]);
        self.heading(
            "Response time in µs against load",
            "late: lateness at p99.9",
        );
        self.table(&table);
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
                format!("{objective} holds up to {}/s{share}", rate(highest))
            }
            None => format!("no rate measured holds {objective}"),
        };
        match found.fails_at_per_s {
            Some(fails) => text.push_str(&format!(" and breaks at {}/s", rate(fails))),
            None => text.push_str("; no rate measured breaks it: search higher"),
        }
        text.push_str(". ");
        text.push_str(&match (found.surely_holds_per_s, found.surely_fails_per_s) {
            (Some(lo), Some(hi)) => format!(
                "By the 95 % intervals the answer lies between {}/s and {}/s.",
                rate(lo),
                rate(hi)
            ),
            (Some(lo), None) => format!("By the 95 % intervals it surely holds at {}/s; where it surely breaks is not known: measure longer.", rate(lo)),
            (None, Some(hi)) => format!("By the 95 % intervals it surely breaks at {}/s; where it surely holds is not known: measure longer, or lower rates.", rate(hi)),
            (None, None) => "The intervals decide nothing: measure longer.".to_owned(),
        });
        self.marked(ink, mark, &text);
    }
}
