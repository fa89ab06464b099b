//! `latency.hlog`: an HdrHistogram interval log (V2), and `.hgrm` percentile files.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};
use taillab_model::{Monotonic, Nanos};

use crate::requests::RequestRow;
use crate::{ReportError, Series};

const OUTPUT: &str = "latency.hlog";

/// Length of an interval.
pub const INTERVAL: Nanos = Nanos::from_secs(1);
/// Decimal digits that every recorded value keeps.
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// The whole run's histograms, from which percentile files are made.
#[derive(Clone, Debug)]
pub struct Totals {
    histograms: [Histogram<u64>; 3],
}

/// Writes one histogram for each interval and [`Series`] (its tag is [`Series::key`]),
/// values in nanoseconds, and returns the sums.
///
/// `rows` come in order of T1 or of the intended send; `started` is the instant that
/// the log counts from and `started_unix_s` the same in seconds since 1970. A row
/// belongs to the interval in which it was due (without a client: in which it came
/// in); one that comes late in the order is counted in the interval that is open, none
/// is dropped. Rows of the warm-up and those before `started` are left out.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write<W: io::Write>(
    rows: impl IntoIterator<Item = RequestRow>,
    started: Monotonic,
    started_unix_s: u64,
    mut out: W,
) -> Result<Totals, ReportError> {
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
    let mut totals = Totals {
        histograms: histograms()?,
    };
    let mut open = histograms()?;
    let mut interval = 0_u64;
    let mut flush = |open: &mut [Histogram<u64>; 3], interval: u64, totals: &mut Totals| {
        let since_start = Duration::from_nanos((INTERVAL * interval).get());
        for ((histogram, total), series) in
            open.iter_mut().zip(&mut totals.histograms).zip(Series::ALL)
        {
            if !histogram.is_empty() {
                let length = Duration::from_nanos(INTERVAL.get());
                log.write_histogram(histogram, since_start, length, Tag::new(series.key()))
                    .map_err(|e| match e {
                        IntervalLogWriterError::IoError(source) => refused(source),
                        IntervalLogWriterError::SerializeError(e) => format_error(&e),
                    })?;
                total.add(&*histogram).map_err(|e| format_error(&e))?;
                histogram.reset();
            }
        }
        Ok(())
    };
    for row in rows {
        let due = (row.client.map(|client| client.intended)).or(row.server.map(|stamps| stamps.t1));
        let Some(offset) = due.and_then(|due| due.checked_since(started)) else {
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
        for (histogram, value) in open.iter_mut().zip(latencies(&row)) {
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

fn histograms() -> Result<[Histogram<u64>; 3], ReportError> {
    let empty: Histogram<u64> = Histogram::new(SIGNIFICANT_DIGITS).map_err(|e| format_error(&e))?;
    Ok([empty.clone(), empty.clone(), empty])
}

impl Totals {
    /// Requests counted in the series.
    pub fn count(&self, series: Series) -> u64 {
        self.of(series).len()
    }

    /// The percentile file (`.hgrm`) of one series, with values in microseconds, as
    /// HdrHistogram's plotters read it.
    pub fn percentiles(&self, series: Series) -> Vec<u8> {
        const NS_PER_US: f64 = 1e3;
        /// Lines for each halving of the distance to 100 %, as the format's tools write.
        const TICKS_PER_HALF_DISTANCE: u32 = 5;
        let histogram = self.of(series);
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        let mut count = 0;
        for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
            let q = step.quantile_iterated_to();
            let value = histogram.value_at_quantile(q) as f64 / NS_PER_US;
            count += step.count_since_last_iteration();
            let line = if q < 1.0 {
                format!(
                    "{value:12.3} {q:14.12} {count:10} {:14.2}\n",
                    1.0 / (1.0 - q)
                )
            } else {
                format!("{value:12.3} {q:14.12} {count:10}\n")
            };
            text.push_str(&line);
        }
        text.push_str(&format!(
            "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n\
             #[Max     = {:12.3}, Total count    = {:12}]\n\
             #[Unit    = microseconds]\n",
            histogram.mean() / NS_PER_US,
            histogram.stdev() / NS_PER_US,
            histogram.max() as f64 / NS_PER_US,
            histogram.len(),
        ));
        text.into_bytes()
    }

    fn of(&self, series: Series) -> &Histogram<u64> {
        &self.histograms[series as usize]
    }
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
