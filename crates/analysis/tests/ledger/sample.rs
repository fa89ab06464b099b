//! Causes of a sample of requests against those of all, on a kernel whose truth is known.

use super::*;
use crate::common::sample::thinned;
use taillab_model::MiddleStamps;
use taillab_model::explanation::Share;
use taillab_model::summary::ServerResult;

fn analysed(plan: &Plan, events: &[Event], stamps: MiddleStamps) -> (Matched, ServerResult) {
    let matching = MatchOptions {
        stamps,
        ..MatchOptions::default()
    };
    let context = plan.context();
    let matched = match_events(events.iter().copied(), &matching);
    let timeline = Timeline::build(events.iter().copied(), &context);
    let mut analysis = Analysis::new(&context, options(plan));
    analysis.push(
        &Arc::new(Window::whole(matched.clone(), timeline)),
        |_, _| {},
    );
    (matched, analysis.finish(0).unwrap().server)
}

fn share_of(server: &ServerResult, cause: Cause) -> Share {
    let whole = |share: &&CauseShare| share.culprit.is_none() && share.cause == cause;
    server
        .causes
        .iter()
        .find(whole)
        .map_or_else(Share::default, |found| found.share)
}

#[test]
fn a_sample_charges_what_all_requests_are_charged() {
    let plan = Plan {
        requests: 30_000,
        disturbances: vec![
            (What::Thread, 20_000_000, 2_000_000),
            (What::Interrupt, 3_000_000, 60_000),
            (What::Softirq(1), 9_000_000, 300_000),
        ],
        trouble: Some((500, Trouble::Slow(400_000))),
        ..Plan::default()
    };
    let traffic = plan.run();
    let (all, full) = analysed(&plan, &traffic.events, MiddleStamps::All);
    for text in ["sampled:1/4", "sampled:1/16"] {
        let stamps: MiddleStamps = text.parse().unwrap();
        let events = thinned(&traffic.events, &MatchOptions::default(), stamps);
        let (matched, sample) = analysed(&plan, &events, stamps);
        assert_eq!(matched.requests.len(), all.requests.len());
        assert_eq!(full.measured.sojourn, sample.measured.sojourn, "{text}");
        assert_eq!(full.ideal.sojourn, sample.ideal.sojourn, "{text}");
        assert_eq!(
            sample.stages.t2_t3.count, sample.matching.complete,
            "{text}"
        );
        for cause in Cause::ALL {
            let (one, other) = (share_of(&full, cause), share_of(&sample, cause));
            let wide = |share: Share| share.hi.unwrap_or(1.0) - share.lo.unwrap_or(0.0);
            let off = (one.value - other.value).abs();
            assert!(
                off <= wide(one).hypot(wide(other)) / 2.0 + 0.002,
                "{text}: {cause:?} is {one:?} of all and {other:?} of the sample"
            );
        }
        let excess = |server: &ServerResult| {
            let wholes = server.causes.iter().filter(|share| share.culprit.is_none());
            wholes.map(|share| share.excess_ns.get()).sum::<u64>() as f64
        };
        // brought up to all requests
        let ratio = excess(&sample) / excess(&full);
        assert!((ratio - 1.0).abs() < 0.25, "{text}: {ratio}");
        let fit = sample.model_fit.as_ref().map(|fit| fit.largest_error);
        assert!(fit.is_some_and(|error| error < 0.15), "{text}: {fit:?}");
    }
}
