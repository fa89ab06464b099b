//! The service time of a live server, from the recording itself.
//!
//! t is the cost of a request on its core: 1 ÷ the peak throughput of one core. If the server cannot be
//! driven to its peak, the cost is added up instead:
//!
//! t = (S + N) ÷ n
//!
//! - n: requests of the measurement whose worker is known;
//! - S: the time that the workers were on a core for these requests, with nothing on top of them. That
//!   is the request's service [max(T3, the worker's T6 before it), T6], and the time from its T6 until
//!   the worker goes to sleep or serves the next request. The latter counts for at most as long as the
//!   service took, and not at all for a worker that never sleeps: polling is not counted;
//! - N: the time of the network's receive softirq on the CPUs on which these workers ran, since at the
//!   peak it runs on the same core. For each CPU it is limited to twice S: a flood of packets is not
//!   service.
//!
//! A live server is busier per request than at its peak: caches are cold, and each wake-up serves fewer
//! requests. So this overestimates t; see [`busy_time`](crate::service_time::busy_time) for how it is used.

use taillab_model::{Monotonic, Nanos};

use super::line::{FAR, Segment, Segments, Timeline, WorkerLine, ns};
use super::state::{Top, WorkerState};
use crate::matched::Matched;

/// `NET_RX_SOFTIRQ` of the kernel.
pub(crate) const NET_RX: u8 = 3;

/// t from the busy time of the workers, for requests from `measure_from` on, in each of `count` stretches of
/// time with the same number of responses, in order; each is rounded to the nearest nanosecond. Stretches
/// without known time on a core are left out.
pub fn busy_stretches(
    matched: &Matched,
    timeline: &Timeline,
    measure_from: Monotonic,
    count: usize,
) -> Vec<Nanos> {
    // worker's place, request
    let mut served: Vec<(u32, u32)> = (0..matched.requests.len())
        .filter(|&place| matched.is_measured(place, measure_from) && matched.is_asked(place))
        .filter_map(|place| {
            let worker = timeline.places.get(&matched.workers[place])?;
            Some((*worker as u32, place as u32))
        })
        .collect();
    let mut stretches = Stretches::new(matched, timeline, &served, count);
    served.sort_by_key(|&(worker, place)| (worker, matched.requests.t6(place as usize)));
    for of_worker in served.chunk_by(|a, b| a.0 == b.0) {
        let line = &timeline.workers[of_worker[0].0 as usize];
        let polls = line.never_sleeps(measure_from, timeline.to());
        for &(_, place) in of_worker {
            let stretch = stretches.ending(matched.requests.t6(place as usize));
            stretches.sums[stretch].requests += 1;
        }
        let intervals = intervals(matched, of_worker, polls);
        add_services(timeline, line, of_worker, &intervals, |place, cpu, ns| {
            let stretch = stretches.ending(matched.requests.t6(place as usize));
            stretches.sums[stretch].on_cpu[cpu].0 += ns;
        });
    }
    for (cpu, line) in timeline.cpus().iter().enumerate() {
        let received = |segment: &Segment| {
            segment.top == Top::Softirq { vector: NET_RX }
                && segment.from >= measure_from
                && matched.sees(segment.from)
        };
        for segment in line.segments_from(measure_from).filter(received) {
            let stretch = stretches.ending(segment.from);
            if let Some(sums) = stretches.sums.get_mut(stretch) {
                sums.on_cpu[cpu].1 += segment.length().get();
            }
        }
    }
    stretches.sums.iter().filter_map(Sums::cost).collect()
}

/// Stretches of time, each with the same number of responses.
struct Stretches {
    /// T6 of the last request of each.
    ends: Vec<Monotonic>,
    sums: Vec<Sums>,
}

/// Sums over a stretch.
#[derive(Clone, Debug, Default)]
struct Sums {
    requests: u64,
    /// The workers' and the receive softirq's nanoseconds on each CPU.
    on_cpu: Vec<(u64, u64)>,
}

impl Stretches {
    fn new(matched: &Matched, timeline: &Timeline, served: &[(u32, u32)], count: usize) -> Self {
        let t6 = |&(_, place): &(u32, u32)| matched.requests.t6(place as usize);
        let mut all: Vec<Monotonic> = served.iter().map(t6).collect();
        all.sort_unstable();
        let count = count.min(all.len());
        let none = Sums {
            requests: 0,
            on_cpu: vec![(0, 0); timeline.cpus.len()],
        };
        Self {
            ends: (1..=count)
                .map(|i| all[i * all.len() / count - 1])
                .collect(),
            sums: vec![none; count],
        }
    }

    /// The stretch in which `at` lies; after the last one, the number of stretches.
    fn ending(&self, at: Monotonic) -> usize {
        self.ends.partition_point(|end| *end < at)
    }
}

impl Sums {
    /// The cost of a request; `None` if no time on a core is known.
    fn cost(&self) -> Option<Nanos> {
        let on_cpu = self.on_cpu.iter();
        let busy_ns: u64 = on_cpu
            .map(|&(workers_ns, received_ns)| workers_ns + received_ns.min(2 * workers_ns))
            .sum();
        let per_request = (busy_ns + self.requests / 2).checked_div(self.requests)?;
        (per_request > 0).then_some(Nanos::new(per_request))
    }
}

/// From when to when a worker was busy with each of these requests, which are in order of T6. For a worker
/// that `polls`, time after T6 does not count.
fn intervals(matched: &Matched, served: &[(u32, u32)], polls: bool) -> Vec<(u64, u64)> {
    let mut intervals: Vec<(u64, u64)> = Vec::with_capacity(served.len());
    let mut free = 0;
    for (i, &(_, place)) in served.iter().enumerate() {
        let stamps = matched.requests.stamps(place as usize);
        let [t2, t3, t4, _] = stamps.middle();
        let from = t3.or(t4).or(t2).unwrap_or(stamps.t1);
        let (from, to) = (ns(from).max(free), ns(stamps.t6));
        let from = from.min(to);
        let after = if polls { to } else { to + (to - from) };
        let next = served.get(i + 1).map_or(u64::MAX, |&(_, next)| {
            let stamps = matched.requests.stamps(next as usize);
            ns(stamps.t3.unwrap_or(stamps.t1)).max(to)
        });
        intervals.push((from, after.min(next)));
        free = to;
    }
    intervals
}

/// Adds the worker's time on each CPU in the intervals of these requests, which are in order of T6. `add`
/// gets the request, the place of the CPU, and nanoseconds.
fn add_services(
    timeline: &Timeline,
    line: &WorkerLine,
    served: &[(u32, u32)],
    intervals: &[(u64, u64)],
    mut add: impl FnMut(u32, usize, u64),
) {
    // only the time on its core with nothing on top of it
    let mut segments: Vec<Option<Segments<'_>>> = vec![None; timeline.cpus.len()];
    let mut next = 0;
    for span in line.spans() {
        let WorkerState::OnCore { cpu } = span.state else {
            continue;
        };
        let (from, to) = (ns(span.from), ns(span.to));
        while intervals.get(next).is_some_and(|&(_, end)| end <= from) {
            next += 1;
        }
        let Ok(place) = timeline.cpus.binary_search_by_key(&cpu, |line| line.cpu()) else {
            continue;
        };
        let of_cpu = &timeline.cpus[place];
        let segments = segments[place].get_or_insert_with(|| of_cpu.segments());
        let reached = intervals[next..].iter().zip(&served[next..]);
        for (&(begin, end), &(_, request)) in reached.take_while(|(i, _)| i.0 < to) {
            let (begin, end) = (begin.max(from), end.min(to));
            let mut passed = 0;
            while segments.peek().is_some_and(|s| ns(s.to) <= begin) {
                segments.next();
                passed += 1;
                if passed == FAR {
                    *segments = of_cpu.segments_from(Monotonic::from_nanos_since_boot(begin));
                }
            }
            let mut ahead = segments.clone();
            while let Some(segment) = ahead.next()
                && ns(segment.from) < end
            {
                if segment.top == Top::Nothing && segment.thread == line.tid() {
                    let both = ns(segment.to).min(end) - ns(segment.from).max(begin);
                    add(request, place, both);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::{Event, Stamps, Tid};

    use super::*;
    use crate::timeline::tests::{SERVER, of_server, switch};

    fn at(us: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(us * 1_000)
    }

    fn switched(us: u64, prev: Tid, next: Tid) -> Event {
        switch(us * 1_000, prev, next, None)
    }

    /// Services of 5 and 7 µs, and a thousand stays of another thread between them.
    #[test]
    fn a_thread_that_comes_back_after_many_others_is_found() {
        let mut events = vec![switched(10, 0, SERVER), switched(15, SERVER, 0)];
        let others = (100..2_100).map(|us| match us % 2 {
            0 => switched(us, 0, 8),
            _ => switched(us, 8, 0),
        });
        events.extend(others);
        events.extend([switched(3_000, 0, SERVER), switched(3_007, SERVER, 0)]);
        let mut matched = Matched::default();
        for (came, answered) in [(10, 15), (3_000, 3_007)] {
            let stamps = Stamps::new(at(came), [None; 4], at(answered));
            matched.requests.push_stamps(stamps);
            matched.workers.push(SERVER);
        }
        let timeline = Timeline::build(events, &of_server());
        let costs = busy_stretches(&matched, &timeline, at(0), 1);
        assert_eq!(costs, [Nanos::from_micros(6)]);
    }
}
