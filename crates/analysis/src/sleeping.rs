//! How often workers fall asleep for want of work and are woken, and what the requests wait for it.
//!
//! A worker that sleeps costs twice: its CPU the way into a sleep and out of it ([`stays`]), and the request that
//! wakes it the time until it runs. Both are counted from the timeline and the ledger's accounts, without t.

mod stays;

use std::collections::BTreeMap;

use taillab_model::explanation::{Cause, Sleeping};
use taillab_model::histogram::{HISTOGRAM_BITS, cell};
use taillab_model::{Histogram, Monotonic, Nanos, Tid, quantile_rank};

use self::stays::{OwnTime, Stays};
use crate::id_map::grow_to;
use crate::ledger::{Entry, Labels};
use crate::matched::Matched;
use crate::stages::cells_around;
use crate::timeline::{Sleep, Timeline, WorkerState};

/// The requests of a histogram's cell.
#[derive(Clone, Copy, Debug, Default)]
struct CellSums {
    requests: u64,
    sojourn_ns: u64,
    /// The part of it in which CPUs left idle states and workers were woken.
    waking_ns: u64,
}

/// The requests of a worker in a window.
#[derive(Clone, Debug, Default)]
struct WorkerRequests {
    /// T2 of those of the measurement, and T2 to T3.
    waits: Vec<(Monotonic, Nanos)>,
    /// T6 of all.
    answered: Vec<Monotonic>,
}

/// Collects sleeps and wake-ups while the windows of a recording come.
#[derive(Clone, Debug)]
pub(crate) struct Sleepers {
    measure_from: Monotonic,
    /// Wake-ups up to here have been counted.
    upto: Monotonic,
    wakes: u64,
    /// T2 to T3 of requests that found their worker asleep.
    asleep: Histogram,
    /// The same of the others, as far as it is known.
    awake: Histogram,
    stays: Stays,
    cells: Vec<CellSums>,
}

impl Sleepers {
    pub(crate) fn new(measure_from: Monotonic) -> Self {
        Self {
            measure_from,
            upto: measure_from,
            wakes: 0,
            asleep: Histogram::default(),
            awake: Histogram::default(),
            stays: Stays::default(),
            cells: Vec::new(),
        }
    }

    /// Adds what the workers of a window did until `upto`, or until the timeline ends.
    pub(crate) fn add(&mut self, matched: &Matched, timeline: &Timeline, upto: Monotonic) {
        let upto = upto.min(timeline.to());
        if !timeline.seen().switches {
            return;
        }
        let mut by_worker: BTreeMap<Tid, WorkerRequests> = BTreeMap::new();
        for (place, &tid) in matched.workers.iter().enumerate() {
            if tid == 0 {
                continue;
            }
            let stamps = matched.requests.stamps(place);
            let of = by_worker.entry(tid).or_default();
            of.answered.push(stamps.t6);
            let is_sample =
                matched.is_measured(place, self.measure_from) && matched.is_asked(place);
            if let Some((t2, t3)) = stamps.t2.zip(stamps.t3).filter(|_| is_sample) {
                of.waits.push((t2, t3.saturating_since(t2)));
            }
        }
        for (tid, mut of) in by_worker {
            of.waits.sort_unstable();
            of.answered.sort_unstable();
            self.add_worker((tid, &of), timeline, upto, |at| matched.sees(at));
        }
        self.upto = self.upto.max(upto);
    }

    /// Adds what a worker did until `upto`; `sees` says whether an instant is part of the sample.
    fn add_worker(
        &mut self,
        (tid, of): (Tid, &WorkerRequests),
        timeline: &Timeline,
        upto: Monotonic,
        sees: impl Fn(Monotonic) -> bool,
    ) {
        let Some(line) = timeline.worker(tid) else {
            return;
        };
        let first = of.waits.first().map_or(self.upto, |(t2, _)| *t2);
        let mut waits = of.waits.iter().peekable();
        let mut own = OwnTime::of(tid, timeline);
        // since when it is awake, and for how long it ran itself
        let mut stay: Option<(Monotonic, u64)> = None;
        let mut slept = false;
        for span in line.spans_from(first.min(self.upto)) {
            if span.from > upto {
                break;
            }
            if slept && is_awake(span.state) && span.from > self.upto && sees(span.from) {
                self.wakes += 1;
                stay = Some((span.from, 0));
            }
            slept = is_asleep(span.state);
            match (span.state, &mut stay) {
                (WorkerState::OnCore { cpu }, Some((_, own_ns))) => {
                    *own_ns += own.between(cpu, span.from, span.to);
                }
                (WorkerState::Unknown, _) => stay = None,
                _ => {}
            }
            if let Some((from, own_ns)) = stay.take_if(|_| slept)
                && sees(span.from)
            {
                let until = |at: Monotonic| of.answered.partition_point(|t6| *t6 <= at);
                self.stays
                    .add((until(span.from) - until(from)) as u64, own_ns);
            }
            let waits_for = slept || matches!(span.state, WorkerState::Woken { .. });
            while let Some((t2, wait)) = waits.next_if(|(t2, _)| *t2 < span.to) {
                if *t2 >= span.from && span.state != WorkerState::Unknown {
                    match waits_for {
                        true => self.asleep.record(*wait),
                        false => self.awake.record(*wait),
                    }
                }
            }
        }
    }

    /// Adds the account of a request.
    pub(crate) fn account(&mut self, entry: &Entry<'_>, labels: &Labels) {
        if !entry.asked {
            return;
        }
        let is_waking = |label| matches!(labels.cause(label), Cause::Wakeup | Cause::IdleExit);
        let parts = entry.parts.iter().filter(|(label, _)| is_waking(*label));
        let sums = grow_to(&mut self.cells, cell(entry.sojourn_ns, HISTOGRAM_BITS));
        sums.requests += 1;
        sums.sojourn_ns += entry.sojourn_ns;
        sums.waking_ns += parts.map(|(_, ns)| ns).sum::<u64>();
    }

    /// The result for a measurement of this length; `None` if no worker was seen to be woken. `unanswered` is
    /// the number of requests that nobody answered.
    pub(crate) fn finish(&self, length: Nanos, unanswered: u64) -> Option<Sleeping> {
        let requests = self.asleep.count() + self.awake.count();
        if self.wakes == 0 || requests == 0 || length == Nanos::ZERO {
            return None;
        }
        let of_cells: Vec<u64> = self.cells.iter().map(|cell| cell.requests).collect();
        let mut around = CellSums::default();
        for sums in &self.cells[cells_around(&of_cells, unanswered, 0.5)?] {
            around.requests += sums.requests;
            around.sojourn_ns += sums.sojourn_ns;
            around.waking_ns += sums.waking_ns;
        }
        let (cpu_ns_each, cpu_share) = self.stays.cost().unzip();
        Some(Sleeping {
            wakes_per_s: self.wakes as f64 / length.as_secs_f64(),
            wakes_per_request: self.wakes as f64 / requests as f64,
            found_asleep_share: self.asleep.count() as f64 / requests as f64,
            wait_asleep_ns: median(&self.asleep),
            wait_awake_ns: median(&self.awake),
            at_p50_ns: around.waking_ns as f64 / around.requests.max(1) as f64,
            share_of_p50: around.waking_ns as f64 / around.sojourn_ns.max(1) as f64,
            cpu_ns_each,
            cpu_share,
        })
    }
}

fn median(of: &Histogram) -> Option<Nanos> {
    let middle = of.ranked().at(quantile_rank(of.count(), 0.5))?;
    Some(middle.middle)
}

/// Whether it sleeps for want of work, as far as that is known.
const fn is_asleep(state: WorkerState) -> bool {
    matches!(state, WorkerState::Asleep(Sleep::Work | Sleep::Unknown))
}

const fn is_awake(state: WorkerState) -> bool {
    !matches!(state, WorkerState::Asleep(_) | WorkerState::Unknown)
}

#[cfg(test)]
mod tests {
    use taillab_model::{Event, EventKind, Stamps};

    use super::*;
    use crate::timeline::tests::{SERVER, of_server, switch};

    const US: u64 = 1_000;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * US)
    }

    /// Requests that come at these times in microseconds, reach their worker with the second ones, and leave
    /// 5 µs later.
    fn requests(of: &[(u64, u64)]) -> Matched {
        let mut matched = Matched::default();
        for &(came, on_core) in of {
            let middle = [Some(at(came)), Some(at(on_core)), None, None];
            let stamps = Stamps::new(at(came), middle, at(on_core + 5));
            matched.requests.push_stamps(stamps);
            matched.workers.push(SERVER);
        }
        matched
    }

    fn sleepers(from_us: u64, windows: &[(&Matched, &Timeline, u64)]) -> Sleepers {
        let mut sleepers = Sleepers::new(at(from_us));
        for (matched, timeline, upto) in windows {
            sleepers.add(matched, timeline, at(*upto));
        }
        sleepers
    }

    /// The server is woken at 100 and 200 µs, and on its CPU 10 µs later, for 30 µs.
    fn twice_awake() -> Timeline {
        const EPOLL_WAIT: Option<Option<u16>> = Some(Some(232));
        let mut events = vec![switch(10 * US, SERVER, 0, EPOLL_WAIT)];
        for woken in [100, 200] {
            events.push(Event {
                at: at(woken),
                cpu: 0,
                kind: EventKind::Woken { tid: SERVER, by: 0 },
            });
            events.push(switch((woken + 10) * US, 0, SERVER, None));
            events.push(switch((woken + 40) * US, SERVER, 0, EPOLL_WAIT));
        }
        events.push(switch(300 * US, 0, 8, None));
        Timeline::build(events, &of_server())
    }

    #[test]
    fn requests_that_find_their_worker_asleep_are_told_from_those_that_find_it_awake() {
        let timeline = twice_awake();
        let matched = requests(&[(99, 110), (105, 115), (120, 122), (199, 210)]);
        let found = sleepers(0, &[(&matched, &timeline, 400)]);
        assert_eq!(found.wakes, 2);
        assert_eq!((found.asleep.count(), found.awake.count()), (3, 1));
        let ends = (found.asleep.least(), found.asleep.greatest());
        assert_eq!(
            ends,
            (Some(Nanos::from_micros(10)), Some(Nanos::from_micros(11)))
        );
        assert_eq!(found.awake.least(), Some(Nanos::from_micros(2)));
    }

    /// The requests are answered 5 µs after they reach the CPU, on which the server stays for 30 µs.
    #[test]
    fn a_stay_has_the_requests_that_were_answered_in_it() {
        let timeline = twice_awake();
        let matched = requests(&[(99, 110), (105, 115), (199, 210)]);
        let mut found = sleepers(0, &[(&matched, &timeline, 400)]).stays;
        let mut expected = Stays::default();
        expected.add(2, 30 * US);
        expected.add(1, 30 * US);
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        // those whose requests are not known tell nothing
        found = sleepers(0, &[(&requests(&[(199, 210)]), &timeline, 400)]).stays;
        expected = Stays::default();
        expected.add(1, 30 * US);
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }

    #[test]
    fn a_wake_up_is_counted_in_one_window_and_only_in_the_measurement() {
        let timeline = twice_awake();
        let (first, second) = (requests(&[(99, 110)]), requests(&[(199, 210)]));
        let both = sleepers(0, &[(&first, &timeline, 150), (&second, &timeline, 400)]);
        assert_eq!((both.wakes, both.asleep.count()), (2, 2));
        let late = sleepers(150, &[(&second, &timeline, 400)]);
        assert_eq!((late.wakes, late.asleep.count()), (1, 1));
    }

    #[test]
    fn the_cost_at_the_median_is_that_of_the_requests_around_it() {
        let matched = requests(&[(99, 110)]);
        let mut sleepers = sleepers(0, &[(&matched, &twice_awake(), 400)]);
        let cell = |requests, waking_ns| CellSums {
            requests,
            sojourn_ns: requests * 50,
            waking_ns,
        };
        sleepers.cells = vec![cell(400, 0), cell(200, 200 * 20), cell(400, 9_999)];
        let found = sleepers.finish(Nanos::from_millis(1), 0).unwrap();
        assert_eq!((found.at_p50_ns, found.share_of_p50), (20.0, 0.4));
        assert_eq!((found.wakes_per_s, found.wakes_per_request), (2_000.0, 2.0));
        assert_eq!(found.wait_asleep_ns, Some(Nanos::from_micros(11)));
        assert_eq!(found.wait_awake_ns, None);
        assert_eq!(sleepers.finish(Nanos::ZERO, 0), None);
    }
}
