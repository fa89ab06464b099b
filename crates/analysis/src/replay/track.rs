//! What the replay must know of the server's CPUs.

use std::collections::HashMap;

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
pub struct CpuStretch {
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
    fn segments(&self, cpu: u16) -> impl Iterator<Item = CpuStretch> + '_;

    /// How many sources there are; their ids count from 0.
    fn sources(&self) -> usize;

    /// What a source is.
    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>);

    /// When something was sent again, since boot, and on which client's connection.
    fn retransmissions(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        std::iter::empty()
    }
}

/// The stretches of all CPUs by their begin, each with its CPU's place.
pub(super) fn by_time<'a, T: CoreTimeline>(
    timeline: &'a T,
    cpus: &[u16],
) -> impl Iterator<Item = (usize, CpuStretch)> + use<'a, T> {
    let mut streams: Vec<_> = cpus
        .iter()
        .map(|&cpu| timeline.segments(cpu).peekable())
        .collect();
    std::iter::from_fn(move || {
        let begins = streams.iter_mut().enumerate();
        let (_, cpu) = begins
            .filter_map(|(cpu, stream)| Some((stream.peek()?.from_ns, cpu)))
            .min()?;
        Some((cpu, streams[cpu].next()?))
    })
}

/// On which CPU each worker is at home over time.
#[derive(Clone, Debug, Default)]
pub(super) struct Residence {
    /// For each worker: (since when, since boot; the CPU's place), in order.
    changes: Vec<Vec<(u64, usize)>>,
    /// Where the last question was answered.
    place: Vec<usize>,
}

impl Residence {
    /// A worker is at home on the CPU on which it is or will be next.
    pub(super) fn of(
        timeline: &impl CoreTimeline,
        cpus: &[u16],
        of_tid: &HashMap<Tid, u16>,
    ) -> Self {
        let mut changes = vec![Vec::new(); of_tid.len()];
        let mut left = vec![0_u64; of_tid.len()];
        for (cpu, segment) in by_time(timeline, cpus) {
            let Occupant::Server { tid, .. } = segment.who else {
                continue;
            };
            let Some(worker) = of_tid.get(&tid).map(|w| usize::from(*w)) else {
                continue;
            };
            let homes: &mut Vec<(u64, usize)> = &mut changes[worker];
            if homes.last().is_none_or(|(_, home)| *home != cpu) {
                homes.push((left[worker], cpu));
            }
            left[worker] = segment.to_ns;
        }
        Self {
            place: vec![0; changes.len()],
            changes,
        }
    }

    /// The workers at home on `cpu` at `at_ns` (since boot), which never decreases.
    pub(super) fn at_home(&mut self, cpu: usize, at_ns: u64) -> impl Iterator<Item = usize> + '_ {
        let all = self.changes.iter().zip(&mut self.place).enumerate();
        all.filter_map(move |(worker, (homes, place))| {
            while homes
                .get(*place + 1)
                .is_some_and(|(from, _)| *from <= at_ns)
            {
                *place += 1;
            }
            (homes.get(*place)?.1 == cpu).then_some(worker)
        })
    }
}
