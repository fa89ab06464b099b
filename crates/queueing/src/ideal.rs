//! The ideal server: the measured arrivals through a FIFO queue of c workers, each
//! request taking the same time t (Tales of the Tail, section 3.2).

use std::num::NonZeroU32;

use taillab_model::Nanos;

/// The ideal sojourn of each request of a recorded arrival series.
///
/// D_i = max(A_i, D_{i−c}) + t: with equal service times the request before the last
/// c departs first, so FIFO over c workers is a round robin over them. `arrivals`
/// are offsets from any common origin, in order; the result is in the same order.
///
/// # Panics
/// When `arrivals` is not sorted (debug builds only).
pub fn sojourns(arrivals: &[Nanos], service_time: Nanos, workers: NonZeroU32) -> Vec<Nanos> {
    debug_assert!(arrivals.is_sorted(), "arrivals must be in order of time");
    let mut free_at = vec![Nanos::ZERO; workers.get() as usize];
    let mut next = 0;
    arrivals
        .iter()
        .map(|&arrival| {
            let departure = arrival.max(free_at[next]) + service_time;
            free_at[next] = departure;
            next += 1;
            if next == free_at.len() {
                next = 0;
            }
            departure - arrival
        })
        .collect()
}
