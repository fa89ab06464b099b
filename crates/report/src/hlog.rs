//! `latency.hlog`: an HdrHistogram interval log (V2).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use taillab_model::{Monotonic, Nanos};

use crate::document::Series;
use crate::error::ReportError;
use crate::requests::RequestRow;

const OUTPUT: &str = "latency.hlog";

/// Length of an interval.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// Decimal digits that every recorded value keeps.
const SIGNIFICANT_DIGITS: u8 = 3;

/// One request as a log takes it.
pub struct Observed<const N: usize> {
    /// When it was due; `None` leaves it out.
    pub due: Option<Monotonic>,
    /// It belongs to the warm-up, which is left out.
    pub warm_up: bool,
    /// One value for each tag of the log, where there is one.
    pub latencies: [Option<Nanos>; N],
}

/// Writes one histogram for each second and [`Series`] (its tag is [`Series::key`]), values in
/// nanoseconds.
///
/// `rows` must be in order of the intended send (without a client: of T1); `started` is the
/// instant that the log counts from and `started_unix_s` the same in seconds since 1970. A row
/// belongs to the interval in which it was due (without a client: in which it came in). A row out
/// of order counts in the interval that is open; none is dropped. Rows of the warm-up and those
/// before `started` are left out.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write<W: io::Write>(
    rows: impl IntoIterator<Item = RequestRow>,
    started: Monotonic,
    started_unix_s: u64,
    out: W,
) -> Result<(), ReportError> {
    let rows = rows.into_iter().map(|row| Observed {
        due: (row.client.map(|client| client.intended)).or(row.server.map(|stamps| stamps.t1)),
        warm_up: row.warm_up,
        latencies: latencies(&row),
    });
    let tags = Series::ALL.map(Series::key);
    write_tagged(rows, tags, started, started_unix_s, out).map(drop)
}

/// Copies a log of [`write`] from its start, without the ideal: no file has it when the comparison
/// is withdrawn.
///
/// # Errors
/// [`ReportError::Write`] when it cannot be read, or the stream refuses the bytes.
pub fn copy_without_ideal<W: io::Write>(log: File, mut out: W) -> Result<(), ReportError> {
    let ideal = format!("Tag={},", Series::Ideal.key());
    for line in BufReader::new(log).lines() {
        let line = line.map_err(refused)?;
        if !line.starts_with(&ideal) {
            writeln!(out, "{line}").map_err(refused)?;
        }
    }
    Ok(())
}

/// [`write`] for any tags; returns the sums over all intervals, in the order of the tags.
pub fn write_tagged<W: io::Write, const N: usize>(
    rows: impl IntoIterator<Item = Observed<N>>,
    tags: [&'static str; N],
    started: Monotonic,
    started_unix_s: u64,
    mut out: W,
) -> Result<[Histogram<u64>; N], ReportError> {
    let start = UNIX_EPOCH + Duration::from_secs(started_unix_s);
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[taillab: latencies in nanoseconds]")
        .with_start_time(start)
        .with_base_time(start)
        // the log's own maximum column then reads in milliseconds, as the format's tools expect
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut out, &mut serializer)
        .map_err(refused)?;
    let mut totals = histograms::<N>()?;
    let mut open = histograms::<N>()?;
    let mut interval = 0_u64;
    let mut flush = |open: &mut [Histogram<u64>; N], interval: u64, totals: &mut [_; N]| {
        let since_start = Duration::from_nanos((INTERVAL * interval).get());
        for ((histogram, total), tag) in open.iter_mut().zip(totals).zip(tags) {
            if !histogram.is_empty() {
                let length = Duration::from_nanos(INTERVAL.get());
                log.write_histogram(histogram, since_start, length, Tag::new(tag))
                    .map_err(|e| match e {
                        IntervalLogWriterError::IoError(source) => refused(source),
                        IntervalLogWriterError::SerializeError(e) => format_error(&e),
                    })?;
                Histogram::add(total, &*histogram).map_err(|e| format_error(&e))?;
                histogram.reset();
            }
        }
        Ok(())
    };
    for row in rows {
        let Some(offset) = row.due.and_then(|due| due.checked_since(started)) else {
            continue;
        };
        if row.warm_up {
            continue;
        }
        let belongs = offset.get() / INTERVAL.get();
        if belongs > interval {
            flush(&mut open, interval, &mut totals)?;
            interval = belongs;
        }
        for (histogram, value) in open.iter_mut().zip(row.latencies) {
            if let Some(value) = value {
                // an auto-resizing histogram takes every value but one above i64::MAX
                histogram
                    .record(value.get())
                    .map_err(|e| format_error(&e))?;
            }
        }
    }
    flush(&mut open, interval, &mut totals)?;
    Ok(totals)
}

/// The row's latency in each series, in the order of [`Series::ALL`].
fn latencies(row: &RequestRow) -> [Option<Nanos>; 3] {
    let response = row
        .client
        .and_then(|client| client.received?.checked_since(client.intended));
    [
        row.ideal,
        row.server.and_then(|stamps| stamps.sojourn()),
        response,
    ]
}

fn histograms<const N: usize>() -> Result<[Histogram<u64>; N], ReportError> {
    let empty: Histogram<u64> = Histogram::new(SIGNIFICANT_DIGITS).map_err(|e| format_error(&e))?;
    Ok(std::array::from_fn(|_| empty.clone()))
}

fn refused(source: io::Error) -> ReportError {
    ReportError::Write {
        output: OUTPUT,
        source,
    }
}

fn format_error(error: &dyn std::error::Error) -> ReportError {
    ReportError::Format {
        output: OUTPUT,
        cause: error.to_string(),
    }
}
