//! `requests.parquet` of a load: one row for each request that was sent.

use std::io;

use taillab_model::Monotonic;

use super::LoadRow;
use crate::columns::{Column, ParquetTable, length_ns, name_of};
use crate::error::ReportError;
use crate::series::LoadSeries;

fn since(row: &LoadRow, from: Monotonic) -> Option<i64> {
    Some(length_ns(row.times.received?.saturating_since(from)))
}

/// `requests.parquet` of a load. The warm-up is in it, marked by `warm_up`.
pub const TABLE: ParquetTable<LoadRow> = ParquetTable {
    title: "`requests.parquet` of `load`",
    clock: Some("CLOCK_MONOTONIC of the client host, since boot"),
    columns: COLUMNS,
};

const COLUMNS: &[Column<LoadRow>] = &[
    Column::instant("intended", "when the schedule wanted it sent", |row| {
        Some(row.times.intended)
    }),
    Column::instant(
        "sent",
        "when the client sent it, before the system call",
        |row| Some(row.times.sent),
    ),
    Column::instant("received", "when the client read the response", |row| {
        row.times.received
    }),
    Column::instant(
        "kernel_sent",
        "when its last byte was given to the driver, by the kernel's stamp",
        |row| row.wire.sent,
    ),
    Column::instant(
        "kernel_received",
        "when the response's packet came in, by the kernel's stamp",
        |row| row.wire.received,
    ),
    Column::length(
        "response_time_ns",
        LoadSeries::ResponseTime.meaning(),
        |row| since(row, row.times.intended),
    ),
    Column::length("service_time_ns", LoadSeries::ServiceTime.meaning(), |row| {
        since(row, row.times.sent)
    }),
    Column::length(
        "lateness_ns",
        LoadSeries::Lateness.meaning(),
        |row| Some(length_ns(row.lateness())),
    ),
    Column::length(
        "connection_wait_ns",
        LoadSeries::ConnectionWait.meaning(),
        |row| Some(length_ns(row.waited)),
    ),
    Column::length(
        "connecting_ns",
        LoadSeries::Connecting.meaning(),
        |row| Some(length_ns(row.connecting)),
    ),
    Column::word(
        "operation",
        "what the request asked for: get, set or call",
        |row: &LoadRow| Some(name_of(row.operation)),
    )
    .required(),
    Column::word(
        "outcome",
        "how it ended; a response that came after the time-out has its time and counts as timed_out",
        |row: &LoadRow| Some(row.outcome.key()),
    )
    .required(),
    Column::number(
        "connection",
        "the connection that carried it, from 0 within its thread",
        |row: &LoadRow| Some(row.connection),
    )
    .required(),
    Column::number("thread", "the thread that sent it, from 0", |row: &LoadRow| {
        Some(row.thread)
    })
    .required(),
    Column::number(
        "client_port",
        "the client's port; missing over Unix sockets, and where it was not sent",
        |row| row.port.map(u32::from),
    ),
    Column::number(
        "request_id",
        "which request of its port, as the server's records have it: over UDP the protocol's id, over TCP the low 16 bits of \
         the sequence number after its last byte; missing where the kernel does not tell that (it needs CAP_NET_ADMIN)",
        |row| row.id.map(u32::from),
    ),
    Column::flag("warm_up", "sent before the measurement began", |row| {
        Some(row.warm_up)
    }),
];

/// Writes the rows as one Parquet file and returns their number: [`ParquetTable::write`].
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_parquet<W: io::Write + Send>(
    rows: impl IntoIterator<Item = LoadRow>,
    out: W,
) -> Result<u64, ReportError> {
    TABLE.write(rows, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time at the client has one name, whatever shows it.
    #[test]
    fn the_columns_of_times_are_named_by_their_keys() {
        let columns = TABLE.text().columns;
        for series in LoadSeries::ALL {
            let of = columns
                .iter()
                .find(|one| one.description == series.meaning());
            let name = of.map(|one| one.name.to_owned());
            let known = (*series != LoadSeries::Floor).then(|| format!("{}_ns", series.key()));
            assert_eq!(name, known);
        }
    }
}
