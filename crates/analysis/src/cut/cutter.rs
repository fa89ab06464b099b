//! Which requests are left out of the experiment's view.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use taillab_model::histogram::cell;
use taillab_model::summary::{CutSummary, CutsForReason, UnsettledAt};
use taillab_model::{Cut, CutReason, Monotonic, Nanos, REPORTED_QUANTILES};
use taillab_queueing::ideal::IdealQueue;

use crate::id_map::grow_to;
use crate::matched::Matched;
use crate::spans::{Span, Spans};

/// Finds the cuts in each window. A cut lasts from its first request until it has no more effect:
/// until sends are on time again, and the queue is what it would have been without it.
///
/// Requests that were sent late arrived late. So the server may have been idle when it should have
/// worked, and does that work later. As soon as it is idle again, it is in the state in which it would
/// have been anyway. If it was never idle during the cut (because it had a queue of its own making),
/// it has not fallen behind, and the cut ends with its last late send. The same rule applies to the
/// ideal queue.
pub struct Cutter<'c> {
    cuts: &'c [Cut],
    /// The next cut that has not begun.
    next: usize,
    workers: NonZeroU32,
    measure_from: Monotonic,
    /// T6 of the requests in the server.
    leave: BinaryHeap<Reverse<Monotonic>>,
    /// The ideal queue and its service time, where that is known.
    ideal: Option<(IdealQueue, Nanos)>,
    open: Option<Open>,
    sums: CutSums,
    last: Option<Monotonic>,
}

/// A cut that has begun.
struct Open {
    from: Monotonic,
    to: Monotonic,
    /// The index of its reason in the sums: that of the last cut that extended it.
    reason: usize,
    /// Up to where its length and its requests are in the sums.
    summed_to: Monotonic,
    measured: Effect,
    ideal: Effect,
    /// The number of requests of the measurement that it has cut since then.
    requests: u64,
    /// Up to where earlier windows have marked it.
    shown_to: Option<Monotonic>,
}

/// Whether a queue still differs from what it would have been.
#[derive(Clone, Copy, Default)]
struct Effect {
    /// The server was idle when it perhaps should have worked.
    was_idle: bool,
    over: bool,
}

impl Effect {
    /// A request arrives during the cut or after it; `idle`: it finds an idle worker.
    fn look(&mut self, idle: bool, during: bool) {
        if during {
            self.was_idle |= idle;
        } else {
            self.over |= idle || !self.was_idle;
        }
    }
}

/// Sums over what was cut and what was kept.
#[derive(Default)]
struct CutSums {
    by_reason: Vec<CutsForReason>,
    /// T1 of the first request of the measurement.
    first: Option<Monotonic>,
    /// Lengths of the stretches between two cuts.
    stretches: Vec<Nanos>,
    /// When the last cut ended, while nothing is cut.
    resumed: Option<Monotonic>,
    /// When the last idle worker became busy.
    busy_since: Option<Monotonic>,
    /// How long no worker had been idle when each kept request arrived.
    busy: Busy,
}

impl CutSums {
    /// The index of this reason, which is added if it is new.
    fn reason(&mut self, why: CutReason, who: &str) -> usize {
        let known = (self.by_reason.iter()).position(|by| by.why == why && by.who == who);
        known.unwrap_or_else(|| {
            self.by_reason.push(CutsForReason {
                why,
                who: who.to_owned(),
                times: 0,
                length_ns: Nanos::ZERO,
                requests: 0,
            });
            self.by_reason.len() - 1
        })
    }

    /// A request is kept.
    fn keep(&mut self, t1: Monotonic, sojourn: Nanos) {
        let busy_since = self.busy_since.unwrap_or(t1);
        // if the server was busy before the cut began, the cut took nothing away
        let since = match self.resumed {
            Some(resumed) if busy_since < resumed => t1,
            _ => busy_since,
        };
        self.busy.add(sojourn, t1.saturating_since(since));
    }

    /// A stretch between two cuts ends here.
    fn stretch_ends(&mut self, at: Monotonic) {
        let lasted = self.resumed.take().map(|from| at.saturating_since(from));
        self.stretches.extend(lasted);
    }

    /// The share of requests that are missing above each percentile.
    ///
    /// A request that finds the server busy is kept only if nothing was cut since the busy period
    /// began. So the probability of being kept is known for each kept request, and with it how many
    /// such requests there were in all (Horvitz and Thompson 1952). `left` is the total length kept.
    fn unsettled(&self, left: Nanos) -> Vec<UnsettledAt> {
        let left = (left.get() as f64).max(1.0);
        let chance = |busy_ns: f64| {
            let first_parts = self.stretches.iter();
            let first_parts = first_parts.map(|length| busy_ns.min(length.get() as f64));
            1.0 - (first_parts.sum::<f64>() / left).min(1.0)
        };
        let cells = self.busy.with_chance(chance);
        let at = |q: f64| {
            let above = (1.0 - q) * self.busy.requests as f64;
            let (mut found, mut came) = (0.0, 0.0);
            for &(requests, chance) in cells.iter().rev() {
                found += requests;
                came += requests / chance;
                if found >= above {
                    break;
                }
            }
            let share = 1.0 - found / came;
            (above >= 1.0).then_some(UnsettledAt { q, share })
        };
        REPORTED_QUANTILES.into_iter().filter_map(at).collect()
    }
}

/// log2 of the number of cells for each doubling of the sojourn.
const BITS: u32 = 3;

/// How long the server had been busy when requests arrived, by their sojourn.
#[derive(Default)]
struct Busy {
    /// Requests and the sum of those times, in nanoseconds, by cell.
    cells: Vec<(u64, f64)>,
    requests: u64,
}

impl Busy {
    fn add(&mut self, sojourn: Nanos, busy: Nanos) {
        // the shortest ones share a cell
        let cell = cell(sojourn.get().max(1 << BITS), BITS);
        let (requests, busy_ns) = grow_to(&mut self.cells, cell);
        *requests += 1;
        *busy_ns += busy.get() as f64;
        self.requests += 1;
    }

    /// The number of requests in each cell, the shortest sojourns first, and the probability that one
    /// of them is kept; `chance` gives it for a length of the busy period.
    fn with_chance(&self, chance: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        /// If almost nothing is kept, the estimate is too uncertain to go lower.
        const LEAST: f64 = 0.01;
        let known = self.cells.iter().filter(|(requests, _)| *requests > 0);
        let with_chance = known.map(|&(requests, busy_ns)| {
            let requests = requests as f64;
            (requests, chance(busy_ns / requests).max(LEAST))
        });
        with_chance.collect()
    }
}

impl<'c> Cutter<'c> {
    /// `cuts` are in order of time. The ideal queue has `workers` workers, and each request takes
    /// `service_time`; without it, only the measured queue counts.
    pub fn new(
        cuts: &'c [Cut],
        workers: NonZeroU32,
        service_time: Option<Nanos>,
        measure_from: Monotonic,
    ) -> Self {
        Self {
            cuts,
            next: 0,
            workers,
            measure_from,
            leave: BinaryHeap::new(),
            ideal: service_time.map(|t| (IdealQueue::new(t, workers), t)),
            open: None,
            sums: CutSums::default(),
            last: None,
        }
    }

    /// What is cut of the requests of the next window, which ends at `upto`: stretches of T1.
    pub fn cut_in(&mut self, matched: &Matched, upto: Monotonic) -> Spans {
        let mut spans = Vec::new();
        for arrival in matched.arrivals() {
            let t6 = arrival.matched.map(|place| matched.requests.t6(place));
            let due = (arrival.matched).map_or(arrival.t1, |place| matched.requests.due(place));
            let measured = due >= self.measure_from;
            spans.extend(self.came(arrival.t1, t6, measured));
        }
        if let Some(open) = &mut self.open {
            spans.push(Span {
                from: open.shown_to.unwrap_or(open.from),
                to: upto,
            });
            open.shown_to = Some(upto);
        }
        spans.into()
    }

    /// The cuts for requests that arrived and left at these times, in order of arrival.
    pub fn spans(
        mut self,
        times: impl IntoIterator<Item = (Monotonic, Option<Monotonic>)>,
    ) -> Spans {
        let times = times.into_iter();
        let mut spans: Vec<Span> = times
            .filter_map(|(came, left)| self.came(came, left, came >= self.measure_from))
            .collect();
        spans.extend(self.open.map(|open| Span {
            from: open.from,
            to: Monotonic::MAX,
        }));
        spans.into()
    }

    /// A request arrives. Returns the cut that has ended before it, if one has.
    fn came(&mut self, t1: Monotonic, t6: Option<Monotonic>, measured: bool) -> Option<Span> {
        while self.leave.peek().is_some_and(|&Reverse(left)| left <= t1) {
            self.leave.pop();
        }
        let idle = self.leave.len() < self.workers.get() as usize;
        let since_boot = Nanos::new(t1.nanos_since_boot());
        // what the server has done of the warm-up, the ideal one has, too
        let begins = measured && self.sums.first.is_none();
        if let Some((queue, _)) = self.ideal.as_mut().filter(|_| begins) {
            queue.limit_to(since_boot, self.leave.len() as u64);
        }
        let ideal_idle =
            (self.ideal.as_mut()).is_none_or(|(queue, t)| queue.sojourn(since_boot) == *t);
        self.leave.extend(t6.map(Reverse));
        while let Some(cut) = self.cuts.get(self.next).filter(|cut| cut.from <= t1) {
            self.next += 1;
            self.begin(cut);
        }
        if measured {
            self.sums.first = self.sums.first.or(Some(t1));
        }
        self.sums.busy_since = if idle { Some(t1) } else { self.sums.busy_since };
        self.last = Some(t1);
        let mut over = None;
        if let Some(open) = &mut self.open {
            let during = t1 < open.to;
            open.measured.look(idle, during);
            open.ideal.look(ideal_idle, during);
            if during || !open.measured.over || !open.ideal.over {
                open.requests += u64::from(measured);
                return None;
            }
            over = self.close(t1);
        }
        if measured {
            let sojourn = t6.map_or(Nanos::MAX, |t6| t6.saturating_since(t1));
            self.sums.keep(t1, sojourn);
        }
        over
    }

    fn begin(&mut self, cut: &Cut) {
        self.sum(cut.from);
        let reason = self.sums.reason(cut.why, &cut.who);
        // a cut that begins during another extends it
        self.sums.stretch_ends(cut.from);
        let open = self.open.get_or_insert(Open {
            from: cut.from,
            to: cut.to,
            reason,
            summed_to: cut.from,
            measured: Effect::default(),
            ideal: Effect::default(),
            requests: 0,
            shown_to: None,
        });
        open.to = open.to.max(cut.to);
        open.reason = reason;
        open.measured.over = false;
        open.ideal.over = false;
        if cut.to >= self.measure_from {
            self.sums.by_reason[reason].times += 1;
        }
    }

    /// Sums what the open cut has cut until then for its reason.
    fn sum(&mut self, to: Monotonic) {
        let Some(open) = &mut self.open else {
            return;
        };
        let by = &mut self.sums.by_reason[open.reason];
        let length = to.saturating_since(open.summed_to.max(self.measure_from));
        by.length_ns += length;
        by.requests += open.requests;
        // one of the warm-up may have an effect on the measurement
        let is_of_measurement = length > Nanos::ZERO || open.requests > 0;
        by.times = by.times.max(u64::from(is_of_measurement));
        (open.requests, open.summed_to) = (0, open.summed_to.max(to));
    }

    fn close(&mut self, to: Monotonic) -> Option<Span> {
        self.sum(to);
        let open = self.open.take()?;
        self.sums.resumed = Some(to.max(self.measure_from));
        Some(Span {
            from: open.shown_to.unwrap_or(open.from),
            to,
        })
    }

    /// The summary after the last window; `None` if nothing was cut.
    pub fn finish(mut self) -> Option<CutSummary> {
        let last = self.last?;
        self.close(last);
        self.sums.stretch_ends(last);
        let length = last.saturating_since(self.sums.first?);
        let mut by_reason = std::mem::take(&mut self.sums.by_reason);
        by_reason.retain(|by| by.times > 0);
        by_reason.sort_by_key(|by| Reverse(by.length_ns));
        let length_ns: Nanos = by_reason.iter().map(|by| by.length_ns).sum();
        let left = length.saturating_sub(length_ns);
        (!by_reason.is_empty()).then(|| CutSummary {
            share: (length_ns.as_secs_f64() / length.as_secs_f64().max(1e-9)).min(1.0),
            length_ns,
            requests: by_reason.iter().map(|by| by.requests).sum(),
            unsettled: self.sums.unsettled(left),
            by_reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ns)
    }

    /// What is cut of requests that came and left at these times, if t is 10 ns.
    fn cut_of(
        cuts: &[(u64, u64)],
        workers: u32,
        requests: &[(u64, u64)],
    ) -> (Vec<(u64, u64)>, CutSummary) {
        let cut = |&(from, to): &(u64, u64)| Cut {
            from: at(from),
            to: at(to),
            why: CutReason::GeneratorStalled,
            who: "an interrupt".to_owned(),
        };
        let cuts: Vec<Cut> = cuts.iter().map(cut).collect();
        let workers = NonZeroU32::new(workers).unwrap();
        let mut cutter = Cutter::new(&cuts, workers, Some(Nanos::new(10)), at(0));
        let spans = (requests.iter())
            .filter_map(|&(came, left)| cutter.came(at(came), Some(at(left)), true))
            .map(|span| (span.from.nanos_since_boot(), span.to.nanos_since_boot()))
            .collect();
        (spans, cutter.finish().unwrap())
    }

    #[test]
    fn a_cut_lasts_until_a_request_finds_the_server_idle() {
        let requests = [
            (50, 60),
            // the server is idle though requests were due
            (110, 120),
            (190, 230),
            // sends are on time again, but the server is behind
            (205, 240),
            (235, 250),
            // the one before has just left
            (250, 260),
            (400, 410),
        ];
        let (spans, found) = cut_of(&[(100, 200)], 1, &requests);
        assert_eq!(spans, [(100, 250)]);
        assert_eq!((found.length_ns, found.requests), (Nanos::new(150), 4));
        assert_eq!(found.by_reason[0].times, 1);
        // of two workers one is idle when the first request is on time again
        let (spans, found) = cut_of(&[(100, 200)], 2, &requests);
        assert_eq!((spans, found.requests), (vec![(100, 205)], 2));
    }

    #[test]
    fn where_the_server_was_busy_throughout_a_cut_ends_with_the_last_late_send() {
        let requests = [(90, 400), (110, 410), (180, 420), (200, 430), (500, 510)];
        let (spans, found) = cut_of(&[(100, 200)], 1, &requests);
        assert_eq!((spans, found.requests), (vec![(100, 200)], 2));
    }

    #[test]
    fn a_cut_that_begins_during_another_extends_it() {
        let requests = [(50, 60), (110, 120), (160, 170), (250, 255), (300, 310)];
        let (spans, found) = cut_of(&[(100, 200), (150, 260)], 1, &requests);
        assert_eq!((spans, found.requests), (vec![(100, 300)], 3));
        assert_eq!(found.by_reason[0].times, 2);
    }

    /// A cut of the warm-up, which another one extends into the measurement: that one has it.
    #[test]
    fn a_cut_that_began_in_the_warm_up_counts_from_the_measurement_on() {
        let cut = |from, to, who: &str| Cut {
            from: at(from),
            to: at(to),
            why: CutReason::GeneratorStalled,
            who: who.to_owned(),
        };
        let cuts = [cut(100, 200, "a program"), cut(180, 400, "another")];
        let mut cutter = Cutter::new(&cuts, NonZeroU32::MIN, None, at(300));
        for (came, left) in [(50, 60), (110, 190), (185, 310), (305, 320), (350, 390)] {
            assert_eq!(cutter.came(at(came), Some(at(left)), came >= 300), None);
        }
        let found = cutter.finish().unwrap();
        assert_eq!((found.share, found.requests), (1.0, 2));
        assert_eq!(found.length_ns, Nanos::new(50));
        let whom = found.by_reason.iter().map(|by| (by.who.as_str(), by.times));
        assert_eq!(whom.collect::<Vec<_>>(), [("another", 1)]);
    }

    /// The client's figures have no ideal queue.
    #[test]
    fn a_server_with_several_workers_need_not_be_empty_at_the_end_of_a_cut() {
        let cut = Cut {
            from: at(100),
            to: at(200),
            why: CutReason::GeneratorStalled,
            who: "an interrupt".to_owned(),
        };
        // it was empty during the cut, and later one or two requests are always under way
        let later = (0..50_u64).map(|k| (205 + 10 * k, 220 + 10 * k));
        let requests = [(50, 60), (110, 120), (190, 230)].into_iter().chain(later);
        let until = |workers: u32| {
            let workers = NonZeroU32::new(workers).unwrap();
            let cutter = Cutter::new(std::slice::from_ref(&cut), workers, None, at(0));
            let times = requests.clone();
            let spans = cutter.spans(times.map(|(came, left)| (at(came), Some(at(left)))));
            [204, 206, 600].map(|ns| spans.contain(at(ns)))
        };
        assert_eq!(until(2), [true, false, false]);
        assert_eq!(until(1), [true; 3]);
    }

    #[test]
    fn a_cut_that_is_open_at_the_end_lasts_until_the_last_request() {
        let (spans, found) = cut_of(&[(100, 200)], 1, &[(50, 60), (110, 120), (150, 160)]);
        assert_eq!(spans, []);
        assert_eq!((found.length_ns, found.requests), (Nanos::new(50), 2));
        assert_eq!(found.share, 0.5);
    }
}
