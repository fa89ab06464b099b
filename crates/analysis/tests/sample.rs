//! A sample of requests must say the same as all of them: real recordings, thinned afterwards.

use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use crate::common::sample::thinned;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisOptions, DatagramIds, MatchOptions, Matched, Window, match_events,
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
fn analysed(
    events: &[Event],
    context: &RecordingContext,
    stamps: MiddleStamps,
    service_time: Nanos,
) -> (Matched, ServerResult) {
    let matched = match_events(events.iter().copied(), &options(stamps));
    let timeline = Timeline::build(events.iter().copied(), context);
    let from = Monotonic::from_nanos_since_boot(0);
    let window = Arc::new(Window::whole(matched.clone(), timeline));
    let options = AnalysisOptions::new(service_time, NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(context, options);
    analysis.push(&window, |_, _| {});
    (matched, analysis.finish(0).unwrap().server)
}

/// The intervals have something in common; one without ends is as wide as can be.
fn agree(one: Share, other: Share) -> bool {
    let lo = |share: Share| share.lo.unwrap_or(0.0);
    let hi = |share: Share| share.hi.unwrap_or(1.0);
    lo(one) <= hi(other) && lo(other) <= hi(one)
}

/// T1 and T6 are those of the full recording for each request, the other stamps for each that is
/// asked for, and there are none of the others.
fn assert_same_requests(name: &str, all: &Matched, sample: &Matched) {
    assert_eq!(all.keys, sample.keys, "{name}");
    let mut differ = 0;
    for place in 0..all.requests.len() {
        let (full, thin) = (all.requests.stamps(place), sample.requests.stamps(place));
        assert_eq!((full.t1, full.t6), (thin.t1, thin.t6), "{name}");
        match sample.is_asked(place) {
            // a read that the sample does not show may have made T3 later
            true => differ += u64::from(full != thin),
            false => assert_eq!(thin.middle(), [None; 4], "{name}"),
        }
    }
    let counts = sample.counts(Monotonic::from_nanos_since_boot(0));
    assert!(differ * 50 <= counts.asked(), "{name}: {differ} differ");
    // what the full recording lacks, the sample lacks as well
    let places = (0..all.requests.len()).filter(|&place| sample.is_asked(place));
    let complete = places.filter(|&place| all.requests.stamps(place).is_complete());
    let complete = complete.count() as u64;
    assert!(
        counts.complete.abs_diff(complete) <= 2,
        "{name}: {complete} of all, {counts:#?}"
    );
    let one_in = u64::from(sample.stamps.one_in().unwrap());
    let expected = counts.responses / one_in;
    assert!(
        counts.asked().abs_diff(expected) <= 10 + expected / 3,
        "{name}: {counts:#?}"
    );
    // who served the others is known once a thread has been seen to serve
    let known = sample.workers.iter().zip(&all.workers);
    let wrong = known.filter(|(thin, full)| thin != full).count();
    assert!(wrong * 20 <= all.workers.len(), "{name}: {wrong} workers");
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
        assert_same_requests(name, &all, &sample);
    }
}

#[test]
fn the_figures_of_a_sample_are_those_of_the_full_recording() {
    let t = Nanos::from_micros(15);
    for name in ["memcached_5k_per_s.tlc", "memcached_90_percent.tlc"] {
        let (events, context) = recorded(name);
        let (_, all) = analysed(&events, &context, MiddleStamps::All, t);
        for stamps in ["sampled:1/2", "sampled:1/4"] {
            let stamps = stamps.parse().unwrap();
            let thin = thinned(&events, &options(MiddleStamps::All), stamps);
            let (_, sample) = analysed(&thin, &context, stamps, t);
            assert_same_figures(name, &all, &sample);
        }
    }
}
