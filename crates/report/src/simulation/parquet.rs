//! The results as a table for notebooks: one row for each simulated system.

use std::io::Write;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use taillab_model::{Distribution, REPORTED_QUANTILES};

use super::result::{SimulatedRun, SimulationReport};
use crate::columns::failed;
use crate::error::ReportError;
use crate::figures;

const OUTPUT: &str = "the table (Parquet)";

/// Writes one row for each run: its parameters, mean, and for each reported quantile the
/// value and its interval (`p99_9_ns`, `p99_9_lo_ns`, `p99_9_hi_ns`; null where the sample
/// cannot support it), for the sojourn and, with the prefix `wait_`, for the wait.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes, else [`ReportError::Format`].
pub fn write_parquet(report: &SimulationReport, out: impl Write + Send) -> Result<(), ReportError> {
    let runs = report.runs.all();
    let mut table = Table::default();
    table.text("arrivals", runs.iter().map(|run| run.arrivals.clone()));
    table.text("service", runs.iter().map(|run| run.service.clone()));
    table.text("discipline", runs.iter().map(|run| run.discipline.clone()));
    let workers = UInt32Array::from_iter_values(runs.iter().map(|run| run.workers));
    table.column("workers", DataType::UInt32, Arc::new(workers));
    table.number(
        "utilization",
        runs.iter().map(|run| Some(run.utilization)).collect(),
    );
    table.whole("seed", runs.iter().map(|run| Some(run.seed)).collect());
    let count = |run: &SimulatedRun| Some(run.sojourn.count);
    table.whole("requests", runs.iter().map(count).collect());
    table.text("stopped", runs.iter().map(|run| run.stopped.to_owned()));
    table.distributions("", runs, |run| &run.sojourn);
    table.distributions("wait_", runs, |run| &run.wait);
    table.text("kernel", runs.iter().map(|run| run.engine.kernel.clone()));
    let speed = |run: &SimulatedRun| Some(run.engine.requests_per_second);
    table.number("requests_per_second", runs.iter().map(speed).collect());
    table.write(out).map_err(|e| failed(OUTPUT, e))
}

#[derive(Default)]
struct Table {
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
}

impl Table {
    fn column(&mut self, name: &str, kind: DataType, column: ArrayRef) {
        self.fields.push(Field::new(name, kind, true));
        self.columns.push(column);
    }

    fn text(&mut self, name: &str, values: impl Iterator<Item = String>) {
        let column = StringArray::from_iter_values(values);
        self.column(name, DataType::Utf8, Arc::new(column));
    }

    fn number(&mut self, name: &str, values: Vec<Option<f64>>) {
        let column = Float64Array::from(values);
        self.column(name, DataType::Float64, Arc::new(column));
    }

    fn whole(&mut self, name: &str, values: Vec<Option<u64>>) {
        let column = UInt64Array::from(values);
        self.column(name, DataType::UInt64, Arc::new(column));
    }

    fn distributions(
        &mut self,
        prefix: &str,
        runs: &[SimulatedRun],
        of: impl Fn(&SimulatedRun) -> &Distribution,
    ) {
        let mean = runs.iter().map(|run| of(run).mean).collect();
        self.number(&format!("{prefix}mean_ns"), mean);
        for q in REPORTED_QUANTILES {
            let name = figures::quantile_name(q).replace('.', "_");
            let quantile = |run| of(run).quantiles.iter().find(|x| x.q == q).copied();
            let found: Vec<_> = runs.iter().map(quantile).collect();
            for (end, value) in [
                (
                    "",
                    found
                        .iter()
                        .map(|x| x.and_then(|x| x.value))
                        .collect::<Vec<_>>(),
                ),
                ("_lo", found.iter().map(|x| x.and_then(|x| x.lo)).collect()),
                ("_hi", found.iter().map(|x| x.and_then(|x| x.hi)).collect()),
            ] {
                let value = value.into_iter().map(|ns| ns.map(|ns| ns.get())).collect();
                self.whole(&format!("{prefix}{name}{end}_ns"), value);
            }
        }
    }

    fn write(self, out: impl Write + Send) -> parquet::errors::Result<()> {
        let schema = Arc::new(Schema::new(self.fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), self.columns)?;
        let properties = WriterProperties::builder()
            .set_created_by(format!("taillab {}", env!("CARGO_PKG_VERSION")))
            .build();
        let mut writer = ArrowWriter::try_new(out, schema, Some(properties))?;
        writer.write(&batch)?;
        writer.close().map(drop)
    }
}
