//! One door to every exact result: which system, and what is known about it.

use super::{
    ErlangArrivals, ExactError, Md1Lifo, Md1Random, Mdc, Mg1, Mm1Ps, Mmc, MmcReordered,
    ServiceMoments,
};

/// The random-order chain of M/D/1 is computed down to this probability (beyond p99.9999).
const SMALLEST_RANDOM_ORDER: f64 = 5e-7;

/// How requests arrive, as far as it matters to exact results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalKind {
    /// Independent exponential gaps.
    Poisson,
    /// Anything else: nothing is known here.
    Other,
}

/// How long a service takes, relative to its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceKind {
    /// Always the mean.
    Deterministic,
    /// Exponential.
    Exponential,
    /// Any other law with these moments; `None` where they are not known or not finite.
    General(Option<ServiceMoments>),
}

/// Who is served next, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One queue, first in first out.
    Fifo,
    /// One queue, last in first out, service not interrupted.
    Lifo,
    /// One queue, the next request drawn at random.
    RandomRequest,
    /// Each request to a worker drawn at random, first in first out there.
    RandomWorker,
    /// Request n to worker n mod c, first in first out there.
    RoundRobin,
    /// All requests share the workers; none gets more than one.
    ProcessorSharing,
    /// Any other order: nothing is known here.
    Other,
}

/// A queueing system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// How requests arrive.
    pub arrivals: ArrivalKind,
    /// How long a service takes.
    pub service: ServiceKind,
    /// The mean service time in seconds.
    pub mean_service_s: f64,
    /// The number of servers c.
    pub workers: u32,
    /// Who is served next.
    pub order: Order,
    /// The utilisation ρ = arrival rate × mean service time / c.
    pub utilization: f64,
}

/// What is known exactly about a [`System`]; times in seconds.
#[derive(Clone, Debug)]
pub struct ExactModel {
    name: String,
    source: &'static str,
    mean_service_s: f64,
    law: ExactLaw,
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
    /// Only the mean wait and P(wait), in a queue with first moments known.
    Waiting {
        mean_wait: f64,
        probability: f64,
    },
    /// Only the mean sojourn: under processor sharing nobody waits.
    Sharing {
        mean_sojourn: f64,
    },
}

impl ExactModel {
    /// What is known about `system`, or `None` where no exact result is.
    ///
    /// # Errors
    /// When there is no worker, the utilisation is not in (0, 1), the mean service time
    /// is not positive, or the moments are impossible.
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
        let Some((law, source)) = law_of(system.service, workers, order, rho)? else {
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
            source,
            mean_service_s,
            law,
        }))
    }

    /// The system in Kendall's notation, with its order.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the formulas come from.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// E\[T\] in seconds.
    pub fn mean_sojourn_s(&self) -> f64 {
        let services = match &self.law {
            ExactLaw::Mdc(q) => q.mean_sojourn_services(),
            ExactLaw::Mmc(q) => q.mean_sojourn_services(),
            ExactLaw::MmcReordered(q) => q.mean_sojourn_services(),
            ExactLaw::Md1Lifo(q) => q.mean_wait_services() + 1.0,
            ExactLaw::Md1Random(q) => q.mean_wait_services() + 1.0,
            ExactLaw::Mm1Ps(q) => q.mean_sojourn_services(),
            ExactLaw::ErlangArrivals(q) => q.mean_wait_services() + 1.0,
            ExactLaw::Waiting { mean_wait, .. } => mean_wait + 1.0,
            ExactLaw::Sharing { mean_sojourn } => *mean_sojourn,
        };
        services * self.mean_service_s
    }

    /// P(W > 0); `None` under processor sharing.
    pub fn wait_probability(&self) -> Option<f64> {
        match &self.law {
            ExactLaw::Mdc(q) => Some(q.wait_probability()),
            ExactLaw::Mmc(q) => Some(q.wait_probability()),
            ExactLaw::MmcReordered(q) => Some(q.wait_probability()),
            ExactLaw::Md1Lifo(q) => Some(q.wait_probability()),
            ExactLaw::Md1Random(q) => Some(q.wait_probability()),
            ExactLaw::ErlangArrivals(q) => Some(q.wait_probability()),
            ExactLaw::Waiting { probability, .. } => Some(*probability),
            ExactLaw::Mm1Ps(_) | ExactLaw::Sharing { .. } => None,
        }
    }

    /// P(T > `t_s` seconds), where the law is known that far.
    pub fn sojourn_ccdf(&self, t_s: f64) -> Option<f64> {
        let x = t_s / self.mean_service_s;
        match &self.law {
            ExactLaw::Mdc(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::Mmc(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::MmcReordered(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::Md1Lifo(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::Md1Random(q) => q.sojourn_ccdf(x),
            ExactLaw::Mm1Ps(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::ErlangArrivals(q) => Some(q.sojourn_ccdf(x)),
            ExactLaw::Waiting { .. } | ExactLaw::Sharing { .. } => None,
        }
    }

    /// P(W > `t_s` seconds), where the law is known that far.
    pub fn wait_ccdf(&self, t_s: f64) -> Option<f64> {
        let x = t_s / self.mean_service_s;
        match &self.law {
            ExactLaw::Mdc(q) => Some(q.wait_ccdf(x)),
            ExactLaw::Mmc(q) => Some(q.wait_ccdf(x)),
            ExactLaw::MmcReordered(q) => Some(q.wait_ccdf(x)),
            ExactLaw::Md1Lifo(q) => Some(q.wait_ccdf(x)),
            ExactLaw::Md1Random(q) => q.wait_ccdf(x),
            ExactLaw::ErlangArrivals(q) => Some(q.wait_ccdf(x)),
            ExactLaw::Mm1Ps(_) | ExactLaw::Waiting { .. } | ExactLaw::Sharing { .. } => None,
        }
    }

    /// The sojourn in seconds that a share `p` in (0, 1) of the requests exceeds.
    ///
    /// Prefer this to [`ExactModel::sojourn_quantile_s`] in the far tail, where 1 − q has
    /// lost its digits.
    pub fn sojourn_upper_quantile_s(&self, p: f64) -> Option<f64> {
        if !(p > 0.0 && p < 1.0) {
            return None;
        }
        let services = match &self.law {
            ExactLaw::Mdc(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Mmc(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::MmcReordered(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Md1Lifo(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Md1Random(q) => q.sojourn_upper_quantile_services(p)?,
            ExactLaw::Mm1Ps(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::ErlangArrivals(q) => q.sojourn_upper_quantile_services(p),
            ExactLaw::Waiting { .. } | ExactLaw::Sharing { .. } => return None,
        };
        Some(services * self.mean_service_s)
    }

    /// The quantile of the sojourn at `q` in (0, 1), in seconds.
    pub fn sojourn_quantile_s(&self, q: f64) -> Option<f64> {
        self.sojourn_upper_quantile_s(1.0 - q)
    }
}

fn law_of(
    service: ServiceKind,
    workers: u32,
    order: Order,
    rho: f64,
) -> Result<Option<(ExactLaw, &'static str)>, ExactError> {
    use ServiceKind::{Deterministic, Exponential, General};
    Ok(Some(match (order, service) {
        (Order::Fifo | Order::RoundRobin, Deterministic) => (
            // equal services: the request before the last c leaves first, so first in
            // first out over c workers is a round robin over them
            ExactLaw::Mdc(Mdc::new(workers, rho)?),
            "Crommelin 1932; Franx 2001; Tijms 2003 §9.6",
        ),
        (Order::Fifo, Exponential) => (
            ExactLaw::Mmc(Mmc::new(workers, rho)?),
            "Erlang 1917; Kleinrock 1975 §3.5",
        ),
        (Order::RoundRobin, Exponential) => (
            ExactLaw::ErlangArrivals(ErlangArrivals::new(workers, rho)?),
            "Kendall 1953; Kleinrock 1975 §6.4",
        ),
        (Order::Lifo, Exponential) => (
            ExactLaw::MmcReordered(MmcReordered::last_in_first_out(workers, rho)?),
            "Vaulot 1954; Riordan 1961",
        ),
        (Order::RandomRequest, Exponential) => (
            ExactLaw::MmcReordered(MmcReordered::random_order(workers, rho)?),
            "Pollaczek 1946; Flatto 1997",
        ),
        (Order::Lifo, Deterministic) if workers == 1 => (
            ExactLaw::Md1Lifo(Md1Lifo::new(rho)?),
            "Takács 1962; Riordan 1961 (Borel–Tanner)",
        ),
        (Order::RandomRequest, Deterministic) if workers == 1 => (
            ExactLaw::Md1Random(Md1Random::new(rho, SMALLEST_RANDOM_ORDER)?),
            "Burke 1959",
        ),
        (Order::ProcessorSharing, Exponential) if workers == 1 => (
            ExactLaw::Mm1Ps(Mm1Ps::new(rho)?),
            "Borst, Boxma, Morrison and Núñez-Queija 2003",
        ),
        (Order::ProcessorSharing, _) => (
            // the number in the system does not depend on the service law
            ExactLaw::Sharing {
                mean_sojourn: Mmc::new(workers, rho)?.mean_sojourn_services(),
            },
            "insensitivity of processor sharing (Cohen 1979)",
        ),
        (Order::Fifo | Order::Lifo | Order::RandomRequest, General(Some(moments)))
            if workers == 1 =>
        {
            (
                ExactLaw::Waiting {
                    mean_wait: Mg1::new(rho, moments)?.mean_wait_services(),
                    probability: rho,
                },
                "Pollaczek 1930; Khinchine 1932; Takács 1963",
            )
        }
        _ => return Ok(None),
    }))
}
