//! The round trips of a row as an HdrHistogram interval log.

use std::io;

use taillab_model::Monotonic;
use taillab_model::rtt::RoundTrip;
use taillab_report::{ReportError, hlog};

/// Writes an HdrHistogram interval log of round trips, which must be in order of time; a lost
/// message counts as long as it was waited for. Without round trips the log has no intervals.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_hlog<'a>(
    round_trips: impl IntoIterator<Item = &'a RoundTrip>,
    started_unix_s: u64,
    out: impl io::Write,
) -> Result<(), ReportError> {
    let mut rows = round_trips.into_iter().peekable();
    let none = Monotonic::from_nanos_since_boot(0);
    let first = rows.peek().map_or(none, |trip| trip.sent);
    let rows = rows.map(|trip| hlog::Observed {
        due: Some(trip.sent),
        warm_up: false,
        latencies: [Some(trip.rtt)],
    });
    hlog::write_tagged(rows, ["rtt"], first, started_unix_s, out).map(drop)
}
