//! One pass over a recording in order of time, which computes the account of each request.

use taillab_model::{Monotonic, Nanos, Peer, RecordingContext};

use super::account::{Account, Case, FixedLabels, ServingWorker, SiblingWaits, draw_up};
use super::baseline::Baseline;
use super::entry::{Entry, Ledger, LedgerOptions};
use super::events::{RequestEvent, RequestId};
use super::history::Position;
use super::label::Labels;
use super::queues::{LateStart, Queues, Waits};
use super::receive::{self, Receiving};
use super::requests::OpenRequest;
use super::send_evidence::{SendEvidence, SendHistory};
use super::server::ServerState;
use super::service_starts::ServiceStarts;
use super::worker::Inheritance;
use crate::left_over::LeftOver;
use crate::matched::{Arrival, Matched};
use crate::resent::Resent;
use crate::timeline::Timeline;

/// How far the timeline of a window reaches back into the window before it, at least.
pub const LOOK_BACK: Nanos = Nanos::from_millis(20);

/// Computes the ledger of a recording, window by window.
///
/// The accounts do not depend on where the windows are cut, provided that the [`Baseline`] is the same
/// and the windows' timelines agree where they overlap.
pub struct Attribution {
    options: LedgerOptions,
    /// Requests with at least this sojourn are split into pieces in order of time.
    trace_from: Nanos,
    server: ServerState,
    queues: Queues,
    fixed: FixedLabels,
    account: Account,
    resent: Resent,
    service_starts: ServiceStarts,
    /// The result of [`ServiceStarts`] for this window's requests.
    free_ns: Vec<Option<u64>>,
    /// Since when the workers of this window's requests have been busy.
    busy_since_ns: Vec<u64>,
    sending: SendHistory,
    /// The result of [`SendHistory`] for this window's requests.
    send_evidence: Vec<SendEvidence>,
    /// Matched requests of the windows before.
    requests_before: usize,
    /// Everything before this time is settled.
    upto_ns: u64,
    /// The CPU that received the last packet.
    last_receiver: usize,
    left_over: LeftOver,
}

impl Attribution {
    /// A ledger that has not seen a window yet.
    pub fn new(context: &RecordingContext, options: &LedgerOptions, baseline: Baseline) -> Self {
        let mut server = ServerState::new(context, options, baseline);
        Self {
            options: options.clone(),
            trace_from: Nanos::MAX,
            queues: Queues::new(options.service_time, options.workers),
            fixed: FixedLabels::new(&mut server.ledger.labels),
            server,
            account: Account::default(),
            resent: Resent::default(),
            service_starts: ServiceStarts::default(),
            free_ns: Vec::new(),
            busy_since_ns: Vec::new(),
            sending: SendHistory::default(),
            send_evidence: Vec::new(),
            requests_before: 0,
            upto_ns: 0,
            last_receiver: 0,
            left_over: LeftOver::default(),
        }
    }

    /// From now on, requests with at least this sojourn are split into pieces in order of time
    /// ([`Entry::pieces`]).
    pub const fn trace_from(&mut self, sojourn: Nanos) {
        self.trace_from = sojourn;
    }

    /// Handles the next window: the requests that arrived before `upto`, followed up to that time.
    ///
    /// Requests that are still in the server at `upto` are given to `sink` in a later window. The timeline
    /// of that window must begin at least [`LOOK_BACK`] before `upto`, and not after the T1 of the oldest
    /// of them.
    pub fn follow(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        upto: Monotonic,
        mut sink: impl FnMut(&Entry<'_>, &Labels),
    ) {
        self.server.enter(matched, timeline, self.upto_ns);
        let again = timeline.retransmissions().iter();
        let again = again.map(|(at, client)| (at.nanos_since_boot(), *client));
        self.resent = again.collect();
        self.free_ns = self.service_starts.of(matched);
        self.busy_since_ns = self.service_starts.busy_since(matched);
        self.send_evidence = self.sending.of(matched);
        for arrival in matched.arrivals() {
            let t1_ns = arrival.t1.nanos_since_boot();
            self.until(t1_ns, &mut sink);
            self.came_in(matched, &arrival, t1_ns);
        }
        self.requests_before += matched.requests.len();
        self.upto_ns = upto.nanos_since_boot();
        self.until(self.upto_ns, &mut sink);
        let least_ns = self.upto_ns.saturating_sub(LOOK_BACK.get());
        self.server.leave(least_ns, self.upto_ns);
        for ended in self.server.forget_ended() {
            self.queues.forget(ended);
        }
    }

    /// How many workers, labels or delays are remembered: the entries of the largest table.
    pub(crate) fn remembered(&self) -> usize {
        let tables = [
            self.server.remembered(),
            self.queues.remembered(),
            self.service_starts.remembered(),
        ];
        tables.into_iter().max().unwrap_or_default()
    }

    /// The counts over all windows.
    pub fn finish(self) -> Ledger {
        self.server.finish()
    }

    /// Handles what happens before `until_ns`.
    fn until(&mut self, until_ns: u64, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        while let Some((at_ns, event)) = self.server.events.pop_before(until_ns) {
            self.handle(event, at_ns, sink);
        }
    }

    fn handle(
        &mut self,
        event: RequestEvent,
        at_ns: u64,
        sink: &mut impl FnMut(&Entry<'_>, &Labels),
    ) {
        match event {
            RequestEvent::StateEnds(w, busy_period) => {
                let worker = &self.server.workers[w as usize];
                if worker.busy_period == busy_period && worker.is_followed() {
                    self.server.state_ends(w as usize, at_ns);
                }
            }
            RequestEvent::Queued(id) => self.queued(id, at_ns),
            RequestEvent::Begun(id) => self.begun(id, at_ns),
            RequestEvent::Answered(id) => {
                self.answered(id, at_ns, sink);
                self.server.requests.remove(id);
            }
        }
    }

    /// Why the response to the request at this place of the window waited to be sent, if it did.
    fn evidence(&self, place: usize) -> SendEvidence {
        self.send_evidence.get(place).copied().unwrap_or_default()
    }

    /// What the server has done of the warm-up, the ideal queues have, too.
    fn measurement_begins(&mut self, at_ns: u64, left_over: u64) {
        self.queues.measurement_begins(at_ns, left_over);
        for queue in &mut self.server.common {
            queue.measurement_begins(at_ns);
        }
    }

    /// T1: it enters the ideal queues, and is followed if it was answered.
    fn came_in(&mut self, matched: &Matched, arrival: &Arrival, t1_ns: u64) {
        let measure_from = self.options.measure_from;
        if let Some(requests) = self
            .left_over
            .at_the_beginning(matched, arrival, measure_from)
        {
            self.measurement_begins(t1_ns, requests);
        }
        let ideal_ns = self.queues.arrives(t1_ns);
        // outside slices, receive softirqs are not recorded
        if matched
            .slices
            .contain(Monotonic::from_nanos_since_boot(t1_ns))
        {
            self.server.add_token();
        }
        let Some(place) = arrival.matched else {
            return;
        };
        let (tid, connection) = (matched.workers[place], matched.keys[place].connection);
        let worker = self.server.by_tid.get(tid);
        let stamps = matched.requests.stamps(place);
        let left_ns = stamps.t6.nanos_since_boot().max(t1_ns);
        let unsent = worker.zip(stamps.t5).and_then(|(w, t5)| {
            let unsent_ns = t5.nanos_since_boot()..left_ns;
            (self.server).goes_on_before(matched, w, unsent_ns, self.evidence(place))
        });
        let t6_ns = unsent.map_or(left_ns, |(_, goes_on_ns)| goes_on_ns.max(t1_ns));
        let (own_queue_ns, imbalance_ns) = match worker {
            Some(w) => self.queues.was_served_by(w, t1_ns, t6_ns),
            None => (ideal_ns, 0),
        };
        if let Some(queue) = worker.and_then(|w| self.server.workers[w].queue) {
            self.server.common[queue].arrives(t1_ns);
        }
        let [t2, t3, t4, _] = stamps.middle();
        let queued = t2.unwrap_or_else(|| {
            let read = t3.or(t4);
            let came = read.and_then(|read| {
                let read_ns = read.nanos_since_boot();
                let came_ns = self.resent.last_within(connection, t1_ns, read_ns);
                came_ns.map(Monotonic::from_nanos_since_boot)
            });
            let usual = came.unwrap_or(stamps.t1) + Nanos::new(self.server.baseline.stack_ns);
            usual.min(read.unwrap_or(usual))
        });
        let queued_ns = queued.nanos_since_boot().clamp(t1_ns, t6_ns);
        let measured = matched.is_measured(place, self.options.measure_from);
        // those of the warm-up get no entry, and they can be slow by the thousand
        let wanted =
            measured && matched.is_asked(place) && Nanos::new(left_ns - t1_ns) >= self.trace_from;
        let id = self.server.requests.insert(OpenRequest {
            place: self.requests_before + place,
            stamps,
            connection,
            port: match wanted {
                true => matched.clients.of(connection).map_or(0, Peer::port),
                false => 0,
            },
            command: matched.requests.command(place),
            measured,
            asked: matched.is_asked(place),
            slice: matched.sampling(place),
            busy_since_ns: self.busy_since_ns.get(place).copied().unwrap_or(0),
            tid,
            worker,
            free_ns: self.free_ns.get(place).copied().flatten(),
            t1_ns,
            queued_ns,
            t6_ns,
            unsent: unsent.map(|(label, _)| (label, left_ns - t6_ns)),
            sending: self.evidence(place),
            waits: Waits {
                ideal_ns,
                own_queue_ns,
                imbalance_ns,
            },
            turn: self.requests_before + place,
            begin: Position::default(),
            behind_ns: 0,
            late: None,
            common: None,
            used_ns: 0,
            over_ns: 0,
            slow_ns: 0,
            inheritance: Inheritance::default(),
            overtaken_by: None,
            stack: Vec::new(),
            wanted,
            traced: None,
        });
        self.server.events.push(queued_ns, RequestEvent::Queued(id));
    }

    /// T2: the request is queued at its socket.
    fn queued(&mut self, id: RequestId, at_ns: u64) {
        let server = &mut self.server;
        let Some(w) = server.requests[id].worker else {
            self.receive(None, id, at_ns);
            let t6_ns = self.server.requests[id].t6_ns;
            return self.server.events.push(t6_ns, RequestEvent::Answered(id));
        };
        let first = server.workers[w].outstanding == 0;
        match first {
            true if server.workers[w].lent => {
                server.settle(w, at_ns);
                server.takes_back(w);
                server.catch_up(w, at_ns);
            }
            true => server.catch_up(w, at_ns),
            false => server.settle(w, at_ns),
        }
        let home = server.workers[w].home;
        if let Some(k) = home {
            server.advance(k, at_ns);
        }
        self.receive(home, id, at_ns);
        if first {
            self.busy_period_begins(w, home, id, at_ns);
        }
        let server = &mut self.server;
        server.workers[w].outstanding += 1;
        server.recount(w, at_ns);
        let behind_ns = server.behind_ns(w);
        let worker = &server.workers[w];
        let request = &mut server.requests[id];
        request.begin = worker.history.end(&server.histories);
        request.behind_ns = behind_ns;
        request.inheritance = worker.inheritance;
        let [_, t3, t4, _] = request.stamps.middle();
        let begin_ns = match (t3, request.free_ns) {
            (Some(t3), _) => t3.nanos_since_boot(),
            (None, Some(free_ns)) => free_ns,
            (None, None) => {
                let read_ns = t4.map_or(u64::MAX, |t4| t4.nanos_since_boot());
                worker.previous_t6_ns.min(read_ns)
            }
        };
        let begin_ns = begin_ns.clamp(at_ns, request.t6_ns.max(at_ns));
        if let Some(queue) = worker.queue {
            server.comes_to(queue, id, at_ns..begin_ns);
        }
        let request = &server.requests[id];
        self.queues.in_order(w).came(request.turn, id);
        if request.wanted {
            server.begin_trace(w, id);
        }
        server.events.push(begin_ns, RequestEvent::Begun(id));
    }

    /// Worker `w` gets the first request of a busy period; the worker's earlier delays are not inherited.
    fn busy_period_begins(&mut self, w: usize, home: Option<usize>, id: RequestId, at_ns: u64) {
        let server = &mut self.server;
        server.workers[w].history.clear(&server.histories);
        server.workers[w].own_upto_ns = at_ns;
        if let Some(k) = home
            && server.cpus[k].active == 0
        {
            let history = &mut server.histories[k];
            history.clear();
            server.cpus[k].busy_floor = history.end().delay_ns;
            // what the first request lost before T2, beyond ρ, is a delay for the requests behind it
            let mut work = server.baseline.receive_ns;
            for &(label, ns) in &server.requests[id].stack {
                let taken = ns.min(work);
                work -= taken;
                history.push(label, ns - taken);
            }
            // but not for this request
            server.workers[w].history.clear(&server.histories);
        }
        let worker = &mut server.workers[w];
        worker.inheritance = Inheritance {
            from: worker.history.end(&server.histories).delay_ns,
            cpu: home.map(|k| {
                let end = server.histories[k].end().delay_ns;
                (k, end, server.cpus[k].busy_floor)
            }),
        };
    }

    /// Splits [T1, T2] by what the CPU that received the packet did. That CPU is most likely `home`.
    fn receive(&mut self, home: Option<usize>, id: RequestId, at_ns: u64) {
        let server = &mut self.server;
        let t1_ns = server.requests[id].t1_ns;
        let usual_ns = 2 * server.baseline.stack_ns;
        let likely = home.into_iter().chain([self.last_receiver]);
        let mut found: Option<(u64, usize)> = None;
        for k in likely.chain(0..server.cpus.len()) {
            if k >= server.cpus.len() {
                continue;
            }
            server.advance(k, at_ns);
            if !receive::receives(&server.cpus[k]) {
                continue;
            }
            let free_ns = match at_ns - t1_ns > usual_ns {
                true => receive::free_ns(&server.cpus[k], t1_ns, at_ns),
                false => 0,
            };
            if found.is_none_or(|(least_ns, _)| free_ns < least_ns) {
                found = Some((free_ns, k));
            }
            if free_ns <= usual_ns {
                break;
            }
        }
        let mut receiving = Receiving {
            labels: &mut server.ledger.labels,
            usual_ns,
            workers: &server.by_tid,
            pieces: &mut server.requests[id].stack,
        };
        match found {
            Some((_, k)) => {
                self.last_receiver = k;
                receiving.split(&server.cpus[k], t1_ns, at_ns);
                server.cpus[k].last_queued_ns = at_ns;
            }
            None => receiving.unseen(t1_ns, at_ns),
        }
    }

    /// T3: its worker can serve it.
    fn begun(&mut self, id: RequestId, at_ns: u64) {
        let server = &mut self.server;
        let OpenRequest {
            t6_ns,
            free_ns,
            worker,
            ..
        } = server.requests[id];
        if let Some(w) = worker {
            // an estimated T3 is not before the worker is on a core
            if free_ns.is_some()
                && let Some(later_ns) = server.comes_to_core(w)
                && (at_ns + 1..t6_ns).contains(&later_ns)
            {
                return server.events.push(later_ns, RequestEvent::Begun(id));
            }
            if let Some(queue) = server.workers[w].queue {
                server.leaves(queue, at_ns);
            }
            let request = &mut server.requests[id];
            let begun = (request.place, request.tid);
            let overtaken = self.queues.begins(begun, request.queued_ns, at_ns);
            request.overtaken_by = overtaken.then_some(request.tid);
            if server.workers[w].serving.is_none() {
                server.settle(w, at_ns);
                server.serve(w, id, at_ns);
            } else {
                server.workers[w].pending.push_back((id, begun.0));
            }
        }
        server
            .events
            .push(t6_ns.max(at_ns), RequestEvent::Answered(id));
    }

    /// T6: it is answered, and its account is drawn up.
    fn answered(&mut self, id: RequestId, at_ns: u64, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        let server = &mut self.server;
        let worker = server.requests[id].worker;
        if let Some(w) = worker {
            server.settle(w, at_ns);
        }
        self.give_account(id, sink);
        let Some(w) = worker else {
            return;
        };
        let server = &mut self.server;
        server.left_later(w, id);
        server.end_trace(w, id);
        let turn = server.requests[id].turn;
        if let Some(due) = self.queues.in_order(w).left(turn) {
            // in the order of arrival, the due request would have left now
            let behind_ns = server.behind_ns(w);
            let since_ns = server.requests[due].begin.delay_ns;
            let asked = (server.workers[w].asked).filter(|(_, end_ns)| *end_ns > since_ns);
            let away = asked.map(|(label, _)| server.upstream_of(w, due).unwrap_or(label));
            let (request, worker) = (&mut server.requests[due], &server.workers[w]);
            request.late = Some(LateStart {
                since_ns: at_ns,
                since: worker.history.end(&server.histories),
                behind_ns,
                away,
                own: Vec::new(),
            });
            if let Some(traced) = &mut request.traced {
                worker.trace.is_late(traced);
            }
        }
        let worker = &mut server.workers[w];
        worker.previous_t6_ns = at_ns;
        worker.outstanding -= 1;
        if let Some(queue) = worker.queue {
            server.common[queue].leaves();
            if server.workers[w].outstanding > 0 {
                server.workers[w].free = server.is_free(w, queue, at_ns);
            }
        }
        let worker = &mut server.workers[w];
        if worker.serving == Some(id) {
            worker.serving = None;
            // requests that were answered meanwhile are still in the list
            while let Some((next, place)) = server.workers[w].pending.pop_front() {
                if server.requests[next].place == place {
                    server.serve(w, next, at_ns);
                    break;
                }
            }
        }
        server.recount(w, at_ns);
        if server.workers[w].outstanding == 0 {
            server.workers[w].busy_period = server.workers[w].busy_period.wrapping_add(1);
            server.is_idle(w, at_ns);
        }
    }

    /// Computes the account of a request, and gives it to `sink` if the request is measured.
    fn give_account(&mut self, id: RequestId, sink: &mut impl FnMut(&Entry<'_>, &Labels)) {
        let LedgerOptions {
            service_time,
            after_response,
            ..
        } = self.options;
        let alone_ns = service_time.saturating_sub(after_response).get();
        let (case, labels) = case(&mut self.server, id, &self.resent, alone_ns);
        draw_up(&case, &self.fixed, labels, &mut self.account);
        let request = case.request;
        if !request.measured {
            return;
        }
        let entry = Entry {
            place: request.place,
            stamps: request.stamps,
            port: request.port,
            command: request.command,
            worker: request.tid,
            asked: request.asked,
            slice: request.slice.map(|(number, _)| number),
            left_late: (request.slice).is_some_and(|(_, slice)| request.stamps.t6 > slice.to),
            carried_over: (request.slice)
                .is_some_and(|(_, slice)| request.busy_since_ns < slice.from.nanos_since_boot()),
            sojourn_ns: request.sojourn_ns(),
            ideal_ns: case.ideal_ns,
            own_queue_ideal_ns: request.waits.own_queue_ns + alone_ns,
            gain_ns: case.ideal_ns.saturating_sub(request.sojourn_ns()),
            own_ns: request.used_ns + request.over_ns,
            own_slow_ns: request.slow_ns,
            parts: &self.account.parts,
            excess: &self.account.excess,
            overtaken_by: request.overtaken_by.filter(|_| !request.is_away()),
            pieces: &self.account.pieces,
        };
        sink(&entry, labels);
    }
}

/// What is known about a request at its T6. `alone_ns` is its ideal sojourn without a wait.
fn case<'s>(
    server: &'s mut ServerState,
    id: RequestId,
    resent: &Resent,
    alone_ns: u64,
) -> (Case<'s>, &'s mut Labels) {
    let worker = server.requests[id].worker;
    let slow_service = worker.map(|w| server.slow_service(w));
    let behind = worker.and_then(|w| {
        let now_ns = server.behind_ns(w);
        let label = (now_ns > server.requests[id].behind_ns).then(|| server.behind_others(w));
        Some(SiblingWaits {
            label: label??,
            now_ns,
        })
    });
    let request = &server.requests[id];
    let case = Case {
        request,
        id,
        served_by: worker
            .zip(slow_service)
            .map(|(w, slow_service)| ServingWorker {
                worker: &server.workers[w],
                place: w,
                cpus: &server.histories,
                slow_service,
                behind,
                has_others: server.workers.len() > 1,
                common: server.workers[w].queue.map(|queue| &server.common[queue]),
            }),
        resent: resent.within(request.connection, request.t1_ns, request.left_ns()),
        ideal_ns: request.waits.ideal_ns + alone_ns,
        service_ns: server.baseline.service_ns,
        receive_ns: server.baseline.receive_ns,
    };
    (case, &mut server.ledger.labels)
}

#[cfg(test)]
mod tests;
