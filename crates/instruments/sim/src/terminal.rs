//! The result of `taillab sim` as tables.

use taillab_model::{CONFIDENCE, REPORTED_QUANTILES};
use taillab_report::figures;
use taillab_report::table::Table;
use taillab_report::terminal::Page;
use taillab_report::text::{Ink, Style, distinct};

use crate::result::{Runs, SimulatedRun, SimulationReport};
use crate::tables::{
    Unit, exact_table, fanout_table, fanouts_table, relative, rows_table, run_table,
    side_by_side_table,
};

/// Up to this many runs are compared in columns; more of them in rows.
const MOST_COLUMNS: usize = 4;

/// The tables; a chart is drawn by [`taillab_report::terminal::render_chart`].
pub fn render(report: &SimulationReport, style: Style) -> String {
    let mut page = Page::new(style);
    let runs = report.runs.all();
    simulation_header(&mut page, report);
    let unit = Unit::of(runs);
    match &report.runs {
        Runs::One(run) => {
            one_run(&mut page, run, unit);
            fanout(&mut page, run, unit);
        }
        Runs::Several { runs } if report.swept.is_empty() && runs.len() <= MOST_COLUMNS => {
            side_by_side(&mut page, report, unit);
        }
        Runs::Several { .. } => in_rows(&mut page, report, unit),
    }
    if runs.len() > 1 {
        several_fanouts(&mut page, report, unit);
        several_exact(&mut page, report);
    }
    engines(&mut page, report);
    simulation_warnings(&mut page, report);
    page.text
}

fn simulation_header(page: &mut Page, report: &SimulationReport) {
    let title = page.style.paint(Ink::Title, "taillab sim");
    let partial = if report.partial {
        let word = page.style.paint(Ink::Notable, "PARTIAL");
        format!("  {word}  interrupted; these are the results so far")
    } else {
        String::new()
    };
    page.line(&format!("{title}{partial}"));
    page.fact("system", &report.common());
    let runs = report.runs.all();
    let run = &runs[0];
    if !run.service.starts_with("deterministic") {
        let mean = Unit::of(runs).write(run.service_mean_ns);
        let unit = Unit::of(runs).name;
        page.fact("mean service", &format!("{mean} {unit}"));
    }
    let (one, many) = ("independent replication", "independent replications");
    let requests = range(runs, |run| run.sojourn.count, "request", "requests");
    let each = if runs.len() > 1 { " each" } else { "" };
    let how = match run.replications {
        1 => "one pass through the trace, from an empty queue".to_owned(),
        _ => format!(
            "{}, the first {} of each discarded{}",
            range(runs, |run| run.replications, one, many),
            range(runs, |run| run.warm_up.requests, "request", "requests"),
            precision(runs)
        ),
    };
    page.fact(
        "sample",
        &format!("{requests}{each}; seed {}; {how}", run.seed),
    );
    if runs.len() > 1 && report.swept.is_empty() {
        page.fact(
            "compared on",
            "common random numbers: the same arrivals and service times",
        );
    }
}

fn one_run(page: &mut Page, run: &SimulatedRun, unit: Unit) {
    let exact = run.exact.as_ref().and_then(Option::as_ref);
    page.heading(
        &format!("Latency in {}", unit.name),
        &format!("with {:.0} % intervals", 100.0 * CONFIDENCE),
    );
    page.table(&run_table(run));
    if let Some(share) = run.waited_share {
        let text = format!("{} of the requests waited.", figures::percent(share, 1));
        page.paragraph(Ink::Quiet, &text);
    }
    match (&run.exact, exact) {
        (_, Some(exact)) => exact_note(page, run, &exact.model, &exact.source),
        (Some(None), None) => page.paragraph(Ink::Notable, UNKNOWN),
        _ => {}
    }
}

fn exact_note(page: &mut Page, run: &SimulatedRun, model: &str, source: &str) {
    let worst = run.worst_z();
    let agreement = match worst {
        Some(z) => format!(
            "; z is the deviation in standard errors, |z| ≤ {:.1} here",
            (z.abs() * 10.0).ceil() / 10.0
        ),
        None => String::new(),
    };
    let text = format!("Exact: {model} ({source}){agreement}.");
    page.paragraph(Ink::Quiet, &text);
}

fn fanout(page: &mut Page, run: &SimulatedRun, unit: Unit) {
    let Some(fanout) = &run.fanout else { return };
    let parts = figures::count(u64::from(fanout.parts));
    page.heading(
        &format!("The slowest of {parts} parts, in {}", unit.name),
        "how long a user waits for the slowest of that many servers",
    );
    page.table(&fanout_table(run, fanout, unit));
    if fanout.fork_join.is_some() {
        page.paragraph(
            Ink::Quiet,
            "Fork-join: every request goes to all parts at the same instant. Each part has one \
             worker and serves in arrival order, so the queues of all parts are long at the \
             same time.",
        );
    }
}

fn several_fanouts(page: &mut Page, report: &SimulationReport, unit: Unit) {
    let runs = report.runs.all();
    let Some(first) = runs.iter().find_map(|run| run.fanout.as_ref()) else {
        return;
    };
    let parts = figures::count(u64::from(first.parts));
    page.heading(
        &format!("The slowest of {parts} independent parts, in {}", unit.name),
        "",
    );
    page.table(&fanouts_table(report, unit, first));
}

fn side_by_side(page: &mut Page, report: &SimulationReport, unit: Unit) {
    let hide = |table: &mut Table| (1..=MOST_COLUMNS).for_each(|i| table.hide_notes(i));
    let table = side_by_side_table(report, unit).fit(page.style, &[&hide]);
    sojourns(page, report, unit, &table, "");
}

fn in_rows(page: &mut Page, report: &SimulationReport, unit: Unit) {
    let table = |quantiles: &[f64]| {
        let mut table = rows_table(report, unit, quantiles, relative);
        (2..2 + quantiles.len()).for_each(|i| table.hide_notes(i));
        table
    };
    let full = rows_table(report, unit, &REPORTED_QUANTILES, relative).fit(
        page.style,
        &[
            &|narrow| *narrow = table(&REPORTED_QUANTILES),
            &|narrow| *narrow = table(&[0.5, 0.9, 0.99, 0.999, 0.9999]),
            &|narrow| *narrow = table(&[0.5, 0.99, 0.999]),
            &|narrow| *narrow = table(&[0.5, 0.99]),
        ],
    );
    let without = "95 % intervals with --json or --parquet";
    sojourns(page, report, unit, &full, without);
}

/// A comparison; `without` says where the intervals are if the table has none.
fn sojourns(page: &mut Page, report: &SimulationReport, unit: Unit, table: &Table, without: &str) {
    let remark = match table.shows_notes() {
        true => "with half the 95 % interval",
        false => without,
    };
    page.heading(&format!("Sojourn in {}", unit.name), remark);
    page.table(table);
    let runs = report.runs.all().iter();
    let needs: Vec<(f64, u64)> = runs.flat_map(|run| run.needs.iter().copied()).collect();
    let write = |n| format!("up to {} requests", figures::round_count(n));
    page.needs(&needs, write);
}

fn several_exact(page: &mut Page, report: &SimulationReport) {
    let runs = report.runs.all();
    if runs.iter().all(|run| run.exact.is_none()) {
        return;
    }
    page.heading(
        "Against exact theory",
        "largest deviation in standard errors",
    );
    page.table(&exact_table(report));
}

fn engines(page: &mut Page, report: &SimulationReport) {
    let runs = report.runs.all();
    page.line("");
    let of = |run: &SimulatedRun| {
        let engine = &run.engine;
        format!(
            "{} kernel ({}), {}",
            engine.kernel,
            engine.isa,
            figures::counted(engine.threads as u64, "thread", "threads")
        )
    };
    let kinds = distinct(runs.iter().map(of));
    let total: u64 = runs.iter().map(|run| run.engine.requests).sum();
    let seconds: f64 = runs
        .iter()
        .map(|run| run.engine.elapsed_ns.as_secs_f64())
        .sum();
    let speed = total as f64 / seconds.max(1e-9);
    let text = format!(
        "{}: {} requests in {}, {} requests/s",
        kinds.join("; "),
        figures::round_count(total),
        if seconds < 1.0 {
            format!("{:.0} ms", seconds * 1e3)
        } else {
            format!("{seconds:.1} s")
        },
        figures::round_count(speed as u64)
    );
    page.paragraph(Ink::Quiet, &text);
}

fn simulation_warnings(page: &mut Page, report: &SimulationReport) {
    for run in report.runs.all() {
        for warning in &run.warnings {
            let text = if report.runs.all().len() > 1 {
                format!("! {}: {warning}", report.label(run))
            } else {
                format!("! {warning}")
            };
            page.paragraph(Ink::Notable, &text);
        }
    }
}

/// `8 requests`, or `8 to 16 requests` where the runs differ.
fn range(runs: &[SimulatedRun], of: fn(&SimulatedRun) -> u64, one: &str, many: &str) -> String {
    let least = runs.iter().map(of).min().unwrap_or(0);
    let most = runs.iter().map(of).max().unwrap_or(0);
    let counted = figures::counted(most, one, many);
    match least == most {
        true => counted,
        false => format!("{} to {counted}", figures::count(least)),
    }
}

/// Whether the runs reached the precision that was wanted; empty where none was.
fn precision(runs: &[SimulatedRun]) -> &'static str {
    let all = |why: &str| runs.iter().all(|run| run.stopped == why);
    if all("precise") {
        "; stopped at the wanted precision"
    } else if all("limit") {
        "; stopped at the limit, before the wanted precision"
    } else if runs.iter().any(|run| run.stopped == "limit") {
        "; some stopped at the limit, before the wanted precision"
    } else {
        ""
    }
}

/// Shown if there is no exact result.
const UNKNOWN: &str = "No exact result is known for this system. With Poisson arrivals, results are known for: \
deterministic or exponential service on any number of workers under fifo, round-robin and \
random-worker; exponential service also under lifo and random-request; deterministic service on \
one worker under lifo and random-request; processor sharing (ps); and the mean of any service on \
one worker.";
