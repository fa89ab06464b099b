//! Overloads: stretches in which requests arrived faster than they were served.
//!
//! The number of requests in the server is followed in cells of a tenth of a second. The least number
//! in a cell is the standing queue: a burst that is worked off within the cell leaves none. While it
//! does not fall below the number of workers, the server is busy without a pause. Such a stretch is an
//! overload if the queue grew for a second or more, and by more than chance explains for a load
//! below the capacity.

use std::time::Duration;

use taillab_model::summary::{CpuTaken, Overload};
use taillab_model::{Monotonic, Nanos};

use crate::coarsening::{Coarsen, Coarsening};
use crate::crowd::{Crowd, Step};
use crate::timeline::{NET_RX, Top};
use crate::window::Window;

/// The initial width of a cell.
const CELL: Nanos = Nanos::from_millis(100);

/// The cells of an hour; beyond that, they are joined.
const MOST_CELLS: usize = 36_000;

/// A queue that grows for a shorter time is a burst.
const LEAST: Duration = Duration::from_secs(1);

/// The queue must grow by at least this many standard deviations of a Poisson number.
const BEYOND_CHANCE: f64 = 4.0;

/// The queue must grow by at least this many requests for each worker.
const LEAST_GROWTH: u64 = 10;

/// What happened in a cell of time.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    came: u64,
    left: u64,
    /// The least number of requests in the server; `None` where nothing happened.
    least: Option<u64>,
    /// What the CPUs did, if there was a standing queue.
    cpu: CpuTime,
}

/// Nanoseconds of the server's CPUs.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTime {
    server: u64,
    others: u64,
    interrupts: u64,
    stalled: u64,
    all: u64,
}

impl CpuTime {
    fn add(&mut self, more: Self) {
        self.server += more.server;
        self.others += more.others;
        self.interrupts += more.interrupts;
        self.stalled += more.stalled;
        self.all += more.all;
    }
}

impl Coarsen for Cell {
    fn add(&mut self, next: Self) {
        self.came += next.came;
        self.left += next.left;
        self.least = match (self.least, next.least) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.cpu.add(next.cpu);
    }
}

/// Follows the queue of a recording while its windows come.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    crowd: Crowd,
    cells: Coarsening<Cell>,
    /// T1 of the first request, where the cells begin.
    begin: Option<Monotonic>,
    /// What the CPUs did before this has been added.
    watched: Monotonic,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            crowd: Crowd::default(),
            cells: Coarsening::new(CELL.get(), MOST_CELLS),
            begin: None,
            watched: Monotonic::from_nanos_since_boot(0),
        }
    }
}

impl Queue {
    /// Takes the next window of a server with `workers` workers.
    pub(crate) fn add(&mut self, window: &Window, workers: u32) {
        let matched = &window.matched;
        if matched.requests.is_empty() {
            return;
        }
        let begin = *self.begin.get_or_insert_with(|| matched.requests.t1(0));
        let last = self.cells.cells().len().saturating_sub(1);
        let from_ns = last as u64 * self.cells.width();
        let mut crowd = std::mem::take(&mut self.crowd);
        crowd.walk(matched, |at, inside, step| {
            self.count(begin, at, inside as u64, step);
        });
        self.crowd = crowd;
        // cells may have been joined on the way
        let first = (from_ns / self.cells.width()) as usize;
        // what the CPUs did is needed only where there may be an overload
        let stood: Vec<bool> = (self.cells.cells().iter().skip(first))
            .map(|cell| cell.least.is_some_and(|least| least >= u64::from(workers)))
            .collect();
        for run in runs(&stood) {
            self.watch(window, begin, first + run.start..first + run.end);
        }
        let end_ns = self.cells.cells().len() as u64 * self.cells.width();
        self.watched = window.upto.min(begin + Nanos::new(end_ns));
    }

    fn count(&mut self, begin: Monotonic, at: Monotonic, inside: u64, step: Step) {
        let at_ns = at.saturating_since(begin).get();
        // in cells without an event since the last one, the number in the server stayed the same
        loop {
            let next_ns = self.cells.cells().len() as u64 * self.cells.width();
            if next_ns > at_ns {
                break;
            }
            self.cells.cell(next_ns).0.least = Some(inside);
        }
        let cell = self.cells.cell(at_ns).0;
        let after = match step {
            Step::Came => {
                cell.came += 1;
                inside + 1
            }
            Step::Left => {
                cell.left += 1;
                inside - 1
            }
        };
        let least = inside.min(after);
        cell.least = Some(cell.least.map_or(least, |known| known.min(least)));
    }

    /// Adds what the CPUs did in these cells until the window ends, as far as it was recorded. Neighbouring
    /// windows share a cell, and their timelines overlap.
    fn watch(&mut self, window: &Window, begin: Monotonic, cells: std::ops::Range<usize>) {
        let (timeline, sliced) = (&window.timeline, window.matched.slices.are_used());
        let width = self.cells.width();
        let at = |cell: usize| begin + Nanos::new(cell as u64 * width);
        let from = at(cells.start).max(self.watched);
        let to = at(cells.end).min(timeline.to()).min(window.upto);
        for line in timeline.cpus() {
            let segments = line.segments_from(from).take_while(|s| s.from < to);
            for segment in segments.filter(|s| !sliced || s.top != Top::Blind) {
                let (mut now, end) = (segment.from.max(from), segment.to.min(to));
                while now < end {
                    let place = now.saturating_since(begin).get();
                    let (cell, cell_ends) = self.cells.cell(place);
                    let until = end.min(begin + Nanos::new(cell_ends));
                    let ns = until.saturating_since(now).get();
                    let is_server = timeline.worker(segment.thread).is_some();
                    match segment.top {
                        Top::Stall => cell.cpu.stalled += ns,
                        Top::Softirq { vector: NET_RX } => cell.cpu.server += ns,
                        Top::Softirq { .. } | Top::Interrupt(_) => cell.cpu.interrupts += ns,
                        _ if is_server => cell.cpu.server += ns,
                        Top::Idle { .. } => {}
                        _ if segment.thread != 0 => cell.cpu.others += ns,
                        _ => {}
                    }
                    cell.cpu.all += ns;
                    now = until;
                }
            }
        }
    }

    /// The worst overload; `from` is where the measurement began. One that ended before is none of it.
    pub(crate) fn finish(
        mut self,
        workers: u32,
        service_time: Nanos,
        from: Monotonic,
    ) -> Option<Overload> {
        let begin = self.begin?;
        let crowd = std::mem::take(&mut self.crowd);
        crowd.finish(|at, inside, step| self.count(begin, at, inside as u64, step));
        let cells = self.cells.cells();
        let width = self.cells.width();
        let least = |cell: &Cell| cell.least.unwrap_or(0);
        let stood: Vec<bool> = (cells.iter())
            .map(|cell| least(cell) >= u64::from(workers))
            .collect();
        let worst = runs(&stood)
            .filter_map(|run| {
                // the first of equal queues
                let peak = run.clone().rev().max_by_key(|cell| least(&cells[*cell]))?;
                // the queue began to grow in the previous cell
                let first = run.start.saturating_sub(1);
                let grew = first..peak + 1;
                let length = Nanos::new((grew.len() as u64 - 1) * width);
                let came: u64 = cells[grew.clone()].iter().map(|cell| cell.came).sum();
                let growth = least(&cells[peak]).saturating_sub(least(&cells[first]));
                let by_chance = BEYOND_CHANCE * (came as f64).sqrt();
                let enough =
                    growth as f64 > by_chance.max((LEAST_GROWTH * u64::from(workers)) as f64);
                let long = length.as_secs_f64() >= LEAST.as_secs_f64();
                let is_measured = begin + Nanos::new(run.end as u64 * width) > from;
                (enough && long && is_measured).then_some((growth, run, grew))
            })
            .max_by_key(|(growth, ..)| *growth);
        let (_, run, grew) = worst?;
        let at = |cell: usize| {
            let at = begin + Nanos::new(cell as u64 * width);
            at.saturating_since(from)
        };
        let mut sum = Cell::default();
        for place in grew.clone() {
            let mut cell = cells[place];
            if !stood[place] {
                // it was watched before a later window showed that its queue did not stand
                cell.cpu = CpuTime::default();
            }
            sum.add(cell);
        }
        let seconds = Nanos::new(grew.len() as u64 * width).as_secs_f64();
        let share = |ns: u64| ns as f64 / sum.cpu.all.max(1) as f64;
        Some(Overload {
            from_ns: at(run.start),
            worst_ns: at(grew.end),
            to_ns: (run.end < cells.len()).then(|| at(run.end)),
            waiting: least(&cells[grew.end - 1]),
            came_per_s: sum.came as f64 / seconds,
            done_per_s: sum.left as f64 / seconds,
            capacity_per_s: f64::from(workers) / service_time.as_secs_f64(),
            service_time_ns: service_time,
            cpu: (sum.cpu.all > 0).then(|| CpuTaken {
                others_share: share(sum.cpu.others),
                interrupts_share: share(sum.cpu.interrupts),
                stalled_share: share(sum.cpu.stalled),
                busy_ns_per_request: sum.cpu.server as f64 / sum.left.max(1) as f64,
            }),
        })
    }
}

/// The ranges in which all flags are true.
fn runs(flags: &[bool]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    flags.chunk_by(|a, b| a == b).filter_map(move |run| {
        let range = at..at + run.len();
        at = range.end;
        run[0].then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use taillab_model::{
        Event, EventKind, RecordingContext, Request, RequestKey, Stamps, ThreadName, Tid,
    };

    use super::*;
    use crate::matched::Matched;
    use crate::timeline::Timeline;

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(5_000_000_000 + us * 1_000)
    }

    /// One worker that needs 100 µs, or `slow_us` between two instants; requests every `gap_us`.
    fn found(gap_us: u64, slow_us: u64, slow: std::ops::Range<u64>) -> Option<Overload> {
        let requests = requests(gap_us, slow_us, slow);
        // two windows give the same result as one
        in_windows(requests, &Timeline::default(), &[4_321_000])
    }

    fn requests(gap_us: u64, slow_us: u64, slow: std::ops::Range<u64>) -> Vec<Request> {
        let (mut free, mut requests) = (0, Vec::new());
        for i in 0..10_000_000 / gap_us {
            let t1 = i * gap_us;
            let begin = free.max(t1);
            free = begin + if slow.contains(&begin) { slow_us } else { 100 };
            requests.push(Stamps::new(at(t1), [None; 4], at(free)).into());
        }
        requests
    }

    /// The same in windows that end at these times.
    fn in_windows(
        requests: Vec<Request>,
        timeline: &Timeline,
        ends_us: &[u64],
    ) -> Option<Overload> {
        queue(requests, timeline, ends_us).finish(1, Nanos::from_micros(100), at(0))
    }

    fn queue(requests: Vec<Request>, timeline: &Timeline, ends_us: &[u64]) -> Queue {
        let mut matched = Matched {
            keys: vec![RequestKey::default(); requests.len()],
            workers: vec![7; requests.len()],
            requests: requests.into_iter().collect(),
            ..Matched::default()
        };
        let mut queue = Queue::default();
        let mut from = Monotonic::from_nanos_since_boot(0);
        let ends = ends_us.iter().map(|us| at(*us));
        for upto in ends.chain([Monotonic::MAX]) {
            let later = matched.split_off(upto);
            let window = Window {
                matched: std::mem::replace(&mut matched, later),
                timeline: timeline.clone(),
                from,
                upto,
            };
            queue.add(&window, 1);
            from = upto;
        }
        queue
    }

    #[test]
    fn an_overload_that_ends_with_the_warm_up_is_none() {
        // its queue is gone after 6.5 s
        let requests = requests(150, 200, 2_000_000..5_000_000);
        let queue = queue(requests, &Timeline::default(), &[]);
        let found = |from_us| {
            let t = Nanos::from_micros(100);
            queue.clone().finish(1, t, at(from_us))
        };
        assert!(found(6_000_000).is_some_and(|overload| overload.from_ns == Nanos::ZERO));
        assert_eq!(found(7_000_000), None);
    }

    #[test]
    fn cpu_time_is_counted_once_however_many_windows_there_are() {
        let thread = |tid: Tid, server| ThreadName {
            tid,
            pid: tid,
            comm: String::new(),
            server,
            real_time: None,
        };
        let context = RecordingContext {
            threads: vec![thread(7, true), thread(8, false)],
            ..RecordingContext::default()
        };
        let switch = |us, prev, next| Event {
            at: at(us),
            cpu: 0,
            kind: EventKind::Switched {
                prev,
                next,
                preempted: true,
                asleep: None,
            },
        };
        // another thread has a fifth of the CPU
        let events = (0..1_100).flat_map(|i| {
            let us = i * 10_000;
            [switch(us, 8, 7), switch(us + 8_000, 7, 8)]
        });
        let timeline = Timeline::build(events, &context);
        let found = |ends_us: &[u64]| {
            let requests = requests(150, 200, 2_000_000..5_000_000);
            in_windows(requests, &timeline, ends_us)
        };
        let one = found(&[]);
        let cpu = one.and_then(|overload| overload.cpu).unwrap();
        assert!((cpu.others_share - 0.2).abs() < 0.01, "{cpu:?}");
        let ends: Vec<u64> = (1..100).map(|i| i * 133_000).collect();
        assert_eq!(found(&ends), one);
    }

    #[test]
    fn a_queue_that_grows_for_seconds_is_an_overload() {
        // from 2 s on for 3 s it needs 200 µs, and a request comes every 150 µs
        let overload = found(150, 200, 2_000_000..5_000_000).unwrap();
        let near = |ns: Nanos, ms: u64| {
            let off = ns.as_secs_f64() - Nanos::from_millis(ms).as_secs_f64();
            assert!(off.abs() < 0.21, "{ns} is not about {ms} ms: {overload:?}");
        };
        near(overload.from_ns, 2_000);
        near(overload.worst_ns, 5_000);
        assert!(overload.to_ns.is_some_and(|to| to > overload.worst_ns));
        let rates = (overload.came_per_s, overload.done_per_s);
        assert!(
            (rates.0 - 6_667.0).abs() < 100.0 && (rates.1 - 5_000.0).abs() < 200.0,
            "{rates:?}"
        );
        assert_eq!(overload.capacity_per_s, 10_000.0);
        assert!((4_500..5_200).contains(&overload.waiting), "{overload:?}");
    }

    #[test]
    fn more_than_the_capacity_lasts_until_nothing_comes() {
        let overload = found(80, 100, 0..0).unwrap();
        // it needs another 2.5 s for what came in 10 s
        let to = overload.to_ns.unwrap().as_secs_f64();
        assert!((12.4..12.6).contains(&to), "{overload:?}");
        assert!(
            (9.9..10.2).contains(&overload.worst_ns.as_secs_f64()),
            "{overload:?}"
        );
    }

    #[test]
    fn a_busy_server_and_a_short_stall_are_none() {
        assert_eq!(found(101, 100, 0..0), None);
        // half a second without service makes a queue that takes two seconds to work off
        assert_eq!(found(125, 500_000, 3_000_000..3_000_100), None);
        assert_eq!(Queue::default().finish(1, Nanos::new(1), at(0)), None);
    }
}
