//! One job of a simulation: sends blocks of arrivals through a kernel and counts waits and sojourns.

use std::ops::ControlFlow;

use crate::histogram::{Histogram, Tally};
use crate::kernels::{Block, Finished, Kernel};
use taillab_queueing::isa::{Isa, multiversion};
use taillab_queueing::random::law::Sampler;

/// Counts the waits and sojourns of the requests that a kernel has finished.
pub(crate) struct Recorder {
    waits: Tally,
    sojourns: Tally,
    /// The service time of every request, if it is constant; then sojourns are shifted waits.
    constant_service_ns: Option<f64>,
    sums: Vec<f64>,
}

/// The result of a [`Recorder`].
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedLane {
    pub(crate) wait: Histogram,
    pub(crate) sojourn: Histogram,
}

impl RecordedLane {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.wait.merge(&other.wait);
        self.sojourn.merge(&other.sojourn);
    }
}

impl Recorder {
    pub(crate) fn new(constant_service_ns: Option<f64>) -> Self {
        Self {
            waits: Tally::new(),
            sojourns: Tally::new(),
            constant_service_ns,
            sums: Vec::new(),
        }
    }

    /// Counts `finished`; `services` are those of the block, if the kernel keeps its order.
    pub(crate) fn record(&mut self, isa: Isa, finished: &Finished, services: Option<&[f64]>) {
        self.waits.record_all(isa, &finished.waits);
        if self.constant_service_ns.is_none() {
            let services = services.unwrap_or(&finished.services);
            self.sums.resize(finished.waits.len(), 0.0);
            add(isa, &finished.waits, services, &mut self.sums);
            self.sojourns.record_all(isa, &self.sums);
        }
    }

    pub(crate) fn take(&mut self) -> RecordedLane {
        let wait = self.waits.take();
        let sojourn = match self.constant_service_ns {
            Some(service_ns) => wait.shifted(service_ns),
            None => self.sojourns.take(),
        };
        RecordedLane { wait, sojourn }
    }
}

multiversion! {
    fn add(a: &[f64], b: &[f64], sums: &mut [f64]) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = a + b;
        }
    }

    /// Converts gaps to times: in each lane, the sum of all gaps so far.
    pub(crate) fn accumulate_rows[const L: usize](rows: &mut [[f64; L]], at: &mut [f64; L]) {
        let mut now = *at;
        for row in rows {
            for (now, gap) in now.iter_mut().zip(row) {
                *now += *gap;
                *gap = *now;
            }
        }
        *at = now;
    }
}

/// Arrival and service times in lanes.
pub(crate) struct Source<const L: usize> {
    gaps: Sampler<L>,
    services: Sampler<L>,
    constant_service: bool,
    /// The number of rows that already have the constant service time.
    filled: usize,
}

impl<const L: usize> Source<L> {
    pub(crate) fn new(gaps: Sampler<L>, services: Sampler<L>, constant_service: bool) -> Self {
        Self {
            gaps,
            services,
            constant_service,
            filled: 0,
        }
    }

    /// Fills the rows with the next service times; constant ones are filled only once.
    fn services(&mut self, isa: Isa, rows: &mut [[f64; L]]) {
        if !self.constant_service || self.filled < rows.len() {
            self.services.fill(isa, rows);
            self.filled = rows.len();
        }
    }
}

/// The length of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// The number of rows that are simulated and discarded.
    pub(crate) warm_up: u64,
    /// The number of rows that are recorded.
    pub(crate) recorded: u64,
}

/// Runs a kernel with the requests of a source. After every few blocks `watch` gets the number of rows since
/// its last call; it may end the job early.
pub(crate) fn run<const L: usize>(
    isa: Isa,
    kernel: &mut dyn Kernel<L>,
    source: &mut Source<L>,
    length: Length,
    horizon_ns: f64,
    recorder: &mut Recorder,
    mut watch: impl FnMut(u64) -> ControlFlow<()>,
) {
    const BLOCKS_BETWEEN_WATCHES: u32 = 64;
    let mut arrivals = [[0.0; L]; crate::kernels::ROWS];
    let mut services = [[0.0; L]; crate::kernels::ROWS];
    let mut finished = Finished::default();
    let mut at = [0.0; L];
    let (mut unseen, mut blocks) = (0, 0);
    for (rows, recorded) in [(length.warm_up, false), (length.recorded, true)] {
        let mut left = rows;
        while left > 0 {
            let n = left.min(arrivals.len() as u64) as usize;
            left -= n as u64;
            source.gaps.fill(isa, &mut arrivals[..n]);
            accumulate_rows(isa, &mut arrivals[..n], &mut at);
            source.services(isa, &mut services[..n]);
            finished.clear();
            let (arrivals, services) = (&arrivals[..n], &services[..n]);
            kernel.advance(
                Block {
                    isa,
                    arrivals,
                    services,
                },
                &mut finished,
            );
            if recorded {
                let of_block = kernel.in_order().then_some(services.as_flattened());
                recorder.record(isa, &finished, of_block);
            }
            if at.iter().any(|t| *t > horizon_ns) {
                kernel.rebase(&at);
                at = [0.0; L];
            }
            unseen += n as u64;
            blocks += 1;
            if blocks % BLOCKS_BETWEEN_WATCHES == 0 {
                if watch(unseen).is_break() {
                    return;
                }
                unseen = 0;
            }
        }
    }
    // the job has ended anyway
    let _ = watch(unseen);
}
