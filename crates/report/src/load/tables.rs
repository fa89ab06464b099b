//! Tables of a load: its latency, and the steps of a sweep.

use taillab_model::Distribution;
use taillab_model::load_result::{ClosedLoop, Floor, Generator, LoadStep};
use taillab_model::summary::{LoadSummary, Verdict};

use super::LoadSeries;
use crate::figures::{count, known_percent, rate};
use crate::latency::{self, View, short_quantile};
use crate::table::{Cell, Column, Table, cell, known, name};
use crate::text::Ink;

const LATENCY: &str = "Latency in microseconds, below each its 95 % interval";

fn view(series: LoadSeries, distribution: &Distribution) -> View<'_> {
    View {
        label: series.label(),
        short: series.short_label(),
        ink: series.ink(),
        distribution,
        withdrawn_from: None,
    }
}

/// The distributions of a load and of its floor.
pub(crate) fn latency_table(load: &LoadSummary, floor: Option<&Floor>, verdict: &Verdict) -> Table {
    let all = LoadSeries::ALL.iter();
    let views = all.filter_map(|series| Some(view(*series, series.of(load)?)));
    table_of(views.collect(), floor, verdict)
}

/// The service time of a closed loop and of its floor.
pub(crate) fn closed_table(closed: &ClosedLoop, floor: Option<&Floor>, verdict: &Verdict) -> Table {
    let views = vec![view(LoadSeries::ServiceTime, &closed.service_time)];
    let mut table = table_of(views, floor, verdict);
    // the floor is there for comparison only
    table.hide_notes(2);
    table
}

fn table_of<'a>(mut views: Vec<View<'a>>, floor: Option<&'a Floor>, verdict: &Verdict) -> Table {
    let floor = floor.and_then(Floor::latency);
    views.extend(floor.map(|floor| view(LoadSeries::Floor, floor)));
    latency::table(LATENCY, (&views, verdict), None)
}

/// The steps of a sweep in order of their rates.
pub(crate) fn steps_table(generator: &Generator, is_wide: bool) -> Table {
    let searched = generator.found.is_some();
    let gap = if is_wide { 2 } else { 1 };
    let wide = |column: Column| if is_wide { column } else { column.on_page() };
    let figures = [
        wide(Column::right("of capacity")),
        wide(Column::right("sent/s")),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("p99.9"),
        Column::right("late"),
        wide(Column::right("errors")),
    ];
    let mut columns = vec![Column::right("load/s")];
    columns.extend(figures.map(|column| column.gap(gap)));
    columns.extend(searched.then(|| Column::left("objective").gap(gap)));
    columns.push(Column::left("verdict").gap(gap));
    let caption = "Response time in microseconds; “late” is the lateness at p99.9";
    let mut table = Table::new(caption, columns);
    let mut steps: Vec<&LoadStep> = generator.steps.iter().collect();
    steps.sort_by(|a, b| (a.load.target_rate_per_s).total_cmp(&b.load.target_rate_per_s));
    for step in steps {
        let load = &step.load;
        let mut cells = vec![
            name(rate(load.target_rate_per_s)),
            cell(known_percent(load.target_utilization)),
            cell(rate(load.sent_rate_per_s)),
        ];
        cells.extend([0.5, 0.99, 0.999].map(|q| short_quantile(&load.response_time, q)));
        cells.push(short_quantile(&load.lateness, 0.999).ink(Ink::Quiet));
        cells.push(cell(count(load.errors.total())));
        cells.extend(searched.then(|| objective(step)));
        cells.push(match (step.verdict.valid, step.overloaded, step.partial) {
            (_, true, _) => cell("overload").ink(Ink::Notable),
            (false, ..) => cell("INVALID").ink(Ink::Bad),
            (true, _, true) => cell("partial").ink(Ink::Notable),
            (true, ..) => cell("valid").ink(Ink::Good),
        });
        table.row(cells);
    }
    table
}

/// Whether the objective of a search held at a step.
fn objective(step: &LoadStep) -> Cell {
    match step.objective {
        Some(at) if at.held && at.sure => cell("✓ met").ink(Ink::Good),
        Some(at) if at.held => cell("✓ likely").ink(Ink::Notable),
        Some(at) if at.sure => cell("✗ missed").ink(Ink::Bad),
        Some(_) => cell("✗ likely").ink(Ink::Notable),
        None => known(None),
    }
}
