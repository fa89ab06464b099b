//! Blocks of load on the rig: short, all at the same rate, told by the client's own records.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use taillab_host::Interrupt;
use taillab_load::{ClosedFleet, OpenFleet, StopReason, Waiting};
use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;

use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::Experiment;
use crate::testbed::{DrainProbe, LoadClient, Rig};

/// The usual length of a block.
const LENGTH: Nanos = Nanos::from_secs(1);
/// The longest, where requests are rare.
const LONGEST: Nanos = Nanos::from_secs(10);
/// Requests that a block has at least, up to that length.
const REQUESTS: f64 = 2_000.0;
/// Load before each block, which fills the queue and is not counted.
const WARM_UP: Nanos = Nanos::from_millis(150);
/// Load before a block of the peak.
const PEAK_WARM_UP: Nanos = Nanos::from_millis(40);

/// A server under load, block by block.
pub struct Blocks<'r> {
    rig: &'r mut Rig,
    client: LoadClient,
    experiment: &'r Experiment,
    rate_per_s: f64,
    length: Nanos,
    stop: Arc<AtomicBool>,
    gone: Arc<AtomicBool>,
}

impl<'r> Blocks<'r> {
    /// Blocks at `rate_per_s`.
    pub fn new(
        rig: &'r mut Rig,
        client: LoadClient,
        experiment: &'r Experiment,
        rate_per_s: f64,
    ) -> Self {
        let enough = Nanos::try_from_secs_f64(REQUESTS / rate_per_s).unwrap_or(LONGEST);
        Self {
            stop: rig.interrupt().shared_flag(),
            gone: rig.server_gone(),
            length: enough.clamp(LENGTH, LONGEST),
            rig,
            client,
            experiment,
            rate_per_s,
        }
    }

    /// How long a block takes with its warm-up.
    pub fn takes(&self) -> Nanos {
        self.length + WARM_UP
    }

    /// The latency of each request of an open-loop block, from when it was sent: a generator that is
    /// late says nothing of the server. A request without an answer counts with its time-out, so that
    /// lost requests do not make a change look good.
    ///
    /// # Errors
    /// [`Exit::Interrupted`]; the server has died.
    pub fn latencies(&mut self, seed: u64) -> Result<Vec<Nanos>, Failure> {
        let threads = self.client.threads();
        let schedule = |thread: usize| {
            // far apart, so that no thread's seed is another block's
            let seed = seed ^ (thread as u64) << 48;
            ArrivalProcess::Poisson
                .schedule(self.rate_per_s / threads as f64, self.takes(), seed)
                .or_exit(Exit::Usage)
        };
        let schedules = (0..threads).map(schedule).collect::<Result<_, _>>()?;
        let timeout = self.experiment.client.timeout;
        let (client, stop, gone) = (&mut self.client, &self.stop, &self.gone);
        let load = self.rig.on_client_cpu(
            &[],
            || 0,
            || {
                let open = OpenFleet {
                    schedules,
                    warm_up: WARM_UP,
                    seed,
                    timeout,
                    waiting: Waiting::Spin,
                    stop,
                };
                client.open_loop(open, &mut hooks(gone))
            },
        )??;
        self.refuse(load.stopped)?;
        let latency = |entry: taillab_load::Entry| entry.service_time().unwrap_or(timeout);
        Ok(load.iter_measured().map(latency).collect())
    }

    /// Requests per second that the server answers at its peak.
    ///
    /// # Errors
    /// As [`Self::latencies`].
    pub fn peak_per_s(&mut self, seed: u64) -> Result<f64, Failure> {
        let settings = &self.experiment.calibration;
        let (client, stop, gone) = (&mut self.client, &self.stop, &self.gone);
        let saturation = self.rig.on_client_cpu(
            &[],
            || 0,
            || {
                let closed = ClosedFleet {
                    outstanding: settings.outstanding.into(),
                    length: settings.block,
                    warm_up: PEAK_WARM_UP,
                    seed,
                    stop,
                };
                client.saturate(&closed, &mut hooks(gone))
            },
        )??;
        self.refuse(saturation.stopped)?;
        Ok(saturation.rate_per_s())
    }

    /// The rig.
    pub fn rig(&self) -> &Rig {
        self.rig
    }

    /// Ctrl-C.
    pub fn interrupt(&self) -> &Interrupt {
        self.rig.interrupt()
    }

    fn refuse(&mut self, stopped: Option<StopReason>) -> Result<(), Failure> {
        match stopped {
            None => Ok(()),
            Some(StopReason::Interrupted) => Err(interrupted()),
            Some(_) => Err(self.rig.server_failure().unwrap_or_else(|| {
                Failure::new(
                    Exit::Failed,
                    "the server stopped answering while a fix was tried; everything was put back",
                )
            })),
        }
    }
}

/// Ctrl-C in the middle of the trials.
pub fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted while a fix was tried")
}

fn hooks(gone: &AtomicBool) -> DrainProbe<'_> {
    DrainProbe {
        probe: None,
        server_gone: gone,
    }
}
