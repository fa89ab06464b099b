//! What the replay must know of the server's CPUs.

use taillab_model::Tid;
use taillab_model::explanation::{Cause, Culprit};

/// One of the things that take a CPU away from the server: an index into a
/// [`CoreTimeline`]'s sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u16);

/// How a stretch of a server's thread on its CPU ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It is only interrupted, and still current.
    Stays,
    /// It is switched out and could go on.
    Preempted,
    /// It goes to sleep.
    Sleeps {
        /// What this sleep is if it falls into the middle of a request.
        cause: Cause,
        /// When it is woken, as far as that is known: from then on it could run.
        until_ns: u64,
    },
}

/// Who is on a CPU, the innermost: a handler, not the thread below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nobody.
    Idle {
        /// In a power state below the shallowest one.
        deep: bool,
    },
    /// A thread of the server.
    Server {
        /// Which.
        tid: Tid,
        /// How the stretch ends.
        leaves: Leaves,
    },
    /// Anything else.
    Other(SourceId),
}

/// A stretch of one CPU with one occupant. Times are nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// From then on …
    pub from_ns: u64,
    /// … until then, exclusively.
    pub to_ns: u64,
    /// Who.
    pub who: Occupant,
}

/// The server's CPUs over time, flat: stretches that neither overlap nor leave gaps.
pub trait CoreTimeline {
    /// The CPUs on which these threads of the server ran.
    fn cpus(&self, threads: &[Tid]) -> Vec<u16>;

    /// The stretches of one of them, in order of time.
    fn segments(&self, cpu: u16) -> impl Iterator<Item = Segment> + '_;

    /// How many sources there are; their ids count from 0.
    fn sources(&self) -> usize;

    /// What a source is.
    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>);

    /// When something was sent again, since boot, and on which client's connection.
    fn retransmissions(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        std::iter::empty()
    }
}
