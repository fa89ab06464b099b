//! No forecast beats the ideal, and an ideal that the server beat is none.

use proptest::prelude::*;
use taillab_analysis::{Analysed, AnalysisOptions};
use taillab_model::summary::Withdrawn;
use taillab_model::{Distribution, Nanos};

use super::kernel::{Plan, Trouble, What};
use super::parts::{analysed, whole};

fn with_service_time(plan: &Plan, t_ns: u64) -> Analysed {
    let options = AnalysisOptions {
        service_time: Nanos::new(t_ns),
        ..super::options(plan)
    };
    analysed(vec![whole(&plan.run().events, plan)], plan, options)
}

/// What holds whatever t is.
fn check(found: &Analysed) -> Result<(), TestCaseError> {
    let server = &found.server;
    let ideal = &server.ideal.sojourn;
    let explanation = server.explanation.as_ref().expect("CPUs were watched");
    if server.ideal.withdrawn.is_some() {
        prop_assert!(ideal.quantiles.iter().all(|q| q.value.is_none()));
        prop_assert!(server.excess.quantiles.iter().all(|q| q.value.is_none()));
        prop_assert!(server.causes.is_empty() && server.predictions.is_empty());
        prop_assert!(explanation.bands.is_empty() && explanation.curves.is_empty());
        prop_assert!(found.ideal_ccdf.is_empty());
        prop_assert!(
            explanation
                .slowest
                .iter()
                .all(|slow| slow.ideal_ns.is_none())
        );
        for finding in &explanation.findings {
            prop_assert!(
                !finding.text.contains("within a factor"),
                "{}",
                finding.text
            );
            prop_assert!(!finding.text.contains("of the excess"), "{}", finding.text);
        }
        return Ok(());
    }
    for prediction in &server.predictions {
        for point in &prediction.points {
            let known = ideal.quantiles.iter().find(|known| known.q == point.q);
            let lo = known.and_then(|known| known.lo).unwrap_or_default();
            let hi = point.hi_ns.unwrap_or(point.predicted_ns);
            prop_assert!(
                hi >= lo,
                "{} beats {lo}: {prediction:?}",
                point.predicted_ns
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn no_forecast_beats_the_ideal(
        seed in 0_u64..1_000,
        gap in 30_000_u64..80_000,
        per_mille_of_t in 500_u64..3_000,
        every in 500_000_u64..5_000_000,
        length in 50_000_u64..400_000,
    ) {
        let plan = Plan {
            seed,
            requests: 8_000,
            gaps: vec![gap as f64],
            disturbances: vec![(What::Thread, every, length)],
            ..Plan::default()
        };
        let t_ns = plan.service_time().get() * per_mille_of_t / 1_000;
        check(&with_service_time(&plan, t_ns))?;
    }
}

/// With the true t the server is compared; with one twice as long it would be slower than itself.
#[test]
fn an_ideal_that_the_server_beat_is_withdrawn() {
    let plan = Plan {
        requests: 8_000,
        disturbances: vec![(What::Thread, 2_000_000, 200_000)],
        ..Plan::default()
    };
    let t_ns = plan.service_time().get();
    let true_t = with_service_time(&plan, t_ns);
    assert_eq!(true_t.server.ideal.withdrawn, None);
    assert!(!true_t.server.predictions.is_empty());
    check(&true_t).unwrap();
    let too_long = with_service_time(&plan, 2 * t_ns);
    let withdrawn = too_long.server.ideal.withdrawn;
    assert!(
        matches!(withdrawn, Some(Withdrawn::IdealAboveMeasured { .. })),
        "{withdrawn:?}"
    );
    check(&too_long).unwrap();
    // the verdict says it, and no finding speaks of an excess
    let explanation = too_long.server.explanation.as_ref().unwrap();
    for finding in &explanation.findings {
        assert!(!finding.text.contains("excess"), "{}", finding.text);
    }
}

/// Every 50th request takes 34 times as long as the others, and nothing disturbs the server: with one t for all
/// of them the server seems to be far from the ideal; with each request's own work, it is the ideal.
#[test]
fn requests_with_different_work_are_compared_with_their_own() {
    let plan = Plan {
        requests: 20_000,
        trouble: Some((50, Trouble::Slow(400_000))),
        gaps: vec![80_000.0],
        ..Plan::default()
    };
    let found = with_service_time(&plan, plan.service_time().get()).server;
    let own_work = found.ideal.own_work.as_ref().expect("all were seen");
    assert!(own_work.cv > 1.5 && own_work.is_base, "{}", own_work.cv);
    let ratio = |ideal: &Distribution| {
        let at = |of: &Distribution| of.quantile(0.99).unwrap().as_secs_f64();
        at(&found.measured.sojourn) / at(ideal)
    };
    let (constant, own) = (ratio(&found.ideal.sojourn), ratio(found.ideal.base()));
    assert!(constant > 3.0, "{constant}");
    assert!(
        (0.9..1.3).contains(&own),
        "{own} with own work, {constant} with t"
    );

    // of requests that are alike, both are about the same
    let found = with_service_time(&Plan::default(), Plan::default().service_time().get()).server;
    let own_work = found.ideal.own_work.as_ref().expect("all were seen");
    assert!(own_work.cv < 0.5 && !own_work.is_base, "{}", own_work.cv);
    let at = |of: &Distribution| of.quantile(0.99).unwrap().as_secs_f64();
    let ratio = at(&own_work.sojourn) / at(&found.ideal.sojourn);
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}
