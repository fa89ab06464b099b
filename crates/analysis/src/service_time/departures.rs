//! The responses that each CPU sent, in order of time.

use taillab_model::Monotonic;

use crate::matched::Matched;
use crate::timeline::{Timeline, WorkerLine};

/// A response that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    /// T6.
    pub(super) at: Monotonic,
    /// T2: when its request was at the socket; the end of time where that is not known.
    pub(super) queued: Monotonic,
    /// T4, or else T5: when the server had begun to work on it; T6 where neither is known.
    pub(super) begun: Monotonic,
}

/// The responses of the measurement by the place of their CPU in the timeline, each in order of T6. A
/// response belongs to the CPU on which its worker was, or was to run next.
pub(super) fn by_cpu(
    matched: &Matched,
    timeline: &Timeline,
    measure_from: Monotonic,
) -> Vec<Vec<Departure>> {
    let mut by_cpu = vec![Vec::new(); timeline.cpus().len()];
    let mut served: Vec<(u32, u32)> = matched
        .measured_places(measure_from)
        .filter_map(|place| {
            let worker = timeline.worker_place(matched.workers[place])?;
            Some((worker as u32, place as u32))
        })
        .collect();
    served.sort_unstable_by_key(|&(worker, place)| (worker, matched.requests.t6(place as usize)));
    for of_worker in served.chunk_by(|a, b| a.0 == b.0) {
        let line = &timeline.workers()[of_worker[0].0 as usize];
        add_of_worker(matched, timeline, (line, of_worker), &mut by_cpu);
    }
    for departures in &mut by_cpu {
        departures.sort_unstable_by_key(|departure| departure.at);
    }
    by_cpu
}

/// Adds the responses of a worker, which are in order of T6.
fn add_of_worker(
    matched: &Matched,
    timeline: &Timeline,
    (line, served): (&WorkerLine, &[(u32, u32)]),
    by_cpu: &mut [Vec<Departure>],
) {
    let Some(&(_, first)) = served.first() else {
        return;
    };
    let mut spans = line
        .spans_from(matched.requests.t6(first as usize))
        .peekable();
    let mut cpu = None;
    for &(_, place) in served {
        let stamps = matched.requests.stamps(place as usize);
        while let Some(span) = spans.next_if(|span| span.from <= stamps.t6) {
            cpu = span.state.cpu().or(cpu);
        }
        let place = cpu.and_then(|cpu| {
            let cpus = timeline.cpus();
            cpus.binary_search_by_key(&cpu, |line| line.cpu()).ok()
        });
        let Some(place) = place else {
            continue;
        };
        let [t2, _, t4, t5] = stamps.middle();
        by_cpu[place].push(Departure {
            at: stamps.t6,
            queued: t2.unwrap_or(Monotonic::MAX),
            begun: t4.or(t5).unwrap_or(stamps.t6),
        });
    }
}
