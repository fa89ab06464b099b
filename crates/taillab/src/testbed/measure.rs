//! The measurement: one continuous open-loop load, the probe attached all the while.

use std::net::IpAddr;

use taillab_host::observe::{self, Counters};
use taillab_host::{CpuSample, CpuUsage, clock};
use taillab_load::{FleetRun, OpenFleet, Waiting};
use taillab_model::{Monotonic, Nanos, Recording, RecordingContext};
use taillab_probe::Probe;
use taillab_queueing::arrivals::ArrivalProcess;

use super::calibrate::{Calibrated, DrainProbe, EVENTS_PER_REQUEST};
use super::client::LoadClient;
use super::rig::Rig;
use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::Experiment;
use crate::fail::{host, probe as probe_failure};
use crate::pipeline::{cuts, stalls};
use crate::progress::Phase;

/// What the measurement recorded.
pub struct Recorded {
    /// The client's record.
    pub load: FleetRun,
    /// The client's address, as the server sees it.
    pub client: IpAddr,
    /// The kernel's events with their context.
    pub events: Recording,
    /// Requests per second of the schedule.
    pub rate_per_s: f64,
    /// What the server's CPUs did, warm-up included.
    pub server_cpus: Option<CpuUsage>,
}

impl Recorded {
    /// When the measurement began; boot where the recording does not say.
    pub fn measured_from(&self) -> Monotonic {
        let from = self.events.context.measure_from_ns.unwrap_or(0);
        Monotonic::from_nanos_since_boot(from)
    }
}

/// Sends the schedule and records what the kernel did with it.
pub fn measure(
    rig: &mut Rig,
    client: &mut LoadClient,
    mut probe: Probe,
    experiment: &Experiment,
    mut context: RecordingContext,
    rate_per_s: f64,
) -> Result<Recorded, Failure> {
    let workload = &experiment.workload;
    let warm_up = workload.warmup;
    let length = warm_up + workload.duration;
    let schedules = schedules(rate_per_s, length, workload.seed, client.threads())?;
    let phases = phases(&schedules, warm_up);
    let requests: u64 = phases.iter().map(|phase| phase.total).sum();
    let events = requests as f64 * EVENTS_PER_REQUEST;
    probe.reserve(events as u64).map_err(probe_failure)?;
    probe.attach().map_err(probe_failure)?;
    let stop = rig.interrupt().shared_flag();
    let roots = rig.roots().clone();
    let gone = rig.server_gone();
    let counter = client.progress();
    let already = counter.sent();
    let started_unix_s = clock::unix_s();
    let server_cpus = rig.placement().server.clone();
    let mut counters = Counters::begin(&roots, &server_cpus, &rig.server_processes());
    let mut counted = Vec::new();
    let (before, load, after) = rig.on_client_cpu(
        &phases,
        || {
            counters.look(clock::now(), |event| counted.push(event));
            counter.sent().saturating_sub(already)
        },
        || {
            let before = CpuSample::take(&roots);
            let load = client.open_loop(
                OpenFleet {
                    schedules,
                    warm_up,
                    seed: workload.seed,
                    timeout: experiment.client.timeout,
                    waiting: Waiting::Spin,
                    stop: &stop,
                },
                &mut DrainProbe {
                    probe: Some(&mut probe),
                    server_gone: &gone,
                },
            );
            (before, load, CpuSample::take(&roots))
        },
    )?;
    probe.detach();
    let (threads, processes) = (probe.threads(), rig.server_processes());
    observe::name(&mut context, &roots, threads, &processes);
    observe::name_own(&mut context);
    let mut events = probe.finish().map_err(probe_failure)?;
    let load = load?;
    let began = load
        .start()
        .ok_or_else(|| Failure::new(Exit::Failed, "no thread of the generator ran"))?;
    let server_cpus = after
        .map_err(host)?
        .usage_since(&before.map_err(host)?, &server_cpus);
    context.cuts = cuts(&load, &rig.placement().client);
    context.started_unix_s = started_unix_s;
    context.measure_from_ns = Some((began + warm_up).nanos_since_boot());
    events.context = context;
    events.insert(counted);
    events.insert(stalls(&load, &rig.placement().client));
    Ok(Recorded {
        client: rig.client_address(),
        load,
        events,
        rate_per_s,
        server_cpus,
    })
}

/// The requests due in the warm-up, and those of the measurement.
fn phases(schedules: &[Vec<Nanos>], warm_up: Nanos) -> [Phase; 2] {
    let count = |of: &dyn Fn(&[Nanos]) -> usize| schedules.iter().map(|part| of(part) as u64).sum();
    let first_measured = |part: &[Nanos]| part.partition_point(|due| *due < warm_up);
    [
        Phase {
            name: "warming up",
            total: count(&first_measured),
        },
        Phase {
            name: "measuring",
            total: count(&|part| part.len() - first_measured(part)),
        },
    ]
}

/// One Poisson process for each thread, which together are one of the whole rate.
fn schedules(
    rate_per_s: f64,
    length: Nanos,
    seed: u64,
    threads: usize,
) -> Result<Vec<Vec<Nanos>>, Failure> {
    // far apart, so that no thread's seed is another experiment's
    let seed = |thread: usize| seed ^ (thread as u64) << 48;
    (0..threads)
        .map(|thread| {
            ArrivalProcess::Poisson
                .schedule(rate_per_s / threads as f64, length, seed(thread))
                .or_exit(Exit::Usage)
        })
        .collect()
}

/// The rate that loads the server as asked for.
pub fn rate(experiment: &Experiment, calibrated: &Calibrated) -> f64 {
    let workload = &experiment.workload;
    workload.rate_per_s.unwrap_or_else(|| {
        (calibrated.capacity).rate_per_s(workload.utilization, calibrated.service_time)
    })
}
