//! Latency over time, whether slow requests come together, and what many servers make of it.

use taillab_model::Nanos;
use taillab_model::explanation::{Clustering, Explanation, FanOut, HeatMap};

use crate::causes::workers_table;
use crate::document::Document;
use crate::explained;
use crate::figures::{count, quantile_name, round_length};
use crate::markup::{Markup, paragraph, patch, put, section};
use crate::table::{Column, Table, cell, lacking};

/// Columns drawn at most; more are joined, so that the page stays small.
const COLUMNS: usize = 240;
/// Steps of the colour.
const STEPS: u64 = 8;
/// Units of the drawings' own coordinates, in both directions.
const SIDE: f64 = 1000.0;

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    let Some(explanation) = &document.report.server.explanation else {
        return;
    };
    put_bursts(page, explanation);
    put_fan_out(page, &explanation.fan_out);
    put_workers(page, explanation);
}

fn put_bursts(page: &mut Markup, explanation: &Explanation) {
    let map = Map::of(&explanation.heat_map);
    if map.is_none() && explanation.clustering.is_none() {
        return;
    }
    section(page, "bursts", "Bursts or single events", |page| {
        if let Some(clustering) = &explanation.clustering {
            paragraph(page, "explain", &explained::clustering_sentence(clustering));
        }
        if let Some(map) = map {
            map.put(page);
        }
        if let Some(clustering) = &explanation.clustering {
            put_autocorrelation(page, clustering);
        }
    });
}

/// The heat map with few enough columns.
struct Map<'a> {
    of: &'a HeatMap,
    /// Columns of the data in one that is drawn.
    joined: usize,
    /// Requests in each cell, one list of rows for each drawn column.
    cells: Vec<Vec<u64>>,
    most: u64,
}

impl<'a> Map<'a> {
    fn of(of: &'a HeatMap) -> Option<Self> {
        let joined = of.counts.len().div_ceil(COLUMNS).max(1);
        let cells: Vec<Vec<u64>> = (of.counts.chunks(joined))
            .map(|columns| {
                (0..of.row_edges_ns.len())
                    .map(|row| columns.iter().filter_map(|c| c.get(row)).sum())
                    .collect()
            })
            .collect();
        let most = cells.iter().flatten().copied().max().filter(|&n| n > 0)?;
        Some(Self {
            of,
            joined,
            cells,
            most,
        })
    }

    /// 1 … [`STEPS`] on a logarithmic scale of counts; 0 for none.
    fn step(&self, requests: u64) -> u64 {
        if requests == 0 {
            return 0;
        }
        let at = (requests as f64).ln_1p() / (self.most as f64).ln_1p();
        ((at * STEPS as f64).ceil() as u64).clamp(1, STEPS)
    }

    fn put(&self, page: &mut Markup) {
        let rows = self.of.row_edges_ns.len();
        put!(
            page,
            "<figure class=\"chart heat\">\n<ul class=\"legend\">\n<li>requests in a cell:</li>\n"
        );
        for step in 1..=STEPS {
            let most = ((step as f64 / STEPS as f64) * (self.most as f64).ln_1p()).exp_m1();
            // every other step says its figure, so that the legend stays on a line
            let label = match step {
                1 | STEPS => count(most.round() as u64),
                step if step % 3 == 0 => count(most.round() as u64),
                _ => String::new(),
            };
            put!(
                page,
                "<li class=\"step\">{}{label}</li>\n",
                patch(&format!("heat-{step}")),
            );
        }
        put!(
            page,
            "</ul>\n<p class=\"axis\">sojourn</p>\n<div class=\"plot\">\n\
             <svg class=\"frame\" role=\"img\" aria-labelledby=\"heat-title heat-text\">\n\
             <title id=\"heat-title\">Latency over time</title>\n\
             <desc id=\"heat-text\">How many requests were how slow, over the time of the \
             measurement.</desc>\n<g class=\"ticks\">\n"
        );
        self.put_ticks(page, rows);
        put!(
            page,
            "</g>\n<svg width=\"100%\" height=\"100%\" viewBox=\"0 0 {SIDE} {SIDE}\" \
             preserveAspectRatio=\"none\">\n"
        );
        // one path for each colour instead of one rectangle for each cell: a tenth of the size
        let (width, height) = (SIDE / self.cells.len() as f64, SIDE / rows as f64);
        for step in 1..=STEPS {
            let mut d = String::new();
            for (x, column) in self.cells.iter().enumerate() {
                let mut row = 0;
                while row < column.len() {
                    let same = |row: usize| self.step(column[row]) == step;
                    if !same(row) {
                        row += 1;
                        continue;
                    }
                    let from = row;
                    while row < column.len() && same(row) {
                        row += 1;
                    }
                    d.push_str(&format!(
                        "M{:.1} {:.1}h{:.2}v{:.1}h-{:.2}z",
                        x as f64 * width,
                        SIDE - from as f64 * height,
                        width + 0.3,
                        -((row - from) as f64) * height,
                        width + 0.3,
                    ));
                }
            }
            if !d.is_empty() {
                put!(page, "<path class=\"heat-{step}\" d=\"{d}\"/>\n");
            }
        }
        put!(
            page,
            "</svg>\n</svg>\n</div>\n<p class=\"axis right\">time since the start</p>\n\
             <figcaption>Each column is {} of the measurement. Bursts show as columns that reach \
             up, single slow requests as lone cells.</figcaption>\n</figure>\n",
            round_length(self.of.column_ns.get() as f64 * self.joined as f64)
        );
    }

    fn put_ticks(&self, page: &mut Markup, rows: usize) {
        /// Labels at the left and below.
        const LABELS: usize = 8;
        let every = rows.div_ceil(LABELS).max(1);
        for (row, edge) in self.of.row_edges_ns.iter().enumerate().step_by(every) {
            let at = 100.0 * (1.0 - row as f64 / rows as f64);
            put!(
                page,
                "<line x1=\"0\" x2=\"100%\" y1=\"{at:.3}%\" y2=\"{at:.3}%\"/>\
                 <text class=\"y\" x=\"-10\" y=\"{at:.3}%\" dy=\"0.35em\">{}</text>\n",
                round_length(edge.get() as f64)
            );
        }
        let whole_ns = self.of.column_ns.get() as f64 * self.of.counts.len() as f64;
        for ns in even_steps(whole_ns, LABELS) {
            let at = 100.0 * ns / whole_ns;
            let label = if ns == 0.0 {
                "0".to_owned()
            } else {
                round_length(ns)
            };
            put!(
                page,
                "<text class=\"x\" x=\"{at:.3}%\" y=\"100%\" dy=\"1.5em\">{label}</text>\n"
            );
        }
    }
}

/// Round values from 0 to `whole`, at most about `most` of them.
fn even_steps(whole: f64, most: usize) -> Vec<f64> {
    let rough = whole / most as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|mantissa| mantissa * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    (0..)
        .map(|i| f64::from(i) * step)
        .take_while(|at| *at <= whole)
        .collect()
}

/// How much likelier a request is to be slow when the n-th before it was.
fn put_autocorrelation(page: &mut Markup, clustering: &Clustering) {
    let points = &clustering.autocorrelation;
    if points.is_empty() {
        return;
    }
    put!(
        page,
        "<figure class=\"chart lags\">\n<p class=\"axis\">correlation of slow requests (above {}) that \
         are so many requests apart</p>\n<div class=\"plot\">\n\
         <svg class=\"frame low\" role=\"img\" aria-label=\"Autocorrelation of slow requests\">\n\
         <g class=\"ticks\">\n",
        quantile_name(clustering.q)
    );
    for tenths in [0, 2, 4, 6, 8, 10] {
        let at = 100.0 - f64::from(tenths) * 10.0;
        put!(
            page,
            "<line x1=\"0\" x2=\"100%\" y1=\"{at}%\" y2=\"{at}%\"/>\
             <text class=\"y\" x=\"-10\" y=\"{at}%\" dy=\"0.35em\">{:.1}</text>\n",
            f64::from(tenths) / 10.0
        );
    }
    put!(page, "</g>\n");
    let width = 100.0 / points.len() as f64;
    let every = points.len().div_ceil(12);
    for (i, (lag, correlation)) in points.iter().enumerate() {
        let height = 100.0 * correlation.clamp(0.0, 1.0);
        let left = width * i as f64;
        put!(
            page,
            "<rect class=\"measured\" x=\"{:.3}%\" width=\"{:.3}%\" y=\"{:.3}%\" height=\"{height:.3}%\">\
             <title>{} requests apart: {correlation:.3}</title></rect>\n",
            left + width * 0.15,
            width * 0.7,
            100.0 - height,
            count(u64::from(*lag)),
        );
        if i % every == 0 {
            put!(
                page,
                "<text class=\"x\" x=\"{:.3}%\" y=\"100%\" dy=\"1.5em\">{}</text>\n",
                left + width / 2.0,
                count(u64::from(*lag))
            );
        }
    }
    put!(
        page,
        "</svg>\n</div>\n<p class=\"axis right\">requests apart</p>\n</figure>\n"
    );
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
        None => lacking("too few requests"),
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
            workers_table(&explanation.workers, usize::MAX).put(page);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_joined_and_no_request_is_lost() {
        let heat_map = HeatMap {
            column_ns: Nanos::from_millis(10),
            row_edges_ns: vec![Nanos::ZERO, Nanos::from_millis(1)],
            counts: (0..1_000).map(|i| vec![10, i % 2]).collect(),
        };
        let map = Map::of(&heat_map).unwrap();
        assert!(map.cells.len() <= COLUMNS);
        let drawn: u64 = map.cells.iter().flatten().sum();
        assert_eq!(drawn, 10_000 + 500);
        assert_eq!(map.step(0), 0);
        assert_eq!(map.step(map.most), STEPS);
        assert!(Map::of(&HeatMap::default()).is_none());
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(
            even_steps(30e9, 8),
            [0.0, 5e9, 10e9, 15e9, 20e9, 25e9, 30e9]
        );
        assert!(even_steps(7.3, 8).len() <= 9);
    }
}
