//! `order` is charged to those whom later arrivals overtook, for no longer than that lasted, and never for times in which
//! nothing of the server could run.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use taillab_analysis::Analysis;
use taillab_model::explanation::Cause;
use taillab_model::{Event, EventKind, Tid};

use super::kernel::{IPI, Order, Plan, RECEIVE, Traffic, WORKER, What};
use super::parts::whole;

/// What the ledger says of a request.
#[derive(Clone, Copy, Debug, Default)]
struct Charged {
    order_ns: u64,
    is_overtaken: bool,
}

/// How a request left.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// When it would have left in the order of arrival: with as many before it.
    due_ns: u64,
    t6_ns: u64,
    /// How many places later it left than that.
    places_later: usize,
    /// What its CPU received meanwhile. Of that, what held it up has its part.
    received_ns: u64,
    cpu: u16,
}

/// By their places in the order of arrival.
fn charged(plan: &Plan, events: &[Event]) -> Vec<Charged> {
    let context = plan.context();
    let window = Arc::new(whole(events, plan));
    let mut found = vec![Charged::default(); window.matched.requests.len()];
    Analysis::new(&context, super::options(plan)).push(&window, |entry, labels| {
        let order = entry.parts.iter();
        let order = order.filter(|(label, _)| labels.cause(*label) == Cause::Order);
        found[entry.place] = Charged {
            order_ns: order.map(|(_, ns)| ns).sum(),
            is_overtaken: entry.overtaken_by.is_some(),
        };
    });
    found
}

fn left(traffic: &Traffic) -> Vec<Left> {
    let cpu_of = |place: usize| traffic.truth[place].key.connection as u16 - 40_000;
    let mut of_cpu: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for place in 0..traffic.truth.len() {
        of_cpu.entry(cpu_of(place)).or_default().push(place);
    }
    let mut found = vec![None; traffic.truth.len()];
    for (cpu, arrived) in of_cpu {
        let mut leaving: Vec<(u64, usize)> = (arrived.iter().enumerate())
            .map(|(arrival, &place)| (traffic.truth[place].t6, arrival))
            .collect();
        leaving.sort_unstable();
        for (departure, &(t6_ns, arrival)) in leaving.iter().enumerate() {
            let later = arrived[arrival..].iter();
            let came = later.take_while(|&&place| traffic.truth[place].t1 < t6_ns);
            found[arrived[arrival]] = Some(Left {
                due_ns: leaving[arrival].0,
                t6_ns,
                received_ns: came.count() as u64 * (RECEIVE + IPI),
                places_later: departure.saturating_sub(arrival),
                cpu,
            });
        }
    }
    found.into_iter().flatten().collect()
}

/// When a worker was taken off its CPU, which then idled: from when to when, by CPU.
fn held_back(events: &[Event]) -> Vec<(u16, u64, u64)> {
    let worker = |cpu: u16| WORKER + Tid::from(cpu);
    let mut since = BTreeMap::new();
    let mut found = Vec::new();
    for event in events {
        let at = event.at.nanos_since_boot();
        match event.kind {
            EventKind::Switched {
                prev,
                next: 0,
                preempted: true,
                ..
            } if prev == worker(event.cpu) => {
                since.insert(event.cpu, at);
            }
            EventKind::Switched { next, .. } if next == worker(event.cpu) => {
                let from = since.remove(&event.cpu);
                found.extend(from.map(|from| (event.cpu, from, at)));
            }
            _ => {}
        }
    }
    found
}

/// Checks the account of each request against how it left.
fn check(plan: &Plan) -> Result<(), TestCaseError> {
    let traffic = plan.run();
    let (found, truth) = (charged(plan, &traffic.events), left(&traffic));
    prop_assert_eq!(found.len(), truth.len());
    let stopped = held_back(&traffic.events);
    for (place, (charged, left)) in found.iter().zip(&truth).enumerate() {
        let case = format!("request {place}: {charged:?} {left:?}");
        match charged.order_ns {
            // it was overtaken for no time at all
            0 => prop_assert!(left.places_later < 2, "{case}"),
            _ => prop_assert!(charged.is_overtaken && left.places_later > 0, "{case}"),
        }
        let late_ns = left.t6_ns.saturating_sub(left.due_ns);
        let overlap = |&(cpu, from, to): &(u16, u64, u64)| {
            let (from, to) = (from.max(left.due_ns), to.min(left.t6_ns));
            let is_here = cpu == left.cpu;
            to.saturating_sub(from) * u64::from(is_here)
        };
        let stopped_ns: u64 = stopped.iter().map(overlap).sum();
        let most_ns = late_ns.saturating_sub(stopped_ns) + left.received_ns;
        prop_assert!(
            charged.order_ns <= most_ns,
            "{case}, which was late for {late_ns} ns and stopped for {stopped_ns} of them"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn those_who_were_overtaken_have_it_and_nobody_else(
        seed in 0..1_000_u64,
        gap in 17_000.0_f64..40_000.0,
        order in prop::sample::select(vec![Order::Fifo, Order::Lifo, Order::Any(3), Order::Any(20)]),
        two: bool,
        quota: bool,
        others: bool,
    ) {
        let mut disturbances = Vec::new();
        if quota {
            disturbances.push((What::HeldBack, 30_000_000, 5_000_000));
        }
        if others {
            disturbances.push((What::Thread, 5_000_000, 400_000));
        }
        let plan = Plan {
            seed,
            requests: 2_500,
            gaps: vec![gap; 1 + usize::from(two)],
            disturbances,
            order,
            real_time: quota,
            ..Plan::default()
        };
        check(&plan)?;
    }
}

/// Nobody is overtaken in a queue that is served first come, first served, whatever stops the server.
#[test]
fn a_stop_of_the_server_makes_no_order() {
    for what in [
        What::HeldBack,
        What::Stall(true),
        What::HeldBackInACrowd(true),
    ] {
        let plan = Plan {
            gaps: vec![20_000.0],
            disturbances: vec![(what, 50_000_000, 5_000_000)],
            real_time: what == What::HeldBack,
            ..Plan::default()
        };
        let found = charged(&plan, &plan.run().events);
        let order_ns: u64 = found.iter().map(|charged| charged.order_ns).sum();
        assert_eq!(order_ns, 0, "{what:?}");
        assert!(
            found.iter().all(|charged| !charged.is_overtaken),
            "{what:?}"
        );
    }
}
