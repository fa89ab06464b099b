//! What the generator's own lateness tells about the machine.
//!
//! The generator's thread has a CPU of its own and only looks at the clock between sends. A
//! send that left long after both its due time and the send before it means that the thread
//! could not look: another task had its CPU, or the hypervisor had it. The ledger takes such a
//! stall for evidence only where the server's CPU stood still at the same time.

use taillab_host::CpuSet;
use taillab_load::FleetRun;
use taillab_model::{Event, EventKind, Monotonic, Nanos};

/// Many times what the longest batch of answers takes to read.
const STALL: Nanos = Nanos::from_micros(200);

/// The stalls of the generator's threads, each on its CPU, stamped at their ends.
pub fn stalls(load: &FleetRun, cpus: &CpuSet) -> Vec<Event> {
    let threads = load.runs.iter().zip(cpus.iter());
    threads
        .flat_map(|(run, cpu)| {
            let sends = run.record.iter().map(|entry| entry.times);
            let sends = sends.map(|times| (times.intended, times.sent));
            let cpu = u16::try_from(cpu).unwrap_or(u16::MAX);
            late(sends).map(move |(at, lasted)| Event {
                at,
                cpu,
                kind: EventKind::Stalled { lasted },
            })
        })
        .collect()
}

/// When, and for how long, the sender of these (due, sent) did nothing that was due.
fn late(
    sends: impl Iterator<Item = (Monotonic, Monotonic)>,
) -> impl Iterator<Item = (Monotonic, Nanos)> {
    let mut before: Option<Monotonic> = None;
    sends.filter_map(move |(due, sent)| {
        let idle_since = before.map_or(due, |before| before.max(due));
        before = Some(sent);
        let lasted = sent.saturating_since(idle_since);
        (lasted >= STALL).then_some((sent, lasted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_one_however_many_sends_it_made_late() {
        let at = |us: u64| Monotonic::from_nanos_since_boot(us * 1_000);
        // due every 100 µs; from 250 to 900 µs nothing could be sent
        let sends = [
            (100, 101),
            (200, 201),
            (300, 900),
            (400, 902),
            (500, 904),
            (1_000, 1_001),
        ];
        let sends = sends.map(|(due, sent)| (at(due), at(sent)));
        let stalls: Vec<_> = late(sends.into_iter()).collect();
        assert_eq!(stalls, [(at(900), Nanos::from_micros(600))]);
    }
}
