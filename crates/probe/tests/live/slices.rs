//! Everything but T1 and T6 in slices of time.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Event, EventKind, Monotonic, Nanos, Recording};
use taillab_probe::{Disturbances, Probe, ProbeSpec};

use crate::testbed::streams::StreamBed;
use crate::testbed::{Testbed, live};

/// A slice of 100 ms in each 400 ms: two slices are 185 ms or 485 ms apart.
const STAMPS: &str = "sampled:1/4";

/// Records calls for this long. Calls after that are not recorded.
fn recorded(spec: &ProbeSpec, length: Duration, mut call: impl FnMut(u32)) -> Recording {
    let mut probe = Probe::load(spec).expect("this kernel lets the probe load");
    assert_eq!(probe.slices(), Some(4));
    probe.attach().expect("the hooks are there");
    let begin = Instant::now();
    for id in (0..).take_while(|_| begin.elapsed() < length) {
        call(id);
        if id % 256 == 0 {
            probe.drain(usize::MAX);
        }
    }
    probe.detach();
    // nothing is attached any more
    (0..100).for_each(&mut call);
    assert!(!probe.is_attached());
    probe.finish().expect("the counters can be read")
}

fn sampled(spec: &ProbeSpec) -> ProbeSpec {
    ProbeSpec {
        stamps: STAMPS.parse().expect("a valid choice"),
        disturbances: Disturbances::ALL,
        ..spec.clone()
    }
}

/// Between the slices, only the ends are recorded. Attaching and detaching take their time, and more on a
/// machine that does other things too: so this looks at the middle third, and lets one in four be late.
fn assert_only_ends_between(slices: &[[(bool, Monotonic); 2]], events: &[Event]) {
    let is_late = |pair: &&[[(bool, Monotonic); 2]]| {
        let ([_, (_, end)], [(_, begin), _]) = (pair[0], pair[1]);
        let third = Nanos::new(begin.saturating_since(end).get() / 3);
        let (from, to) = (end + third, end + third + third);
        events.iter().any(|event| {
            let is_sliced = !event.kind.is_always_recorded()
                && !matches!(event.kind, EventKind::MajorFault { .. });
            is_sliced && from <= event.at && event.at <= to
        })
    };
    let late = slices.windows(2).filter(is_late).count();
    assert!(4 * late < slices.len(), "{late} times: {slices:?}");
}

/// The slices, and the stamps of the requests in them. On each connection that is older than the recording,
/// the first response may belong to an earlier request, so it is ambiguous.
fn check(recording: Recording, connections: u64) {
    assert_eq!(recording.lost.total(), 0);
    let events: Vec<Event> = recording.into_events().collect();
    let marks: Vec<(bool, Monotonic)> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Slice { begins } => Some((begins, event.at)),
            _ => None,
        })
        .collect();
    let (pairs, open) = marks.as_chunks::<2>();
    assert!(open.is_empty() && pairs.len() >= 8, "{marks:?}");
    for [(begins, _), (still, _)] in pairs {
        assert!(*begins && !still, "{marks:?}");
    }
    // the recording may end within the last one
    for [(_, from), (_, to)] in &pairs[..pairs.len() - 1] {
        let length = to.saturating_since(*from);
        assert!(length >= Nanos::from_millis(90), "{marks:?}");
    }
    assert_only_ends_between(pairs, &events);
    let options = MatchOptions {
        stamps: STAMPS.parse().expect("a valid choice"),
        sequential: true,
        ..MatchOptions::default()
    };
    let matched = match_events(events, &options);
    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    assert_eq!(counts.ambiguous, connections, "{counts:#?}");
    assert_eq!(
        counts.matched + connections,
        counts.responses,
        "{counts:#?}"
    );
    // the last one may be too short to have a sample
    let slices = pairs.len() as u64;
    assert!(
        (slices - 1..=slices).contains(&counts.slices),
        "{counts:#?}"
    );
    assert!(
        counts.asked() > 1_000 && counts.unasked > counts.asked(),
        "{counts:#?}"
    );
    let complete = counts.complete + counts.blind_requests;
    assert!(complete * 100 >= counts.asked() * 99, "{counts:#?}");
}

#[test]
fn datagrams_have_their_ends_all_the_time_and_all_stamps_in_slices() {
    let Some(_alone) = live("datagrams_have_their_ends_all_the_time_and_all_stamps_in_slices")
    else {
        return;
    };
    let testbed = Testbed::veth();
    let recording = recorded(&sampled(&testbed.spec), Duration::from_secs(5), |id| {
        testbed.round_trip(&(id as u16).to_be_bytes());
    });
    check(recording, 0);
}

#[test]
fn streams_have_their_ends_all_the_time_and_all_stamps_in_slices() {
    let Some(_alone) = live("streams_have_their_ends_all_the_time_and_all_stamps_in_slices") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(1);
    let mut client = bed.connect();
    let recording = recorded(&sampled(&bed.spec), Duration::from_secs(5), |_| {
        let mut response = [0; 16];
        client.write_all(b"get some-key-of-memcached\r\n").unwrap();
        let n = client.read(&mut response).unwrap();
        assert_eq!(&response[..n], b"END\r\n");
    });
    check(recording, 1);
}
