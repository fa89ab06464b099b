//! A queue for each worker; each request joins a shortest one, of all or of d drawn at random.

use super::kernel::Finished;
use super::per_lane::LaneQueue;
use super::ring::Ring;
use taillab_queueing::random::law::index_below;

pub(super) struct ShortestQueue {
    workers: Vec<Worker>,
    /// The number of workers drawn; `None` for all.
    d: Option<usize>,
    drawn: Vec<u32>,
}

struct Worker {
    /// The departure times of its requests, in order.
    departures: Ring<f64>,
    /// The last departure time, even if it has passed.
    free_at: f64,
}

impl Worker {
    /// The number of requests, including the one in service.
    #[inline(always)]
    fn present(&mut self, at: f64) -> usize {
        // usually at most one has left since the last call; this needs no branch
        self.departures.pop_if(self.departures.front() <= at);
        while self.departures.front() <= at {
            self.departures.pop_if(true);
        }
        self.departures.len()
    }
}

impl ShortestQueue {
    pub(super) fn new(workers: usize, d: Option<usize>) -> Self {
        Self {
            workers: (0..workers)
                .map(|_| Worker {
                    departures: Ring::new(f64::INFINITY),
                    free_at: 0.0,
                })
                .collect(),
            d: d.filter(|d| *d < workers),
            drawn: Vec::new(),
        }
    }

    /// The worker that a request arriving now joins.
    #[inline(always)]
    fn choose(&mut self, at: f64, choice: u64) -> usize {
        match self.d {
            None => {
                let lengths = self.workers.iter_mut().map(|worker| worker.present(at));
                shortest(lengths, choice)
            }
            Some(2) => {
                let n = self.workers.len() as u64;
                let bits = stretch(choice);
                let a = index_below(choice, n) as usize;
                let b = index_below(bits, n - 1) as usize;
                let b = b + usize::from(b >= a);
                let pair = [a.min(b), a.max(b)];
                let lengths = pair.map(|k| self.workers[k].present(at));
                pair[shortest(lengths.into_iter(), stretch(bits))]
            }
            Some(d) => {
                // the first d places of a shuffle (Fisher and Yates 1938)
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
                let lengths = self.drawn.iter().map(|k| workers[*k as usize].present(at));
                let i = shortest(lengths, bits);
                self.drawn[i] as usize
            }
        }
    }
}

/// Derives more random bits (with the multiplier of Steele and Vigna 2021).
#[inline(always)]
pub(super) fn stretch(bits: u64) -> u64 {
    let x = bits.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
    x ^ (x >> 32)
}

/// The index of a least length; each of several equal ones is equally likely, to within 2⁻¹⁶.
#[inline(always)]
pub(super) fn shortest(lengths: impl Iterator<Item = usize>, choice: u64) -> usize {
    // one number to compare: the length, then 16 random bits, then the index
    let (mut least, mut bits) = (u64::MAX, choice);
    for (k, length) in lengths.enumerate() {
        let quarter = 16 * (k as u64 % 4);
        let draw = (bits >> quarter) & 0xffff;
        least = least.min((length as u64) << 40 | draw << 24 | k as u64);
        if quarter == 48 {
            bits = stretch(bits);
        }
    }
    (least & 0xff_ffff) as usize
}

impl LaneQueue for ShortestQueue {
    const NAME: &'static str = "shortest queue, Lindley recursion per worker";

    #[inline(always)]
    fn arrive(&mut self, at: f64, service: f64, choice: u64, out: &mut Finished) {
        let k = self.choose(at, choice);
        let worker = &mut self.workers[k];
        let start = if at > worker.free_at {
            at
        } else {
            worker.free_at
        };
        worker.free_at = start + service;
        worker.departures.push(worker.free_at);
        out.push(start - at, service);
    }

    fn drain(&mut self, _out: &mut Finished) {
        // waits are known on arrival
    }

    fn rebase(&mut self, by: f64) {
        for worker in &mut self.workers {
            worker.free_at -= by;
            worker.departures.for_each(|departure| *departure -= by);
        }
    }
}
