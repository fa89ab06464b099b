//! What `taillab load` found, as a person reads it in a terminal.

use taillab_model::load_result::{
    Capacity, ClosedLoopResult, Found, LoadStep, LoadSweepResult, Mode, Setup,
};
use taillab_model::{Distribution, Nanos};

use super::text::{Ink, Side, Table, clean, wrap};
use super::{INDENT, Page, Style, verdict_word};
use crate::figures::{self, count, counted, known_percent, micros, percent, rate};
use crate::findings;
use crate::latency::{self, Cell, Interval};
use crate::load::{EXPLANATION, LoadReport, LoadSeries, awake, chart, sweep_chart};

/// The quantiles of the table; the maximum follows them.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];
/// The colours of [`LoadSeries::ALL`].
const INKS: [Ink; 4] = [Ink::Measured, Ink::Client, Ink::Notable, Ink::Ideal];
/// Narrower than this, a figure says nothing.
const NARROWEST_FIGURE: usize = 60;

/// The result of one load; `saved_in` is the directory of its files, if there is one.
pub fn render_load(report: &LoadReport<'_>, saved_in: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    let result = report.result;
    page.load_title(&result.setup, verdict_word(&result.verdict, result.partial));
    let load = &result.load;
    let mut wanted = format!(
        "{}/s, {}",
        rate(load.target_rate_per_s),
        clean(&load.arrivals.process)
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
    if page.style.width >= NARROWEST_FIGURE {
        page.load_figure(&chart(report));
    }
    page.line("");
    page.paragraph(Ink::Quiet, EXPLANATION);
    page.checks(findings::of_load(result));
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
    if page.style.width >= NARROWEST_FIGURE {
        page.load_figure(&sweep_chart(result));
    }
    let floor = findings::floor(
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
    page.table(&closed_table(result));
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
        findings::closed_floor(result),
        findings::errors(&result.errors),
    ]);
    page.verdict(&result.verdict, result.partial);
    page.text
}

fn closed_table(result: &ClosedLoopResult) -> Table {
    let mut table = Table::new(&[
        (Side::Left, INDENT),
        (Side::Right, 3),
        (Side::Left, 1),
        (Side::Right, 3),
    ]);
    let floor = (result.floor.as_ref()).map(|floor| cells(&floor.service_time));
    if floor.is_some() {
        let head = [
            "",
            LoadSeries::ServiceTime.label(),
            "",
            LoadSeries::Floor.label(),
        ];
        table.row(head.map(|name| (Ink::Quiet, name.to_owned())).to_vec());
    }
    for (row, (name, cell)) in cells(&result.service_time).into_iter().enumerate() {
        let name = (Ink::Title, name);
        match cell {
            Cell::Known(value, interval) => {
                let mut line = vec![
                    name,
                    (Ink::Plain, micros(value)),
                    (
                        Ink::Quiet,
                        interval.map(Interval::micros).unwrap_or_default(),
                    ),
                ];
                if let Some(floor) = &floor {
                    let known = floor[row].1.value();
                    let text = known.map_or_else(|| "–".to_owned(), micros);
                    line.push((Ink::Ideal, text));
                }
                table.row(line);
            }
            Cell::Unsupported(what) => table.running_row(vec![name, (Ink::Quiet, what)]),
        }
    }
    table
}

/// Each quantile of the table, and the maximum.
fn cells(distribution: &Distribution) -> Vec<(String, Cell)> {
    QUANTILES
        .iter()
        .map(|&q| {
            (
                figures::quantile_name(q),
                latency::quantile(distribution, q),
            )
        })
        .chain(std::iter::once((
            figures::quantile_name(1.0),
            latency::maximum(distribution),
        )))
        .collect()
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
                clean(&setup.protocol),
                clean(&setup.transport),
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
            self.fact("saved in", &clean(place));
        }
    }

    fn load_latency(&mut self, report: &LoadReport<'_>) {
        // as many intervals as there is room for: what a user waits first
        const ALL: [bool; 4] = [true; 4];
        const TWO: [bool; 4] = [true, true, false, false];
        const ONE: [bool; 4] = [true, false, false, false];
        const NONE: [bool; 4] = [false; 4];
        let choices = [ALL, TWO, ONE, NONE].into_iter().flat_map(|intervals| {
            let table = |short| (intervals[0], load_table(report, intervals, short));
            [table(false), table(true)]
        });
        let tables: Vec<(bool, Table)> = choices.collect();
        let fitting = (tables.iter()).find(|(_, table)| table.width() <= self.style.width);
        let Some((any_interval, table)) = fitting.or_else(|| tables.last()) else {
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

    fn load_figure(&mut self, chart: &crate::chart::Chart) {
        if chart.is_empty() {
            return;
        }
        self.line("");
        let text = super::render_chart(chart, self.style);
        for line in text.lines() {
            self.line(line);
        }
    }

    fn steps(&mut self, result: &LoadSweepResult) {
        let searched = result.found.is_some();
        let wide = steps_table(&result.steps, searched, true);
        let table = if wide.width() <= self.style.width {
            wide
        } else {
            steps_table(&result.steps, searched, false)
        };
        self.heading(
            "Response time in µs against load",
            "late: lateness at p99.9",
        );
        self.table(&table);
    }

    fn found(&mut self, found: &Found) {
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
        let mut lead = format!("{:INDENT$}{} ", "", self.style.paint(ink, mark));
        for line in wrap(&text, self.style.width - INDENT - 2) {
            self.line(&format!("{lead}{line}"));
            lead = " ".repeat(INDENT + 2);
        }
    }
}

/// The main table, with intervals where `intervals` says and short names if wanted.
fn load_table(report: &LoadReport<'_>, intervals: [bool; 4], short: bool) -> Table {
    let result = report.result;
    let distributions = [
        Some(&result.load.response_time),
        Some(&result.load.service_time),
        Some(&result.load.lateness),
        result.floor.as_ref().map(|floor| &floor.load.response_time),
    ];
    let mut sides = vec![(Side::Left, INDENT)];
    let mut head = vec![(Ink::Quiet, String::new())];
    for (i, series) in LoadSeries::ALL.iter().enumerate() {
        if distributions[i].is_none() {
            continue;
        }
        sides.push((Side::Right, 3));
        let label = if short {
            series.short_label()
        } else {
            series.label()
        };
        head.push((INKS[i], label.to_owned()));
        if intervals[i] {
            sides.push((Side::Left, 1));
            head.push((Ink::Quiet, String::new()));
        }
    }
    let mut table = Table::new(&sides);
    table.row(head);
    let columns: Vec<(usize, Vec<(String, Cell)>)> = distributions
        .iter()
        .enumerate()
        .filter_map(|(i, d)| Some((i, cells((*d)?))))
        .collect();
    for row in 0..=QUANTILES.len() {
        let name = (Ink::Title, columns[0].1[row].0.clone());
        let nothing = |(_, column): &(usize, Vec<(String, Cell)>)| column[row].1.value().is_none();
        if columns.iter().all(nothing)
            && let Cell::Unsupported(what) = &columns[0].1[row].1
        {
            table.running_row(vec![name, (Ink::Quiet, what.clone())]);
            continue;
        }
        let mut line = vec![name];
        for (i, column) in &columns {
            let (value, interval) = match &column[row].1 {
                Cell::Known(value, interval) => (
                    micros(*value),
                    interval.map(Interval::micros).unwrap_or_default(),
                ),
                Cell::Unsupported(_) => ("–".to_owned(), String::new()),
            };
            line.push((INKS[*i], value));
            if intervals[*i] {
                line.push((Ink::Quiet, interval));
            }
        }
        table.row(line);
    }
    table
}

fn steps_table(steps: &[LoadStep], searched: bool, wide: bool) -> Table {
    let mut head = vec!["load/s"];
    if wide {
        head.extend(["of capacity", "sent/s"]);
    }
    head.extend(["p50", "p99", "p99.9", "late"]);
    if wide {
        head.push("errors");
    }
    let figures = head.len();
    if searched {
        head.push("objective");
    }
    head.push("verdict");
    let gap = if wide { 2 } else { 1 };
    let sides: Vec<(Side, usize)> = (0..head.len())
        .map(|i| match i {
            0 => (Side::Right, INDENT),
            i if i < figures => (Side::Right, gap),
            _ => (Side::Left, gap),
        })
        .collect();
    let mut table = Table::new(&sides);
    table.row(
        (head.iter())
            .map(|name| (Ink::Quiet, (*name).to_owned()))
            .collect(),
    );
    let mut steps: Vec<&LoadStep> = steps.iter().collect();
    steps.sort_by(|a, b| (a.load.target_rate_per_s).total_cmp(&b.load.target_rate_per_s));
    let length = |length: Option<Nanos>| length.map_or_else(|| "–".to_owned(), micros);
    for step in steps {
        let load = &step.load;
        let response = |q| (Ink::Plain, length(load.response_time.quantile(q)));
        let mut cells = vec![(Ink::Title, rate(load.target_rate_per_s))];
        if wide {
            cells.push((Ink::Plain, known_percent(load.target_utilization)));
            cells.push((Ink::Plain, rate(load.sent_rate_per_s)));
        }
        cells.extend([0.5, 0.99, 0.999].map(response));
        cells.push((Ink::Quiet, length(load.lateness.quantile(0.999))));
        if wide {
            cells.push((Ink::Plain, count(load.errors.total())));
        }
        if searched {
            cells.push(match step.objective {
                Some(at) if at.held && at.sure => (Ink::Good, "✓ holds".to_owned()),
                Some(at) if at.held => (Ink::Notable, "✓ likely".to_owned()),
                Some(at) if at.sure => (Ink::Bad, "✗ breaks".to_owned()),
                Some(_) => (Ink::Notable, "✗ likely".to_owned()),
                None => (Ink::Quiet, "–".to_owned()),
            });
        }
        cells.push(match (step.verdict.valid, step.overloaded, step.partial) {
            (_, true, _) => (Ink::Notable, "overload".to_owned()),
            (false, ..) => (Ink::Bad, "INVALID".to_owned()),
            (true, _, true) => (Ink::Notable, "partial".to_owned()),
            (true, ..) => (Ink::Good, "valid".to_owned()),
        });
        table.row(cells);
    }
    table
}
