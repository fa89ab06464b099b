//! The clock of the kernel's events, and that of the calendar.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use taillab_model::Monotonic;

/// This instant by `CLOCK_MONOTONIC`.
#[inline]
pub fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Monotonic);
    Monotonic::from_nanos_since_boot(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// This instant in seconds since 1970 (UTC), as results say when they began; 0 where the clock is set
/// before that.
pub fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |length| length.as_secs())
}
