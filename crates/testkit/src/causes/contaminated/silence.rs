//! When a CPU of the server recorded nothing for longer than the thread on it stays silent.
//!
//! A thread of the server, the kernel's thread for softirqs and a handler all cause an event within
//! the time of one request, unless they were disturbed by an injection, which knows when it was. An
//! injected thread that had the CPU and says that it did not run was stopped. How long other threads
//! stay silent is not known.

use std::collections::HashMap;

use crate::ground_truth::GroundTruth;
use taillab_model::explanation::Culprit;
use taillab_model::{Event, EventKind, Monotonic, Nanos, RecordingContext, Tid};

use super::hold_up::Stretch;

/// A thread that serves is silent for at most this plus one request.
const QUIET: Nanos = Nanos::from_micros(100);

/// An injected thread notes when it ran by reading the clock; interrupts leave such gaps.
const INJECTOR: Nanos = Nanos::from_micros(50);

/// Stretches with a known explanation, without overlaps.
pub(crate) struct Known(Vec<Stretch>);

impl Known {
    pub(crate) fn of(stretches: impl Iterator<Item = Stretch>) -> Self {
        let mut sorted: Vec<Stretch> = stretches.collect();
        sorted.sort_unstable();
        let mut apart: Vec<Stretch> = Vec::with_capacity(sorted.len());
        for (from, to) in sorted {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        Self(apart)
    }

    /// The longest part of a stretch that is outside, if it is longer than `least`.
    pub(crate) fn longest_outside(&self, (from, to): Stretch, least: Nanos) -> Option<Stretch> {
        let first = self.0.partition_point(|part| part.1 <= from);
        let inside = self.0[first..].iter().take_while(|part| part.0 < to);
        let begins = std::iter::once(from).chain(inside.clone().map(|part| part.1));
        let ends = inside.map(|part| part.0).chain([to]);
        (begins.zip(ends))
            .map(|(from, to)| (from, to.max(from)))
            .max_by_key(|(from, to)| to.saturating_since(*from))
            .filter(|(from, to)| to.saturating_since(*from) > least)
    }
}

/// The last event of a CPU.
struct Last {
    at: Monotonic,
    /// How long the thread on it stays silent at most; `None` where that is not known.
    at_most: Option<Nanos>,
}

/// When a CPU of the server recorded nothing for longer than its thread stays silent, and how long
/// that thread stays silent at most.
pub(crate) fn silences(
    events: impl IntoIterator<Item = Event>,
    context: &RecordingContext,
    truth: &GroundTruth,
    usual: Nanos,
) -> Vec<(Stretch, Nanos)> {
    let at_most = usual + QUIET;
    let servers = (context.threads.iter())
        .filter(|thread| thread.server || thread.comm.starts_with("ksoftirqd"))
        .map(|thread| (thread.tid, at_most));
    // it says itself when it ran
    let injectors = truth
        .sources
        .iter()
        .filter_map(|source| match source.culprit {
            Some(Culprit::Thread { tid: Some(tid), .. }) => Some((tid, INJECTOR)),
            _ => None,
        });
    let known: HashMap<Tid, Nanos> = servers.chain(injectors).collect();
    let mut cpus: HashMap<u16, Last> = HashMap::new();
    let mut silences = Vec::new();
    for event in events {
        if !context.server_cpus.contains(&event.cpu) {
            continue;
        }
        let last = cpus.entry(event.cpu).or_insert(Last {
            at: event.at,
            at_most: None,
        });
        let silent = event.at.saturating_since(last.at);
        let handled = match event.kind {
            EventKind::Interrupt { lasted, .. } | EventKind::Softirq { lasted, .. } => lasted,
            _ => Nanos::ZERO,
        };
        match last.at_most {
            Some(at_most) if silent > at_most => silences.push(((last.at, event.at), at_most)),
            None if silent.min(handled) > at_most => {
                let began = event.at.nanos_since_boot() - silent.min(handled).get();
                let began = Monotonic::from_nanos_since_boot(began);
                silences.push(((began, event.at), at_most));
            }
            _ => {}
        }
        last.at = last.at.max(event.at);
        if let EventKind::Switched { next, .. } = event.kind {
            last.at_most = known.get(&next).copied();
        }
    }
    silences
}

#[cfg(test)]
mod tests {
    use crate::ground_truth::InjectedSource;
    use taillab_model::Interrupt;
    use taillab_model::explanation::Cause;

    use super::super::samples::{WORKER, at, context, switched};
    use super::*;

    const BACKGROUND: Tid = 8;
    const STRANGER: Tid = 9;

    /// Silences, in µs, of a CPU that the thread `on` has for `lasts_us` from 1,000 µs on. A request
    /// takes 20 µs.
    fn silent(on: Tid, lasts_us: u64, last: Option<EventKind>) -> Vec<(u64, u64)> {
        let ends = 1_000 + lasts_us;
        let last = last.map(|kind| Event {
            at: at(ends),
            cpu: 0,
            kind,
        });
        let events = [
            switched(990, 0, on, None),
            switched(1_000, on, on, None),
            last.unwrap_or(switched(ends, on, 0, None)),
        ];
        let context = context(&[(STRANGER, "make")]);
        let truth = GroundTruth {
            sources: vec![InjectedSource {
                injected: "background".to_owned(),
                cause: Cause::Background,
                culprit: Some(Culprit::Thread {
                    name: "tl-background".to_owned(),
                    pid: None,
                    tid: Some(BACKGROUND),
                }),
            }],
            ..GroundTruth::default()
        };
        let us = |at: Monotonic| at.nanos_since_boot() / 1_000;
        (silences(events, &context, &truth, Nanos::from_micros(20)).into_iter())
            .map(|((from, to), _)| (us(from), us(to)))
            .collect()
    }

    #[test]
    fn a_thread_of_the_server_is_not_silent_for_long_and_others_may_be() {
        assert_eq!(silent(WORKER, 150, None), [(1_000, 1_150)]);
        assert!(silent(WORKER, 110, None).is_empty());
        assert_eq!(silent(BACKGROUND, 80, None), [(1_000, 1_080)]);
        assert!(silent(BACKGROUND, 40, None).is_empty());
        assert!(silent(STRANGER, 9_000, None).is_empty());
    }

    #[test]
    fn a_handler_is_not_silent_for_long_whoever_it_interrupts() {
        let handled = |us| {
            Some(EventKind::Interrupt {
                interrupt: Interrupt::LocalTimer,
                lasted: Nanos::from_micros(us),
            })
        };
        assert_eq!(silent(0, 500, handled(300)), [(1_200, 1_500)]);
        assert!(silent(0, 500, handled(90)).is_empty());
    }

    #[test]
    fn what_is_known_leaves_the_longest_part_outside() {
        let known = Known::of([(at(30), at(50)), (at(10), at(35))].into_iter());
        let outside = |from, to| known.longest_outside((at(from), at(to)), Nanos::from_micros(5));
        assert_eq!(outside(0, 90), Some((at(50), at(90))));
        assert_eq!(outside(0, 54), Some((at(0), at(10))));
        assert_eq!(outside(12, 54), None);
        assert_eq!(outside(60, 70), Some((at(60), at(70))));
    }
}
