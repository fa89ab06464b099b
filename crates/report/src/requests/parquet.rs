//! The Parquet encoding of request rows.

use std::error::Error;
use std::io;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringDictionaryBuilder, UInt32Builder};
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Metadata, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use taillab_model::explanation::Cause;
use taillab_model::{ClientTimes, Monotonic, Nanos, Operation};

use super::RequestRow;
use crate::ReportError;

const OUTPUT: &str = "requests.parquet";

/// Rows encoded at a time; bounds the memory together with [`GROUP_ROWS`].
const BATCH_ROWS: usize = 8_192;
/// Rows of a row group: what a reader must hold at once (about 10 MB unpacked).
const GROUP_ROWS: usize = 65_536;

/// A column of nanoseconds: its name, what it says, and whether it is an instant.
pub(crate) struct TimeColumn {
    name: &'static str,
    description: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Nanoseconds since boot by the server host's CLOCK_MONOTONIC.
    Instant,
    /// A length in nanoseconds.
    Length,
}

pub(crate) const fn instant(name: &'static str, description: &'static str) -> TimeColumn {
    TimeColumn {
        name,
        description,
        kind: Kind::Instant,
    }
}

pub(crate) const fn length(name: &'static str, description: &'static str) -> TimeColumn {
    TimeColumn {
        name,
        description,
        kind: Kind::Length,
    }
}

/// The columns of time, in the order of [`times_of`].
const TIMES: [TimeColumn; TIME_COLUMNS] = [
    instant("t1", "the driver handed the request's packet to the stack"),
    instant("t2", "the transport queued the packet at the socket"),
    instant("t3", "the thread that reads it was on a CPU"),
    instant("t4", "the read returned"),
    instant("t5", "the thread called write"),
    instant("t6", "the driver took the response"),
    length("sojourn_ns", "t6 - t1, the server's latency"),
    length(
        "ideal_ns",
        "sojourn in the ideal queue fed with the same arrivals",
    ),
    length(
        "excess_ns",
        "sojourn_ns - ideal_ns; negative where faster than the ideal",
    ),
    length("t1_t2_ns", "stack receive"),
    length("t2_t3_ns", "queueing and wake-up"),
    length("t3_t4_ns", "copy and return"),
    length("t4_t5_ns", "application"),
    length("t5_t6_ns", "transmit"),
    instant("intended", "when the client's schedule wanted it sent"),
    instant("sent", "when the client sent it, before the system call"),
    instant("received", "when the client read the response"),
];
const TIME_COLUMNS: usize = 17;

/// Writes the rows as one Parquet file (snappy) and returns their number.
///
/// Rows are taken one by one and written in row groups, so memory does not grow with
/// their number. All times are signed 64-bit nanoseconds; the metadata of each column
/// says its unit and its clock. A stage is there only where all six stamps are, in
/// order, so that the five always sum to the sojourn.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_parquet<W: io::Write + Send>(
    rows: impl IntoIterator<Item = RequestRow>,
    out: W,
) -> Result<u64, ReportError> {
    write_rows::<Batch, _>(rows, out, &schema(), &TIMES)
}

/// Rows of one kind on their way into the columns of a table.
pub(crate) trait RowBatch: Default {
    /// What becomes a row.
    type Row;

    /// Appends a row.
    fn push(&mut self, row: &Self::Row) -> Result<(), ReportError>;

    /// How many rows were appended since the last [`RowBatch::take`].
    fn rows(&self) -> usize;

    /// The columns, in the order of `schema`; empty afterwards.
    fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ReportError>;
}

/// Writes the rows batch by batch and returns their number.
pub(crate) fn write_rows<B: RowBatch, W: io::Write + Send>(
    rows: impl IntoIterator<Item = B::Row>,
    out: W,
    schema: &SchemaRef,
    times: &[TimeColumn],
) -> Result<u64, ReportError> {
    let mut writer = writer(out, schema, times)?;
    let mut batch = B::default();
    let mut written = 0;
    for row in rows {
        batch.push(&row)?;
        if batch.rows() == BATCH_ROWS {
            written += batch.rows() as u64;
            writer.write(&batch.take(schema)?).map_err(failed)?;
        }
    }
    written += batch.rows() as u64;
    writer.write(&batch.take(schema)?).map_err(failed)?;
    writer.close().map_err(failed)?;
    Ok(written)
}

/// A writer of rows with the given columns of time.
fn writer<W: io::Write + Send>(
    out: W,
    schema: &SchemaRef,
    times: &[TimeColumn],
) -> Result<ArrowWriter<W>, ReportError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        // what is known of each page would be held to the end, and grow with the rows
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in times {
        // neighbouring times differ little and hardly repeat: differences take a third
        // of the room that the default, a dictionary, takes
        let path = || ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path(), false)
            .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
    }
    ArrowWriter::try_new(out, Arc::clone(schema), Some(properties.build())).map_err(failed)
}

/// The fields of columns of time, whose instants are on the given clock.
pub(crate) fn time_fields(times: &[TimeColumn], clock: &str) -> Vec<Field> {
    times
        .iter()
        .map(|column| {
            let mut metadata = vec![("unit", "ns"), ("description", column.description)];
            if let Kind::Instant = column.kind {
                metadata.push(("clock", clock));
            }
            described(Field::new(column.name, DataType::Int64, true), &metadata)
        })
        .collect()
}

fn schema() -> SchemaRef {
    let mut fields = time_fields(&TIMES, "CLOCK_MONOTONIC of the server host, since boot");
    fields.push(described(
        Field::new("worker", DataType::UInt32, true),
        &[("description", "the thread that served it")],
    ));
    fields.push(described(
        Field::new_dictionary("main_cause", DataType::Int8, DataType::Utf8, true),
        &[(
            "description",
            "the cause that most of excess_ns is charged to, as in summary.json; missing without \
             an excess, or where the request was not explained",
        )],
    ));
    fields.push(described(
        Field::new_dictionary("operation", DataType::Int8, DataType::Utf8, true),
        &[(
            "description",
            "what the request asked for: get, set or call",
        )],
    ));
    fields.push(described(
        Field::new("warm_up", DataType::Boolean, false),
        &[("description", "sent before the measurement began")],
    ));
    Arc::new(Schema::new(fields))
}

pub(crate) fn described(field: Field, metadata: &[(&str, &str)]) -> Field {
    field.with_metadata(
        metadata
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect::<Metadata>(),
    )
}

/// Rows on their way into columns.
#[derive(Default)]
struct Batch {
    rows: usize,
    times: [Int64Builder; TIME_COLUMNS],
    worker: UInt32Builder,
    main_cause: StringDictionaryBuilder<Int8Type>,
    operation: StringDictionaryBuilder<Int8Type>,
    warm_up: BooleanBuilder,
}

impl RowBatch for Batch {
    type Row = RequestRow;

    fn rows(&self) -> usize {
        self.rows
    }

    fn push(&mut self, row: &RequestRow) -> Result<(), ReportError> {
        for (column, value) in self.times.iter_mut().zip(times_of(row)) {
            column.append_option(value);
        }
        self.worker.append_option(row.worker);
        append(&mut self.main_cause, row.main_cause.map(Cause::key))?;
        append(&mut self.operation, row.operation.map(name_of))?;
        self.warm_up.append_value(row.warm_up);
        self.rows += 1;
        Ok(())
    }

    fn take(&mut self, schema: &SchemaRef) -> Result<RecordBatch, ReportError> {
        self.rows = 0;
        let mut columns: Vec<ArrayRef> = self
            .times
            .iter_mut()
            .map(|column| Arc::new(column.finish()) as ArrayRef)
            .collect();
        columns.push(Arc::new(self.worker.finish()));
        columns.push(Arc::new(self.main_cause.finish()));
        columns.push(Arc::new(self.operation.finish()));
        columns.push(Arc::new(self.warm_up.finish()));
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| failed(e.into()))
    }
}

fn append(
    column: &mut StringDictionaryBuilder<Int8Type>,
    word: Option<&str>,
) -> Result<(), ReportError> {
    match word {
        Some(word) => {
            column.append(word).map_err(|e| failed(e.into()))?;
        }
        None => column.append_null(),
    }
    Ok(())
}

/// The row's times in the order of [`TIMES`].
fn times_of(row: &RequestRow) -> [Option<i64>; TIME_COLUMNS] {
    let mut values = [None; TIME_COLUMNS];
    let (server, rest) = values.split_at_mut(6);
    let (lengths, client) = rest.split_at_mut(8);
    let ideal = row.ideal.map(length_ns);
    lengths[1] = ideal;
    if let Some(stamps) = &row.server {
        server[0] = Some(instant_ns(stamps.t1));
        for (slot, stamp) in server[1..5].iter_mut().zip(stamps.middle) {
            *slot = stamp.map(instant_ns);
        }
        server[5] = Some(instant_ns(stamps.t6));
        let sojourn = stamps.sojourn().map(length_ns);
        lengths[0] = sojourn;
        lengths[2] = sojourn.zip(ideal).map(|(sojourn, ideal)| sojourn - ideal);
        if let Some(stages) = stamps.stages() {
            for (slot, stage) in lengths[3..].iter_mut().zip(stages) {
                *slot = Some(length_ns(stage));
            }
        }
    }
    if let Some(ClientTimes {
        intended,
        sent,
        received,
    }) = row.client
    {
        client[0] = Some(instant_ns(intended));
        client[1] = Some(instant_ns(sent));
        client[2] = received.map(instant_ns);
    }
    values
}

/// Nanoseconds since boot; a signed 64-bit number holds 292 years of them.
pub(crate) fn instant_ns(at: Monotonic) -> i64 {
    i64::try_from(at.nanos_since_boot()).unwrap_or(i64::MAX)
}

pub(crate) fn length_ns(length: Nanos) -> i64 {
    i64::try_from(length.get()).unwrap_or(i64::MAX)
}

pub(crate) const fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::Set => "set",
        Operation::Call => "call",
    }
}

/// Finds the stream's own error again, which the encoder wraps.
pub(crate) fn failed(error: ParquetError) -> ReportError {
    if let ParquetError::External(inner) = error {
        return match inner.downcast::<io::Error>() {
            Ok(source) => ReportError::Write {
                output: OUTPUT,
                source: *source,
            },
            Err(other) => format_error(other.as_ref()),
        };
    }
    format_error(&error)
}

fn format_error(error: &(dyn Error + 'static)) -> ReportError {
    ReportError::Format {
        output: OUTPUT,
        cause: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taillab_model::Stage;

    #[test]
    fn the_stage_columns_are_named_after_the_stages() {
        let names: Vec<String> = Stage::ALL
            .iter()
            .map(|stage| format!("{}_ns", stage.key()))
            .collect();
        let columns: Vec<&str> = TIMES[9..14].iter().map(|column| column.name).collect();
        assert_eq!(columns, names);
    }
}
