//! The peak of one core: the service time, and how much of the peak the probe costs.
//!
//! Closed-loop blocks run in pairs, one without and one with the probe, in alternating order, so that a drift
//! of the machine's speed affects both alike. Where everything but T1 and T6 is recorded in slices, a
//! block is too short to contain its share of them. So there is a third block, with what is attached between
//! slices, and the cost is the average of both, weighted by their shares of the time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use taillab_analysis::median;
use taillab_host::{CpuSample, CpuSet, Roots};
use taillab_load::{ClosedFleet, Saturation, StopReason};
use taillab_model::Nanos;
use taillab_model::summary::{Calibration, Overhead, ServiceTimeSource};
use taillab_probe::Probe;

use super::capacity::Capacity;
use super::client::LoadClient;
use super::drain::draining;
use super::rig::Rig;
use crate::exit::{Exit, Failure};
use crate::experiment::Experiment;
use crate::fail::{host, probe as probe_failure};
use crate::progress::Phase;

/// Load before each block, to fill the server's queue.
const BLOCK_WARM_UP: Nanos = Nanos::from_millis(40);

/// More requests per second than any block should reach; it determines the size of the recording.
const RATE_LIMIT_PER_S: f64 = 400_000.0;

/// Events of one request: five stamps and, if the server sleeps, a wake-up, an interrupt, a softirq, an idle
/// state and two switches. If there are more, they are kept too, at the price of a page fault.
pub const EVENTS_PER_REQUEST: f64 = 14.0;

/// The most runs of a block that gets no answer: the virtual machine may have been stopped during one of
/// them.
const BLOCK_ATTEMPTS: u32 = 3;

/// What calibration found.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The workers of the ideal queue.
    pub capacity: Capacity,
    /// The service time t: how long each request occupies a worker.
    pub service_time: Nanos,
    /// The interval of t, where t was measured.
    pub interval: Option<(Nanos, Nanos)>,
    /// Where t comes from.
    pub source: ServiceTimeSource,
    /// The peak without the probe.
    pub calibration: Calibration,
    /// What the probe costs, measured at the peak.
    pub overhead: Overhead,
}

/// Which programs of the probe are attached in a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attached {
    Nothing,
    Everything,
    /// What is attached between slices.
    Ends,
}

/// The result of one block.
struct CalibrationBlock {
    rate_per_s: f64,
    server_busy_share: f64,
}

/// Finds the service time and the probe's cost; the probe is detached before and after.
pub fn calibrate(
    rig: &mut Rig,
    client: &mut LoadClient,
    probe: &mut Probe,
    experiment: &Experiment,
) -> Result<Calibrated, Failure> {
    let settings = &experiment.calibration;
    let events = settings.block.as_secs_f64() * RATE_LIMIT_PER_S * EVENTS_PER_REQUEST;
    probe.reserve(events as u64).map_err(probe_failure)?;
    let kinds: &[Attached] = match probe.slices() {
        None => &[Attached::Nothing, Attached::Everything],
        Some(_) => &[Attached::Nothing, Attached::Everything, Attached::Ends],
    };
    let blocks = kinds.len() as u64 * u64::from(settings.pairs);
    let phases = [Phase {
        name: "calibrating",
        total: blocks * (settings.block + BLOCK_WARM_UP).get(),
    }];
    let began = Instant::now();
    let runner = BlockRunner {
        roots: rig.roots().clone(),
        server_cpus: rig.placement().server.clone(),
        free_cpus: rig.free_cpus(),
        stop: rig.interrupt().shared_flag(),
        server_gone: rig.server_gone(),
        kinds,
        experiment,
    };
    let found = rig.on_client_cpu(
        &phases,
        || began.elapsed().as_nanos() as u64,
        || runner.blocks(client, probe),
    )?;
    match found? {
        Found::Blocks(blocks) => {
            let cpus = &rig.placement().server;
            let capacity = Capacity::of(experiment, cpus);
            summarise(&blocks, probe.slices(), (capacity, cpus.len()), experiment)
        }
        Found::Cut(reason) => Err(cut_short(rig, reason)),
    }
}

/// What the generator's thread needs to run the blocks.
struct BlockRunner<'a> {
    roots: Roots,
    server_cpus: CpuSet,
    /// For the thread that drains the probe.
    free_cpus: CpuSet,
    stop: Arc<AtomicBool>,
    server_gone: Arc<AtomicBool>,
    kinds: &'static [Attached],
    experiment: &'a Experiment,
}

/// All blocks, or why some are missing.
enum Found {
    Blocks(Blocks),
    Cut(Option<StopReason>),
}

/// The blocks by what was attached; those with the same index form a pair.
#[derive(Default)]
struct Blocks {
    without: Vec<CalibrationBlock>,
    with: Vec<CalibrationBlock>,
    /// Where everything but T1 and T6 is recorded in slices.
    between: Vec<CalibrationBlock>,
}

impl BlockRunner<'_> {
    fn blocks(&self, client: &mut LoadClient, probe: &mut Probe) -> Result<Found, Failure> {
        let mut blocks = Blocks::default();
        let kinds = self.kinds.len();
        for number in 0..kinds * self.experiment.calibration.pairs as usize {
            // each round begins with the next kind
            let kind = self.kinds[(number + number / kinds) % kinds];
            let (block, saturation) =
                until_answered(|| self.block(client, (kind, probe), number as u64))?;
            if saturation.stopped.is_some() || saturation.responses == 0 {
                return Ok(Found::Cut(saturation.stopped));
            }
            let of_kind = match kind {
                Attached::Nothing => &mut blocks.without,
                Attached::Everything => &mut blocks.with,
                Attached::Ends => &mut blocks.between,
            };
            of_kind.push(block);
        }
        Ok(Found::Blocks(blocks))
    }

    /// One closed-loop block.
    fn block(
        &self,
        client: &mut LoadClient,
        (kind, probe): (Attached, &mut Probe),
        place: u64,
    ) -> Result<(CalibrationBlock, Saturation), Failure> {
        match kind {
            Attached::Nothing => Ok(()),
            Attached::Everything => probe.attach_all(),
            Attached::Ends => probe.attach_ends(),
        }
        .map_err(probe_failure)?;
        let mut probe = (kind != Attached::Nothing).then_some(probe);
        let settings = &self.experiment.calibration;
        let before = CpuSample::take(&self.roots).map_err(host)?;
        let load = ClosedFleet {
            outstanding: settings.outstanding.into(),
            length: settings.block,
            warm_up: BLOCK_WARM_UP,
            seed: self.experiment.workload.seed ^ place,
            stop: &self.stop,
        };
        let attached = probe.as_deref_mut();
        // when the load ends: a thread that drains the probe ends up to 2 ms later
        let (saturation, after) = draining(attached, &self.free_cpus, &self.server_gone, |hooks| {
            (client.saturate(&load, hooks), CpuSample::take(&self.roots))
        });
        let (saturation, after) = (saturation?, after.map_err(host)?);
        if let Some(probe) = probe {
            probe.detach();
            probe.discard().map_err(probe_failure)?;
        }
        let usage = after.usage_since(&before, &self.server_cpus);
        let block = CalibrationBlock {
            rate_per_s: saturation.rate_per_s(),
            server_busy_share: usage.map_or(f64::NAN, |usage| usage.busy_share),
        };
        Ok((block, saturation))
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

/// The cost of the probe in each pair, computed from its blocks without it and with it.
fn costs(
    blocks: &Blocks,
    slices: Option<u32>,
    of: impl Fn(&CalibrationBlock, &CalibrationBlock) -> f64,
) -> Vec<f64> {
    let pairs = |with: &[CalibrationBlock]| -> Vec<f64> {
        let pairs = blocks.without.iter().zip(with);
        pairs.map(|(without, with)| of(without, with)).collect()
    };
    let (whole, between) = (pairs(&blocks.with), pairs(&blocks.between));
    match slices {
        None => whole,
        Some(one_in) => {
            let pairs = whole.iter().zip(between);
            let in_slices = 1.0 / f64::from(one_in);
            pairs
                .map(|(whole, between)| between + (whole - between) * in_slices)
                .collect()
        }
    }
}

/// The server had `cpus` CPUs.
fn summarise(
    blocks: &Blocks,
    slices: Option<u32>,
    (capacity, cpus): (Capacity, usize),
    experiment: &Experiment,
) -> Result<Calibrated, Failure> {
    let without = &blocks.without;
    let too_few = || Failure::failed("too few calibration blocks; raise --pairs");
    let rates: Vec<f64> = without.iter().map(|block| block.rate_per_s).collect();
    let peak = median(&rates).ok_or_else(too_few)?;
    let lost = |without: &CalibrationBlock, with: &CalibrationBlock| {
        1.0 - with.rate_per_s / without.rate_per_s
    };
    let losses = costs(blocks, slices, lost);
    let loss = median(&losses).ok_or_else(too_few)?;
    let in_slices = slices.and_then(|_| median(&costs(blocks, None, lost)));
    // the share is of all CPUs together
    let busy_s = |block: &CalibrationBlock| block.server_busy_share / block.rate_per_s;
    let cpu_ns = costs(blocks, slices, |without, with| {
        1e9 * cpus as f64 * (busy_s(with) - busy_s(without))
    });
    let busy: Vec<f64> = without
        .iter()
        .map(|block| block.server_busy_share)
        .collect();
    let measured = capacity.service_time(peak.value).ok_or_else(too_few)?;
    let given = experiment.calibration.service_time;
    let source = match (capacity.waits, given) {
        (Some(_), _) => ServiceTimeSource::VirtualWait,
        (None, Some(_)) => ServiceTimeSource::Given,
        (None, None) => ServiceTimeSource::Calibrated,
    };
    let ends = capacity
        .service_time(peak.hi)
        .zip(capacity.service_time(peak.lo));
    Ok(Calibrated {
        capacity,
        service_time: given.unwrap_or(measured),
        interval: ends.filter(|_| source == ServiceTimeSource::Calibrated),
        source,
        calibration: Calibration {
            peak_per_s: peak.value,
            peak_lo_per_s: peak.lo,
            peak_hi_per_s: peak.hi,
            server_cpu_busy_share: median(&busy).map_or(0.0, |busy| busy.value),
            blocks: without.len() as u32,
        },
        overhead: Overhead {
            pairs: losses.len() as u32,
            throughput_loss: Some(loss.value),
            throughput_loss_lo: Some(loss.lo),
            throughput_loss_hi: Some(loss.hi),
            throughput_loss_in_slices: in_slices.map(|loss| loss.value),
            cpu_ns_per_request: median(&cpu_ns).map(|cost| cost.value),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::experiment::ServerKind;

    #[test]
    fn the_cost_of_the_probe_is_the_time_of_all_cpus() {
        let of = |rate_per_s| -> Vec<CalibrationBlock> {
            let block = || CalibrationBlock {
                rate_per_s,
                server_busy_share: 1.0,
            };
            (0..9).map(|_| block()).collect()
        };
        let blocks = Blocks {
            without: of(50_000.0),
            with: of(40_000.0),
            between: Vec::new(),
        };
        let experiment = Experiment::resolve(Some(ServerKind::Nginx), None, vec![]).unwrap();
        let capacity = Capacity {
            workers: NonZeroU32::MIN,
            waits: None,
        };
        let cost = |cpus| {
            let found = summarise(&blocks, None, (capacity, cpus), &experiment);
            found.unwrap().overhead.cpu_ns_per_request.unwrap()
        };
        // of each CPU, a request takes 20 µs without the probe and 25 µs with it
        assert!((cost(1) - 5_000.0).abs() < 1e-3);
        assert!((cost(8) - 40_000.0).abs() < 1e-3);
    }

    fn answered(responses: u64, stopped: Option<StopReason>) -> Saturation {
        Saturation {
            responses,
            elapsed: Nanos::from_millis(1),
            times: Vec::new(),
            errors: taillab_model::summary::LoadErrors::default(),
            idle_share: 0.0,
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
