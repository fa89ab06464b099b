//! Finds the exact result for a system, if one is known.

use super::{ErlangArrivals, ExactError, Md1Lifo, Md1Random, Mdc, Mm1Ps, Mmc, MmcReordered};

/// The random-order chain of M/D/1 is computed down to this probability (beyond p99.9999).
const SMALLEST_RANDOM_ORDER: f64 = 5e-7;

/// The arrivals of a system, as far as exact results distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    /// Independent exponential gaps.
    Poisson,
    /// Any other arrivals, for which no exact result is known.
    Other,
}

/// The service times of a system, relative to their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceKind {
    /// Always the mean.
    Deterministic,
    /// Exponential.
    Exponential,
    /// Any other law with this E\[S²\]/E\[S\]²; `None` if that is unknown or infinite.
    General(Option<f64>),
}

/// The order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One queue, first in first out.
    Fifo,
    /// One queue, last in first out, without preemption.
    Lifo,
    /// One queue, the next request drawn at random.
    RandomRequest,
    /// Each request goes to a worker drawn at random, first in first out there.
    RandomWorker,
    /// Request n goes to worker n mod c, first in first out there.
    RoundRobin,
    /// All requests share the workers; none gets more than one.
    ProcessorSharing,
    /// Any other order, for which no exact result is known.
    Other,
}

/// A queueing system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// Its arrivals.
    pub arrivals: ArrivalKind,
    /// Its service times.
    pub service: ServiceKind,
    /// The mean service time in seconds.
    pub mean_service_s: f64,
    /// The number of servers c.
    pub workers: u32,
    /// The order of service.
    pub order: Order,
    /// The utilisation ρ = arrival rate × mean service time / c.
    pub utilization: f64,
}

/// The exact results for a [`System`]; times in seconds.
#[derive(Clone, Debug)]
pub struct ExactModel {
    name: String,
    source: &'static str,
    mean_service_s: f64,
    mean_sojourn_services: f64,
    /// The law of the sojourn; `None` if only the mean is known.
    law: Option<ExactLaw>,
}

#[derive(Clone, Debug)]
enum ExactLaw {
    Mdc(Mdc),
    Mmc(Mmc),
    MmcReordered(MmcReordered),
    Md1Lifo(Md1Lifo),
    Md1Random(Md1Random),
    Mm1Ps(Mm1Ps),
    ErlangArrivals(ErlangArrivals),
}

impl ExactModel {
    /// The exact results for `system`; `None` if none is known.
    ///
    /// # Errors
    /// If there is no worker, the utilisation is not in (0, 1), or the mean service time is not positive.
    pub fn of(system: &System) -> Result<Option<Self>, ExactError> {
        super::checked_load(system.workers, system.utilization)?;
        let mean_service_s = system.mean_service_s;
        if !(mean_service_s > 0.0 && mean_service_s.is_finite()) {
            return Err(ExactError::ServiceTime(mean_service_s));
        }
        if system.arrivals != ArrivalKind::Poisson {
            return Ok(None);
        }
        // Poisson arrivals split at random are Poisson: each worker is a queue of its own
        let (workers, order) = match system.order {
            Order::RandomWorker => (1, Order::Fifo),
            Order::RoundRobin if system.workers == 1 => (1, Order::Fifo),
            order => (system.workers, order),
        };
        let rho = system.utilization;
        let Some(solution) = solve(system.service, workers, order, rho)? else {
            return Ok(None);
        };
        let letter = match system.service {
            ServiceKind::Deterministic => "D",
            ServiceKind::Exponential => "M",
            ServiceKind::General(_) => "G",
        };
        let suffix = match system.order {
            Order::Fifo | Order::Other => "",
            Order::Lifo => " LIFO",
            Order::RandomRequest => " random order",
            Order::RandomWorker => " at each random worker",
            Order::RoundRobin => " round robin",
            Order::ProcessorSharing => " processor sharing",
        };
        Ok(Some(Self {
            name: format!("M/{letter}/{workers}{suffix}"),
            source: solution.source,
            mean_service_s,
            mean_sojourn_services: solution.mean_services,
            law: solution.law,
        }))
    }

    /// The system in Kendall's notation, with its order.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source of the formulas.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// E\[T\] in seconds.
    pub fn mean_sojourn_s(&self) -> f64 {
        self.mean_sojourn_services * self.mean_service_s
    }

    /// P(T > `t_s` seconds), if the law is known that far.
    pub fn sojourn_ccdf(&self, t_s: f64) -> Option<f64> {
        let x = t_s / self.mean_service_s;
        Some(match self.law.as_ref()? {
            ExactLaw::Mdc(q) => q.sojourn_ccdf(x),
            ExactLaw::Mmc(q) => q.sojourn_ccdf(x),
            ExactLaw::MmcReordered(q) => q.sojourn_ccdf(x),
            ExactLaw::Md1Lifo(q) => q.sojourn_ccdf(x),
            ExactLaw::Md1Random(q) => q.sojourn_ccdf(x)?,
            ExactLaw::Mm1Ps(q) => q.sojourn_ccdf(x),
            ExactLaw::ErlangArrivals(q) => q.sojourn_ccdf(x),
        })
    }

    /// The sojourn in seconds that a share `p` in (0, 1) of the requests exceeds.
    ///
    /// Prefer this to [`ExactModel::sojourn_quantile_s`] in the far tail, where 1 − q loses its digits.
    pub fn sojourn_upper_quantile_s(&self, p: f64) -> Option<f64> {
        if !(p > 0.0 && p < 1.0) {
            return None;
        }
        let services = match self.law.as_ref()? {
            ExactLaw::Mdc(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Mmc(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::MmcReordered(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Md1Lifo(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Md1Random(q) => q.sojourn_upper_quantile_services(p)?,
            ExactLaw::Mm1Ps(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::ErlangArrivals(q) => q.sojourn_upper_quantile_services(p),
        };
        Some(services * self.mean_service_s)
    }

    /// The quantile of the sojourn at `q` in (0, 1), in seconds.
    pub fn sojourn_quantile_s(&self, q: f64) -> Option<f64> {
        self.sojourn_upper_quantile_s(1.0 - q)
    }
}

/// What theory says of a queue.
struct Solution {
    /// The mean sojourn, in mean service times.
    mean_services: f64,
    /// The law of the sojourn, where it is known.
    law: Option<ExactLaw>,
    /// Where both are from.
    source: &'static str,
}

fn solve(
    service: ServiceKind,
    workers: u32,
    order: Order,
    rho: f64,
) -> Result<Option<Solution>, ExactError> {
    use ServiceKind::{Deterministic, Exponential, General};
    // all orders that ignore the service times have the same mean
    let md1_mean = 1.0 + rho / (2.0 * (1.0 - rho));
    let (mean, law, source) = match (order, service) {
        (Order::Fifo | Order::RoundRobin, Deterministic) => {
            // with equal services, requests depart in the order of arrival, so FIFO over c workers is a
            // round robin over them
            let queue = Mdc::new(workers, rho)?;
            let mean = 1.0 + queue.mean_wait_services();
            let source = "Crommelin 1932; Franx 2001; Tijms 2003 §9.6";
            (mean, ExactLaw::Mdc(queue), source)
        }
        (Order::Fifo, Exponential) => {
            let queue = Mmc::new(workers, rho)?;
            let mean = queue.mean_sojourn_services();
            let source = "Erlang 1917; Kleinrock 1975 §3.5";
            (mean, ExactLaw::Mmc(queue), source)
        }
        (Order::RoundRobin, Exponential) => {
            let queue = ErlangArrivals::new(workers, rho)?;
            let mean = 1.0 + queue.mean_wait_services();
            let source = "Kendall 1953; Kleinrock 1975 §6.4";
            (mean, ExactLaw::ErlangArrivals(queue), source)
        }
        (Order::Lifo, Exponential) => {
            let queue = MmcReordered::last_in_first_out(workers, rho)?;
            let mean = queue.mean_sojourn_services();
            let source = "Vaulot 1954; Riordan 1961";
            (mean, ExactLaw::MmcReordered(queue), source)
        }
        (Order::RandomRequest, Exponential) => {
            let queue = MmcReordered::random_order(workers, rho)?;
            let mean = queue.mean_sojourn_services();
            let source = "Pollaczek 1946; Flatto 1997";
            (mean, ExactLaw::MmcReordered(queue), source)
        }
        (Order::Lifo, Deterministic) if workers == 1 => {
            let law = ExactLaw::Md1Lifo(Md1Lifo::new(rho)?);
            (md1_mean, law, "Takács 1962; Riordan 1961 (Borel–Tanner)")
        }
        (Order::RandomRequest, Deterministic) if workers == 1 => {
            let queue = Md1Random::new(rho, SMALLEST_RANDOM_ORDER)?;
            (md1_mean, ExactLaw::Md1Random(queue), "Burke 1959")
        }
        (Order::ProcessorSharing, Exponential) if workers == 1 => {
            let queue = Mm1Ps::new(rho)?;
            let mean = queue.mean_sojourn_services();
            let source = "Borst, Boxma, Morrison and Núñez-Queija 2003";
            (mean, ExactLaw::Mm1Ps(queue), source)
        }
        (Order::ProcessorSharing, _) => {
            // the mean number in the system does not depend on the law of the service times
            let mean = Mmc::new(workers, rho)?.mean_sojourn_services();
            let source = "insensitivity of processor sharing (Cohen 1979)";
            return Ok(Some(Solution {
                mean_services: mean,
                law: None,
                source,
            }));
        }
        (Order::Fifo | Order::Lifo | Order::RandomRequest, General(Some(second)))
            if workers == 1 =>
        {
            let mean = 1.0 + rho * second / (2.0 * (1.0 - rho));
            let source = "Pollaczek 1930; Khinchine 1932; Takács 1963";
            return Ok(Some(Solution {
                mean_services: mean,
                law: None,
                source,
            }));
        }
        _ => return Ok(None),
    };
    Ok(Some(Solution {
        mean_services: mean,
        law: Some(law),
        source,
    }))
}
