//! The results as a table for notebooks: one row for each simulated system.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use taillab_model::{Distribution, Nanos, Quantile, REPORTED_QUANTILES};
use taillab_report::columns::failed;
use taillab_report::{ReportError, figures};

use super::result::{SimulatedRun, SimulationReport};

const OUTPUT: &str = "the table (Parquet)";

/// Writes one row for each run: its parameters, mean, and for each reported quantile the
/// value and its interval (`p99_9_ns`, `p99_9_lo_ns`, `p99_9_hi_ns`; null where the sample
/// cannot support it), for the sojourn and, with the prefix `wait_`, for the wait.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes, else [`ReportError::Format`].
pub fn write_parquet(report: &SimulationReport, out: impl Write + Send) -> Result<(), ReportError> {
    write(report.runs.all(), out).map_err(|e| failed(OUTPUT, e))
}

fn write(runs: &[SimulatedRun], out: impl Write + Send) -> parquet::errors::Result<()> {
    let text = |of: fn(&SimulatedRun) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(runs.iter().map(of)))
    };
    let number = |of: fn(&SimulatedRun) -> f64| numbers(runs, |run| Some(of(run)));
    let workers = UInt32Array::from_iter_values(runs.iter().map(|run| run.workers));
    let workers: ArrayRef = Arc::new(workers);
    let mut columns = vec![
        ("arrivals".to_owned(), text(|run| &run.arrivals)),
        ("service".to_owned(), text(|run| &run.service)),
        ("discipline".to_owned(), text(|run| &run.discipline)),
        ("workers".to_owned(), workers),
        ("utilization".to_owned(), number(|run| run.utilization)),
        ("seed".to_owned(), counts(runs, |run| Some(run.seed))),
        (
            "requests".to_owned(),
            counts(runs, |run| Some(run.sojourn.count)),
        ),
        ("stopped".to_owned(), text(|run| run.stopped)),
    ];
    columns.extend(distributions("", runs, |run| &run.sojourn));
    columns.extend(distributions("wait_", runs, |run| &run.wait));
    columns.extend([
        ("kernel".to_owned(), text(|run| &run.engine.kernel)),
        (
            "requests_per_second".to_owned(),
            number(|run| run.engine.requests_per_second),
        ),
    ]);
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns)?;
    let properties = WriterProperties::builder()
        .set_created_by(format!("taillab {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut writer = ArrowWriter::try_new(out, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close().map(drop)
}

fn numbers(runs: &[SimulatedRun], of: impl Fn(&SimulatedRun) -> Option<f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(runs.iter().map(of)))
}

fn counts(runs: &[SimulatedRun], of: impl Fn(&SimulatedRun) -> Option<u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter(runs.iter().map(of)))
}

/// The columns of a distribution: its mean, then its quantiles with their intervals.
fn distributions(
    prefix: &str,
    runs: &[SimulatedRun],
    of: fn(&SimulatedRun) -> &Distribution,
) -> Vec<(String, ArrayRef)> {
    type IntervalEnd = fn(&Quantile) -> Option<Nanos>;
    let ends: [(&str, IntervalEnd); 3] = [("", |x| x.value), ("_lo", |x| x.lo), ("_hi", |x| x.hi)];
    let mean = numbers(runs, |run| of(run).mean);
    let mut columns = vec![(format!("{prefix}mean_ns"), mean)];
    for q in REPORTED_QUANTILES {
        let name = figures::quantile_name(q).replace('.', "_");
        columns.extend(ends.map(|(end, take)| {
            let column = counts(runs, |run| Some(take(of(run).at(q)?)?.get()));
            (format!("{prefix}{name}{end}_ns"), column)
        }));
    }
    columns
}
