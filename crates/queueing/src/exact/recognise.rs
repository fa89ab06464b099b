//! Finds the exact system that a simulated one is, including special cases of wider families.

use super::{ArrivalKind, Order, ServiceKind, System};
use crate::arrivals::ArrivalProcess;
use crate::discipline::{Assignment, Discipline};
use crate::service::Service;

impl System {
    /// The system with these parts; `utilization` is per worker.
    pub fn new(
        arrivals: &ArrivalProcess,
        service: &Service,
        workers: u32,
        discipline: &Discipline,
        utilization: f64,
    ) -> Self {
        Self {
            arrivals: ArrivalKind::of(arrivals),
            service: ServiceKind::of(service),
            mean_service_s: service.mean_ns() * 1e-9,
            workers,
            order: Order::of(discipline, workers),
            utilization,
        }
    }
}

impl ArrivalKind {
    /// Poisson includes the special cases of other families.
    pub fn of(arrivals: &ArrivalProcess) -> Self {
        match *arrivals {
            ArrivalProcess::Poisson
            | ArrivalProcess::Erlang { stages: 1 }
            | ArrivalProcess::Gamma { cv: 1.0 }
            | ArrivalProcess::Hyperexponential { cv: 1.0 }
            | ArrivalProcess::Weibull { shape: 1.0 } => Self::Poisson,
            _ => Self::Other,
        }
    }
}

impl ServiceKind {
    /// The kind of these service times.
    pub fn of(service: &Service) -> Self {
        if service.constant().is_some() {
            return Self::Deterministic;
        }
        if matches!(service, Service::Exponential { .. }) {
            return Self::Exponential;
        }
        let mean = service.mean_ns();
        let second = service.raw_moment(2) / (mean * mean);
        Self::General(second.is_finite().then_some(second))
    }
}

impl Order {
    /// The order of a discipline with this many workers; with one worker, most are FIFO.
    pub fn of(discipline: &Discipline, workers: u32) -> Self {
        match discipline {
            Discipline::Fifo => Self::Fifo,
            Discipline::Lifo => Self::Lifo,
            Discipline::RandomRequest => Self::RandomRequest,
            Discipline::ProcessorSharing => Self::ProcessorSharing,
            Discipline::RandomWorker
            | Discipline::RoundRobin
            | Discipline::JoinShortestQueue
            | Discipline::PowerOfD { .. }
            | Discipline::Static { .. }
            | Discipline::WorkStealing { .. }
                if workers == 1 =>
            {
                Self::Fifo
            }
            Discipline::RandomWorker | Discipline::PowerOfD { d: 1 } => Self::RandomWorker,
            Discipline::RoundRobin => Self::RoundRobin,
            // equally likely connections, the same number at each worker: the worker is random
            Discipline::Static {
                connections,
                assignment: Assignment::RoundRobin,
            } if connections.is_multiple_of(workers) => Self::RandomWorker,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_cases_of_wider_families_are_recognised() {
        let poisson = [
            "poisson",
            "erlang:stages=1",
            "gamma:cv=1",
            "weibull:shape=1",
        ];
        for text in poisson {
            let arrivals: ArrivalProcess = text.parse().unwrap();
            assert_eq!(ArrivalKind::of(&arrivals), ArrivalKind::Poisson, "{text}");
        }
        for text in ["deterministic", "gamma:cv=0.5", "lognormal:cv=1"] {
            let arrivals: ArrivalProcess = text.parse().unwrap();
            assert_eq!(ArrivalKind::of(&arrivals), ArrivalKind::Other, "{text}");
        }
        for (text, workers, order) in [
            ("jsq", 1, Order::Fifo),
            ("jsq", 4, Order::Other),
            ("power-of-d:d=1", 4, Order::RandomWorker),
            (
                "static:connections=64,assign=round-robin",
                4,
                Order::RandomWorker,
            ),
            ("static:connections=65,assign=round-robin", 4, Order::Other),
            ("static:connections=64,assign=random", 4, Order::Other),
            ("lifo", 4, Order::Lifo),
        ] {
            let discipline: Discipline = text.parse().unwrap();
            assert_eq!(Order::of(&discipline, workers), order, "{text}");
        }
    }

    /// Moments of a general service give Pollaczek–Khinchine's mean.
    #[test]
    fn a_lognormal_service_has_a_mean_wait() {
        let service: Service = "lognormal:50us,cv=2".parse().unwrap();
        let system = System::new(
            &ArrivalProcess::Poisson,
            &service,
            1,
            &Discipline::Fifo,
            0.5,
        );
        let exact = super::super::ExactModel::of(&system).unwrap().unwrap();
        // E[W] = ρ(1 + CV²)/(2(1−ρ)) E[S] = 2.5 · 50 µs, and a service
        assert!((exact.mean_sojourn_s() / 175e-6 - 1.0).abs() < 1e-9);
    }
}
