//! The probe and the matcher on servers that read and write in every way there is: in
//! batches, through io_uring, from several sockets of one port, straight from files.
//!
//! Needs a kernel with io_uring.

use std::collections::HashMap;
use std::net::UdpSocket;

use crate::testbed::datagrams::DatagramBed;
use crate::testbed::{ATTEMPTS, echo, first_unspoiled, live, share_that_lacks, was_blind};
use taillab_analysis::{MatchOptions, Matched, match_events};
use taillab_model::{Monotonic, Nanos, SentKey, Stamps};
use taillab_probe::Probe;

/// Places of T2 to T5 in [`Stamps`].
const ALL: &[usize] = &[0, 1, 2, 3];

/// Every datagram is matched with its own response, between the client's stamps; nearly all
/// that came outside of blind windows have the `wanted` ones of T2 to T5.
fn assert_datagrams(threads: usize, serve: fn(UdpSocket), at_once: usize, wanted: &[usize]) {
    let bed = DatagramBed::serving(threads, serve);
    let matched = first_unspoiled(ATTEMPTS, |_| matched(&bed, at_once), was_blind);
    // Where T4 is not wanted, it can be that of another request, and so be out of order.
    if wanted.contains(&2) {
        let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
        // an interrupt may delay the stamp of T2 while a reader on another CPU is awake
        let all = matched.requests.len() as u64;
        assert!(counts.out_of_order * 200 <= all, "{counts:?}");
    }
    let has_all = |stamps: &Stamps| wanted.iter().all(|&place| stamps.middle()[place].is_some());
    let lack = share_that_lacks(&matched, has_all);
    assert!(lack <= 0.005, "{:.2} % lack stamps", lack * 100.0);
}

/// A recording of 2,000 requests: each is matched, and lies between the client's stamps.
fn matched(bed: &DatagramBed, at_once: usize) -> Matched {
    let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let calls = bed.make(4, 2_000 / at_once, at_once);
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    // longer than a stall of the machine
    let options = MatchOptions {
        stale_after: Nanos::from_secs(60),
        ..MatchOptions::default()
    };
    let matched = match_events(recording.into_events(), &options);
    let keys = matched.keys.iter().filter_map(|key| matched.sent_as(*key));
    let stamps: HashMap<SentKey, Stamps> = keys
        .zip(matched.requests.iter().map(|r| r.server))
        .collect();
    assert_eq!(matched.unmatched, []);
    assert_eq!(matched.without_request, []);
    assert_eq!(stamps.len(), calls.len());
    for call in &calls {
        let (port, id) = (call.port, call.id);
        let stamps = stamps[&SentKey { port, id }];
        assert!(call.sent <= stamps.t1, "{call:?} {stamps:?}");
        assert!(stamps.t6 <= call.received, "{call:?} {stamps:?}");
    }
    println!("{:?}", matched.counts(Monotonic::from_nanos_since_boot(0)));
    matched
}

#[test]
fn datagrams_in_batches_have_all_stamps() {
    let Some(_alone) = live("datagrams_in_batches_have_all_stamps") else {
        return;
    };
    assert_datagrams(1, echo::in_batches, 10, ALL);
    assert_datagrams(1, echo::all_then_all, 10, ALL);
}

#[test]
fn datagrams_through_a_ring_have_all_stamps() {
    let Some(_alone) = live("datagrams_through_a_ring_have_all_stamps") else {
        return;
    };
    assert_datagrams(1, echo::by_ring, 3, ALL);
    // one thread reads a datagram, another answers it
    assert_datagrams(1, echo::by_ring_of_threads, 3, &[0]);
}

#[test]
fn several_sockets_of_one_port_have_all_stamps() {
    let Some(_alone) = live("several_sockets_of_one_port_have_all_stamps") else {
        return;
    };
    assert_datagrams(3, echo::one_by_one, 4, ALL);
}

/// A reader that never sleeps can read a datagram before the hook has stamped it as queued.
#[test]
fn what_a_reader_that_is_awake_reads_was_queued_before() {
    let Some(_alone) = live("what_a_reader_that_is_awake_reads_was_queued_before") else {
        return;
    };
    // it may never leave its CPU: then it is unknown when it came onto it (T3)
    assert_datagrams(1, echo::spinning, 10, &[0, 2, 3]);
    assert_datagrams(1, echo::spinning, 1, &[0, 2, 3]);
}
