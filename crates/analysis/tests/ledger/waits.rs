//! Who has the CPU while a worker waits for it, and is not to blame for that.

use taillab_model::explanation::Cause;
use taillab_model::{Nanos, Quantile};

use super::kernel::{Plan, Trouble, What};
use super::parts::{analysed, whole};
use super::{Charged, explained};

/// Every fifth of requests that come one at a time waits for the disk, and another thread fills the
/// CPU: 13 µs after it was woken an interrupt comes, and the other thread goes after `kept`.
fn charged(real_time: bool, kept: u64) -> (u64, Charged) {
    let (length, way) = (100_000, 13_000);
    let plan = Plan {
        requests: 100,
        gaps: vec![400_000_000.0],
        trouble: Some((5, Trouble::Fault { length, way, kept })),
        real_time,
        ..Plan::default()
    };
    let found = explained(&plan, &plan.run().events);
    assert_eq!(found.matched.requests.len(), 100);
    (20, found.charged)
}

#[test]
fn the_way_of_a_wake_up_is_charged_to_what_was_waited_for() {
    for real_time in [true, false] {
        let (times, charged) = charged(real_time, 1_500);
        let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0);
        // asleep, the way, its interrupt and the switch: to the nanosecond that shares are rounded to
        let all = times * (100_000 + 13_000 + 500 + 1_500);
        let off = of(Cause::BlockedFault).abs_diff(all);
        assert!(off <= times, "{charged:?}");
        assert_eq!(of(Cause::Background), 0);
        assert_eq!(of(Cause::Irq), 0);
    }
}

#[test]
fn a_thread_that_keeps_the_cpu_though_it_was_told_is_to_blame_from_then_on() {
    let (times, charged) = charged(true, 300_000);
    let of = |cause| charged.causes.get(&cause).copied().unwrap_or(0);
    let off = |cause, ns: u64| of(cause).abs_diff(times * ns);
    assert!(off(Cause::BlockedFault, 100_000 + 13_000 + 500) <= times);
    assert!(off(Cause::Background, 300_000) <= times, "{charged:?}");
}

/// The ledger charges all that runs while a server is held back to what holds it back: its forecast
/// takes the same away.
#[test]
fn a_forecast_without_throttling_takes_away_what_others_did_meanwhile() {
    let plan = Plan {
        requests: 40_000,
        disturbances: vec![(What::HeldBackInACrowd(true), 60_000_000, 5_000_000)],
        ..Plan::default()
    };
    let of = |plan: &Plan| {
        analysed(
            vec![whole(&plan.run().events, plan)],
            plan,
            super::options(plan),
        )
        .server
    };
    let with = of(&plan);
    let calm = of(&plan.without_disturbances());
    let known = |quantiles: &[Quantile], q: f64| -> Option<Nanos> {
        quantiles.iter().find(|it| it.q == q)?.value
    };
    let forecast = with
        .predictions
        .iter()
        .find(|it| it.change == "without throttled");
    let forecast = forecast.expect("a forecast");
    let mut compared = 0;
    for point in forecast.points.iter().filter(|point| point.q >= 0.99) {
        let Some(measured) = known(&calm.measured.sojourn.quantiles, point.q) else {
            continue;
        };
        let ratio = point.predicted_ns.get() as f64 / measured.get() as f64;
        assert!(
            (0.8..1.2).contains(&ratio),
            "p{}: {ratio} {forecast:?}",
            100.0 * point.q
        );
        compared += 1;
    }
    assert!(compared > 0, "{forecast:?}");
}
