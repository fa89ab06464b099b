//! Load on a server, block by block: our own load on our own server, or the traffic of a live server.

use taillab_analysis::untouched::RecordedBlock;
use taillab_host::Interrupt;
use taillab_host::tune::Scope;
use taillab_model::Nanos;

use crate::exit::{Exit, Failure};

/// What a block showed.
pub struct Seen {
    /// The latency of each request that counts.
    pub latencies: Vec<Nanos>,
    /// Requests that do not count, because something held the generator up.
    pub cut: usize,
    /// What the probe recorded, where it did.
    pub recorded: Option<RecordedBlock>,
}

/// A server under load.
pub trait Load {
    /// How long a block takes with its warm-up.
    fn takes(&self) -> Nanos;

    /// A block of load. With our own load, the same seed gives the same arrivals.
    ///
    /// # Errors
    /// [`Exit::Interrupted`]; the server has died.
    fn block(&mut self, seed: u64) -> Result<Seen, Failure>;

    /// Requests per second that the server answers at its peak; `None` if the load is not ours.
    ///
    /// # Errors
    /// As [`Self::block`].
    fn peak_per_s(&mut self, seed: u64) -> Result<Option<f64>, Failure>;

    /// What is changed: the server and its CPUs.
    fn scope(&self) -> Scope;

    /// Ctrl-C.
    fn interrupt(&self) -> &Interrupt;
}

/// The usual length of a block.
const LENGTH: Nanos = Nanos::from_secs(1);
/// The longest block, for rare requests.
const LONGEST: Nanos = Nanos::from_secs(10);
/// A block is extended, up to that length, until it has this many requests.
const REQUESTS: f64 = 2_000.0;

/// How long a block is, without its warm-up.
pub fn block_length(rate_per_s: f64) -> Nanos {
    let enough = Nanos::try_from_secs_f64(REQUESTS / rate_per_s).unwrap_or(LONGEST);
    enough.clamp(LENGTH, LONGEST)
}

/// Ctrl-C in the middle of the trials.
pub fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted while a fix was tried")
}
