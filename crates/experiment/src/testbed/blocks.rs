//! The closed loops of a calibration: with and without the probe, and with as many requests outstanding as give
//! the highest throughput.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use taillab_console::exit::{Exit, Failure};
use taillab_console::fail::{host, probe as probe_failure};
use taillab_host::{CpuSet, Roots};
use taillab_load::{ClosedFleet, Hooks, Saturation, StopReason};
use taillab_model::Nanos;
use taillab_probe::Probe;

use super::accounts::{Accounts, Shares};
use super::capacity::Capacity;
use super::client::LoadClient;
use super::drain::{DrainProbe, RecordingProbe, draining};
use super::peak::{PeakSearch, Step};
use super::rig::Rig;
use crate::definition::Experiment;

/// Load before each block, to fill the server's queue.
const BLOCK_WARM_UP: Nanos = Nanos::from_millis(40);

/// How often each number of outstanding requests is tried, since a loop can be disturbed.
const TRIES: usize = 2;

/// The longest loop of a try; it is shorter where blocks are short.
const LONGEST_TRY: Nanos = Nanos::from_millis(50);

/// The shortest one.
const SHORTEST_TRY: Nanos = Nanos::from_millis(20);

/// Load before each try: the queue is full at once.
const TRY_WARM_UP: Nanos = Nanos::from_millis(10);

/// Sets the seeds of tries apart from those of blocks.
const SEED_OF_TRIES: u64 = 1 << 40;

/// The most runs of a block that gets no answer: the virtual machine may have been stopped during one of
/// them.
const BLOCK_ATTEMPTS: u32 = 3;

/// Which programs of the probe are attached in a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AttachedPrograms {
    /// None of them.
    Nothing,
    /// All that the measurement has.
    Everything,
    /// What is attached between slices.
    Ends,
}

/// The result of one block.
#[derive(Clone, Copy)]
pub struct CalibrationBlock {
    /// Answers per second.
    pub rate_per_s: f64,
    /// Share of the time of all the server's CPUs in which they were busy, without programs that gave way to it.
    pub server_busy_share: f64,
    /// What other programs had of that while the server waited for it.
    pub others_share: f64,
    /// Share of the time in which the client waited for answers.
    pub client_idle_share: f64,
    /// Share of the time in which the client had its CPU.
    pub client_cpu_share: f64,
}

/// How long a closed loop runs.
struct BlockLength {
    /// What does not count.
    warm_up: Nanos,
    /// What counts.
    measured: Nanos,
}

/// Runs closed loops on the generator's thread.
pub struct BlockRunner<'a> {
    roots: Roots,
    capacity: Capacity,
    server_cpus: CpuSet,
    server_processes: Vec<u32>,
    /// For the thread that drains the probe.
    free_cpus: CpuSet,
    stop: Arc<AtomicBool>,
    server_gone: Arc<AtomicBool>,
    kinds: &'static [AttachedPrograms],
    experiment: &'a Experiment,
}

/// Why calibration ended early.
pub enum EarlyEnd {
    /// The load was stopped, or nobody answered.
    Load(Option<StopReason>),
    /// Something else failed.
    Failed(Failure),
}

impl From<Failure> for EarlyEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl EarlyEnd {
    /// What the user is told.
    pub fn failure(self, rig: &mut Rig) -> Failure {
        match self {
            Self::Load(reason) => cut_short(rig, reason),
            Self::Failed(failure) => failure,
        }
    }
}

/// The blocks by what was attached; those with the same index form a pair.
#[derive(Default)]
pub struct Blocks {
    /// Requests outstanding in each block.
    pub outstanding: usize,
    /// Without the probe.
    pub without: Vec<CalibrationBlock>,
    /// With all of it.
    pub with: Vec<CalibrationBlock>,
    /// Where everything but T1 and T6 is recorded in slices.
    pub between: Vec<CalibrationBlock>,
}

impl<'a> BlockRunner<'a> {
    /// For the server of this rig. A round has a block of each of these `kinds`.
    pub fn new(rig: &Rig, kinds: &'static [AttachedPrograms], experiment: &'a Experiment) -> Self {
        let server_cpus = rig.placement().server.clone();
        Self {
            roots: rig.roots().clone(),
            capacity: Capacity::of(experiment, &server_cpus),
            server_cpus,
            server_processes: rig.server_processes(),
            free_cpus: rig.free_cpus(),
            stop: rig.interrupt().shared_flag(),
            server_gone: rig.server_gone(),
            kinds,
            experiment,
        }
    }

    /// How long all blocks take together, with their warm-ups.
    pub fn length(&self) -> Nanos {
        let settings = &self.experiment.calibration;
        let blocks = self.kinds.len() as u64 * u64::from(settings.pairs);
        (settings.block + BLOCK_WARM_UP) * blocks
    }

    /// The number of outstanding requests with the highest throughput.
    pub fn outstanding_at_peak(&self, client: &mut LoadClient) -> Result<usize, EarlyEnd> {
        let block = self.experiment.calibration.block;
        let length = Nanos::new(block.get() / 8).clamp(SHORTEST_TRY, LONGEST_TRY);
        let mut search = PeakSearch::of(self.experiment, &self.capacity, self.server_cpus.len());
        let mut tries = SEED_OF_TRIES..;
        while let Some(outstanding) = search.to_try() {
            let mut step = Step::default();
            for place in tries.by_ref().take(TRIES) {
                let length = BlockLength {
                    warm_up: TRY_WARM_UP,
                    measured: length,
                };
                let load = self.load(outstanding, length, place);
                let mut hooks = DrainProbe::new(None, &self.server_gone);
                let (found, shares) =
                    self.watched(&mut hooks, |hooks| client.saturate(&load, hooks))?;
                let found = found.map_err(Failure::from)?;
                if found.stopped.is_some() {
                    return Err(EarlyEnd::Load(found.stopped));
                }
                step.add(&found, shares.busy);
            }
            search.found(&step);
        }
        Ok(search.best())
    }

    /// All blocks of the calibration.
    pub fn blocks(
        &self,
        client: &mut LoadClient,
        probe: &mut Probe,
        outstanding: usize,
    ) -> Result<Blocks, EarlyEnd> {
        let mut blocks = Blocks {
            outstanding,
            ..Blocks::default()
        };
        let kinds = self.kinds.len();
        for number in 0..kinds * self.experiment.calibration.pairs as usize {
            // each round begins with the next kind
            let kind = self.kinds[(number + number / kinds) % kinds];
            let length = BlockLength {
                warm_up: BLOCK_WARM_UP,
                measured: self.experiment.calibration.block,
            };
            let load = self.load(outstanding, length, number as u64);
            let (block, saturation) = until_answered(|| self.block(client, (kind, probe), &load))?;
            if saturation.stopped.is_some() || saturation.responses == 0 {
                return Err(EarlyEnd::Load(saturation.stopped));
            }
            let of_kind = match kind {
                AttachedPrograms::Nothing => &mut blocks.without,
                AttachedPrograms::Everything => &mut blocks.with,
                AttachedPrograms::Ends => &mut blocks.between,
            };
            of_kind.push(block);
        }
        Ok(blocks)
    }

    /// A closed loop; `place` sets its requests apart from those of other loops.
    fn load(&self, outstanding: usize, length: BlockLength, place: u64) -> ClosedFleet<'_> {
        ClosedFleet {
            outstanding,
            length: length.measured,
            warm_up: length.warm_up,
            seed: self.experiment.workload.seed ^ place,
            timeout: self.experiment.client.timeout,
            stop: &self.stop,
        }
    }

    /// One closed-loop block.
    fn block(
        &self,
        client: &mut LoadClient,
        (kind, probe): (AttachedPrograms, &mut Probe),
        load: &ClosedFleet<'_>,
    ) -> Result<(CalibrationBlock, Saturation), Failure> {
        match kind {
            AttachedPrograms::Nothing => Ok(()),
            AttachedPrograms::Everything => probe.attach_all(),
            AttachedPrograms::Ends => probe.attach_ends(),
        }
        .map_err(probe_failure)?;
        let mut probe = (kind != AttachedPrograms::Nothing).then_some(probe);
        // nobody reads what a calibration records
        let sink = &mut ();
        let attached = (probe.as_deref_mut()).map(|probe| RecordingProbe { probe, sink });
        let (saturation, shares) =
            draining(attached, &self.free_cpus, &self.server_gone, |drain| {
                self.watched(drain, |hooks| client.saturate(load, hooks))
            })?;
        let saturation = saturation?;
        if let Some(probe) = probe {
            probe.detach();
            probe.discard().map_err(probe_failure)?;
        }
        let block = CalibrationBlock {
            rate_per_s: saturation.rate_per_s(),
            server_busy_share: shares.busy,
            others_share: shares.taken,
            client_idle_share: saturation.idle_share,
            client_cpu_share: saturation.cpu_share,
        };
        Ok((block, saturation))
    }

    /// Runs a load; also says how the server's CPUs were used from its first request to its end. A thread that drains
    /// the probe may end up to 2 ms later.
    fn watched<T>(
        &self,
        hooks: &mut DrainProbe<'_>,
        load: impl FnOnce(&mut FirstRequestHooks<'_, '_>) -> T,
    ) -> Result<(T, Shares), Failure> {
        let mut hooks = FirstRequestHooks {
            hooks,
            runner: self,
            before: None,
        };
        let found = load(&mut hooks);
        let after = self.accounts()?;
        let shares = match hooks.before.transpose()? {
            Some(before) => after.shares_since(&before, &self.server_cpus),
            None => None,
        };
        Ok((found, shares.unwrap_or(Shares::UNKNOWN)))
    }

    fn accounts(&self) -> Result<Accounts, Failure> {
        Accounts::take(&self.roots, &self.server_processes).map_err(host)
    }
}

/// Reads the accounts just before the first request: until then the requests are drawn, and the server is idle.
struct FirstRequestHooks<'a, 'p> {
    hooks: &'a mut DrainProbe<'p>,
    runner: &'a BlockRunner<'a>,
    before: Option<Result<Accounts, Failure>>,
}

impl Hooks for FirstRequestHooks<'_, '_> {
    #[inline]
    fn idle(&mut self, until_next: Nanos) {
        if self.before.is_none() {
            self.before = Some(self.runner.accounts());
        }
        self.hooks.idle(until_next);
    }

    fn should_stop(&mut self) -> bool {
        self.hooks.should_stop()
    }
}

/// Runs a block, at most [`BLOCK_ATTEMPTS`] times, until it gets an answer or is stopped.
fn until_answered<B>(
    mut block: impl FnMut() -> Result<(B, Saturation), Failure>,
) -> Result<(B, Saturation), Failure> {
    let mut found = block()?;
    for _ in 1..BLOCK_ATTEMPTS {
        if found.1.stopped.is_some() || found.1.responses > 0 {
            break;
        }
        found = block()?;
    }
    Ok(found)
}

/// Why calibration ended before its time.
fn cut_short(rig: &mut Rig, reason: Option<StopReason>) -> Failure {
    if reason == Some(StopReason::Interrupted) {
        return Failure::new(
            Exit::Interrupted,
            "interrupted during calibration, before anything was measured",
        );
    }
    rig.server_failure().unwrap_or_else(|| {
        Failure::failed(
            "the server stopped answering during calibration: try it by hand, or see whether \
             another program uses its port",
        )
    })
}

#[cfg(test)]
mod tests {
    use taillab_model::summary::LoadErrors;

    use super::*;

    fn answered(responses: u64, stopped: Option<StopReason>) -> Saturation {
        Saturation {
            responses,
            elapsed: Nanos::from_millis(1),
            times: Vec::new(),
            errors: LoadErrors::default(),
            idle_share: 0.0,
            cpu_share: 1.0,
            stopped,
        }
    }

    /// How often a block with these outcomes is run, and how many responses the last run had.
    fn run(blocks: &[(u64, Option<StopReason>)]) -> (usize, u64) {
        let mut runs = 0;
        let found = until_answered(|| {
            let (responses, stopped) = blocks[runs];
            runs += 1;
            Ok((runs, answered(responses, stopped)))
        });
        let (last, saturation) = found.unwrap();
        assert_eq!(last, runs);
        (runs, saturation.responses)
    }

    #[test]
    fn a_block_that_nobody_answered_is_repeated_a_few_times() {
        assert_eq!(run(&[(9, None)]), (1, 9));
        assert_eq!(run(&[(0, None), (0, None), (9, None)]), (3, 9));
        assert_eq!(run(&[(0, None), (0, None), (0, None), (9, None)]), (3, 0));
    }

    #[test]
    fn a_block_that_was_ended_is_not_repeated() {
        assert_eq!(
            run(&[(0, Some(StopReason::Interrupted)), (9, None)]),
            (1, 0)
        );
        assert_eq!(
            run(&[(0, None), (0, Some(StopReason::Hook)), (9, None)]),
            (2, 0)
        );
    }

    #[test]
    fn what_fails_is_not_repeated() {
        let mut runs = 0;
        let failed = until_answered(|| -> Result<((), Saturation), Failure> {
            runs += 1;
            Err(Failure::failed("no"))
        });
        assert!(failed.is_err());
        assert_eq!(runs, 1);
    }
}
