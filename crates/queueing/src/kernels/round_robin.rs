//! Workers in turn: D_n = max(A_n, D_{n−c}) + S_n, c independent max-plus recursions.
//!
//! With equal service times this is FIFO over c workers, too: requests depart in the
//! order of arrival, so the worker of request n − c is always the first to be free.

use super::{Finished, Kernel};
use crate::isa::{Isa, multiversion};

pub(super) struct RoundRobin<const L: usize> {
    /// When each worker is free; the next one to be used stands first.
    free_at: Vec<[f64; L]>,
    name: &'static str,
}

impl<const L: usize> RoundRobin<L> {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            free_at: vec![[0.0; L]; workers],
            name: "Lindley recursion by turns",
        }
    }

    /// The same calculation under the name it has for FIFO.
    pub(super) fn max_plus(workers: usize) -> Self {
        Self {
            name: "max-plus scan",
            ..Self::new(workers)
        }
    }
}

impl<const L: usize> Kernel<L> for RoundRobin<L> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn in_order(&self) -> bool {
        true
    }

    fn advance(
        &mut self,
        isa: Isa,
        arrivals: &[[f64; L]],
        services: &[[f64; L]],
        out: &mut Finished,
    ) {
        let waits = out.rows::<L>(arrivals.len());
        let free_at = &mut self.free_at[..];
        match free_at.len() {
            1 => few::<1, L>(isa, arrivals, services, free_at, waits),
            2 => few::<2, L>(isa, arrivals, services, free_at, waits),
            3 => few::<3, L>(isa, arrivals, services, free_at, waits),
            4 => few::<4, L>(isa, arrivals, services, free_at, waits),
            5 => few::<5, L>(isa, arrivals, services, free_at, waits),
            6 => few::<6, L>(isa, arrivals, services, free_at, waits),
            7 => few::<7, L>(isa, arrivals, services, free_at, waits),
            8 => few::<8, L>(isa, arrivals, services, free_at, waits),
            _ => many(isa, arrivals, services, free_at, waits),
        }
        let turns = arrivals.len() % free_at.len();
        free_at.rotate_left(turns);
    }

    fn rebase(&mut self, by: &[f64; L]) {
        for row in &mut self.free_at {
            for (free_at, by) in row.iter_mut().zip(by) {
                *free_at -= by;
            }
        }
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
    /// The workers' state stays in registers.
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

    fn many[const L: usize](
        arrivals: &[[f64; L]],
        services: &[[f64; L]],
        free_at: &mut [[f64; L]],
        waits: &mut [[f64; L]],
    ) {
        let workers = free_at.len();
        for (from, a) in arrivals.chunks(workers).enumerate() {
            let at = from * workers;
            for (j, a) in a.iter().enumerate() {
                step(a, &services[at + j], &mut free_at[j], &mut waits[at + j]);
            }
        }
    }
}
