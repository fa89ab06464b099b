//! Which CPU is whose, over time.

use std::collections::HashMap;

use taillab_model::Tid;

use super::track::{CoreTimeline, Occupant, Segment};

/// The stretches of all CPUs by their begin, each with its CPU's place.
pub(super) fn by_time<'a, T: CoreTimeline>(
    timeline: &'a T,
    cpus: &[u16],
) -> impl Iterator<Item = (usize, Segment)> + use<'a, T> {
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
