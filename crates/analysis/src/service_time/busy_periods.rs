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
//!   the same CPU. It counts for at most twice a: a flood of packets is not service. What a response costs of
//!   it comes after T6: the next request waits for it, the request itself does not. Only groups in which the
//!   server had its CPU all the time tell s: while another program has it, what comes is received in bursts, each
//!   packet of which takes less than half of what one takes that comes by itself. (a is that of all groups: a long
//!   service is disturbed more often than a short one.)
//!
//! t is a mean, so that the arrival rate × t is the utilisation. What robustness it has comes from what is
//! recorded and left out. Stalls of the hypervisor that no canary noticed are in a: a few groups in which the
//! server's thread seems to run for 100 µs without any event are left out too, if they are rare. The interval
//! reaches to the mean with them, since they may be rare expensive requests.
//!
//! Groups belong to a CPU and not to a thread: where each connection has a thread of its own, no thread ever
//! finds a second request waiting. A wait within a request (for a disk, a lock, another server) takes no CPU
//! time and is not part of t.

use taillab_model::interval::half_width_of_mean;
use taillab_model::summary::{BusyPeriods, BusyPeriodsOfCpu};
use taillab_model::{Monotonic, Nanos};

use super::departures;
use super::groups::{self, Group, Queued, Unpaired};
use crate::matched::Matched;
use crate::timeline::Timeline;

/// With fewer groups than this, t is not known well enough.
const FEWEST: usize = 200;

/// The number of blocks whose spread gives the interval.
const BLOCKS: usize = 20;

/// Silent groups are left out if they are at most this share of all.
const RARE: f64 = 0.005;

/// What the receive softirq may take, as a multiple of the server's own time.
const MOST_RECEIVE: f64 = 2.0;

/// t from the busy periods of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyPeriodCosts {
    /// Of all CPUs together; `None` if too few requests had to wait, or if it is not recorded who was on the CPUs.
    pub pooled: Option<BusyPeriods>,
    /// Of each CPU by itself, where more than one show it; else empty.
    pub by_cpu: Vec<BusyPeriodsOfCpu>,
}

/// t from the requests from `measure_from` on.
pub fn measure(matched: &Matched, timeline: &Timeline, measure_from: Monotonic) -> BusyPeriodCosts {
    let by_cpu = costs_by_cpu(matched, timeline, measure_from);
    let mut costs: Vec<Cost> = by_cpu
        .iter()
        .flat_map(|(_, costs)| costs)
        .copied()
        .collect();
    costs.sort_unstable_by_key(|cost| cost.at);
    let each = by_cpu.into_iter().filter_map(|(cpu, costs)| {
        let seen = from_costs(costs)?;
        Some(BusyPeriodsOfCpu { cpu, seen })
    });
    let each: Vec<BusyPeriodsOfCpu> = each.collect();
    BusyPeriodCosts {
        pooled: from_costs(costs),
        by_cpu: if each.len() > 1 { each } else { Vec::new() },
    }
}

/// The costs of the groups of each CPU, in order of time.
fn costs_by_cpu(
    matched: &Matched,
    timeline: &Timeline,
    measure_from: Monotonic,
) -> Vec<(u16, Vec<Cost>)> {
    if !timeline.seen().switches {
        return Vec::new();
    }
    let queued = Queued::of(matched, timeline);
    let departures = departures::by_cpu(matched, timeline, measure_from);
    let unpaired = Unpaired::of(matched, &departures);
    let lines = timeline.cpus().iter().zip(&departures);
    let costs = lines.map(|(line, departures)| {
        let groups = groups::of_cpu(departures, (&queued, &unpaired), timeline, line);
        (line.cpu(), groups.iter().map(Cost::of).collect())
    });
    costs.collect()
}

/// What a group cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    at: Monotonic,
    responses: f64,
    own_ns: f64,
    receive_ns: f64,
    received: f64,
    /// `received` may be wrong.
    received_elsewhere: bool,
    /// Others had the CPU for a while.
    disturbed: bool,
    silent: bool,
}

impl Cost {
    /// Whether it says what the server spends on receiving while it works.
    const fn tells_receive(&self) -> bool {
        !self.received_elsewhere && !self.disturbed
    }

    fn of(group: &Group) -> Self {
        Self {
            at: group.to,
            responses: f64::from(group.responses),
            own_ns: group.own_ns as f64,
            receive_ns: group.receive_ns as f64,
            received: group.received,
            received_elsewhere: group.received_elsewhere,
            disturbed: group.disturbed,
            silent: group.silent,
        }
    }
}

/// Sums over groups.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSums {
    responses: f64,
    own_ns: f64,
    /// Squares and products, each ÷ the number of packets, for the receive work by least squares.
    responses2: f64,
    received2: f64,
    both: f64,
    receive_by_responses: f64,
    receive_by_received: f64,
}

impl GroupSums {
    fn of<'a>(costs: impl IntoIterator<Item = &'a Cost>) -> Self {
        let mut sums = Self::default();
        for cost in costs {
            sums.responses += cost.responses;
            sums.own_ns += cost.own_ns;
            if !cost.tells_receive() {
                continue;
            }
            let packets = cost.responses + cost.received;
            let (responses, received) = (cost.responses / packets, cost.received / packets);
            sums.responses2 += responses * cost.responses;
            sums.received2 += received * cost.received;
            sums.both += responses * cost.received;
            sums.receive_by_responses += responses * cost.receive_ns;
            sums.receive_by_received += received * cost.receive_ns;
        }
        sums
    }

    /// a, in nanoseconds.
    fn own_ns(&self) -> f64 {
        self.own_ns / self.responses
    }

    /// s: the receive work of one response and of one received request, by least squares. Both cost some: on a
    /// virtual network the response is received on the CPU that sends it, and on any network the client
    /// acknowledges it. A group counts by 1 ÷ its packets. So both costs add up to all the receive work of the groups,
    /// and one with a burst of sixty requests does not outweigh thousands of others.
    fn receive(&self) -> ReceiveWork {
        let determinant = self.responses2 * self.received2 - self.both * self.both;
        // else each group received as many requests for each response, or none
        let is_apart = determinant > 1e-6 * self.responses2 * self.received2;
        let (sum, of_response) = if is_apart {
            let of_response = (self.receive_by_responses * self.received2
                - self.receive_by_received * self.both)
                / determinant;
            let of_received = (self.receive_by_received * self.responses2
                - self.receive_by_responses * self.both)
                / determinant;
            (of_response + of_received, of_response)
        } else {
            let sum = self.receive_by_responses / self.responses2;
            // which of the two it was is only known where other CPUs receive the requests
            (sum, if self.received2 > 0.0 { 0.0 } else { sum })
        };
        let sum_ns = sum.clamp(0.0, MOST_RECEIVE * self.own_ns());
        ReceiveWork {
            sum_ns,
            // where no group tells it, the sum is not a number, which no limit of `clamp` may be
            of_response_ns: of_response.max(0.0).min(sum_ns),
        }
    }

    /// t, in nanoseconds.
    fn service_ns(&self) -> f64 {
        self.own_ns() + self.receive().sum_ns
    }
}

/// The work of the receive softirq for each request, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct ReceiveWork {
    /// For a request and its response.
    sum_ns: f64,
    /// For the response alone.
    of_response_ns: f64,
}

/// t from the costs of groups in order of time.
fn from_costs(mut costs: Vec<Cost>) -> Option<BusyPeriods> {
    let with_silent = GroupSums::of(&costs);
    let silent = costs.iter().filter(|cost| cost.silent).count();
    let are_rare = silent as f64 <= RARE * costs.len() as f64;
    let silent = if are_rare { silent } else { 0 };
    if silent > 0 {
        costs.retain(|cost| !cost.silent);
    }
    if costs.len() < FEWEST {
        return None;
    }
    if costs.iter().filter(|cost| cost.tells_receive()).count() < FEWEST {
        costs.iter_mut().for_each(|cost| cost.disturbed = false);
    }
    let sums = GroupSums::of(&costs);
    let (t, receive) = (sums.service_ns(), sums.receive());
    let half = half_width(&costs);
    // before the receive softirq, which the silence did not change
    let with_silent_ns = with_silent.own_ns() + receive.sum_ns;
    let nanos = |ns: f64| Nanos::new(ns.round().max(0.0) as u64);
    let found = BusyPeriods {
        service_time_ns: nanos(t),
        lo_ns: nanos(t - half),
        hi_ns: nanos((t + half).max(with_silent_ns)),
        receive_ns: nanos(receive.sum_ns),
        after_response_ns: nanos(receive.of_response_ns),
        seen: (costs.len() + silent) as u64,
        left_out: silent as u64,
    };
    (found.service_time_ns > Nanos::ZERO).then_some(found)
}

/// Half of the 95 % interval of t, in nanoseconds, from its spread over blocks of time. It includes a drift
/// of the machine's speed.
fn half_width(costs: &[Cost]) -> f64 {
    let blocks = costs.chunks(costs.len().div_ceil(BLOCKS));
    let of_blocks: Vec<f64> = blocks
        .map(|block| GroupSums::of(block).service_ns())
        // others may have had the CPU all the time
        .filter(|t| t.is_finite())
        .collect();
    let (mean, half) = half_width_of_mean(&of_blocks);
    if half.is_finite() { half } else { mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others had the CPU at the end of a recording, for longer than a block of time.
    #[test]
    fn a_stretch_in_which_no_group_tells_what_receiving_costs_is_left_out() {
        let cost = |place: u64| Cost {
            at: Monotonic::from_nanos_since_boot(1_000_000 * place),
            responses: 2.0,
            own_ns: 20_000.0,
            receive_ns: 4_000.0,
            received: 2.0,
            received_elsewhere: false,
            disturbed: place >= 800,
            silent: false,
        };
        let found = from_costs((0..1_000).map(cost).collect()).unwrap();
        assert_eq!(found.service_time_ns, Nanos::from_micros(12));
        assert_eq!(found.lo_ns, found.hi_ns);
    }
}
