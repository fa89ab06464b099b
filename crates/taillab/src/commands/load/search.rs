//! `--find`: the highest rate that holds an objective.

use taillab_analysis::load::found;
use taillab_console::exit::Failure;
use taillab_model::Nanos;
use taillab_model::load_result::{LoadStep, Mode};
use taillab_report::rate;

use super::context::Context;
use super::find::{Decision, RateTrial, Search};
use super::open::{Planned, Steps};
use super::outcome::LoadOutcome;
use super::plan::{Bounds, Find};
use super::schedule::Extent;

/// The search ends when the answer is known to within this share.
const WITHIN: f64 = 0.05;
/// Answers wanted beyond the quantile in a first measurement; an interval needs at least 3.8.
const BEYOND: f64 = 40.0;
/// The shortest measurement.
const SHORTEST: Nanos = Nanos::from_secs(1);
/// The search begins at this share of the highest rate.
const START: f64 = 0.1;

/// Searches.
pub fn run(context: &mut Context<'_>, work: &Find) -> Result<LoadOutcome, Failure> {
    let peak = context.capacity.map_or(0.0, |capacity| capacity.peak_per_s);
    let (lowest, highest) = match work.bounds {
        Bounds::Rates(lowest, highest) => (lowest, highest),
        Bounds::Shares(lowest, highest) => (lowest * peak, highest * peak),
    };
    let search = Search {
        lowest_per_s: lowest,
        start_per_s: (START * highest).max(lowest),
        highest_per_s: highest,
        within: WITHIN,
        requests: BEYOND / (1.0 - work.objective.q),
        shortest: SHORTEST.min(work.longest),
        longest: work.longest,
        seed: context.plan.seed,
    };
    let mut steps = Steps::default();
    match search.run(|trial| measure(context, work, trial, &mut steps)) {
        Ok(is_whole) => steps.partial |= !is_whole,
        Err(failure) => steps.end_early(failure)?,
    }
    let found = found(work.objective, &steps.steps);
    Ok(steps.into_outcome(Mode::Search, Some(found)))
}

/// One measurement; `None` when it was ended early.
fn measure(
    context: &mut Context<'_>,
    work: &Find,
    trial: &RateTrial,
    steps: &mut Steps,
) -> Result<Option<Decision>, Failure> {
    if context.session.interrupted() {
        return Ok(None);
    }
    let planned = Planned::at(
        context,
        &work.shape,
        Extent {
            rate_per_s: Some(trial.rate_per_s),
            warmup: work.warmup,
            duration: Some(trial.length),
            seed: trial.seed,
            threads: context.plan.client.threads(),
        },
    )?;
    context.messages.step(&format!(
        "trying {} per second for {}{}",
        rate(trial.rate_per_s),
        trial.length,
        if trial.earlier > 0 {
            ", longer than before"
        } else {
            ""
        }
    ));
    let measured = planned.measure(context, &work.shape)?;
    if trial.earlier > 0 {
        steps.replace(trial.rate_per_s);
    }
    let step = steps.push(planned, &measured, Some(work.objective));
    if step.partial {
        return Ok(None);
    }
    let decision = decision(step);
    // if only the client failed at a rate, that says nothing about the server
    Ok(Some(match decision {
        Decision::Failed if steps.client_failed(work.objective.q) => Decision::Undecided,
        decision => decision,
    }))
}

fn decision(step: &LoadStep) -> Decision {
    match step.objective {
        Some(at) if at.held && at.sure => Decision::Held,
        Some(at) if !at.held && at.sure => Decision::Failed,
        _ => Decision::Undecided,
    }
}
