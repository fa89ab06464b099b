//! Configurations of a server measured in rounds: in each round every configuration has a block of load, in random order and with
//! the same arrivals.
//!
//! What a figure of a paper compares, is measured as the trials of `--fix` are: blocks that are neighbours in time, so that a drift
//! of the machine is common to them. The sojourns are those in the server (T6 − T1), and the ideal of each block is that of its
//! own arrivals.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use taillab_analysis::untouched::RecordedBlock;
use taillab_console::exit::{Exit, Failure};
use taillab_console::messages::Messages;
use taillab_console::progress::Progress;
use taillab_host::Interrupt;
use taillab_host::tune::{MITIGATIONS, Mitigation};
use taillab_load::ClosedLoop;
use taillab_model::{Nanos, RecordingContext};
use taillab_queueing::random::lanes::{GOLDEN, mix};

use super::generated::{BlockLoad, GeneratedLoad};
use super::load::Load;
use super::trial::Bench;
use crate::changes::{Changes, NotApplied};
use crate::definition::Experiment;
use crate::testbed::{BackgroundLoad, Calibrated, LoadClient, Rig, calibrate, context, measure};

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

/// What the ideal server takes for a request.
#[derive(Clone, Copy, Debug)]
struct IdealTime {
    t: Nanos,
    /// The part of it after the response.
    after_response: Nanos,
    /// Its interval, where it has one.
    bounds: Option<[Nanos; 2]>,
}

impl IdealTime {
    /// As the calibration found it. That knows the interval of t without the probe, which is as wide.
    fn of_calibration(calibrated: &Calibrated) -> Self {
        let t = calibrated.service_time_with_probe;
        let probe = t.as_secs_f64() / calibrated.service_time.as_secs_f64();
        let end = |end: Nanos| Nanos::try_from_secs_f64(end.as_secs_f64() * probe);
        let bounds = calibrated.interval;
        Self {
            t,
            after_response: Nanos::ZERO,
            bounds: bounds.and_then(|of_t| Some([end(of_t.lo)?, end(of_t.hi)?])),
        }
    }

    /// As the busy periods of a block show it, one of so many `rounds` whose errors are independent.
    fn of_block(recorded: &RecordedBlock, rounds: u64) -> Option<Self> {
        /// What is common to the errors of all blocks: busy periods are within it of a saturated peak.
        const COMMON: f64 = 0.02;
        let found = recorded.service_time()?;
        let t = found.service_time_ns.as_secs_f64();
        let off = |end: Nanos| {
            let off = (end.as_secs_f64() / t - 1.0).abs() / (rounds.max(1) as f64).sqrt();
            off.max(COMMON)
        };
        let at = |off: f64| Nanos::try_from_secs_f64(t * (1.0 + off));
        Some(Self {
            t: found.service_time_ns,
            after_response: found.after_response_ns,
            bounds: Some([at(-off(found.lo_ns))?, at(off(found.hi_ns))?]),
        })
    }

    /// The ideal sojourns of a block with it, and with both ends of its interval.
    fn sojourns(
        self,
        recorded: &RecordedBlock,
        workers: NonZeroU32,
    ) -> (Vec<Nanos>, Option<[Vec<Nanos>; 2]>) {
        let of = |t| recorded.ideal(t, self.after_response, workers);
        (of(self.t), self.bounds.map(|ends| ends.map(of)))
    }
}

/// What is known of a server from its calibration, and from a first block.
#[derive(Clone, Debug)]
pub struct KnownServer {
    calibrated: Calibrated,
    ideal: IdealTime,
    /// Requests per second of each block.
    pub rate_per_s: f64,
}

impl KnownServer {
    /// The service time t of the ideal server.
    pub const fn ideal_service_time(&self) -> Nanos {
        self.ideal.t
    }

    /// Takes t from a block: its busy periods show it also where the calibration was disturbed. The rate follows from it.
    fn learn(&mut self, recorded: &RecordedBlock, experiment: &Experiment) {
        if let Some(ideal) = self.ideal_of(recorded, 1) {
            self.ideal = ideal;
            let capacity = self.calibrated.capacity;
            self.rate_per_s = capacity.rate_per_s(experiment.workload.utilization, ideal.t);
        }
    }

    /// What the ideal server takes for the requests of a block, as that shows it; a worker that waits on a timer takes what it
    /// is told to.
    fn ideal_of(&self, recorded: &RecordedBlock, rounds: u64) -> Option<IdealTime> {
        match self.calibrated.capacity.waits {
            Some(_) => None,
            None => IdealTime::of_block(recorded, rounds),
        }
    }
}

/// How rounds are measured.
#[derive(Clone, Debug)]
pub struct RoundsPlan {
    /// The number of the first round, on which seeds and orders depend.
    pub first: u64,
    /// How many rounds.
    pub rounds: u64,
    /// How many rounds of the server there are in all.
    pub of: u64,
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
    (interrupt, messages): (&Interrupt, Messages),
    each: &mut dyn FnMut(Round),
) -> Result<KnownServer, Failure> {
    let progress = Progress::new(messages.quiet);
    let mut rig = Rig::start(experiment, progress, interrupt.clone())?;
    let measured = on_rig(
        &mut rig,
        (experiment, conditions),
        plan,
        known,
        messages,
        each,
    );
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
    messages: Messages,
    each: &mut dyn FnMut(Round),
) -> Result<KnownServer, Failure> {
    rig.step_aside()?;
    let mut client = rig.connect(experiment)?;
    let is_known = known.is_some();
    let (mut known, context) = calibrated(rig, &mut client, experiment, known, messages)?;
    let server = rig.placement().server.clone();
    let _background = BackgroundLoad::start(experiment, &server)?;
    let send = |rate_per_s| BlockLoad {
        rate_per_s,
        length: block_length(plan, rate_per_s),
        outstanding: ClosedLoop::OUTSTANDING,
    };
    let mut load = GeneratedLoad::new(rig, client, experiment, send(known.rate_per_s), &context)?;
    if !is_known {
        if let Some(recorded) = first_block(&mut load, conditions, !plan.seed)? {
            known.learn(&recorded, experiment);
        }
        load.send(send(known.rate_per_s));
    }
    let mut bench = bench(Box::new(load), &known, plan, conditions.len())?;
    for number in plan.first..plan.first + plan.rounds {
        let of_round = (number, plan, &known);
        each(round(&mut bench, experiment, conditions, of_round)?);
    }
    Ok(known)
}

/// What a calibration says of the server, unless that is known, and the context of its recordings. The probe that
/// this takes is gone afterwards: each block has its own.
fn calibrated(
    rig: &mut Rig,
    client: &mut LoadClient,
    experiment: &Experiment,
    known: Option<KnownServer>,
    messages: Messages,
) -> Result<(KnownServer, RecordingContext), Failure> {
    let mut probe = rig.load_probe(experiment)?;
    let known = match known {
        Some(known) => known,
        None => {
            messages.step("calibrating");
            let calibrated = calibrate(rig, client, &mut probe, experiment)?;
            let rate = measure::rate_or_following(rig, experiment, &calibrated);
            KnownServer {
                rate_per_s: rate.first_per_s(),
                ideal: IdealTime::of_calibration(&calibrated),
                calibrated,
            }
        }
    };
    let context = context::before(rig, &probe, experiment, &known.calibrated);
    Ok((known, context))
}

/// A block with the most settings that any condition has: it is disturbed least, so it shows best what a request costs.
fn first_block(
    load: &mut GeneratedLoad<'_>,
    conditions: &[Condition],
    seed: u64,
) -> Result<Option<RecordedBlock>, Failure> {
    let most = (conditions.iter()).max_by_key(|condition| condition.mitigations.len());
    let changes = Changes::of(load.scope())?;
    let mut held = Vec::new();
    let mut applied = Ok(());
    for mitigation in most.iter().flat_map(|condition| &condition.mitigations) {
        match changes.apply(mitigation) {
            Ok(one) => held.push(one),
            // it does without
            Err(NotApplied::Unavailable(_)) => {}
            Err(NotApplied::Failed(failure)) => applied = Err(failure),
        }
    }
    let seen = applied.and_then(|()| load.block(seed));
    // the last one first; try all before returning the first failure
    let mut put_back = Ok(());
    while let Some(one) = held.pop() {
        put_back = put_back.and(changes.take_back(one));
    }
    put_back?;
    Ok(seen?.recorded)
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
    (number, plan, known): (u64, &RoundsPlan, &KnownServer),
) -> Result<Round, Failure> {
    // the same arrivals in all blocks of a round
    let seed = bench.seed ^ (number << 20);
    let mut blocks: Vec<Option<Result<ConditionBlock, String>>> = vec![None; conditions.len()];
    for place in order(conditions.len(), bench.seed, number) {
        let block = block(bench, experiment, &conditions[place], (seed, plan, known))?;
        blocks[place] = Some(block);
    }
    Ok(blocks.into_iter().flatten().collect())
}

/// One block; why there is none, where its settings cannot be changed here.
fn block(
    bench: &mut Bench<'_>,
    experiment: &Experiment,
    condition: &Condition,
    (seed, plan, known): (u64, &RoundsPlan, &KnownServer),
) -> Result<Result<ConditionBlock, String>, Failure> {
    let mut mitigations = condition.mitigations.clone();
    for &mitigation in &condition.where_possible {
        let changes = bench.changes.plan(mitigation)?;
        if changes.check(false).is_ok() && changes.changes().next().is_some() {
            mitigations.push(mitigation);
        }
    }
    let measured = bench.under(&mitigations, |load| {
        let seen = load.block(seed)?;
        let peak = if plan.peaks {
            load.peak_per_s(seed)?
        } else {
            None
        };
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
    let ideal = known.ideal_of(&recorded, plan.of).unwrap_or(known.ideal);
    let (ideal, ideal_bounds) = ideal.sojourns(&recorded, known.calibrated.capacity.workers);
    Ok(Ok(ConditionBlock {
        sojourns: recorded.sojourns(experiment.client.timeout),
        ideal,
        ideal_bounds,
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
            of: 1,
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
