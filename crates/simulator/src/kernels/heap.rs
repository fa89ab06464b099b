//! FIFO over many workers: a binary heap of the times at which they become free.

use super::kernel::{Block, Finished, Kernel};

pub(super) struct Heap<const L: usize> {
    /// For each lane, a heap with the earliest time on top.
    lanes: [Vec<f64>; L],
}

impl<const L: usize> Heap<L> {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            lanes: std::array::from_fn(|_| vec![0.0; workers]),
        }
    }
}

/// Replaces the top by `time` and restores the heap.
fn replace_top(heap: &mut [f64], time: f64) {
    let mut hole = 0;
    loop {
        let mut child = 2 * hole + 1;
        if child >= heap.len() {
            break;
        }
        // without a branch, since it cannot be predicted which of the two is earlier
        if child + 1 < heap.len() {
            child += usize::from(heap[child + 1] < heap[child]);
        }
        if heap[child] >= time {
            break;
        }
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = time;
}

impl<const L: usize> Kernel<L> for Heap<L> {
    fn name(&self) -> &'static str {
        "heap of free times"
    }

    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished) {
        let Block {
            arrivals, services, ..
        } = block;
        let waits = out.rows::<L>(arrivals.len());
        for (lane, heap) in self.lanes.iter_mut().enumerate() {
            for (row, wait) in waits.iter_mut().enumerate() {
                let start = arrivals[row][lane].max(heap[0]);
                wait[lane] = start - arrivals[row][lane];
                replace_top(heap, start + services[row][lane]);
            }
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        for (heap, by) in self.lanes.iter_mut().zip(by) {
            for time in heap {
                *time -= by;
            }
        }
    }
}
