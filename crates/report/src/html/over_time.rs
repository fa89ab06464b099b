//! Latency over time, bursts, fan-out and workers.

use taillab_model::Nanos;
use taillab_model::explanation::{Explanation, FanOut};

use super::figure;
use crate::bursts;
use crate::causes::workers_table;
use crate::document::Document;
use crate::explained;
use crate::figures::{count, counted};
use crate::markup::{Markup, paragraph, section};
use crate::split;
use crate::table::{Column, Table, cell, lacking};

/// Workers in the table, the slowest first; the others are only counted.
const WORKERS: usize = 32;

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let Some(explanation) = &document.report.server.explanation else {
        return;
    };
    put_bursts(page, explanation);
    put_fan_out(page, &explanation.fan_out);
    put_workers(page, explanation);
}

fn put_bursts(page: &mut Markup, explanation: &Explanation) {
    let clustering = explanation.clustering.as_ref();
    let map = bursts::heat_map(&explanation.heat_map);
    if map.is_none() && clustering.is_none() {
        return;
    }
    section(page, "bursts", "Bursts or single events", |page| {
        if let Some(clustering) = clustering {
            paragraph(page, "explain", &explained::clustering_sentence(clustering));
        }
        if let Some(map) = map {
            let caption = "Bursts show up as tall columns, single slow requests as isolated cells.";
            figure::put_as(page, &map, "chart heat", caption);
        }
        if let Some(lags) = clustering.and_then(bursts::autocorrelation) {
            figure::put_as(page, &lags, "chart lags", "");
        }
    });
}

fn put_fan_out(page: &mut Markup, fan_out: &[FanOut]) {
    if fan_out.is_empty() {
        return;
    }
    section(page, "fan-out", "Fan-out", |page| {
        if let Some(sentence) = explained::fan_out_sentence(fan_out) {
            paragraph(page, "explain", &sentence);
        }
        fan_out_table(fan_out).put(page);
    });
}

fn fan_out_table(fan_out: &[FanOut]) -> Table {
    let longest = (fan_out.iter())
        .filter_map(|at| at.p99_ns.max(at.p50_ns))
        .max()
        .map_or(1.0, |longest| longest.get().max(1) as f64);
    let share = |time: Option<Nanos>| time.map_or(0.0, |time| time.get() as f64 / longest);
    let time = |time: Option<Nanos>| match time {
        Some(time) => cell(time.to_string()),
        None => lacking("too few requests, or withdrawn"),
    };
    let heads = ["p50", "p99", ""].map(Column::right);
    let columns = [Column::right("servers")].into_iter().chain(heads);
    let caption = "How long a user waits for the slowest of several such servers. Each answers \
                   like this one, independently of the others";
    let mut table = Table::new(caption, columns).class("fan-out");
    for at in fan_out {
        table.row([
            cell(count(u64::from(at.servers))),
            time(at.p50_ns),
            time(at.p99_ns),
            cell("").bars(vec![
                ("faint", share(at.p99_ns)),
                ("measured", share(at.p50_ns)),
            ]),
        ]);
    }
    table
}

fn put_workers(page: &mut Markup, explanation: &Explanation) {
    let name_of = |tid| explained::worker_name(explanation, tid);
    let inversions = explained::inversions_sentence(&explanation.inversions, name_of);
    if explanation.workers.is_empty() && inversions.is_none() {
        return;
    }
    section(page, "workers", "Workers and order", |page| {
        if let Some(sentence) = inversions {
            paragraph(page, "explain", &sentence);
        }
        if !explanation.workers.is_empty() {
            if let Some(uneven) = split::sentence(&explanation.workers) {
                paragraph(page, "explain", &uneven);
            }
            workers_table(&explanation.workers, WORKERS).put(page);
        }
        let left = explanation.workers.len().saturating_sub(WORKERS);
        if left > 0 {
            let left = counted(left as u64, "worker", "workers");
            let text = format!("And {left} with a shorter mean: see the JSON.");
            paragraph(page, "note", &text);
        }
    });
}
