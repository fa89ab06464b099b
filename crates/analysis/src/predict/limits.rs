//! What the reader of a forecast should know about the replay.

use taillab_model::Nanos;

use crate::replay::Observed;

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
