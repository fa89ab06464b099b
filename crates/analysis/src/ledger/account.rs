//! The account of a request, drawn up at its T6.

use taillab_model::explanation::Cause;

use super::Entry;
use super::excess::{scaled, take_ideal};
use super::label::{Label, Labels, Who};
use super::lengths::Lengths;
use super::sweep::{Open, OpenId, Sweep};
use super::trace::{self, Meaning, Piece};

/// Label, length, inherited.
pub(super) type Split = Vec<(Label, u64, bool)>;

/// What became of the time in which its CPU worked for others.
#[derive(Default)]
struct Others {
    /// In the order in which it is told.
    split: Split,
    own_service: u64,
    own_transmit: u64,
    received: u64,
}

/// Passes receive softirqs on to what made the request wait for them, in proportion: of
/// `received` the same share as `held` has of the rest of `total`. How much that was.
fn pass_on(held: &mut Lengths, received: u64, total: u64) -> u64 {
    let sum: u64 = held.iter().map(|part| part.1).sum();
    let rest = total.saturating_sub(received);
    if sum == 0 || received == 0 || rest == 0 {
        return 0;
    }
    let passed = scaled(received, sum.min(rest), rest);
    let (mut so_far, mut given) = (0, 0);
    for length in held.lengths_mut() {
        so_far += *length;
        let until = scaled(so_far, passed, sum);
        *length += until - given;
        given = until;
    }
    passed
}

impl Sweep {
    /// Draws up the account and gives it to `sink`, if the request is measured. Nothing is
    /// known of it here afterwards.
    pub(super) fn account(&mut self, id: OpenId, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        // it is not looked at elsewhere meanwhile
        let mut opens = std::mem::take(&mut self.opens);
        let open = &mut opens[id as usize];
        let mut parts = std::mem::take(&mut self.parts);
        let mut excess = std::mem::take(&mut self.excess);
        parts.clear();
        for &(label, ns) in &open.stack {
            parts.add(label, ns);
        }
        let others = match open.worker {
            Some(w) => self.with_worker(open, w, &mut parts),
            None => self.without_worker(open, &mut parts),
        };
        let mut pieces = self.in_order(open, &others);
        self.sent_again(open, &mut parts, &mut pieces);

        let sojourn_ns = open.t6_ns - open.t1_ns;
        let t = self.options.service_time.get();
        let ideal_ns = open.wait_ns + t;
        let received = (self.fixed.received, others.received);
        take_ideal(&parts, received, ideal_ns, self.fixed.work, &mut excess);
        if let Some(known) = open.known.filter(|known| known.measured) {
            let entry = Entry {
                place: open.place,
                stamps: known.stamps,
                key: known.key,
                worker: open.tid,
                sojourn_ns,
                ideal_ns,
                own_queue_ideal_ns: open.own_wait_ns + t,
                gain_ns: ideal_ns.saturating_sub(sojourn_ns),
                parts: &parts,
                excess: &excess,
                overtaken_by: open.overtaken_by,
                pieces: &pieces,
            };
            sink(&entry, &self.labels);
        }
        (self.parts, self.excess, self.split) = (parts, excess, others.split);
        self.opens = opens;
    }

    fn with_worker(&mut self, open: &Open, w: usize, parts: &mut Lengths) -> Others {
        let (tape, all_received) = self.workers[w].position(&self.cpus);
        let total = open.t6_ns - open.queued_ns;
        let delays = (tape - open.tape).min(total);
        let mut left = total - delays;
        let received = (all_received - open.received).min(left);
        left -= received;
        let used = open.used_ns.min(left);
        left -= used;
        // T5 to T6 is sending
        let t5_ns = open.t5_ns();
        let sending = t5_ns.map_or(0, |t5_ns| open.t6_ns.saturating_sub(t5_ns));
        // what goes beyond its time goes beyond it at the end
        let transmit = sending.saturating_sub(open.over_ns).min(used);

        let mut others = Others {
            own_service: used - transmit,
            own_transmit: transmit,
            received,
            split: std::mem::take(&mut self.split),
        };
        others.split.clear();
        // once it is late everything but its own delays is order
        let order = open.late.map_or(0, |late| {
            let stayed = open.t6_ns - late.since_ns;
            let rest = stayed.saturating_sub(tape - late.tape);
            rest.saturating_sub(all_received - late.received).min(left)
        });
        left -= order;
        let queue = left.min(open.wait_ns);
        left -= queue;
        let imbalance = left.min(open.longer_ns);
        left -= imbalance;
        let inherited = self.inherit(open, w, left, &mut others.split);
        let unexplained = left - inherited;

        let tid = self.workers[w].tid;
        let own = Who::Worker(tid);
        if imbalance > 0 {
            let label = self.labels.label(Cause::Imbalance, own);
            others.split.push((label, imbalance, false));
        }
        if unexplained > 0 {
            others
                .split
                .push((self.fixed.unexplained, unexplained, false));
        }
        let out_of_order = open.late.map(|late| {
            let by = Who::Worker(self.workers[late.by].tid);
            let label = self.labels.label(Cause::Order, by);
            others.split.push((label, order, false));
            (label, late.tape)
        });
        others.split.push((self.fixed.queue, queue, false));

        // what held it up: directly, by inheritance, and by order
        let mut held = std::mem::take(&mut self.held);
        held.clear();
        let slow = self.slow_service(w);
        let mut given = 0;
        {
            let (worker, cpus) = (&self.workers[w], &self.cpus);
            let until = out_of_order.map_or(tape, |(_, since)| since);
            given += worker.visit(cpus, open.tape, until, &mut |label, ns, _| {
                held.add(label, ns);
            });
            if let Some((order, since)) = out_of_order {
                given += worker.visit(cpus, since, tape, &mut |label, ns, own| {
                    let stays = own || label == slow;
                    held.add(if stays { label } else { order }, ns);
                });
            }
        }
        held.add(self.fixed.unexplained, delays.saturating_sub(given));
        for &(label, ns, _) in others
            .split
            .iter()
            .filter(|part| part.0 != self.fixed.queue)
        {
            held.add(label, ns);
        }
        if self.workers.len() > 1 {
            let left = open.longer_ns - imbalance;
            self.gone_elsewhere(open, w, left, &mut held);
        }
        others.received -= pass_on(&mut held, received, total);
        for &(label, ns) in held.iter() {
            parts.add(label, ns);
        }
        self.held = held;
        parts.add(self.fixed.queue, queue);
        parts.add(self.fixed.received, others.received);
        parts.add(self.fixed.service, others.own_service);
        parts.add(self.fixed.stack_tx, others.own_transmit);
        others
    }

    /// Who served it is not known: what the ideal has as well, and what was not observed.
    fn without_worker(&mut self, open: &Open, parts: &mut Lengths) -> Others {
        let mut left = open.t6_ns - open.queued_ns;
        let service = left.min(self.usual.service_ns);
        left -= service;
        let queue = left.min(open.wait_ns);
        left -= queue;
        parts.add(self.fixed.service, service);
        parts.add(self.fixed.queue, queue);
        parts.add(self.fixed.unobserved, left);
        let mut split = std::mem::take(&mut self.split);
        split.clear();
        split.push((self.fixed.unobserved, left, false));
        split.push((self.fixed.queue, queue, false));
        Others {
            split,
            own_service: service,
            ..Others::default()
        }
    }

    /// Of waiting for slow services before it, `longer_ns` would not be in one queue for all
    /// workers: that is imbalance.
    fn gone_elsewhere(&mut self, open: &Open, w: usize, longer_ns: u64, held: &mut Lengths) {
        let slow = self.slow_service(w);
        let Some(length) = held.of(slow) else {
            return;
        };
        // its own stays what it is
        let moved = length.saturating_sub(open.over_ns).min(longer_ns);
        *length -= moved;
        let worker = Who::Worker(self.workers[w].tid);
        let imbalance = self.labels.label(Cause::Imbalance, worker);
        held.add(imbalance, moved);
    }

    /// Inherits up to `wanted` from the end of the tape before T2; how much there was.
    fn inherit(
        &self,
        open: &Open,
        w: usize,
        wanted: u64,
        split: &mut Vec<(Label, u64, bool)>,
    ) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let mut visit = |label, ns| split.push((label, ns, true));
        let from = open.tape.saturating_sub(wanted).max(open.busy_from);
        let own = open.tape - from;
        let mut given = 0;
        // what is oldest comes first
        if own < wanted
            && let Some((k, end, floor)) = open.busy_cpu
        {
            let from = end.saturating_sub(wanted - own).max(floor);
            given += self.cpus[k].tape.visit(from, end, &mut visit);
        }
        given += self.workers[w].visit(&self.cpus, from, open.tape, &mut |label, ns, _| {
            visit(label, ns);
        });
        given.min(wanted)
    }

    /// The pieces in order of time, for a request that is traced.
    fn in_order(&self, open: &Open, others: &Others) -> Vec<Piece> {
        let Some(raw) = &open.traced else {
            return Vec::new();
        };
        let total_ns = open.t6_ns - open.t1_ns;
        let own = [
            (self.fixed.service, others.own_service),
            (self.fixed.stack_tx, others.own_transmit),
        ];
        let meaning = Meaning {
            others: &others.split,
            own,
            received: self.fixed.received,
        };
        if open.worker.is_some() {
            return trace::pieces(&open.stack, raw, &meaning, total_ns);
        }
        let work: u64 = others.split.iter().map(|part| part.1).sum();
        let raw = [
            (trace::Raw::Others, work),
            (trace::Raw::Own, others.own_service),
        ];
        trace::pieces(&open.stack, &raw, &meaning, total_ns)
    }

    /// Something was sent again on this connection while the request was here: waiting that
    /// nothing else explains was for that.
    fn sent_again(&mut self, open: &Open, parts: &mut Lengths, pieces: &mut [Piece]) {
        let client = open.known.map(|known| known.key.client());
        let again = |client| self.resent.within(client, open.t1_ns, open.t6_ns);
        if !client.is_some_and(again) {
            return;
        }
        let unknown = [self.fixed.unexplained, self.fixed.wakeup];
        let again = parts.take(&unknown);
        parts.add(self.fixed.retransmit, again);
        for piece in pieces.iter_mut().filter(|p| unknown.contains(&p.label)) {
            piece.label = self.fixed.retransmit;
        }
    }
}
