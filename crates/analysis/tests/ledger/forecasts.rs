//! What a forecast says of a simulated kernel, against what that does without the disturbance.

use taillab_analysis::predict::{Basis, Predicted, predict};
use taillab_analysis::replay::{Cores, Observed};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Distribution, Monotonic, Nanos, RecordingContext};

use super::kernel::{Plan, Truth, What};

fn sojourns(truth: &[Truth]) -> Distribution {
    let sojourns = truth
        .iter()
        .map(|request| Nanos::new(request.t6 - request.t1));
    distribution_of(&sojourns.collect::<Vec<_>>())
}

fn at(of: &Distribution, q: f64) -> f64 {
    let known = of.quantiles.iter().find(|known| known.q == q);
    known.unwrap().value.unwrap().get() as f64
}

/// The measured sojourns of a plan, and what is forecast of them where the recording has this context.
fn forecast(plan: &Plan, context: &RecordingContext) -> (Distribution, Predicted) {
    let sojourn = sojourns(&plan.run().truth);
    let predicted = forecast_of(plan, context, &sojourn);
    (sojourn, predicted)
}

/// What is forecast of a plan whose requests had these sojourns.
fn forecast_of(plan: &Plan, context: &RecordingContext, sojourn: &Distribution) -> Predicted {
    let traffic = plan.run();
    let timeline = Timeline::build(traffic.events.iter().copied(), context);
    let matched = match_events(traffic.events.iter().copied(), &MatchOptions::default());
    let cores = Cores::new(&timeline, context);
    let from = Monotonic::from_nanos_since_boot(0);
    let observed = Observed::build(&matched, &cores, context, from);
    let basis = Basis {
        sojourn,
        causes: &[],
        service_time: plan.service_time(),
        process: None,
    };
    predict(&observed, &basis)
}

/// The forecast without what is injected is what the same requests take without it.
fn comes_true(plan: &Plan, change: &str) {
    let (sojourn, predicted) = forecast(plan, &plan.context());
    let mut forecasts = predicted.predictions.iter();
    let found = forecasts.find(|forecast| forecast.change == change);
    let points = &found.unwrap_or_else(|| panic!("{predicted:#?}")).points;
    let calm = sojourns(&plan.without_disturbances().run().truth);
    assert!(at(&sojourn, 0.99) > 1.5 * at(&calm, 0.99), "it disturbs");
    for point in points {
        let ratio = point.predicted_ns.get() as f64 / at(&calm, point.q);
        assert!(
            (0.97..1.03).contains(&ratio),
            "{change} p{}: {ratio}",
            point.q * 100.0
        );
    }
    assert!(points.len() >= 2, "{points:?}");
}

/// A server that needs its CPU for more than half of the time, as the benchmark of causes has it.
fn busy(what: What, real_time: bool) -> Plan {
    Plan {
        gaps: vec![545_000.0],
        service: 300_000,
        requests: 30_000,
        disturbances: vec![(what, 150_000_000, 11_000_000)],
        real_time,
        ..Plan::default()
    }
}

#[test]
fn without_a_quota_it_is_as_it_then_is() {
    comes_true(&busy(What::HeldBack, true), "without throttled");
    comes_true(
        &busy(What::HeldBackInACrowd(true), false),
        "without throttled",
    );
    comes_true(&busy(What::HeldBackInACrowd(true), false), "cpu-quota");
    comes_true(&busy(What::HeldBack, true), "rt-runtime");
}

/// A quota holds back ordinary threads only, and the limit of real-time threads these only.
#[test]
fn what_holds_back_threads_of_another_policy_is_no_way_out() {
    let sorted = |plan: &Plan, context: &RecordingContext| -> Vec<String> {
        let all = forecast(plan, context).1.predictions.into_iter();
        let mut named: Vec<String> = all
            .map(|prediction| prediction.change)
            .filter(|name| {
                let of_interest = ["without throttled", "cpu-quota", "rt-runtime"];
                of_interest.contains(&name.as_str())
            })
            .collect();
        named.sort();
        named
    };
    let quota = busy(What::HeldBackInACrowd(true), false);
    assert_eq!(
        sorted(&quota, &quota.context()),
        ["cpu-quota", "without throttled"]
    );
    let limit = busy(What::HeldBack, true);
    assert_eq!(
        sorted(&limit, &limit.context()),
        ["rt-runtime", "without throttled"]
    );
    // a recording that has no policies says nothing of what held the server back
    let mut unknown = quota.context();
    for thread in &mut unknown.threads {
        thread.real_time = None;
    }
    assert_eq!(sorted(&quota, &unknown), ["without throttled"]);
}

/// A percentile that the replayed part does not have cannot be forecast from it.
#[test]
fn what_the_replayed_part_lacks_has_no_forecast() {
    let plan = busy(What::Thread, false);
    let (measured, whole) = forecast(&plan, &plan.context());
    let mut all = measured.clone();
    let p99 = all.quantiles.iter_mut().find(|known| known.q == 0.99);
    let p99 = p99.unwrap().value.as_mut().unwrap();
    *p99 = Nanos::new(p99.get() * 3);
    let part = forecast_of(&plan, &plan.context(), &all);
    let quantiles = |predicted: &Predicted| -> Vec<f64> {
        let mut forecasts = predicted.predictions.iter();
        let found = forecasts.find(|forecast| forecast.change == "without background");
        found.unwrap().points.iter().map(|point| point.q).collect()
    };
    assert_eq!(quantiles(&whole), [0.5, 0.99, 0.999]);
    assert_eq!(quantiles(&part), [0.5, 0.999]);
    let says =
        "no forecasts of p99: in the requests that are replayed, it is 67 % lower than in all";
    assert!(
        part.limits.iter().any(|limit| limit == says),
        "{:?}",
        part.limits
    );
    assert!(
        !whole
            .limits
            .iter()
            .any(|limit| limit.contains("no forecasts")),
        "{:?}",
        whole.limits
    );
}

#[test]
fn at_the_usual_speed_of_its_cpu_it_is_as_it_then_is() {
    let plan = Plan {
        gaps: vec![30_000.0],
        slow_cpu: Some((400_000_000, 800_000_000, 1.5)),
        requests: 60_000,
        ..Plan::default()
    };
    comes_true(&plan, "without slow_cpu");
}

#[test]
fn without_another_program_it_is_as_it_then_is() {
    comes_true(&busy(What::Thread, false), "without background");
}
