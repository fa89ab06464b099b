//! A queue for each worker; requests join a shortest one, of all or of d drawn.

use std::collections::VecDeque;

use super::Finished;
use super::per_lane::LaneQueue;
use crate::random::law::index_below;

pub(super) struct ShortestQueue {
    workers: Vec<Worker>,
    /// How many workers are looked at; `None` for all.
    d: Option<usize>,
    drawn: Vec<u32>,
}

#[derive(Default)]
struct Worker {
    /// When the requests present depart, in order.
    departures: VecDeque<f64>,
}

impl Worker {
    #[inline(always)]
    fn present(&mut self, at: f64) -> usize {
        while self.departures.front().is_some_and(|d| *d <= at) {
            self.departures.pop_front();
        }
        self.departures.len()
    }
}

impl ShortestQueue {
    pub(super) fn new(workers: usize, d: Option<usize>) -> Self {
        Self {
            workers: (0..workers).map(|_| Worker::default()).collect(),
            d: d.filter(|d| *d < workers),
            drawn: Vec::new(),
        }
    }

    /// The worker that a request arriving now joins.
    #[inline(always)]
    fn choose(&mut self, at: f64, choice: u64) -> usize {
        match self.d {
            None => shortest(self.workers.len(), choice, |k| self.workers[k].present(at)),
            Some(d) => {
                // The first d places of a shuffle (Fisher and Yates 1938), from 64 bits
                // stretched by a linear congruence.
                let mut bits = choice;
                self.drawn.clear();
                for taken in 0..d {
                    let left = self.workers.len() - taken;
                    let mut k = index_below(bits, left as u64) as u32;
                    bits = stretch(bits);
                    // the k-th of those not drawn yet: `drawn` is kept sorted
                    let mut place = 0;
                    while place < self.drawn.len() && self.drawn[place] <= k {
                        k += 1;
                        place += 1;
                    }
                    self.drawn.insert(place, k);
                }
                let workers = &mut self.workers;
                let drawn = &self.drawn;
                let i = shortest(d, bits, |i| workers[drawn[i] as usize].present(at));
                drawn[i] as usize
            }
        }
    }
}

/// More bits from bits (the multiplier of Steele and Vigna 2021).
#[inline(always)]
pub(super) fn stretch(bits: u64) -> u64 {
    let x = bits.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
    x ^ (x >> 32)
}

/// One of the indices below `n` with the least length, each equally likely.
#[inline(always)]
pub(super) fn shortest(n: usize, choice: u64, mut length: impl FnMut(usize) -> usize) -> usize {
    let (mut best, mut ties, mut chosen, mut bits) = (usize::MAX, 0_u64, 0, choice);
    for k in 0..n {
        let here = length(k);
        if here < best {
            (best, ties, chosen) = (here, 1, k);
        } else if here == best {
            // each of m equals survives with probability 1/m (reservoir of one)
            ties += 1;
            bits = stretch(bits);
            if index_below(bits, ties) == 0 {
                chosen = k;
            }
        }
    }
    chosen
}

impl LaneQueue for ShortestQueue {
    const NAME: &'static str = "shortest queue, Lindley recursion per worker";

    #[inline(always)]
    fn arrive(&mut self, at: f64, service: f64, choice: u64, out: &mut Finished) {
        let k = self.choose(at, choice);
        let departures = &mut self.workers[k].departures;
        let start = departures.back().copied().unwrap_or(at);
        departures.push_back(start + service);
        out.push(start - at, service);
    }

    fn drain(&mut self, _out: &mut Finished) {
        // waits are known on arrival
    }

    fn rebase(&mut self, by: f64) {
        for worker in &mut self.workers {
            for departure in &mut worker.departures {
                *departure -= by;
            }
        }
    }
}
