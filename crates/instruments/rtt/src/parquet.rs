//! The round trips of one row of a result: one row for each message.

use std::io;

use taillab_model::rtt::RoundTrip;
use taillab_report::ReportError;
use taillab_report::columns::{Column, ParquetTable, length_ns};

/// A round trip and the run that it belongs to.
type ParquetRow = (u32, RoundTrip);

/// The file of one row of a result.
pub const TABLE: ParquetTable<ParquetRow> = ParquetTable {
    title: "`PROTOCOL-MODE-BYTES-CONNECTIONS.parquet` of `rtt`",
    clock: Some("CLOCK_MONOTONIC of the client's host"),
    columns: COLUMNS,
};

const COLUMNS: &[Column<ParquetRow>] = &[
    Column::instant("sent", "when the message was handed to the send call; in an open loop, when it was due", |row: &ParquetRow| {
        Some(row.1.sent)
    })
    .required(),
    Column::length(
        "rtt_ns",
        "from then until its answer had been received; of a lost message, how long it was waited for",
        |row: &ParquetRow| Some(length_ns(row.1.rtt)),
    )
    .required(),
    Column::number("run", "the run, from 0", |row: &ParquetRow| Some(row.0)).required(),
    Column::number("connection", "the connection, from 0", |row: &ParquetRow| {
        Some(u32::from(row.1.connection))
    })
    .required(),
    Column::flag("lost", "no answer came within the timeout", |row: &ParquetRow| {
        Some(row.1.lost)
    }),
];

/// Writes the round trips of the runs as one Parquet file (snappy) and returns their number.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes, else [`ReportError::Format`].
pub fn write_parquet<W: io::Write + Send>(
    runs: &[Vec<RoundTrip>],
    out: W,
) -> Result<u64, ReportError> {
    let rows = (0..)
        .zip(runs)
        .flat_map(|(run, trips)| trips.iter().map(move |trip| (run, *trip)));
    TABLE.write(rows, out)
}
