//! Tables of simulated systems.

use taillab_model::interval::NORMAL_975;
use taillab_model::{Distribution, Nanos, Quantile, REPORTED_QUANTILES};
use taillab_report::figures::{self, quantile_name};
use taillab_report::table::{Cell, Column, Table, cell, known, lacking, name};
use taillab_report::text::Ink;

use super::result::{Fanout, SimulatedRun, SimulationReport};

/// The unit and the decimals of all times in a report, so that columns can be compared.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    ns: f64,
    decimals: usize,
}

impl Unit {
    pub(crate) fn of(runs: &[SimulatedRun]) -> Self {
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

    pub(crate) fn write(self, ns: f64) -> String {
        figures::grouped(ns / self.ns, self.decimals)
    }

    /// A mean, or a dash.
    fn mean(self, ns: Option<f64>) -> Cell {
        known(ns.map(|ns| self.write(ns)))
    }

    /// A time, or a dash.
    fn time(self, time: Option<Nanos>) -> Cell {
        self.mean(time.map(|ns| ns.get() as f64))
    }

    /// A quantile with its interval.
    fn quantile(self, quantile: Option<&Quantile>) -> Cell {
        let interval = quantile.and_then(|x| self.interval(x));
        (self.time(quantile.and_then(|x| x.value))).note(interval.unwrap_or_default())
    }

    /// The interval of a quantile: `51.7–56.5`.
    pub(crate) fn interval(self, quantile: &Quantile) -> Option<String> {
        let (lo, hi) = (quantile.lo?, quantile.hi?);
        let [lo, hi] = [lo, hi].map(|ns| self.write(ns.get() as f64));
        Some(format!("{lo}–{hi}"))
    }
}

/// Half of the interval relative to the value: `±0.3 %`.
pub(crate) fn relative(quantile: &Quantile) -> Option<String> {
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

/// A deviation in standard errors.
fn z_cell(z: Option<f64>) -> Cell {
    /// Beyond what chance explains.
    const FAR: f64 = 4.0;
    let ink = match z {
        Some(z) if z.abs() > FAR => Ink::Bad,
        _ => Ink::Plain,
    };
    known(z.map(|z| figures::grouped(z, 1))).ink(ink)
}

/// One system: sojourn, wait and, where theory has them, exact values.
pub(crate) fn run_table(run: &SimulatedRun) -> Table {
    let unit = Unit::of(std::slice::from_ref(run));
    let exact = run.exact.as_ref().and_then(Option::as_ref);
    let mut columns = vec![Column::left(""), Column::right("sojourn").gap(3).notes()];
    if exact.is_some() {
        columns.push(Column::right("exact").gap(3));
        columns.push(Column::right("z").gap(2));
    }
    columns.push(Column::right("wait").gap(3));
    let caption = format!("In {}; z is the deviation in standard errors", unit.name);
    let mut table = Table::new(caption, columns);
    let mut row = |label: &str, sojourn: Cell, exact_and_z: Option<(Cell, Cell)>, wait: Cell| {
        let mut cells = vec![name(label), sojourn];
        if exact.is_some() {
            let (exact, z) = exact_and_z.unwrap_or((cell(""), cell("")));
            cells.extend([exact, z]);
        }
        cells.push(wait);
        table.row(cells);
    };
    let error = run.mean_standard_error_ns.filter(|error| error.is_finite());
    let error = error.map(|error| format!("± {}", unit.write(NORMAL_975 * error)));
    let exact_mean = exact.map(|exact| {
        let z = z_cell(run.z.as_ref().and_then(|z| z.mean));
        (cell(unit.write(exact.mean)), z)
    });
    let mean = unit.mean(run.sojourn.mean).note(error.unwrap_or_default());
    row("mean", mean, exact_mean, unit.mean(run.wait.mean));
    for q in REPORTED_QUANTILES {
        let exact_ns = exact.and_then(|exact| exact.quantiles.iter().find(|x| x.q == q)?.value);
        let found = run.sojourn.at(q).filter(|x| x.value.is_some());
        let sojourn = match (found, exact_ns) {
            (Some(_), _) => unit.quantile(found),
            (None, Some(ns)) => {
                let exact = unit.write(ns.get() as f64);
                lacking(format!("{} (exact: {exact})", run.need(q)))
            }
            (None, None) => lacking(run.need(q)),
        };
        let z = run.z.as_ref();
        let z = z.and_then(|z| z.quantiles.iter().find(|x| x.q == q)?.z);
        let (exact, z, wait) = match found {
            Some(_) => (
                unit.time(exact_ns),
                z_cell(z),
                unit.time(run.wait.quantile(q)),
            ),
            None => (known(None), known(None), known(None)),
        };
        row(&quantile_name(q), sojourn, Some((exact, z)), wait);
    }
    row(
        "max",
        unit.time(run.sojourn.max),
        None,
        unit.time(run.wait.max),
    );
    table
}

/// The slowest of several parts, for one system.
pub(crate) fn fanout_table(run: &SimulatedRun, fanout: &Fanout, unit: Unit) -> Table {
    let mut columns = vec![
        Column::left(""),
        Column::right("one part").gap(3),
        Column::right("independent").gap(3).notes(),
    ];
    let fork_join = fanout.fork_join.as_ref();
    columns.extend(fork_join.map(|_| Column::right("fork-join").gap(3).notes()));
    let mut table = Table::new("The slowest of several parts", columns);
    for slowest in &fanout.independent {
        let mut cells = vec![
            name(quantile_name(slowest.q)),
            unit.time(run.sojourn.quantile(slowest.q)),
            unit.quantile(Some(slowest)),
        ];
        cells.extend(fork_join.map(|of| unit.quantile(of.at(slowest.q))));
        table.row(cells);
    }
    table
}

/// The slowest of several independent parts, for several systems.
pub(crate) fn fanouts_table(report: &SimulationReport, unit: Unit, first: &Fanout) -> Table {
    let heads = first.independent.iter().map(|x| quantile_name(x.q));
    let columns = heads.map(|head| Column::right(head).gap(2));
    let mut table = Table::new("", [Column::left("")].into_iter().chain(columns));
    for run in report.runs.all() {
        let slowest = run.fanout.iter().flat_map(|fanout| &fanout.independent);
        let cells = slowest.map(|x| unit.time(x.value));
        table.row([name(report.label(run))].into_iter().chain(cells));
    }
    table
}

/// A time in nanoseconds and a note.
type TimeAndNote = (Option<f64>, Option<String>);

/// Quantiles in rows, systems in columns; the best of each row has a colour.
pub(crate) fn side_by_side_table(report: &SimulationReport, unit: Unit) -> Table {
    let runs = report.runs.all();
    let mut columns = vec![Column::left("")];
    columns.extend(runs.iter().map(|run| {
        let column = Column::right(report.label(run)).ink(Ink::Title);
        column.gap(3).notes()
    }));
    let mut table = Table::new("", columns);
    let mut row = |label: String, of: &dyn Fn(&Distribution) -> TimeAndNote| {
        let found: Vec<_> = runs.iter().map(|run| of(&run.sojourn)).collect();
        let best = found
            .iter()
            .filter_map(|x| x.0)
            .fold(f64::INFINITY, f64::min);
        let cells = found.into_iter().map(|(ns, interval)| {
            let is_best = ns == Some(best);
            let cell = unit.mean(ns).note(interval.unwrap_or_default());
            if is_best { cell.ink(Ink::Good) } else { cell }
        });
        table.row([name(label)].into_iter().chain(cells));
    };
    let ns = |time: Nanos| time.get() as f64;
    row("mean".to_owned(), &|of| (of.mean, None));
    for q in REPORTED_QUANTILES {
        let at = |of: &Distribution| (of.quantile(q).map(ns), of.at(q).and_then(relative));
        row(quantile_name(q), &at);
    }
    row("max".to_owned(), &|of| (of.max.map(ns), None));
    table
}

/// Systems in rows, quantiles in columns, each with a note where `note` gives one.
pub(crate) fn rows_table(
    report: &SimulationReport,
    unit: Unit,
    quantiles: &[f64],
    note: impl Fn(&Quantile) -> Option<String>,
) -> Table {
    let mut columns = vec![Column::left(""), Column::right("mean").gap(2)];
    let heads = quantiles.iter().map(|q| quantile_name(*q));
    columns.extend(heads.map(|head| Column::right(head).gap(2).notes()));
    columns.push(Column::right("requests").on_page());
    let caption = format!("Sojourn in {}, below each its 95 % interval", unit.name);
    let mut table = Table::new(caption, columns);
    for run in report.runs.all() {
        let mut cells = vec![name(report.label(run)), unit.mean(run.sojourn.mean)];
        cells.extend(quantiles.iter().map(|q| {
            let found = run.sojourn.at(*q);
            match found.filter(|x| x.value.is_some()) {
                Some(x) => unit.time(x.value).note(note(x).unwrap_or_default()),
                None => lacking(run.need(*q)),
            }
        }));
        cells.push(cell(figures::count(run.sojourn.count)));
        table.row(cells);
    }
    table
}

/// The largest deviation of each system from theory.
pub(crate) fn exact_table(report: &SimulationReport) -> Table {
    let columns = [
        Column::left(""),
        Column::right("").gap(3),
        Column::left("").gap(3),
    ];
    let mut table = Table::new("Largest deviation from theory in standard errors", columns);
    for run in report.runs.all() {
        let label = name(report.label(run));
        match run.exact.as_ref().and_then(Option::as_ref) {
            Some(exact) => {
                let source = format!("{} ({})", exact.model, exact.source);
                table.row([label, z_cell(run.worst_z()), cell(source).ink(Ink::Quiet)]);
            }
            None => {
                table.row([label, cell("no exact result is known").ink(Ink::Quiet)]);
            }
        }
    }
    table
}
