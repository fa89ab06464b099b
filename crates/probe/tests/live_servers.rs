//! The probe and the matcher on servers that read and write in every way there is: in
//! batches, through io_uring, from several sockets of one port, straight from files.
//!
//! Needs root, a kernel with BTF and io_uring, and nginx. `TAILLAB_SKIP_LIVE=1` declines.

mod testbed;

use std::collections::HashMap;
use std::net::UdpSocket;

use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Monotonic, Stamps};
use taillab_probe::Probe;
use testbed::datagrams::DatagramBed;
use testbed::{echo, live};

/// Every datagram is matched with its own response, between the client's stamps; in the
/// quietest of a few runs nearly all have the first `wanted` of T2 to T5: an unlucky thread
/// of init on the server's CPU hides T2 or T3 of what comes meanwhile.
fn assert_datagrams(threads: usize, serve: fn(UdpSocket), at_once: usize, wanted: usize) {
    let bed = DatagramBed::serving(threads, serve);
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
        probe.attach().expect("the hooks are there");
        let calls = bed.make(4, 2_000 / at_once, at_once);
        let recording = probe.finish().expect("the counters can be read");
        assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
        let matched = match_events(recording.into_events(), &MatchOptions::default());
        let keys = matched.keys.iter().map(|key| (key.port, key.id));
        let stamps: HashMap<(u16, u16), Stamps> = keys
            .zip(matched.requests.iter().map(|r| r.server))
            .collect();
        assert_eq!(matched.unmatched, []);
        assert_eq!(matched.without_request, []);
        assert_eq!(stamps.len(), calls.len());
        for call in &calls {
            let stamps = stamps[&(call.port, call.id)];
            assert!(call.sent <= stamps.t1, "{call:?} {stamps:?}");
            assert!(stamps.t6 <= call.received, "{call:?} {stamps:?}");
        }
        let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
        if wanted == 4 {
            // otherwise T4 can be that of another request, which is counted as what it is
            assert_eq!(counts.out_of_order, 0);
        }
        println!("{counts:?}");
        let has_all = |stamps: &&Stamps| stamps.middle[..wanted].iter().all(Option::is_some);
        let complete = stamps.values().filter(has_all).count();
        best = best.max(complete as f64 / calls.len() as f64);
        if best >= 0.995 {
            return;
        }
    }
    panic!("at best {:.2} % have all stamps", best * 100.0);
}

#[test]
fn datagrams_in_batches_have_all_stamps() {
    let Some(_alone) = live("datagrams_in_batches_have_all_stamps") else {
        return;
    };
    assert_datagrams(1, echo::in_batches, 10, 4);
    assert_datagrams(1, echo::all_then_all, 10, 4);
}

#[test]
fn datagrams_through_a_ring_have_all_stamps() {
    let Some(_alone) = live("datagrams_through_a_ring_have_all_stamps") else {
        return;
    };
    assert_datagrams(1, echo::by_ring, 3, 4);
    // one thread reads a datagram, another answers it
    assert_datagrams(1, echo::by_ring_of_threads, 3, 1);
}

#[test]
fn several_sockets_of_one_port_have_all_stamps() {
    let Some(_alone) = live("several_sockets_of_one_port_have_all_stamps") else {
        return;
    };
    assert_datagrams(3, echo::one_by_one, 4, 4);
}
