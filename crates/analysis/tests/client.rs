//! The join with the client's records.

use crate::common;

use common::script::{at, events};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    ClientJoin, ClientRecord, ClientRecords, DatagramIds, MatchOptions, Matched, Window,
    match_events,
};
use taillab_model::{ClientTimes, Monotonic, Operation, SentKey};

fn ids() -> MatchOptions {
    MatchOptions {
        datagram_ids: Some(DatagramIds::Ids),
        ..MatchOptions::default()
    }
}

/// A record sent at `sent`, due one before, answered at `received` (0: never).
fn record(id: u16, sent: u64, received: u64) -> ClientRecord {
    ClientRecord {
        key: SentKey { port: 40_000, id },
        times: ClientTimes {
            intended: at(sent - 1),
            sent: at(sent),
            received: (received > 0).then(|| at(received)),
        },
        operation: Operation::Get,
    }
}

/// The requests of a script, joined to these records as one window.
fn joined(script: &str, records: &[ClientRecord], from: Monotonic) -> (Matched, ClientJoin) {
    let matched = match_events(events(script), &ids());
    let mut window = Window::whole(matched, Timeline::default());
    ClientRecords::new(records.iter().copied(), None, from).join(&mut window);
    let join = window.matched.client.unwrap();
    (window.matched, join)
}

fn join(script: &str, records: &[ClientRecord], from: Monotonic) -> (Vec<u64>, ClientJoin) {
    let (matched, join) = joined(script, records, from);
    let counts = matched.counts(from);
    assert_eq!(counts.client_responses, join.responses);
    assert_eq!(counts.client_matched, join.matched);
    let sent = matched
        .requests
        .iter()
        .map(|r| r.client.map_or(0, |c| c.sent.nanos_since_boot()))
        .collect();
    (sent, join)
}

const TWO_USES: &str = "100 1 in p1 k7
     110 0 out 9 k7
     200 1 in p1 k7
     210 0 out 9 k7";

#[test]
fn each_use_of_a_key_finds_its_own_request() {
    let records = [record(7, 99, 111), record(7, 199, 211)];
    let (sent, join) = join(TWO_USES, &records, at(0));
    assert_eq!(sent, [99, 199]);
    assert_eq!((join.responses, join.matched, join.unexplained), (2, 2, 0));
}

#[test]
fn a_request_that_the_probe_did_not_see_does_not_shift_the_others() {
    let records = [record(7, 49, 61), record(7, 99, 111), record(7, 199, 211)];
    let (sent, join) = join(TWO_USES, &records, at(0));
    assert_eq!(sent, [99, 199]);
    // the independent check: three responses arrived, the probe has two
    assert_eq!((join.responses, join.matched), (3, 2));
}

#[test]
fn a_response_later_than_the_client_read_it_is_not_that_records() {
    let records = [record(7, 99, 105), record(7, 199, 211)];
    let (sent, join) = join(TWO_USES, &records, at(0));
    assert_eq!(sent, [0, 199]);
    assert_eq!((join.matched, join.unexplained), (1, 1));
}

#[test]
fn a_request_that_the_client_gave_up_keeps_its_times_and_is_no_response() {
    let records = [record(7, 99, 0), record(7, 199, 211)];
    let (sent, join) = join(TWO_USES, &records, at(0));
    assert_eq!(sent, [99, 199]);
    assert_eq!((join.responses, join.matched), (1, 1));
}

#[test]
fn one_record_explains_one_request() {
    let (sent, join) = join(TWO_USES, &[record(7, 99, 300)], at(0));
    assert_eq!(sent, [99, 0]);
    assert_eq!((join.responses, join.matched, join.unexplained), (1, 1, 1));
}

#[test]
fn responses_that_nobody_saw_at_the_end_are_counted_too() {
    let records = [record(7, 99, 111), record(7, 199, 211), record(7, 299, 311)];
    let (_, join) = join(TWO_USES, &records, at(0));
    assert_eq!((join.responses, join.matched), (3, 2));
}

#[test]
fn the_measurement_begins_with_the_intended_send() {
    let records = [record(7, 99, 111), record(7, 199, 211)];
    let (matched, join) = joined(TWO_USES, &records, at(98));
    assert_eq!(join.responses, 2);
    assert_eq!(matched.measured(at(98)).count(), 2);
    // due at 98, came in at 100: due before the measurement, so it is warm-up
    assert_eq!(matched.measured(at(99)).count(), 1);
    let (_, join) = joined(TWO_USES, &records, at(99));
    assert_eq!((join.responses, join.matched), (1, 1));
}
