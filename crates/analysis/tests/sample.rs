//! A sample of requests must say the same as all of them: real recordings, thinned afterwards.

use std::collections::HashSet;
use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use crate::common::sample::thinned;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysed, Analysis, AnalysisOptions, DatagramIds, MatchOptions, Matched, Window, match_events,
};
use taillab_model::explanation::{CauseShare, Share};
use taillab_model::summary::ServerResult;
use taillab_model::{Event, MiddleStamps, Monotonic, Nanos, Recording, RecordingContext};

fn recorded(name: &str) -> (Vec<Event>, RecordingContext) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let recording = Recording::read(File::open(folder.join(name)).unwrap()).unwrap();
    let context = recording.context.clone();
    (recording.into_events().collect(), context)
}

fn options(stamps: MiddleStamps) -> MatchOptions {
    MatchOptions {
        sequential: true,
        datagram_ids: Some(DatagramIds::Ids),
        stamps,
        ..MatchOptions::default()
    }
}

/// What the analysis makes of these events.
fn analysis(
    events: &[Event],
    context: &RecordingContext,
    stamps: MiddleStamps,
    service_time: Nanos,
) -> (Matched, Analysed) {
    let matched = match_events(events.iter().copied(), &options(stamps));
    let timeline = Timeline::build(events.iter().copied(), context);
    let from = Monotonic::from_nanos_since_boot(0);
    let window = Arc::new(Window::whole(matched.clone(), timeline));
    let options = AnalysisOptions::new(service_time, NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(context, options);
    analysis.push(&window, |_, _| {});
    (matched, analysis.finish(0).unwrap())
}

/// The server's side of it.
fn analysed(
    events: &[Event],
    context: &RecordingContext,
    stamps: MiddleStamps,
    service_time: Nanos,
) -> ServerResult {
    analysis(events, context, stamps, service_time).1.server
}

/// The intervals have something in common; one without ends is as wide as can be.
fn agree(one: Share, other: Share) -> bool {
    let lo = |share: Share| share.lo.unwrap_or(0.0);
    let hi = |share: Share| share.hi.unwrap_or(1.0);
    lo(one) <= hi(other) && lo(other) <= hi(one)
}

/// T1 and T6 are those of the full recording for each request, the other stamps for each that is
/// asked for (but for T3, where the server reads several before it answers one), and there are none
/// of the others.
fn assert_same_requests(name: &str, all: &Matched, sample: &Matched, reads_together: bool) {
    let name_of = |of: &Matched, place: usize| (of.requests.t1(place), of.keys[place]);
    let of_sample: HashSet<_> = (0..sample.keys.len())
        .map(|at| name_of(sample, at))
        .collect();
    let (kept, lost): (Vec<usize>, Vec<usize>) =
        (0..all.keys.len()).partition(|&place| of_sample.contains(&name_of(all, place)));
    // who has not seen a connection from its beginning learns from its reads what is open there
    let client = |place: &usize| all.keys[*place].client();
    let is_first = |lost: &usize| !(0..*lost).any(|place| client(&place) == client(lost));
    assert!(lost.iter().all(is_first), "{name}: {lost:?}");
    assert!(reads_together || lost.is_empty(), "{name}: {lost:?}");
    assert_eq!(kept.len(), sample.keys.len(), "{name}");
    let (mut differ, mut wrong) = (0, 0);
    for (place, &in_all) in kept.iter().enumerate() {
        let (full, thin) = (all.requests.stamps(in_all), sample.requests.stamps(place));
        assert_eq!((full.t1, full.t6), (thin.t1, thin.t6), "{name}");
        // who served the others is known once a thread has been seen to serve
        wrong += usize::from(all.workers[in_all] != sample.workers[place]);
        let ([t2, t3, t4, t5], of_thin) = (full.middle(), thin.middle());
        if !sample.is_asked(place) {
            assert_eq!(of_thin, [None; 4], "{name}");
            continue;
        }
        // a read that the sample does not show may have made T3 later
        let early = of_thin[1].is_none_or(|early| t3.is_none_or(|t3| early <= t3));
        assert!(early, "{name}: {full:?} {thin:?}");
        let others = [t2, of_thin[1], t4, t5] == of_thin;
        match reads_together {
            true => assert!(others, "{name}: {full:?} {thin:?}"),
            false => differ += u64::from(full != thin),
        }
    }
    let counts = sample.counts(Monotonic::from_nanos_since_boot(0));
    assert!(differ * 50 <= counts.asked(), "{name}: {differ} differ");
    // what the full recording lacks, the sample lacks as well
    let asked = kept
        .iter()
        .enumerate()
        .filter(|(place, _)| sample.is_asked(*place));
    let complete = asked.filter(|(_, in_all)| all.requests.stamps(**in_all).is_complete());
    let complete = complete.count() as u64;
    assert!(
        counts.complete.abs_diff(complete) <= 2,
        "{name}: {complete} of all, {counts:#?}"
    );
    let one_in = u64::from(sample.stamps.one_in().unwrap());
    let expected = counts.matched / one_in;
    assert!(
        counts.asked().abs_diff(expected) <= 10 + expected / 3,
        "{name}: {counts:#?}"
    );
    assert!(wrong * 20 <= kept.len(), "{name}: {wrong} workers");
}

fn assert_same_figures(name: &str, all: &ServerResult, sample: &ServerResult) {
    assert_eq!(all.measured.sojourn, sample.measured.sojourn, "{name}");
    assert_eq!(all.ideal.sojourn, sample.ideal.sojourn, "{name}");
    let whole = |share: &&CauseShare| share.culprit.is_none() && share.share.value > 0.02;
    let stages = |server: &ServerResult| {
        let of = &server.stages;
        [&of.t1_t2, &of.t2_t3, &of.t3_t4, &of.t4_t5, &of.t5_t6].map(|stage| stage.quantiles[0])
    };
    for (full, thin) in stages(all).iter().zip(stages(sample)) {
        let (lo, hi) = (full.lo.unwrap(), full.hi.unwrap());
        assert!(
            thin.lo.is_none_or(|thin| thin <= hi) && thin.hi.is_none_or(|thin| lo <= thin),
            "{name}: {full:?} of all, {thin:?} of the sample"
        );
    }
    for cause in all.causes.iter().filter(whole) {
        let thin = sample
            .causes
            .iter()
            .find(|other| other.culprit.is_none() && other.cause == cause.cause);
        let thin = thin.map_or_else(Share::default, |thin| thin.share);
        assert!(
            agree(cause.share, thin),
            "{name}: {:?} is {:?} of all and {thin:?} of the sample",
            cause.cause,
            cause.share
        );
    }
}

#[test]
fn the_stamps_of_a_sample_are_those_of_the_full_recording() {
    for name in [
        "memcached_5k_per_s.tlc",
        "memcached_90_percent.tlc",
        "memcached_tcp_4_threads.tlc",
        "nginx_2_workers.tlc",
        "redis.tlc",
    ] {
        let (events, _) = recorded(name);
        let all = match_events(events.iter().copied(), &options(MiddleStamps::All));
        let stamps = "sampled:1/4".parse().unwrap();
        let thin = thinned(&events, &options(MiddleStamps::All), stamps);
        assert!(thin.len() < events.len(), "{name}");
        let sample = match_events(thin.iter().copied(), &options(stamps));
        assert_same_requests(name, &all, &sample, name == "redis.tlc");
    }
}

#[test]
fn the_figures_of_a_sample_are_those_of_the_full_recording() {
    let t = Nanos::from_micros(15);
    for name in ["memcached_5k_per_s.tlc", "memcached_90_percent.tlc"] {
        let (events, context) = recorded(name);
        let all = analysed(&events, &context, MiddleStamps::All, t);
        for stamps in ["sampled:1/2", "sampled:1/4"] {
            let stamps = stamps.parse().unwrap();
            let thin = thinned(&events, &options(MiddleStamps::All), stamps);
            let sample = analysed(&thin, &context, stamps, t);
            assert_same_figures(name, &all, &sample);
        }
    }
}

/// Redis reads from all its clients before it answers the first: what a sample says of it is wrong,
/// and not said.
#[test]
fn of_a_server_that_reads_in_batches_a_sample_explains_nothing() {
    let t = Nanos::from_micros(15);
    for (name, reads_together) in [("redis.tlc", true), ("memcached_tcp_4_threads.tlc", false)] {
        let (events, context) = recorded(name);
        let stamps = "sampled:1/4".parse().unwrap();
        let thin = thinned(&events, &options(MiddleStamps::All), stamps);
        let analysed = analysis(&thin, &context, stamps, t).1;
        let found = analysed.evidence.read_together;
        assert_eq!(found.is_some(), reads_together, "{name}: {found:?}");
    }
}
