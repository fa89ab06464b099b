//! LIFO and random order over one queue, without simulating the workers.
//!
//! As long as the choice of the next request does not depend on service times, services start at the same
//! times as with FIFO. So a FIFO kernel gives the starts, and each start is matched with the request that
//! the discipline picks among those waiting. The n-th service that starts takes the n-th service time; since
//! service times are independent, this is the same queue.

use std::collections::VecDeque;

use super::kernel::{Block, Finished, Kernel};
use taillab_queueing::random::lanes::{LaneRng, fill_bits};
use taillab_queueing::random::law::index_below;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pick {
    Newest,
    Random,
}

pub(super) struct Matching<const L: usize> {
    fifo: Box<dyn Kernel<L>>,
    pick: Pick,
    lanes: [Lane; L],
    choices: LaneRng<L>,
    bits: Vec<[u64; L]>,
    fifo_out: Finished,
}

#[derive(Default)]
struct Lane {
    /// Future starts, in order; one for each waiting request.
    starts: VecDeque<Start>,
    /// The arrival times of the waiting requests.
    waiting: Vec<f64>,
}

#[derive(Clone, Copy)]
struct Start {
    at: f64,
    service: f64,
    choice: u64,
}

impl<const L: usize> Matching<L> {
    pub(super) fn new(fifo: Box<dyn Kernel<L>>, pick: Pick, choices: LaneRng<L>) -> Self {
        Self {
            fifo,
            pick,
            lanes: std::array::from_fn(|_| Lane::default()),
            choices,
            bits: Vec::new(),
            fifo_out: Finished::default(),
        }
    }
}

impl Lane {
    /// Starts all services until `until`.
    #[inline(always)]
    fn start_until(&mut self, until: f64, pick: Pick, out: &mut Finished) {
        while let Some(start) = self.starts.front().copied() {
            if start.at > until {
                break;
            }
            self.starts.pop_front();
            let arrival = match pick {
                Pick::Newest => self.waiting.pop(),
                Pick::Random => {
                    let place = index_below(start.choice, self.waiting.len() as u64);
                    Some(self.waiting.swap_remove(place as usize))
                }
            };
            if let Some(arrival) = arrival {
                out.push(start.at - arrival, start.service);
            }
        }
    }
}

impl<const L: usize> Kernel<L> for Matching<L> {
    fn name(&self) -> &'static str {
        match self.pick {
            Pick::Newest => "matched starts, newest first",
            Pick::Random => "matched starts, random order",
        }
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
        self.fifo.advance(block, &mut self.fifo_out);
        self.bits.resize(arrivals.len(), [0; L]);
        if self.pick == Pick::Random {
            fill_bits(isa, &mut self.choices, &mut self.bits);
        }
        let waits = self.fifo_out.waits.as_chunks::<L>().0;
        let pick = self.pick;
        for (lane, state) in self.lanes.iter_mut().enumerate() {
            for (row, a) in arrivals.iter().enumerate() {
                let (at, service, wait) = (a[lane], services[row][lane], waits[row][lane]);
                state.start_until(at, pick, out);
                if wait == 0.0 {
                    out.push(0.0, service);
                } else {
                    state.starts.push_back(Start {
                        at: at + wait,
                        service,
                        choice: self.bits[row][lane],
                    });
                    state.waiting.push(at);
                }
            }
        }
    }

    fn finish(&mut self, out: &mut Finished) {
        for lane in &mut self.lanes {
            lane.start_until(f64::INFINITY, self.pick, out);
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        self.fifo.rebase(by);
        for (lane, by) in self.lanes.iter_mut().zip(by) {
            for start in &mut lane.starts {
                start.at -= by;
            }
            for arrival in &mut lane.waiting {
                *arrival -= by;
            }
        }
    }
}
