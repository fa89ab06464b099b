//! Configurations of a server measured in rounds: in each round every configuration has a block of load, in random order and with
//! the same arrivals.
//!
//! What a figure of a paper compares, is measured as the trials of `--fix` are: blocks that are neighbours in time, so that a drift
//! of the machine is common to them. The sojourns are those in the server (T6 − T1), and the ideal of each block is that of its
//! own arrivals.

use std::time::{Duration, Instant};

use taillab_console::exit::{Exit, Failure};
use taillab_console::progress::Progress;
use taillab_console::say::Say;
use taillab_host::Interrupt;
use taillab_host::tune::{MITIGATIONS, Mitigation};
use taillab_load::ClosedLoop;
use taillab_model::Nanos;
use taillab_queueing::random::lanes::{GOLDEN, mix};

use super::generated::{BlockLoad, GeneratedLoad};
use super::load::Load;
use super::trial::Bench;
use crate::changes::{Changes, NotApplied};
use crate::definition::Experiment;
use crate::testbed::{BackgroundLoad, Calibrated, Rig, calibrate, context, measure};

/// A configuration: settings that are changed for the length of its blocks.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    /// These, one after the other; without one of them there is no block.
    pub mitigations: Vec<&'static Mitigation>,
    /// And those of these that are possible here.
    pub where_possible: Vec<&'static Mitigation>,
}

/// The mitigation with this name.
pub fn mitigation(name: &str) -> Option<&'static Mitigation> {
    MITIGATIONS.iter().copied().find(|row| row.is.name == name)
}

/// What a block showed.
#[derive(Clone, Debug)]
pub struct ConditionBlock {
    /// The sojourns in the server, with the time-out for requests without an answer.
    pub sojourns: Vec<Nanos>,
    /// What they would be in the ideal server, for the same arrivals.
    pub ideal: Vec<Nanos>,
    /// The same with the lower and with the upper end of t's interval, where it has one.
    pub ideal_bounds: Option<[Vec<Nanos>; 2]>,
    /// Requests per second at the peak, where that is measured.
    pub peak_per_s: Option<f64>,
}

/// The blocks of a round, one for each condition; instead of one, why there is none.
pub type Round = Vec<Result<ConditionBlock, String>>;

/// What is known of a server from its calibration.
#[derive(Clone, Debug)]
pub struct KnownServer {
    calibrated: Calibrated,
    /// Requests per second of each block.
    pub rate_per_s: f64,
}

impl KnownServer {
    /// The service time t of the ideal server.
    pub const fn ideal_service_time(&self) -> Nanos {
        self.calibrated.service_time_with_probe
    }

    /// The ends of its interval. The calibration knows that of t without the probe, which is as wide.
    fn service_time_bounds(&self) -> Option<[Nanos; 2]> {
        let (lo, hi) = self.calibrated.interval?;
        let probe =
            self.ideal_service_time().as_secs_f64() / self.calibrated.service_time.as_secs_f64();
        let end = |end: Nanos| Nanos::try_from_secs_f64(end.as_secs_f64() * probe);
        Some([end(lo)?, end(hi)?])
    }
}

/// How rounds are measured.
#[derive(Clone, Debug)]
pub struct RoundsPlan {
    /// The number of the first round, on which seeds and orders depend.
    pub first: u64,
    /// How many rounds.
    pub rounds: u64,
    /// The shortest block, without its warm-up.
    pub block: Nanos,
    /// A block is as long as it takes to send as many requests, but at most ten seconds.
    pub requests: u32,
    /// Whether the peak is measured after each block.
    pub peaks: bool,
    /// The seed of arrivals and orders.
    pub seed: u64,
}

/// Starts the server, calibrates it unless it is `known`, measures the rounds, and takes everything down. Returns what is known of
/// the server, and the rounds that were finished; `each` sees each of them when it is.
///
/// # Errors
/// The server or its load failed, or Ctrl-C.
pub fn measure_rounds(
    (experiment, conditions): (&Experiment, &[Condition]),
    plan: &RoundsPlan,
    known: Option<KnownServer>,
    (interrupt, say): (&Interrupt, Say),
    each: &mut dyn FnMut(Round),
) -> Result<KnownServer, Failure> {
    let progress = Progress::new(say.quiet);
    let mut rig = Rig::start(experiment, progress, interrupt.clone())?;
    let measured = on_rig(&mut rig, (experiment, conditions), plan, known, say, each);
    let server_failure = rig.server_failure();
    // put the machine back before reporting what went wrong
    let torn_down = rig.take_down();
    let known = match (measured, server_failure) {
        (Err(seen), Some(failure)) if seen.exit == Exit::Failed => return Err(failure),
        (measured, _) => measured?,
    };
    torn_down.map(|()| known)
}

fn on_rig(
    rig: &mut Rig,
    (experiment, conditions): (&Experiment, &[Condition]),
    plan: &RoundsPlan,
    known: Option<KnownServer>,
    say: Say,
    each: &mut dyn FnMut(Round),
) -> Result<KnownServer, Failure> {
    rig.step_aside()?;
    let mut probe = rig.load_probe(experiment)?;
    let mut client = rig.connect(experiment)?;
    let known = match known {
        Some(known) => known,
        None => {
            say.step("calibrating");
            let calibrated = calibrate(rig, &mut client, &mut probe, experiment)?;
            let rate = measure::rate_or_following(rig, experiment, &calibrated);
            KnownServer {
                rate_per_s: rate.first_per_s(),
                calibrated,
            }
        }
    };
    let context = context::before(rig, &probe, experiment, &known.calibrated);
    drop(probe);
    let server = rig.placement().server.clone();
    let _background = BackgroundLoad::start(experiment, &server)?;
    let blocks = BlockLoad {
        rate_per_s: known.rate_per_s,
        length: block_length(plan, known.rate_per_s),
        outstanding: ClosedLoop::OUTSTANDING,
    };
    let load = GeneratedLoad::new(rig, client, experiment, blocks, &context)?;
    let mut bench = bench(Box::new(load), &known, plan, conditions.len())?;
    for number in plan.first..plan.first + plan.rounds {
        let of_round = (number, plan.peaks, &known);
        each(round(&mut bench, experiment, conditions, of_round)?);
    }
    Ok(known)
}

/// How long a block is.
fn block_length(plan: &RoundsPlan, rate_per_s: f64) -> Nanos {
    /// The longest.
    const LONGEST: Nanos = Nanos::from_secs(10);
    let enough = Nanos::try_from_secs_f64(f64::from(plan.requests) / rate_per_s);
    enough.unwrap_or(LONGEST).min(LONGEST).max(plan.block)
}

fn bench<'r>(
    load: Box<dyn Load + 'r>,
    known: &KnownServer,
    plan: &RoundsPlan,
    conditions: usize,
) -> Result<Bench<'r>, Failure> {
    /// Nothing here ends by time; this only says how long it should take at most.
    const AROUND: Duration = Duration::from_secs(1);
    let blocks = conditions as u32 * u32::try_from(plan.rounds).unwrap_or(u32::MAX);
    let takes = Duration::from_nanos(load.takes().get()) + AROUND;
    Ok(Bench {
        changes: Changes::of(load.scope())?,
        load,
        service_time: known.ideal_service_time(),
        seed: plan.seed,
        shows: false,
        ends: Instant::now() + takes.saturating_mul(blocks),
    })
}

/// Measures each condition once.
fn round(
    bench: &mut Bench<'_>,
    experiment: &Experiment,
    conditions: &[Condition],
    (number, peaks, known): (u64, bool, &KnownServer),
) -> Result<Round, Failure> {
    // the same arrivals in all blocks of a round
    let seed = bench.seed ^ (number << 20);
    let mut blocks: Vec<Option<Result<ConditionBlock, String>>> = vec![None; conditions.len()];
    for place in order(conditions.len(), bench.seed, number) {
        let block = block(bench, experiment, &conditions[place], (seed, peaks, known))?;
        blocks[place] = Some(block);
    }
    Ok(blocks.into_iter().flatten().collect())
}

/// One block; why there is none, where its settings cannot be changed here.
fn block(
    bench: &mut Bench<'_>,
    experiment: &Experiment,
    condition: &Condition,
    (seed, peaks, known): (u64, bool, &KnownServer),
) -> Result<Result<ConditionBlock, String>, Failure> {
    let mut mitigations = condition.mitigations.clone();
    for &mitigation in &condition.where_possible {
        let plan = bench.changes.plan(mitigation)?;
        if plan.check(false).is_ok() && plan.changes().next().is_some() {
            mitigations.push(mitigation);
        }
    }
    let measured = bench.under(&mitigations, |load| {
        let seen = load.block(seed)?;
        let peak = if peaks { load.peak_per_s(seed)? } else { None };
        Ok((seen, peak))
    });
    let (seen, peak_per_s) = match measured {
        Ok(measured) => measured,
        Err(NotApplied::Failed(failure)) => return Err(failure),
        Err(NotApplied::Unavailable(why)) => return Ok(Err(why)),
    };
    let Some(recorded) = seen.recorded else {
        return Ok(Err("the probe recorded nothing".to_owned()));
    };
    let workers = known.calibrated.capacity.workers;
    Ok(Ok(ConditionBlock {
        sojourns: recorded.sojourns(experiment.client.timeout),
        ideal: recorded.ideal(known.ideal_service_time(), workers),
        ideal_bounds: (known.service_time_bounds())
            .map(|ends| ends.map(|t| recorded.ideal(t, workers))),
        peak_per_s,
    }))
}

/// The conditions of a round in random order (Fisher and Yates).
pub fn order(conditions: usize, seed: u64, round: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..conditions).collect();
    let mut state = seed ^ round.wrapping_mul(GOLDEN);
    for place in (1..conditions).rev() {
        state = mix(state.wrapping_add(GOLDEN));
        order.swap(place, (state % (place as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_round_has_every_condition_once_in_any_order() {
        let mut seen = BTreeSet::new();
        for round in 0..60 {
            let order = order(3, 7, round);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            seen.insert(order);
        }
        assert_eq!(seen.len(), 6);
        assert!(order(0, 7, 1).is_empty());
    }

    #[test]
    fn a_block_has_enough_requests() {
        let plan = RoundsPlan {
            first: 0,
            rounds: 1,
            block: Nanos::from_secs(1),
            requests: 2_000,
            peaks: false,
            seed: 1,
        };
        let length = |rate| block_length(&plan, rate);
        assert_eq!(length(50_000.0), Nanos::from_secs(1));
        assert_eq!(length(500.0), Nanos::from_secs(4));
        assert_eq!(length(1.0), Nanos::from_secs(10));
        assert_eq!(length(0.0), Nanos::from_secs(10));
    }

    #[test]
    fn a_mitigation_is_found_by_its_name() {
        assert_eq!(mitigation("nice").map(|found| found.is.name), Some("nice"));
        assert!(mitigation("nicer").is_none());
    }
}
