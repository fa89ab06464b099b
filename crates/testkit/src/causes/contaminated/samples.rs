//! Events for the tests of this module: one worker on CPU 0.

use taillab_model::{Asleep, Event, EventKind, Monotonic, RecordingContext, ThreadName, Tid};

pub(super) const WORKER: Tid = 7;

pub(super) fn at(us: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(1_000 * us)
}

/// CPU 0 changes threads. The worker leaves it asleep in `call`, where one is given.
pub(super) fn switched(at_us: u64, prev: Tid, next: Tid, call: Option<u16>) -> Event {
    let asleep = call.filter(|_| prev == WORKER).map(|call| Asleep {
        call: Some(call),
        uninterruptible: false,
    });
    Event {
        at: at(at_us),
        cpu: 0,
        kind: EventKind::Switched {
            prev,
            next,
            preempted: false,
            asleep,
        },
    }
}

/// The worker is woken, from CPU 1.
pub(super) fn woken(at_us: u64) -> Event {
    Event {
        at: at(at_us),
        cpu: 1,
        kind: EventKind::Woken { tid: WORKER, by: 0 },
    }
}

/// The worker, and other threads of these names, on CPU 0.
pub(super) fn context(others: &[(Tid, &str)]) -> RecordingContext {
    let name = |tid, comm: &str, server| ThreadName {
        tid,
        pid: tid,
        comm: comm.to_owned(),
        server,
        real_time: None,
    };
    let others = others.iter().map(|(tid, comm)| name(*tid, comm, false));
    RecordingContext {
        server_cpus: vec![0],
        threads: [name(WORKER, "worker-0", true)]
            .into_iter()
            .chain(others)
            .collect(),
        ..RecordingContext::default()
    }
}
