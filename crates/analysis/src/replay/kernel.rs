//! Replays the queue: one pass over the requests for each change.
//!
//! A queue with vacations by source, work before and after the response, wake-ups of idle servers, and the
//! measured order. A request takes tens of nanoseconds, so a dozen forecasts are affordable. Property tests
//! compare it with the queue by its definition.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::change::{Change, Order, Sharing};
use super::observed::{Job, Observed};
use super::pool::Pool;
use super::vacations::{Cursor, Limits, Vacations};

/// Replays all requests; `done` gets each of them, in no particular order, with the time of its response.
pub(crate) fn replay(observed: &Observed, change: &Change, mut done: impl FnMut(usize, u64)) {
    let usual = change.usual_speed.then(|| observed.at_usual_speed());
    let observed = usual.as_ref().unwrap_or(observed);
    if let Some((earlier, order)) = observed.earlier(change) {
        return queue(&earlier, change, |i, at| done(order[i] as usize, at));
    }
    queue(observed, change, done);
}

fn queue(observed: &Observed, change: &Change, done: impl FnMut(usize, u64)) {
    if observed.workers_share_servers() {
        return Pool::new(observed, change, done).run();
    }
    let mut queue = SingleQueue {
        requests: &observed.requests,
        observed,
        change,
        keeps_awake: observed.sources.iter().map(|s| s.keeps_awake()).collect(),
        done,
    };
    let all = servers(&observed.vacations, change.fewer_servers);
    match (change.discipline.sharing, change.discipline.order) {
        (Sharing::Assigned, Order::Arrival | Order::ByWorker) => queue.assigned_in_order(all),
        (Sharing::Assigned, Order::Batches) => queue.batches(all),
        (Sharing::Assigned, Order::AsMeasured) => queue.assigned::<false>(all),
        (Sharing::Assigned, Order::AsMeasuredPreemptive) => queue.assigned::<true>(all),
        (Sharing::Shared, _) => queue.shared(all),
    }
}

/// A server of the queue.
#[derive(Debug)]
struct QueueServer<'a> {
    vacations: &'a Vacations,
    cursor: Cursor,
    /// When it has finished what it has begun.
    free_ns: u64,
    /// Waiting requests: rank, request, remaining work.
    waiting: BinaryHeap<Reverse<(u32, u32, u64)>>,
    /// The request in service, if it can be preempted.
    running: Option<InService>,
}

impl QueueServer<'_> {
    /// When this work is done, which may begin at `from_ns`.
    #[inline]
    fn finish(&mut self, limits: &Limits, from_ns: u64, work_ns: u64) -> u64 {
        let vacations = self.vacations;
        vacations.finish(&mut self.cursor, limits, from_ns, work_ns)
    }
}

/// A request in service that can be preempted.
#[derive(Clone, Copy, Debug)]
struct InService {
    i: usize,
    rank: u32,
    since_ns: u64,
    /// The work that was left at `since_ns`.
    left_ns: u64,
    until_ns: u64,
}

/// When a request is over.
#[derive(Clone, Copy, Debug)]
struct RequestEnd {
    /// The response leaves.
    departure_ns: u64,
    /// The worker continues.
    free_ns: u64,
}

/// The servers of the queue without `fewer` of them; at least one remains.
fn servers(vacations: &[Vacations], fewer: usize) -> Vec<QueueServer<'_>> {
    let number = vacations.len().saturating_sub(fewer).max(1);
    let server = |vacations| QueueServer {
        vacations,
        cursor: Cursor::default(),
        free_ns: 0,
        waiting: BinaryHeap::new(),
        running: None,
    };
    vacations[..number].iter().map(server).collect()
}

struct SingleQueue<'a, F> {
    requests: &'a [Job],
    observed: &'a Observed,
    change: &'a Change,
    keeps_awake: Vec<bool>,
    done: F,
}

impl<F: FnMut(usize, u64)> SingleQueue<'_, F> {
    /// When request `i` begins (at its arrival if the server is idle), and its work with the wake-up.
    fn begin(&self, i: usize, server: &mut QueueServer<'_>) -> (u64, u64) {
        let arrival = self.requests[i].arrival_ns;
        let before = self.before_ns(i);
        if server.free_ns >= arrival {
            (server.free_ns, before)
        } else {
            let wake = self.wake_ns(i, server);
            (arrival, before + wake)
        }
    }

    fn wake_ns(&self, i: usize, server: &mut QueueServer<'_>) -> u64 {
        let at = (server.vacations, &mut server.cursor);
        (self.observed).wake_ns(self.change, &self.keeps_awake, i, at, server.free_ns)
    }

    fn before_ns(&self, i: usize) -> u64 {
        self.requests[i].before_ns(self.change)
    }

    /// The server that serves request `i` in an assigned queue.
    fn server(&self, i: usize, servers: &[QueueServer<'_>]) -> usize {
        let own = usize::from(self.requests[i].server);
        if own < servers.len() {
            own
        } else {
            own % servers.len()
        }
    }

    fn blocked_ns(&self, i: usize) -> u64 {
        self.requests[i].blocked_ns(self.change)
    }

    /// When the response to request `i` leaves whose work is done at `at_ns`, and when its worker continues.
    fn completion(&self, i: usize, at_ns: u64) -> RequestEnd {
        let departure = at_ns + self.blocked_ns(i);
        let free = match self.requests[i].is_sent_late() {
            true => at_ns,
            false => departure,
        };
        RequestEnd {
            departure_ns: departure,
            free_ns: free,
        }
    }

    /// The work for request `i` is done at `at_ns`: it leaves, and the server continues.
    fn complete(&mut self, i: usize, at_ns: u64, server: &mut QueueServer<'_>) {
        let end = self.completion(i, at_ns);
        self.leaves(i, end, server);
    }

    /// The response to request `i` leaves, and its worker continues.
    fn leaves(&mut self, i: usize, end: RequestEnd, server: &mut QueueServer<'_>) {
        (self.done)(i, end.departure_ns);
        let after = self.requests[i].after_ns;
        server.free_ns = match after {
            0 => end.free_ns,
            after => server.finish(&self.change.limits, end.free_ns, after),
        };
    }

    /// Serves request `i` without interruption.
    fn serve(&mut self, i: usize, start: u64, work: u64, server: &mut QueueServer<'_>) {
        let rest = self.requests[i].rest_ns(self.change);
        let at = server.finish(&self.change.limits, start, work - rest);
        if rest == 0 {
            return self.complete(i, at, server);
        }
        let awake = at + self.blocked_ns(i);
        let departure = server.finish(&self.change.limits, awake, rest);
        let end = RequestEnd {
            departure_ns: departure,
            free_ns: departure,
        };
        self.leaves(i, end, server);
    }

    fn assigned_in_order(&mut self, mut servers: Vec<QueueServer<'_>>) {
        for i in 0..self.requests.len() {
            let place = self.server(i, &servers);
            let server = &mut servers[place];
            let (start, work) = self.begin(i, server);
            self.serve(i, start, work, server);
        }
    }

    fn assigned<const PREEMPT: bool>(&mut self, mut servers: Vec<QueueServer<'_>>) {
        for i in 0..self.requests.len() {
            let arrival = self.requests[i].arrival_ns;
            let place = self.server(i, &servers);
            let server = &mut servers[place];
            self.advance::<PREEMPT>(server, arrival);
            // a request that has waited until now may go first
            let rank = self.requests[i].rank;
            if let Some(running) = server
                .running
                .filter(|running| PREEMPT && rank < running.rank)
            {
                let limits = &self.change.limits;
                let did =
                    server
                        .vacations
                        .available(server.cursor, limits, running.since_ns, arrival);
                let left = running.left_ns.saturating_sub(did);
                let back = (running.rank, running.i as u32, left);
                server.waiting.push(Reverse(back));
                server.running = None;
                server.free_ns = arrival;
            }
            if server.running.is_none() && server.waiting.is_empty() && server.free_ns <= arrival {
                let (start, work) = self.begin(i, server);
                self.start::<PREEMPT>(i, start, work, server);
            } else {
                let waits = (rank, i as u32, self.before_ns(i));
                server.waiting.push(Reverse(waits));
            }
        }
        for server in &mut servers {
            self.advance::<PREEMPT>(server, u64::MAX);
        }
    }

    fn start<const PREEMPT: bool>(
        &mut self,
        i: usize,
        start: u64,
        work: u64,
        server: &mut QueueServer<'_>,
    ) {
        if !PREEMPT {
            return self.serve(i, start, work, server);
        }
        let mut cursor = server.cursor;
        let limits = &self.change.limits;
        let until_ns = server.vacations.finish(&mut cursor, limits, start, work);
        server.running = Some(InService {
            i,
            rank: self.requests[i].rank,
            since_ns: start,
            left_ns: work,
            until_ns,
        });
    }

    /// Lets a server work until `now_ns`: it serves every waiting request that it can begin before then.
    fn advance<const PREEMPT: bool>(&mut self, server: &mut QueueServer<'_>, now_ns: u64) {
        loop {
            if let Some(running) = server.running {
                if running.until_ns > now_ns {
                    return;
                }
                server.running = None;
                // the cursor is still where the work began
                let (since, left) = (running.since_ns, running.left_ns);
                let at = server.finish(&self.change.limits, since, left);
                self.complete(running.i, at, server);
            }
            // at `now_ns` itself, the new arrival may go first
            let free = server.free_ns;
            if free >= now_ns {
                return;
            }
            let Some(Reverse((_, i, left))) = server.waiting.pop() else {
                return;
            };
            self.start::<PREEMPT>(i as usize, free, left, server);
        }
    }

    fn batches(&mut self, mut servers: Vec<QueueServer<'_>>) {
        let mut waiting: Vec<Vec<u32>> = vec![Vec::new(); servers.len()];
        // when each server next reads all that waits
        let mut looks = vec![0_u64; servers.len()];
        for i in 0..self.requests.len() {
            let arrival = self.requests[i].arrival_ns;
            let place = self.server(i, &servers);
            let server = &mut servers[place];
            let batch = &mut waiting[place];
            if !batch.is_empty() && looks[place] < arrival {
                self.batch(batch, looks[place], server);
            }
            if batch.is_empty() {
                looks[place] = if server.free_ns >= arrival {
                    server.free_ns
                } else {
                    let wake = self.wake_ns(i, server);
                    server.finish(&self.change.limits, arrival, wake)
                };
            }
            batch.push(i as u32);
        }
        for (place, batch) in waiting.iter_mut().enumerate() {
            self.batch(batch, looks[place], &mut servers[place]);
        }
    }

    /// Serves a batch from `now_ns` on, and empties it.
    fn batch(&mut self, batch: &mut Vec<u32>, now_ns: u64, server: &mut QueueServer<'_>) {
        let compute = |i: &u32| {
            let i = *i as usize;
            let work_limit = self.requests[i].work_limit_ns(self.change);
            let reply = self.requests[i].reply_ns.min(work_limit);
            self.requests[i].compute_ns.min(work_limit - reply)
        };
        let work = batch.iter().map(compute).sum();
        server.free_ns = server.finish(&self.change.limits, now_ns, work);
        batch.sort_unstable_by_key(|&i| self.requests[i as usize].rank);
        let last = batch.len().saturating_sub(1);
        for (place, i) in batch.drain(..).enumerate() {
            let i = i as usize;
            let work_limit = self.requests[i].work_limit_ns(self.change);
            let reply = self.requests[i].reply_ns.min(work_limit);
            let at = server.finish(&self.change.limits, server.free_ns, reply);
            if place == last {
                self.complete(i, at, server);
            } else {
                let end = self.completion(i, at);
                (self.done)(i, end.departure_ns);
                server.free_ns = end.free_ns;
            }
        }
    }

    fn shared(&mut self, mut servers: Vec<QueueServer<'_>>) {
        let mut waiting: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
        for i in 0..self.requests.len() {
            let arrival = self.requests[i].arrival_ns;
            self.drain(&mut servers, &mut waiting, arrival);
            let own = usize::from(self.requests[i].server);
            let idle = |server: &QueueServer<'_>| server.free_ns <= arrival;
            let chosen = match servers.get(own) {
                _ if !waiting.is_empty() => None,
                Some(server) if idle(server) => Some(own),
                _ => servers.iter().position(idle),
            };
            match chosen {
                Some(place) => {
                    let server = &mut servers[place];
                    let (start, work) = self.begin(i, server);
                    self.serve(i, start, work, server);
                }
                None => {
                    let rank = self.requests[i].rank(i, self.change);
                    waiting.push(Reverse((rank, i as u32)));
                }
            }
        }
        self.drain(&mut servers, &mut waiting, u64::MAX);
    }

    /// Lets the servers work until `now_ns`.
    fn drain(
        &mut self,
        servers: &mut [QueueServer<'_>],
        waiting: &mut BinaryHeap<Reverse<(u32, u32)>>,
        now_ns: u64,
    ) {
        while !waiting.is_empty() {
            let Some(server) = servers.iter_mut().min_by_key(|server| server.free_ns) else {
                return;
            };
            if server.free_ns >= now_ns {
                return;
            }
            if let Some(Reverse((_, i))) = waiting.pop() {
                let (start, work) = (server.free_ns, self.before_ns(i as usize));
                self.serve(i as usize, start, work, server);
            }
        }
    }
}
