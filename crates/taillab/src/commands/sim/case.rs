//! The systems of one call: every combination of what is swept and compared.

use std::num::NonZeroU32;

use taillab_queueing::discipline::Discipline;
use taillab_report::simulation::Swept;

use crate::cli::Sweep;

/// One system.
#[derive(Clone, Debug)]
pub struct Case {
    pub workers: NonZeroU32,
    /// `None`: a trace is played as it was recorded.
    pub utilization: Option<f64>,
    pub discipline: Discipline,
}

/// What varies: each list has at least one value.
pub struct Ranges {
    pub workers: Vec<NonZeroU32>,
    pub utilization: Vec<Option<f64>>,
    pub disciplines: Vec<Discipline>,
    pub swept: Vec<Swept>,
}

impl Ranges {
    /// The values of the options, replaced by those of the sweeps; two sweeps of the same thing
    /// are an error in words.
    pub fn new(
        workers: NonZeroU32,
        utilization: Option<f64>,
        disciplines: Vec<Discipline>,
        sweeps: Vec<Sweep>,
    ) -> Result<Self, String> {
        let mut ranges = Self {
            workers: vec![workers],
            utilization: vec![utilization],
            disciplines,
            swept: Vec::new(),
        };
        for sweep in sweeps {
            let (what, name) = match sweep {
                Sweep::Utilization(values) => {
                    ranges.utilization = values.into_iter().map(Some).collect();
                    (Swept::Utilization, "utilization")
                }
                Sweep::Workers(values) => {
                    ranges.workers = values;
                    (Swept::Workers, "workers")
                }
                Sweep::Discipline(values) => {
                    ranges.disciplines = values;
                    (Swept::Discipline, "discipline")
                }
            };
            if ranges.swept.contains(&what) {
                return Err(format!(
                    "{name} is swept twice; give all its values in one --sweep"
                ));
            }
            ranges.swept.push(what);
        }
        Ok(ranges)
    }

    /// Every combination, the disciplines running fastest.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &workers in &self.workers {
            for &utilization in &self.utilization {
                for discipline in &self.disciplines {
                    cases.push(Case {
                        workers,
                        utilization,
                        discipline: discipline.clone(),
                    });
                }
            }
        }
        cases
    }
}
