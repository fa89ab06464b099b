//! What the reader of a forecast should know about the replay.

use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use crate::replay::Observed;

/// Of so many requests, some find a CPU idle, unless other programs keep it awake.
const MANY_REQUESTS: usize = 10_000;

/// From fewer wake-ups of an idle CPU it is not known what one costs.
const FEW_WAKES: usize = 30;

/// The limits of a replay of this queue.
pub(super) fn limits(observed: &Observed) -> Vec<String> {
    let mut limits = Vec::new();
    let (replayed, measured) = (observed.replayed() as u64, observed.measured_requests);
    if replayed < measured {
        let which = match observed.in_slices {
            true => "those of the slices".to_owned(),
            false => "the first part of each of many equal stretches of time".to_owned(),
        };
        limits.push(format!(
            "{replayed} of {measured} requests are replayed: {which}"
        ));
    }
    // of the requests that are replayed: of the others it is not counted
    let all = observed.requests.len().max(1) as f64;
    let unknown = 100.0 * observed.without_worker as f64 / all;
    if unknown > 1.0 {
        limits.push(format!(
            "the worker of {unknown:.1} % of the requests is not known: the replay assumes the \
             usual work for them"
        ));
    }
    let is_never_idle =
        observed.requests.len() >= MANY_REQUESTS && observed.wakes_ns.len() < FEW_WAKES;
    if is_never_idle && observed.shows(Cause::Background) {
        limits.push(
            "the server's CPUs were hardly ever idle, so what it costs to wake them is not known: forecasts \
             without other threads leave it out, which matters most at p50"
                .to_owned(),
        );
    }
    if let Some(each_ns) = observed.receives_response_ns() {
        limits.push(format!(
            "the CPU that sends a response also receives it for the client, {} each: forecasts without softirqs \
             keep that, as both ends of the network are on this machine",
            Nanos::new(each_ns)
        ));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::agreement::observed;

    #[test]
    fn what_nobody_saw_is_left_out_and_said() {
        let job = (1_000, 100, 0, 0);
        let mut observed = observed(&vec![job; 10_000], &[vec![(50_000, 5_000, 0); 30]]);
        let says = |observed: &Observed| {
            let mut limits = limits(observed).into_iter();
            limits.any(|limit| limit.contains("hardly ever idle"))
        };
        assert!(says(&observed));
        observed.wakes_ns = vec![(20_000, 0); 100];
        assert!(!says(&observed));
        observed.wakes_ns.clear();
        observed.requests.truncate(1_000);
        assert!(!says(&observed));
    }

    #[test]
    fn the_requests_of_slices_are_not_called_stretches_of_time() {
        let mut observed = Observed {
            measured_requests: 10,
            ..Observed::default()
        };
        let stretches = "the first part of each of many equal stretches of time";
        assert!(limits(&observed)[0].ends_with(stretches));
        observed.in_slices = true;
        assert!(limits(&observed)[0].ends_with("are replayed: those of the slices"));
    }
}
