//! Rows as columns of a Parquet file.

use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int64Array, RecordBatch, RecordBatchReader,
    StringArray, UInt32Array,
};
use arrow_schema::{DataType, Field, Metadata, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use taillab_model::{Monotonic, Nanos, Operation};

use crate::error::ReportError;

/// Rows encoded at a time; bounds the memory together with [`GROUP_ROWS`].
const BATCH_ROWS: usize = 8_192;
/// Rows of a row group: what a reader must hold at once (about 10 MB unpacked).
const GROUP_ROWS: usize = 65_536;

/// A column: its name, its description for readers, and the value of a row.
pub struct Column<R> {
    pub(crate) name: &'static str,
    description: &'static str,
    values: Values<R>,
    required: bool,
}

/// How a row's value is found.
enum Values<R> {
    /// An instant by CLOCK_MONOTONIC, in nanoseconds since boot.
    Instant(fn(&R) -> Option<Monotonic>),
    /// A length in nanoseconds, which may be negative.
    Length(fn(&R) -> Option<i64>),
    /// One of a few words.
    Word(fn(&R) -> Option<&'static str>),
    Text(fn(&R) -> Option<String>),
    Number(fn(&R) -> Option<u32>),
    Flag(fn(&R) -> Option<bool>),
}

/// A constructor of [`Column`] for each kind of value.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $kind:ident($value:ty),)*) => {$(
        $(#[$doc])*
        pub const fn $name(
            name: &'static str,
            description: &'static str,
            of: fn(&R) -> Option<$value>,
        ) -> Self {
            Self {
                name,
                description,
                values: Values::$kind(of),
                required: false,
            }
        }
    )*};
}

impl<R> Column<R> {
    constructors! {
        /// An instant.
        instant: Instant(Monotonic),
        /// A length.
        length: Length(i64),
        /// A word.
        word: Word(&'static str),
        /// A text.
        text: Text(String),
        /// A number.
        number: Number(u32),
        /// A flag, which every row has.
        flag: Flag(bool),
    }

    /// The same column where every row has a value.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    const fn is_time(&self) -> bool {
        matches!(self.values, Values::Instant(_) | Values::Length(_))
    }

    /// The field with its description, and the unit and the clock of a time.
    fn field(&self, clock: &str) -> Field {
        let mut metadata = vec![("description", self.description)];
        if self.is_time() {
            metadata.push(("unit", "ns"));
        }
        let is_required = self.required || matches!(self.values, Values::Flag(_));
        let (name, nullable) = (self.name, !is_required);
        let field = match self.values {
            Values::Instant(_) => {
                metadata.push(("clock", clock));
                Field::new(name, DataType::Int64, nullable)
            }
            Values::Length(_) => Field::new(name, DataType::Int64, nullable),
            Values::Word(_) => {
                Field::new_dictionary(name, DataType::Int8, DataType::Utf8, nullable)
            }
            Values::Text(_) => Field::new(name, DataType::Utf8, nullable),
            Values::Number(_) => Field::new(name, DataType::UInt32, nullable),
            Values::Flag(_) => Field::new(name, DataType::Boolean, nullable),
        };
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        field.with_metadata(metadata.into_iter().map(owned).collect::<Metadata>())
    }

    fn array(&self, rows: &[R]) -> ArrayRef {
        match self.values {
            Values::Instant(of) => Arc::new(Int64Array::from_iter(
                rows.iter().map(|row| of(row).map(instant_ns)),
            )),
            Values::Length(of) => Arc::new(Int64Array::from_iter(rows.iter().map(of))),
            Values::Word(of) => {
                Arc::new(DictionaryArray::<Int8Type>::from_iter(rows.iter().map(of)))
            }
            Values::Text(of) => Arc::new(StringArray::from_iter(rows.iter().map(of))),
            Values::Number(of) => Arc::new(UInt32Array::from_iter(rows.iter().map(of))),
            Values::Flag(of) => Arc::new(BooleanArray::from_iter(rows.iter().map(of))),
        }
    }
}

/// Writes the rows as one Parquet file (snappy) and returns their number.
///
/// Rows are taken one by one and written in row groups, so memory does not grow with their
/// number. All times are signed 64-bit nanoseconds; the metadata of each column says its unit
/// and its clock.
pub fn write_rows<R, W: io::Write + Send>(
    rows: impl IntoIterator<Item = R>,
    out: W,
    columns: &[Column<R>],
    clock: &str,
) -> Result<u64, ReportError> {
    let fields: Vec<Field> = columns.iter().map(|column| column.field(clock)).collect();
    let schema = Arc::new(Schema::new(fields));
    let mut writer = writer(out, &schema, columns)?;
    let mut batch = Vec::with_capacity(BATCH_ROWS);
    let mut written = 0;
    let mut write = |batch: &mut Vec<R>| {
        let arrays = columns.iter().map(|column| column.array(batch)).collect();
        let encoded = RecordBatch::try_new(Arc::clone(&schema), arrays);
        written += batch.len() as u64;
        batch.clear();
        writer
            .write(&encoded.map_err(|e| failed(OUTPUT, e.into()))?)
            .map_err(|e| failed(OUTPUT, e))
    };
    for row in rows {
        batch.push(row);
        if batch.len() == BATCH_ROWS {
            write(&mut batch)?;
        }
    }
    write(&mut batch)?;
    writer.close().map_err(|e| failed(OUTPUT, e))?;
    Ok(written)
}

/// Copies a file of [`write_rows`] from its start, without the columns of these names.
pub(crate) fn copy_without<R, W: io::Write + Send>(
    file: File,
    out: W,
    columns: &[Column<R>],
    left_out: &[&str],
) -> Result<(), ReportError> {
    let format = |e| failed(OUTPUT, e);
    let whole = ParquetRecordBatchReaderBuilder::try_new(file).map_err(format)?;
    let kept = (0..columns.len()).filter(|&i| !left_out.contains(&columns[i].name));
    let kept = ProjectionMask::roots(whole.parquet_schema(), kept);
    let reader = (whole.with_projection(kept).with_batch_size(BATCH_ROWS)).build();
    let reader = reader.map_err(format)?;
    let mut writer = writer(out, &reader.schema(), columns)?;
    for batch in reader {
        writer
            .write(&batch.map_err(|e| format(e.into()))?)
            .map_err(format)?;
    }
    writer.close().map(drop).map_err(format)
}

const OUTPUT: &str = "requests.parquet";

fn writer<R, W: io::Write + Send>(
    out: W,
    schema: &SchemaRef,
    columns: &[Column<R>],
) -> Result<ArrowWriter<W>, ReportError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        // statistics of each page would stay in memory to the end, and grow with the rows
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in columns.iter().filter(|column| column.is_time()) {
        // neighbouring times differ little and hardly repeat: differences take a third
        // of the room that the default, a dictionary, takes
        let path = || ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path(), false)
            .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
    }
    ArrowWriter::try_new(out, Arc::clone(schema), Some(properties.build()))
        .map_err(|e| failed(OUTPUT, e))
}

/// Nanoseconds since boot; a signed 64-bit number holds 292 years of them.
fn instant_ns(at: Monotonic) -> i64 {
    i64::try_from(at.nanos_since_boot()).unwrap_or(i64::MAX)
}

/// A length as a column holds it; a signed 64-bit number holds 292 years.
pub fn length_ns(length: Nanos) -> i64 {
    i64::try_from(length.get()).unwrap_or(i64::MAX)
}

pub(crate) const fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::Set => "set",
        Operation::Call => "call",
    }
}

/// Unwraps the stream's own error from that of the encoder.
pub fn failed(output: &'static str, error: ParquetError) -> ReportError {
    let format = |cause: &dyn Error| ReportError::Format {
        output,
        cause: cause.to_string(),
    };
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(source) => ReportError::Write {
                output,
                source: *source,
            },
            Err(other) => format(other.as_ref()),
        },
        other => format(&other),
    }
}
