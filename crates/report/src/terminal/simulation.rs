//! The result of `taillab sim` as tables.

use taillab_model::{CONFIDENCE, Distribution, Quantile, REPORTED_QUANTILES};

use super::text::{Ink, Side, Table, clean};
use super::{INDENT, Page, Style, WIDEST};
use crate::figures;
use crate::simulation::{Runs, SimulatedRun, SimulationReport};

/// Columns of runs that are compared side by side; more of them stand in rows.
const MOST_COLUMNS: usize = 4;

/// The tables; a chart is drawn by [`super::render_chart`].
pub fn render(report: &SimulationReport, style: Style) -> String {
    let mut page = Page {
        style: Style {
            width: style.width.clamp(40, WIDEST),
            ..style
        },
        text: String::new(),
    };
    let runs = report.runs.all();
    page.simulation_header(report);
    let unit = Unit::of(runs);
    match &report.runs {
        Runs::One(run) => {
            page.one_run(run, unit);
            page.fanout(run, unit);
        }
        Runs::Several { runs } if report.swept.is_empty() && runs.len() <= MOST_COLUMNS => {
            page.side_by_side(report, runs, unit);
        }
        Runs::Several { runs } => page.in_rows(report, runs, unit),
    }
    if runs.len() > 1 {
        page.several_fanouts(report, unit);
        page.several_exact(report);
    }
    page.engines(report);
    page.simulation_warnings(report);
    page.text
}

/// The unit and the decimals of all times in a report, so that columns can be compared.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    ns: f64,
    decimals: usize,
}

impl Unit {
    fn of(runs: &[SimulatedRun]) -> Self {
        let typical = runs.iter().filter_map(|run| run.sojourn.mean);
        let typical = typical.fold(f64::INFINITY, f64::min);
        let (name, ns) = match typical {
            x if x < 1e3 => ("ns", 1.0),
            x if x < 2e6 || x.is_infinite() => ("µs", 1e3),
            x if x < 2e9 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        let decimals = match typical / ns {
            x if x < 10.0 => 3,
            x if x < 1_000.0 => 2,
            _ => 1,
        };
        Self { name, ns, decimals }
    }

    fn write(self, ns: f64) -> String {
        figures::grouped(ns / self.ns, self.decimals)
    }

    fn interval(self, quantile: &Quantile) -> Option<String> {
        let (lo, hi) = (quantile.lo?, quantile.hi?);
        let [lo, hi] = [lo, hi].map(|ns| self.write(ns.get() as f64));
        Some(format!("{lo}–{hi}"))
    }
}

/// Half of the interval relative to the value: `±0.3 %`.
fn relative(quantile: &Quantile) -> Option<String> {
    let (value, lo, hi) = (quantile.value?, quantile.lo?, quantile.hi?);
    let half = hi.saturating_sub(lo).get() as f64 / 2.0;
    let percent = 100.0 * half / (value.get() as f64).max(1.0);
    let text = match percent {
        0.0 => "±0".to_owned(),
        x if x < 0.1 => "±<0.1".to_owned(),
        x if x < 10.0 => format!("±{x:.1}"),
        x => format!("±{x:.0}"),
    };
    Some(format!("{text} %"))
}

fn quantile(distribution: &Distribution, q: f64) -> Option<&Quantile> {
    distribution.quantiles.iter().find(|x| x.q == q)
}

fn value_ns(distribution: &Distribution, q: f64) -> Option<f64> {
    distribution.quantile(q).map(|ns| ns.get() as f64)
}

fn plain(text: impl Into<String>) -> (Ink, String) {
    (Ink::Plain, text.into())
}

fn quiet(text: impl Into<String>) -> (Ink, String) {
    (Ink::Quiet, text.into())
}

fn strong(text: impl Into<String>) -> (Ink, String) {
    (Ink::Title, text.into())
}

fn z_cell(z: Option<f64>) -> (Ink, String) {
    /// As far as chance goes; beyond it something is wrong.
    const FAR: f64 = 4.0;
    match z {
        Some(z) if z.abs() > FAR => (Ink::Bad, figures::grouped(z, 1)),
        Some(z) => plain(figures::grouped(z, 1)),
        None => quiet("–"),
    }
}

impl Page {
    fn simulation_header(&mut self, report: &SimulationReport) {
        let title = self.style.paint(Ink::Title, "taillab sim");
        let partial = if report.partial {
            let word = self.style.paint(Ink::Notable, "PARTIAL");
            format!("  {word}  interrupted; this is what there was")
        } else {
            String::new()
        };
        self.line(&format!("{title}{partial}"));
        self.fact("system", &clean(&report.common()));
        let runs = report.runs.all();
        let run = &runs[0];
        if !run.service.starts_with("deterministic") {
            let mean = Unit::of(runs).write(run.service_mean_ns);
            let unit = Unit::of(runs).name;
            self.fact("mean service", &format!("{mean} {unit}"));
        }
        let least = runs.iter().map(|run| run.sojourn.count).min().unwrap_or(0);
        let most = runs.iter().map(|run| run.sojourn.count).max().unwrap_or(0);
        let requests = if least == most {
            figures::counted(most, "request", "requests")
        } else {
            format!(
                "{} to {} requests",
                figures::count(least),
                figures::count(most)
            )
        };
        let each = if runs.len() > 1 { " each" } else { "" };
        let how = match (run.replications, run.stopped) {
            (1, _) => "one pass through the trace, from an empty queue".to_owned(),
            (n, stopped) => format!(
                "{} independent replications, the first {} of each discarded{}",
                figures::count(n),
                figures::counted(run.warm_up.requests, "request", "requests"),
                match stopped {
                    "precise" => "; as precise as it was to be",
                    "limit" => "; the limit came before the precision",
                    _ => "",
                }
            ),
        };
        self.fact(
            "sample",
            &format!("{requests}{each}; seed {}; {how}", run.seed),
        );
        if runs.len() > 1 && report.swept.is_empty() {
            self.fact(
                "compared on",
                "common random numbers: the same arrivals and service times",
            );
        }
    }

    fn one_run(&mut self, run: &SimulatedRun, unit: Unit) {
        let exact = run.exact.as_ref().and_then(Option::as_ref);
        self.heading(
            &format!("Latency in {}", unit.name),
            &format!("with {:.0} % intervals", 100.0 * CONFIDENCE),
        );
        let mut sides = vec![(Side::Left, INDENT), (Side::Right, 3), (Side::Left, 1)];
        let mut head = vec![quiet(""), quiet("sojourn"), quiet("")];
        if exact.is_some() {
            sides.extend([(Side::Right, 3), (Side::Right, 2)]);
            head.extend([quiet("exact"), quiet("z")]);
        }
        sides.push((Side::Right, 3));
        head.push(quiet("wait"));
        let mut table = Table::new(&sides);
        table.row(head);
        let dash = || quiet("–");
        let time = |ns: Option<f64>| ns.map_or_else(dash, |ns| plain(unit.write(ns)));
        let mut mean = vec![strong("mean"), time(run.sojourn.mean)];
        let error = run.mean_standard_error_ns.filter(|error| error.is_finite());
        mean.push(quiet(error.map_or_else(String::new, |error| {
            format!("± {}", unit.write(1.96 * error))
        })));
        if let Some(exact) = exact {
            mean.push(plain(unit.write(exact.mean)));
            mean.push(z_cell(run.z.as_ref().and_then(|z| z.mean)));
        }
        mean.push(time(run.wait.mean));
        table.row(mean);
        for q in REPORTED_QUANTILES {
            let name = strong(figures::quantile_name(q));
            let known = quantile(&run.sojourn, q);
            let exact_ns = exact.and_then(|exact| {
                let found = exact.quantiles.iter().find(|x| x.q == q);
                found.and_then(|x| x.value).map(|ns| ns.get() as f64)
            });
            let Some(value) = known.and_then(|x| x.value) else {
                let need = match exact_ns {
                    Some(ns) => format!("{} (exact: {})", run.need(q), unit.write(ns)),
                    None => run.need(q),
                };
                table.running_row(vec![name, quiet(need)]);
                continue;
            };
            let interval = known.and_then(|x| unit.interval(x)).unwrap_or_default();
            let mut cells = vec![name, plain(unit.write(value.get() as f64)), quiet(interval)];
            if exact.is_some() {
                cells.push(time(exact_ns));
                let z = run
                    .z
                    .as_ref()
                    .and_then(|z| z.quantiles.iter().find(|x| x.q == q));
                cells.push(z_cell(z.and_then(|z| z.z)));
            }
            cells.push(time(value_ns(&run.wait, q)));
            table.row(cells);
        }
        let mut max = vec![
            strong("max"),
            time(run.sojourn.max.map(|ns| ns.get() as f64)),
            quiet(""),
        ];
        if exact.is_some() {
            max.extend([quiet(""), quiet("")]);
        }
        max.push(time(run.wait.max.map(|ns| ns.get() as f64)));
        table.row(max);
        self.table(&table);
        if let Some(share) = run.waited_share {
            let text = format!("{} of the requests waited.", figures::percent(share, 1));
            self.paragraph(Ink::Quiet, &text);
        }
        match (&run.exact, exact) {
            (_, Some(exact)) => self.exact_note(run, &exact.model, &exact.source),
            (Some(None), None) => self.paragraph(Ink::Notable, UNKNOWN),
            _ => {}
        }
    }

    fn exact_note(&mut self, run: &SimulatedRun, model: &str, source: &str) {
        let worst = run.worst_z();
        let agreement = match worst {
            Some(z) => format!(
                "; z is the deviation in standard errors, |z| ≤ {:.1} here",
                (z.abs() * 10.0).ceil() / 10.0
            ),
            None => String::new(),
        };
        let text = format!("Exact: {model} ({source}){agreement}.");
        self.paragraph(Ink::Quiet, &clean(&text));
    }

    fn fanout(&mut self, run: &SimulatedRun, unit: Unit) {
        let Some(fanout) = &run.fanout else { return };
        let parts = figures::count(u64::from(fanout.parts));
        self.heading(
            &format!("The slowest of {parts} parts, in {}", unit.name),
            "what a user waits whose request goes to as many servers",
        );
        let mut sides = vec![
            (Side::Left, INDENT),
            (Side::Right, 3),
            (Side::Right, 3),
            (Side::Left, 1),
        ];
        let mut head = vec![
            quiet(""),
            quiet("one part"),
            quiet("independent"),
            quiet(""),
        ];
        if fanout.fork_join.is_some() {
            sides.extend([(Side::Right, 3), (Side::Left, 1)]);
            head.extend([quiet("fork-join"), quiet("")]);
        }
        let mut table = Table::new(&sides);
        table.row(head);
        for slowest in &fanout.independent {
            let one = value_ns(&run.sojourn, slowest.q);
            let mut cells = vec![
                strong(figures::quantile_name(slowest.q)),
                one.map_or_else(|| quiet("–"), |ns| plain(unit.write(ns))),
            ];
            push_quantile(&mut cells, Some(slowest), unit);
            if let Some(fork_join) = &fanout.fork_join {
                push_quantile(&mut cells, quantile(fork_join, slowest.q), unit);
            }
            table.row(cells);
        }
        self.table(&table);
        if fanout.fork_join.is_some() {
            self.paragraph(
                Ink::Quiet,
                "Fork-join: every request goes to all parts at the same instant, each with one \
                 worker of its own in arrival order, so that their queues are long together.",
            );
        }
    }

    fn several_fanouts(&mut self, report: &SimulationReport, unit: Unit) {
        let runs = report.runs.all();
        let Some(first) = runs.iter().find_map(|run| run.fanout.as_ref()) else {
            return;
        };
        let parts = figures::count(u64::from(first.parts));
        self.heading(
            &format!("The slowest of {parts} independent parts, in {}", unit.name),
            "",
        );
        let mut sides = vec![(Side::Left, INDENT)];
        let mut head = vec![quiet("")];
        for slowest in &first.independent {
            sides.push((Side::Right, 2));
            head.push(quiet(figures::quantile_name(slowest.q)));
        }
        let mut table = Table::new(&sides);
        table.row(head);
        for run in runs {
            let mut cells = vec![strong(clean(&report.label(run)))];
            for slowest in run.fanout.iter().flat_map(|fanout| &fanout.independent) {
                let text = slowest.value.map(|ns| unit.write(ns.get() as f64));
                cells.push(text.map_or_else(|| quiet("–"), plain));
            }
            table.row(cells);
        }
        self.table(&table);
    }

    fn side_by_side(&mut self, report: &SimulationReport, runs: &[SimulatedRun], unit: Unit) {
        let tables = [true, false].map(|with| (with, side_by_side_table(report, runs, unit, with)));
        let fitting = tables
            .iter()
            .find(|(_, table)| table.width() <= self.style.width);
        let Some((with, table)) = fitting.or(tables.last()) else {
            return;
        };
        let remark = if *with {
            "with half the 95 % interval"
        } else {
            ""
        };
        self.heading(&format!("Sojourn in {}", unit.name), remark);
        self.table(table);
        self.needs(report);
    }

    fn in_rows(&mut self, report: &SimulationReport, runs: &[SimulatedRun], unit: Unit) {
        const CHOICES: [(&[f64], bool); 5] = [
            (&REPORTED_QUANTILES, true),
            (&REPORTED_QUANTILES, false),
            (&[0.5, 0.9, 0.99, 0.999, 0.9999], false),
            (&[0.5, 0.99, 0.999], false),
            (&[0.5, 0.99], false),
        ];
        let tables = CHOICES
            .map(|(quantiles, with)| (with, rows_table(report, runs, unit, quantiles, with)));
        let fitting = tables
            .iter()
            .find(|(_, table)| table.width() <= self.style.width);
        let Some((with, table)) = fitting.or(tables.last()) else {
            return;
        };
        let remark = if *with {
            "with half the 95 % interval"
        } else {
            "95 % intervals with --json or --parquet"
        };
        self.heading(&format!("Sojourn in {}", unit.name), remark);
        self.table(table);
        self.needs(report);
    }

    /// What the dashes of a comparison mean.
    fn needs(&mut self, report: &SimulationReport) {
        let runs = report.runs.all();
        for q in REPORTED_QUANTILES {
            let needs = runs.iter().flat_map(|run| &run.needs);
            let most = needs.filter(|(of, _)| *of == q).map(|(_, n)| *n).max();
            if let Some(n) = most {
                let text = format!(
                    "– {}: needs up to {} requests",
                    figures::quantile_name(q),
                    figures::round_count(n)
                );
                self.paragraph(Ink::Quiet, &text);
            }
        }
    }

    fn several_exact(&mut self, report: &SimulationReport) {
        let runs = report.runs.all();
        if runs.iter().all(|run| run.exact.is_none()) {
            return;
        }
        self.heading(
            "Against exact theory",
            "largest deviation in standard errors",
        );
        let mut table = Table::new(&[(Side::Left, INDENT), (Side::Right, 3), (Side::Left, 3)]);
        for run in runs {
            let label = strong(clean(&report.label(run)));
            match run.exact.as_ref().and_then(Option::as_ref) {
                Some(exact) => table.running_row(vec![
                    label,
                    z_cell(run.worst_z()),
                    quiet(format!("{} ({})", exact.model, exact.source)),
                ]),
                None => table.running_row(vec![label, quiet("no exact result is known")]),
            }
        }
        self.table(&table);
    }

    fn engines(&mut self, report: &SimulationReport) {
        let runs = report.runs.all();
        self.line("");
        let of = |run: &SimulatedRun| {
            let engine = &run.engine;
            format!(
                "{} kernel ({}), {}",
                engine.kernel,
                engine.isa,
                figures::counted(engine.threads as u64, "thread", "threads")
            )
        };
        let mut kinds: Vec<String> = Vec::new();
        for kind in runs.iter().map(of) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
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
        self.paragraph(Ink::Quiet, &text);
    }

    fn simulation_warnings(&mut self, report: &SimulationReport) {
        for run in report.runs.all() {
            for warning in &run.warnings {
                let text = if report.runs.all().len() > 1 {
                    format!("! {}: {warning}", report.label(run))
                } else {
                    format!("! {warning}")
                };
                self.paragraph(Ink::Notable, &clean(&text));
            }
        }
    }
}

/// What is said when there is no exact result.
const UNKNOWN: &str = "No exact result is known for this system. Known are, with Poisson arrivals: \
deterministic or exponential service on any number of workers under fifo, round-robin and \
random-worker; exponential service also under lifo and random-request; deterministic service on \
one worker under lifo and random-request; processor sharing (ps); and the mean of any service on \
one worker.";

fn push_quantile(cells: &mut Vec<(Ink, String)>, quantile: Option<&Quantile>, unit: Unit) {
    let value = quantile.and_then(|x| x.value);
    cells.push(value.map_or_else(|| quiet("–"), |ns| plain(unit.write(ns.get() as f64))));
    let interval = quantile.and_then(|x| unit.interval(x));
    cells.push(quiet(interval.unwrap_or_default()));
}

/// Quantiles in rows, runs in columns; the best of each row stands out.
fn side_by_side_table(
    report: &SimulationReport,
    runs: &[SimulatedRun],
    unit: Unit,
    intervals: bool,
) -> Table {
    let mut sides = vec![(Side::Left, INDENT)];
    let mut head = vec![quiet("")];
    for run in runs {
        sides.push((Side::Right, 3));
        head.push(strong(clean(&report.label(run))));
        if intervals {
            sides.push((Side::Left, 1));
            head.push(quiet(""));
        }
    }
    let mut table = Table::new(&sides);
    table.row(head);
    let mut row = |name: String, cells: Vec<(Option<f64>, Option<String>)>| {
        let best = cells
            .iter()
            .filter_map(|(ns, _)| *ns)
            .fold(f64::INFINITY, f64::min);
        let mut line = vec![strong(name)];
        for (ns, interval) in cells {
            line.push(match ns {
                Some(ns) if ns == best => (Ink::Good, unit.write(ns)),
                Some(ns) => plain(unit.write(ns)),
                None => quiet("–"),
            });
            if intervals {
                line.push(quiet(interval.unwrap_or_default()));
            }
        }
        table.row(line);
    };
    row(
        "mean".to_owned(),
        runs.iter().map(|run| (run.sojourn.mean, None)).collect(),
    );
    for q in REPORTED_QUANTILES {
        let cells = runs.iter().map(|run| {
            let interval = quantile(&run.sojourn, q).and_then(relative);
            (value_ns(&run.sojourn, q), interval)
        });
        row(figures::quantile_name(q), cells.collect());
    }
    row(
        "max".to_owned(),
        runs.iter()
            .map(|run| (run.sojourn.max.map(|ns| ns.get() as f64), None))
            .collect(),
    );
    table
}

/// Runs in rows, quantiles in columns.
fn rows_table(
    report: &SimulationReport,
    runs: &[SimulatedRun],
    unit: Unit,
    quantiles: &[f64],
    intervals: bool,
) -> Table {
    let mut sides = vec![(Side::Left, INDENT), (Side::Right, 2)];
    let mut head = vec![quiet(""), quiet("mean")];
    for q in quantiles {
        sides.push((Side::Right, 2));
        head.push(quiet(figures::quantile_name(*q)));
        if intervals {
            sides.push((Side::Left, 1));
            head.push(quiet(""));
        }
    }
    let mut table = Table::new(&sides);
    table.row(head);
    for run in runs {
        let time = |ns: Option<f64>| ns.map_or_else(|| quiet("–"), |ns| plain(unit.write(ns)));
        let mut cells = vec![strong(clean(&report.label(run))), time(run.sojourn.mean)];
        for q in quantiles {
            cells.push(time(value_ns(&run.sojourn, *q)));
            if intervals {
                let interval = quantile(&run.sojourn, *q).and_then(relative);
                cells.push(quiet(interval.unwrap_or_default()));
            }
        }
        table.row(cells);
    }
    table
}
