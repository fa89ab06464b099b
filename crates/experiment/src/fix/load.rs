//! Load on a server, block by block: our own load on our own server, or the traffic of a live server.

use std::time::Duration;

use taillab_analysis::untouched::RecordedBlock;
use taillab_console::exit::{Exit, Failure};
use taillab_host::Interrupt;
use taillab_host::tune::Scope;
use taillab_model::Nanos;

/// The result of a block.
pub struct BlockResult {
    /// The latency of each request that counts.
    pub latencies: Vec<Nanos>,
    /// Requests that do not count, because something held the generator up.
    pub cut: usize,
    /// The probe's recording, if there is one.
    pub recorded: Option<RecordedBlock>,
}

/// A server under load.
pub trait Load {
    /// How long a block takes with its warm-up.
    fn takes(&self) -> Nanos;

    /// Runs a block of load. With our own load, the same seed gives the same arrivals.
    ///
    /// # Errors
    /// [`Exit::Interrupted`] after Ctrl-C; a failure if the server has died.
    fn block(&mut self, seed: u64) -> Result<BlockResult, Failure>;

    /// Requests per second that the server answers at its peak; `None` if the load is not ours.
    ///
    /// # Errors
    /// As [`Self::block`].
    fn peak_per_s(&mut self, seed: u64) -> Result<Option<f64>, Failure>;

    /// What mitigations are applied to: the server and its CPUs.
    fn scope(&self) -> Scope;

    /// The flag that Ctrl-C raises.
    fn interrupt(&self) -> &Interrupt;
}

/// The usual length of a block.
const LENGTH: Nanos = Nanos::from_secs(1);
/// The shortest block, for a budget that has no room for usual ones.
const SHORTEST: Nanos = Nanos::from_millis(250);
/// The longest block, for rare requests.
const LONGEST: Nanos = Nanos::from_secs(10);
/// A block is extended, up to that length, until it has this many requests.
const REQUESTS: f64 = 2_000.0;
/// The time that a block takes on a busy machine in addition to its length: for the warm-up, for applying
/// and reverting, and for the replay.
const BESIDES: Nanos = Nanos::from_millis(700);

/// How long a block is, without its warm-up, so that the budget has room for `fewest` of them.
pub fn block_length(rate_per_s: f64, budget: Duration, fewest: u32) -> Nanos {
    let enough = Nanos::try_from_secs_f64(REQUESTS / rate_per_s).unwrap_or(LONGEST);
    let room = u64::try_from((budget / fewest).as_nanos()).unwrap_or(u64::MAX);
    let fits = Nanos::new(room).saturating_sub(BESIDES);
    enough.clamp(fits.clamp(SHORTEST, LENGTH), LONGEST)
}

/// The failure after Ctrl-C in the middle of the trials.
pub fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted while a fix was tried")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_shorter_only_where_the_budget_has_no_room_and_the_requests_are_enough() {
        let length = |rate, budget_s| {
            let length = block_length(rate, Duration::from_secs(budget_s), 24);
            length.get() / 1_000_000
        };
        assert_eq!(length(100_000.0, 180), 1_000);
        assert_eq!(length(100_000.0, 42), 1_000);
        assert_eq!(length(100_000.0, 24), 300);
        assert_eq!(length(4_000.0, 24), 500);
        assert_eq!(length(100_000.0, 1), 250);
        assert_eq!(length(400.0, 18), 5_000);
        assert_eq!(length(1.0, 180), 10_000);
    }
}
