//! Workers in turn: D_n = max(A_n, D_{n−c}) + S_n, which is c independent max-plus recursions.
//!
//! With equal service times this is also FIFO over c workers: requests depart in the order of arrival, so the
//! worker of request n − c is always the first that becomes free. Then the recursion is a scan: with k the
//! turn, D − (k + 1) S = max(A − k S, D' − k S) is a running maximum, in which each step depends on the
//! previous one by only one comparison.

use super::kernel::{Block, Finished, Kernel, rebase_rows};
use taillab_queueing::isa::multiversion;

/// Up to this number of workers, their state stays in registers.
const FEW: usize = 8;

pub(super) struct RoundRobin<const L: usize> {
    /// When each worker is free. If they are few, the first is the worker that is next.
    free_at: Vec<[f64; L]>,
    /// The place of the worker that is next.
    next: usize,
    /// All service times are equal, so this is FIFO.
    is_fifo: bool,
}

impl<const L: usize> RoundRobin<L> {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            free_at: vec![[0.0; L]; workers],
            next: 0,
            is_fifo: false,
        }
    }

    /// FIFO for equal service times.
    pub(super) fn max_plus(workers: usize) -> Self {
        Self {
            is_fifo: true,
            ..Self::new(workers)
        }
    }
}

impl<const L: usize> Kernel<L> for RoundRobin<L> {
    fn name(&self) -> &'static str {
        if self.is_fifo {
            "max-plus scan"
        } else {
            "Lindley recursion by turns"
        }
    }

    fn advance(&mut self, block: Block<'_, L>, out: &mut Finished) {
        let Block {
            isa,
            arrivals,
            services,
        } = block;
        let waits = out.rows::<L>(arrivals.len());
        let free_at = &mut self.free_at[..];
        // With one lane, the chain of maxima is the bottleneck. Eight lanes hide it, so the scan gains
        // nothing there.
        if self.is_fifo && L == 1 && free_at.len() <= 4 {
            let service = services.first().map_or(0.0, |s| s[0]);
            match free_at.len() {
                1 => scan::<1, L>(isa, arrivals, service, free_at, waits),
                2 => scan::<2, L>(isa, arrivals, service, free_at, waits),
                3 => scan::<3, L>(isa, arrivals, service, free_at, waits),
                _ => scan::<4, L>(isa, arrivals, service, free_at, waits),
            }
        } else {
            match free_at.len() {
                1 => few::<1, L>(isa, arrivals, services, free_at, waits),
                2 => few::<2, L>(isa, arrivals, services, free_at, waits),
                3 => few::<3, L>(isa, arrivals, services, free_at, waits),
                4 => few::<4, L>(isa, arrivals, services, free_at, waits),
                5 => few::<5, L>(isa, arrivals, services, free_at, waits),
                6 => few::<6, L>(isa, arrivals, services, free_at, waits),
                7 => few::<7, L>(isa, arrivals, services, free_at, waits),
                8 => few::<8, L>(isa, arrivals, services, free_at, waits),
                _ => many(isa, arrivals, services, free_at, self.next, waits),
            }
        }
        let turns = arrivals.len() % free_at.len();
        if free_at.len() <= FEW {
            free_at.rotate_left(turns);
        } else {
            // to move them all would take longer than the requests
            self.next = (self.next + turns) % free_at.len();
        }
    }

    fn rebase(&mut self, by: &[f64; L]) {
        rebase_rows(&mut self.free_at, by);
    }
}

#[inline(always)]
fn step<const L: usize>(
    arrival: &[f64; L],
    service: &[f64; L],
    free_at: &mut [f64; L],
    wait: &mut [f64; L],
) {
    for lane in 0..L {
        let (a, f) = (arrival[lane], free_at[lane]);
        let start = if a > f { a } else { f };
        wait[lane] = start - a;
        free_at[lane] = start + service[lane];
    }
}

multiversion! {
    /// For few workers: their state stays in registers.
    fn few[const C: usize, const L: usize](
        arrivals: &[[f64; L]],
        services: &[[f64; L]],
        free_at: &mut [[f64; L]],
        waits: &mut [[f64; L]],
    ) {
        let Ok(state) = <&mut [[f64; L]; C]>::try_from(free_at) else { return };
        let mut local = *state;
        let (arrivals, last_arrivals) = arrivals.as_chunks::<C>();
        let (services, last_services) = services.as_chunks::<C>();
        let (waits, last_waits) = waits.as_chunks_mut::<C>();
        for ((a, s), w) in arrivals.iter().zip(services).zip(waits) {
            for j in 0..C {
                step(&a[j], &s[j], &mut local[j], &mut w[j]);
            }
        }
        *state = local;
        for (j, a) in last_arrivals.iter().enumerate() {
            step(a, &last_services[j], &mut state[j], &mut last_waits[j]);
        }
    }

    /// For few workers and equal service times.
    fn scan[const C: usize, const L: usize](
        arrivals: &[[f64; L]],
        service: f64,
        free_at: &mut [[f64; L]],
        waits: &mut [[f64; L]],
    ) {
        let Ok(state) = <&mut [[f64; L]; C]>::try_from(free_at) else { return };
        let mut latest = *state;
        let (turns, last_arrivals) = arrivals.as_chunks::<C>();
        let (waits, last_waits) = waits.as_chunks_mut::<C>();
        let mut served = 0.0;
        for (a, w) in turns.iter().zip(waits) {
            for j in 0..C {
                for lane in 0..L {
                    let at = a[j][lane] - served;
                    let l = latest[j][lane];
                    let start = if at > l { at } else { l };
                    latest[j][lane] = start;
                    w[j][lane] = start - at;
                }
            }
            served += service;
        }
        for j in 0..C {
            for lane in 0..L {
                state[j][lane] = latest[j][lane] + served;
            }
        }
        for (j, a) in last_arrivals.iter().enumerate() {
            step(a, &[service; L], &mut state[j], &mut last_waits[j]);
        }
    }

    fn many[const L: usize](
        arrivals: &[[f64; L]],
        services: &[[f64; L]],
        free_at: &mut [[f64; L]],
        first: usize,
        waits: &mut [[f64; L]],
    ) {
        let mut next = first;
        for ((a, s), w) in arrivals.iter().zip(services).zip(waits) {
            step(a, s, &mut free_at[next], w);
            next += 1;
            if next == free_at.len() {
                next = 0;
            }
        }
    }
}
