//! Pauses of the generator. Requests are due at random, so a long gap is no accident. After a pause
//! comes a burst that nobody asked for, and during it the server cannot send its responses, since
//! nobody reads them from the socket.

use std::num::NonZeroU32;

use crate::attribution::Span;
use taillab_analysis::timeline::{Sleep, Timeline, WorkerState};
use taillab_model::{Monotonic, Nanos};
use taillab_queueing::ideal;

use super::hold_up::{HoldUp, Proof, Stretch};
use super::silence::Known;

/// Arrivals are a Poisson process: one gap in e¹⁵, three million, is 15 times the mean.
const GAPS: u64 = 15;

/// Shorter pauses are ignored.
const LEAST: Nanos = Nanos::from_micros(200);

/// Stretches without a request (T1, in order of time) that are far too long for chance and were not
/// caused by the injection.
pub(crate) fn silences(came: &[Monotonic], injected: &Known) -> Vec<Stretch> {
    let (Some(first), Some(last)) = (came.first(), came.last()) else {
        return Vec::new();
    };
    let mean = last.saturating_since(*first).get() / came.len() as u64;
    let least = LEAST.max(Nanos::new(GAPS * mean));
    (came.windows(2))
        .filter(|gap| gap[1].saturating_since(gap[0]) > least)
        .filter_map(|gap| injected.longest_outside((gap[0], gap[1]), least))
        .collect()
}

/// When a thread of the server slept in a system call that waits for neither work nor storage while
/// the generator paused: it sent, and nobody read.
pub(crate) fn blocked(timeline: &Timeline, silent: &[Stretch]) -> Vec<HoldUp> {
    let mut held = Vec::new();
    for line in timeline.workers() {
        let sleeps = |state| matches!(state, WorkerState::Asleep(Sleep::Other { .. }));
        for span in line.spans() {
            if !sleeps(span.state) || span.state.is_timer() {
                continue;
            }
            let first = silent.partition_point(|(_, to)| *to <= span.from);
            if let Some((from, to)) = silent.get(first)
                && *from < span.to
            {
                let slept = span.to.min(*to).saturating_since(span.from.max(*from));
                if slept > LEAST {
                    held.push(HoldUp {
                        at: (span.from, span.to),
                        thread: Some(line.tid()),
                        proof: Proof::Blocked,
                    });
                }
            }
        }
    }
    held
}

/// The waits, in an ideal queue of `workers` that take `usual` for each request, of the requests in
/// the burst after a pause and of those that waited behind them. A burst lasts until as many requests
/// have come as were due, to within two standard deviations.
pub(crate) fn bursts(
    silent: &[Stretch],
    spans: &[Span],
    usual: Nanos,
    workers: NonZeroU32,
) -> Vec<(usize, Nanos)> {
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| spans[*place].t1);
    let came = |nth: usize| spans[places[nth]].t1;
    let Some(last) = spans.len().checked_sub(1) else {
        return Vec::new();
    };
    let rate_per_s = last as f64 / came(last).saturating_since(came(0)).as_secs_f64();
    let mut burst = vec![false; spans.len()];
    for (from, to) in silent {
        let first = places.partition_point(|place| spans[*place].t1 < *to);
        for nth in first..spans.len() {
            let due = rate_per_s * came(nth).saturating_since(*from).as_secs_f64();
            if (nth - first) as f64 > due - 2.0 * due.sqrt() {
                break;
            }
            burst[places[nth]] = true;
        }
    }
    let arrivals: Vec<Nanos> = (0..spans.len())
        .map(|nth| came(nth).saturating_since(came(0)))
        .collect();
    let sojourns = ideal::sojourns(&arrivals, usual, workers);
    let mut waits = vec![Nanos::ZERO; spans.len()];
    for (place, sojourn) in places.iter().zip(sojourns) {
        waits[*place] = sojourn.saturating_sub(usual);
    }
    places.sort_by_key(|place| (spans[*place].worker, spans[*place].t6));
    for two in places.windows(2) {
        let [before, after] = [two[0], two[1]];
        let waited =
            spans[before].worker == spans[after].worker && spans[after].t1 < spans[before].t6;
        burst[after] |= waited && burst[before];
    }
    (waits.into_iter().enumerate())
        .filter(|(place, _)| burst[*place])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{WORKER, at, context, switched};
    use super::*;

    /// A request every 100 µs for a second, but none for `gap_us` from 500 ms on.
    fn came(gap_us: u64) -> Vec<Monotonic> {
        let due = (1..10_000).map(|n| 100 * n);
        let came = due.map(|us| {
            if (500_000..500_000 + gap_us).contains(&us) {
                500_000 + gap_us
            } else {
                us
            }
        });
        came.map(at).collect()
    }

    #[test]
    fn a_gap_that_is_no_chance_shows_that_the_generator_stood_still() {
        let nothing = Known::of([].into_iter());
        assert!(silences(&came(1_000), &nothing).is_empty());
        let gap = silences(&came(3_000), &nothing);
        assert_eq!(gap, [(at(499_900), at(503_000))]);
        // unless it did so because of what was injected
        let injected = Known::of([(at(500_500), at(502_000))].into_iter());
        assert!(silences(&came(3_000), &injected).is_empty());
    }

    #[test]
    fn what_comes_at_once_after_that_and_what_waits_behind_it_is_a_burst() {
        let came = came(3_000);
        let silent = silences(&came, &Known::of([].into_iter()));
        // each takes 50 µs
        let mut free = at(0);
        let spans: Vec<Span> = (came.iter())
            .map(|t1| {
                free = free.max(*t1) + Nanos::from_micros(50);
                Span {
                    t1: *t1,
                    t2: *t1,
                    t6: free,
                    worker: 0,
                }
            })
            .collect();
        let t = Nanos::from_micros(50);
        let burst = bursts(&silent, &spans, t, NonZeroU32::MIN);
        // 31 come at once; the k-th after them waits where 100 k < 50 (30 + k)
        assert_eq!(burst.len(), 31 + 29);
        let waits = |nth: usize| (came[burst[nth].0], burst[nth].1);
        assert_eq!(waits(0), (at(503_000), Nanos::ZERO));
        assert_eq!(waits(30), (at(503_000), Nanos::from_micros(30 * 50)));
        assert_eq!(waits(59), (at(505_900), t));
        assert!(bursts(&[], &spans, t, NonZeroU32::MIN).is_empty());
    }

    #[test]
    fn who_sleeps_in_a_send_meanwhile_is_blocked_by_it() {
        const SENDTO: u16 = 44;
        const EPOLL_WAIT: u16 = 232;
        let held = |call| {
            let events = [
                switched(100, 0, WORKER, None),
                switched(1_000, WORKER, 0, Some(call)),
                switched(6_000, 0, WORKER, None),
                switched(6_100, WORKER, 0, Some(EPOLL_WAIT)),
            ];
            let timeline = Timeline::build(events, &context(&[]));
            let silent = [(at(1_200), at(5_900))];
            blocked(&timeline, &silent)
                .iter()
                .map(|it| it.at)
                .collect::<Vec<_>>()
        };
        assert_eq!(held(SENDTO), [(at(1_000), at(6_000))]);
        assert!(held(EPOLL_WAIT).is_empty());
    }
}
