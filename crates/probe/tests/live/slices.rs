//! Everything but T1 and T6 in slices of time.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::summary::Matching;
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

/// The begin and the end of a slice.
type Slice = [(bool, Monotonic); 2];

/// The slices. The recording may end within the last one.
fn slices_of(events: &[Event]) -> Vec<Slice> {
    let marks = events.iter().filter_map(|event| match event.kind {
        EventKind::Slice { begins } => Some((begins, event.at)),
        _ => None,
    });
    let marks: Vec<(bool, Monotonic)> = marks.collect();
    let (slices, open) = marks.as_chunks::<2>();
    assert!(open.is_empty(), "{marks:?}");
    for [(begins, _), (still, _)] in slices {
        assert!(*begins && !still, "{marks:?}");
    }
    slices.to_vec()
}

/// Whether only the ends are recorded between the slices. Attaching and detaching take their time, and more on a
/// machine that does other things too: so this looks at the middle third, and lets one in four be late.
fn has_only_ends_between(slices: &[Slice], events: &[Event]) -> bool {
    let is_late = |pair: &&[Slice]| {
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
    4 * late < slices.len()
}

fn matched(events: Vec<Event>) -> Matched {
    let options = MatchOptions {
        stamps: STAMPS.parse().expect("a valid choice"),
        sequential: true,
        // longer than a stall of the machine
        stale_after: Nanos::from_secs(60),
        ..MatchOptions::default()
    };
    match_events(events, &options)
}

fn counts_of(matched: &Matched) -> Matching {
    matched.counts(Monotonic::from_nanos_since_boot(0))
}

/// Whether the machine left enough to look at.
fn has_enough(recording: &Recording) -> bool {
    let events: Vec<Event> = recording.events().collect();
    let slices = slices_of(&events);
    slices.len() >= 8
        && has_only_ends_between(&slices, &events)
        && counts_of(&matched(events)).asked() > 1_000
}

/// The slices, and the stamps of the requests in them, of the first recording with enough of both. On each
/// connection that is older than the recording, the first response may belong to an earlier request, so it is
/// ambiguous.
fn check(connections: u64, record: impl FnMut(Duration) -> Recording) {
    let lengths = [5, 10, 20, 40].map(Duration::from_secs);
    let recording = lengths.into_iter().map(record).find(has_enough);
    let recording =
        recording.expect("few slices, or more than the ends between them, again and again");
    assert_eq!(recording.lost.total(), 0);
    let events: Vec<Event> = recording.into_events().collect();
    let slices = slices_of(&events);
    for [(_, from), (_, to)] in &slices[..slices.len() - 1] {
        let length = to.saturating_since(*from);
        assert!(length >= Nanos::from_millis(90), "{slices:?}");
    }
    let matched = matched(events);
    let counts = counts_of(&matched);
    assert_eq!(counts.ambiguous, connections, "{counts:#?}");
    assert_eq!(
        counts.matched + connections,
        counts.responses,
        "{counts:#?}"
    );
    // a slice counts if a request came within it, without its edges
    let (lead, tail) = (Nanos::from_millis(10), Nanos::from_millis(20));
    let has_request = |[(_, from), (_, to)]: &&Slice| {
        let mut requests = matched.requests.iter().map(|request| request.server.t1);
        requests.any(|t1| *from + lead < t1 && t1 + tail < *to)
    };
    let sampled = slices.iter().filter(has_request).count() as u64;
    assert!(
        (sampled..=slices.len() as u64).contains(&counts.slices),
        "{sampled} of {}: {counts:#?}",
        slices.len()
    );
    assert!(counts.unasked > counts.asked(), "{counts:#?}");
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
    check(0, |length| {
        recorded(&sampled(&testbed.spec), length, |id| {
            testbed.round_trip(&(id as u16).to_be_bytes());
        })
    });
}

#[test]
fn streams_have_their_ends_all_the_time_and_all_stamps_in_slices() {
    let Some(_alone) = live("streams_have_their_ends_all_the_time_and_all_stamps_in_slices") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(1);
    let mut client = bed.connect();
    check(1, |length| {
        recorded(&sampled(&bed.spec), length, |_| {
            let mut response = [0; 16];
            client.write_all(b"get some-key-of-memcached\r\n").unwrap();
            let n = client.read(&mut response).unwrap();
            assert_eq!(&response[..n], b"END\r\n");
        })
    });
}
