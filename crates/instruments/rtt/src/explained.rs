//! Where the tail of round trips comes from, as tables and sentences; and the load of an open
//! loop.

use taillab_experiment::round_trips::{label, size_and_conns};
use taillab_model::explanation::{Cause, Share};
use taillab_model::rtt::{
    RttAdded, RttBand, RttDisturbance, RttEnd, RttExplanation, RttOpenLoop, RttPart, RttPartMean,
    RttRow,
};
use taillab_model::summary::Reason;
use taillab_model::{Nanos, REPORTED_QUANTILES};
use taillab_report::figures::{self, count, counted, grouped, micros, percent, quantile_name};
use taillab_report::table::{Column, Table, cell, known, name};
use taillab_report::text::Ink;

use crate::result::RttResult;

/// What usual and slow round trips were spent on.
pub(crate) fn parts(explanation: &RttExplanation) -> Table {
    let bands = explanation.bands.as_slice();
    let mut columns = vec![Column::left("")];
    columns.extend(bands.iter().map(|band| {
        let n = counted(band.round_trips, "round trip", "round trips");
        Column::right(band_name(band)).gap(2).note(n)
    }));
    let last = bands.last().filter(|band| band.from_q >= SLOW);
    if last.is_some() {
        let share = Column::right("share of longer");
        columns.push(share.ink(Ink::Title).gap(2).notes());
    }
    let caption = "What round trips were spent on, mean in µs, below each its 95 % interval; the \
                   last column is the share of what the slowest band takes longer than usual";
    let mut table = Table::new(caption, columns);
    for part in RttPart::ALL {
        let of = |band: &RttBand| band.parts.iter().find(|x| x.part == part).copied();
        let mut cells = vec![name(part.words())];
        cells.extend(bands.iter().map(|band| match of(band) {
            Some(RttPartMean {
                mean_ns,
                lo_ns,
                hi_ns,
                ..
            }) => cell(micros(mean_ns)).note(figures::interval(lo_ns, hi_ns)),
            None => known(None),
        }));
        if let Some(share) = last.and_then(of).and_then(|part| part.excess) {
            cells.push(
                cell(percent(share.value, 0))
                    .note(interval(&share))
                    .ink(Ink::Title),
            );
        }
        table.row(cells);
    }
    let mut cells = vec![name("all of it")];
    cells.extend(bands.iter().map(|band| cell(micros(band.mean_ns))));
    table.row(cells);
    table
}

/// The quantile from which on a band is one of slow round trips.
const SLOW: f64 = 0.99;

fn band_name(band: &RttBand) -> String {
    match band.from_q >= SLOW {
        true => format!("above {}", quantile_name(band.from_q)),
        false => "usual".to_owned(),
    }
}

/// `71 to 88 %`; empty without an interval.
fn interval(share: &Share) -> String {
    match (share.lo, share.hi) {
        (Some(lo), Some(hi)) => {
            let whole = |x: f64| grouped(x * 100.0, 0);
            format!("{} to {} %", whole(lo), whole(hi))
        }
        _ => String::new(),
    }
}

/// The largest part of the tail, in one sentence.
pub(crate) fn headline(row: &RttRow) -> Option<String> {
    let explanation = row.explanation.as_ref()?;
    let usual = explanation.bands.first()?;
    let slow = explanation
        .bands
        .last()
        .filter(|band| band.from_q >= SLOW)?;
    let share = |part: &RttPartMean| part.excess.map_or(0.0, |share| share.value);
    let largest = (slow.parts.iter()).max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let excess = largest.excess?;
    let bounds = match interval(&excess) {
        text if text.is_empty() => text,
        text => format!(" ({text})"),
    };
    Some(format!(
        "above {} a round trip takes {} longer than a usual one; {}{bounds} of that is {}",
        quantile_name(slow.from_q),
        slow.mean_ns.saturating_sub(usual.mean_ns),
        percent(excess.value, 0),
        largest.part.words(),
    ))
}

/// The data behind the explanation and the cost of the probe, in one sentence.
pub(crate) fn basis(row: &RttRow) -> Option<String> {
    let explanation = row.explanation.as_ref()?;
    let total = explanation.round_trips + explanation.incomplete;
    let median = |rtt: Option<Nanos>| rtt.map_or_else(|| "–".to_owned(), |ns| ns.to_string());
    let lost = match explanation.lost_events {
        0 => String::new(),
        n => format!("; the probe lost {}", counted(n, "event", "events")),
    };
    Some(format!(
        "{} of {} round trips of a run with the kernel probe have all six stamps; the median is {} \
         with it and {} without it{lost}",
        count(explanation.round_trips),
        count(total),
        median(explanation.rtt.quantile(0.5)),
        median(row.rtt.quantile(0.5)),
    ))
}

/// What had a CPU while a slow round trip needed it.
pub(crate) fn disturbances(explanation: &RttExplanation, most: usize) -> Table {
    let caption = "What had a CPU while a round trip above p99 needed it; the share is that of \
                   what these take longer than the usual ones";
    let columns = [
        Column::left("end"),
        Column::left("who").wrapped(36),
        Column::right("round trips"),
        Column::right("µs each"),
        Column::right("share of longer").ink(Ink::Title).notes(),
    ];
    let mut table = Table::new(caption, columns);
    for found in explanation.disturbances.iter().take(most) {
        let end = match found.end {
            RttEnd::Client => "client",
            RttEnd::Server => "server",
        };
        let each = found.total_ns.get() as f64 / found.round_trips.max(1) as f64;
        table.row([
            name(end),
            cell(who(found)),
            cell(count(found.round_trips)),
            cell(figures::micros_f64(each)),
            cell(percent(found.share.value, 0))
                .note(interval(&found.share))
                .ink(Ink::Title),
        ]);
    }
    table
}

fn who(found: &RttDisturbance) -> String {
    match (&found.culprit, found.cause) {
        (Some(culprit), Cause::Background) => culprit.to_string(),
        (Some(culprit), Cause::Irq) => format!("interrupt {culprit}"),
        (Some(culprit), Cause::Softirq) => format!("softirq {culprit}"),
        (Some(culprit), cause) => format!("{}: {culprit}", cause.label()),
        (None, cause) => cause.label().to_owned(),
    }
}

/// What each suspect adds.
pub(crate) fn elimination(result: &RttResult) -> Table {
    let supported = |q: &f64| {
        let suspects = result.elimination.iter().flat_map(|one| &one.suspects);
        let mut adds = suspects.flat_map(|suspect| &suspect.adds);
        adds.any(|added| added.q == *q)
    };
    let quantiles: Vec<f64> = REPORTED_QUANTILES.into_iter().filter(supported).collect();
    let mut columns = vec![Column::left("what"), Column::left("as").on_page()];
    let named = |q: &f64| Column::right(quantile_name(*q)).gap(2);
    columns.extend(quantiles.iter().map(named));
    let caption = "What each suspect adds, in µs: the difference of two rows at each percentile, \
                   below it the range between the ends of their intervals. The slowest round trips of two \
                   rows are slow for reasons of their own, so these differences are no parts of one round \
                   trip and do not add up";
    let mut table = Table::new(caption, columns);
    for one in &result.elimination {
        let each = size_and_conns(one.size_bytes, one.conns);
        for suspect in &one.suspects {
            let what = format!("{each}: {}", suspect.suspect);
            let rows = match &suspect.without {
                Some(without) => format!("{} − {without}", suspect.with),
                None => suspect.with.clone(),
            };
            let mut cells = vec![name(what), cell(rows)];
            cells.extend(quantiles.iter().map(|q| {
                match suspect.adds.iter().find(|added| added.q == *q) {
                    Some(added) => cell(signed(added.ns)).note(range(added)),
                    None => known(None),
                }
            }));
            table.row(cells);
        }
    }
    table
}

fn signed(ns: i64) -> String {
    grouped(ns as f64 / 1e3, 1)
}

fn range(added: &RttAdded) -> String {
    match (added.lo_ns, added.hi_ns) {
        (Some(lo), Some(hi)) => format!("{} to {}", signed(lo), signed(hi)),
        _ => String::new(),
    }
}

/// The loads of the rows that were sent by a schedule.
pub(crate) fn loads<'a>(rows: impl IntoIterator<Item = &'a RttRow>) -> Table {
    let caption = "The load: messages per second, as a share of the capacity, how late they were \
                   sent, and from the actual send to the answer, in µs";
    let columns = [
        Column::left(""),
        Column::right("per second").gap(2),
        Column::right("load").gap(2),
        Column::right("late p99").gap(2),
        Column::right("answer p50").gap(2),
        Column::right("answer p99").gap(2),
        Column::left("verdict").gap(2),
    ];
    let mut table = Table::new(caption, columns);
    for row in rows {
        let Some(RttOpenLoop {
            capacity,
            load,
            verdict,
        }) = &row.open_loop
        else {
            continue;
        };
        let share = capacity.map(|capacity| load.target_rate_per_s / capacity.peak_per_s);
        let at = |q: f64| known(load.service_time.quantile(q).map(micros));
        table.row([
            name(label(row)),
            cell(figures::rate(load.sent_rate_per_s)),
            known(share.map(|share| percent(share, 0))),
            known(load.lateness.quantile(0.99).map(micros)),
            at(0.5),
            at(0.99),
            cell(if verdict.valid { "valid" } else { "INVALID" }),
        ]);
    }
    table
}

/// Why the load of a row is invalid, and its warnings.
pub(crate) fn doubts(row: &RttRow) -> (&[Reason], &[Reason]) {
    match &row.open_loop {
        Some(open) => (&open.verdict.reasons, &open.verdict.warnings),
        None => (&[], &[]),
    }
}
