//! What a forecast says of a simulated kernel, against what that does without the disturbance.

use taillab_analysis::predict::{Basis, Predicted, predict};
use taillab_analysis::replay::{Cores, Observed};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::explanation::PredictedPoint;
use taillab_model::{Distribution, Monotonic, Nanos, RecordingContext};

use proptest::prelude::*;

use super::kernel::{IPI, Plan, RECEIVE, Truth, What};

pub(super) fn sojourns(truth: &[Truth]) -> Distribution {
    let sojourns = truth
        .iter()
        .map(|request| Nanos::new(request.t6 - request.t1));
    distribution_of(&sojourns.collect::<Vec<_>>())
}

pub(super) fn at(of: &Distribution, q: f64) -> f64 {
    supported(of, q).unwrap()
}

/// The quantile, if the sample supports it.
fn supported(of: &Distribution, q: f64) -> Option<f64> {
    Some(of.quantile(q)?.get() as f64)
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

/// The measured sojourns of a plan, with one percentile `times` as long: those of a whole of which the plan
/// is the part that is replayed.
fn whole_with(measured: &Distribution, q: f64, times: f64) -> Distribution {
    let mut all = measured.clone();
    let known = all.quantiles.iter_mut().find(|known| known.q == q);
    let value = known.unwrap().value.as_mut().unwrap();
    *value = Nanos::new((value.get() as f64 * times) as u64);
    all
}

fn point(predicted: &Predicted, change: &str, q: f64) -> PredictedPoint {
    let mut forecasts = predicted.predictions.iter();
    let found = forecasts
        .find(|forecast| forecast.change == change)
        .unwrap();
    *found.points.iter().find(|point| point.q == q).unwrap()
}

/// What the part has not may go with a change or stay.
#[test]
fn what_the_replayed_part_lacks_makes_the_interval_wide() {
    let plan = busy(What::Thread, false);
    let (measured, of_itself) = forecast(&plan, &plan.context());
    let all = whole_with(&measured, 0.99, 3.0);
    let of_all = forecast_of(&plan, &plan.context(), &all);
    let change = "without background";
    let [own, wide] = [&of_itself, &of_all].map(|from| point(from, change, 0.99));
    let ratio = |of: &PredictedPoint| of.predicted_ns.get() as f64 / of.measured_ns.get() as f64;
    assert!(ratio(&own) < 0.7, "{own:?}");
    assert!(
        (ratio(&own) - ratio(&wide)).abs() < 1e-3,
        "{own:?} {wide:?}"
    );
    let (lo, hi) = wide.lo_ns.zip(wide.hi_ns).unwrap();
    // two thirds are not in the part
    assert!(
        hi.get() as f64 >= wide.measured_ns.get() as f64 * 2.0 / 3.0,
        "{wide:?}"
    );
    assert!(lo <= own.predicted_ns, "{own:?} {wide:?}");
    assert_eq!(point(&of_itself, change, 0.5), point(&of_all, change, 0.5));
    let says = "forecasts of p99 have wide intervals: in the requests that are replayed, it is 67 % \
                lower than in all";
    let limits = &of_all.limits;
    assert!(limits.iter().any(|limit| limit == says), "{limits:?}");
    assert!(!of_itself.limits.iter().any(|limit| limit == says));
}

/// A part that is slower than the whole says by how much a change helps, not that it makes things worse.
#[test]
fn no_forecast_is_above_what_was_measured_because_the_part_is_slower() {
    let plan = busy(What::Thread, false);
    let (measured, _) = forecast(&plan, &plan.context());
    let all = whole_with(&measured, 0.5, 0.6);
    let predicted = forecast_of(&plan, &plan.context(), &all);
    assert!(predicted.predictions.len() > 3, "{predicted:?}");
    for forecast in &predicted.predictions {
        let p50 = forecast.points.iter().find(|point| point.q == 0.5);
        let p50 = p50.unwrap_or_else(|| panic!("{forecast:?}"));
        assert!(p50.predicted_ns <= p50.measured_ns, "{forecast:?}");
    }
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

/// The ideal queue of these arrivals, with this t, of which the part `after` comes after the response.
fn ideal(truth: &[Truth], service_time: u64, after: u64) -> Distribution {
    let mut free = 0;
    let sojourns = truth.iter().map(|request| {
        free = request.t1.max(free) + service_time;
        Nanos::new(free - after - request.t1)
    });
    distribution_of(&sojourns.collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A client that is held up sends what was due in a bunch, of which each request waits for many others: then it
    /// decides everything how much of t goes with the receive softirq. What the server's CPU does for the other end
    /// of the network stays.
    #[test]
    fn requests_in_bunches_that_are_received_elsewhere_are_as_they_then_are(
        seed in 1_u64..1_000,
        service in 6_000_u64..9_000,
        response in prop_oneof![Just(0), 2_000_u64..6_000],
        load in 0.5_f64..0.85,
        (every, length) in (4_000_000_u64..9_000_000, 1_000_000_u64..4_000_000),
    ) {
        let plan = Plan {
            seed,
            service,
            response,
            gaps: vec![(service + response + RECEIVE + IPI) as f64 / load],
            client_held_up: Some((every, length)),
            ..Plan::default()
        };
        let traffic = plan.run();
        let (measured, predicted) = forecast(&plan, &plan.context());
        let elsewhere = Plan { receives_elsewhere: true, ..plan.clone() };
        let real = sojourns(&elsewhere.run().truth);
        let bound = ideal(&traffic.truth, elsewhere.service_time().get(), response);
        let mut forecasts = predicted.predictions.iter();
        let forecast = forecasts.find(|forecast| forecast.change == "softirq-cpu");
        // where softirqs have little of the excess, there is none
        prop_assume!(forecast.is_some());
        for point in forecast.iter().flat_map(|forecast| &forecast.points) {
            let predicted = point.predicted_ns.get() as f64;
            let all = [&real, &bound, &measured].map(|of| supported(of, point.q));
            // of other arrivals, the sample may support less
            let [Some(real), Some(bound), Some(measured)] = all else {
                prop_assert!(point.q > 0.5);
                continue;
            };
            // the interrupt of each packet stays in the forecast, and goes with the change
            let most = real + (measured - real) * 0.5;
            prop_assert!(
                (real * 0.95..=most * 1.05).contains(&predicted) && predicted >= bound * 0.95,
                "p{}: {predicted}, was {real} of {measured}, ideal {bound}", point.q * 100.0
            );
        }
    }
}
