//! The context of a run's recording: everything in it except its events.

use taillab_model::RecordingContext;
use taillab_probe::Probe;

use super::calibrate::Calibrated;
use super::rig::Rig;
use crate::definition::{Experiment, Transport};
use crate::rings::cpu_numbers;

/// What is known before the load begins.
pub fn before(
    rig: &Rig,
    probe: &Probe,
    experiment: &Experiment,
    calibrated: &Calibrated,
) -> RecordingContext {
    RecordingContext {
        server: experiment.server.title(),
        transport: experiment.server.transport.name().to_owned(),
        port: experiment.server.port,
        server_cpus: cpu_numbers(&rig.placement().server),
        hooks: probe.hooks(),
        service_time_ns: Some(calibrated.service_time),
        service_time_source: Some(calibrated.source),
        workers: Some(calibrated.capacity.workers.get()),
        timeout_ns: Some(experiment.client.timeout),
        sequential: experiment.server.is_sequential(),
        // our generator matches responses to requests by these ids
        datagram_ids: experiment.server.transport == Transport::Udp,
        stamps: experiment.probe.stamps,
        ..RecordingContext::default()
    }
}
