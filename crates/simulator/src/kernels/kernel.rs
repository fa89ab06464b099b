//! The interface of a kernel: it takes blocks of requests and returns finished requests.

use taillab_queueing::isa::Isa;

/// The number of lanes: eight doubles fill the widest vectors.
pub(crate) const LANES: usize = 8;
/// Requests per lane in a block: a block with all its columns fits into the first-level cache.
pub(crate) const ROWS: usize = 64;

/// The requests that a kernel has finished.
#[derive(Default)]
pub(crate) struct Finished {
    /// From arrival to the start of service. Kernels that keep the order return a row for each row of the
    /// block, others return waits in any order.
    pub(crate) waits: Vec<f64>,
    /// The time from the start of service to the departure, for each wait. Kernels that keep the order leave
    /// it empty: theirs are those of the block.
    pub(crate) services: Vec<f64>,
}

impl Finished {
    pub(crate) fn clear(&mut self) {
        self.waits.clear();
        self.services.clear();
    }

    #[inline(always)]
    pub(super) fn push(&mut self, wait: f64, service: f64) {
        self.waits.push(wait);
        self.services.push(service);
    }

    pub(super) fn rows<const L: usize>(&mut self, rows: usize) -> &mut [[f64; L]] {
        self.waits.resize(rows * L, 0.0);
        self.waits.as_chunks_mut().0
    }
}

/// The next requests of `L` replications: a row for each request, a column for each lane.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a, const L: usize> {
    pub(crate) isa: Isa,
    /// Their arrival times, which do not decrease within a lane.
    pub(crate) arrivals: &'a [[f64; L]],
    /// Their service times, in the same rows.
    pub(crate) services: &'a [[f64; L]],
}

/// `L` independent copies of a queue.
pub(crate) trait Kernel<const L: usize>: Send {
    /// The name of the kernel in reports.
    fn name(&self) -> &'static str;

    /// Whether it returns waits in the order of arrival, for the service times of the block.
    fn in_order(&self) -> bool {
        true
    }

    /// Takes the next requests; `out` must be empty.
    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished);

    /// Finishes all requests that are still in the queue.
    fn finish(&mut self, _out: &mut Finished) {}

    /// Moves the origin of time of each lane forward.
    fn rebase(&mut self, by: &[f64; L]);
}

/// Moves the origin of time of each lane forward.
pub(super) fn rebase_rows<const L: usize>(rows: &mut [[f64; L]], by: &[f64; L]) {
    for row in rows {
        for (time, by) in row.iter_mut().zip(by) {
            *time -= by;
        }
    }
}
