//! The parts of a run's load that were not sent as planned, because something held the generator up.

use std::num::NonZeroU32;

use taillab_analysis::cut::{self, Cutter, Occupants, Spans};
use taillab_host::CpuSet;
use taillab_load::FleetRun;
use taillab_model::{Cut, Monotonic, Nanos};

/// An answer that came less than this before the generator stalled may have been read late.
const READ_LATE: Nanos = Nanos::from_millis(1);

/// Where the generator's threads sent late. The recording shows which threads occupied each of their CPUs.
pub fn cuts(load: &FleetRun, cpus: &CpuSet, occupants: &[Occupants<'_>]) -> Vec<Cut> {
    let places = cpus.iter().zip(occupants);
    let threads = load.runs.iter().zip(places).map(|(run, (cpu, occupants))| {
        let waits: Vec<_> = run
            .waits
            .iter()
            .map(|wait| (wait.at, wait.lasted))
            .collect();
        // what a request then waits for its connection is not the generator's delay
        let sends = (run.record.iter()).map(|entry| (entry.times.intended, entry.turn()));
        let thread = cut::Thread {
            waits: &waits,
            cpu,
            occupants,
        };
        cut::cuts_of(sends, thread)
    });
    cut::merged(threads)
}

/// The spans that the client's own times leave out: from a little before each cut until fewer requests
/// are under way than the server has `workers`, so that one of them is idle. To be idle as a whole is
/// rare for a server with many workers, and a cut would not end.
pub fn unseen_by_client(
    load: &FleetRun,
    cuts: &[Cut],
    workers: NonZeroU32,
    measure_from: Monotonic,
) -> Spans {
    let cutter = Cutter::new(cuts, workers, None, measure_from);
    let times = load
        .iter_as_sent()
        .map(|entry| (entry.times.sent, entry.times.received));
    cutter.spans(times).earlier(READ_LATE)
}

/// The cuts as spans of late sends only, without the time until the answers. `seen_at` converts each
/// instant to the caller's time axis.
pub fn late_sends(cuts: &[Cut], seen_at: impl Fn(Monotonic) -> Monotonic) -> Spans {
    let mut spans: Vec<cut::Span> = Vec::new();
    for cut in cuts {
        let (from, to) = (seen_at(cut.from), seen_at(cut.to));
        match spans.last_mut() {
            Some(last) if from <= last.to => last.to = last.to.max(to),
            _ => spans.push(cut::Span { from, to }),
        }
    }
    spans.into()
}
