//! Tables of the five stages between the driver and the server's threads.

use taillab_model::explanation::{ApplicationAt, ThreadActivity};
use taillab_model::summary::{ServerResult, Stages};
use taillab_model::{Distribution, Stage};

use crate::figures::{count, counted, micros, micros_f64, percent, quantile_name};
use crate::latency;
use crate::table::{Column, Table, cell, known, lacking, name};
use crate::text::Ink;

/// `T1–T2`.
pub(crate) fn span(stage: Stage) -> String {
    stage.key().to_uppercase().replace('_', "–")
}

/// The stages in the order of [`Stage::ALL`].
pub const fn all(stages: &Stages) -> [&Distribution; 5] {
    [
        &stages.t1_t2,
        &stages.t2_t3,
        &stages.t3_t4,
        &stages.t4_t5,
        &stages.t5_t6,
    ]
}

/// The mean stages of the complete requests around each percentile.
pub(crate) fn at_percentiles(result: &ServerResult) -> Table {
    let mut columns = vec![Column::left("around"), Column::right("mean")];
    columns.extend(Stage::ALL.map(|stage| Column::right(span(stage)).note(stage.label().into())));
    let mut table = Table::new("The same in microseconds", columns);
    for at in &result.stages_at {
        let mut cells = vec![name(quantile_name(at.q))];
        if at.requests == 0 {
            cells.push(lacking("no complete request in the band"));
            table.row(cells);
            continue;
        }
        let largest = at.mean_stage_ns.iter().copied().fold(0.0, f64::max);
        let requests = counted(at.requests, "request", "requests");
        cells.push(cell(micros_f64(at.mean_sojourn_ns)).note(requests));
        cells.extend(at.mean_stage_ns.map(|ns| {
            let ink = if ns >= largest {
                Ink::Title
            } else {
                Ink::Plain
            };
            cell(micros_f64(ns)).ink(ink)
        }));
        table.row(cells);
    }
    table
}

/// What the server did between T4 and T5; `None` where that is not known.
pub(crate) fn application(result: &ServerResult) -> Option<Table> {
    let rows = &result.explanation.as_ref()?.application;
    let mean = |at: &ApplicationAt, doing: ThreadActivity| {
        let mut parts = at.parts.iter();
        parts
            .find(|part| part.doing == doing)
            .map(|part| part.mean_ns)
    };
    let occurs = |doing: &ThreadActivity| rows.iter().any(|at| mean(at, *doing).is_some());
    let kinds: Vec<ThreadActivity> = ThreadActivity::ALL.into_iter().filter(occurs).collect();
    let mut columns = vec![Column::left("around"), Column::right("T4–T5")];
    columns.extend(kinds.iter().map(|doing| Column::right(doing.label())));
    let mut table = Table::new("T4–T5 by what the server did, in microseconds", columns);
    for at in rows {
        let mut cells = vec![name(quantile_name(at.q)), cell(micros_f64(at.mean_ns))];
        cells.extend(
            kinds
                .iter()
                .map(|doing| known(mean(at, *doing).map(micros_f64))),
        );
        table.row(cells);
    }
    (!rows.is_empty()).then_some(table)
}

/// How long other servers take to answer this one; `None` where it was not seen to ask any.
pub(crate) fn upstreams(result: &ServerResult) -> Option<Table> {
    const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
    let rows = &result.explanation.as_ref()?.upstreams;
    let mut columns = vec![Column::left("server"), Column::right("answers")];
    columns.extend(QUANTILES.map(|q| Column::right(quantile_name(q))));
    columns.push(Column::right("max"));
    let mut table = Table::new(
        "From the question to the first data of the answer, in microseconds",
        columns,
    );
    for at in rows {
        let mut cells = vec![name(at.server.clone()), cell(count(at.answers.count))];
        cells.extend(QUANTILES.map(|q| latency::quantile(&at.answers, q)));
        cells.push(known(at.answers.max.map(micros)));
        table.row(cells);
    }
    (!rows.is_empty()).then_some(table)
}

/// The distribution of each stage.
pub(crate) fn distributions(result: &ServerResult) -> Table {
    const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
    let stages = all(&result.stages);
    let total_ns: f64 = stages.iter().filter_map(|stage| stage.mean).sum();
    let complete = counted(stages[0].count, "complete request", "complete requests");
    let mut columns = vec![Column::left(""), Column::left("").gap(1)];
    columns.extend(QUANTILES.map(|q| Column::right(quantile_name(q))));
    columns.push(Column::right("max").on_page());
    columns.push(Column::right("mean share").short("share"));
    let caption = format!("In microseconds, over {complete}");
    let mut table = Table::new(caption, columns);
    for (stage, distribution) in Stage::ALL.into_iter().zip(stages) {
        let mut cells = vec![name(span(stage)), cell(stage.label())];
        cells.extend(QUANTILES.map(|q| latency::quantile(distribution, q)));
        cells.push(known(distribution.max.map(micros)));
        cells.push(known(
            (distribution.mean.filter(|_| total_ns > 0.0)).map(|mean| percent(mean / total_ns, 1)),
        ));
        table.row(cells);
    }
    table
}
