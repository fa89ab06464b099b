//! Queues that are simulated event by event, one lane after the other.

use super::kernel::{Block, Finished, Kernel};
use taillab_queueing::random::lanes::{LaneRng, fill_bits};

/// A queue that is simulated event by event.
pub(super) trait LaneQueue: Send {
    const NAME: &'static str;

    /// Simulates everything up to an arrival, and the arrival; `choice` has 64 random bits for it.
    fn arrive(&mut self, at: f64, service: f64, choice: u64, out: &mut Finished);

    /// Simulates everything that remains.
    fn drain(&mut self, out: &mut Finished);

    /// Moves the origin of time forward.
    fn rebase(&mut self, by: f64);
}

pub(super) struct PerLane<Q, const L: usize> {
    lanes: [Q; L],
    /// `None` if the discipline makes no random choices.
    choices: Option<LaneRng<L>>,
    bits: Vec<[u64; L]>,
}

impl<Q: LaneQueue + 'static, const L: usize> PerLane<Q, L> {
    /// A kernel with a queue for each lane, made by `queue`.
    pub(super) fn boxed(
        choices: Option<LaneRng<L>>,
        queue: impl FnMut(usize) -> Q,
    ) -> Box<dyn Kernel<L>> {
        Box::new(Self {
            lanes: std::array::from_fn(queue),
            choices,
            bits: Vec::new(),
        })
    }
}

impl<Q: LaneQueue, const L: usize> Kernel<L> for PerLane<Q, L> {
    fn name(&self) -> &'static str {
        Q::NAME
    }

    fn in_order(&self) -> bool {
        false
    }

    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished) {
        let Block {
            isa,
            arrivals,
            services,
        } = block;
        self.bits.resize(arrivals.len(), [0; L]);
        if let Some(choices) = &mut self.choices {
            fill_bits(isa, choices, &mut self.bits);
        }
        // row by row, so that consecutive operations are independent
        for ((at, service), choice) in arrivals.iter().zip(services).zip(&self.bits) {
            for (lane, queue) in self.lanes.iter_mut().enumerate() {
                queue.arrive(at[lane], service[lane], choice[lane], out);
            }
        }
    }

    fn finish(&mut self, out: &mut Finished) {
        for queue in &mut self.lanes {
            queue.drain(out);
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        for (queue, by) in self.lanes.iter_mut().zip(by) {
            queue.rebase(*by);
        }
    }
}
