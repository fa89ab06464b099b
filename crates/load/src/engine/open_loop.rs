//! The spinning loop.
//!
//! One turn does one thing: a send that is due, else one look for an answer, and reads
//! the clock once. So a send waits for at most one look (about a microsecond when an
//! answer is there), and for [`SENDS_IN_A_ROW`] looks when the generator is behind; the
//! rest of its lateness is what sends take and what else the kernel does on this CPU.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use taillab_model::summary::{ClientCost, LoadErrors};
use taillab_model::{Monotonic, Nanos};

use super::{HOOK_GUARD, Hooks, Outcome, Progress, Record};
use crate::LoadError;
use crate::client::{Client, Received};
use crate::clock::{now, thread_cpu_time};
use crate::transport::NotSent;

/// When the generator is behind: sends in a row before it looks for as many answers.
/// Without that, answers would pile up until the socket buffers overflow.
const SENDS_IN_A_ROW: u32 = 4;

/// This near a send the loop only reads the clock: a look that finds nothing would
/// take longer.
const QUIET: Nanos = Nanos::new(300);

/// With nothing outstanding only every so many turns look for answers (strays).
const STRAY_TURNS: u32 = 64;

/// How often [`Hooks::should_stop`] is asked.
const STOP_CHECK: Nanos = Nanos::from_millis(50);

/// How long an interrupted run waits for the answers still missing.
const INTERRUPTED_DRAIN: Nanos = Nanos::from_millis(100);

/// Between setting up and the schedule's start: the set-up's caches settle.
const LEAD: Nanos = Nanos::from_millis(1);

/// What to send and when.
#[derive(Debug)]
pub struct OpenLoop<'a> {
    /// Due times from the start, warm-up and measurement as one stream, ascending.
    pub schedule: Vec<Nanos>,
    /// Number of the measurement's first request.
    pub measure_from: usize,
    /// Seed of the operations and keys.
    pub seed: u64,
    /// An answer that takes longer counts as none; also how long the last answers are
    /// waited for.
    pub timeout: Nanos,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
    /// Where other threads see how far it is.
    pub progress: &'a Progress,
}

impl OpenLoop<'_> {
    /// The default of [`OpenLoop::timeout`].
    pub const TIMEOUT: Nanos = Nanos::from_secs(1);
}

/// Why a run ended before its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The stop flag was set.
    Interrupted,
    /// [`Hooks::should_stop`] said so.
    Hook,
    /// The server's host refuses, and no answer has come for the time-out.
    Refused,
}

/// What the client thread did with its CPU during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// From the first to the last send of the measurement.
    pub elapsed: Nanos,
    /// CPU time of the thread in it.
    pub thread: Nanos,
    /// Time in turns that neither sent nor received. Interrupts that hit such a turn,
    /// the receive softirq among them, are in here.
    pub idle: Nanos,
    /// Time in [`Hooks::idle`].
    pub hook: Nanos,
    /// Requests sent in it.
    pub requests: u64,
}

impl CpuUse {
    /// The same per request.
    pub fn cost(&self) -> ClientCost {
        let waiting = self.idle + self.hook;
        let busy = self.thread.saturating_sub(waiting).get();
        let share = |part: Nanos| part.get() as f64 / self.elapsed.get().max(1) as f64;
        ClientCost {
            cpu_ns_per_request: Nanos::new(busy.checked_div(self.requests).unwrap_or(0)),
            busy_share: (1.0 - share(waiting)).clamp(0.0, 1.0),
        }
    }
}

/// What a run did.
#[derive(Debug)]
pub struct LoadRun {
    /// Every request.
    pub record: Record,
    /// What went wrong in the measurement, by kind.
    pub errors: LoadErrors,
    /// Why it ended early; `None` if it did not.
    pub stopped: Option<StopReason>,
    /// What the client cost.
    pub cpu: CpuUse,
}

/// Sends the schedule and returns the record of every request.
///
/// Spins on the calling thread from now until the last answer or its time-out.
///
/// # Errors
/// [`LoadError::EmptySchedule`], [`LoadError::UnsortedSchedule`] or
/// [`LoadError::NothingMeasured`]. Whatever happens once requests are sent is in the
/// record and never an error.
pub fn open_loop<C: Client, H: Hooks>(
    client: &mut C,
    load: OpenLoop<'_>,
    hooks: &mut H,
) -> Result<LoadRun, LoadError> {
    open_loop_from(client, load, hooks, || now() + LEAD)
}

/// [`open_loop`] whose schedule begins when `start` says, which is asked once all is
/// prepared.
pub(crate) fn open_loop_from<C: Client, H: Hooks>(
    client: &mut C,
    load: OpenLoop<'_>,
    hooks: &mut H,
    start: impl FnOnce() -> Monotonic,
) -> Result<LoadRun, LoadError> {
    let n = load.schedule.len();
    if n == 0 {
        return Err(LoadError::EmptySchedule);
    }
    if load.measure_from >= n {
        return Err(LoadError::NothingMeasured {
            measure_from: load.measure_from,
            requests: n,
        });
    }
    if let Some(before) = load.schedule.windows(2).position(|w| w[1] < w[0]) {
        return Err(LoadError::UnsortedSchedule { at: before + 1 });
    }
    let plan = client.plan(n, load.seed);
    client.begin(n);
    let period = client.key_period();
    let record = Record::new(
        period,
        load.schedule,
        &plan,
        load.measure_from,
        load.timeout,
    );
    drop(plan);
    let (measure_from, timeout) = (load.measure_from, load.timeout);
    let mut run = Loop {
        client,
        record,
        stop: load.stop,
        progress: load.progress,
        measure_from,
        timeout,
        next: 0,
        waiting: 0,
        answered: 0,
        refused: false,
        last_answer: Monotonic::from_nanos_since_boot(0),
        extra: LoadErrors::default(),
        cpu: CpuUse::default(),
        measured_cpu: CpuUse::default(),
        window: None,
    };
    let stopped = run.spin(start(), hooks);
    run.record.finish(run.client.keys());
    let mut errors = run.record.request_errors();
    errors.unexpected_responses += run.extra.unexpected_responses;
    errors.malformed_responses += run.extra.malformed_responses;
    errors.connections_closed += run.extra.connections_closed;
    errors.connections_reset += run.extra.connections_reset;
    Ok(LoadRun {
        record: run.record,
        errors,
        stopped,
        cpu: run.measured_cpu,
    })
}

/// State at the first send of the measurement.
#[derive(Clone, Copy)]
struct Window {
    opened: Monotonic,
    thread: Nanos,
}

struct Loop<'a, C> {
    client: &'a mut C,
    record: Record,
    stop: &'a AtomicBool,
    progress: &'a Progress,
    measure_from: usize,
    timeout: Nanos,
    /// Number of the next request.
    next: usize,
    /// Requests sent that have no answer yet.
    waiting: usize,
    answered: usize,
    refused: bool,
    last_answer: Monotonic,
    /// What belongs to no request.
    extra: LoadErrors,
    cpu: CpuUse,
    measured_cpu: CpuUse,
    window: Option<Window>,
}

impl<C: Client> Loop<'_, C> {
    fn spin<H: Hooks>(&mut self, start: Monotonic, hooks: &mut H) -> Option<StopReason> {
        self.progress.restart();
        let n = self.record.planned_len();
        let mut at = now();
        self.record.begin(start);
        self.last_answer = at;
        let mut due = self.record.due(0);
        let mut stop_check = at + STOP_CHECK;
        let mut in_a_row = 0;
        let mut looks_owed = 0;
        let mut turn = 0_u32;
        while self.next < n {
            if at >= stop_check {
                stop_check = at + STOP_CHECK;
                if let Some(reason) = self.reason_to_stop(at, hooks) {
                    self.close_window(at);
                    if reason == StopReason::Interrupted {
                        self.drain(at, self.timeout.min(INTERRUPTED_DRAIN), hooks);
                    }
                    return Some(reason);
                }
            }
            if at >= due {
                if looks_owed == 0 {
                    self.send(at);
                    if self.next < n {
                        due = self.record.due(self.next);
                    }
                    in_a_row += 1;
                    if in_a_row == SENDS_IN_A_ROW {
                        (in_a_row, looks_owed) = (0, SENDS_IN_A_ROW);
                    }
                    at = now();
                    continue;
                }
                looks_owed -= 1;
            } else {
                (in_a_row, looks_owed) = (0, 0);
            }
            let began = at;
            let until_due = due.saturating_since(at);
            if until_due > Nanos::ZERO && until_due < QUIET {
                at = now();
                self.cpu.idle += at.saturating_since(began);
                continue;
            }
            turn = turn.wrapping_add(1);
            let look = self.waiting > 0 || turn.is_multiple_of(STRAY_TURNS);
            if let Some(then) = look.then(|| self.look()).flatten() {
                at = then;
                continue;
            }
            looks_owed = 0;
            at = now();
            self.cpu.idle += at.saturating_since(began);
            at = self.idle(at, due, hooks);
        }
        self.close_window(at);
        self.drain(at, self.timeout, hooks);
        None
    }

    #[inline]
    fn send(&mut self, at: Monotonic) {
        let k = self.next;
        if k == self.measure_from {
            self.open_window(at);
        }
        let what = self.record.send(k, at);
        match self.client.send(what) {
            Ok(()) => self.waiting += 1,
            Err(why) => {
                self.refused |= why == NotSent::Refused;
                self.record.send_failed(k);
                self.progress.count_failed();
            }
        }
        self.next = k + 1;
        self.progress.set_sent(self.next);
        let late = at.saturating_since(self.record.due(k));
        self.progress.count_lateness(late);
    }

    /// Looks once for an answer; the time right after it if there was anything.
    #[inline]
    fn look(&mut self) -> Option<Monotonic> {
        let record = &self.record;
        let received = self.client.receive(|k| record.outstanding(k));
        if received == Received::Nothing {
            return None;
        }
        let at = now();
        match received {
            Received::Answer { k, outcome } => {
                self.record.answered(k, outcome, at);
                self.waiting -= 1;
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
            Received::Lost { k, outcome } => {
                self.record.lost(k, outcome, at);
                self.waiting -= 1;
                self.progress.count_failed();
            }
            Received::Unexpected => self.extra.unexpected_responses += 1,
            Received::Malformed => self.extra.malformed_responses += 1,
            Received::Refused => self.refused = true,
            Received::ConnectionClosed => self.extra.connections_closed += 1,
            Received::ConnectionReset => self.extra.connections_reset += 1,
            Received::Part | Received::Late | Received::Nothing => {}
        }
        Some(at)
    }

    /// Gives the caller an idle moment if the next send is far enough.
    #[inline]
    fn idle<H: Hooks>(&mut self, at: Monotonic, due: Monotonic, hooks: &mut H) -> Monotonic {
        let until_due = due.saturating_since(at);
        if until_due < HOOK_GUARD {
            return at;
        }
        self.client.tend(until_due);
        hooks.idle(until_due);
        let after = now();
        self.cpu.hook += after.saturating_since(at);
        after
    }

    /// Waits for the answers still missing, at most `length`.
    fn drain<H: Hooks>(&mut self, from: Monotonic, length: Nanos, hooks: &mut H) {
        let deadline = from + length;
        let mut stop_check = from + STOP_CHECK;
        let mut at = from;
        while self.waiting > 0 && at < deadline {
            if let Some(then) = self.look() {
                at = then;
                continue;
            }
            at = self.idle(now(), deadline, hooks);
            if at >= stop_check {
                stop_check = at + STOP_CHECK;
                // All was sent: a stop only shortens the wait for what may never come.
                if self.stop.load(Relaxed) || hooks.should_stop() {
                    break;
                }
            }
        }
    }

    #[cold]
    fn reason_to_stop<H: Hooks>(&self, at: Monotonic, hooks: &mut H) -> Option<StopReason> {
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

    #[cold]
    fn close_window(&mut self, at: Monotonic) {
        let Some(window) = self.window else {
            return;
        };
        self.cpu.elapsed = at.saturating_since(window.opened);
        self.cpu.thread = thread_cpu_time().saturating_sub(window.thread);
        self.cpu.requests = (self.next - self.measure_from) as u64;
        // a copy: what the drain adds is not the measurement's
        self.measured_cpu = self.cpu;
    }
}
