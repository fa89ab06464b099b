//! A recording in many windows gives what it gives as one.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use proptest::prelude::*;
use taillab_analysis::ledger::{Attribution, Baseline, CulpritId, LedgerOptions, SharedQueues};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysed, Analysis, AnalysisOptions, MatchOptions, Window, Windows, match_events,
};
use taillab_model::explanation::{Cause, CauseShare, Explanation};
use taillab_model::{
    Distribution, Event, HISTOGRAM_ERROR, Monotonic, Nanos, RecordingContext, Tid,
};

use super::crew::Crew;
use super::kernel::{Plan, Trouble, What};

/// Everything that is charged to one request.
#[derive(Debug, PartialEq, Eq)]
struct Charged {
    t1: Monotonic,
    worker: Tid,
    /// Sojourn, ideal, ideal of its own worker.
    lengths: [u64; 3],
    parts: Vec<(Cause, CulpritId, u64)>,
    excess: Vec<(Cause, CulpritId, u64)>,
    overtaken_by: Option<Tid>,
    pieces: u64,
}

/// What was not answered does not hold a part up for long.
fn options() -> MatchOptions {
    MatchOptions {
        stale_after: Nanos::from_millis(300),
        ..MatchOptions::default()
    }
}

pub(super) fn whole(events: &[Event], plan: &Plan) -> Window {
    whole_in(&plan.context(), events)
}

fn whole_in(context: &RecordingContext, events: &[Event]) -> Window {
    Window::whole(
        match_events(events.iter().copied(), &options()),
        Timeline::build(events.iter().copied(), context),
    )
}

fn parts(events: &[Event], plan: &Plan, requests: usize) -> Vec<Window> {
    parts_in(&plan.context(), events, requests)
}

fn parts_in(context: &RecordingContext, events: &[Event], requests: usize) -> Vec<Window> {
    let mut parts = Windows::new(options(), context, requests);
    let mut found: Vec<Window> = events
        .iter()
        .filter_map(|event| parts.observe(event))
        .collect();
    found.push(parts.finish(0));
    found
}

/// The accounts by the requests' places, and time in service by worker.
fn accounts(
    parts: &[Window],
    context: &RecordingContext,
    (service_time, workers): (Nanos, usize),
    one: &Window,
) -> Accounts {
    let options = LedgerOptions {
        service_time,
        after_response: Nanos::ZERO,
        workers: NonZeroU32::new(workers as u32).expect("there is a CPU"),
        measure_from: Monotonic::from_nanos_since_boot(0),
        queues: SharedQueues::of(&one.matched),
    };
    let usual = Baseline::of(&one.matched, &one.timeline, service_time, None);
    let mut follower = Attribution::new(context, &options, usual);
    follower.trace_from(Nanos::from_micros(400));
    let mut found = BTreeMap::new();
    for part in parts {
        follower.follow(&part.matched, &part.timeline, part.upto, |entry, labels| {
            let named = |parts: &[(u32, u64)]| {
                let named = parts.iter();
                let mut named: Vec<_> = named
                    .map(|&(label, ns)| (labels.cause(label), labels.who(label), ns))
                    .collect();
                named.sort_unstable();
                named
            };
            let account = Charged {
                t1: entry.stamps.t1,
                worker: entry.worker,
                lengths: [entry.sojourn_ns, entry.ideal_ns, entry.own_queue_ideal_ns],
                parts: named(entry.parts),
                excess: named(entry.excess),
                overtaken_by: entry.overtaken_by,
                pieces: entry.pieces.iter().map(|piece| piece.lasted_ns).sum(),
            };
            assert!(found.insert(entry.place, account).is_none(), "given twice");
        });
    }
    (found, follower.finish().served_ns)
}

type Accounts = (BTreeMap<usize, Charged>, Vec<(Tid, u64)>);

fn same_accounts(
    (charged, served): Accounts,
    (truth, truly_served): Accounts,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(charged.len(), truth.len());
    for (place, account) in &truth {
        prop_assert_eq!(charged.get(place), Some(account), "request {}", place);
    }
    prop_assert_eq!(served, truly_served);
    Ok(())
}

/// What the plan emits, without one event in so many.
fn with_losses(plan: &Plan, one_in: u64) -> Vec<Event> {
    let mut state = plan.seed;
    let mut events = plan.run().events;
    events.retain(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        !(state >> 33).is_multiple_of(one_in)
    });
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn many_parts_charge_what_one_does(
        seed in 0_u64..1_000,
        one_in in prop::sample::select(vec![300_u64, 5_000, 1_000_000]),
        requests in 200_usize..3_000,
        two in any::<bool>(),
        trouble in prop::option::of(Just((300, Trouble::Sleep {
            call: Some(202), uninterruptible: false, length: 400_000,
        }))),
    ) {
        let plan = Plan {
            seed,
            requests: 12_000,
            gaps: if two { vec![160_000.0, 190_000.0] } else { vec![120_000.0] },
            service: 60_000,
            disturbances: vec![(What::Thread, 60_000_000, 3_000_000)],
            trouble,
            ..Plan::default()
        };
        let events = with_losses(&plan, one_in);
        let one = whole(&events, &plan);
        let many = parts(&events, &plan, requests);
        prop_assert!(many.len() > 1, "only one part of {requests}");
        let count = |parts: &[Window]| {
            let of = parts.iter().map(|part| &part.matched);
            of.fold([0; 4], |sum, matched| [
                sum[0] + matched.requests.len(),
                sum[1] + matched.unmatched.len(),
                sum[2] + matched.ambiguous.len(),
                sum[3] + matched.without_request.len(),
            ])
        };
        prop_assert_eq!(count(&many), count(std::slice::from_ref(&one)));
        let server = (plan.service_time(), plan.gaps.len());
        let found = accounts(&many, &plan.context(), server, &one);
        same_accounts(found, accounts(std::slice::from_ref(&one), &plan.context(), server, &one))?;
    }

    #[test]
    fn many_parts_charge_a_shared_queue_what_one_does(
        seed in 0_u64..1_000,
        requests in 200_usize..3_000,
        cpus in 2_usize..5,
        per_cpu in 1_usize..3,
        slow in prop::option::of(Just((300, 900_000))),
    ) {
        parts_of_a_crew_are_alike(&crew(seed, (cpus, per_cpu), slow), requests)?;
    }
}

/// Workers of one queue beside another thread.
fn crew(seed: u64, (cpus, per_cpu): (usize, usize), slow: Option<(usize, u64)>) -> Crew {
    Crew {
        seed,
        requests: 12_000,
        workers: cpus * per_cpu,
        cpus,
        service: 150_000,
        disturbances: vec![(What::Thread, 60_000_000, 6_000_000)],
        slow,
        ..Crew::default()
    }
}

fn parts_of_a_crew_are_alike(crew: &Crew, requests: usize) -> Result<(), TestCaseError> {
    let (events, context) = (crew.run().events, crew.context());
    let one = whole_in(&context, &events);
    let many = parts_in(&context, &events, requests);
    prop_assert!(many.len() > 1, "only one part of {requests}");
    let server = (crew.service_time(), crew.cpus);
    let found = accounts(&many, &context, server, &one);
    let truth = accounts(std::slice::from_ref(&one), &context, server, &one);
    same_accounts(found, truth)
}

/// A worker whose first request came in the second part could have taken requests in the first.
#[test]
fn a_worker_without_a_request_in_the_first_part_counts_there() {
    for seed in 190..195 {
        let crew = crew(seed, (4, 2), Some((300, 900_000)));
        parts_of_a_crew_are_alike(&crew, 200).unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

pub(super) fn analysed(windows: Vec<Window>, plan: &Plan, options: AnalysisOptions) -> Analysed {
    let context = plan.context();
    let mut analysis = Analysis::new(&context, options);
    for window in windows {
        let window = Arc::new(window);
        let ideal = analysis.push(&window, |_, _| {});
        assert_eq!(ideal.len(), window.matched.requests.len());
    }
    analysis.finish(0).expect("there are requests").unjudged()
}

/// Counts, means and extremes are equal, quantiles nearly.
fn assert_same(found: &Distribution, exact: &Distribution) {
    assert_eq!((found.count, found.mean), (exact.count, exact.mean));
    assert_eq!((found.min, found.max), (exact.min, exact.max));
    assert_eq!(found.quantiles.len(), exact.quantiles.len());
    for (found, exact) in found.quantiles.iter().zip(&exact.quantiles) {
        assert_eq!(found.value.is_some(), exact.value.is_some(), "{found:?}");
        if let (Some(found), Some(exact)) = (found.value, exact.value) {
            assert_near(found.get() as f64, exact.get() as f64, HISTOGRAM_ERROR);
        }
        if let (Some(found), Some(exact)) = (found.hi, exact.hi) {
            assert_near(found.get() as f64, exact.get() as f64, 0.05);
        }
    }
}

fn assert_near(found: f64, exact: f64, error: f64) {
    let off = (found - exact).abs();
    assert!(off <= error * exact.abs() + 1e-9, "{found} is not {exact}");
}

#[test]
fn a_recording_read_in_windows_is_explained_like_one_that_is_held() {
    let plan = Plan {
        requests: 40_000,
        gaps: vec![60_000.0, 90_000.0],
        service: 40_000,
        disturbances: vec![(What::Thread, 60_000_000, 3_000_000)],
        trouble: Some((300, Trouble::Slow(400_000))),
        ..Plan::default()
    };
    let events = with_losses(&plan, 5_000);
    let one = whole(&events, &plan);
    let options = super::options(&plan);
    let usual = Baseline::of(&one.matched, &one.timeline, plan.service_time(), None);
    let analysis = analysed(vec![one], &plan, options);
    let many = parts(&events, &plan, 2_000);
    assert!(many.len() > 5, "{} windows", many.len());
    // nothing is kept, so everything comes from histograms
    let options = AnalysisOptions {
        exact: 0,
        baseline: Some(usual),
        ..options
    };
    let streamed = analysed(many, &plan, options);
    let (found, explained) = (&streamed.server, &analysis.server);

    assert_eq!(found.matching, explained.matching);
    assert_same(&found.measured.sojourn, &explained.measured.sojourn);
    assert_same(&found.ideal.sojourn, &explained.ideal.sojourn);
    assert_same(&found.excess, &explained.excess);
    assert_same(&found.stages.t2_t3, &explained.stages.t2_t3);
    assert_same(&found.stages.t5_t6, &explained.stages.t5_t6);
    let (rate, truth) = (found.ideal.utilization, explained.ideal.utilization);
    assert_near(rate, truth, 1e-12);
    assert_eq!(found.stages_at.len(), explained.stages_at.len());
    for (found, exact) in found.stages_at.iter().zip(&explained.stages_at) {
        assert_near(found.mean_sojourn_ns, exact.mean_sojourn_ns, 0.01);
    }
    let faster = |of: &Analysed| of.evidence.faster_than_ideal;
    assert_eq!(faster(&streamed), faster(&analysis));

    assert_eq!(found.causes.len(), explained.causes.len());
    for exact in &explained.causes {
        let same =
            |share: &&CauseShare| share.cause == exact.cause && share.culprit == exact.culprit;
        let found = found.causes.iter().find(same).expect("the same causes");
        assert_eq!(
            (found.excess_ns, found.requests, found.events),
            (exact.excess_ns, exact.requests, exact.events)
        );
        assert_eq!(found.share, exact.share);
    }
    let fits = [&streamed, &analysis].map(|of| of.server.model_fit.clone().expect("a replay"));
    let explanation = |of: &Analysed| of.server.explanation.clone().expect("CPUs were watched");
    let (found, exact) = (explanation(&streamed), explanation(&analysis));
    assert_eq!(found.inversions, exact.inversions);
    assert_eq!(found.workers, exact.workers);
    assert_eq!(found.heat_map, exact.heat_map);
    assert_eq!(found.slowest, exact.slowest);
    assert_eq!(found.bands, exact.bands);
    let clustering = |explanation: &Explanation| explanation.clustering.clone();
    let (found, exact) = (clustering(&found), clustering(&exact));
    let (found, exact) = (found.expect("slow ones"), exact.expect("slow ones"));
    // in windows, it becomes known only gradually which requests are slow
    let shares = (found.in_runs_share, exact.in_runs_share);
    assert!((shares.0 - shares.1).abs() < 0.1, "{shares:?}");
    let [found, exact] = fits;
    assert_eq!(found.model, exact.model);
    assert!((found.largest_error - exact.largest_error).abs() < 0.005);
}

/// As long as the values are kept, the number of windows changes no quantile.
#[test]
fn short_recordings_have_exact_quantiles_in_any_number_of_windows() {
    let plan = Plan {
        requests: 20_000,
        ..Plan::default()
    };
    let events = plan.run().events;
    let options = super::options(&plan);
    let one = analysed(vec![whole(&events, &plan)], &plan, options).server;
    let many = parts(&events, &plan, 2_000);
    assert!(many.len() > 2, "{} windows", many.len());
    let many = analysed(many, &plan, options).server;
    assert_eq!(many.measured, one.measured);
    assert_eq!(many.ideal, one.ideal);
    assert_eq!(many.excess, one.excess);
    assert_eq!(many.stages, one.stages);
    assert_eq!(many.stages_at, one.stages_at);
}
