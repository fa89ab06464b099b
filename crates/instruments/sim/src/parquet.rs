//! The results as a table for notebooks: one row for each simulated system.

use std::io;

use taillab_model::{Distribution, Nanos, Quantile};
use taillab_report::ReportError;
use taillab_report::columns::{Column, ParquetTable, length_ns};

use super::result::{SimulatedRun, SimulationReport};

/// The file of all runs.
pub const TABLE: ParquetTable<SimulatedRun> = ParquetTable {
    title: "`sim.parquet`, and the file of `--parquet`, of `sim`",
    clock: None,
    columns: COLUMNS,
};

/// The columns of the runs, with those of the quantiles of both distributions between them. Of each quantile, the value
/// and its interval are null where the sample cannot support it.
macro_rules! columns {
    ([$($before:expr,)*] $quantiles:tt [$($after:expr,)*]) => {
        columns!(@with $quantiles [$($before,)*] [$($after,)*])
    };
    (@with [$(($q:literal, $name:literal, $shown:literal),)*] [$($before:expr,)*] [$($after:expr,)*]) => {
        &[
            $($before,)*
            Column::real_length("mean_ns", "mean of the sojourn, from arrival to departure", |run: &SimulatedRun| run.sojourn.mean),
            $(
                Column::length(concat!("p", $name, "_ns"), concat!("p", $shown, " of the sojourn"), |run: &SimulatedRun| {
                    of_quantile(&run.sojourn, $q, |at| at.value)
                }),
                Column::length(concat!("p", $name, "_lo_ns"), "lower end of its interval", |run: &SimulatedRun| {
                    of_quantile(&run.sojourn, $q, |at| at.lo)
                }),
                Column::length(concat!("p", $name, "_hi_ns"), "upper end of its interval", |run: &SimulatedRun| {
                    of_quantile(&run.sojourn, $q, |at| at.hi)
                }),
            )*
            Column::real_length("wait_mean_ns", "mean of the wait, from arrival to the start of service", |run: &SimulatedRun| {
                run.wait.mean
            }),
            $(
                Column::length(concat!("wait_p", $name, "_ns"), concat!("p", $shown, " of the wait"), |run: &SimulatedRun| {
                    of_quantile(&run.wait, $q, |at| at.value)
                }),
                Column::length(concat!("wait_p", $name, "_lo_ns"), "lower end of its interval", |run: &SimulatedRun| {
                    of_quantile(&run.wait, $q, |at| at.lo)
                }),
                Column::length(concat!("wait_p", $name, "_hi_ns"), "upper end of its interval", |run: &SimulatedRun| {
                    of_quantile(&run.wait, $q, |at| at.hi)
                }),
            )*
            $($after,)*
        ]
    };
}

#[rustfmt::skip]
const COLUMNS: &[Column<SimulatedRun>] = columns! {
    [
        Column::text("arrivals", "the arrival process", |run: &SimulatedRun| Some(run.arrivals.clone())).required(),
        Column::text("service", "the service times", |run: &SimulatedRun| Some(run.service.clone())).required(),
        Column::text("discipline", "the discipline", |run: &SimulatedRun| Some(run.discipline.clone())).required(),
        Column::number("workers", "the number of workers", |run: &SimulatedRun| Some(run.workers)).required(),
        Column::real("utilization", "arrival rate × mean service time ÷ workers", |run: &SimulatedRun| Some(run.utilization)).required(),
        Column::count("seed", "the seed of every random choice", |run: &SimulatedRun| Some(run.seed)).required(),
        Column::count("requests", "requests in the distributions", |run: &SimulatedRun| Some(run.sojourn.count)).required(),
        Column::text("stopped", "why it stopped: finished, precise, limit or interrupted", |run: &SimulatedRun| {
            Some(run.stopped.to_owned())
        }).required(),
    ]
    [
        (0.5, "50", "50"),
        (0.9, "90", "90"),
        (0.99, "99", "99"),
        (0.999, "99_9", "99.9"),
        (0.9999, "99_99", "99.99"),
        (0.99999, "99_999", "99.999"),
    ]
    [
        Column::text("kernel", "how it was calculated", |run: &SimulatedRun| Some(run.engine.kernel.clone())).required(),
        Column::real("requests_per_second", "simulated requests per second of this machine", |run: &SimulatedRun| {
            Some(run.engine.requests_per_second)
        }).required(),
    ]
};

fn of_quantile(
    distribution: &Distribution,
    q: f64,
    take: fn(&Quantile) -> Option<Nanos>,
) -> Option<i64> {
    take(distribution.at(q)?).map(length_ns)
}

/// Writes one row for each run.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes, else [`ReportError::Format`].
pub fn write_parquet(
    report: &SimulationReport,
    out: impl io::Write + Send,
) -> Result<(), ReportError> {
    TABLE
        .write(report.runs.all().iter().cloned(), out)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use taillab_model::REPORTED_QUANTILES;
    use taillab_report::figures::quantile_name;

    use super::*;

    #[test]
    fn every_reported_quantile_of_both_distributions_has_its_interval() {
        let names: Vec<&str> = (TABLE.text().columns.iter())
            .map(|column| column.name)
            .collect();
        for prefix in ["", "wait_"] {
            for q in REPORTED_QUANTILES {
                let name = quantile_name(q).replace('.', "_");
                for end in ["", "_lo", "_hi"] {
                    let wanted = format!("{prefix}{name}{end}_ns");
                    assert!(names.contains(&wanted.as_str()), "{wanted} in {names:?}");
                }
            }
        }
        assert_eq!(names.len(), 8 + 2 * (1 + 3 * REPORTED_QUANTILES.len()) + 2);
    }
}
