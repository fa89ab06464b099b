//! A single loop, for one row of the budget.

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_host::noise::{Policy, tsc};
use taillab_host::{CpuSet, Interrupt, Roots, cpus};
use taillab_model::Nanos;
use taillab_model::noise::{LoopKind, NoiseRow, ReadStyle};

use super::measure::Measuring;
use super::plan::Phase;

/// Runs one loop on one CPU, as an ordinary thread and without causes.
pub fn plain(
    kind: LoopKind,
    cpu: u32,
    length: Nanos,
    interrupt: &Interrupt,
) -> Result<NoiseRow, Failure> {
    let clock = tsc::describe(&Roots::default()).map_err(host)?;
    let usable = cpus::allowed().map_err(host)?;
    let phase = Phase {
        step: String::new(),
        kind,
        style: ReadStyle::Single,
        cpus: Some(CpuSet::single(cpu)),
        policy: Policy::Other,
        threshold: Nanos::from_micros(1),
        length,
        interrupts_away: false,
    };
    let mut measuring = Measuring::new(&usable, &clock, interrupt, true, false);
    let row = measuring.phase(&phase)?.pop();
    row.ok_or_else(|| Failure::failed(format!("the loop on CPU {cpu} found nothing")))
}
