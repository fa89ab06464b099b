//! A closed loop: clients that wait for their answer, think for an exponential time, and send again.
//!
//! One FIFO worker serves them. Sends are taken in order of time from a heap, and every next send of a client comes after its
//! answer, so the recursion D ← max(A, D) + service is exact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use taillab_model::Nanos;
use taillab_queueing::service::{Service, ServiceError, ServiceTimes};

/// Requests of a trial run that finds out how long clients think.
const TRIAL: u64 = 40_000;
/// Halvings of the range in which that is looked for.
const HALVINGS: u32 = 24;

/// An endless series of sojourns, one for each request in the order of service. All clients start by thinking, so drop the first
/// requests: some for each client.
#[derive(Clone, Debug)]
pub struct WaitingClients {
    sends: BinaryHeap<Reverse<(Nanos, u32)>>,
    service: ServiceTimes,
    think: ServiceTimes,
    free_at: Nanos,
    busy: Nanos,
}

impl WaitingClients {
    /// Clients that think for this long on average; the same seed gives the same series everywhere.
    ///
    /// # Errors
    /// [`ServiceError`]: a parameter of the service times is out of range, or clients do not think at all.
    pub fn new(
        clients: NonZeroU32,
        service: &Service,
        think: Nanos,
        seed: u64,
    ) -> Result<Self, ServiceError> {
        let mut think = Service::Exponential { mean: think }.times(seed, 1)?;
        let sends = (0..clients.get()).map(|client| Reverse((think.draw(), client)));
        Ok(Self {
            sends: sends.collect(),
            service: service.times(seed, 0)?,
            think,
            free_at: Nanos::ZERO,
            busy: Nanos::ZERO,
        })
    }

    /// How long clients think on average so that the worker has this utilisation.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn think_time(
        clients: NonZeroU32,
        service: &Service,
        utilization: f64,
        seed: u64,
    ) -> Result<Nanos, ServiceError> {
        // the worker is less busy the longer they think; without a queue they would think for the longer of these
        let longest = f64::from(clients.get()) * service.mean_ns() / utilization;
        let (mut lo, mut hi) = (1.0, longest.max(2.0));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(lo, hi);
            let mut trial = Self::new(clients, service, Nanos::new(middle as u64), seed)?;
            trial.by_ref().take(TRIAL as usize).for_each(drop);
            match trial.utilization() > utilization {
                true => lo = middle,
                false => hi = middle,
            }
        }
        Ok(Nanos::new(f64::midpoint(lo, hi) as u64))
    }

    /// The share of the time that the worker was busy so far.
    pub fn utilization(&self) -> f64 {
        self.busy.as_secs_f64() / self.free_at.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl Iterator for WaitingClients {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let Reverse((sent, client)) = self.sends.pop()?;
        let service = self.service.draw();
        self.busy += service;
        self.free_at = self.free_at.max(sent) + service;
        self.sends
            .push(Reverse((self.free_at + self.think.draw(), client)));
        Some(self.free_at - sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    /// Two clients, exponential work and thought of the same mean: with the machine-repair model, P(n requests in the system) is
    /// 1 : 2 : 2, so the worker is busy 4/5 of the time, and the mean sojourn is (2 · 2 + 2) / 5 ÷ (4/5) = 1.5 services.
    #[test]
    fn two_clients_are_the_machine_repair_model() {
        let mean = Nanos::from_micros(50);
        let service = Service::Exponential { mean };
        let mut closed = WaitingClients::new(clients(2), &service, mean, 1).unwrap();
        let n = 400_000;
        let sum: f64 = closed.by_ref().take(n).map(|t| t.get() as f64).sum();
        assert!(
            (closed.utilization() - 0.8).abs() < 0.005,
            "{}",
            closed.utilization()
        );
        assert!(
            (sum / n as f64 / 50_000.0 - 1.5).abs() < 0.01,
            "{}",
            sum / n as f64
        );
    }

    #[test]
    fn nobody_waits_for_more_than_all_others() {
        let service = Service::deterministic(Nanos::from_micros(50));
        let think = WaitingClients::think_time(clients(4), &service, 0.8, 3).unwrap();
        let mut closed = WaitingClients::new(clients(4), &service, think, 4).unwrap();
        let longest = closed.by_ref().take(100_000).max().unwrap();
        assert!(longest > Nanos::from_micros(150) && longest <= Nanos::from_micros(200));
        assert!(
            (closed.utilization() - 0.8).abs() < 0.01,
            "{}",
            closed.utilization()
        );
    }

    #[test]
    fn a_seed_repeats_and_no_thought_is_refused() {
        let service = Service::deterministic(Nanos::from_micros(50));
        let series = |seed| -> Vec<Nanos> {
            let closed = WaitingClients::new(clients(3), &service, Nanos::from_micros(9), seed);
            closed.unwrap().take(50).collect()
        };
        assert_eq!(series(1), series(1));
        assert_ne!(series(1), series(2));
        assert!(WaitingClients::new(clients(3), &service, Nanos::ZERO, 1).is_err());
    }
}
