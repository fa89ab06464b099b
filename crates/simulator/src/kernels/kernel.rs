//! What every kernel takes and gives: blocks of requests in, finished requests out.

use taillab_queueing::isa::Isa;

/// Lanes of a simulation: eight doubles fill the widest vectors.
pub(crate) const LANES: usize = 8;
/// Requests per lane and block: with all its columns a block stays in the first-level cache.
pub(crate) const ROWS: usize = 64;

/// What a kernel has finished.
#[derive(Default)]
pub(crate) struct Finished {
    /// From arrival to the start of service. Of kernels in order, one row for each row of
    /// the block; of the others in any order.
    pub(crate) waits: Vec<f64>,
    /// The time from start to departure that belongs to each wait; kernels in order
    /// leave it empty, theirs are the block's.
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

/// The next requests of `L` replications: one row for each request, one column for each lane.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a, const L: usize> {
    pub(crate) isa: Isa,
    /// When they arrive; never decreasing within a lane.
    pub(crate) arrivals: &'a [[f64; L]],
    /// Their service times, row for row.
    pub(crate) services: &'a [[f64; L]],
}

/// A queue in `L` independent copies.
pub(crate) trait Kernel<const L: usize>: Send {
    /// What the kernel is called in reports.
    fn name(&self) -> &'static str;

    /// Whether waits come out in the order of arrival, with the block's service times.
    fn in_order(&self) -> bool {
        true
    }

    /// Takes the next requests; `out` is empty before.
    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished);

    /// Lets every request that is still present finish.
    fn finish(&mut self, _out: &mut Finished) {}

    /// Moves the origin of time of each lane forward.
    fn rebase(&mut self, by: &[f64; L]);
}

/// Moves the origin of time in rows of lanes.
pub(super) fn rebase_rows<const L: usize>(rows: &mut [[f64; L]], by: &[f64; L]) {
    for row in rows {
        for (time, by) in row.iter_mut().zip(by) {
            *time -= by;
        }
    }
}
