//! The systems of one call: every combination of what is swept and compared.

use std::num::NonZeroU32;

use taillab_queueing::discipline::Discipline;

use crate::args::Sweep;
use crate::result::SweepAxis;

/// One system.
#[derive(Clone, Debug)]
pub struct Case {
    pub workers: NonZeroU32,
    /// `None`: a trace is played as it was recorded.
    pub utilization: Option<f64>,
    pub discipline: Discipline,
}

/// Every combination of these values, the disciplines running fastest, and what is swept. The values of a sweep
/// replace those of its option; two sweeps of the same thing are an error in words.
pub fn cases(
    workers: NonZeroU32,
    utilization: Option<f64>,
    mut disciplines: Vec<Discipline>,
    sweeps: Vec<Sweep>,
) -> Result<(Vec<Case>, Vec<SweepAxis>), String> {
    let (mut workers, mut utilizations) = (vec![workers], vec![utilization]);
    let mut swept = Vec::new();
    for sweep in sweeps {
        let (what, name) = match sweep {
            Sweep::Utilization(values) => {
                utilizations = values.into_iter().map(Some).collect();
                (SweepAxis::Utilization, "utilization")
            }
            Sweep::Workers(values) => {
                workers = values;
                (SweepAxis::Workers, "workers")
            }
            Sweep::Discipline(values) => {
                disciplines = values;
                (SweepAxis::Discipline, "discipline")
            }
        };
        if swept.contains(&what) {
            return Err(format!(
                "{name} is swept twice; give all its values in one --sweep"
            ));
        }
        swept.push(what);
    }
    let mut cases = Vec::new();
    for workers in workers {
        for &utilization in &utilizations {
            for discipline in &disciplines {
                cases.push(Case {
                    workers,
                    utilization,
                    discipline: discipline.clone(),
                });
            }
        }
    }
    Ok((cases, swept))
}
