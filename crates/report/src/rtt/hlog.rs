//! The round trips of a row as an HdrHistogram interval log.

use std::io;

use taillab_model::rtt::RoundTrip;

use crate::error::ReportError;
use crate::hlog;

/// Writes an HdrHistogram interval log of round trips, which must be in order of time; a lost
/// message counts as long as it was waited for. Writes nothing without round trips.
///
/// # Errors
/// [`ReportError::Write`] when the stream refuses the bytes.
pub fn write_hlog<'a>(
    round_trips: impl IntoIterator<Item = &'a RoundTrip>,
    started_unix_s: u64,
    out: impl io::Write,
) -> Result<(), ReportError> {
    let mut rows = round_trips.into_iter().peekable();
    let Some(first) = rows.peek().map(|trip| trip.sent) else {
        return Ok(());
    };
    let rows = rows.map(|trip| hlog::Observed {
        due: Some(trip.sent),
        warm_up: false,
        latencies: [Some(trip.rtt)],
    });
    hlog::write_tagged(rows, ["rtt"], first, started_unix_s, out).map(drop)
}
