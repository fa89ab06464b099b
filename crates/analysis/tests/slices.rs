//! Slices must give the same result as a full recording: real recordings, cut into slices afterwards.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use crate::common::slices::{regular, sliced};
use taillab_analysis::{DatagramIds, MatchOptions, Matched, match_events};
use taillab_model::{Event, MiddleStamps, Nanos, Recording};

/// Short slices, since the recordings last only some hundred milliseconds.
const LENGTH: Nanos = Nanos::from_millis(60);
const PERIOD: Nanos = Nanos::from_millis(90);

fn recorded(name: &str) -> Vec<Event> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let recording = Recording::read(File::open(folder.join(name)).unwrap()).unwrap();
    recording.into_events().collect()
}

fn options(stamps: MiddleStamps) -> MatchOptions {
    MatchOptions {
        sequential: true,
        datagram_ids: Some(DatagramIds::Ids),
        stamps,
        ..MatchOptions::default()
    }
}

/// T1 and T6 of every request are those of the full recording, and so are the other stamps of the sample.
fn assert_same_requests(name: &str, all: &Matched, sample: &Matched) {
    let name_of = |of: &Matched, place: usize| (of.requests.t1(place), of.keys[place]);
    let of_all: HashMap<_, usize> = (0..all.keys.len())
        .map(|place| (name_of(all, place), place))
        .collect();
    // without a connection's reads it is not known what was open before the recording began
    let lost = all.keys.len() - sample.keys.len();
    assert!(lost * 100 <= all.keys.len(), "{name}: {lost}");
    let (mut differ, mut wrong, mut asked) = (Vec::new(), 0, 0);
    for place in 0..sample.keys.len() {
        let in_all = of_all[&name_of(sample, place)];
        let (full, thin) = (all.requests.stamps(in_all), sample.requests.stamps(place));
        assert_eq!((full.t1, full.t6), (thin.t1, thin.t6), "{name}");
        // who served requests outside of the sample is known once a thread has been seen to serve
        wrong += usize::from(all.workers[in_all] != sample.workers[place]);
        if sample.is_asked(place) {
            asked += 1;
            if full != thin {
                differ.push((full, thin));
            }
        }
    }
    assert!(asked > 100, "{name}");
    assert!(differ.is_empty(), "{name}: {differ:#?}");
    assert!(wrong * 20 <= sample.keys.len(), "{name}: {wrong} workers");
}

#[test]
fn the_stamps_of_slices_are_those_of_the_full_recording() {
    for name in [
        "epoll_shared_2_workers.tlc",
        "go_http.tlc",
        "hand_off.tlc",
        "memcached_5k_per_s.tlc",
        "python_threads.tlc",
        "redis.tlc",
        "simulated.tlc",
    ] {
        let events = recorded(name);
        let all = match_events(events.iter().copied(), &options(MiddleStamps::All));
        let slices = regular(&events, LENGTH, PERIOD);
        let thin = sliced(&events, &slices);
        assert!(thin.len() < events.len(), "{name}");
        let stamps = "sampled:1/2".parse().unwrap();
        let sample = match_events(thin.iter().copied(), &options(stamps));
        assert_same_requests(name, &all, &sample);
    }
}

/// The first events are held back until they show whether datagrams have ids. They belong to the slices of
/// their own time.
#[test]
fn stamps_are_the_same_if_the_evidence_decides_about_ids() {
    let events = recorded("memcached_5k_per_s.tlc");
    let thin = sliced(&events, &regular(&events, LENGTH, PERIOD));
    let told = options("sampled:1/2".parse().unwrap());
    let asked = MatchOptions {
        datagram_ids: None,
        ..told
    };
    let matched = |options: &MatchOptions| match_events(thin.iter().copied(), options);
    let (told, found) = (matched(&told), matched(&asked));
    assert_eq!(found.requests, told.requests);
}
