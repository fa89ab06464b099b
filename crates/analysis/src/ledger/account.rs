//! Computes the account of a request at its T6: its sojourn and its excess, split by cause.

use std::ops::Range;

use taillab_model::explanation::{Cause, SendWait};

use super::common::CommonQueue;
use super::events::RequestId;
use super::history::{CpuHistory, Position, Stretches};
use super::label::{CulpritId, Label, Labels};
use super::lengths::{Lengths, scaled, take_ideal};
use super::pieces::{self, Meaning, Moment, Piece};
use super::queues::LateStart;
use super::requests::OpenRequest;
use super::worker::Worker;

/// Labels that every account needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedLabels {
    /// Labels of work that the ideal queue has too, in the order in which the ideal sojourn is subtracted
    /// from them.
    work: [Label; 4],
    service: Label,
    stack_tx: Label,
    queue: Label,
    received: Label,
    unexplained: Label,
    unobserved: Label,
    wakeup: Label,
    retransmit: Label,
    /// Waiting for an acknowledgement.
    acknowledged: [Label; 5],
}

impl FixedLabels {
    pub(super) fn new(labels: &mut Labels) -> Self {
        let received = labels.label(Cause::Softirq, CulpritId::Softirq(crate::timeline::NET_RX));
        let mut plain = |cause| labels.label(cause, CulpritId::Nobody);
        let work = [Cause::Service, Cause::StackTx, Cause::Queue, Cause::StackRx].map(&mut plain);
        let [service, stack_tx, queue, _] = work;
        Self {
            work,
            service,
            stack_tx,
            queue,
            received,
            unexplained: plain(Cause::Unexplained),
            unobserved: plain(Cause::Unobserved),
            wakeup: plain(Cause::Wakeup),
            retransmit: plain(Cause::Retransmit),
            acknowledged: SendWait::FOR_ACKNOWLEDGEMENTS
                .map(|wait| labels.label(Cause::Client, CulpritId::Sending(wait))),
        }
    }

    /// What a retransmission explains: unexplained and wake-up time, and waiting for acknowledgements.
    fn explained_by_resending(&self) -> Vec<Label> {
        let own = [self.unexplained, self.wakeup].into_iter();
        own.chain(self.acknowledged).collect()
    }
}

/// The worker that served a request.
pub(super) struct ServingWorker<'a> {
    pub(super) worker: &'a Worker,
    /// Its place among the workers.
    pub(super) place: usize,
    pub(super) cpus: &'a [CpuHistory],
    /// The label of its services that take too long.
    pub(super) slow_service: Label,
    /// Its waits for its CPU behind others of the server, if there were any since T2.
    pub(super) behind: Option<SiblingWaits>,
    /// The server has other workers.
    pub(super) has_others: bool,
    /// The queue that it shares with others.
    pub(super) common: Option<&'a CommonQueue>,
}

/// The waits of a worker for its CPU behind others of the server.
#[derive(Clone, Copy)]
pub(super) struct SiblingWaits {
    pub(super) label: Label,
    /// Their length until now.
    pub(super) now_ns: u64,
}

impl ServingWorker<'_> {
    /// For how long the worker has waited so since it had waited for `before_ns`.
    fn behind_since(&self, before_ns: u64) -> u64 {
        self.behind.map_or(0, |behind| behind.now_ns - before_ns)
    }
}

/// Everything that is known about a request at its T6.
pub(super) struct Case<'a> {
    pub(super) request: &'a OpenRequest,
    /// Its number.
    pub(super) id: RequestId,
    /// `None` if it is not known who served it.
    pub(super) served_by: Option<ServingWorker<'a>>,
    /// Whether its connection saw a retransmission between T1 and T6.
    pub(super) resent: bool,
    /// Its sojourn in the ideal queue.
    pub(super) ideal_ns: u64,
    /// t − ρ: the part of t that is for the service itself.
    pub(super) service_ns: u64,
    /// ρ: the part of t that the receive softirq may take.
    pub(super) receive_ns: u64,
}

impl Case<'_> {
    /// The part of its wait in the ideal queue in which the CPU works for others, if it was in receive softirqs for
    /// `received` nanoseconds: those of the requests before it are a part of that wait too.
    fn ideal_queue_ns(&self, received: u64) -> u64 {
        let wait = self.request.waits.ideal_ns;
        let t = (self.service_ns + self.receive_ns).max(1);
        wait - received.min(scaled(wait, self.receive_ns, t))
    }
}

/// A label, the length in nanoseconds, and whether it was inherited.
type Wait = (Label, u64, bool);

/// The history stretches of the previous request: the next one usually needs almost the same.
#[derive(Default)]
struct StretchCache {
    /// Those of direct delays.
    direct: Stretches,
    /// The same since the request is late.
    late: Stretches,
    /// Those of inherited delays.
    inherited: Stretches,
    /// The same in the CPU histories from before the workers' busy periods.
    before: Stretches,
    /// Those in the histories of shared queues.
    common: Stretches,
}

/// An account. One value is reused for all requests, to avoid allocations.
#[derive(Default)]
pub(super) struct Account {
    /// What the sojourn was spent on.
    pub(super) parts: Lengths,
    pub(super) excess: Vec<(Label, u64)>,
    /// The parts in order of time; empty unless the request's pieces are wanted.
    pub(super) pieces: Vec<Piece>,
    /// Scratch memory: the delays of the request by label, direct and inherited.
    held: Lengths,
    /// The causes of the time in which the CPU worked for others, in the order in which they are shown. For
    /// a request without pieces, inherited delays with the same label may be merged.
    waits: Vec<Wait>,
    cache: StretchCache,
    /// What a request inherits from the history of its queue, by label.
    lost: Lengths,
    /// The number of delays and delay sums that were read for this account; the tests bound it.
    pub(super) looked_at: usize,
}

/// Work that is the request's own.
#[derive(Default)]
struct OwnWork {
    service_ns: u64,
    transmit_ns: u64,
    /// Receive softirqs within ρ.
    received_ns: u64,
}

/// Computes the account of a request and stores it in `account`, in place of the previous one.
pub(super) fn draw_up(
    case: &Case<'_>,
    fixed: &FixedLabels,
    labels: &mut Labels,
    account: &mut Account,
) {
    let request = case.request;
    account.parts.clear();
    account.waits.clear();
    account.looked_at = 0;
    for &(label, ns) in &request.stack {
        account.parts.add(label, ns);
    }
    let own = match &case.served_by {
        Some(served_by) => with_worker(case, served_by, fixed, labels, account),
        None => without_worker(case, fixed, account),
    };
    account.pieces = in_order(case, &account.waits, &own, fixed, labels);
    if let Some((label, length_ns)) = request.unsent {
        account.parts.add(label, length_ns);
        let piece = Piece {
            from_ns: request.t6_ns - request.t1_ns,
            lasted_ns: length_ns,
            label,
            inherited: false,
        };
        account.pieces.extend(request.wanted.then_some(piece));
    }
    if case.resent {
        sent_again(fixed, account);
    }
    let received = (fixed.received, own.received_ns);
    let (parts, excess) = (&account.parts, &mut account.excess);
    take_ideal(parts, received, case.ideal_ns, fixed.work, excess);
}

fn with_worker(
    case: &Case<'_>,
    served_by: &ServingWorker<'_>,
    fixed: &FixedLabels,
    labels: &mut Labels,
    account: &mut Account,
) -> OwnWork {
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
    let transmit = transmit_ns(request).min(used);

    // the rest is work for others; once the request is late, what its worker has of that is order
    let order = others_since_late(request, served_by, now).min(left);
    left -= order;
    let mut queue = left.min(case.ideal_queue_ns(received));
    left -= queue;
    let behind = left.min(served_by.behind_since(request.behind_ns));
    left -= behind;
    let (inherited, imbalance) = earlier(request, served_by, left, account);
    left -= imbalance;
    let (waits, looked_at) = (&mut account.waits, &mut account.looked_at);
    // what nothing held up before is waiting as in the ideal queue
    let more = (left - inherited).min(request.waits.ideal_ns - queue);
    queue += more;
    left -= more;
    *looked_at += waits.len();
    waits.extend(beside(served_by, labels, behind, imbalance));
    waits.extend(unclear(request, left - inherited, fixed));
    let late = request.order(labels).zip(request.late.as_ref());
    waits.extend(late.map(|(label, _)| (label, order, false)));

    // what held it up: directly, by inheritance, and by order
    let held = &mut account.held;
    held.clear();
    let positions = request.begin.delay_ns..now.delay_ns;
    let given = held_directly(
        positions,
        (served_by, &*labels),
        late,
        &mut account.cache,
        |label, ns| {
            held.add(label, ns);
            *looked_at += 1;
        },
    );
    held.add(fixed.unexplained, delays.saturating_sub(given));
    for &(label, ns, _) in waits.iter() {
        held.add(label, ns);
    }
    waits.push((fixed.queue, queue, false));
    if served_by.has_others && served_by.common.is_none() {
        let more = request.waits.imbalance_ns - imbalance;
        gone_elsewhere(request, served_by, more, labels, held);
    }
    let own = OwnWork {
        service_ns: used - transmit,
        transmit_ns: transmit,
        received_ns: received - pass_on(held, received, total),
    };
    put_parts(&mut account.parts, held, fixed, queue, &own);
    own
}

/// Up to `left` nanoseconds that held up those before it, and that it waited while another worker was idle. In a
/// shared queue, the second is only what nobody had lost.
fn earlier(
    request: &OpenRequest,
    served_by: &ServingWorker<'_>,
    left: u64,
    account: &mut Account,
) -> (u64, u64) {
    let imbalance_ns = request.waits.imbalance_ns;
    let waits = &mut account.waits;
    if let Some((queue, wait)) = served_by.common.zip(request.common.as_ref()) {
        let place = served_by.worker.queue.unwrap_or_default();
        let (lost, stretch) = (&mut account.lost, account.cache.common.of_cpu(place));
        let inherited = queue.inherit(wait, left, lost, |history, from, to, lost| {
            history.sum(from, to, stretch, |label, ns| lost.add(label, ns));
        });
        waits.extend(lost.iter().map(|&(label, ns)| (label, ns, true)));
        return (inherited, (left - inherited).min(imbalance_ns));
    }
    let imbalance = left.min(imbalance_ns);
    let cache = &mut account.cache;
    let inherited = inherit(request, served_by, left - imbalance, cache, waits);
    (inherited, imbalance)
}

/// What a request still waited, `rest` nanoseconds, though nothing held up those before it: for receive softirqs of
/// others, where several workers share its queue, or for nothing that is known.
fn unclear(
    request: &OpenRequest,
    rest: u64,
    fixed: &FixedLabels,
) -> impl Iterator<Item = Wait> + use<> {
    let received = request.common.map_or(0, |common| common.received_ns);
    let received = received.min(rest);
    let waits = [
        (fixed.received, received, false),
        (fixed.unexplained, rest - received, false),
    ];
    waits.into_iter().filter(|wait| wait.1 > 0)
}

/// The parts after T2: what held the request up, its wait in the queue, and its own work.
fn put_parts(parts: &mut Lengths, held: &Lengths, fixed: &FixedLabels, queue: u64, own: &OwnWork) {
    for &(label, ns) in held.iter() {
        parts.add(label, ns);
    }
    parts.add(fixed.queue, queue);
    parts.add(fixed.received, own.received_ns);
    parts.add(fixed.service, own.service_ns);
    parts.add(fixed.stack_tx, own.transmit_ns);
}

/// Waiting that is because of other workers: for their time on the CPU, and for a queue of its own.
fn beside(
    served_by: &ServingWorker<'_>,
    labels: &mut Labels,
    behind: u64,
    imbalance: u64,
) -> impl Iterator<Item = Wait> + use<> {
    let own = CulpritId::Worker(served_by.worker.tid);
    let behind = served_by.behind.map(|others| (others.label, behind, false));
    let imbalance =
        (imbalance > 0).then(|| (labels.label(Cause::Imbalance, own), imbalance, false));
    behind.into_iter().chain(imbalance)
}

/// T5 to T6 is sending. If the service takes too long, the excess is assumed to be at its end.
fn transmit_ns(request: &OpenRequest) -> u64 {
    let t5_ns = request.t5_ns().unwrap_or(request.t6_ns);
    let sending = request.t6_ns.saturating_sub(t5_ns);
    sending.saturating_sub(request.over_ns)
}

/// The time since the request became late, without delays, receive softirqs, and what its worker waited
/// behind others of the server, in nanoseconds.
fn others_since_late(request: &OpenRequest, served_by: &ServingWorker<'_>, now: Position) -> u64 {
    let waited = request.common.map_or(0, |common| common.order_ns);
    waited
        + request.late.as_ref().map_or(0, |late| {
            let since = now.since(late.since);
            let rest = (request.t6_ns - late.since_ns).saturating_sub(since.delay_ns);
            let own = rest.saturating_sub(since.received_ns);
            own.saturating_sub(served_by.behind_since(late.behind_ns))
        })
}

/// The account if the worker is unknown: service and queue as in the ideal queue; the rest is `unobserved`.
fn without_worker(case: &Case<'_>, fixed: &FixedLabels, account: &mut Account) -> OwnWork {
    let mut left = case.request.t6_ns - case.request.queued_ns;
    let service_ns = left.min(case.service_ns);
    left -= service_ns;
    let queue = left.min(case.request.waits.ideal_ns);
    left -= queue;
    account.parts.add(fixed.service, service_ns);
    for (label, ns) in [(fixed.queue, queue), (fixed.unobserved, left)] {
        account.parts.add(label, ns);
        account.waits.insert(0, (label, ns, false));
    }
    OwnWork {
        service_ns,
        ..OwnWork::default()
    }
}

/// Passes the delays between these history positions, of T2 and T6, to `held` and returns their sum. Once the
/// request is `late`, all delays have the label that comes with it, except for those of its own service, and
/// for times in which nothing of the server could run ([`keeps_its_cause`]).
fn held_directly(
    positions: Range<u64>,
    (served_by, labels): (&ServingWorker<'_>, &Labels),
    late: Option<(Label, &LateStart)>,
    cache: &mut StretchCache,
    mut held: impl FnMut(Label, u64),
) -> u64 {
    let (history, w, cpus) = (&served_by.worker.history, served_by.place, served_by.cpus);
    let (from, to) = (positions.start, positions.end);
    let until = late.map_or(to, |(_, late)| late.since.delay_ns);
    let mut given = history.sum(w, cpus, from..until, &mut cache.direct, &mut held);
    if let Some((order, late)) = late {
        let mut left = to - until;
        given += left;
        let mut keep = |label, ns: u64| {
            let ns = ns.min(left);
            left -= ns;
            held(label, ns);
        };
        late.own.iter().for_each(|&(label, ns)| keep(label, ns));
        history.sum(w, cpus, until..to, &mut cache.late, &mut |label, ns| {
            if keeps_its_cause(labels.cause(label)) {
                keep(label, ns);
            }
        });
        held(order, left);
    }
    given
}

/// Whether nothing of the server could run because of this, so that no order would have been better.
pub(super) const fn keeps_its_cause(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Throttled | Cause::Pause | Cause::Hypervisor | Cause::Unobserved
    )
}

/// Inherits the last delays before T2, up to `wanted` nanoseconds. Returns how many were found.
fn inherit(
    request: &OpenRequest,
    served_by: &ServingWorker<'_>,
    wanted: u64,
    cache: &mut StretchCache,
    waits: &mut Vec<Wait>,
) -> u64 {
    if wanted == 0 {
        return 0;
    }
    let mut visit = |label, ns| waits.push((label, ns, true));
    let (to, inheritance) = (request.begin.delay_ns, request.inheritance);
    let from = to.saturating_sub(wanted).max(inheritance.from);
    let own = to - from;
    let (history, w, cpus) = (&served_by.worker.history, served_by.place, served_by.cpus);
    let mut given = 0;
    // the oldest comes first
    if own < wanted
        && let Some((k, end, floor)) = inheritance.cpu
    {
        let from = end.saturating_sub(wanted - own).max(floor);
        given += match request.wanted {
            true => cpus[k].visit(from, end, &mut visit),
            false => cpus[k].sum(from, end, cache.before.of_cpu(k), &mut visit),
        };
    }
    given += match request.wanted {
        true => history.visit(cpus, from, to, &mut visit),
        false => history.sum(w, cpus, from..to, &mut cache.inherited, &mut visit),
    };
    given.min(wanted)
}

/// Moves up to `longer_ns` of waiting for slow services to imbalance: with one queue for all workers, the
/// request would not have waited for that.
fn gone_elsewhere(
    request: &OpenRequest,
    served_by: &ServingWorker<'_>,
    longer_ns: u64,
    labels: &mut Labels,
    held: &mut Lengths,
) {
    let Some(length) = held.get_mut(served_by.slow_service) else {
        return;
    };
    // the request's own slow service is not moved
    let moved = length.saturating_sub(request.slow_ns).min(longer_ns);
    *length -= moved;
    let own = CulpritId::Worker(served_by.worker.tid);
    held.add(labels.label(Cause::Imbalance, own), moved);
}

/// Charges part of the receive softirqs to the causes in `held`, in proportion to their lengths. The part
/// is the share of `held` in `total` − `received`. Returns its length in nanoseconds.
fn pass_on(held: &mut Lengths, received: u64, total: u64) -> u64 {
    let sum: u64 = held.iter().map(|part| part.1).sum();
    let rest = total.saturating_sub(received);
    if sum == 0 || received == 0 || rest == 0 {
        return 0;
    }
    let passed = scaled(received, sum.min(rest), rest);
    held.lengthen(passed);
    passed
}

/// The pieces in order of time, for a request whose pieces are wanted.
fn in_order(
    case: &Case<'_>,
    waits: &[Wait],
    own: &OwnWork,
    fixed: &FixedLabels,
    labels: &mut Labels,
) -> Vec<Piece> {
    let request = case.request;
    if !request.wanted {
        return Vec::new();
    }
    let meaning = Meaning {
        others: waits,
        own: [
            (fixed.service, own.service_ns),
            (fixed.stack_tx, own.transmit_ns),
        ],
        received: fixed.received,
    };
    let total_ns = request.t6_ns - request.t1_ns;
    if let Some(served_by) = &case.served_by {
        let order = request.order(labels);
        let trace = &served_by.worker.trace;
        let waited = request
            .common
            .map(|common| (Moment::Others, common.wait_ns));
        let mut moments: Vec<(Moment, u64)> = waited.into_iter().collect();
        if let Some(traced) = request.traced {
            let keeps = |label| keeps_its_cause(labels.cause(label));
            moments.extend(trace.moments(case.id, traced, order, keeps));
        }
        return pieces::pieces(&request.stack, &moments, &meaning, total_ns);
    }
    let work: u64 = waits.iter().map(|part| part.1).sum();
    let moments = [(Moment::Others, work), (Moment::Own, own.service_ns)];
    pieces::pieces(&request.stack, &moments, &meaning, total_ns)
}

/// Charges unexplained and wake-up time to the retransmission, and waiting for acknowledgements.
fn sent_again(fixed: &FixedLabels, account: &mut Account) {
    let unknown = fixed.explained_by_resending();
    let again = account.parts.take(&unknown);
    account.parts.add(fixed.retransmit, again);
    let pieces = account.pieces.iter_mut();
    for piece in pieces.filter(|piece| unknown.contains(&piece.label)) {
        piece.label = fixed.retransmit;
    }
}

#[cfg(test)]
pub(super) mod reference;
