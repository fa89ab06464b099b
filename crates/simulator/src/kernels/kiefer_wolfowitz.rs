//! FIFO over few workers: the recursion of Kiefer and Wolfowitz (1955).
//!
//! The times at which the workers become free are kept sorted. A request takes the first; its departure is
//! inserted with compare-selects, without a branch.

use super::kernel::{Block, Finished, Kernel, rebase_rows};
use taillab_queueing::isa::multiversion;

/// With more workers, the insertion costs more than a heap.
pub(super) const MOST_WORKERS: usize = 16;

pub(super) struct KieferWolfowitz<const L: usize> {
    /// Sorted in each lane; places beyond the number of workers are infinite.
    free_at: [[f64; L]; MOST_WORKERS],
    workers: usize,
}

impl<const L: usize> KieferWolfowitz<L> {
    pub(super) fn new(workers: usize) -> Self {
        let mut free_at = [[f64::INFINITY; L]; MOST_WORKERS];
        free_at[..workers].fill([0.0; L]);
        Self { free_at, workers }
    }
}

impl<const L: usize> Kernel<L> for KieferWolfowitz<L> {
    fn name(&self) -> &'static str {
        "Kiefer-Wolfowitz recursion"
    }

    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished) {
        let Block {
            isa,
            arrivals,
            services,
        } = block;
        let waits = out.rows::<L>(arrivals.len());
        let free_at = &mut self.free_at;
        match self.workers {
            1 => serve::<1, L>(isa, arrivals, services, free_at, waits),
            2 => serve::<2, L>(isa, arrivals, services, free_at, waits),
            3 => serve::<3, L>(isa, arrivals, services, free_at, waits),
            4 => serve::<4, L>(isa, arrivals, services, free_at, waits),
            5 | 6 => serve::<6, L>(isa, arrivals, services, free_at, waits),
            7 | 8 => serve::<8, L>(isa, arrivals, services, free_at, waits),
            9..=12 => serve::<12, L>(isa, arrivals, services, free_at, waits),
            _ => serve::<16, L>(isa, arrivals, services, free_at, waits),
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        rebase_rows(&mut self.free_at, by);
    }
}

multiversion! {
    /// `C` is at least the number of workers.
    fn serve[const C: usize, const L: usize](
        arrivals: &[[f64; L]],
        services: &[[f64; L]],
        free_at: &mut [[f64; L]; MOST_WORKERS],
        waits: &mut [[f64; L]],
    ) {
        let mut sorted = [[0.0; L]; C];
        sorted.copy_from_slice(&free_at[..C]);
        for ((a, s), w) in arrivals.iter().zip(services).zip(waits) {
            for lane in 0..L {
                let first = sorted[0][lane];
                let start = if a[lane] > first { a[lane] } else { first };
                w[lane] = start - a[lane];
                let mut departure = start + s[lane];
                for j in 1..C {
                    let x = sorted[j][lane];
                    sorted[j - 1][lane] = if x < departure { x } else { departure };
                    departure = if x < departure { departure } else { x };
                }
                sorted[C - 1][lane] = departure;
            }
        }
        free_at[..C].copy_from_slice(&sorted);
    }
}
