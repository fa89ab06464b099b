use super::*;
use crate::replay::Sharing;
use crate::replay::agreement::{change, departures, observed};
use crate::statistics::distribution_of;

/// The forecasts for requests of 100 ns.
fn predicted(observed: &Observed) -> Predicted {
    let measured = observed.requests.iter();
    let measured: Vec<Nanos> = measured.map(|job| Nanos::new(job.measured_ns)).collect();
    let basis = Basis {
        sojourn: &distribution_of(&measured),
        causes: &[],
        service_time: Nanos::new(100),
        process: None,
    };
    predict(observed, &basis)
}

/// Another thread takes the CPU at times. Of the requests that it delays most, one in seven took longer than
/// that explains.
#[test]
fn a_percentile_that_the_replay_misses_leaves_the_others_their_forecasts() {
    let jobs = vec![(1_000, 100, 0, 0); 20_000];
    let away = vec![(50_000, 5_000, 0); 300];
    let mut observed = observed(&jobs, &[away]);
    let unchanged = change(&observed, Sharing::Assigned, Order::Arrival);
    let done = departures(&observed, &unchanged);
    let mut delayed = 0;
    for (job, done) in observed.requests.iter_mut().zip(done) {
        job.measured_ns = done - job.arrival_ns;
        if job.measured_ns > 5_000 {
            delayed += 1;
            job.measured_ns *= if delayed % 7 == 0 { 2 } else { 1 };
        }
    }
    let predicted = predicted(&observed);
    let fit = predicted.model_fit.unwrap();
    assert!(!fit.good && fit.bears(0.5) && fit.bears(0.99), "{fit:?}");
    let mut forecasts = predicted.predictions.iter();
    let without = forecasts.find(|it| it.change == "without background");
    let points = &without.unwrap().points;
    let quantiles: Vec<f64> = points.iter().map(|point| point.q).collect();
    assert_eq!(quantiles, [0.5, 0.99], "{points:?}");
    let says = "no forecasts of p99.9: the replayed queue misses it by ";
    let limits = &predicted.limits;
    assert!(
        limits.iter().any(|limit| limit.starts_with(says)),
        "{limits:?}"
    );
}

/// A queue that another thread disturbs at times, as it is measured and replayed, in 32 blocks of time.
fn disturbed() -> Observed {
    let jobs = vec![(1_000, 100, 0, 0); 20_000];
    let away = vec![(50_000, 5_000, 0); 300];
    let mut observed = observed(&jobs, &[away]);
    let unchanged = change(&observed, Sharing::Assigned, Order::Arrival);
    let done = departures(&observed, &unchanged);
    for (place, (job, done)) in observed.requests.iter_mut().zip(done).enumerate() {
        job.measured_ns = done - job.arrival_ns;
        job.block = (place / 625) as u8;
    }
    observed.blocks = 32;
    observed
}

/// The replay misses all percentiles by a tenth: forecasts remain, with an interval that allows for it.
#[test]
fn a_replay_that_is_a_little_off_has_wider_intervals() {
    let mut observed = disturbed();
    for job in &mut observed.requests {
        job.measured_ns = job.measured_ns * 10 / 9;
    }
    let predicted = predicted(&observed);
    let fit = predicted.model_fit.unwrap();
    assert!(!fit.good && fit.largest_error > 0.09, "{fit:?}");
    let mut forecasts = predicted.predictions.iter();
    let without = forecasts.find(|it| it.change == "without background");
    let p99 = without.unwrap().points[1];
    let hi = p99.hi_ns.unwrap().get() as f64;
    assert!(hi >= 1.09 * p99.predicted_ns.get() as f64, "{p99:?}");
}

#[test]
fn a_command_names_the_process_that_still_runs() {
    let apply = "sudo taillab tune apply rt-priority -p 4711";
    assert_eq!(command("rt-priority", Some(4_711)), apply);
    assert_eq!(
        command("rt-priority", None),
        "taillab tune plan rt-priority"
    );
}

/// Where the part that is replayed is a little slower than the whole, all that p99 has left without a cause may be what
/// the part has too much of. What p50 exceeds, p99 exceeds all the same.
#[test]
fn the_lower_end_of_a_percentile_is_not_below_that_of_a_lower_one() {
    let observed = disturbed();
    let whole = observed.requests.iter().map(|job| match job.measured_ns {
        // not in the part that is replayed
        long @ 1_000.. => Nanos::new(long * 9 / 10),
        short => Nanos::new(short),
    });
    let basis = Basis {
        sojourn: &distribution_of(&whole.collect::<Vec<_>>()),
        causes: &[],
        service_time: Nanos::new(100),
        process: None,
    };
    let predicted = predict(&observed, &basis);
    let mut forecasts = predicted.predictions.iter();
    let without = forecasts.find(|it| it.change == "without background");
    let lows: Vec<Nanos> = without
        .unwrap()
        .points
        .iter()
        .filter_map(|p| p.lo_ns)
        .collect();
    assert!(
        lows.len() > 1 && lows[0] > Nanos::ZERO && lows.is_sorted(),
        "{lows:?}"
    );
}
