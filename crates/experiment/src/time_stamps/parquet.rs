//! Parquet: one column of integers, floating-point numbers or time stamps.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float64Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_schema::{DataType, TimeUnit as ArrowUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use taillab_console::exit::Failure;
use taillab_model::Nanos;

use super::options::{TimeUnit, TraceOptions, choose, unit, usage};
use super::sink::{PART, Sink};

/// Where the times are.
#[derive(Clone, Debug)]
pub struct Layout {
    column: usize,
    name: String,
    unit: TimeUnit,
    kind: DataType,
}

fn builder(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, Failure> {
    let file = File::open(path).map_err(|error| usage(path, format!("cannot be read: {error}")))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| usage(path, format!("is not a readable Parquet file: {error}")))?;
    // the library panics where these are negative
    let groups = builder.metadata().row_groups().iter();
    let is_damaged = groups.flat_map(|group| group.columns()).any(|chunk| {
        let from = (chunk.dictionary_page_offset()).unwrap_or_else(|| chunk.data_page_offset());
        from < 0 || chunk.compressed_size() < 0
    });
    if is_damaged {
        let what = "is not a readable Parquet file: a column begins or ends before the file";
        return Err(usage(path, what));
    }
    Ok(builder)
}

impl Layout {
    pub fn find(options: &TraceOptions) -> Result<Self, Failure> {
        let builder = builder(&options.path)?;
        let fields = builder.schema().fields().clone();
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let column = choose(options, &names, true)?;
        let kind = fields[column].data_type().clone();
        let unit = match &kind {
            DataType::Timestamp(unit, _) => match unit {
                ArrowUnit::Second => TimeUnit::S,
                ArrowUnit::Millisecond => TimeUnit::Ms,
                ArrowUnit::Microsecond => TimeUnit::Us,
                ArrowUnit::Nanosecond => TimeUnit::Ns,
            },
            DataType::Int32
            | DataType::Int64
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float64 => unit(options, Some(&names[column]))?,
            other => {
                return Err(usage(
                    &options.path,
                    format!(
                        "has no times in column `{}` but {other}; choose a column of numbers or time \
                         stamps with --trace-column",
                        names[column]
                    ),
                ));
            }
        };
        Ok(Self {
            column,
            name: names[column].clone(),
            unit,
            kind,
        })
    }

    pub fn read(&self, path: &Path, size: u64, sink: &mut Sink<'_>) -> Result<(), Failure> {
        let builder = builder(path)?;
        let rows = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
        // the columns may be nested: a root's index is not a leaf's
        let mask = ProjectionMask::roots(builder.parquet_schema(), [self.column]);
        let batches = builder
            .with_projection(mask)
            .with_batch_size(PART)
            .build()
            .map_err(|error| usage(path, format!("cannot be read: {error}")))?;
        let bytes = size.checked_div(rows).unwrap_or(0);
        let mut row = 0;
        for batch in batches {
            let batch = batch.map_err(|error| usage(path, format!("cannot be read: {error}")))?;
            let column = batch.column(0);
            let mut rows = Rows {
                layout: self,
                path,
                bytes,
                row: &mut row,
                sink,
            };
            match &self.kind {
                DataType::Int32 => rows.whole::<Int32Type>(column)?,
                DataType::Int64 => rows.whole::<Int64Type>(column)?,
                DataType::UInt32 => rows.whole::<UInt32Type>(column)?,
                DataType::UInt64 => rows.whole::<UInt64Type>(column)?,
                DataType::Float64 => rows.float(column)?,
                DataType::Timestamp(ArrowUnit::Second, _) => {
                    rows.whole::<TimestampSecondType>(column)?;
                }
                DataType::Timestamp(ArrowUnit::Millisecond, _) => {
                    rows.whole::<TimestampMillisecondType>(column)?;
                }
                DataType::Timestamp(ArrowUnit::Microsecond, _) => {
                    rows.whole::<TimestampMicrosecondType>(column)?;
                }
                _ => rows.whole::<TimestampNanosecondType>(column)?,
            }
        }
        Ok(())
    }
}

struct Rows<'a, 'b> {
    layout: &'a Layout,
    path: &'a Path,
    bytes: u64,
    row: &'a mut u64,
    sink: &'a mut Sink<'b>,
}

impl Rows<'_, '_> {
    fn whole<T: ArrowPrimitiveType>(&mut self, column: &dyn Array) -> Result<(), Failure>
    where
        T::Native: Copy + TryInto<u64>,
    {
        let scale = 10_u64.pow(self.layout.unit.digits());
        for value in column.as_primitive::<T>() {
            let ns = value.map(|value| {
                let value: Option<u64> = value.try_into().ok();
                value.and_then(|value| value.checked_mul(scale))
            });
            self.push(ns)?;
        }
        Ok(())
    }

    fn float(&mut self, column: &dyn Array) -> Result<(), Failure> {
        let scale = 10_f64.powi(self.layout.unit.digits() as i32);
        for value in column.as_primitive::<Float64Type>() {
            let ns = value.map(|value| {
                let ns = Nanos::try_from_secs_f64(value * scale / 1e9);
                ns.map(Nanos::get)
            });
            self.push(ns)?;
        }
        Ok(())
    }

    /// `None`: a null; `Some(None)`: a value that is no time.
    fn push(&mut self, ns: Option<Option<u64>>) -> Result<(), Failure> {
        *self.row += 1;
        let row = *self.row;
        let wrong = |what: &str| {
            let name = &self.layout.name;
            Err(usage(self.path, format!("row {row}: `{name}` {what}")))
        };
        match ns {
            Some(Some(ns)) => self
                .sink
                .push(Nanos::new(ns), self.bytes, || format!("row {row}")),
            Some(None) => {
                wrong("is negative, not a number, or too large for its unit (--trace-unit)")
            }
            None => wrong("is null; remove such rows"),
        }
    }
}
