//! The spinning loop.
//!
//! A turn does one thing, a send that is due or else one look for an answer, and reads
//! the clock once. So a send waits for at most one look (about a microsecond when an
//! answer is there), or for [`SENDS_IN_A_ROW`] looks when the generator is behind. The
//! rest of its lateness comes from the sends and from other work of the kernel on this CPU.

use std::sync::atomic::AtomicBool;

use taillab_model::{Monotonic, Nanos};

use super::pace::Walk;
use super::session::{STOP_CHECK, Session};
use super::{Hooks, LoadRun, Pace, Progress, Record, StopReason, Waiting};
use crate::LoadError;
use crate::client::{Client, Sending};
use crate::clock::now;

/// Sends in a row when the generator is behind; then it looks for as many answers.
/// Otherwise answers would pile up until the socket buffers overflow.
const SENDS_IN_A_ROW: u32 = 4;

/// When the next send is nearer than this, the loop only reads the clock: even an empty look would
/// take longer.
const QUIET: Nanos = Nanos::new(300);

/// While nothing is outstanding, one turn in this many looks for stray answers.
const STRAY_TURNS: u32 = 64;

/// How long a generator that is behind goes on sending after the last request was due. Only the time in which it
/// can send counts, in steps of [`STOP_CHECK`]: one that was held up at the end makes up for it.
const OVERTIME: Nanos = Nanos::from_secs(1);

/// From the end of the set-up to the start of the schedule, so that caches settle.
const LEAD: Nanos = Nanos::from_millis(1);

/// What to send and when.
#[derive(Debug)]
pub struct OpenLoop<'a> {
    /// Due times from the start, ascending: warm-up and measurement as one stream.
    pub schedule: Vec<Nanos>,
    /// Number of the measurement's first request.
    pub measure_from: usize,
    /// Seed of the operations and keys.
    pub seed: u64,
    /// An answer that takes longer counts as missing; also how long the run waits for the last
    /// answers.
    pub timeout: Nanos,
    /// How it waits for the next send.
    pub waiting: Waiting,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
    /// Its progress, for other threads.
    pub progress: &'a Progress,
}

impl OpenLoop<'_> {
    /// The default of [`OpenLoop::timeout`].
    pub const TIMEOUT: Nanos = Nanos::from_secs(1);
}

/// Sends the schedule and returns the record of every request.
///
/// Runs on the calling thread until the last answer or its time-out. A generator that cannot keep up with the
/// schedule stops soon after the last request was due ([`LoadRun::unsent`]).
///
/// # Errors
/// [`LoadError::EmptySchedule`], [`LoadError::UnsortedSchedule`] or
/// [`LoadError::NothingMeasured`]. What happens after the first send is in the
/// record and never an error.
pub fn open_loop<C: Client, H: Hooks>(
    client: &mut C,
    load: OpenLoop<'_>,
    hooks: &mut H,
) -> Result<LoadRun, LoadError> {
    check_is_measured(load.schedule.len(), load.measure_from)?;
    open_loop_from(client, load, None, hooks, || now() + LEAD)
}

/// Refuses a load without a request, or without one in its measurement.
pub(crate) fn check_is_measured(requests: usize, measure_from: usize) -> Result<(), LoadError> {
    if requests == 0 {
        return Err(LoadError::EmptySchedule);
    }
    if measure_from >= requests {
        return Err(LoadError::NothingMeasured {
            measure_from,
            requests,
        });
    }
    Ok(())
}

/// [`open_loop`] whose schedule begins at the time that `start` returns; `start` is called when
/// everything is prepared. A pace sets the speed of the schedule and when the measurement
/// begins and ends. The schedule may be empty, as that of one of many threads may be.
pub(crate) fn open_loop_from<C: Client, H: Hooks>(
    client: &mut C,
    load: OpenLoop<'_>,
    pace: Option<&Pace>,
    hooks: &mut H,
    start: impl FnOnce() -> Monotonic,
) -> Result<LoadRun, LoadError> {
    let n = load.schedule.len();
    if let Some(before) = load.schedule.windows(2).position(|w| w[1] < w[0]) {
        return Err(LoadError::UnsortedSchedule { at: before + 1 });
    }
    let plan = client.planner().plan(n, load.seed);
    client.be_patient(load.timeout);
    client.begin(n, Sending::Scheduled { seed: load.seed });
    // at a pace, the measurement begins at a time: which request is the first shows then
    let measure_from = if pace.is_some() { n } else { load.measure_from };
    let traits = client.traits();
    let record = Record::new(
        traits.key_period,
        load.schedule,
        &plan,
        measure_from,
        load.timeout,
    )
    .of_client(&traits);
    drop(plan);
    let mut session = Session::new(client, record, load.stop, load.progress, load.waiting);
    let pacing = pace.map(Pacing::new);
    let (at, stopped) = spin(&mut session, start(), pacing, hooks);
    Ok(session.finish(at, stopped, hooks))
}

/// A thread's position in a schedule whose speed changes.
struct Pacing<'a> {
    walk: Walk<'a>,
    is_measuring: bool,
}

impl<'a> Pacing<'a> {
    fn new(pace: &'a Pace) -> Self {
        Self {
            walk: Walk::new(pace),
            is_measuring: false,
        }
    }

    /// Fixes when the next request is due.
    #[inline]
    fn fix<C: Client>(&mut self, run: &mut Session<'_, C>) {
        let due = self.walk.due(run.record.planned(run.next));
        run.record.set_planned(run.next, due);
        if !self.is_measuring && due >= self.walk.pace().warm_up() {
            self.is_measuring = true;
            run.measure_from_here();
        }
    }

    /// When nothing more is due.
    fn end(&self) -> Nanos {
        self.walk.pace().end()
    }

    /// Whether the next request, which is due now, comes after the end.
    #[inline]
    fn is_over<C: Client>(&self, run: &Session<'_, C>) -> bool {
        run.record.planned(run.next) >= self.end()
    }
}

/// Sends everything. Returns when it ended, and why if it ended early.
fn spin<C: Client, H: Hooks>(
    run: &mut Session<'_, C>,
    start: Monotonic,
    mut pacing: Option<Pacing<'_>>,
    hooks: &mut H,
) -> (Monotonic, Option<StopReason>) {
    let n = run.record.planned_len();
    run.begin(start);
    let mut at = now();
    if n == 0 {
        return (at, None);
    }
    if let Some(pacing) = &mut pacing {
        pacing.fix(run);
    }
    let mut due = run.record.due(0);
    let last_due = run.record.planned(n - 1);
    let mut overtime = Nanos::ZERO;
    let mut stop_check = at + STOP_CHECK;
    let mut in_a_row = 0;
    let mut looks_owed = 0;
    let mut turn = 0_u32;
    while run.next < n {
        if at >= stop_check {
            stop_check = at + STOP_CHECK;
            let reason = run.reason_to_stop(at, hooks);
            if reason.is_some() {
                return (at, reason);
            }
            let end = pacing.as_ref().map_or(last_due, Pacing::end);
            if is_time_up(at, start + end, &mut overtime) {
                run.unsent = unsent(run, pacing);
                return (at, None);
            }
            // the hook may have taken its time
            at = now();
        }
        if at >= due {
            if looks_owed == 0 {
                if pacing.as_ref().is_some_and(|pacing| pacing.is_over(run)) {
                    return (at, None);
                }
                run.send(at);
                if run.next < n {
                    if let Some(pacing) = &mut pacing {
                        pacing.fix(run);
                    }
                    due = run.record.due(run.next);
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
            run.cpu.idle += at.saturating_since(began);
            continue;
        }
        turn = turn.wrapping_add(1);
        let look = run.outstanding > 0 || turn.is_multiple_of(STRAY_TURNS);
        if let Some(then) = look.then(|| run.look()).flatten() {
            at = then;
            continue;
        }
        looks_owed = 0;
        at = now();
        run.cpu.idle += at.saturating_since(began);
        at = run.idle(at, due, hooks);
    }
    (at, None)
}

/// Whether the generator has gone on for long enough after the end.
fn is_time_up(at: Monotonic, end: Monotonic, overtime: &mut Nanos) -> bool {
    if at > end {
        *overtime += STOP_CHECK;
    }
    *overtime > OVERTIME
}

/// Requests that are due and were not sent.
#[cold]
fn unsent<C: Client>(run: &Session<'_, C>, pacing: Option<Pacing<'_>>) -> usize {
    let rest = run.next..run.record.planned_len();
    let Some(Pacing { mut walk, .. }) = pacing else {
        return rest.len();
    };
    let end = walk.pace().end();
    // when the next one is due is fixed already
    let due = rest.skip(1).map(|k| walk.due(run.record.planned(k)));
    1 + due.take_while(|due| *due < end).count()
}
