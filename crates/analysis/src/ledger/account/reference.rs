//! Reference implementation of the account of a request, without precomputed sums: it visits every direct
//! and every inherited delay one by one. `account::draw_up` must give the same result.

use super::{
    Case, FixedLabels, OwnWork, ServingWorker, beside, gone_elsewhere, keeps_its_cause, pass_on,
    put_parts, unclear,
};
use crate::ledger::label::{Label, Labels};
use crate::ledger::lengths::{Lengths, take_ideal};
use crate::ledger::queues::LateStart;
use crate::ledger::requests::OpenRequest;

/// What the sojourn was spent on, and the excess.
#[derive(Default)]
pub(in crate::ledger) struct Expected {
    parts: Lengths,
    pub(in crate::ledger) excess: Vec<(Label, u64)>,
}

impl Expected {
    pub(in crate::ledger) fn parts(&self) -> &[(Label, u64)] {
        &self.parts
    }
}

pub(in crate::ledger) fn draw_up(
    case: &Case<'_>,
    fixed: &FixedLabels,
    labels: &mut Labels,
) -> Expected {
    let mut expected = Expected::default();
    let (parts, excess) = (&mut expected.parts, &mut expected.excess);
    for &(label, ns) in &case.request.stack {
        parts.add(label, ns);
    }
    let received_ns = match &case.served_by {
        Some(served_by) => with_worker(case, served_by, fixed, labels, parts),
        None => without_worker(case, fixed, parts),
    };
    if let Some((label, ns)) = case.request.unsent {
        parts.add(label, ns);
    }
    if case.resent {
        let again = parts.take(&fixed.explained_by_resending());
        parts.add(fixed.retransmit, again);
    }
    let received = (fixed.received, received_ns);
    take_ideal(parts, received, case.ideal_ns, fixed.work, excess);
    expected
}

/// Returns the length of receive softirqs within ρ.
fn with_worker(
    case: &Case<'_>,
    served_by: &ServingWorker<'_>,
    fixed: &FixedLabels,
    labels: &mut Labels,
    parts: &mut Lengths,
) -> u64 {
    let request = case.request;
    let now = served_by.worker.history.end(served_by.cpus);
    let met = now.since(request.begin);
    let total = request.t6_ns - request.queued_ns;
    let delays = met.delay_ns.min(total);
    let mut left = total - delays;
    let received = met.received_ns.min(left);
    left -= received;
    let used = request.used_ns.min(left);
    left -= used;
    // T5 to T6 is sending; if the service takes too long, the excess is assumed to be at its end
    let sending = request
        .t5_ns()
        .map_or(0, |t5_ns| request.t6_ns.saturating_sub(t5_ns));
    let transmit = sending.saturating_sub(request.over_ns).min(used);

    // the rest is work for others; once the request is late, what its worker has of that is order
    let waited = request.common.map_or(0, |common| common.order_ns);
    let order = request.late.as_ref().map_or(waited.min(left), |late| {
        let since = now.since(late.since);
        let rest = (request.t6_ns - late.since_ns).saturating_sub(since.delay_ns);
        let own = rest.saturating_sub(since.received_ns);
        let own = own.saturating_sub(served_by.behind_since(late.behind_ns));
        (waited + own).min(left)
    });
    left -= order;
    let mut queue = left.min(case.ideal_queue_ns(received));
    left -= queue;
    let behind = left.min(served_by.behind_since(request.behind_ns));
    left -= behind;
    let mut waits: Vec<(Label, u64)> = Vec::new();
    let (inherited, imbalance) = earlier(request, served_by, left, &mut waits);
    left -= imbalance;
    let more = (left - inherited).min(request.waits.ideal_ns - queue);
    queue += more;
    left -= more;
    let others = beside(served_by, labels, behind, imbalance);
    waits.extend(others.map(|(label, ns, _)| (label, ns)));
    waits.extend(unclear(request, left - inherited, fixed).map(|(label, ns, _)| (label, ns)));
    let late = request.order(labels).zip(request.late.as_ref());
    waits.extend(late.map(|(label, _)| (label, order)));

    // what held it up: directly, by inheritance, and by order
    let mut held = Lengths::default();
    let given = held_directly(
        request,
        (served_by, &*labels),
        now.delay_ns,
        late,
        &mut held,
    );
    held.add(fixed.unexplained, delays.saturating_sub(given));
    for &(label, ns) in &waits {
        held.add(label, ns);
    }
    if served_by.has_others && served_by.common.is_none() {
        let more = request.waits.imbalance_ns - imbalance;
        gone_elsewhere(request, served_by, more, labels, &mut held);
    }
    let own = OwnWork {
        service_ns: used - transmit,
        transmit_ns: transmit,
        received_ns: received - pass_on(&mut held, received, total),
    };
    put_parts(parts, &held, fixed, queue, &own);
    own.received_ns
}

/// What held up those before it, and that it waited while another worker was idle.
fn earlier(
    request: &OpenRequest,
    served_by: &ServingWorker<'_>,
    left: u64,
    waits: &mut Vec<(Label, u64)>,
) -> (u64, u64) {
    if let Some((queue, wait)) = served_by.common.zip(request.common.as_ref()) {
        let mut lost = Lengths::default();
        let inherited = queue.inherit(wait, left, &mut lost, |history, from, to, lost| {
            history.visit(from, to, |label, ns| lost.add(label, ns));
        });
        waits.extend(lost.iter());
        return (
            inherited,
            (left - inherited).min(request.waits.imbalance_ns),
        );
    }
    let imbalance = left.min(request.waits.imbalance_ns);
    (
        inherit(request, served_by, left - imbalance, waits),
        imbalance,
    )
}

fn without_worker(case: &Case<'_>, fixed: &FixedLabels, parts: &mut Lengths) -> u64 {
    let mut left = case.request.t6_ns - case.request.queued_ns;
    let service_ns = left.min(case.service_ns);
    left -= service_ns;
    let queue = left.min(case.request.waits.ideal_ns);
    left -= queue;
    parts.add(fixed.service, service_ns);
    parts.add(fixed.queue, queue);
    parts.add(fixed.unobserved, left);
    0
}

/// Adds the delays between T2 and T6 to `held` and returns their sum; `to` is the history position of T6.
/// Once the request is `late`, all delays except those of its own service, and those that keep their cause,
/// count as order.
fn held_directly(
    request: &OpenRequest,
    (served_by, labels): (&ServingWorker<'_>, &Labels),
    to: u64,
    late: Option<(Label, &LateStart)>,
    held: &mut Lengths,
) -> u64 {
    let (history, cpus) = (&served_by.worker.history, served_by.cpus);
    let until = late.map_or(to, |(_, late)| late.since.delay_ns);
    let mut given = history.visit(cpus, request.begin.delay_ns, until, &mut |label, ns| {
        held.add(label, ns);
    });
    if let Some((order, late)) = late {
        late.own.iter().for_each(|&(label, ns)| held.add(label, ns));
        let mut own: u64 = late.own.iter().map(|own| own.1).sum();
        history.visit(cpus, until, to, &mut |label, ns| {
            if keeps_its_cause(labels.cause(label)) {
                held.add(label, ns);
                own += ns;
            }
        });
        held.add(order, to - until - own);
        given += to - until;
    }
    given
}

/// Inherits the last delays before T2, up to `wanted` nanoseconds. Returns how many were found.
fn inherit(
    request: &OpenRequest,
    served_by: &ServingWorker<'_>,
    wanted: u64,
    waits: &mut Vec<(Label, u64)>,
) -> u64 {
    if wanted == 0 {
        return 0;
    }
    let mut visit = |label, ns| waits.push((label, ns));
    let (to, inheritance) = (request.begin.delay_ns, request.inheritance);
    let from = to.saturating_sub(wanted).max(inheritance.from);
    let own = to - from;
    let mut given = 0;
    // the oldest comes first
    if own < wanted
        && let Some((k, end, floor)) = inheritance.cpu
    {
        let from = end.saturating_sub(wanted - own).max(floor);
        given += served_by.cpus[k].visit(from, end, &mut visit);
    }
    let history = &served_by.worker.history;
    given += history.visit(served_by.cpus, from, to, &mut visit);
    given.min(wanted)
}
