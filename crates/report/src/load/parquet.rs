//! `requests.parquet` of a load: one row for each request that was sent.

use std::io;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringDictionaryBuilder, UInt32Builder};
use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::LoadRow;
use crate::ReportError;
use crate::requests::parquet::{
    RowBatch, TimeColumn, described, failed, instant, instant_ns, length, length_ns, name_of,
    time_fields, write_rows,
};

/// The columns of time, in the order of [`times_of`].
const TIMES: [TimeColumn; TIME_COLUMNS] = [
    instant("intended", "when the schedule wanted it sent"),
    instant("sent", "when the client sent it, before the system call"),
    instant("received", "when the client read the response"),
    instant(
        "kernel_sent",
        "when its last byte was given to the driver, by the kernel's stamp",
    ),
    instant(
        "kernel_received",
        "when the response's packet came in, by the kernel's stamp",
    ),
    length("response_time_ns", "received - intended: what a user waits"),
    length("service_time_ns", "received - sent"),
    length("lateness_ns", "sent - intended: the generator's own delay"),
];
const TIME_COLUMNS: usize = 8;

/// Writes the rows as one Parquet file (snappy) and returns their number.
///
/// Rows are taken one by one and written in row groups, so memory does not grow with their
/// number. All times are signed 64-bit nanoseconds; the metadata of each column says its
/// unit and its clock. The warm-up is in it, marked by `warm_up`.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_parquet<W: io::Write + Send>(
    rows: impl IntoIterator<Item = LoadRow>,
    out: W,
) -> Result<u64, ReportError> {
    write_rows::<Batch, _>(rows, out, &schema(), &TIMES)
}

fn schema() -> SchemaRef {
    let mut fields = time_fields(&TIMES, "CLOCK_MONOTONIC of the client host, since boot");
    let names = |name: &str| Field::new_dictionary(name, DataType::Int8, DataType::Utf8, false);
    let number = |name: &str| Field::new(name, DataType::UInt32, false);
    for (field, description) in [
        (
            names("operation"),
            "what the request asked for: get, set or call",
        ),
        (
            names("outcome"),
            "how it ended; a response that came after the time-out has its time and counts as timed_out",
        ),
        (
            number("connection"),
            "the connection that carried it, from 0 within its thread",
        ),
        (number("thread"), "the thread that sent it, from 0"),
        (
            Field::new("warm_up", DataType::Boolean, false),
            "sent before the measurement began",
        ),
    ] {
        fields.push(described(field, &[("description", description)]));
    }
    Arc::new(Schema::new(fields))
}

/// Rows on their way into columns.
#[derive(Default)]
struct Batch {
    rows: usize,
    times: [Int64Builder; TIME_COLUMNS],
    operation: StringDictionaryBuilder<Int8Type>,
    outcome: StringDictionaryBuilder<Int8Type>,
    connection: UInt32Builder,
    thread: UInt32Builder,
    warm_up: BooleanBuilder,
}

impl RowBatch for Batch {
    type Row = LoadRow;

    fn rows(&self) -> usize {
        self.rows
    }

    fn push(&mut self, row: &LoadRow) -> Result<(), ReportError> {
        for (column, value) in self.times.iter_mut().zip(times_of(row)) {
            column.append_option(value);
        }
        for (column, name) in [
            (&mut self.operation, name_of(row.operation)),
            (&mut self.outcome, row.outcome.key()),
        ] {
            column.append(name).map_err(|e| failed(e.into()))?;
        }
        self.connection.append_value(row.connection);
        self.thread.append_value(row.thread);
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
        columns.push(Arc::new(self.operation.finish()));
        columns.push(Arc::new(self.outcome.finish()));
        columns.push(Arc::new(self.connection.finish()));
        columns.push(Arc::new(self.thread.finish()));
        columns.push(Arc::new(self.warm_up.finish()));
        RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| failed(e.into()))
    }
}

/// The row's times in the order of [`TIMES`].
fn times_of(row: &LoadRow) -> [Option<i64>; TIME_COLUMNS] {
    let (times, wire) = (row.times, row.wire);
    let since = |from| {
        times
            .received
            .map(|at| length_ns(at.saturating_since(from)))
    };
    [
        Some(instant_ns(times.intended)),
        Some(instant_ns(times.sent)),
        times.received.map(instant_ns),
        wire.sent.map(instant_ns),
        wire.received.map(instant_ns),
        since(times.intended),
        since(times.sent),
        Some(length_ns(times.sent.saturating_since(times.intended))),
    ]
}
