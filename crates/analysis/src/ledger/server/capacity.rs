//! Queues that several workers share: who could take a request that waits, and since when a worker is free for it.

use std::num::NonZeroU32;
use std::ops::Range;

use taillab_model::explanation::Cause;

use super::ServerState;
use crate::ledger::common::{CommonQueue, FreeWorker, WorkDone};
use crate::ledger::events::RequestId;
use crate::ledger::label::{CulpritId, Label};
use crate::ledger::lengths::scaled;
use crate::timeline::{NET_RX, WorkerState};

impl ServerState {
    /// Worker `w` belongs to the queue with this number in [`SharedQueues`](crate::ledger::SharedQueues), if it
    /// shares one.
    pub(super) fn joins(&mut self, w: usize, number: Option<u32>) {
        // where only one can work at a time, the queue's history is that of the CPU
        let Some(number) = number.filter(|_| self.servers > NonZeroU32::MIN) else {
            return;
        };
        let known = self.numbers.iter().position(|other| *other == number);
        let queue = known.unwrap_or_else(|| {
            let (t, workers) = (self.service_time, self.queues.workers_of(number));
            self.numbers.push(number);
            self.common.push(CommonQueue::new(t, workers, self.servers));
            self.common.len() - 1
        });
        self.common[queue].workers.push(w);
        self.workers[w].queue = Some(queue);
    }

    /// Charges the time of all workers of a shared queue that have requests or could take one.
    fn settle_all(&mut self, queue: usize, at_ns: u64) {
        for place in 0..self.common[queue].workers.len() {
            let w = self.common[queue].workers[place];
            if self.workers[w].is_followed() {
                self.settle(w, at_ns);
            }
        }
    }

    /// A request of a shared queue comes to it at the start of its wait, and is begun at the end.
    pub(in crate::ledger) fn comes_to(&mut self, queue: usize, id: RequestId, wait: Range<u64>) {
        let (at_ns, begin_ns) = (wait.start, wait.end);
        self.settle_all(queue, at_ns);
        let done = self.done(queue);
        // the stack lists the latest first
        let mut usual_ns = (2 * self.baseline.stack_ns).max(self.baseline.receive_ns);
        let stack = self.requests[id].stack.iter();
        let labels = &self.ledger.labels;
        let held_up = stack.filter_map(|&(label, ns)| {
            let usual = ns.min(usual_ns);
            usual_ns -= usual;
            // receiving the packets before it is work that is done early
            let received = CulpritId::Softirq(NET_RX) == labels.who(label);
            let is_work = received || labels.cause(label) == Cause::StackRx;
            (!is_work).then_some((label, ns - usual))
        });
        let (wait, turn) = self.common[queue].comes(at_ns, &done, held_up);
        let request = &mut self.requests[id];
        (request.common, request.turn) = (Some(wait), turn);
        let waits_until_ns = &mut self.common[queue].waits_until_ns;
        *waits_until_ns = begin_ns.max(*waits_until_ns);
        self.lend(queue, at_ns);
    }

    /// What the workers of a queue have done for the requests that they serve.
    fn done(&self, queue: usize) -> WorkDone {
        let service_ns = self.baseline.service_ns.max(1);
        let t = self.service_time.get();
        let mut done = WorkDone::default();
        for &w in &self.common[queue].workers {
            let worker = &self.workers[w];
            if let Some(serving) = worker.serving {
                let request = &self.requests[serving];
                let used_ns = request.used_ns.min(service_ns);
                done.work_ns += scaled(used_ns, t, service_ns);
                let now = worker.history.end(&self.histories);
                done.received_ns += now.since(request.begin).received_ns;
            }
        }
        done
    }

    /// Requests wait in a queue: its workers that have none could take one. They are followed from now on, if
    /// they are awake before the requests are begun.
    pub(super) fn lend(&mut self, queue: usize, at_ns: u64) {
        let until_ns = self.common[queue].waits_until_ns;
        for place in 0..self.common[queue].workers.len() {
            let w = self.common[queue].workers[place];
            if self.workers[w].is_followed() {
                continue;
            }
            self.skim(w, at_ns);
            let worker = &mut self.workers[w];
            let awake_ns = match worker.state {
                WorkerState::Asleep(_) | WorkerState::Unknown => worker.until_ns,
                _ => at_ns,
            };
            if awake_ns < until_ns {
                worker.lent = true;
                worker.busy_period = worker.busy_period.wrapping_add(1);
                worker.history.forget();
                self.workers[w].own = self.label(Cause::Wakeup, CulpritId::Nobody);
                self.enter_state(w, at_ns);
            }
        }
    }

    /// Worker `w` has answered a request of a shared queue, and has no other one.
    pub(in crate::ledger) fn is_idle(&mut self, w: usize, at_ns: u64) {
        if let Some(queue) = self.workers[w].queue
            && self.common[queue].waiting > 0
        {
            self.lend(queue, at_ns);
        }
    }

    /// A request of a shared queue is begun. When none waits any more, nobody could take one.
    pub(in crate::ledger) fn leaves(&mut self, queue: usize, at_ns: u64) {
        let common = &mut self.common[queue];
        common.waiting = common.waiting.saturating_sub(1);
        if common.waiting > 0 {
            return;
        }
        common.waits_until_ns = 0;
        for place in 0..self.common[queue].workers.len() {
            let w = self.common[queue].workers[place];
            if self.workers[w].lent {
                self.settle(w, at_ns);
                self.takes_back(w);
                self.recount(w, at_ns);
            }
        }
    }

    /// Worker `w` is no longer lent.
    pub(in crate::ledger) fn takes_back(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        worker.lent = false;
        worker.busy_period = worker.busy_period.wrapping_add(1);
    }

    /// Worker `w`, which shares `queue`, is free for a request from now on.
    pub(in crate::ledger) fn is_free(&mut self, w: usize, queue: usize, at_ns: u64) -> FreeWorker {
        self.settle_all(queue, at_ns);
        let behind_ns = self.behind_ns(w);
        let worker = &self.workers[w];
        FreeWorker {
            at_ns,
            position: worker.history.end(&self.histories),
            behind_ns,
            traced: worker.trace.end(),
            lost: self.common[queue].lost(),
        }
    }

    /// Worker `w` begins to serve a request of a shared queue: what it met before it was free for it is the queue's.
    pub(super) fn wait_ends(&mut self, w: usize, id: RequestId) {
        let worker = &self.workers[w];
        let request = &mut self.requests[id];
        let Some(common) = &mut request.common else {
            return;
        };
        let queued_ns = request.queued_ns;
        let since = if worker.free.at_ns > queued_ns {
            worker.free
        } else if common.went_elsewhere(&worker.woken, queued_ns) {
            worker.woken
        } else {
            return;
        };
        common.ends(&since, queued_ns);
        request.begin = since.position;
        request.behind_ns = since.behind_ns;
        if let Some(late) = &mut request.late {
            common.order_ns = since.at_ns.saturating_sub(late.since_ns);
            late.since_ns = since.at_ns.max(late.since_ns);
            late.since = since.position;
            late.behind_ns = since.behind_ns;
        }
        if let Some(traced) = &mut request.traced {
            traced.is_free(since.traced);
        }
    }

    /// A worker of a shared queue is on another CPU from `at_ns` on, or waits for another one; with whether it is lent.
    pub(super) fn move_capacity(
        &mut self,
        queue: Option<usize>,
        was: Option<(usize, bool)>,
        now: Option<(usize, bool)>,
        at_ns: u64,
    ) {
        let Some(queue) = queue else {
            return;
        };
        for (place, comes) in [(was, false), (now, true)] {
            if let Some((k, lent)) = place {
                self.change(Some(k), at_ns, |cpu| cpu.count(queue, lent, comes));
            }
        }
    }

    /// A delay of `length` on CPU `k` is lost to the queues whose workers are there.
    #[inline]
    pub(super) fn lose(&mut self, k: usize, label: Label, length: u64) {
        for capacity in &self.cpus[k].capacities {
            self.common[capacity.queue].loses(label, length, capacity);
        }
    }
}
