//! An outcome of the simulator as it is reported.

use std::num::NonZeroU32;

use taillab_model::{Nanos, Quantile, REPORTED_QUANTILES, quantile_need};
use taillab_queueing::discipline::Discipline;
use taillab_queueing::exact::{ExactError, ExactModel, System};
use taillab_queueing::fanout;
use taillab_queueing::service::Service;
use taillab_report::two_digits_up;
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::sample::Sample;
use taillab_simulator::simulation::Simulation;

use crate::result::{Engine, Exact, ExactQuantile, Fanout, SimulatedRun, WarmUp, Z, ZQuantile};

/// What was simulated.
pub struct Described<'a> {
    pub arrivals: String,
    pub service: &'a Service,
    pub workers: NonZeroU32,
    pub discipline: &'a Discipline,
    pub seed: u64,
}

/// The part of the report that every outcome has.
pub fn describe(what: &Described<'_>, outcome: &Outcome) -> SimulatedRun {
    let sojourn = outcome.sojourn.distribution();
    let waits = outcome.wait.pooled();
    let unknown = sojourn.quantiles.iter().filter(|at| at.value.is_none());
    let (beyond, unsupported): (Vec<f64>, Vec<f64>) = unknown
        .map(|at| at.q)
        .partition(|q| outcome.sojourn.is_beyond(*q));
    let needs = (unsupported.into_iter())
        .map(|q| (q, needed(&outcome.sojourn, q)))
        .collect();
    SimulatedRun {
        arrivals: what.arrivals.clone(),
        service: service_name(what.service),
        service_mean_ns: what.service.mean_ns(),
        workers: what.workers.get(),
        discipline: what.discipline.to_string(),
        utilization: outcome.utilization,
        seed: what.seed,
        stopped: match outcome.stopped {
            Stopped::Finished => "finished",
            Stopped::Precise => "precise",
            Stopped::Limit => "limit",
            Stopped::Interrupted => "interrupted",
        },
        mean_standard_error_ns: outcome
            .sojourn
            .mean_ns()
            .map(|mean| mean.standard_error)
            .filter(|error| error.is_finite()),
        waited_share: (waits.count() > 0)
            .then(|| 1.0 - waits.count_at_origin() as f64 / waits.count() as f64),
        sojourn,
        wait: outcome.wait.distribution(),
        warm_up: WarmUp {
            requests: outcome.warm_up.requests,
            capped: outcome.warm_up.capped,
        },
        replications: outcome.replications,
        engine: Engine {
            kernel: outcome.engine.kernel.to_owned(),
            isa: outcome.engine.isa.name().to_owned(),
            threads: outcome.engine.threads,
            requests: outcome.engine.simulated,
            elapsed_ns: Nanos::new(
                u64::try_from(outcome.engine.elapsed.as_nanos()).unwrap_or(u64::MAX),
            ),
            requests_per_second: outcome.engine.requests_per_second(),
        },
        fanout: None,
        exact: None,
        z: None,
        warnings: warnings(outcome),
        needs,
        beyond,
        points: outcome.sojourn.ccdf(),
    }
}

/// Measured service times have no notation of their own.
fn service_name(service: &Service) -> String {
    match service {
        Service::Empirical { values } => format!("empirical ({} values)", values.len()),
        _ => service.to_string(),
    }
}

fn warnings(outcome: &Outcome) -> Vec<String> {
    let mut warnings = Vec::new();
    if outcome.warm_up.capped {
        warnings.push(
            "the warm-up is shorter than this queue needs to settle; the tail may be too good: \
             lower the utilisation"
                .to_owned(),
        );
    }
    let longest = outcome.sojourn.pooled().max_ns();
    if longest.is_some_and(|ns| Nanos::try_from_nanos_f64(ns).is_none()) {
        warnings.push(
            "some requests took longer than 584 years, the longest time that a result can hold: \
             the maximum and the percentiles that lie there have no value; use shorter service times"
                .to_owned(),
        );
    }
    if outcome.overloaded_replications > 0 {
        warnings.push(format!(
            "in {} of {} replications the random assignment gives a worker more than it can \
             serve; its queue grows with the length of the run: use more connections or a lower \
             utilisation",
            outcome.overloaded_replications, outcome.replications
        ));
    }
    if outcome.utilization >= 1.0 {
        warnings.push(
            "the load is more than can be served: the queue grows to the end of the trace, and \
             every quantile grows with its length"
                .to_owned(),
        );
    }
    warnings
}

/// How many requests the quantile needs, rounded up to two digits.
fn needed(sample: &Sample, q: f64) -> u64 {
    two_digits_up(quantile_need(q).max(sample.needed(q).ceil() as u64))
}

/// The largest of `parts` independent sojourns.
pub fn fanout(sojourn: &Sample, parts: NonZeroU32) -> Fanout {
    let independent = REPORTED_QUANTILES
        .iter()
        .map(|&q| {
            let one = 1.0 - fanout::one_upper_probability(parts.get(), 1.0 - q);
            Quantile {
                q,
                ..sojourn.reported(one)
            }
        })
        .collect();
    Fanout {
        parts: parts.get(),
        independent,
        fork_join: None,
    }
}

/// What theory says about the system, and how far the sample is from it.
pub fn exact(
    simulation: &Simulation,
    sojourn: &Sample,
) -> Result<(Option<Exact>, Option<Z>), ExactError> {
    let system = System::new(
        &simulation.arrivals,
        &simulation.service,
        simulation.workers.get(),
        &simulation.discipline,
        simulation.utilization,
    );
    let Some(model) = ExactModel::of(&system)? else {
        return Ok((None, None));
    };
    let mean_ns = model.mean_sojourn_s() * 1e9;
    let known: Vec<(f64, Option<f64>)> = REPORTED_QUANTILES
        .iter()
        .map(|&q| (q, model.sojourn_quantile_s(q)))
        .collect();
    let mut deviations = Deviations {
        model: &model,
        sojourn,
        inflation: 1.0,
    };
    let z = Z {
        mean: sojourn
            .mean_ns()
            .map(|mean| mean.z(mean_ns))
            .filter(|z| z.is_finite()),
        quantiles: (known.iter())
            .map(|&(q, quantile_s)| ZQuantile {
                q,
                z: quantile_s.and_then(|quantile_s| deviations.at(q, quantile_s)),
            })
            .collect(),
    };
    let exact = Exact {
        model: model.name().to_owned(),
        source: model.source().to_owned(),
        unit: "ns",
        mean: mean_ns,
        quantiles: (known.iter())
            .map(|&(q, quantile_s)| ExactQuantile {
                q,
                value: quantile_s.and_then(Nanos::try_from_secs_f64),
            })
            .collect(),
    };
    Ok((Some(exact), Some(z)))
}

/// Deviations at the exact quantiles, from the middle to the tail.
struct Deviations<'a> {
    model: &'a ExactModel,
    sojourn: &'a Sample,
    /// By how much correlation multiplied the variance at the quantile before.
    inflation: f64,
}

impl Deviations<'_> {
    /// By how many standard errors the share of requests above the exact quantile is off.
    /// `None` where the law jumps, where too few busy periods reach the quantile for a test, or where it is longer
    /// than a result can hold.
    ///
    /// Far in the tail the spread of the batches is small just when they saw too little;
    /// there the correlation at the quantile before is taken.
    fn at(&mut self, q: f64, quantile_s: f64) -> Option<f64> {
        /// No continuous law has such a share so close to the quantile.
        const JUMP: f64 = 1e-3;
        const OFFSET: f64 = 1e-7;
        /// Independent observations above the quantile that make the spread known.
        const WELL_KNOWN: f64 = 200.0;
        /// A larger error, relative to the share above the quantile, tests nothing.
        const LARGEST_ERROR: f64 = 0.5;
        Nanos::try_from_secs_f64(quantile_s)?;
        let above = self.model.sojourn_ccdf(quantile_s * (1.0 + OFFSET))?;
        let below = self.model.sojourn_ccdf(quantile_s * (1.0 - OFFSET))?;
        if below - above > JUMP * (1.0 - q) {
            return None;
        }
        let wanted = 1.0 - q;
        let share = self.sojourn.share_above(quantile_s * 1e9)?;
        let independent = wanted * q / self.sojourn.pooled().count() as f64;
        let measured = share.standard_error.powi(2);
        let as_before = self.inflation * independent;
        let variance = if wanted * wanted / as_before < WELL_KNOWN {
            measured.max(as_before)
        } else {
            measured
        };
        self.inflation = (variance / independent).max(1.0);
        let error = variance.sqrt();
        (error > 0.0 && error <= LARGEST_ERROR * wanted).then(|| (share.value - wanted) / error)
    }
}
