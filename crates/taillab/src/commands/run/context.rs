//! What a run's recording says beside its events.

use taillab_host::observe::{self, StealSampler, ThrottleSampler};
use taillab_model::{Event, EventKind, Monotonic, Nanos, RecordingContext};
use taillab_probe::Probe;

use super::calibrate::Calibrated;
use super::rig::Rig;
use crate::experiment::{Experiment, ServerKind, Transport};

/// What is known before the load begins.
pub fn before(
    rig: &Rig,
    probe: &Probe,
    experiment: &Experiment,
    calibrated: &Calibrated,
) -> RecordingContext {
    let number = |cpu| u16::try_from(cpu).unwrap_or(u16::MAX);
    RecordingContext {
        server: experiment.server.title(),
        transport: match experiment.server.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
        }
        .to_owned(),
        port: experiment.server.port,
        server_cpus: rig.placement().server.iter().map(number).collect(),
        hooks: probe.hooks(),
        service_time_ns: Some(calibrated.service_time),
        workers: Some(calibrated.capacity.workers.get()),
        timeout_ns: Some(experiment.client.timeout),
        // the servers that we know answer what they have read before they read more
        sequential: experiment.server.kind != ServerKind::Custom,
        // as our generator finds its requests again
        datagram_ids: experiment.server.transport == Transport::Udp,
        ..RecordingContext::default()
    }
}

/// The names behind the numbers, as far as they are known when the load has ended.
pub fn name(context: &mut RecordingContext, rig: &Rig, probe: &Probe) {
    let threads = probe.threads();
    let nameless: Vec<u32> = (threads.iter())
        .filter(|thread| thread.comm.is_empty())
        .map(|thread| thread.tid)
        .collect();
    let server = observe::of_server(rig.roots(), &rig.server_processes());
    let known = threads.into_iter().chain(server);
    context.threads = observe::of_threads(rig.roots(), known, nameless);
    context.interrupts = observe::interrupts(rig.roots());
}

/// Looks at what the kernel only counts: stolen time and quotas.
pub struct Samples {
    steal: Option<StealSampler>,
    throttle: ThrottleSampler,
    cpu: u16,
    events: Vec<Event>,
}

impl Samples {
    /// Begins to count.
    pub fn begin(rig: &Rig) -> Self {
        let server = &rig.placement().server;
        let first = server.iter().next().unwrap_or_default();
        Self {
            steal: StealSampler::new(rig.roots(), server).ok(),
            throttle: ThrottleSampler::new(rig.roots(), &rig.server_processes()),
            cpu: u16::try_from(first).unwrap_or(u16::MAX),
            events: Vec::new(),
        }
    }

    /// Looks again.
    pub fn take(&mut self, at: Monotonic) {
        let events = &mut self.events;
        if let Some(steal) = &mut self.steal {
            steal.sample(|cpu, lasted| {
                events.push(Event {
                    at,
                    cpu: u16::try_from(cpu).unwrap_or(u16::MAX),
                    kind: EventKind::Stolen { lasted },
                });
            });
        }
        let lasted = self.throttle.sample();
        if lasted > Nanos::ZERO {
            events.push(Event {
                at,
                cpu: self.cpu,
                kind: EventKind::Throttled { lasted },
            });
        }
    }

    /// What was seen.
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }
}
