//! A single loop, without anything around it.

use taillab_host::noise::tsc;
use taillab_host::{Interrupt, Roots};
use taillab_model::Nanos;
use taillab_model::noise::{LoopKind, NoiseRow};

use super::measure::Measuring;
use super::plan::Plan;
use crate::exit::{Exit, Failure};
use crate::fail::host;

/// One loop on one CPU, scheduled as an ordinary thread and without causes: a row of the budget.
pub fn plain(
    kind: LoopKind,
    cpu: u32,
    length: Nanos,
    interrupt: &Interrupt,
) -> Result<NoiseRow, Failure> {
    let clock = tsc::describe(&Roots::default()).map_err(host)?;
    let plan = Plan::of_one(kind, cpu, length)?;
    let mut measuring = Measuring::new(&plan, &clock, interrupt, true, false);
    let mut rows = measuring.phase(&plan.phases[0])?;
    rows.pop()
        .ok_or_else(|| Failure::new(Exit::Failed, format!("the loop on CPU {cpu} found nothing")))
}
