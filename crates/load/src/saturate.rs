//! The closed loop: a fixed number of requests in flight, as fast as the server answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use taillab_model::summary::LoadErrors;
use taillab_model::{Monotonic, Nanos, Outcome};

use crate::LoadError;
use crate::client::{Client, ReceiveOutcome, ReleasedRequest, Sending, Traits};
use crate::clock::{now, thread_cpu_time};
use crate::engine::{Hooks, Progress, SEND_AGAIN, STOP_CHECK, StopReason};
use crate::protocol::Planned;
use crate::transport::NotSent;

/// Requests drawn in advance; after the last one they begin again.
const PLAN: usize = 1 << 16;

/// Rows reserved, from the oldest request that waits to the newest: well above those in flight.
const ROWS: usize = 1 << 14;

/// The most rows: more requests than a thread sends until it gives one up, so that no other request
/// waits for a lost one.
const MOST_ROWS: usize = 1 << 22;

/// Requests given up that are remembered, so that their late answers are known.
const GIVEN_UP: usize = 1 << 16;

/// A request that is unanswered for this many times the mean time of the last answers is given up and replaced. If
/// the times are exponential, one in 3,000 is longer. Until the first answer, the time-out holds.
const GIVE_UP_MEANS: u64 = 8;

/// But it is not given up earlier than this; where nothing is lost, only delayed by a slow server, not before its
/// time-out.
const GIVE_UP: Nanos = Nanos::from_millis(20);

/// Nor later than this, or than its time-out. Those in flight wait for one another, so each may take much longer
/// than the server works on it.
const GIVE_UP_AT_LAST: Nanos = Nanos::from_secs(60);

/// The weight of each answer in the mean is one in this many.
const MEAN_OF: u64 = 8;

/// If this thread did not run for this long, answers may have piled up in the sockets.
const STALL: Nanos = Nanos::from_millis(5);

/// Looks after a stall before a request is given up: enough to see all connections.
const LOOKS_AFTER_STALL: u32 = 256;

/// The idle hook is called at least this often, however busy the loop is.
const HOOK_PERIOD: Nanos = Nanos::from_micros(200);

/// How to saturate a server.
#[derive(Debug)]
pub struct ClosedLoop<'a> {
    /// Requests in flight.
    pub outstanding: usize,
    /// How long to count answers.
    pub length: Nanos,
    /// How long to run before that without counting.
    pub warm_up: Nanos,
    /// Seed of the operations and keys.
    pub seed: u64,
    /// How long to wait for an answer as long as none is known to take longer.
    pub timeout: Nanos,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
    /// Its progress, for other threads.
    pub progress: &'a Progress,
}

impl ClosedLoop<'_> {
    /// The default of [`ClosedLoop::outstanding`] for few workers and threads: deep enough that the
    /// server never waits, shallow enough that no socket buffer overflows.
    pub const OUTSTANDING: usize = 32;

    /// The most requests in flight.
    pub const MAX_OUTSTANDING: usize = ROWS / 4;

    /// Requests in flight for each of many workers or threads. If each has its own queue, one in 3,000
    /// queues is empty.
    const OUTSTANDING_EACH: usize = 8;

    /// Requests in flight that keep this number of workers or threads busy.
    pub fn outstanding_for(number: usize) -> usize {
        let for_all = number.saturating_mul(Self::OUTSTANDING_EACH);
        for_all.clamp(Self::OUTSTANDING, Self::MAX_OUTSTANDING)
    }
}

/// The result of a closed loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saturation {
    /// Answers received while counting, errors included.
    pub responses: u64,
    /// How long answers were counted.
    pub elapsed: Nanos,
    /// From send to answer, for the first [`Saturation::MAX_TIMES`] answers counted, in
    /// order of the answers; of a fleet, one thread after the other.
    pub times: Vec<Nanos>,
    /// Errors while counting, by kind.
    pub errors: LoadErrors,
    /// Share of the counted time in which the client waited for an answer, without the hook's
    /// time. Near 0, the client may be the limit and not the server.
    pub idle_share: f64,
    /// Share of the counted time in which the client's thread had its CPU. It never sleeps, so the rest went
    /// to other threads.
    pub cpu_share: f64,
    /// Why it ended early; `None` if it did not.
    pub stopped: Option<StopReason>,
}

impl Saturation {
    /// How many times each thread keeps at most: enough for every quantile.
    pub const MAX_TIMES: usize = 1 << 22;

    /// Answers per second; 0 when nothing was counted.
    pub fn rate_per_s(&self) -> f64 {
        if self.elapsed == Nanos::ZERO {
            return 0.0;
        }
        self.responses as f64 / self.elapsed.as_secs_f64()
    }
}

/// Keeps a fixed number of requests in flight for a given time.
///
/// # Errors
/// [`LoadError::Outstanding`]. Failed requests are counted.
pub fn saturate<C: Client, H: Hooks>(
    client: &mut C,
    load: &ClosedLoop<'_>,
    hooks: &mut H,
) -> Result<Saturation, LoadError> {
    saturate_from(client, load, hooks, now)
}

/// [`saturate()`] that begins at the time that `start` returns; `start` is called when everything is
/// prepared.
pub(crate) fn saturate_from<C: Client, H: Hooks>(
    client: &mut C,
    load: &ClosedLoop<'_>,
    hooks: &mut H,
    start: impl FnOnce() -> Monotonic,
) -> Result<Saturation, LoadError> {
    if load.outstanding == 0 || load.outstanding > ClosedLoop::MAX_OUTSTANDING {
        return Err(LoadError::Outstanding {
            outstanding: load.outstanding,
            max: ClosedLoop::MAX_OUTSTANDING,
        });
    }
    let plan = client.planner().plan(PLAN, load.seed);
    // those in flight wait for one another: this loop decides when one is given up
    client.be_patient(GIVE_UP_AT_LAST.max(load.timeout));
    client.begin(0, Sending::Answered { seed: load.seed });
    let run = Loop {
        flight: Flight::new(plan, client.traits(), load.timeout),
        client,
        refused: false,
        errors: LoadErrors::default(),
        responses: 0,
        idle: Nanos::ZERO,
        // reserved, not touched: a short run needs little of it
        times: Vec::with_capacity(Saturation::MAX_TIMES),
        send_from: Monotonic::from_nanos_since_boot(0),
        last_answer: Monotonic::from_nanos_since_boot(0),
    };
    Ok(run.spin(load, hooks, start()))
}

/// In [`Flight::sent_ns`]: the request does not wait for an answer.
const IDLE: u64 = u64::MAX;

/// The requests in flight.
struct Flight {
    plan: Vec<Planned>,
    /// Number of the oldest request that waits, or of the next one.
    oldest: usize,
    /// When each request from the oldest on was sent, or [`IDLE`].
    sent_ns: VecDeque<u64>,
    /// The most of them.
    most: usize,
    count: usize,
    /// No request is given up earlier, or later.
    bounds: (Nanos, Nanos),
    /// The mean time of the last answers that came in time; 0 before the first.
    mean_ns: u64,
    /// A request that has waited for longer is given up.
    give_up: Nanos,
    /// Requests given up whose answers may still come, in ascending order.
    given_up: VecDeque<usize>,
}

impl Flight {
    fn new(plan: Vec<Planned>, traits: Traits, timeout: Nanos) -> Self {
        let least = if traits.is_lossy {
            GIVE_UP.min(timeout)
        } else {
            timeout
        };
        Self {
            plan,
            oldest: 0,
            sent_ns: VecDeque::with_capacity(ROWS),
            // of two requests with one key, only the newer one could have an answer
            most: MOST_ROWS.min(traits.key_period),
            count: 0,
            bounds: (least, GIVE_UP_AT_LAST.max(timeout)),
            mean_ns: 0,
            give_up: timeout,
            given_up: VecDeque::new(),
        }
    }

    /// Number of the next request.
    #[inline]
    fn next(&self) -> usize {
        self.oldest + self.sent_ns.len()
    }

    #[inline]
    fn planned(&self, k: usize) -> Planned {
        self.plan[k % PLAN]
    }

    /// Whether a request waits for its answer and was not given up.
    #[inline]
    fn waits(&self, k: usize) -> bool {
        let row = k.checked_sub(self.oldest);
        row.and_then(|row| self.sent_ns.get(row))
            .is_some_and(|&sent_ns| sent_ns != IDLE)
    }

    /// What a request asked for whose answer may come, in time or late.
    #[inline]
    fn outstanding(&self, k: usize) -> Option<Planned> {
        let may_come = self.waits(k) || self.given_up.binary_search(&k).is_ok();
        may_come.then(|| self.planned(k))
    }

    /// Whether another request may be sent.
    #[inline]
    fn has_room(&self, outstanding: usize) -> bool {
        self.count < outstanding && self.sent_ns.len() < self.most
    }

    #[inline]
    fn sent(&mut self, at: Monotonic) {
        self.sent_ns.push_back(at.nanos_since_boot());
        self.count += 1;
    }

    #[inline]
    fn not_sent(&mut self) {
        self.sent_ns.push_back(IDLE);
        self.skip_done();
    }

    /// How long a request that waits has waited for its answer.
    #[inline]
    fn waited(&self, k: usize, at: Monotonic) -> Nanos {
        let sent_ns = self.sent_ns[k - self.oldest];
        at.saturating_since(Monotonic::from_nanos_since_boot(sent_ns))
    }

    /// A request that waits has ended.
    #[inline]
    fn done(&mut self, k: usize) {
        self.sent_ns[k - self.oldest] = IDLE;
        self.count -= 1;
        self.skip_done();
    }

    #[inline]
    fn skip_done(&mut self) {
        while self.sent_ns.front() == Some(&IDLE) {
            self.sent_ns.pop_front();
            self.oldest += 1;
        }
    }

    /// Learns how long answers take, from one that came in time. A late one says nothing: while the
    /// server pauses, requests pile up there that were given up.
    #[inline]
    fn learn(&mut self, took: Nanos) {
        let took_ns = took.get();
        self.mean_ns = match self.mean_ns {
            0 => took_ns,
            mean_ns => mean_ns - mean_ns / MEAN_OF + took_ns / MEAN_OF,
        };
        let give_up = Nanos::new(self.mean_ns.saturating_mul(GIVE_UP_MEANS));
        let (least, most) = self.bounds;
        self.give_up = give_up.clamp(least, most);
    }

    /// Gives up the oldest request if it has waited too long.
    #[inline]
    fn give_up(&mut self, now: Monotonic) -> bool {
        let oldest = self.oldest;
        let lost = self.waits(oldest) && self.waited(oldest, now) > self.give_up;
        if lost {
            if self.given_up.len() == GIVEN_UP {
                self.given_up.pop_front();
            }
            self.given_up.push_back(oldest);
            self.done(oldest);
        }
        lost
    }

    /// The answer to a request that was given up has come.
    #[cold]
    fn came_late(&mut self, k: usize) {
        if let Ok(at) = self.given_up.binary_search(&k) {
            self.given_up.remove(at);
        }
    }
}

struct Loop<'a, C> {
    client: &'a mut C,
    flight: Flight,
    refused: bool,
    errors: LoadErrors,
    responses: u64,
    idle: Nanos,
    times: Vec<Nanos>,
    /// Nothing is sent before this time.
    send_from: Monotonic,
    last_answer: Monotonic,
}

/// When answers are counted.
struct Counting {
    warm_until: Monotonic,
    from: Monotonic,
    end: Monotonic,
    /// The warm-up is over.
    warm: bool,
    /// Answers of the warm-up.
    uncounted: u64,
    /// CPU time of this thread until answers count.
    cpu_before: Nanos,
}

impl Counting {
    fn new(load: &ClosedLoop<'_>, at: Monotonic) -> Self {
        let warm_until = at + load.warm_up;
        Self {
            warm_until,
            from: at,
            end: warm_until + load.length,
            warm: load.warm_up == Nanos::ZERO,
            uncounted: 0,
            cpu_before: thread_cpu_time(),
        }
    }
}

impl<C: Client> Loop<'_, C> {
    fn spin<H: Hooks>(
        mut self,
        load: &ClosedLoop<'_>,
        hooks: &mut H,
        start: Monotonic,
    ) -> Saturation {
        load.progress.restart();
        let mut at = now();
        while at < start {
            at = now();
        }
        let mut counting = Counting::new(load, at);
        let mut previous = at;
        let mut looks_to_go = 0_u32;
        let mut hook_due = at;
        let mut stop_check = at + STOP_CHECK;
        self.last_answer = at;
        let mut stopped = None;
        while at < counting.end || !counting.warm {
            if at.saturating_since(previous) > STALL {
                looks_to_go = LOOKS_AFTER_STALL;
            }
            previous = at;
            if !counting.warm && at >= counting.warm_until {
                self.begin_counting(&mut counting, at, load.length);
            }
            if at >= stop_check {
                stop_check = at + STOP_CHECK;
                stopped = self.reason_to_stop(load, hooks, at);
                if stopped.is_some() {
                    break;
                }
            }
            if at >= hook_due {
                hooks.idle(HOOK_PERIOD);
                at = now();
                hook_due = at + HOOK_PERIOD;
            }
            if self.flight.has_room(load.outstanding) && at >= self.send_from {
                self.send(at);
                load.progress.set_sent(self.flight.next());
                at = now();
                continue;
            }
            let began = at;
            looks_to_go = looks_to_go.saturating_sub(1);
            if let Some(then) = self.look() {
                at = then;
                load.progress.set_received(self.responses as usize);
                continue;
            }
            at = now();
            self.idle += at.saturating_since(began);
            if looks_to_go == 0 && self.flight.give_up(at) {
                self.errors.timeouts += 1;
            }
            // An empty look: the server is busy, and nothing waits for this thread.
            self.client.tend(Nanos::MAX);
            hooks.idle(HOOK_PERIOD);
            at = now();
            hook_due = at + HOOK_PERIOD;
        }
        self.counted(&counting, at, stopped)
    }

    /// Ends the warm-up.
    #[cold]
    fn begin_counting(&mut self, counting: &mut Counting, at: Monotonic, length: Nanos) {
        counting.warm = true;
        counting.from = at;
        counting.end = at + length;
        counting.uncounted = self.responses;
        counting.cpu_before = thread_cpu_time();
        self.errors = LoadErrors::default();
        self.idle = Nanos::ZERO;
        self.times.clear();
    }

    #[cold]
    fn reason_to_stop<H: Hooks>(
        &self,
        load: &ClosedLoop<'_>,
        hooks: &mut H,
        at: Monotonic,
    ) -> Option<StopReason> {
        if load.stop.load(Relaxed) {
            Some(StopReason::Interrupted)
        } else if hooks.should_stop() {
            Some(StopReason::Hook)
        } else {
            let silent_for = at.saturating_since(self.last_answer);
            (self.refused && silent_for > GIVE_UP * 10).then_some(StopReason::Refused)
        }
    }

    /// The result at `at`; nothing is counted if the warm-up was not over.
    fn counted(
        self,
        counting: &Counting,
        at: Monotonic,
        stopped: Option<StopReason>,
    ) -> Saturation {
        if !counting.warm {
            return Saturation {
                stopped,
                ..Saturation::default()
            };
        }
        let elapsed = at.saturating_since(counting.from);
        let share = |part: Nanos| part.get() as f64 / elapsed.get().max(1) as f64;
        let had_cpu = thread_cpu_time().saturating_sub(counting.cpu_before);
        Saturation {
            responses: self.responses - counting.uncounted,
            elapsed,
            times: self.times,
            errors: self.errors,
            idle_share: share(self.idle),
            cpu_share: share(had_cpu).min(1.0),
            stopped,
        }
    }

    #[inline]
    fn send(&mut self, at: Monotonic) {
        let what = self.flight.planned(self.flight.next());
        match self.client.send(what) {
            // one that waits for a connection is in flight too
            Ok(_) => self.flight.sent(at),
            Err(why) => {
                self.refused |= why == NotSent::Refused;
                self.errors.send_errors += 1;
                self.flight.not_sent();
                self.send_from = at + SEND_AGAIN;
            }
        }
    }

    /// Sends the requests that waited for what the last look found.
    #[inline]
    fn send_waiting(&mut self) {
        loop {
            let flight = &self.flight;
            let released = self.client.send_waiting(|k, _| flight.waits(k));
            let Some(ReleasedRequest { k, sent, .. }) = released else {
                return;
            };
            if let Some(Err(why)) = sent {
                self.refused |= why == NotSent::Refused;
                self.errors.send_errors += 1;
                self.flight.done(k);
                self.send_from = now() + SEND_AGAIN;
            }
        }
    }

    /// Looks once. Returns the time after the look if there was anything.
    #[inline]
    fn look(&mut self) -> Option<Monotonic> {
        let flight = &self.flight;
        let received = self.client.receive(|k| flight.outstanding(k));
        if received == ReceiveOutcome::Nothing {
            return None;
        }
        let at = now();
        match received {
            // its request counts as a time-out
            ReceiveOutcome::Answer { k, .. } if !self.flight.waits(k) => self.flight.came_late(k),
            ReceiveOutcome::Answer { k, outcome } => {
                let took = self.flight.waited(k, at);
                if self.times.len() < Saturation::MAX_TIMES {
                    self.times.push(took);
                }
                self.flight.learn(took);
                self.flight.done(k);
                self.responses += 1;
                self.last_answer = at;
                self.refused = false;
                match outcome {
                    Outcome::Miss => self.errors.misses += 1,
                    Outcome::ServerError => self.errors.server_errors += 1,
                    _ => {}
                }
            }
            ReceiveOutcome::Lost { k, outcome } => {
                if self.flight.waits(k) {
                    self.flight.done(k);
                    match outcome {
                        Outcome::Malformed => self.errors.malformed_responses += 1,
                        Outcome::TimedOut => self.errors.timeouts += 1,
                        _ => self.errors.lost_with_connection += 1,
                    }
                }
            }
            ReceiveOutcome::Refused => self.refused = true,
            other => other.count(&mut self.errors),
        }
        self.send_waiting();
        Some(at)
    }
}

#[cfg(test)]
mod tests;
