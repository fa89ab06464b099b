//! Turns counters of the kernel into events.

use taillab_model::{Event, EventKind, Monotonic, Nanos};

use super::steal::StealSampler;
use super::throttle::ThrottleSampler;
use crate::cpus::CpuSet;
use crate::roots::Roots;

/// Polls stolen time and quotas, which have no tracepoint.
#[derive(Debug)]
pub struct Counters {
    steal: Option<StealSampler>,
    throttle: ThrottleSampler,
    /// A quota stops the server on any CPU; its event is recorded as one of this CPU.
    first_cpu: u16,
}

impl Counters {
    /// Begins to count for the server's CPUs and processes.
    pub fn begin(roots: &Roots, cpus: &CpuSet, processes: &[u32]) -> Self {
        Self {
            steal: StealSampler::new(roots, cpus).ok(),
            throttle: ThrottleSampler::new(roots, processes),
            first_cpu: cpus.iter().next().map_or(0, number),
        }
    }

    /// Passes to `seen` what was counted since the last look, as events that end at `at`.
    pub fn look(&mut self, at: Monotonic, mut seen: impl FnMut(Event)) {
        if let Some(steal) = &mut self.steal {
            steal.sample(|cpu, lasted| {
                let (cpu, kind) = (number(cpu), EventKind::Stolen { lasted });
                seen(Event { at, cpu, kind });
            });
        }
        let lasted = self.throttle.sample();
        if lasted > Nanos::ZERO {
            seen(Event {
                at,
                cpu: self.first_cpu,
                kind: EventKind::Throttled { lasted },
            });
        }
    }
}

fn number(cpu: u32) -> u16 {
    u16::try_from(cpu).unwrap_or(u16::MAX)
}
