//! What all kinds of runs share: sending, looking for answers, waiting, counting.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use taillab_model::summary::LoadErrors;
use taillab_model::{Monotonic, Nanos, Outcome};

use super::cpu::CpuUse;
use super::waiting::{Naps, Waiting};
use super::waits::{Wait, Waits};
use super::{HOOK_GUARD, Hooks, Progress, Record};
use crate::client::{Client, ReceiveOutcome, ReleasedRequest, SendOutcome};
use crate::clock::{now, thread_cpu_time};
use crate::transport::NotSent;

/// How often [`Hooks::should_stop`] is called.
pub(crate) const STOP_CHECK: Nanos = Nanos::from_millis(50);

/// Where requests follow answers, nothing is sent for this long after a failed send.
pub(crate) const SEND_AGAIN: Nanos = Nanos::from_micros(100);

/// How long an interrupted run waits for missing answers: until the next look at the stop flag,
/// which is still set.
const INTERRUPTED_DRAIN: Nanos = STOP_CHECK;

/// Empty looks for stamps of sends before a run stops looking at its end.
const LAST_STAMP_LOOKS: u32 = 64;

/// Why a run ended before its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The stop flag was set.
    Interrupted,
    /// [`Hooks::should_stop`] said so.
    Hook,
    /// The server's host refuses requests, and no answer has come for as long as the time-out (in a
    /// closed loop: for 200 ms).
    Refused,
}

/// The result of a run.
#[derive(Debug)]
pub struct LoadRun {
    /// Every request.
    pub record: Record,
    /// The errors of the measurement, by kind.
    pub errors: LoadErrors,
    /// Why it ended early; `None` if it did not.
    pub stopped: Option<StopReason>,
    /// Requests of a schedule that were due and not yet sent when its time was up.
    pub unsent: usize,
    /// The client's use of its CPU.
    pub cpu: CpuUse,
    /// For each late send, how long the thread waited for its CPU (perhaps not at all), in order of
    /// time; empty where the kernel does not count such waits.
    pub waits: Vec<Wait>,
}

/// State at the first send of the measurement.
#[derive(Clone, Copy)]
struct Window {
    opened: Monotonic,
    thread: Nanos,
}

/// A run under way.
pub(super) struct Session<'a, C> {
    pub(super) client: &'a mut C,
    pub(super) record: Record,
    pub(super) cpu: CpuUse,
    /// Number of the next request.
    pub(super) next: usize,
    /// Requests sent that have no answer yet.
    pub(super) outstanding: usize,
    /// Requests that the last look found answered, lost or not sent, without those that were given up before.
    pub(super) over: usize,
    /// Requests that were due and not yet sent when the time was up.
    pub(super) unsent: usize,
    stop: &'a AtomicBool,
    progress: &'a Progress,
    measure_from: usize,
    timeout: Nanos,
    naps: Naps,
    waits: Waits,
    departures: bool,
    answered: usize,
    refused: bool,
    last_answer: Monotonic,
    /// Errors that belong to no request.
    extra: LoadErrors,
    window: Option<Window>,
}

impl<'a, C: Client> Session<'a, C> {
    pub(super) fn new(
        client: &'a mut C,
        record: Record,
        stop: &'a AtomicBool,
        progress: &'a Progress,
        waiting: Waiting,
    ) -> Self {
        progress.restart();
        Self {
            measure_from: record.measured().start,
            timeout: record.timeout(),
            departures: client.traits().stamps.sent,
            client,
            record,
            cpu: CpuUse::default(),
            next: 0,
            outstanding: 0,
            over: 0,
            unsent: 0,
            stop,
            progress,
            naps: Naps::new(waiting),
            waits: Waits::new(),
            answered: 0,
            refused: false,
            last_answer: now(),
            extra: LoadErrors::default(),
            window: None,
        }
    }

    /// The schedule begins at `start`. Only from then on can the server be silent: the time in which
    /// other threads were prepared does not count.
    pub(super) fn begin(&mut self, start: Monotonic) {
        self.record.begin(start);
        self.last_answer = start;
    }

    /// Sends the next request; whether the kernel took it.
    #[inline]
    pub(super) fn send(&mut self, at: Monotonic) -> bool {
        let k = self.next;
        if k == self.measure_from {
            self.open_window(at);
        }
        let what = self.record.send(k, at);
        let sent = self.client.send(what);
        match sent {
            Ok(SendOutcome::Gone) => self.outstanding += 1,
            Ok(SendOutcome::Waits) => {
                self.outstanding += 1;
                self.record.waits(k);
            }
            Ok(SendOutcome::Connects) => {
                self.outstanding += 1;
                self.record.dials(k, at);
            }
            Err(why) => {
                self.refused |= why == NotSent::Refused;
                self.record.send_failed(k, why);
                self.progress.count_failed();
            }
        }
        self.next = k + 1;
        self.progress.set_sent(self.next);
        let due = self.record.due(k);
        self.waits.sends(due, at);
        let late = at.saturating_since(due);
        self.progress.count_lateness(late);
        sent.is_ok()
    }

    /// The measurement begins with the next request.
    pub(super) fn measure_from_here(&mut self) {
        self.measure_from = self.next;
        self.record.measure_from(self.next);
    }

    /// Looks once for an answer. Returns the time after the look if there was anything.
    #[inline]
    pub(super) fn look(&mut self) -> Option<Monotonic> {
        let record = &self.record;
        let received = self.client.receive(|k| record.outstanding(k));
        if received == ReceiveOutcome::Nothing {
            return None;
        }
        let at = now();
        self.over = 0;
        match received {
            ReceiveOutcome::Answer { k, outcome } => self.answered(k, outcome, at),
            ReceiveOutcome::Lost { k, outcome } => {
                self.record.ended(k, outcome, at);
                self.progress.count_failed();
                self.is_over(k);
            }
            ReceiveOutcome::Refused => self.refused = true,
            other => other.count(&mut self.extra),
        }
        Some(self.send_waiting().unwrap_or(at))
    }

    /// Sends the requests that waited for what the last look found; returns the time after them, if there were any.
    #[inline]
    fn send_waiting(&mut self) -> Option<Monotonic> {
        let mut at = None;
        loop {
            let record = &self.record;
            let released = self.client.send_waiting(|k, at| record.is_in_time(k, at));
            let Some(ReleasedRequest { k, at: left, sent }) = released else {
                return at;
            };
            self.released(k, left, sent);
            at = Some(now());
        }
    }

    fn released(&mut self, k: usize, left: Monotonic, sent: Option<Result<SendOutcome, NotSent>>) {
        match sent {
            Some(Ok(SendOutcome::Gone)) => return self.record.left(k, left),
            Some(Ok(SendOutcome::Connects)) => return self.record.dials(k, left),
            Some(Ok(SendOutcome::Waits)) => return,
            Some(Err(why)) => {
                self.refused |= why == NotSent::Refused;
                self.record.left(k, left);
                self.record.send_failed(k, why);
            }
            // it has waited for as long as an answer may take
            None => self.record.gave_up(k),
        }
        self.is_over(k);
        self.progress.count_failed();
    }

    /// Request `k` will get no answer any more, or has got it.
    #[inline]
    fn is_over(&mut self, k: usize) {
        self.outstanding -= 1;
        self.over += usize::from(!self.record.is_given_up(k));
    }

    #[inline]
    fn answered(&mut self, k: usize, outcome: Outcome, at: Monotonic) {
        self.record.answered(k, outcome, at);
        if let Some(stamp) = self.client.kernel_received() {
            self.record.received_by_kernel(k, stamp, at);
        }
        self.is_over(k);
        self.answered += 1;
        self.last_answer = at;
        self.refused = false;
        self.progress.set_received(self.answered);
        let response_time = at.saturating_since(self.record.due(k));
        self.progress.count_response(response_time);
        if outcome == Outcome::ServerError {
            self.progress.count_failed();
        }
    }

    /// Lets the caller's hook and the client work if the next send is far enough away.
    #[inline]
    pub(super) fn idle<H: Hooks>(
        &mut self,
        at: Monotonic,
        due: Monotonic,
        hooks: &mut H,
    ) -> Monotonic {
        let until_due = due.saturating_since(at);
        if until_due < HOOK_GUARD {
            return at;
        }
        if self.departures
            && let Some((k, stamp)) = self.client.kernel_sent()
        {
            self.record.sent_by_kernel(k, stamp);
        }
        self.client.tend(until_due);
        hooks.idle(until_due);
        let after = now();
        self.cpu.hook += after.saturating_since(at);
        match self.naps.next(due.saturating_since(after)) {
            Some(nap) => self.sleep(nap, after),
            None => after,
        }
    }

    fn sleep(&mut self, nap: Nanos, from: Monotonic) -> Monotonic {
        self.client.wait(nap);
        let at = now();
        let slept = at.saturating_since(from);
        self.cpu.asleep += slept;
        self.naps.woke(nap, slept);
        at
    }

    /// Waits for missing answers, at most `length`.
    pub(super) fn drain<H: Hooks>(&mut self, from: Monotonic, length: Nanos, hooks: &mut H) {
        let deadline = from + length;
        let mut stop_check = from + STOP_CHECK;
        let mut at = from;
        while self.outstanding > 0 && at < deadline {
            if let Some(then) = self.look() {
                at = then;
                continue;
            }
            at = self.idle(now(), deadline, hooks);
            if at >= stop_check {
                stop_check = at + STOP_CHECK;
                // All requests were sent: a stop only shortens the wait for their answers.
                if self.stop.load(Relaxed) || hooks.should_stop() {
                    break;
                }
            }
        }
    }

    /// Ends the run: counts the CPU time, waits for missing answers, closes the record.
    pub(super) fn finish<H: Hooks>(
        mut self,
        at: Monotonic,
        stopped: Option<StopReason>,
        hooks: &mut H,
    ) -> LoadRun {
        let cpu = self.measured_cpu(at);
        match stopped {
            None => self.drain(at, self.timeout, hooks),
            Some(StopReason::Interrupted) => {
                self.drain(at, self.timeout.min(INTERRUPTED_DRAIN), hooks);
            }
            Some(StopReason::Hook | StopReason::Refused) => {}
        }
        let mut looks = 0;
        while self.departures && looks < LAST_STAMP_LOOKS {
            looks += 1;
            if let Some((k, stamp)) = self.client.kernel_sent() {
                self.record.sent_by_kernel(k, stamp);
                looks = 0;
            }
        }
        self.record.finish(self.client.keys());
        LoadRun {
            errors: [self.record.request_errors(), self.extra].into_iter().sum(),
            record: self.record,
            stopped,
            unsent: self.unsent,
            cpu,
            waits: self.waits.noted,
        }
    }

    #[cold]
    pub(super) fn reason_to_stop<H: Hooks>(
        &self,
        at: Monotonic,
        hooks: &mut H,
    ) -> Option<StopReason> {
        if self.stop.load(Relaxed) {
            Some(StopReason::Interrupted)
        } else if hooks.should_stop() {
            Some(StopReason::Hook)
        } else if self.refused && at.saturating_since(self.last_answer) > self.timeout {
            Some(StopReason::Refused)
        } else {
            None
        }
    }

    #[cold]
    fn open_window(&mut self, at: Monotonic) {
        self.extra = LoadErrors::default();
        self.cpu = CpuUse::default();
        self.window = Some(Window {
            opened: at,
            thread: thread_cpu_time(),
        });
    }

    /// The CPU use of the measurement, which ends at `at`: the drain that follows is no part of it.
    fn measured_cpu(&self, at: Monotonic) -> CpuUse {
        self.window.map_or_else(CpuUse::default, |window| CpuUse {
            elapsed: at.saturating_since(window.opened),
            thread: thread_cpu_time().saturating_sub(window.thread),
            requests: (self.next - self.measure_from) as u64,
            ..self.cpu
        })
    }
}
