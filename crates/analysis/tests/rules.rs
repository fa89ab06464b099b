//! One hand-written stream for each of the matcher's rules.

use crate::common;

use common::script::{at, events, key};
use taillab_analysis::{DatagramIds, MatchOptions, Matched, match_events, match_recording};
use taillab_model::summary::Hook;
use taillab_model::{Monotonic, Nanos, Recording, RecordingContext, RequestKey, Stamps};

const START: Monotonic = Monotonic::from_nanos_since_boot(0);

fn options() -> MatchOptions {
    MatchOptions {
        overtaken_after: Nanos::new(1_000),
        stale_after: Nanos::new(1_000_000),
        datagram_ids: Some(DatagramIds::Ids),
        ..MatchOptions::default()
    }
}

fn matched(script: &str) -> Matched {
    match_events(events(script), &options())
}

/// T1..T6 in nanoseconds, 0 where a stamp is missing.
fn stamps(stamps: Stamps) -> [u64; 6] {
    let ns = |stamp: Option<Monotonic>| stamp.map_or(0, Monotonic::nanos_since_boot);
    let [t2, t3, t4, t5] = stamps.middle();
    [Some(stamps.t1), t2, t3, t4, t5, Some(stamps.t6)].map(ns)
}

fn all(matched: &Matched) -> Vec<[u64; 6]> {
    matched.requests.iter().map(|r| stamps(r.server)).collect()
}

#[test]
fn a_request_gets_its_six_stamps() {
    let m = matched(
        "100 1 in p1 k7
         110 0 queued p1
         115 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         160 0 switch 9>0
         200 1 in p1 k8
         210 0 queued p1
         215 0 switch 0>9
         220 0 read 9
         250 0 write 9
         255 0 out 9 k8",
    );
    // what the thread did before its first request is not known: no T3 there
    assert_eq!(
        all(&m),
        [[100, 110, 0, 120, 150, 155], [200, 210, 215, 220, 250, 255]]
    );
    assert_eq!(m.keys, [key(7), key(8)]);
    let counts = m.counts(START);
    assert_eq!(
        (counts.responses, counts.matched, counts.complete),
        (2, 2, 1)
    );
    assert_eq!(counts.missing_middle, [0, 1, 0, 0]);
    assert_eq!(
        (counts.out_of_order, counts.ambiguous, counts.unanswered),
        (0, 0, 0)
    );
}

/// The beginning of the streams below: thread 9 has answered once and sleeps.
const BEFORE: &str = "10 1 in p9 k1
     11 0 queued p9
     12 0 switch 0>9
     13 0 read 9
     14 0 write 9
     15 0 out 9 k1
     16 0 switch 9>0
     ";

fn after(script: &str) -> Vec<[u64; 6]> {
    all(&matched(&format!("{BEFORE}{script}")))[1..].to_vec()
}

#[test]
fn t3_of_a_request_that_finds_the_thread_busy_is_the_previous_response() {
    let stamps = after(
        "100 1 in p1 k7
         101 1 in p2 k8
         110 0 queued p1
         111 0 queued p2
         115 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         160 0 read 9
         170 0 write 9
         175 0 out 9 k8",
    );
    assert_eq!(stamps[1], [101, 111, 155, 160, 170, 175]);
}

#[test]
fn t3_of_a_request_that_finds_the_thread_waiting_on_its_core_is_t2() {
    let stamps = after(
        "100 1 in p1 k7
         110 0 queued p1
         115 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         200 1 in p2 k8
         210 0 queued p2
         220 0 read 9
         230 0 write 9
         235 0 out 9 k8",
    );
    assert_eq!(stamps[1], [200, 210, 210, 220, 230, 235]);
}

#[test]
fn t3_of_a_thread_that_is_preempted_before_its_read_returns_is_its_way_back() {
    let stamps = after(
        "100 1 in p1 k7
         110 0 queued p1
         115 0 switch 0>9
         117 0 preempt 9>3
         130 0 switch 3>9
         140 0 read 9
         150 0 write 9
         155 0 out 9 k7",
    );
    assert_eq!(stamps, [[100, 110, 130, 140, 150, 155]]);
}

/// A thread that spins: its CPU never changes threads.
const SPINS: &str = "100 1 in p1 k7
                     110 0 queued p1
                     120 0 read 9
                     150 0 write 9
                     155 0 out 9 k7
                     160 1 in p2 k8
                     165 0 queued p2
                     170 0 read 9
                     180 0 write 9
                     185 0 out 9 k8";

#[test]
fn t3_is_missing_when_the_switch_onto_the_core_was() {
    let stamps = after(SPINS);
    assert_eq!(stamps[0], [100, 110, 0, 120, 150, 155]);
    // the thread has been there since its last response, so T3 is known again
    assert_eq!(stamps[1], [160, 165, 165, 170, 180, 185]);
}

#[test]
fn t3_is_missing_when_the_end_of_the_previous_request_was() {
    let stamps = after(
        "100 1 in p1 k7
         101 1 in p2 k8
         110 0 queued p1
         111 0 queued p2
         115 0 switch 0>9
         120 0 read 9
         150 0 write 9
         160 0 read 9
         170 0 write 9
         175 0 out 9 k8",
    );
    assert_eq!(stamps, [[101, 111, 0, 160, 170, 175]]);
}

#[test]
fn without_t2_t3_is_known_only_behind_the_blind_window_that_hides_t2() {
    let seen = after(
        "100 0 switch 0>1
         101 1 in p1 k7
         110 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7",
    );
    assert_eq!(seen, [[101, 0, 110, 120, 150, 155]]);
    let lost_otherwise = after(
        "101 1 in p1 k7
         110 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7",
    );
    assert_eq!(lost_otherwise, [[101, 0, 0, 120, 150, 155]]);
}

#[test]
fn a_cpu_whose_switches_are_not_recorded_gives_no_t3() {
    let m = matched(SPINS);
    assert_eq!(m.counts(START).missing_middle, [0, 2, 0, 0]);
    assert!(m.blind.is_empty());
}

#[test]
fn where_all_switches_are_recorded_a_thread_that_spins_has_been_on_its_core() {
    let of_cpu = |cpu| {
        let context = RecordingContext {
            server_cpus: vec![cpu],
            datagram_ids: true,
            hooks: vec![Hook {
                stamp: "switch".into(),
                hook: "tp_btf/sched_switch".into(),
                lost_precision: None,
            }],
            ..RecordingContext::default()
        };
        let mut recording = Recording {
            context,
            ..Recording::default()
        };
        recording.insert(events(SPINS));
        match_recording(&recording).unwrap()
    };
    // what it did before its first request is not known
    let m = of_cpu(0);
    assert_eq!(
        all(&m),
        [[100, 110, 0, 120, 150, 155], [160, 165, 165, 170, 180, 185]]
    );
    assert!(m.blind.is_empty());
    // the switches of another CPU say nothing about this one
    assert_eq!(of_cpu(1).counts(START).missing_middle, [0, 2, 0, 0]);
}

#[test]
fn a_missing_middle_stamp_drops_no_request() {
    let m = matched(
        "100 1 in p1 k7
         155 0 out 9 k7",
    );
    assert_eq!(all(&m), [[100, 0, 0, 0, 0, 155]]);
    let counts = m.counts(START);
    assert_eq!(
        (counts.matched, counts.complete, counts.out_of_order),
        (1, 0, 0)
    );
    assert_eq!(counts.missing_middle, [1; 4]);
}

#[test]
fn read_and_write_are_used_up_by_the_response() {
    let stamps = after(
        "100 1 in p1 k7
         101 1 in p2 k8
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         175 0 out 9 k8",
    );
    assert_eq!(stamps[0][3..], [120, 150, 155]);
    assert_eq!(stamps[1][3..], [0, 0, 175]);
}

#[test]
fn a_second_read_takes_the_first_ones_place_and_drops_its_write() {
    let stamps = after(
        "100 1 in p1 k7
         120 0 read 9
         150 0 write 9
         160 0 read 9
         175 0 out 9 k7",
    );
    assert_eq!(stamps, [[100, 0, 0, 160, 0, 175]]);
}

#[test]
fn a_recycled_packet_id_names_the_latest_packet() {
    let stamps = after(
        "100 1 in p1 k7
         110 0 queued p1
         120 0 read 9
         130 1 in p1 k8
         140 0 queued p1
         155 0 out 9 k7
         160 0 read 9
         175 0 out 9 k8",
    );
    assert_eq!((stamps[0][1], stamps[1][1]), (110, 140));
}

#[test]
fn a_queued_packet_whose_arrival_was_not_seen_belongs_to_nobody() {
    let stamps = after(
        "100 1 in p1 k7
         155 0 out 9 k7
         160 0 queued p1
         161 1 in p2 k8
         165 0 queued p2
         166 0 queued p2
         175 0 out 9 k8",
    );
    assert_eq!((stamps[0][1], stamps[1][1]), (0, 165));
}

#[test]
fn stamps_out_of_order_are_kept_and_counted_and_no_time_is_negative() {
    let m = matched(
        "100 1 in p1 k7
         120 0 read 9
         30130 0 queued p1
         30150 0 write 9
         30155 0 out 9 k7",
    );
    assert_eq!(all(&m), [[100, 30130, 0, 120, 30150, 30155]]);
    assert_eq!(m.requests.get(0).server.sojourn(), Some(Nanos::new(30055)));
    let counts = m.counts(START);
    assert_eq!(
        (counts.matched, counts.complete, counts.out_of_order),
        (1, 0, 1)
    );
}

/// A reader on another CPU than the hook of T2 may get the datagram before T2 is stamped.
#[test]
fn a_datagram_that_is_read_before_its_stamp_was_queued_by_then() {
    let m = matched(
        "90 0 switch 0>9
         100 1 in p1 k7
         110 1 in p2 k8
         120 0 read 9
         125 1 queued p1
         128 1 queued p2
         130 0 read 9
         140 0 write 9
         141 0 out 9 k7
         150 0 write 9
         151 0 out 9 k8",
    );
    assert_eq!(
        all(&m),
        [[100, 120, 0, 120, 140, 141], [110, 128, 128, 130, 150, 151]]
    );
    assert_eq!(m.counts(START).out_of_order, 0);
}

#[test]
fn a_response_without_a_request_is_counted_and_matched_to_none() {
    let m = matched(
        "80 1 in p0 k6
         90 0 out 9 k6
         100 1 in p1 k7
         155 0 out 9 k8",
    );
    let counts = m.counts(START);
    assert_eq!(
        (counts.responses, counts.matched, counts.unanswered),
        (2, 1, 1)
    );
    assert_eq!((m.without_request, m.from_before), (vec![at(155)], 0));
}

#[test]
fn what_a_thread_answers_first_may_be_from_before_the_recording() {
    let script = "100 1 in p1 k7
         155 0 out 9 k8
         160 0 out 9 k7
         170 0 out 9 k8";
    let m = matched(script);
    let counts = m.counts(START);
    assert_eq!((counts.responses, counts.matched), (2, 1));
    assert_eq!((m.without_request, m.from_before), (vec![at(170)], 1));
}

#[test]
fn the_same_id_of_another_port_is_another_request() {
    let mut stream = events(
        "100 1 in p1 k7
         101 1 in p2 k7
         155 0 out 9 k7",
    );
    if let taillab_model::EventKind::PacketIn { key, .. } = &mut stream[1].kind {
        key.connection += 1;
    }
    let m = match_events(stream, &MatchOptions::default());
    assert_eq!(m.keys, [key(7)]);
    assert_eq!(m.requests.get(0).server.t1, at(100));
    let other = RequestKey::hashed(0, 40_001, 7);
    assert_eq!(m.unmatched[0].key, other);
}

#[test]
fn a_key_in_use_twice_is_ambiguous_and_neither_is_matched() {
    let m = matched(
        "100 1 in p1 k7
         101 1 in p2 k7
         155 0 out 9 k7
         175 0 out 9 k7",
    );
    assert!(m.requests.is_empty());
    let counts = m.counts(START);
    assert_eq!((counts.responses, counts.ambiguous), (2, 2));
    // each has a response; it is only not known which
    assert_eq!(counts.unanswered, 0);
    assert_eq!(m.unmatched.iter().filter(|u| u.ambiguous).count(), 2);
}

#[test]
fn of_two_with_one_key_and_one_response_one_is_unanswered() {
    let m = matched(
        "100 1 in p1 k7
         101 1 in p2 k7
         155 0 out 9 k7",
    );
    let counts = m.counts(START);
    assert_eq!((counts.ambiguous, counts.unanswered), (1, 1));
}

#[test]
fn a_lost_response_does_not_spoil_the_next_use_of_its_key() {
    let m = matched(
        "100 1 in p1 k7
         5000 1 in p2 k8
         5010 0 out 9 k8
         6000 1 in p3 k7
         6010 0 out 9 k7",
    );
    // thread 9 has answered a request that came 4.9 µs after the one whose response was lost
    assert_eq!(m.keys, [key(8), key(7)]);
    assert_eq!(m.requests.get(1).server.t1, at(6000));
    assert_eq!(m.unmatched[0].t1, at(100));
    assert_eq!(m.counts(START).unanswered, 1);
}

#[test]
fn what_another_thread_may_still_have_in_hand_stays_ambiguous() {
    let m = matched(
        "100 1 in p1 k7
         5000 1 in p2 k8
         5010 0 out 9 k8
         6000 1 in p3 k7
         6010 2 out 10 k7",
    );
    assert_eq!(m.keys, [key(8)]);
    assert_eq!(m.counts(START).ambiguous, 1);
}

#[test]
fn a_response_long_after_the_only_request_with_its_key_is_not_its() {
    let m = matched(
        "100 1 in p1 k7
         2000000 0 out 9 k7",
    );
    assert!(m.requests.is_empty());
    assert_eq!(m.counts(START).unanswered, 1);
}

#[test]
fn a_switch_from_a_thread_that_was_not_on_the_core_shows_a_blind_window() {
    let m = matched(
        "100 0 switch 5>0
         200 0 switch 0>1
         300 1 in p1 k7
         310 0 queued p1
         500 0 switch 4>0
         600 0 switch 0>9
         700 0 out 9 k7
         800 1 in p1 k8
         900 0 out 9 k8",
    );
    // Not from 310: the probe saw that packet, but not who was current.
    assert_eq!(m.blind.len(), 1);
    assert_eq!((m.blind[0].from, m.blind[0].to), (at(200), at(500)));
    let counts = m.counts(START);
    assert_eq!(
        (counts.blind_windows, counts.blind_ns),
        (1, Nanos::new(300))
    );
    assert_eq!(counts.blind_requests, 1);
}

#[test]
fn a_call_of_a_thread_that_was_not_on_the_core_closes_the_window() {
    let m = matched(
        "200 0 switch 0>1
         300 0 read 9
         400 0 write 9
         500 0 switch 9>0",
    );
    assert_eq!(m.blind.len(), 1);
    assert_eq!((m.blind[0].from, m.blind[0].to), (at(200), at(300)));
}

#[test]
fn each_cpu_has_its_own_windows_and_its_first_switch_shows_none() {
    let m = matched(
        "100 0 switch 5>6
         110 1 switch 7>8
         120 2 read 9
         130 2 switch 3>4
         140 1 switch 6>5
         150 0 switch 6>5",
    );
    assert_eq!(m.blind.len(), 1);
    assert_eq!((m.blind[0].from, m.blind[0].to), (at(110), at(140)));
}

#[test]
fn the_warm_up_counts_nowhere() {
    let m = matched(
        "100 1 in p1 k7
         110 0 out 9 k7
         120 0 switch 0>1
         140 0 switch 2>0
         200 1 in p2 k8
         210 0 out 9 k8
         220 1 in p3 k9",
    );
    let counts = m.counts(at(200));
    assert_eq!(
        (counts.responses, counts.matched, counts.unanswered),
        (1, 1, 1)
    );
    // the call at 210 contradicts the switch at 140: blind from 200 on, in the measurement
    assert_eq!((counts.blind_windows, counts.blind_ns), (1, Nanos::new(10)));
    assert_eq!(m.measured(at(200)).count(), 1);
}

#[test]
fn further_datagrams_of_a_response_move_its_t6() {
    let stamps = after(
        "100 1 in p1 k7
         110 0 queued p1
         115 0 switch 0>9
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         160 0 write 9
         165 0 out 9 k7
         200 1 in p2 k8
         210 0 queued p2
         220 0 read 9
         230 0 write 9
         235 0 out 9 k8",
    );
    assert_eq!(stamps[0], [100, 110, 115, 120, 150, 165]);
    assert_eq!(stamps[1], [200, 210, 210, 220, 230, 235]);
}

#[test]
fn a_datagram_after_the_thread_has_read_or_slept_is_no_further_one() {
    for between in ["160 0 read 9", "160 0 switch 9>0"] {
        let m = matched(&format!(
            "{BEFORE}
             100 1 in p1 k7
             115 0 switch 0>9
             120 0 read 9
             155 0 out 9 k7
             {between}
             165 0 out 9 k7"
        ));
        assert_eq!(all(&m)[1][5], 155, "{between}");
        assert_eq!(m.without_request, [at(165)], "{between}");
    }
}

#[test]
fn t3_of_a_thread_that_reads_on_before_it_answers_is_its_previous_read() {
    // like Redis: everything that is ready is read, and then everything is answered
    let stamps = after(
        "100 1 in p1 k7
         101 1 in p2 k8
         110 0 queued p1
         111 0 queued p2
         115 0 switch 0>9
         120 0 read 9
         130 0 read 9
         150 0 write 9
         155 0 out 9 k8",
    );
    assert_eq!(stamps, [[101, 111, 120, 130, 150, 155]]);
}

#[test]
fn of_threads_that_share_a_socket_each_has_the_reads_of_its_own_batch() {
    let script = |answers: &str| {
        let stamps = after(&format!(
            "100 1 in p1 k7
             101 1 in p2 k8
             102 1 in p3 k9
             103 1 in p4 k10
             110 0 queued p1
             111 0 queued p2
             112 0 queued p3
             113 0 queued p4
             115 0 switch 0>9
             116 2 switch 0>8
             120 0 read 9
             121 0 read 9
             130 2 read 8
             131 2 read 8
             {answers}
             150 0 write 9
             151 0 out 9 k7
             152 0 out 9 k8"
        ));
        stamps.iter().map(|stamps| stamps[3]).collect::<Vec<u64>>()
    };
    let in_order = script("140 2 write 8\n141 2 out 8 k9\n142 2 out 8 k10");
    assert_eq!(in_order, [120, 121, 130, 131]);
    let the_last_first = script("140 2 write 8\n141 2 out 8 k10\n142 2 out 8 k9");
    assert_eq!(the_last_first, [120, 121, 130, 131]);
}

#[test]
fn the_worker_is_who_wrote_or_else_who_read_or_else_nobody_known() {
    let m = matched(
        "100 1 in p1 k7
         120 0 read 9
         150 0 write 9
         155 0 out 9 k7
         200 1 in p2 k8
         220 0 read 9
         255 0 out 9 k8
         300 1 in p3 k9
         355 0 out 9 k9",
    );
    assert_eq!(m.workers, [9, 9, 0]);
}
