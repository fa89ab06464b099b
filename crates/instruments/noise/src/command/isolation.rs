//! Isolation of a measured CPU: no interrupts and no receive work there while a loop runs.

use taillab_console::exit::Failure;
use taillab_experiment::changes::{Changes, HeldMitigation, NotApplied};
use taillab_host::CpuSet;
use taillab_host::tune::{MITIGATIONS, Mitigation, Scope};
use taillab_model::mitigation;

/// What is moved away, and put back by [`Isolation::end`].
pub struct Isolation {
    changes: Changes,
    held: Vec<HeldMitigation>,
}

impl Isolation {
    /// Moves everything that can be moved away from these CPUs, and notes what cannot.
    ///
    /// # Errors
    /// Something failed; all changes are undone.
    pub fn begin(cpus: &CpuSet, notes: &mut Vec<String>) -> Result<Self, Failure> {
        let mut isolation = Self {
            changes: Changes::of(Scope {
                pid: None,
                device: None,
                cpus: Some(cpus.clone()),
            })?,
            held: Vec::new(),
        };
        for mitigation in movers() {
            match isolation.changes.apply(mitigation) {
                Ok(held) => isolation.held.push(held),
                Err(NotApplied::Unavailable(why)) => notes.push(format!(
                    "nothing was moved away from CPU {cpus} by {}: {why}",
                    mitigation.is.name
                )),
                Err(NotApplied::Failed(failure)) => {
                    isolation.end()?;
                    return Err(failure);
                }
            }
        }
        Ok(isolation)
    }

    /// What is changed, in a sentence; `None` for nothing.
    pub fn said(&self, cpus: &CpuSet) -> Option<String> {
        let settings: usize = self.held.iter().map(|held| held.changes().len()).sum();
        let names: Vec<&str> = self.held.iter().map(HeldMitigation::name).collect();
        (settings > 0).then(|| {
            let settings = match settings {
                1 => "1 setting".to_owned(),
                settings => format!("{settings} settings"),
            };
            format!(
                "{settings} changed while one loop ran, and put back: interrupts and receive work \
                 away from CPU {cpus} ({})",
                names.join(", ")
            )
        })
    }

    /// Puts everything back, the latest change first.
    ///
    /// # Errors
    /// Not all could be put back; `taillab tune revert` tries again.
    pub fn end(mut self) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(held) = self.held.pop() {
            ended = ended.and(self.changes.take_back(held));
        }
        ended
    }
}

/// The mitigations that move device interrupts and the processing of received packets (RPS).
fn movers() -> impl Iterator<Item = &'static Mitigation> {
    let wanted = [mitigation::IRQ_AFFINITY, mitigation::SOFTIRQ_CPU];
    let rows = MITIGATIONS.iter().copied();
    rows.filter(move |row| wanted.contains(&row.is))
}
