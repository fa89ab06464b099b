//! What is recorded while the calling thread does something.

use rustix::thread::gettid;
use taillab_model::{Event, ThreadName, Tid};
use taillab_probe::{Disturbances, Probe, ProbeSpec};

/// What is recorded while `cause` runs, and the names of the threads seen.
pub(crate) fn events_of(
    spec: &ProbeSpec,
    disturbances: Disturbances,
    cause: impl FnOnce(),
) -> (Vec<Event>, Vec<ThreadName>) {
    let spec = ProbeSpec {
        disturbances,
        ring_bytes_per_cpu: 16 << 20,
        ..spec.clone()
    };
    let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
    let missing: Vec<_> = probe
        .hooks()
        .into_iter()
        .filter(|hook| hook.hook == "none" && !hook.stamp.starts_with('T'))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    probe.attach().expect("the hooks are there");
    cause();
    probe.detach();
    let threads = probe.threads();
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.ring_full, 0);
    (recording.into_events().collect(), threads)
}

/// The calling thread.
pub(crate) fn own_tid() -> Tid {
    gettid().as_raw_nonzero().get() as Tid
}
