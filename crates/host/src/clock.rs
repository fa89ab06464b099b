//! The clock of the kernel's events.

use rustix::time::{ClockId, clock_gettime};
use taillab_model::Monotonic;

/// This instant by `CLOCK_MONOTONIC`.
#[inline]
pub fn now() -> Monotonic {
    let time = clock_gettime(ClockId::Monotonic);
    Monotonic::from_nanos_since_boot(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
