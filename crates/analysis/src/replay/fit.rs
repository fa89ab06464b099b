//! Finds the queueing discipline: the candidates, and how well each reproduces the measurement.

use taillab_model::explanation::{Cause, FitPoint, MOST_FIT_ERROR, ModelFit, good_fit_error};
use taillab_model::{Nanos, quantile_rank};

use super::change::{Discipline, Order, Sharing};
use super::kernel::replay;
use super::observed::{Observed, UNCOUNTED};

/// The quantiles at which the replay is compared with the measurement.
pub const FIT_QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// A more complex queue is taken only if its largest error is smaller by more than this.
const NO_BETTER: f64 = 0.005;

/// One queue for all workers is taken where its largest error is no more than this, whether or not the measured
/// assignment reproduces the measurement more closely: it always does, but where clients are served now by one worker
/// and now by another, a change changes the assignment.
const ONE_QUEUE_FITS: f64 = 0.05;

/// The queue that fits best, with its replay.
#[derive(Clone, Debug)]
pub(crate) struct Fitted {
    pub(crate) discipline: Discipline,
    pub(crate) fit: ModelFit,
    /// The replayed sojourns, sorted.
    pub(crate) replayed: Vec<Nanos>,
}

/// The candidates for this server, the simplest first.
fn candidates(observed: &Observed) -> Vec<Discipline> {
    let shares = observed.workers_share_servers();
    let of = |sharing, order| Discipline { sharing, order };
    let mut orders = vec![Order::Arrival];
    if shares {
        orders.push(Order::ByWorker);
    }
    if !shares && observed.answers_in_batches() {
        orders.push(Order::Batches);
    }
    orders.extend([Order::AsMeasured, Order::AsMeasuredPreemptive]);
    let assigned = orders.into_iter().map(|order| of(Sharing::Assigned, order));
    if observed.workers.len() <= 1 {
        return assigned.collect();
    }
    let mut all = Vec::new();
    if !observed.connections_are_bound {
        all.push(of(Sharing::Shared, Order::Arrival));
        if shares {
            all.push(of(Sharing::Shared, Order::ByWorker));
        }
        all.push(of(Sharing::Shared, Order::AsMeasured));
    }
    all.extend(assigned);
    all
}

/// The best of the candidates. `quantiles` are those that the sample supports; `None` without requests or
/// quantiles.
pub(crate) fn fit(observed: &Observed, quantiles: &[f64]) -> Option<Fitted> {
    let counted = observed.counted().map(|job| job.measured_ns);
    let measured = at_quantiles(counted.collect(), quantiles)?;
    let mut best: Option<Fitted> = None;
    let good = good_fit_error(observed.workers.len());
    for discipline in candidates(observed) {
        let one_queue = best.as_ref().is_some_and(|best| {
            let is_shared = best.discipline.sharing == Sharing::Shared;
            is_shared && best.fit.largest_error <= ONE_QUEUE_FITS
        });
        if one_queue && discipline.sharing == Sharing::Assigned {
            break;
        }
        let change = observed.unchanged(discipline);
        let mut sojourns = Vec::with_capacity(observed.requests.len());
        replay(observed, &change, |i, at| {
            if observed.requests[i].block != UNCOUNTED {
                sojourns.push(observed.sojourn_ns(i, at));
            }
        });
        let Some(replayed) = at_quantiles(sojourns.clone(), quantiles) else {
            continue;
        };
        let points: Vec<FitPoint> = quantiles
            .iter()
            .zip(measured.iter().zip(&replayed))
            .map(|(&q, (&measured, &replayed))| FitPoint {
                q,
                measured_ns: Nanos::new(measured),
                replayed_ns: Nanos::new(replayed),
                error: replayed as f64 / measured.max(1) as f64 - 1.0,
            })
            .collect();
        let errors = points.iter().map(|point| point.error.abs());
        let largest_error = errors.fold(0.0, f64::max);
        let better = |best: &Fitted| largest_error + NO_BETTER < best.fit.largest_error;
        if best.as_ref().is_none_or(better) {
            best = Some(Fitted {
                discipline,
                fit: ModelFit {
                    model: describe(observed, discipline),
                    largest_error,
                    points,
                    largest_borne: MOST_FIT_ERROR,
                    good: largest_error <= good,
                },
                replayed: sojourns.into_iter().map(Nanos::new).collect(),
            });
        }
    }
    if let Some(best) = &mut best {
        best.replayed.sort_unstable();
    }
    best
}

/// Exact order statistics.
fn at_quantiles(mut values: Vec<u64>, quantiles: &[f64]) -> Option<Vec<u64>> {
    if values.is_empty() || quantiles.is_empty() {
        return None;
    }
    let at = |q: &f64| {
        let place = quantile_rank(values.len() as u64, *q);
        *values.select_nth_unstable(place as usize).1
    };
    Some(quantiles.iter().map(at).collect())
}

/// The queue in words: `1 worker, first come first served (by T2); interrupted by: interrupts`.
fn describe(observed: &Observed, discipline: Discipline) -> String {
    let number = |n: usize, what: &str| {
        let plural = if n == 1 { "" } else { "s" };
        format!("{n} {what}{plural}")
    };
    let workers = number(observed.workers.len().max(1), "worker");
    let servers = observed.vacations.len();
    let place = if !observed.workers_share_servers() {
        workers
    } else {
        format!("{workers} on {}", number(servers, "CPU"))
    };
    let queue = match discipline.sharing {
        Sharing::Shared => ", one queue for all",
        Sharing::Assigned if observed.workers.len() > 1 => ", a queue for each worker",
        Sharing::Assigned => "",
    };
    let order = match discipline.order {
        Order::Arrival => "first come first served (by T2)",
        Order::ByWorker => "workers in turn, each serving all it has",
        Order::Batches => "all waiting requests are read, then answered",
        Order::AsMeasured => "in the order in which they were served",
        Order::AsMeasuredPreemptive => "in the order in which they were served, with preemption",
    };
    let mut kinds: Vec<Cause> = observed
        .by_source()
        .iter()
        .zip(&observed.sources)
        .filter(|(time, _)| **time > 0)
        .map(|(_, source)| source.cause)
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let vacations = match kinds.len() {
        0 => "never interrupted".to_owned(),
        _ => {
            let labels: Vec<&str> = kinds.iter().map(|cause| cause.label()).collect();
            format!("interrupted by: {}", labels.join(", "))
        }
    };
    format!("{place}{queue}, {order}; {vacations}")
}

#[cfg(test)]
mod tests {
    use super::super::agreement::observed;
    use super::*;

    /// Requests that took a tenth longer than their work, by this many workers.
    fn off_by_a_tenth(workers: usize) -> ModelFit {
        let jobs: Vec<_> = (0..100)
            .map(|i| (1_000, 100, 0, i % workers as u16))
            .collect();
        let mut observed = observed(&jobs, &vec![vec![]; workers]);
        observed
            .requests
            .iter_mut()
            .for_each(|job| job.measured_ns = 110);
        fit(&observed, &[0.5, 0.9]).unwrap().fit
    }

    #[test]
    fn one_worker_must_be_reproduced_more_exactly_than_several() {
        let (one, two) = (off_by_a_tenth(1), off_by_a_tenth(2));
        assert!(
            (one.largest_error - 1.0 / 11.0).abs() < 1e-9 && one.largest_error == two.largest_error
        );
        assert_eq!((one.good, two.good), (false, true));
        assert!(one.bears(0.5) && two.bears(0.5), "the interval is wider");
    }
}
