//! What keeps TCP from sending the rest of a response: the client, or the path.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{EventKind, Nanos, Recording, SendLimit};
use taillab_probe::Probe;

use crate::testbed::streams::StreamBed;
use crate::testbed::{ip, live};

const REQUEST: &[u8; 8] = b"request!";
/// More than any window takes at the beginning.
const RESPONSE: usize = 300_000;
/// How long the slow client does nothing before it reads: much longer than a stall of the machine, in which the server
/// has not filled its window.
const SLEEPS: Duration = Duration::from_millis(500);

/// Answers each request with many bytes.
fn answer(streams: Vec<TcpStream>) {
    for mut stream in streams {
        std::thread::spawn(move || {
            let mut request = *REQUEST;
            while stream.read_exact(&mut request).is_ok() {
                if stream.write_all(&vec![1; RESPONSE]).is_err() {
                    return;
                }
            }
        });
    }
}

/// What is recorded while a client makes a call on a new connection, and sleeps for so long before it reads.
fn recorded(
    bed: &StreamBed,
    connect: impl FnOnce(&StreamBed) -> TcpStream,
    sleeps: Duration,
) -> Recording {
    bed.serve(1, 1, answer);
    let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let mut stream = connect(bed);
    stream.write_all(REQUEST).expect("the server reads");
    // the server may have got no CPU so far
    stream.peek(&mut [0]).expect("a response begins");
    std::thread::sleep(sleeps);
    let mut response = vec![0; RESPONSE];
    stream.read_exact(&mut response).expect("a response");
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    recording
}

/// The limits that TCP had reached with each segment of the response.
fn limits(recording: &Recording) -> Vec<Option<SendLimit>> {
    let limit = recording.events().filter_map(|event| match event.kind {
        EventKind::SegmentOut { limit, .. } => Some(limit),
        _ => None,
    });
    limit.collect()
}

#[test]
fn a_response_waits_for_a_client_that_does_not_read() {
    let Some(_alone) = live("a_response_waits_for_a_client_that_does_not_read") else {
        return;
    };
    let small = |bed: &StreamBed| bed.connect_with_buffer(8 << 10);
    let recording = recorded(&StreamBed::new(), small, SLEEPS);
    let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
    let Matched {
        requests,
        send_pauses,
        ..
    } = match_events(recording.into_events(), &options);
    println!("{send_pauses:?}");
    // a late acknowledgement may open the window a little meanwhile, so there may be several
    let of_client = send_pauses
        .iter()
        .filter(|pause| pause.limit == SendLimit::ClientWindow);
    let paused: u64 = of_client
        .map(|pause| pause.to.saturating_since(pause.from).get())
        .sum();
    // its window takes what comes at first
    assert!(
        paused * 2 > SLEEPS.as_nanos() as u64,
        "{paused} ns of {SLEEPS:?}"
    );
    assert_eq!(requests.len(), 1);
    let stamps = requests.stamps(0);
    for pause in &send_pauses {
        assert!(
            stamps.t1 <= pause.from && pause.to <= stamps.t6,
            "{pause:?}"
        );
    }
}

#[test]
fn the_first_window_of_a_path_is_filled_by_a_long_response() {
    let Some(_alone) = live("the_first_window_of_a_path_is_filled_by_a_long_response") else {
        return;
    };
    let bed = StreamBed::new();
    bed.in_servers(|| ip("route change 10.99.0.0/24 dev server initcwnd 2"));
    let recording = recorded(&bed, StreamBed::connect, Duration::ZERO);
    let limits = limits(&recording);
    println!("{limits:?}");
    // two packets, in one piece or in two; then it waits for the first acknowledgement
    let then = limits[1..3].iter().flatten();
    assert_eq!(then.copied().next(), Some(SendLimit::CongestionWindow));
}

#[test]
fn short_responses_reach_no_limit() {
    let Some(_alone) = live("short_responses_reach_no_limit") else {
        return;
    };
    let bed = StreamBed::new();
    bed.thread_per_connection(1, 100);
    let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let mut stream = bed.connect();
    for _ in 0..50 {
        stream.write_all(&[1; 100]).expect("the server reads");
        stream.read_exact(&mut [0; 100]).expect("a response");
    }
    let recording = probe.finish().expect("the counters can be read");
    let limits = limits(&recording);
    assert!(limits.len() > 40, "{}", limits.len());
    assert!(limits.iter().all(Option::is_none), "{limits:?}");
}
