//! Everything but T1 and T6 in slices of time.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::summary::Matching;
use taillab_model::{Event, EventKind, Monotonic, Nanos, Recording};
use taillab_probe::{Disturbances, Probe, ProbeSpec};

use crate::testbed::streams::StreamBed;
use crate::testbed::{Testbed, first_unspoiled, live, threads_of};

/// A slice of 100 ms in each 400 ms: two slices are 185 ms or 485 ms apart.
const STAMPS: &str = "sampled:1/4";

/// A recording, and for how long the thread that attaches and detaches could not run for want of a CPU, as the
/// kernel says.
struct Recorded {
    recording: Recording,
    waited: Nanos,
}

/// Records calls for this long. Calls after that are not recorded.
fn recorded(spec: &ProbeSpec, length: Duration, mut call: impl FnMut(u32)) -> Recorded {
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
    let waited = waited_for_a_cpu("taillab-slices");
    probe.detach();
    // nothing is attached any more
    (0..100).for_each(&mut call);
    assert!(!probe.is_attached());
    let recording = probe.finish().expect("the counters can be read");
    Recorded { recording, waited }
}

/// For how long this process's thread of that name was ready to run without a CPU (`/proc/PID/schedstat`,
/// Documentation/scheduler/sched-stats.rst).
fn waited_for_a_cpu(name: &str) -> Nanos {
    let waited = threads_of(std::process::id()).iter().find_map(|thread| {
        let text = |file| std::fs::read_to_string(thread.join(file)).ok();
        (text("comm")?.trim() == name).then_some(())?;
        text("schedstat")?.split(' ').nth(1)?.parse().ok()
    });
    Nanos::new(waited.expect("it runs"))
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

/// Requests that come in for so long without anything else show that only the ends are recorded: the timer of a busy CPU
/// alone would interrupt that.
const ENDS_ALONE: Nanos = Nanos::from_millis(20);
const REQUESTS_ALONE: usize = 10;

/// After how many slices more than the ends is recorded until the next one. Attaching and detaching take their time, so the
/// ends need to be alone for a while only.
fn count_late(slices: &[Slice], events: &[Event]) -> usize {
    let is_late = |pair: &&[Slice]| {
        let ([_, (_, end)], [(_, begin), _]) = (pair[0], pair[1]);
        let from = events.partition_point(|event| event.at <= end);
        let to = events.partition_point(|event| event.at < begin);
        let (mut since, mut requests) = (end, 0);
        let is_alone = |event: &Event| {
            match event.kind {
                EventKind::PacketIn { .. } | EventKind::SegmentIn { .. } => requests += 1,
                EventKind::MajorFault { .. } => {}
                kind if kind.is_always_recorded() => {}
                _ => (since, requests) = (event.at, 0),
            }
            requests >= REQUESTS_ALONE && event.at.saturating_since(since) >= ENDS_ALONE
        };
        !events[from..to.max(from)].iter().any(is_alone)
    };
    slices.windows(2).filter(is_late).count()
}

/// Whether only the ends are recorded between these slices. A stall of either CPU makes an end late, and no account of
/// the kernel shows it, so fewer than half may be; programs that stay attached make all late.
fn has_only_ends_between(late: usize, slices: &[Slice]) -> bool {
    2 * late < slices.len()
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

/// If the thread that attaches and detaches waits for a CPU for this long in each slice, other programs make it late.
const LONG: Nanos = Nanos::from_millis(10);

/// What spoils a recording: it has few slices, hardly a request came in within them, or their ends are late since
/// the thread that attaches and detaches waited for a CPU.
fn spoiled(Recorded { recording, waited }: &Recorded) -> Option<String> {
    let events: Vec<Event> = recording.events().collect();
    let slices = slices_of(&events);
    let late = count_late(&slices, &events);
    let asked = counts_of(&matched(events)).asked();
    let has_waited = waited.get() > slices.len() as u64 * LONG.get();
    let is_late = has_waited && !has_only_ends_between(late, &slices);
    (slices.len() < 8 || asked <= 1_000 || is_late).then(|| {
        let slices = slices.len();
        format!("{slices} slices with {asked} requests, {late} late; waited {waited} for a CPU")
    })
}

/// The slices, and the stamps of the requests in them, of a recording that the machine did not spoil; each attempt
/// takes twice as long as the one before. On each connection that is older than the recording, the first response
/// may belong to an earlier request, so it is ambiguous.
fn check(connections: u64, mut record: impl FnMut(Duration) -> Recorded) {
    let attempt = |number: usize| record(Duration::from_secs(5 << number));
    let Recorded { recording, waited } = first_unspoiled(4, attempt, spoiled);
    assert_eq!(recording.lost.total(), 0);
    let events: Vec<Event> = recording.into_events().collect();
    let slices = slices_of(&events);
    let late = count_late(&slices, &events);
    println!("{late} of {} late, waited {waited} for a CPU", slices.len());
    assert!(has_only_ends_between(late, &slices), "{slices:?}");
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
