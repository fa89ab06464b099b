//! Pauses: times in which the whole server, or one process of it, stands still: to collect garbage ([`named`],
//! [`v8`]), or while the kernel copies it for a `fork` ([`forks`]).
//!
//! A signal or a debugger that stops a thread shows in the state of each thread, and needs no search.

mod forks;
mod named;
mod v8;

use std::ops::Range;

use taillab_model::explanation::ServerStop;
use taillab_model::{Monotonic, Tid};

use super::label::Labels;
use crate::matched::Matched;
use crate::timeline::Timeline;

pub(super) use forks::Forks;

/// In a longer gap between two of the threads that stop the others, the others could have gone on.
const LONGEST_GAP_NS: u64 = 200_000;

/// A time in which the server stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// When it began, in nanoseconds since boot.
    pub(super) from_ns: u64,
    to_ns: u64,
    /// What for.
    pub(super) why: ServerStop,
    /// The main thread of the only process that stood still; `None`: the whole server did.
    of: Option<Tid>,
}

/// A part of a stretch of time, and the pause in which it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PausePart {
    /// In nanoseconds since boot.
    pub(super) span: Range<u64>,
    /// `None` between pauses.
    pub(super) pause: Option<Pause>,
}

/// The pauses in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    /// In order of their beginnings.
    found: Vec<Pause>,
    longest_ns: u64,
}

impl Pauses {
    /// The pauses in a window.
    pub(super) fn of(
        (matched, timeline): (&Matched, &Timeline),
        labels: &mut Labels,
        forks: &mut Forks,
    ) -> Self {
        let mut found = named::collections(timeline, labels);
        found.extend(v8::collections(matched, timeline, labels));
        found.extend(forks.find(matched, timeline, labels));
        Self::new(found)
    }

    fn new(mut found: Vec<Pause>) -> Self {
        found.sort_unstable_by_key(|pause| pause.from_ns);
        let lengths = found.iter().map(|pause| pause.to_ns - pause.from_ns);
        let longest_ns = lengths.max().unwrap_or(0);
        Self { found, longest_ns }
    }

    /// The parts of a stretch of time, in order; none if there is no pause in it. `concerns` says whether the
    /// pause of the process with this main thread matters there.
    pub(super) fn parts(
        &self,
        span: Range<u64>,
        mut concerns: impl FnMut(Tid) -> bool,
    ) -> Vec<PausePart> {
        let (from_ns, to_ns) = (span.start, span.end);
        let part = |span, pause| PausePart { span, pause };
        let begins = |pause: &Pause| pause.from_ns.saturating_add(self.longest_ns) <= from_ns;
        let first = self.found.partition_point(begins);
        let mut parts = Vec::new();
        let mut at_ns = from_ns;
        for pause in &self.found[first..] {
            if pause.from_ns >= to_ns {
                break;
            }
            if pause.to_ns <= at_ns || !pause.of.is_none_or(&mut concerns) {
                continue;
            }
            if pause.from_ns > at_ns {
                parts.push(part(at_ns..pause.from_ns, None));
                at_ns = pause.from_ns;
            }
            let end_ns = pause.to_ns.min(to_ns);
            parts.push(part(at_ns..end_ns, Some(*pause)));
            at_ns = end_ns;
        }
        if at_ns < to_ns && !parts.is_empty() {
            parts.push(part(at_ns..to_ns, None));
        }
        parts
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// When a thread read and wrote, in order of time: it did not stand still then.
pub(super) fn served_at(matched: &Matched, thread: Tid) -> Vec<u64> {
    let mut at_ns = Vec::new();
    for (place, _) in (matched.workers.iter().enumerate()).filter(|(_, tid)| **tid == thread) {
        let [_, _, t4, t5] = matched.requests.stamps(place).middle();
        let known = [t4, t5].into_iter().flatten();
        at_ns.extend(known.map(Monotonic::nanos_since_boot));
    }
    at_ns.sort_unstable();
    at_ns
}

/// The last of these times that is not after `until_ns`; 0 if there is none.
fn last_until(at_ns: &[u64], until_ns: u64) -> u64 {
    let before = at_ns.partition_point(|&at| at <= until_ns);
    before.checked_sub(1).map_or(0, |place| at_ns[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_one_process_concerns_only_its_own_cpu() {
        let pause = |from_ns, to_ns, of| Pause {
            from_ns,
            to_ns,
            why: ServerStop::Fork,
            of,
        };
        let all = pause(500, 600, None);
        let pauses = Pauses::new(vec![
            all,
            pause(0, 1_000, Some(7)),
            pause(900, 1_200, Some(8)),
        ]);
        let parts = |span, main: Tid| pauses.parts(span, |of| of == main);
        let part = |span, pause| PausePart { span, pause };
        let found = parts(100..2_000, 9);
        let wanted = [
            part(100..500, None),
            part(500..600, Some(all)),
            part(600..2_000, None),
        ];
        assert_eq!(found, wanted);
        assert_eq!(parts(100..400, 9), []);
        let spans = parts(100..2_000, 8).into_iter().map(|part| part.span);
        let wanted = [100..500, 500..600, 600..900, 900..1_200, 1_200..2_000];
        assert_eq!(spans.collect::<Vec<_>>(), wanted);
        let whole = parts(100..400, 7);
        assert_eq!(whole, [part(100..400, Some(pause(0, 1_000, Some(7))))]);
    }
}
