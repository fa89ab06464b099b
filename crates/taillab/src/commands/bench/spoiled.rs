//! Whether the machine spoilt a measurement: decided by what it did, not by the result.

use taillab_analysis::timeline::Timeline;
use taillab_model::truth::Truth;
use taillab_model::{Monotonic, Nanos};

/// A measurement is repeated at most so often.
pub const ATTEMPTS: u32 = 3;

/// Stalls may cost so much of what the injection costs.
const MOST: f64 = 0.1;

/// Injected intervals that are nearer to each other are one disturbance (the handlers of a
/// storm, a burst that an interrupt cut).
const TOGETHER: Nanos = Nanos::from_micros(100);

/// Why a measurement says little about what was injected: proven stalls of the server's CPUs
/// cost more than a tenth of what the injection did. Requests come all the time and each waits
/// for the end of a disturbance, so one costs as the square of its length.
pub fn spoiled(timeline: &Timeline, truth: &Truth, measure_from: Monotonic) -> Option<String> {
    let stalls: Vec<Nanos> = (timeline.cpus().iter())
        .flat_map(|line| line.stalls())
        .filter(|stall| stall.from >= measure_from)
        .map(|stall| stall.to.saturating_since(stall.from))
        .collect();
    let mut injected: Vec<(Monotonic, Monotonic)> = (truth.intervals.iter())
        .filter(|interval| interval.from_ns >= measure_from)
        .map(|interval| (interval.from_ns, interval.to_ns))
        .collect();
    injected.sort_unstable();
    let lengths = injected
        .chunk_by(|before, after| after.0.saturating_since(before.1) < TOGETHER)
        .map(|burst| {
            let parts = burst.iter().map(|(from, to)| to.saturating_since(*from));
            parts.sum::<Nanos>()
        });
    let cost = |lengths: &mut dyn Iterator<Item = Nanos>| -> f64 {
        lengths.map(|length| length.as_secs_f64().powi(2)).sum()
    };
    let by_injection = cost(&mut { lengths });
    let by_stalls = cost(&mut stalls.iter().copied());
    (by_injection > 0.0 && by_stalls > MOST * by_injection).then(|| {
        let all: Nanos = stalls.iter().copied().sum();
        format!(
            "the hypervisor held the server's CPU up {} times, for {all} in all, which cost more \
             than a tenth of what was injected",
            stalls.len()
        )
    })
}
