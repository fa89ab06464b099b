//! Slices must say the same as a full recording: real recordings, cut into slices afterwards.

use std::collections::HashMap;
use std::fs::File;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use crate::common::slices::{regular, sliced};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    Analysis, AnalysisOptions, DatagramIds, MatchOptions, Matched, Window, match_events,
};
use taillab_model::explanation::{CauseShare, Share};
use taillab_model::summary::ServerResult;
use taillab_model::{Event, MiddleStamps, Monotonic, Nanos, Recording, RecordingContext};

const LENGTH: Nanos = Nanos::from_millis(100);

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

/// The server's side of what the analysis makes of these events.
fn analysed(
    events: &[Event],
    context: &RecordingContext,
    stamps: MiddleStamps,
    service_time: Nanos,
) -> ServerResult {
    let context = RecordingContext {
        stamps,
        ..context.clone()
    };
    let matched = match_events(events.iter().copied(), &options(stamps));
    let timeline = Timeline::build(events.iter().copied(), &context);
    let from = Monotonic::from_nanos_since_boot(0);
    let window = Arc::new(Window::whole(matched, timeline));
    let options = AnalysisOptions::new(service_time, NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(&context, options);
    analysis.push(&window, |_, _| {});
    analysis.finish(0).unwrap().server
}

/// The intervals have something in common; one without ends is as wide as can be.
fn agree(one: Share, other: Share) -> bool {
    let lo = |share: Share| share.lo.unwrap_or(0.0);
    let hi = |share: Share| share.hi.unwrap_or(1.0);
    lo(one) <= hi(other) && lo(other) <= hi(one)
}

/// T1 and T6 are those of the full recording for each request, and the other stamps for each of the
/// sample; nearly all, since a thread whose work began before the slice has no T3.
fn assert_same_requests(name: &str, all: &Matched, sample: &Matched) {
    let name_of = |of: &Matched, place: usize| (of.requests.t1(place), of.keys[place]);
    let of_all: HashMap<_, usize> = (0..all.keys.len())
        .map(|place| (name_of(all, place), place))
        .collect();
    // who has not seen a connection's reads cannot know what was open before the recording began
    let lost = all.keys.len() - sample.keys.len();
    assert!(lost * 100 <= all.keys.len(), "{name}: {lost}");
    let (mut differ, mut wrong, mut asked) = (Vec::new(), 0, 0);
    for place in 0..sample.keys.len() {
        let in_all = of_all[&name_of(sample, place)];
        let (full, thin) = (all.requests.stamps(in_all), sample.requests.stamps(place));
        assert_eq!((full.t1, full.t6), (thin.t1, thin.t6), "{name}");
        // who served the others is known once a thread has been seen to serve
        wrong += usize::from(all.workers[in_all] != sample.workers[place]);
        if sample.is_asked(place) {
            asked += 1;
            if full != thin {
                differ.push((full, thin));
            }
        }
    }
    assert!(asked > 0, "{name}");
    assert!(
        differ.len() * 100 <= asked,
        "{name}: {} of {asked} differ: {:#?}",
        differ.len(),
        &differ[..differ.len().min(5)]
    );
    assert!(wrong * 20 <= sample.keys.len(), "{name}: {wrong} workers");
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
            "{name}: {full:?} of all, {thin:?} of the slices"
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
            "{name}: {:?} is {:?} of all and {thin:?} of the slices",
            cause.cause,
            cause.share
        );
    }
}

#[test]
fn the_stamps_of_slices_are_those_of_the_full_recording() {
    for name in [
        "memcached_5k_per_s.tlc",
        "memcached_90_percent.tlc",
        "memcached_tcp_4_threads.tlc",
        "nginx_2_workers.tlc",
        "redis.tlc",
    ] {
        let (events, _) = recorded(name);
        let all = match_events(events.iter().copied(), &options(MiddleStamps::All));
        let slices = regular(&events, LENGTH, LENGTH * 2);
        let thin = sliced(&events, &slices);
        assert!(thin.len() < events.len(), "{name}");
        let stamps = "sampled:1/2".parse().unwrap();
        let sample = match_events(thin.iter().copied(), &options(stamps));
        assert_same_requests(name, &all, &sample);
    }
}

#[test]
fn the_figures_of_slices_are_those_of_the_full_recording() {
    let t = Nanos::from_micros(15);
    for name in ["memcached_5k_per_s.tlc", "memcached_90_percent.tlc"] {
        let (events, context) = recorded(name);
        let all = analysed(&events, &context, MiddleStamps::All, t);
        let slices = regular(&events, LENGTH, LENGTH * 2);
        let stamps = "sampled:1/2".parse().unwrap();
        let sample = analysed(&sliced(&events, &slices), &context, stamps, t);
        assert_same_figures(name, &all, &sample);
    }
}
