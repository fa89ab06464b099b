//! The peak of one core: the service time, and how much of the peak the probe costs.
//!
//! First the number of outstanding requests with the highest throughput is looked for, unless it is given.
//!
//! Closed-loop blocks run in pairs, one without and one with the probe, in alternating order, so that a drift
//! of the machine's speed affects both alike. Where everything but T1 and T6 is recorded in slices, a
//! block is too short to contain its share of them. So there is a third block, with what is attached between
//! slices, and the cost is the average of both, weighted by their shares of the time.

use std::time::Instant;

use taillab_console::exit::Failure;
use taillab_console::fail::probe as probe_failure;
use taillab_console::progress::Phase;
use taillab_model::Nanos;
use taillab_model::interval::{Interval, median};
use taillab_model::summary::{Calibration, LimitedBy, Overhead, ServiceTimeSource};
use taillab_probe::Probe;

use super::blocks::{AttachedPrograms, BlockRunner, Blocks, CalibrationBlock};
use super::capacity::Capacity;
use super::client::LoadClient;
use super::drain::reserve;
use super::rig::Rig;
use crate::definition::Experiment;

/// More requests per second than any block should reach; it determines the size of the recording.
const RATE_LIMIT_PER_S: f64 = 400_000.0;

/// The server was the limit if its workers used this share of their CPUs or more: of a block of 400 ms, one tick
/// of the kernel's accounts is 2.5 %, so half of the blocks may have no idle one.
const BUSY: f64 = 0.985;

/// Other programs were the limit if they had this share of the server's CPUs or more. A tick of each of the two
/// accounts of a process is 5 % of a block of 400 ms.
const OTHERS: f64 = 0.1;

/// A client that waits for answers for a smaller share of the time cannot send faster.
const CLIENT_IDLE: f64 = 0.05;

/// Nor can one that has its CPU for a smaller share of the time.
const CLIENT_HAD_CPU: f64 = 0.95;

/// What calibration found.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// The workers of the ideal queue.
    pub capacity: Capacity,
    /// The service time t: how long each request occupies a worker.
    pub service_time: Nanos,
    /// The same while the probe is attached, as it is in the measurement; t itself where that is given or a wait.
    pub service_time_with_probe: Nanos,
    /// That is the server's CPU time per request: at the peak it did not use all of its CPUs, so workers ÷ peak
    /// would be too long.
    pub by_cpu_time: bool,
    /// The interval of t, where t was measured.
    pub interval: Option<Interval<Nanos>>,
    /// Where t comes from.
    pub source: ServiceTimeSource,
    /// The peak without the probe.
    pub calibration: Calibration,
    /// What the probe costs, measured at the peak.
    pub overhead: Overhead,
}

/// Finds the service time and the probe's cost; the probe is detached before and after.
pub fn calibrate(
    rig: &mut Rig,
    client: &mut LoadClient,
    probe: &mut Probe,
    experiment: &Experiment,
) -> Result<Calibrated, Failure> {
    let settings = &experiment.calibration;
    let requests = settings.block.as_secs_f64() * RATE_LIMIT_PER_S;
    reserve(probe, requests, &rig.free_cpus()).map_err(probe_failure)?;
    let kinds: &[AttachedPrograms] = match probe.slices() {
        None => &[AttachedPrograms::Nothing, AttachedPrograms::Everything],
        Some(_) => &[
            AttachedPrograms::Nothing,
            AttachedPrograms::Everything,
            AttachedPrograms::Ends,
        ],
    };
    let runner = BlockRunner::new(rig, kinds, experiment);
    let outstanding = match settings.outstanding {
        Some(given) => given.into(),
        None => rig
            .on_client_cpu(&[], || 0, || runner.outstanding_at_peak(client))?
            .map_err(|ended| ended.failure(rig))?,
    };
    let phases = [Phase {
        name: "calibrating",
        total: runner.length().get(),
    }];
    let began = Instant::now();
    let blocks = rig
        .on_client_cpu(
            &phases,
            || began.elapsed().as_nanos() as u64,
            || runner.blocks(client, probe, outstanding),
        )?
        .map_err(|ended| ended.failure(rig))?;
    let cpus = &rig.placement().server;
    let server = (Capacity::of(experiment, cpus), cpus.len());
    summarise(&blocks, probe.slices(), server, experiment)
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

/// What kept these blocks from being faster. The server's workers can use the share `usable` of its CPUs.
fn limited_by(blocks: &[CalibrationBlock], usable: f64) -> LimitedBy {
    let middle = |of: fn(&CalibrationBlock) -> f64| {
        let values: Vec<f64> = blocks.iter().map(of).collect();
        median(&values).map_or(f64::NAN, |middle| middle.value)
    };
    if middle(|block| block.server_busy_share) >= BUSY * usable {
        match middle(|block| block.others_share) >= OTHERS {
            true => LimitedBy::Others,
            false => LimitedBy::Server,
        }
    } else if middle(|block| block.client_idle_share) < CLIENT_IDLE
        || middle(|block| block.client_cpu_share) < CLIENT_HAD_CPU
    {
        LimitedBy::Client
    } else {
        LimitedBy::Waits
    }
}

/// How long a request occupies a worker while the probe is attached, and whether that is the server's CPU time.
/// The server had `cpus` CPUs.
fn with_probe(
    blocks: &Blocks,
    slices: Option<u32>,
    (capacity, cpus): (Capacity, usize),
) -> Option<(Nanos, bool)> {
    let each = costs(blocks, slices, |_, with| with.rate_per_s.recip());
    let per_s = median(&each)?.value.recip();
    let busy = costs(blocks, slices, |_, with| with.server_busy_share);
    let usable = capacity.usable_share(cpus);
    let was_idle = median(&busy).is_some_and(|busy| busy.value < BUSY * usable);
    // the mean: a tick is a large part of a short block
    let used = busy.iter().sum::<f64>() / (busy.len() as f64 * usable);
    let by_cpu_time = capacity.waits.is_none() && was_idle && used > 0.0 && used < 1.0;
    let reached = if by_cpu_time { per_s / used } else { per_s };
    Some((capacity.service_time(reached)?, by_cpu_time))
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
    let measured = capacity.service_time(peak.value).ok_or_else(too_few)?;
    let probed = with_probe(blocks, slices, (capacity, cpus)).ok_or_else(too_few)?;
    let given = experiment.calibration.service_time;
    let source = match (capacity.waits, given) {
        (Some(_), _) => ServiceTimeSource::VirtualWait,
        (None, Some(_)) => ServiceTimeSource::Given,
        (None, None) => ServiceTimeSource::Calibrated,
    };
    let (service_time_with_probe, by_cpu_time) = given.map_or(probed, |given| (given, false));
    let ends = capacity
        .service_time(peak.hi)
        .zip(capacity.service_time(peak.lo));
    let interval = ends.map(|(lo, hi)| Interval { lo, hi });
    let busy: Vec<f64> = without
        .iter()
        .map(|block| block.server_busy_share)
        .collect();
    Ok(Calibrated {
        capacity,
        service_time: given.unwrap_or(measured),
        service_time_with_probe,
        by_cpu_time,
        interval: interval.filter(|_| source == ServiceTimeSource::Calibrated),
        source,
        calibration: Calibration {
            peak_per_s: peak.value,
            peak_lo_per_s: peak.lo,
            peak_hi_per_s: peak.hi,
            server_cpu_busy_share: median(&busy).map_or(0.0, |busy| busy.value),
            limited_by: limited_by(without, capacity.usable_share(cpus)),
            outstanding: u32::try_from(blocks.outstanding).unwrap_or(u32::MAX),
            blocks: without.len() as u32,
            // the recording says what one reaches
            scaling: None,
        },
        overhead: overhead(blocks, slices, cpus).ok_or_else(too_few)?,
    })
}

/// What the probe costs. The server had `cpus` CPUs.
fn overhead(blocks: &Blocks, slices: Option<u32>, cpus: usize) -> Option<Overhead> {
    let lost = |without: &CalibrationBlock, with: &CalibrationBlock| {
        1.0 - with.rate_per_s / without.rate_per_s
    };
    let losses = costs(blocks, slices, lost);
    let loss = median(&losses)?;
    let in_slices = slices.and_then(|_| median(&costs(blocks, None, lost)));
    // the share is of all CPUs together
    let busy_s = |block: &CalibrationBlock| block.server_busy_share / block.rate_per_s;
    let cpu_ns = costs(blocks, slices, |without, with| {
        1e9 * cpus as f64 * (busy_s(with) - busy_s(without))
    });
    Some(Overhead {
        pairs: losses.len() as u32,
        throughput_loss: Some(loss.value),
        throughput_loss_lo: Some(loss.lo),
        throughput_loss_hi: Some(loss.hi),
        throughput_loss_in_slices: in_slices.map(|loss| loss.value),
        cpu_ns_per_request: median(&cpu_ns).map(|cost| cost.value),
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::definition::{Override, ServerKind};

    /// A block in which the server's CPUs were busy all the time, and the client half of it.
    fn busy(rate_per_s: f64) -> CalibrationBlock {
        CalibrationBlock {
            rate_per_s,
            server_busy_share: 1.0,
            others_share: 0.0,
            client_idle_share: 0.5,
            client_cpu_share: 1.0,
        }
    }

    /// The same for the share `server` of the time.
    fn half_busy(rate_per_s: f64, server: f64) -> CalibrationBlock {
        CalibrationBlock {
            server_busy_share: server,
            ..busy(rate_per_s)
        }
    }

    fn workers(workers: u32) -> Capacity {
        Capacity {
            workers: NonZeroU32::new(workers).unwrap(),
            waits: None,
        }
    }

    /// The calibration of nginx with these settings; the server had two CPUs.
    fn calibrated(blocks: &Blocks, capacity: Capacity, flags: Vec<Override>) -> Calibrated {
        let experiment = Experiment::resolve(Some(ServerKind::Nginx), None, flags).unwrap();
        summarise(blocks, None, (capacity, 2), &experiment).unwrap()
    }

    #[test]
    fn the_rate_is_of_the_peak_with_the_probe() {
        let blocks = Blocks {
            without: vec![busy(50_000.0); 9],
            with: vec![busy(40_000.0); 9],
            ..Blocks::default()
        };
        let found = calibrated(&blocks, workers(2), vec![]);
        assert_eq!(found.service_time, Nanos::from_micros(40));
        assert_eq!(found.service_time_with_probe, Nanos::from_micros(50));
        assert_eq!(found.calibration.limited_by, LimitedBy::Server);
        assert!(!found.by_cpu_time);
        let given = ("calibration.service_time", "30us".into());
        let found = calibrated(&blocks, workers(2), vec![given]);
        assert_eq!(found.service_time_with_probe, Nanos::from_micros(30));
        let waits = Capacity {
            waits: Some(Nanos::from_millis(1)),
            ..workers(64)
        };
        let found = calibrated(&blocks, waits, vec![]);
        assert_eq!(found.service_time_with_probe, Nanos::from_millis(1));
    }

    #[test]
    fn what_the_probe_costs_in_slices_counts_by_their_share() {
        let blocks = Blocks {
            without: vec![busy(50_000.0); 9],
            with: vec![busy(25_000.0); 9],
            between: vec![busy(50_000.0); 9],
            ..Blocks::default()
        };
        // three quarters of the time 20 µs, one quarter 40 µs
        let found = with_probe(&blocks, Some(4), (workers(1), 1));
        assert_eq!(found, Some((Nanos::from_micros(25), false)));
    }

    #[test]
    fn a_server_that_was_not_the_limit_could_do_more() {
        let blocks = Blocks {
            without: vec![half_busy(25_000.0, 0.5); 9],
            with: vec![half_busy(20_000.0, 0.5); 9],
            ..Blocks::default()
        };
        // two workers with a CPU each, of which a request takes 50 µs
        let found = calibrated(&blocks, workers(2), vec![]);
        assert_eq!(found.service_time, Nanos::from_micros(80));
        assert_eq!(found.service_time_with_probe, Nanos::from_micros(50));
        assert!(found.by_cpu_time);
        // one worker can use only one of the two CPUs, and did
        let found = calibrated(&blocks, workers(1), vec![]);
        assert_eq!(found.service_time_with_probe, Nanos::from_micros(50));
        assert!(!found.by_cpu_time);
        assert_eq!(found.calibration.limited_by, LimitedBy::Server);
    }

    #[test]
    fn the_limit_is_who_had_no_time_left() {
        let limit = |block: CalibrationBlock| limited_by(&[block; 9], 1.0);
        assert_eq!(limit(half_busy(1.0, 0.99)), LimitedBy::Server);
        assert_eq!(limit(half_busy(1.0, 0.97)), LimitedBy::Waits);
        let shared = CalibrationBlock {
            others_share: 0.3,
            ..busy(1.0)
        };
        assert_eq!(limit(shared), LimitedBy::Others);
        let never_waits = CalibrationBlock {
            client_idle_share: 0.01,
            ..half_busy(1.0, 0.8)
        };
        assert_eq!(limit(never_waits), LimitedBy::Client);
        let kept_off = CalibrationBlock {
            client_cpu_share: 0.5,
            ..half_busy(1.0, 0.8)
        };
        assert_eq!(limit(kept_off), LimitedBy::Client);
        // one idle tick in fewer than half of the blocks is nothing
        let mut blocks = [busy(1.0); 9];
        blocks[..4].fill(half_busy(1.0, 0.975));
        assert_eq!(limited_by(&blocks, 1.0), LimitedBy::Server);
    }

    #[test]
    fn the_cost_of_the_probe_is_the_time_of_all_cpus() {
        let blocks = Blocks {
            without: vec![busy(50_000.0); 9],
            with: vec![busy(40_000.0); 9],
            ..Blocks::default()
        };
        let cost = |cpus| overhead(&blocks, None, cpus).unwrap().cpu_ns_per_request;
        let cost = |cpus| cost(cpus).unwrap();
        // of each CPU, a request takes 20 µs without the probe and 25 µs with it
        assert!((cost(1) - 5_000.0).abs() < 1e-3);
        assert!((cost(8) - 40_000.0).abs() < 1e-3);
    }
}
