//! Schedules: one load, or several one after the other.

use taillab_analysis::load::objective_at;
use taillab_analysis::verdict::{Evidence, SentLoad, client_failed, is_overload, judge_client};
use taillab_console::exit::Failure;
use taillab_load::StopReason;
use taillab_model::Objective;
use taillab_model::load_result::{LoadStep, Mode, SearchResult};
use taillab_report::rate;

use super::appointment::Appointment;
use super::context::Context;
use super::find::mixed;
use super::outcome::{Ending, Figures, LoadOutcome};
use super::plan::{Level, Open};
use super::schedule::{Extent, Schedule, Shape};
use super::session::{LoadMeasurement, Sending};

/// One load.
pub fn single(context: &mut Context<'_>, work: &Open) -> Result<LoadOutcome, Failure> {
    let planned = Planned::of(context, work, work.levels[0], context.plan.seed)?;
    if let Some(appointment) = context.appointment {
        appointment.wait(planned.schedule.preparation(), context.interrupt)?;
    }
    let measurement = planned.measure(context, &work.shape)?;
    Ok(LoadOutcome {
        mode: Mode::OpenLoop,
        started_unix_s: measurement.started_unix_s,
        partial: measurement.is_partial(),
        ending: Ending {
            stopped: measurement.run.stopped,
            failure: None,
        },
        figures: Figures::Load(Box::new(measurement)),
        schedule: Some(planned.schedule),
    })
}

/// Several loads.
pub fn sweep(context: &mut Context<'_>, work: &Open) -> Result<LoadOutcome, Failure> {
    let mut steps = Steps::default();
    for (place, level) in work.levels.iter().enumerate() {
        if context.session.interrupted() {
            steps.partial = true;
            break;
        }
        let seed = mixed(context.plan.seed, place as u64);
        let measured = Planned::of(context, work, *level, seed).and_then(|planned| {
            context.messages.step(&format!(
                "load {} of {}: {} per second",
                place + 1,
                work.levels.len(),
                rate(planned.schedule.rate_per_s)
            ));
            let measured = planned.measure(context, &work.shape)?;
            Ok((planned, measured))
        });
        let (planned, measured) = match measured {
            Ok(measured) => measured,
            Err(failure) => {
                steps.end_early(failure)?;
                break;
            }
        };
        steps.push(planned, &measured, None);
        if measured.is_partial() {
            break;
        }
    }
    Ok(steps.into_outcome(Mode::Sweep, None))
}

/// One load that is about to be measured.
pub struct Planned {
    pub schedule: Schedule,
    utilization: Option<f64>,
    seed: u64,
}

impl Planned {
    /// The schedule of one level.
    fn of(context: &Context<'_>, work: &Open, level: Level, seed: u64) -> Result<Self, Failure> {
        let peak = context.capacity.map(|capacity| capacity.peak_per_s);
        let rate_per_s = match (level, peak) {
            (Level::Rate(rate), _) => Some(rate),
            (Level::Share(share), Some(peak)) => Some(share * peak),
            (Level::AsGiven | Level::Share(_), _) => None,
        };
        Self::at(
            context,
            &work.shape,
            Extent {
                rate_per_s,
                warmup: work.warmup,
                duration: work.duration,
                seed,
                threads: context.plan.client.threads(),
            },
        )
    }

    /// The schedule of this extent.
    pub fn at(context: &Context<'_>, shape: &Shape, extent: Extent) -> Result<Self, Failure> {
        let schedule = shape.schedule(&extent)?;
        let peak = context.capacity.map(|capacity| capacity.peak_per_s);
        Ok(Self {
            utilization: peak.map(|peak| schedule.rate_per_s / peak),
            seed: extent.seed,
            schedule,
        })
    }

    /// Sends it.
    pub fn measure(
        &self,
        context: &mut Context<'_>,
        shape: &Shape,
    ) -> Result<LoadMeasurement, Failure> {
        let name = format!("{}/s", rate(self.schedule.rate_per_s));
        context.session.open_loop(
            &name,
            Sending {
                schedule: self.schedule.clone(),
                shape,
                utilization: self.utilization,
                seed: self.seed,
                start: context.appointment.map(Appointment::at),
            },
        )
    }
}

/// The results of several loads so far.
#[derive(Default)]
pub struct Steps {
    pub steps: Vec<LoadStep>,
    /// The lowest load's schedule, for the floor.
    lowest: Option<Planned>,
    started_unix_s: u64,
    pub stopped: Option<StopReason>,
    pub partial: bool,
    /// The failure that ended the measurements.
    ended: Option<Failure>,
}

impl Steps {
    /// Judges a measurement and keeps it.
    pub fn push(
        &mut self,
        planned: Planned,
        measured: &LoadMeasurement,
        objective: Option<Objective>,
    ) -> &LoadStep {
        let summary = &measured.analysis.summary;
        let (supported, verdict) = judge_client(&Evidence {
            partial: measured.is_partial(),
            on_stream: measured.on_stream,
            load: Some(SentLoad {
                summary,
                evidence: Some(&measured.analysis.evidence),
                floor: None,
            }),
            ..Evidence::default()
        });
        // a longer measurement may replace the first step, but not when it all began
        if self.started_unix_s == 0 {
            self.started_unix_s = measured.started_unix_s;
        }
        self.stopped = measured.run.stopped;
        self.partial |= measured.is_partial();
        self.steps.push(LoadStep {
            partial: measured.is_partial(),
            load: supported.load(summary.clone()),
            overloaded: is_overload(&verdict),
            objective: objective.map(|o| objective_at(o, measured.requests(), &verdict)),
            verdict,
        });
        let rate = |planned: &Planned| planned.schedule.rate_per_s;
        if self
            .lowest
            .as_ref()
            .is_none_or(|lowest| rate(&planned) < rate(lowest))
        {
            self.lowest = Some(planned);
        }
        &self.steps[self.steps.len() - 1]
    }

    /// Notes a failure that ends the measurements.
    ///
    /// # Errors
    /// The failure, if nothing was measured before it.
    pub fn end_early(&mut self, failure: Failure) -> Result<(), Failure> {
        if self.steps.is_empty() {
            return Err(failure);
        }
        self.partial = true;
        self.ended = Some(failure);
        Ok(())
    }

    /// Whether the client, not the server, spoiled the percentile `q` of the last step.
    pub fn client_failed(&self, q: f64) -> bool {
        self.steps
            .last()
            .is_some_and(|step| client_failed(&step.verdict, q))
    }

    /// Removes the step at this rate: a longer measurement replaces it.
    pub fn replace(&mut self, rate_per_s: f64) {
        let is_other = |step: &LoadStep| {
            let off = step.load.target_rate_per_s / rate_per_s - 1.0;
            off.abs() > 1e-9
        };
        self.steps.retain(is_other);
    }

    /// All of them, and what a search found.
    pub fn into_outcome(self, mode: Mode, found: Option<SearchResult>) -> LoadOutcome {
        LoadOutcome {
            mode,
            started_unix_s: self.started_unix_s,
            partial: self.partial,
            ending: Ending {
                stopped: self.stopped,
                failure: self.ended,
            },
            figures: Figures::Steps {
                steps: self.steps,
                found,
            },
            schedule: self.lowest.map(|lowest| lowest.schedule),
        }
    }
}
