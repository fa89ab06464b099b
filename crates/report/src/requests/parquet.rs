//! The Parquet encoding of request rows.

use std::fs::File;
use std::io;

use taillab_model::Stage;
use taillab_model::explanation::Cause;

use super::row::RequestRow;
use crate::columns::{Column, ParquetTable, RestsOn, length_ns, name_of};
use crate::error::ReportError;

/// A stage has a value only if the request has all six stamps, in order, so that the five always
/// sum to the sojourn.
fn length_of(stage: Stage, row: &RequestRow) -> Option<i64> {
    Some(length_ns(row.server?.stages()?[stage as usize]))
}

/// The column of a stage, with the stage's own label.
macro_rules! stage {
    ($stage:ident, $name:literal) => {
        Column::length($name, Stage::$stage.label(), |row| {
            length_of(Stage::$stage, row)
        })
    };
}

fn sojourn(row: &RequestRow) -> Option<i64> {
    row.server?.sojourn().map(length_ns)
}

/// `requests.parquet` of a server's requests.
pub const TABLE: ParquetTable<RequestRow> = ParquetTable {
    title: "`requests.parquet` of `run`, `trace` and `explain`",
    clock: Some("CLOCK_MONOTONIC of the server host, since boot"),
    columns: COLUMNS,
};

const COLUMNS: &[Column<RequestRow>] = &[
    Column::instant(
        "t1",
        "the driver handed the request's packet to the stack",
        |row| Some(row.server?.t1),
    ),
    Column::instant(
        "t2",
        "the transport queued the packet at the socket",
        |row| row.server?.t2,
    ),
    Column::instant("t3", "the thread that reads it was on a CPU", |row| {
        row.server?.t3
    }),
    Column::instant("t4", "the read returned", |row| row.server?.t4),
    Column::instant("t5", "the thread called write", |row| row.server?.t5),
    Column::instant("t6", "the driver took the response", |row| {
        Some(row.server?.t6)
    }),
    Column::length("sojourn_ns", "t6 - t1, the server's latency", sojourn),
    Column::length(
        "ideal_ns",
        "sojourn in the ideal queue fed with the same arrivals",
        |row: &RequestRow| row.ideal.map(length_ns),
    )
    .rests_on(RestsOn::Ideal),
    Column::length(
        "excess_ns",
        "sojourn_ns - ideal_ns; negative where faster than the ideal",
        |row: &RequestRow| Some(sojourn(row)? - length_ns(row.ideal?)),
    )
    .rests_on(RestsOn::Ideal),
    stage!(StackReceive, "t1_t2_ns"),
    stage!(QueueAndWakeup, "t2_t3_ns"),
    stage!(CopyAndReturn, "t3_t4_ns"),
    stage!(Application, "t4_t5_ns"),
    stage!(Transmit, "t5_t6_ns"),
    Column::instant(
        "intended",
        "when the client's schedule wanted it sent",
        |row| Some(row.client?.intended),
    ),
    Column::instant(
        "sent",
        "when the client sent it, before the system call",
        |row| Some(row.client?.sent),
    ),
    Column::instant("received", "when the client read the response", |row| {
        row.client?.received
    }),
    Column::number("worker", "the thread that served it", |row| row.worker),
    Column::word(
        "main_cause",
        "the cause that most of excess_ns is charged to, as in summary.json; missing without \
         an excess, or where the request was not explained",
        |row: &RequestRow| row.main_cause.map(Cause::key),
    )
    .rests_on(RestsOn::Causes),
    Column::word(
        "operation",
        "what the request asked for: get, set or call",
        |row| row.operation.map(name_of),
    ),
    Column::number("client_port", "the client's port", |row| {
        Some(u32::from(row.peer?.port()))
    }),
    Column::text(
        "client_address",
        "the client's address; one of 240.0.0.0/4 stands for an address that was not recorded; missing in recordings \
         of older versions",
        |row| Some(row.peer?.address()?.to_string()),
    ),
    Column::number(
        "client_hash",
        "a hash of 8 bits of the client's address",
        |row| Some(u32::from(row.peer?.hash())),
    ),
    Column::number(
        "request_id",
        "which request of its client and port: over UDP the protocol's id, over TCP the low 16 bits of the sequence number \
         after its last byte",
        |row| Some(u32::from(row.id?)),
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
    rows: impl IntoIterator<Item = RequestRow>,
    out: W,
) -> Result<u64, ReportError> {
    TABLE.write(rows, out)
}

/// Copies a file of [`write_parquet`] from its start, without the columns that depend on the ideal:
/// no file has them when the comparison is withdrawn.
///
/// # Errors
/// [`ReportError`] when the file is not one of those, or the stream refuses the bytes.
pub fn copy_without_ideal<W: io::Write + Send>(file: File, out: W) -> Result<(), ReportError> {
    TABLE.copy_without(RestsOn::Ideal, file, out)
}

/// The same without the column of the causes only.
///
/// # Errors
/// As [`copy_without_ideal`].
pub fn copy_without_causes<W: io::Write + Send>(file: File, out: W) -> Result<(), ReportError> {
    TABLE.copy_without(RestsOn::Causes, file, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_columns_are_named_after_the_stages() {
        let stages = Stage::ALL.map(|stage| format!("{}_ns", stage.key()));
        let labels = Stage::ALL.map(Stage::label);
        let columns = TABLE.text().columns;
        let of_stages = columns
            .iter()
            .filter(|one| labels.contains(&one.description));
        let names: Vec<&str> = of_stages.map(|one| one.name).collect();
        assert_eq!(names, stages);
    }
}
