//! t from the server's busy periods.
//!
//! When a response leaves and another request already waits at its socket, the server works on without a
//! pause until the next response leaves. What it does on its CPU meanwhile is what a request costs at the
//! peak, whatever the load is:
//!
//! t = a + s
//!
//! - a: the mean time of the server's threads on the CPU for each response in such a [group](super::groups),
//!   with nothing on top of them. Interrupts, other threads and recorded stalls are therefore left out;
//! - s: the time of the network's receive softirq, and of the interrupts that raised it, on the same CPU for a
//!   response and for a request that came. It is work that the server cannot avoid, and at the peak it runs on
//!   the same CPU. It counts for at most twice a: a flood of packets is not service.
//!
//! t is a mean, so that the arrival rate × t is the utilisation. What robustness it has comes from what is
//! recorded and left out. Stalls of the hypervisor that no canary noticed are in a: a few groups in which the
//! server's thread seems to run for 100 µs without any event are left out too, if they are rare. The interval
//! reaches to the mean with them, since they may be rare expensive requests.
//!
//! Groups belong to a CPU and not to a thread: where each connection has a thread of its own, no thread ever
//! finds a second request waiting. A wait within a request (for a disk, a lock, another server) takes no CPU
//! time and is not part of t.

use taillab_model::summary::BusyPeriods;
use taillab_model::{Monotonic, Nanos, student_975};

use super::departures;
use super::groups::{self, Group};
use crate::matched::Matched;
use crate::timeline::{CpuLine, NET_RX, Segment, Timeline, Top};

/// With fewer groups than this, t is not known well enough.
const FEWEST: usize = 200;

/// The number of blocks whose spread gives the interval.
const BLOCKS: usize = 20;

/// Silent groups are left out if they are at most this share of all.
const RARE: f64 = 0.005;

/// What the receive softirq may take, as a multiple of the server's own time.
const MOST_RECEIVE: f64 = 2.0;

/// t from the requests from `measure_from` on; `None` if too few requests had to wait, or if it is not
/// recorded who was on the CPUs.
pub fn measure(
    matched: &Matched,
    timeline: &Timeline,
    measure_from: Monotonic,
) -> Option<BusyPeriods> {
    if !timeline.seen().switches {
        return None;
    }
    let arrivals = received_at(matched);
    let departures = departures::by_cpu(matched, timeline, measure_from);
    let received: Vec<f64> = (timeline.cpus().iter())
        .map(|line| received_ns(line, measure_from) as f64)
        .collect();
    let all_received: f64 = received.iter().sum();
    let mut costs: Vec<Cost> = Vec::new();
    let lines = timeline.cpus().iter().zip(&departures).zip(&received);
    for ((line, departures), received) in lines {
        let receives = match all_received > 0.0 {
            true => received / all_received,
            false => 0.0,
        };
        let groups = groups::of_cpu(departures, &arrivals, timeline, line);
        costs.extend(groups.iter().map(|group| Cost::of(group, receives)));
    }
    costs.sort_unstable_by_key(|cost| cost.at);
    from_costs(costs)
}

/// When the requests were at their sockets, in order of time: T2, or T1 where that is not known.
fn received_at(matched: &Matched) -> Vec<Monotonic> {
    let t2 = |place: usize| matched.requests.stamps(place).t2;
    let received = matched.arrivals().map(|arrival| arrival.matched.and_then(t2).unwrap_or(arrival.t1));
    let mut received: Vec<Monotonic> = received.collect();
    received.sort_unstable();
    received
}

/// How long the receive softirq ran on a CPU, in nanoseconds.
fn received_ns(line: &CpuLine, measure_from: Monotonic) -> u64 {
    let is_receive = |segment: &Segment| segment.top == Top::Softirq { vector: NET_RX };
    let segments = line.segments_from(measure_from).filter(is_receive);
    segments.map(|segment| segment.length().get()).sum()
}

/// What a group cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    at: Monotonic,
    responses: f64,
    own_ns: f64,
    receive_ns: f64,
    /// Requests that this CPU received meanwhile.
    received: f64,
    silent: bool,
}

impl Cost {
    /// The CPU receives this share of the requests.
    fn of(group: &Group, receives: f64) -> Self {
        Self {
            at: group.to,
            responses: f64::from(group.responses),
            own_ns: group.own_ns as f64,
            receive_ns: group.receive_ns as f64,
            received: f64::from(group.arrivals) * receives,
            silent: group.silent,
        }
    }
}

/// Sums over groups.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    responses: f64,
    own_ns: f64,
    /// Squares and products, for the receive work by least squares.
    responses2: f64,
    received2: f64,
    both: f64,
    receive_by_responses: f64,
    receive_by_received: f64,
}

impl Sums {
    fn of<'a>(costs: impl IntoIterator<Item = &'a Cost>) -> Self {
        let mut sums = Self::default();
        for cost in costs {
            sums.responses += cost.responses;
            sums.own_ns += cost.own_ns;
            sums.responses2 += cost.responses * cost.responses;
            sums.received2 += cost.received * cost.received;
            sums.both += cost.responses * cost.received;
            sums.receive_by_responses += cost.responses * cost.receive_ns;
            sums.receive_by_received += cost.received * cost.receive_ns;
        }
        sums
    }

    /// a, in nanoseconds.
    fn own_ns(&self) -> f64 {
        self.own_ns / self.responses
    }

    /// s, in nanoseconds: the receive work of one response and of one received request, by least squares. Both
    /// cost some: on a virtual network the response is received on the CPU that sends it, and on any network
    /// the client acknowledges it.
    fn receive_ns(&self) -> f64 {
        let determinant = self.responses2 * self.received2 - self.both * self.both;
        // else each group received as many requests for each response, or none
        let is_apart = determinant > 1e-6 * self.responses2 * self.received2;
        let receive = match is_apart {
            true => {
                let response = self.receive_by_responses * self.received2
                    - self.receive_by_received * self.both;
                let received = self.receive_by_received * self.responses2
                    - self.receive_by_responses * self.both;
                (response + received) / determinant
            }
            false => self.receive_by_responses / self.responses2,
        };
        receive.clamp(0.0, MOST_RECEIVE * self.own_ns())
    }

    /// t, in nanoseconds.
    fn service_ns(&self) -> f64 {
        self.own_ns() + self.receive_ns()
    }
}

/// t from the costs of groups in order of time.
fn from_costs(mut costs: Vec<Cost>) -> Option<BusyPeriods> {
    let with_silent = Sums::of(&costs);
    let silent = costs.iter().filter(|cost| cost.silent).count();
    let are_rare = silent as f64 <= RARE * costs.len() as f64;
    let silent = if are_rare { silent } else { 0 };
    if silent > 0 {
        costs.retain(|cost| !cost.silent);
    }
    if costs.len() < FEWEST {
        return None;
    }
    let sums = Sums::of(&costs);
    let t = sums.service_ns();
    let half = half_width(&costs);
    // before the receive softirq, which the silence did not change
    let with_silent_ns = with_silent.own_ns() + sums.receive_ns();
    let nanos = |ns: f64| Nanos::new(ns.round().max(0.0) as u64);
    let found = BusyPeriods {
        service_time_ns: nanos(t),
        lo_ns: nanos(t - half),
        hi_ns: nanos((t + half).max(with_silent_ns)),
        receive_ns: nanos(sums.receive_ns()),
        seen: (costs.len() + silent) as u64,
        left_out: silent as u64,
    };
    (found.service_time_ns > Nanos::ZERO).then_some(found)
}

/// Half of the 95 % interval of t, in nanoseconds, from its spread over blocks of time. It includes a drift
/// of the machine's speed.
fn half_width(costs: &[Cost]) -> f64 {
    let blocks = costs.chunks(costs.len().div_ceil(BLOCKS));
    let of_blocks: Vec<f64> = blocks.map(|block| Sums::of(block).service_ns()).collect();
    let n = of_blocks.len() as f64;
    let mean = of_blocks.iter().sum::<f64>() / n;
    let squares: f64 = of_blocks.iter().map(|t| (t - mean).powi(2)).sum();
    let standard_error = (squares / (n - 1.0) / n).sqrt();
    student_975(of_blocks.len() - 1) * standard_error
}

/// Debug.
pub fn dump(matched: &Matched, timeline: &Timeline, measure_from: Monotonic) {
    let arrivals = received_at(matched);
    let departures = departures::by_cpu(matched, timeline, measure_from);
    for (line, departures) in timeline.cpus().iter().zip(&departures) {
        let groups = groups::of_cpu(departures, &arrivals, timeline, line);
        println!("cpu {} departures {} groups {}", line.cpu(), departures.len(), groups.len());
        if groups.is_empty() { continue; }
        let mut sizes = std::collections::BTreeMap::<u32, (u64, u64, u64, u64)>::new();
        let mut own: Vec<u64> = Vec::new();
        let mut wall: Vec<u64> = Vec::new();
        for g in &groups {
            let e = sizes.entry(g.responses).or_default();
            e.0 += 1; e.1 += g.own_ns; e.2 += g.receive_ns; e.3 += u64::from(g.arrivals);
            own.push(g.own_ns / u64::from(g.responses));
            wall.push(g.to.saturating_since(g.from).get() / u64::from(g.responses));
        }
        own.sort_unstable(); wall.sort_unstable();
        let q = |v: &Vec<u64>| [0.05, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999].map(|q| v[(q * v.len() as f64) as usize]);
        println!("own/response {:?}\nwall/response {:?}", q(&own), q(&wall));
        for (n, (count, own, rx, arr)) in sizes.iter().take(12) {
            println!("size {n}: {count} groups, own {} per response, receive {} per arrival", own / count / u64::from(*n), rx.checked_div(*arr).unwrap_or(0));
        }
        for n in 0..5 {
            let of: Vec<_> = groups.iter().filter(|g| g.arrivals == n && g.responses == 1).collect();
            let c = of.len().max(1) as u64;
            println!("arrivals {n}: {} groups, own {}, receive {}", of.len(), of.iter().map(|g| g.own_ns).sum::<u64>() / c, of.iter().map(|g| g.receive_ns).sum::<u64>() / c);
        }
        let total: u64 = received_ns(line, measure_from);
        println!("all NET_RX / departures {}", total / departures.len() as u64);
        let silent = groups.iter().filter(|g| g.silent).count();
        println!("silent {silent}");
    }
}
