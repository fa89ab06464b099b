//! Short blocks of our own load on the rig, all at the same rate, measured by the client.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use taillab_analysis::cut::{Occupancy, Spans};
use taillab_analysis::untouched::RecordedBlock;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::probe as probe_failure;
use taillab_host::clock::now;
use taillab_host::observe::{self, Counters};
use taillab_host::target::add_asked;
use taillab_host::tune::Scope;
use taillab_host::{Interrupt, Roots};
use taillab_load::{ClosedFleet, FleetRun, OpenFleet, StopReason, Waiting};
use taillab_model::{Event, Monotonic, Nanos, Recording, RecordingContext};
use taillab_probe::Probe;

use super::load::{BlockResult, Load, interrupted};
use crate::definition::Experiment;
use crate::pipeline;
use crate::testbed::{DrainProbe, LoadClient, RecordingProbe, Rig, draining, measure};

/// Load before each block, which fills the queue and is not counted.
const WARM_UP: Nanos = Nanos::from_millis(150);
/// Load before each closed-loop block that measures the peak.
const PEAK_WARM_UP: Nanos = Nanos::from_millis(40);

/// What the blocks send.
#[derive(Clone, Copy, Debug)]
pub struct BlockLoad {
    /// Requests per second.
    pub rate_per_s: f64,
    /// The length of a block without its warm-up.
    pub length: Nanos,
    /// Requests kept outstanding where the peak is measured.
    pub outstanding: usize,
}

/// Our own server under our own load.
pub struct GeneratedLoad<'r> {
    rig: &'r mut Rig,
    client: LoadClient,
    experiment: &'r Experiment,
    load: BlockLoad,
    probe: Probe,
    /// The context that each block's recording starts from.
    context: RecordingContext,
    stop: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
}

impl<'r> GeneratedLoad<'r> {
    /// Blocks that send `load`, recorded as the measurement with this context was.
    ///
    /// # Errors
    /// The probe cannot be loaded.
    pub fn new(
        rig: &'r mut Rig,
        client: LoadClient,
        experiment: &'r Experiment,
        load: BlockLoad,
        context: &RecordingContext,
    ) -> Result<Self, Failure> {
        Ok(Self {
            stop: rig.interrupt().shared_flag(),
            gone: rig.server_gone(),
            probe: rig.load_probe(experiment)?,
            context: RecordingContext {
                threads: Vec::new(),
                ..context.clone()
            },
            rig,
            client,
            experiment,
            load,
        })
    }

    /// What the blocks send from now on.
    pub const fn send(&mut self, load: BlockLoad) {
        self.load = load;
    }

    fn refuse(&mut self, stopped: Option<StopReason>) -> Result<(), Failure> {
        match stopped {
            None => Ok(()),
            Some(StopReason::Interrupted) => Err(interrupted()),
            Some(_) => Err(self.rig.server_failure().unwrap_or_else(|| {
                Failure::failed(
                    "the server stopped answering while a fix was tried; everything was put back",
                )
            })),
        }
    }

    /// The probe's recording of a block, completed, and the spans that the client's figures leave
    /// out.
    fn recorded(
        &mut self,
        load: &FleetRun,
        (mut recording, occupancy): (Recording, Occupancy),
        counted: Vec<Event>,
    ) -> Result<(RecordedBlock, Spans), Failure> {
        let lost = self.probe.take_lost().map_err(probe_failure)?;
        let client = &self.rig.placement().client;
        let mut context = self.context.clone();
        let from = load.start().map(|at| at + WARM_UP);
        context.measure_from_ns = from.map(Monotonic::nanos_since_boot);
        context.answered = load.is_answered();
        let (threads, processes) = (self.probe.threads(), self.rig.server_processes());
        observe::name(&mut context, self.rig.roots(), threads, &processes);
        let asked = self.probe.upstreams();
        let known = &mut context.upstreams;
        add_asked(known, self.rig.roots(), &processes, &asked);
        observe::name_own(&mut context, self.rig.roots());
        let occupants = occupancy.occupants(&context.threads);
        let cuts = pipeline::cuts(load, client, &occupants);
        let workers = self.context.workers.and_then(NonZeroU32::new);
        let workers = workers.unwrap_or(NonZeroU32::MIN);
        let from = from.unwrap_or(recording.base);
        let unseen = pipeline::unseen_by_client(load, &cuts, workers, from);
        context.cuts = cuts;
        (recording.context, recording.lost) = (context, lost);
        recording.insert(counted);
        recording.insert(pipeline::stalls(load, client));
        Ok((RecordedBlock::of(recording).or_exit(Exit::Failed)?, unseen))
    }
}

impl Load for GeneratedLoad<'_> {
    fn takes(&self) -> Nanos {
        self.load.length + WARM_UP
    }

    /// The latency of a request counts from when it was sent. Requests do not count while something held
    /// the generator up: they say nothing about the server, and a change that moves other threads away
    /// from the server may move them to the generator. A request without an answer counts with its
    /// time-out, so that lost requests do not make a change look good.
    fn block(&mut self, seed: u64) -> Result<BlockResult, Failure> {
        let threads = self.client.threads();
        let schedules = measure::schedules(self.load.rate_per_s, self.takes(), seed, threads)?;
        let timeout = self.experiment.client.timeout;
        self.probe.attach().map_err(probe_failure)?;
        let roots: Roots = self.rig.roots().clone();
        let cpus = self.rig.placement().server.clone();
        let mut counters = Counters::begin(&roots, &cpus, &self.rig.server_processes());
        let mut counted = Vec::new();
        let base = self.probe.base();
        let recording = Recording {
            base,
            ..Recording::default()
        };
        let generator = self.rig.placement().client.iter();
        let occupancy = Occupancy::new(base, generator, self.experiment.probe.stamps);
        let mut sink = (recording, occupancy);
        let (client, probe) = (&mut self.client, &mut self.probe);
        let (stop, gone) = (&self.stop, &self.gone);
        let free_cpus = self.rig.free_cpus();
        let load = self.rig.on_client_cpu(
            &[],
            || {
                counters.look(now(), |event| counted.push(event));
                0
            },
            || {
                let open = OpenFleet {
                    schedules,
                    warm_up: WARM_UP,
                    seed,
                    timeout,
                    waiting: Waiting::Spin,
                    start: None,
                    stop,
                };
                let sink = &mut sink;
                draining(
                    Some(RecordingProbe { probe, sink }),
                    &free_cpus,
                    gone,
                    |hooks| client.open_loop(open, hooks),
                )
            },
        )??;
        // memory takes everything
        let _ = self.probe.finish_into(&mut sink);
        let (recorded, unseen) = self.recorded(&load, sink, counted)?;
        self.refuse(load.stopped)?;
        let seen = load.iter_measured();
        let seen = seen.filter(|entry| !unseen.contain(entry.times.sent));
        let latencies: Vec<Nanos> = seen
            .map(|entry| entry.service_time().unwrap_or(timeout))
            .collect();
        Ok(BlockResult {
            cut: load.iter_measured().count() - latencies.len(),
            latencies,
            recorded: Some(recorded),
        })
    }

    fn peak_per_s(&mut self, seed: u64) -> Result<Option<f64>, Failure> {
        let length = self.experiment.calibration.block;
        let timeout = self.experiment.client.timeout;
        let outstanding = self.load.outstanding;
        let (client, stop, gone) = (&mut self.client, &self.stop, &self.gone);
        let saturation = self.rig.on_client_cpu(
            &[],
            || 0,
            || {
                let closed = ClosedFleet {
                    outstanding,
                    length,
                    warm_up: PEAK_WARM_UP,
                    seed,
                    timeout,
                    stop,
                };
                let mut hooks = DrainProbe::new(None, gone);
                client.saturate(&closed, &mut hooks)
            },
        )??;
        self.refuse(saturation.stopped)?;
        Ok(Some(saturation.rate_per_s()))
    }

    fn scope(&self) -> Scope {
        Scope {
            pid: Some(self.rig.server().pid()),
            device: None,
            cpus: Some(self.rig.placement().server.clone()),
        }
    }

    fn interrupt(&self) -> &Interrupt {
        self.rig.interrupt()
    }
}
