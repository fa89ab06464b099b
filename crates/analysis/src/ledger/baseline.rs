//! The baseline: what is usual for this server. It separates work from delay.

use taillab_model::Nanos;
use taillab_model::summary::BusyPeriods;

use crate::matched::Matched;
use crate::speed::Paces;
use crate::statistics::middle;
use crate::timeline::{NET_RX, Segment, Timeline, Top, WorkerLine};

/// A median is taken over at most this many requests.
const SAMPLE: usize = 200_000;

/// The least number of services with a page fault, and of those without, to estimate what one costs.
const MIN_FAULTED: usize = 20;

/// What is usual on a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    /// ρ: the part of t that the receive softirq may take on the worker's CPU.
    pub(super) receive_ns: u64,
    /// The rest of t, for the service itself.
    pub(super) service_ns: u64,
    /// Median of T2 − T1.
    pub(super) stack_ns: u64,
    /// What a page fault adds to a service; 0 where that is not known.
    pub(super) fault_ns: u64,
    /// The service is a sleep on a timer (virtual workers).
    pub(super) virtual_workers: bool,
    /// How long the server's work takes when nothing disturbs it.
    pub(super) paces: Paces,
}

impl Baseline {
    /// ρ: the part of t that is receiving, in nanoseconds.
    pub(crate) const fn receive_ns(&self) -> u64 {
        self.receive_ns
    }

    /// The baseline from a recording, or from its first window. With `recorded`, t is divided as in the busy
    /// periods; without it, a request has the median time of a service, and the rest of t is the softirq's.
    pub fn of(
        matched: &Matched,
        timeline: &Timeline,
        service_time: Nanos,
        recorded: Option<&BusyPeriods>,
    ) -> Self {
        let requests = &matched.requests;
        let step = (requests.len() / SAMPLE).max(1);
        let mut services = Vec::new();
        let mut stack = Vec::new();
        for place in (0..requests.len()).step_by(step) {
            let stamps = requests.stamps(place);
            let [t2, t3, ..] = stamps.middle();
            services.extend(t3.map(|t3| stamps.t6.saturating_since(t3).get()));
            stack.extend(t2.map(|t2| t2.saturating_since(stamps.t1).get()));
        }
        let t = service_time.get();
        let receive_ns = match recorded {
            Some(recorded) => receive_part_of(t, recorded),
            None if receives_on_the_workers_cpus(timeline) => {
                t.saturating_sub(middle(&mut services).unwrap_or(t))
            }
            None => 0,
        };
        Self {
            receive_ns,
            service_ns: t - receive_ns,
            stack_ns: middle(&mut stack).unwrap_or(0),
            fault_ns: fault_cost(matched, timeline),
            virtual_workers: sleeps_to_serve(matched, timeline),
            paces: Paces::usual(matched),
        }
    }
}

/// The receive work in a t that may be another one than was recorded.
fn receive_part_of(t: u64, recorded: &BusyPeriods) -> u64 {
    let share = recorded.receive_ns.as_secs_f64() / recorded.service_time_ns.as_secs_f64();
    (t as f64 * share.clamp(0.0, 1.0)).round() as u64
}

/// Whether a CPU ran a receive softirq in its first 1,000 segments, or more than 100 in its first 100,000.
fn receives_on_the_workers_cpus(timeline: &Timeline) -> bool {
    let received = |segment: &Segment| segment.top == Top::Softirq { vector: NET_RX };
    timeline.cpus().iter().any(|line| {
        let early = line
            .segments()
            .take(1_000)
            .any(|segment| received(&segment));
        early || line.segments().take(100_000).filter(received).count() > 100
    })
}

/// Whether the workers slept on a timer at least once for every two requests.
fn sleeps_to_serve(matched: &Matched, timeline: &Timeline) -> bool {
    let sleeps = |worker: &WorkerLine| {
        let spans = worker.spans().filter(|span| span.state.is_timer());
        spans.count()
    };
    let sleeping: usize = timeline.workers().iter().map(sleeps).sum();
    let requests = 0..matched.requests.len();
    let asked = match matched.slices.are_used() {
        true => requests.filter(|place| matched.is_asked(*place)).count(),
        false => requests.len(),
    };
    sleeping * 2 >= asked.max(1)
}

/// The median service with exactly one page fault minus the median without; 0 if there are too few of
/// either.
fn fault_cost(matched: &Matched, timeline: &Timeline) -> u64 {
    if !timeline.seen().faults {
        return 0;
    }
    let mut faults: Vec<(u32, u64)> = Vec::new();
    for worker in timeline.workers() {
        let of_worker = worker.faults();
        faults.extend(of_worker.map(|at| (worker.tid(), at.nanos_since_boot())));
    }
    faults.sort_unstable();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for place in 0..matched.requests.len() {
        let stamps = matched.requests.stamps(place);
        let Some(t3) = stamps.t3 else {
            continue;
        };
        let worker = matched.workers[place];
        let from = (worker, t3.nanos_since_boot());
        let first = faults.partition_point(|fault| *fault < from);
        let until = (worker, stamps.t6.nanos_since_boot());
        let inside = faults[first..].iter().take_while(|f| **f <= until).take(2);
        let service = stamps.t6.saturating_since(t3).get();
        match inside.count() {
            0 if without.len() < SAMPLE => without.push(service),
            1 => with.push(service),
            _ => {}
        }
    }
    if with.len() < MIN_FAULTED || without.len() < MIN_FAULTED {
        return 0;
    }
    let (with, without) = (middle(&mut with), middle(&mut without));
    with.unwrap_or(0).saturating_sub(without.unwrap_or(0))
}
