//! Blocks of a live server's own traffic, measured by the probe.

use std::thread;
use std::time::Duration;

use taillab_analysis::untouched::RecordedBlock;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::probe as probe_failure;
use taillab_host::clock::now;
use taillab_host::observe::{self, Counters};
use taillab_host::target::add_asked;
use taillab_host::tune::Scope;
use taillab_host::{CpuSet, Interrupt, Roots};
use taillab_model::{Nanos, RecordingContext};
use taillab_probe::Probe;

use super::load::{BlockResult, Load, interrupted};

/// The start of a block that does not count: requests that came in before the probe was attached lack T1,
/// and attaching it disturbs the server.
const SETTLE: Nanos = Nanos::from_millis(100);

/// The time between two drains of the probe, and between two checks for Ctrl-C.
const PERIOD: Duration = Duration::from_millis(5);

/// What the trials need to know about a live server.
pub struct LiveServer<'a> {
    /// The ids of its processes.
    pub processes: Vec<u32>,
    /// The CPUs that are watched.
    pub cpus: CpuSet,
    /// What the mitigations are applied to.
    pub scope: Scope,
    /// Requests per second of the measurement.
    pub rate_per_s: f64,
    /// The context that each block's recording starts from.
    pub context: RecordingContext,
    /// Returns why the server has ended; `None` while it runs.
    pub ended: Box<dyn FnMut() -> Option<String> + 'a>,
}

/// A live server with its own clients.
pub struct LiveLoad<'a> {
    server: LiveServer<'a>,
    probe: Probe,
    length: Nanos,
    interrupt: Interrupt,
    roots: Roots,
}

impl<'a> LiveLoad<'a> {
    /// Measures its traffic in blocks of this length; `probe` must be loaded already.
    pub fn new(server: LiveServer<'a>, probe: Probe, length: Nanos, interrupt: Interrupt) -> Self {
        Self {
            length,
            server,
            probe,
            interrupt,
            roots: Roots::default(),
        }
    }

    /// Drains the probe until the block is over.
    ///
    /// # Errors
    /// [`Exit::Interrupted`] soon after Ctrl-C; a failure if the server has ended.
    fn wait(&mut self, mut look: impl FnMut()) -> Result<(), Failure> {
        let ends = now() + self.takes();
        while now() < ends {
            if self.interrupt.is_raised() {
                return Err(interrupted());
            }
            if let Some(why) = (self.server.ended)() {
                return Err(Failure::failed(why));
            }
            self.probe.drain(usize::MAX);
            look();
            thread::sleep(PERIOD);
        }
        Ok(())
    }
}

impl Load for LiveLoad<'_> {
    fn takes(&self) -> Nanos {
        self.length + SETTLE
    }

    fn block(&mut self, _seed: u64) -> Result<BlockResult, Failure> {
        self.probe.attach().map_err(probe_failure)?;
        let from = now() + SETTLE;
        let mut counters = Counters::begin(&self.roots, &self.server.cpus, &self.server.processes);
        let mut counted = Vec::new();
        let waited = self.wait(|| counters.look(now(), |event| counted.push(event)));
        let mut recording = self.probe.take_recording().map_err(probe_failure)?;
        waited?;
        let mut context = self.server.context.clone();
        context.measure_from_ns = Some(from.nanos_since_boot());
        let timeout = context.timeout_ns.unwrap_or(Nanos::from_secs(1));
        let threads = self.probe.threads();
        let processes = &self.server.processes;
        observe::name(&mut context, &self.roots, threads, processes);
        let asked = self.probe.upstreams();
        add_asked(&mut context.upstreams, &self.roots, processes, &asked);
        observe::name_own(&mut context, &self.roots);
        recording.context = context;
        recording.insert(counted);
        let recorded = RecordedBlock::of(recording).or_exit(Exit::Failed)?;
        Ok(BlockResult {
            latencies: recorded.sojourns(timeout),
            cut: 0,
            recorded: Some(recorded),
        })
    }

    fn peak_per_s(&mut self, _seed: u64) -> Result<Option<f64>, Failure> {
        Ok(None)
    }

    fn scope(&self) -> Scope {
        self.server.scope.clone()
    }

    fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}
