//! Several client threads that load one server together.

mod run;
mod start;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use taillab_model::{Monotonic, Nanos};

pub use run::FleetRun;

use self::start::StartLine;
use crate::client::{AnyClient, Client};
use crate::engine::{
    Hooks, OpenLoop, Pace, PingPong, Progress, StopReason, Waiting, check_is_measured,
    open_loop_from, ping_pong,
};
use crate::prefill::{Prefilled, prefill_watched};
use crate::saturate::saturate_from;
use crate::{ClosedLoop, Endpoint, LoadError, LoadRun, Saturation};

/// How often the calling thread checks whether the others are done.
const WAIT: Duration = Duration::from_millis(2);

/// Why the preparation of a thread failed.
pub type PrepareError = Box<dyn std::error::Error + Send + Sync>;

/// One client for each of N threads.
///
/// Thread 0 is the calling thread; it has the caller's hooks. The others live for one
/// call. In each call the caller's closure prepares every thread that takes part (pins it, puts it
/// into its network namespace), so it must be safe to call it again.
pub struct Fleet<C = AnyClient> {
    clients: Vec<C>,
    prepare: Prepare,
    progress: Arc<FleetProgress>,
}

type Prepare = Box<dyn Fn(usize) -> Result<(), PrepareError> + Send + Sync>;

/// What the threads of a fleet send, and when.
#[derive(Debug)]
pub struct OpenFleet<'a> {
    /// For each thread, the due times from the common start, ascending. The caller makes
    /// them independent (see [`deal`] for a recorded schedule).
    pub schedules: Vec<Vec<Nanos>>,
    /// Requests due before this do not belong to the measurement.
    pub warm_up: Nanos,
    /// Seed of the operations and keys; each thread makes its own from it.
    pub seed: u64,
    /// As [`OpenLoop::timeout`].
    pub timeout: Nanos,
    /// How each thread waits for its next send.
    pub waiting: Waiting,
    /// When the schedules begin; `None`: as soon as every thread is ready. A thread that is ready later than this
    /// sends late what was due before.
    pub start: Option<Monotonic>,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
}

/// How a fleet saturates a server.
#[derive(Debug)]
pub struct ClosedFleet<'a> {
    /// Requests in flight, all threads together. With fewer requests than threads, some threads
    /// do nothing.
    pub outstanding: usize,
    /// How long to count answers.
    pub length: Nanos,
    /// How long to run before that, uncounted.
    pub warm_up: Nanos,
    /// Seed of the operations and keys; each thread makes its own from it.
    pub seed: u64,
    /// As [`ClosedLoop::timeout`].
    pub timeout: Nanos,
    /// Ends the run early when it becomes true (Ctrl-C).
    pub stop: &'a AtomicBool,
}

/// The progress of all threads of a fleet; any thread may read it at any time.
#[derive(Debug)]
pub struct FleetProgress(Box<[Progress]>);

impl FleetProgress {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Progress::new()).collect())
    }

    /// Sets all counters to zero, as [`Progress::restart`] does.
    pub fn restart(&self) {
        self.0.iter().for_each(Progress::restart);
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        self.0.iter().map(Progress::sent).sum()
    }

    /// The progress of each thread.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = &Progress> {
        self.0.iter()
    }

    /// Answers received so far.
    pub fn received(&self) -> u64 {
        self.0.iter().map(Progress::received).sum()
    }

    /// Requests sent late so far, because something held a thread up.
    pub fn late(&self) -> u64 {
        self.0.iter().map(Progress::late).sum()
    }

    /// For how long, summed over the threads, nothing was sent though something was due.
    pub fn held_up(&self) -> Nanos {
        self.0.iter().map(Progress::held_up).sum()
    }
}

impl<C: Client + Send> Fleet<C> {
    /// Prepares each thread and connects its client there, one thread after the other.
    ///
    /// # Errors
    /// [`LoadError::NoThreads`], [`LoadError::Thread`] when a thread cannot be made or
    /// prepared, [`LoadError::ThreadPanicked`], or what `connect` says.
    pub fn connect(
        threads: usize,
        prepare: impl Fn(usize) -> Result<(), PrepareError> + Send + Sync + 'static,
        connect: impl Fn(usize) -> Result<C, LoadError> + Sync,
    ) -> Result<Self, LoadError> {
        if threads == 0 {
            return Err(LoadError::NoThreads);
        }
        let prepare: Prepare = Box::new(prepare);
        let mut clients = Vec::with_capacity(threads);
        for at in 0..threads {
            let connect = || {
                prepared(&prepare, at)?;
                connect(at)
            };
            clients.push(if at == 0 {
                connect()?
            } else {
                thread::scope(|scope| {
                    let thread = spawn(scope, at, connect)?;
                    joined(at, thread.join())
                })?
            });
        }
        Ok(Self {
            clients,
            prepare,
            progress: Arc::new(FleetProgress::new(threads)),
        })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.clients.len()
    }

    /// The clients, thread 0's first.
    pub fn clients(&self) -> &[C] {
        &self.clients
    }

    /// Its progress, for other threads.
    pub fn progress(&self) -> Arc<FleetProgress> {
        Arc::clone(&self.progress)
    }

    /// Stores every key, on the calling thread.
    ///
    /// # Errors
    /// As [`crate::prefill()`].
    pub fn prefill(
        &mut self,
        server: &Endpoint,
        stop: &AtomicBool,
    ) -> Result<Prefilled, LoadError> {
        prepared(&self.prepare, 0)?;
        prefill_watched(&mut self.clients[0], server, stop, &self.progress.0[0])
    }

    /// Keeps a fixed number of requests in flight for a given time, spread over the
    /// threads, from a common start; returns the combined result.
    ///
    /// # Errors
    /// As [`crate::saturate()`], and [`LoadError::Thread`] or [`LoadError::ThreadPanicked`].
    pub fn saturate<H: Hooks>(
        &mut self,
        load: &ClosedFleet<'_>,
        hooks: &mut H,
    ) -> Result<Saturation, LoadError> {
        let threads = self.clients.len();
        let taking_part = threads.min(load.outstanding).max(1);
        let share = |at: usize| {
            load.outstanding / taking_part + usize::from(at < load.outstanding % taking_part)
        };
        let start = StartLine::new(taking_part, None);
        let runners: Vec<_> = (0..taking_part).map(|_| start.runner()).collect();
        let work = |at, client: &mut C, runner: start::Runner<'_>, own: &mut ThreadHooks<'_, H>| {
            let part = ClosedLoop {
                outstanding: share(at),
                length: load.length,
                warm_up: load.warm_up,
                seed: seed_of(load.seed, at),
                timeout: load.timeout,
                stop: own.stop,
                progress: own.progress,
            };
            saturate_from(client, &part, own, || runner.start())
        };
        let why = |part: &Saturation| part.stopped;
        let (found, stopped) = self.all(runners, load.stop, hooks, work, why)?;
        Ok(together(found, stopped))
    }

    /// Sends every thread's schedule from a common start.
    ///
    /// A thread that ends early, whatever the reason, ends the others.
    ///
    /// # Errors
    /// As [`crate::open_loop()`] for all schedules together, [`LoadError::Schedules`], and
    /// [`LoadError::Thread`] or [`LoadError::ThreadPanicked`].
    pub fn open_loop<H: Hooks>(
        &mut self,
        load: OpenFleet<'_>,
        hooks: &mut H,
    ) -> Result<FleetRun, LoadError> {
        self.open_loop_at(load, None, hooks)
    }

    /// [`Self::open_loop`] at a pace that other threads set during the run: it replaces the warm-up
    /// and the end, and the schedules are sent at its speed.
    ///
    /// # Errors
    /// As [`Self::open_loop`].
    pub fn open_loop_at<H: Hooks>(
        &mut self,
        load: OpenFleet<'_>,
        pace: Option<&Pace>,
        hooks: &mut H,
    ) -> Result<FleetRun, LoadError> {
        let threads = self.clients.len();
        if load.schedules.len() != threads {
            return Err(LoadError::Schedules {
                schedules: load.schedules.len(),
                threads,
            });
        }
        // all together: at a low rate, the schedules of some of many threads are empty
        let requests = load.schedules.iter().map(Vec::len).sum();
        let warm_up_of = |due: &Vec<Nanos>| due.partition_point(|&due| due < load.warm_up);
        check_is_measured(requests, load.schedules.iter().map(warm_up_of).sum())?;
        let start = StartLine::new(threads, load.start);
        let parts: Vec<_> = load
            .schedules
            .into_iter()
            .map(|schedule| (schedule, start.runner()))
            .collect();
        let (warm_up, seed, timeout) = (load.warm_up, load.seed, load.timeout);
        let waiting = load.waiting;
        type ThreadShare<'a> = (Vec<Nanos>, start::Runner<'a>);
        let work = |at,
                    client: &mut C,
                    (schedule, runner): ThreadShare<'_>,
                    own: &mut ThreadHooks<'_, H>| {
            let part = OpenLoop {
                measure_from: schedule.partition_point(|&due| due < warm_up),
                schedule,
                seed: seed_of(seed, at),
                timeout,
                waiting,
                stop: own.stop,
                progress: own.progress,
            };
            open_loop_from(client, part, pace, own, || runner.start())
        };
        let why = |run: &LoadRun| run.stopped;
        let (runs, stopped) = self.all(parts, load.stop, hooks, work, why)?;
        Ok(FleetRun { runs, stopped })
    }

    /// Plays ping-pong on every thread's connections. [`PingPong::most`] is shared by the
    /// threads; the progress is the fleet's.
    ///
    /// # Errors
    /// As [`crate::ping_pong()`], and [`LoadError::Thread`] or [`LoadError::ThreadPanicked`].
    pub fn ping_pong<H: Hooks>(
        &mut self,
        load: &PingPong<'_>,
        hooks: &mut H,
    ) -> Result<FleetRun, LoadError> {
        let threads = self.clients.len();
        let work = |at: usize, client: &mut C, (), own: &mut ThreadHooks<'_, H>| {
            let part = PingPong {
                most: load.most.div_ceil(threads),
                seed: seed_of(load.seed, at),
                stop: own.stop,
                progress: own.progress,
                ..*load
            };
            ping_pong(client, &part, own)
        };
        let why = |run: &LoadRun| run.stopped;
        let (runs, stopped) = self.all(vec![(); threads], load.stop, hooks, work, why)?;
        Ok(FleetRun { runs, stopped })
    }

    /// Runs `work` on one thread for each of `parts`. Returns the result of each and why they
    /// ended early; `why` says it of one. A thread that fails drops its part.
    fn all<H: Hooks, P: Send, R: Send>(
        &mut self,
        parts: Vec<P>,
        stop: &AtomicBool,
        hooks: &mut H,
        work: impl Fn(usize, &mut C, P, &mut ThreadHooks<'_, H>) -> Result<R, LoadError> + Sync,
        why: fn(&R) -> Option<StopReason>,
    ) -> Result<(Vec<R>, Option<StopReason>), LoadError> {
        // set with the stop flag, or when any thread ends early
        let halt = AtomicBool::new(false);
        let (progress, prepare) = (&self.progress, &self.prepare);
        let mut own = ThreadHooks {
            hooks: Some(hooks),
            stop,
            halt: &halt,
            said_stop: false,
            progress: &progress.0[0],
        };
        let mut each = self.clients.iter_mut().zip(parts).enumerate();
        let Some((_, (own_client, own_part))) = each.next() else {
            return Err(LoadError::NoThreads);
        };
        let results = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (at, (client, part)) in each {
                let (work, halt) = (&work, &halt);
                let run = move || {
                    prepared(prepare, at)?;
                    let mut own = ThreadHooks {
                        hooks: None,
                        stop: halt,
                        halt,
                        said_stop: false,
                        progress: &progress.0[at],
                    };
                    work(at, client, part, &mut own)
                };
                threads.push(spawn(scope, at, move || halting(halt, at, why, run)));
            }
            let unspawned = threads.iter().any(Result::is_err);
            if unspawned {
                halt.store(true, Relaxed);
            }
            let own_result = if unspawned {
                // the others may wait for it at the start line
                drop(own_part);
                None
            } else {
                Some(halting(&halt, 0, why, || {
                    prepared(prepare, 0)?;
                    work(0, own_client, own_part, &mut own)
                }))
            };
            wait_for(&threads, stop, &halt);
            let others = threads
                .into_iter()
                .zip(1..)
                .map(|(thread, at)| joined(at, thread?.join()));
            own_result.into_iter().chain(others).collect::<Vec<_>>()
        });
        let said_stop = own.said_stop;
        let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        let stopped = merged(results.iter().map(why), said_stop);
        Ok((results, stopped))
    }
}

/// Runs the work of a thread. If it panics, fails or ends early, the others are halted.
fn halting<R>(
    halt: &AtomicBool,
    thread: usize,
    why: fn(&R) -> Option<StopReason>,
    run: impl FnOnce() -> Result<R, LoadError>,
) -> Result<R, LoadError> {
    let result = joined(thread, catch_unwind(AssertUnwindSafe(run)));
    if !result.as_ref().is_ok_and(|part| why(part).is_none()) {
        halt.store(true, Relaxed);
    }
    result
}

/// Waits until all threads have ended, and passes a stop on to them.
fn wait_for<R>(
    threads: &[Result<thread::ScopedJoinHandle<'_, R>, LoadError>],
    stop: &AtomicBool,
    halt: &AtomicBool,
) {
    while !threads.iter().flatten().all(|t| t.is_finished()) {
        if stop.load(Relaxed) {
            halt.store(true, Relaxed);
        }
        thread::sleep(WAIT);
    }
}

/// What the work of one thread is given besides its client and its part. As its hooks, this stops
/// the other threads when thread 0 is to stop, and each when another one has ended early.
struct ThreadHooks<'a, H> {
    /// Thread 0 has the caller's.
    hooks: Option<&'a mut H>,
    stop: &'a AtomicBool,
    halt: &'a AtomicBool,
    said_stop: bool,
    progress: &'a Progress,
}

impl<H: Hooks> Hooks for ThreadHooks<'_, H> {
    #[inline]
    fn idle(&mut self, until_next: Nanos) {
        if let Some(hooks) = &mut self.hooks {
            hooks.idle(until_next);
        }
    }

    fn should_stop(&mut self) -> bool {
        if let Some(hooks) = &mut self.hooks {
            self.said_stop |= hooks.should_stop();
        }
        if self.said_stop || self.stop.load(Relaxed) {
            self.halt.store(true, Relaxed);
        }
        self.halt.load(Relaxed)
    }
}

fn prepared(prepare: &Prepare, at: usize) -> Result<(), LoadError> {
    prepare(at).map_err(|source| LoadError::Thread { thread: at, source })
}

fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    at: usize,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, R>, LoadError> {
    thread::Builder::new()
        .name(format!("load-{at}"))
        .spawn_scoped(scope, work)
        .map_err(|source| LoadError::Thread {
            thread: at,
            source: source.into(),
        })
}

fn joined<R>(
    thread: usize,
    ended: Result<Result<R, LoadError>, Box<dyn Any + Send>>,
) -> Result<R, LoadError> {
    ended.unwrap_or_else(|panic| {
        let said = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(LoadError::ThreadPanicked { thread, said })
    })
}

/// An independent seed for each thread; thread 0 has the seed itself.
fn seed_of(seed: u64, thread: usize) -> u64 {
    // the odd constant of splitmix64: no two threads of nearby seeds share one
    seed.wrapping_add((thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Why a fleet ended early: the first cause, not its consequences.
fn merged(
    threads: impl Iterator<Item = Option<StopReason>> + Clone,
    hook: bool,
) -> Option<StopReason> {
    let mut said = threads.flatten();
    if hook {
        return Some(StopReason::Hook);
    }
    if said.clone().any(|reason| reason == StopReason::Refused) {
        return Some(StopReason::Refused);
    }
    // any other reason: a thread that was halted because of another one reports one too
    said.next().map(|_| StopReason::Interrupted)
}

fn together(found: Vec<Saturation>, stopped: Option<StopReason>) -> Saturation {
    let threads = found.len() as f64;
    let mut all = Saturation {
        errors: found.iter().map(|part| part.errors).sum(),
        stopped,
        ..Saturation::default()
    };
    for part in found {
        all.responses += part.responses;
        all.elapsed = all.elapsed.max(part.elapsed);
        all.times.extend(part.times);
        all.idle_share += part.idle_share / threads;
        all.cpu_share += part.cpu_share / threads;
    }
    all
}

/// Deals one schedule out to `threads` threads in turn.
pub fn deal(schedule: Vec<Nanos>, threads: usize) -> Vec<Vec<Nanos>> {
    if threads == 1 {
        return vec![schedule];
    }
    (0..threads)
        .map(|at| schedule.iter().skip(at).step_by(threads).copied().collect())
        .collect()
}

#[cfg(test)]
mod tests;
