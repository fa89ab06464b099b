//! No forecast beats the ideal, and an ideal that the server beat is none.

use proptest::prelude::*;
use taillab_analysis::{Analysed, AnalysisOptions};
use taillab_model::Nanos;
use taillab_model::summary::Withdrawn;

use super::kernel::{Plan, What};
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
