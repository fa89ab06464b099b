//! One request at a time on each connection, to measure round trips.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use taillab_model::{Monotonic, Nanos};

use super::session::{SEND_AGAIN, STOP_CHECK, Session};
use super::{Hooks, LoadRun, Progress, Record, StopReason, Waiting};
use crate::LoadError;
use crate::client::{Client, Sending};
use crate::clock::now;

/// The parameters of ping-pong.
#[derive(Debug)]
pub struct PingPong<'a> {
    /// How long to send before the measurement.
    pub warm_up: Nanos,
    /// The length of the measurement.
    pub length: Nanos,
    /// The pause between an answer and the connection's next request.
    pub gap: Nanos,
    /// The maximum number of requests, warm-up included: the run ends when they are sent. Each
    /// takes a row of the record, 28 bytes.
    pub most: usize,
    /// Seed of the operations and keys.
    pub seed: u64,
    /// A request without an answer for this long counts as unanswered, and the next one follows.
    pub timeout: Nanos,
    /// How it waits for answers and for the end of pauses.
    pub waiting: Waiting,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
    /// Its progress, for other threads.
    pub progress: &'a Progress,
}

/// Sends one request on each connection, and the next one when it is answered or given up.
///
/// A request is intended for that time plus the pause. So its lateness is the generator's own
/// delay, as in the open loop, and its service time is the round trip.
///
/// # Errors
/// [`LoadError::EmptySchedule`] when there is no time or no request to send.
pub fn ping_pong<C: Client, H: Hooks>(
    client: &mut C,
    load: &PingPong<'_>,
    hooks: &mut H,
) -> Result<LoadRun, LoadError> {
    if load.length == Nanos::ZERO || load.most == 0 {
        return Err(LoadError::EmptySchedule);
    }
    let plan = client.planner().plan(load.most, load.seed);
    client.be_patient(load.timeout);
    client.begin(load.most, Sending::Answered { seed: load.seed });
    // due times become known during the run
    let schedule = vec![Nanos::new(u64::MAX); load.most];
    let never = load.most;
    let traits = client.traits();
    let record =
        Record::new(traits.key_period, schedule, &plan, never, load.timeout).of_client(&traits);
    drop(plan);
    let mut session = Session::new(client, record, load.stop, load.progress, load.waiting);
    let (at, stopped) = spin(&mut session, load, hooks);
    Ok(session.finish(at, stopped, hooks))
}

/// When each connection may send its next request.
///
/// A client that sends each request on an idle connection needs any free one. A client whose
/// requests use the connections in turn needs the last request on the same connection to be over.
enum Turns {
    /// Since when each idle connection has been idle, the longest first.
    Idle(VecDeque<Monotonic>),
    /// The number of connections and the start.
    InTurn(usize, Monotonic),
}

impl Turns {
    /// Since when the next request's connection has been free; `None` if there is none yet.
    fn free_since<C: Client>(&self, run: &Session<'_, C>, at: Monotonic) -> Option<Monotonic> {
        match self {
            Self::Idle(since) => since.front().copied(),
            Self::InTurn(connections, start) => match run.next.checked_sub(*connections) {
                Some(before) => run.record.over_since(before, at),
                None => Some(*start),
            },
        }
    }

    fn taken(&mut self) {
        if let Self::Idle(since) = self {
            since.pop_front();
        }
    }

    fn free(&mut self, since_when: Monotonic) {
        if let Self::Idle(since) = self {
            since.push_back(since_when);
        }
    }
}

/// Plays until the time is over. Returns when it ended, and why if it ended early.
fn spin<C: Client, H: Hooks>(
    run: &mut Session<'_, C>,
    load: &PingPong<'_>,
    hooks: &mut H,
) -> (Monotonic, Option<StopReason>) {
    let traits = run.client.traits();
    let connections = traits.connections;
    let start = now();
    run.begin(start);
    let measure_from = start + load.warm_up;
    let end = measure_from + load.length;
    let mut turns = if traits.takes_idle_connection {
        Turns::Idle(std::iter::repeat_n(start, connections).collect())
    } else {
        Turns::InTurn(connections, start)
    };
    let mut warm = false;
    let mut oldest = 0;
    let mut stop_check = start + STOP_CHECK;
    let mut send_from = start;
    let mut at = start;
    while at < end && run.next < load.most {
        if at >= stop_check {
            stop_check = at + STOP_CHECK;
            let reason = run.reason_to_stop(at, hooks);
            if reason.is_some() {
                return (at, reason);
            }
        }
        if !warm && at >= measure_from {
            warm = true;
            run.measure_from_here();
        }
        let due = turns.free_since(run, at).map(|since| since + load.gap);
        if let Some(due) = due
            && at >= due.max(send_from)
        {
            let planned = due.saturating_since(start);
            run.record.set_planned(run.next, planned);
            turns.taken();
            let sent = run.send(at);
            at = now();
            if !sent {
                // the client must look, and perhaps connect again, before the next one
                send_from = at + SEND_AGAIN;
                turns.free(send_from);
            }
            continue;
        }
        let began = at;
        if let Some(then) = run.look() {
            at = then;
            // a request answered too late is given up below
            (0..run.over).for_each(|_| turns.free(at));
            continue;
        }
        at = now();
        run.cpu.idle += at.saturating_since(began);
        while oldest < run.next
            && let Some(since) = run.record.over_since(oldest, at)
        {
            if run.record.is_given_up(oldest) {
                turns.free(since);
            }
            oldest += 1;
        }
        let due = due.map_or(stop_check, |due| due.max(send_from));
        at = run.idle(at, due.min(end), hooks);
    }
    (at, None)
}
