//! A queue for each worker, and a random worker or connection for each request: a Lindley recursion
//! W' = max(W + S − gap, 0) for each worker.

use super::kernel::{Block, Finished, Kernel, rebase_rows};
use taillab_queueing::isa::multiversion;
use taillab_queueing::random::lanes::{LaneRng, fill_bits};
use taillab_queueing::random::law::index_below;

pub(super) struct Assigned<const L: usize> {
    /// When each worker is free, in each lane.
    free_at: Vec<[f64; L]>,
    /// The worker of each connection, in each lane; `None` if each request goes to any worker.
    connections: Option<[Vec<u32>; L]>,
    choices: LaneRng<L>,
    bits: Vec<[u64; L]>,
    indices: Vec<[u32; L]>,
}

impl<const L: usize> Assigned<L> {
    pub(super) fn random(workers: usize, choices: LaneRng<L>) -> Self {
        Self {
            free_at: vec![[0.0; L]; workers],
            connections: None,
            choices,
            bits: Vec::new(),
            indices: Vec::new(),
        }
    }

    pub(super) fn by_connection(
        workers: usize,
        connections: [Vec<u32>; L],
        choices: LaneRng<L>,
    ) -> Self {
        Self {
            connections: Some(connections),
            ..Self::random(workers, choices)
        }
    }
}

impl<const L: usize> Kernel<L> for Assigned<L> {
    fn name(&self) -> &'static str {
        "Lindley recursion per worker"
    }

    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished) {
        let Block {
            isa,
            arrivals,
            services,
        } = block;
        let rows = arrivals.len();
        self.bits.resize(rows, [0; L]);
        self.indices.resize(rows, [0; L]);
        fill_bits(isa, &mut self.choices, &mut self.bits);
        let choices = match &self.connections {
            None => self.free_at.len(),
            Some(maps) => maps[0].len(),
        };
        let indices = self.indices.as_flattened_mut();
        below(isa, self.bits.as_flattened(), choices as u64, indices);
        if let Some(maps) = &self.connections {
            for row in &mut self.indices {
                for (index, map) in row.iter_mut().zip(maps) {
                    *index = map[*index as usize];
                }
            }
        }
        let waits = out.rows::<L>(rows);
        let free_at = self.free_at.as_flattened_mut();
        for (row, wait) in waits.iter_mut().enumerate() {
            let (a, s, to) = (&arrivals[row], &services[row], &self.indices[row]);
            for lane in 0..L {
                let slot = &mut free_at[to[lane] as usize * L + lane];
                let start = if a[lane] > *slot { a[lane] } else { *slot };
                wait[lane] = start - a[lane];
                *slot = start + s[lane];
            }
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        rebase_rows(&mut self.free_at, by);
    }
}

multiversion! {
    fn below(bits: &[u64], n: u64, indices: &mut [u32]) {
        for (index, bits) in indices.iter_mut().zip(bits) {
            *index = index_below(*bits, n) as u32;
        }
    }
}
