//! Quantiles of several distributions next to each other: the main table of most results.

use taillab_model::explanation::{Cause, DividedRatio, RatioPart};
use taillab_model::summary::Verdict;
use taillab_model::{Distribution, Nanos};

use crate::document::{Document, Series};
use crate::figures;
use crate::schedule;
use crate::series::LoadSeries;
use crate::table::{Cell, Column, Table, cell, known, lacking, name};
use crate::text::Ink;

/// The quantiles of the main table; the maximum follows them.
pub(crate) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

/// A distribution as a column of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) label: &'static str,
    /// The label where there is little room.
    pub(crate) short: &'static str,
    pub(crate) ink: Ink,
    pub(crate) distribution: &'a Distribution,
    /// From this percentile on it is withdrawn, though the verdict does not say so.
    pub(crate) withdrawn_from: Option<f64>,
}

/// The views of a server; the ratio of measured to ideal follows the measured one.
pub(crate) fn of_server(document: &Document<'_>) -> Table {
    let mut views: Vec<View<'_>> = (document.views().into_iter())
        .map(|(series, distribution)| View {
            label: series.label(),
            short: series.label(),
            ink: Ink::of(series),
            distribution,
            withdrawn_from: (schedule::withdrawn_from(document.report))
                .filter(|_| series == Series::Client),
        })
        .collect();
    views.extend(document.connecting().map(|distribution| View {
        label: LoadSeries::Connecting.label(),
        short: LoadSeries::Connecting.short_label(),
        ink: LoadSeries::Connecting.ink(),
        distribution,
        withdrawn_from: schedule::withdrawn_from(document.report),
    }));
    if !document.is_compared() {
        return table(
            "Latency in microseconds, below each its 95 % interval",
            (&views, &document.report.verdict),
            None,
        );
    }
    let caption = match document.has_own_work() {
        false => {
            "Latency in microseconds, below each its 95 % interval; “ratio” is \
                   measured ÷ ideal"
        }
        true => {
            "Latency in microseconds, below each its 95 % interval; the ideal is that of each \
                   request’s own work; “ratio” is measured ÷ ideal"
        }
    };
    let base = document.report.server.ideal.base();
    table(caption, (&views, &document.report.verdict), Some((1, base)))
}

/// That the ideal has each request's own work, where it has, and what it is otherwise: `Requests differ in their work
/// (coefficient of variation 2.10), so the ideal takes each request's own. If each took t, it would have p50 80.1 µs, p99 512 µs:
/// causes are shares of what is beyond that.`
pub(crate) fn with_own_work(document: &Document<'_>) -> Option<String> {
    let own_work = document.report.server.ideal.base_of_own_work()?;
    let of_t = &document.report.server.ideal.sojourn;
    let points = QUANTILES.iter().filter_map(|&q| {
        let value = of_t.quantile(q)?;
        let name = figures::quantile_name(q);
        Some(format!("{name} {} µs", figures::micros(value)))
    });
    let points: Vec<String> = points.collect();
    (!points.is_empty()).then(|| {
        format!(
            "Requests differ in their work (coefficient of variation {}), so the ideal takes each \
             request’s own. If each took t, it would have {}: causes are shares of what is beyond that.",
            figures::grouped(own_work.cv, 2),
            points.join(", ")
        )
    })
}

/// What the host of a virtual machine may do to its CPUs, the most comprehensive first.
const BY_THE_HOST: [(&[Cause], &str); 3] = [
    (
        &[Cause::Hypervisor, Cause::SlowCpu],
        "the hypervisor’s stalls and the slow times of the CPUs",
    ),
    (&[Cause::Hypervisor], "the hypervisor’s stalls"),
    (&[Cause::SlowCpu], "the slow times of the CPUs"),
];

/// The percentiles without what the host did to the CPUs, when that was enough to matter: `Without
/// the hypervisor's stalls, by the replay: p99 1,300 µs (1,100–1,500).`
pub(crate) fn without_host(document: &Document<'_>) -> Option<String> {
    let forecasts = &document.report.server.predictions;
    let (forecast, what) = BY_THE_HOST.iter().find_map(|(causes, what)| {
        let found = forecasts.iter().find(|it| it.removes == *causes)?;
        Some((found, what))
    })?;
    let points = forecast.points.iter().map(|point| {
        let interval = match figures::interval(point.lo_ns, point.hi_ns) {
            interval if interval.is_empty() => interval,
            interval => format!(" ({interval})"),
        };
        let name = figures::quantile_name(point.q);
        format!(
            "{name} {} µs{interval}",
            figures::micros(point.predicted_ns)
        )
    });
    let points: Vec<String> = points.collect();
    (!points.is_empty()).then(|| {
        let points = points.join(", ");
        format!("Without {what}, by the replay: {points}.")
    })
}

/// If the ideal of the schedule has a p99 that differs by more than this, the result says so.
const NOTABLE: f64 = 0.03;

/// How p99 compares with the ideal of the arrivals as they were due, where that is another one: `p99 is 2.35×
/// the ideal of these arrivals, and 2.10× that of poisson arrivals as intended (114.5 µs).`
pub(crate) fn against_schedule(document: &Document<'_>) -> Option<String> {
    const P99: f64 = 0.99;
    let report = document.report;
    let result = &report.server;
    let (ideal, intended) = (&result.ideal.sojourn, result.ideal.of_schedule.as_ref()?);
    let longer = ratio_at(intended, ideal, P99)?;
    // a generator that was held up so much sent another load, and its queue says nothing about that of the schedule
    let is_held_up = schedule::withdrawn_from(report).is_some_and(|from| from <= P99);
    if is_held_up || (longer - 1.0).abs() <= NOTABLE {
        return None;
    }
    let measured = &result.measured.sojourn;
    let [of_these, of_intended] = [ideal, intended].map(|ideal| ratio_at(measured, ideal, P99));
    let arrivals = report.load.as_ref().map(|load| &load.arrivals);
    let process = arrivals.map_or("the", |arrivals| &arrivals.process);
    let dead_time = arrivals.and_then(|arrivals| arrivals.dead_time);
    let why = match dead_time.filter(|_| longer > 1.0) {
        Some(dead) => format!(
            " Two requests that are due together leave {} µs apart, which takes queueing away from the \
             server.",
            figures::micros(dead.median_ns)
        ),
        None => String::new(),
    };
    let each = match document.has_own_work() {
        true => "If each request took t: ",
        false => "",
    };
    Some(format!(
        "{each}p99 is {} the ideal of these arrivals, and {} that of {process} arrivals as intended \
         ({} µs).{why}",
        figures::ratio(of_these?),
        figures::ratio(of_intended?),
        figures::micros(intended.quantile(P99)?),
    ))
}

/// What makes the ratios at p50 and p99 more than 1, a sentence each.
pub(crate) fn ratios(document: &Document<'_>) -> Vec<String> {
    const SHOWN: [f64; 2] = [0.5, 0.99];
    /// Up to this, there is little to divide.
    const NEAR: f64 = 1.1;
    let all = document.report.server.ratio.iter();
    let shown = all.filter(|ratio| SHOWN.contains(&ratio.q) && ratio.ratio > NEAR);
    let shown = shown.filter(|_| document.is_compared());
    let ideal = match document.has_own_work() {
        false => "the ideal",
        true => "the ideal of each request’s own work",
    };
    shown.map(|ratio| divided(ratio, ideal)).collect()
}

/// `2.35× the ideal at p50: wake-ups and idle exits 0.71, transmit 0.30, the rest 0.34`.
fn divided(ratio: &DividedRatio, ideal: &str) -> String {
    /// Parts that are named.
    const NAMED: usize = 5;
    /// A smaller part of what is beyond the ideal is not named.
    const LEAST: f64 = 0.03;
    let beyond = ratio.ratio - 1.0;
    let named: Vec<&RatioPart> = (ratio.parts.iter())
        .filter(|part| part.value >= LEAST * beyond)
        .take(NAMED)
        .collect();
    let rest = beyond - named.iter().map(|part| part.value).sum::<f64>();
    let figure = |x: f64| figures::grouped(x, if x.abs() < 10.0 { 2 } else { 1 });
    let mut parts: Vec<String> = (named.iter())
        .map(|part| format!("{} {}", part.what, figure(part.value)))
        .collect();
    if rest.abs() >= LEAST * beyond {
        parts.push(format!("the rest {}", figure(rest)));
    }
    format!(
        "{} {ideal} at {}: {}",
        figures::ratio(ratio.ratio),
        figures::quantile_name(ratio.q),
        parts.join(", ")
    )
}

/// A row for each of [`QUANTILES`] and the maximum, a column for each view. The ratio of the
/// view at this place to this distribution follows that view.
pub(crate) fn table(
    caption: &str,
    (views, verdict): (&[View<'_>], &Verdict),
    ratio: Option<(usize, &Distribution)>,
) -> Table {
    let mut columns = vec![Column::left("")];
    for (i, view) in views.iter().enumerate() {
        let column = Column::right(view.label).short(view.short).ink(view.ink);
        columns.push(column.gap(3).notes());
        if ratio.is_some_and(|(of, _)| of == i) {
            columns.push(Column::right("ratio").ink(Ink::Title).gap(2));
        }
    }
    let mut table = Table::new(caption, columns);
    for q in QUANTILES.into_iter().chain([1.0]) {
        let mut cells = vec![name(figures::quantile_name(q))];
        for (i, view) in views.iter().enumerate() {
            let found = match value(view.distribution, q) {
                Some(_) => quantile(view.distribution, q),
                None => {
                    let from = view.withdrawn_from;
                    lacking(lacks(view.distribution, q, verdict, from))
                }
            };
            cells.push(found.ink(view.ink));
            if let Some((_, base)) = ratio.filter(|(of, _)| *of == i) {
                let ratio = ratio_at(view.distribution, base, q);
                cells.push(known(ratio.map(figures::ratio)).ink(Ink::Title));
            }
        }
        table.row(cells);
    }
    table
}

/// A quantile in microseconds with its interval, or what the sample lacks.
pub(crate) fn quantile(distribution: &Distribution, q: f64) -> Cell {
    match value(distribution, q) {
        Some(value) => {
            let found = distribution.at(q);
            let interval = found.map(|x| figures::interval(x.lo, x.hi));
            cell(figures::micros(value)).note(interval.unwrap_or_default())
        }
        None => lacking(needs(distribution, q)),
    }
}

/// A quantile in microseconds, or a dash.
pub(crate) fn short_quantile(distribution: &Distribution, q: f64) -> Cell {
    known(distribution.quantile(q).map(figures::micros))
}

/// The quantile, or the maximum for 1; `None` where the sample cannot support it.
pub(crate) fn value(distribution: &Distribution, q: f64) -> Option<Nanos> {
    match q < 1.0 {
        true => distribution.quantile(q),
        false => distribution.max,
    }
}

/// One quantile divided by the other, where both are known.
pub(crate) fn ratio_at(measured: &Distribution, ideal: &Distribution, q: f64) -> Option<f64> {
    let ideal = value(ideal, q).filter(|ideal| *ideal > Nanos::ZERO)?;
    Some(value(measured, q)?.get() as f64 / ideal.get() as f64)
}

/// Why a quantile is missing: what the sample lacks, or that it is withdrawn, by the verdict or `from` a lower one
/// on.
pub fn lacks(distribution: &Distribution, q: f64, verdict: &Verdict, from: Option<f64>) -> String {
    let is_withdrawn = verdict.withdraws(q) || from.is_some_and(|from| (from..1.0).contains(&q));
    match is_withdrawn && q <= distribution.answered_share() {
        true => "withdrawn: see the verdict".to_owned(),
        false => needs(distribution, q),
    }
}

/// What the sample lacks for a quantile.
fn needs(distribution: &Distribution, q: f64) -> String {
    if q >= 1.0 {
        return "no request".to_owned();
    }
    let all = distribution.count + distribution.unanswered;
    if q > distribution.answered_share() {
        let share = figures::percent_of(distribution.unanswered, all);
        return format!("{share} not answered");
    }
    // the lowest missing quantile needs more requests than there are; one ten times as rare needs ten
    // times as many
    let lowest = (distribution.quantiles.iter()).find(|x| x.value.is_none() && x.q < q);
    let rarer = lowest.map_or(1.0, |lowest| (1.0 - lowest.q) / (1.0 - q));
    figures::needs(q, all, rarer)
}
