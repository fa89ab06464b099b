//! The Perfetto trace, read by a decoder of its own: field numbers as in Perfetto's
//! `trace_packet.proto`, `track_event.proto` and `track_descriptor.proto`.

use std::collections::HashMap;

use taillab_model::explanation::SlowRequest;
use taillab_model::{Monotonic, Nanos};
use taillab_report::perfetto;

use crate::common;

/// One field of a message: its number and what it holds.
#[derive(Clone, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (own, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Number(u64::from_le_bytes(*own))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(own)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    fields(message)
        .into_iter()
        .find_map(|(n, value)| match value {
            Field::Number(value) if n == field => Some(value),
            _ => None,
        })
}

fn bytes(message: &[u8], field: u64) -> Option<&[u8]> {
    fields(message)
        .into_iter()
        .find_map(|(n, value)| match value {
            Field::Bytes(value) if n == field => Some(value),
            _ => None,
        })
}

fn text(message: &[u8], field: u64) -> Option<String> {
    bytes(message, field).map(|text| String::from_utf8(text.to_vec()).unwrap())
}

#[derive(Clone, Debug)]
struct Track {
    name: String,
    parent: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Slice {
    track: u64,
    name: String,
    from: u64,
    to: u64,
    flow: Option<u64>,
    depth: usize,
}

/// The tracks and the slices; checks on the way that the first packet declares the clock, that
/// packets are in order of time, that every event is on a described track and that slices nest.
fn decode(trace: &[u8]) -> (HashMap<u64, Track>, Vec<Slice>) {
    let mut tracks = HashMap::new();
    let mut open: HashMap<u64, Vec<(String, u64, Option<u64>)>> = HashMap::new();
    let mut slices = Vec::new();
    let mut now = 0;
    for (i, (field, packet)) in fields(trace).into_iter().enumerate() {
        let Field::Bytes(packet) = packet else {
            panic!("a packet is a message");
        };
        assert_eq!(field, 1, "Trace.packet");
        assert_eq!(number(packet, 10), Some(1), "trusted_packet_sequence_id");
        // SEQ_INCREMENTAL_STATE_CLEARED in the first packet only
        assert_eq!(number(packet, 13), (i == 0).then_some(1), "sequence_flags");
        if i == 0 {
            let snapshot = bytes(packet, 6).unwrap();
            assert_eq!(number(snapshot, 2), Some(3), "primary_trace_clock");
            assert_eq!(number(bytes(snapshot, 1).unwrap(), 1), Some(3), "clock_id");
            let defaults = bytes(packet, 59).unwrap();
            assert_eq!(number(defaults, 58), Some(3), "timestamp_clock_id");
            continue;
        }
        if let Some(descriptor) = bytes(packet, 60) {
            let track = Track {
                name: text(descriptor, 2).unwrap(),
                parent: number(descriptor, 5),
            };
            if let Some(parent) = track.parent {
                assert!(
                    tracks.contains_key(&parent),
                    "{parent} comes after {track:?}"
                );
            }
            let uuid = number(descriptor, 1).unwrap();
            assert!(uuid != 0 && tracks.insert(uuid, track).is_none());
            continue;
        }
        let event = bytes(packet, 11).unwrap();
        let at = number(packet, 8).unwrap();
        assert!(at >= now, "{at} after {now}");
        now = at;
        let track = number(event, 11).unwrap();
        assert!(tracks.contains_key(&track));
        let stack = open.entry(track).or_default();
        match number(event, 9).unwrap() {
            1 => stack.push((text(event, 23).unwrap(), at, number(event, 47))),
            2 => {
                let (name, from, flow) = stack.pop().unwrap();
                slices.push(Slice {
                    track,
                    name,
                    from,
                    to: at,
                    flow,
                    depth: stack.len(),
                });
            }
            other => panic!("event of type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "a slice does not end");
    (tracks, slices)
}

fn requests() -> Vec<SlowRequest> {
    let started = Monotonic::from_nanos_since_boot(86_400_000_000_000);
    (0..6)
        .map(|i| common::explained::slow_request(i, started))
        .collect()
}

fn on<'a>(
    tracks: &HashMap<u64, Track>,
    slices: &'a [Slice],
    parent: &str,
    name: &str,
) -> Vec<&'a Slice> {
    let (&uuid, _) = tracks
        .iter()
        .find(|(_, track)| {
            track.name == name && track.parent.is_some_and(|p| tracks[&p].name == parent)
        })
        .unwrap_or_else(|| panic!("no track {name} in {parent}"));
    slices.iter().filter(|slice| slice.track == uuid).collect()
}

#[test]
fn each_request_has_its_stages_and_its_causes() {
    let requests = requests();
    let (tracks, slices) = decode(&perfetto::trace("pid 4711 (memcached)", &requests));
    assert!(
        tracks
            .values()
            .any(|t| t.name == "taillab: pid 4711 (memcached)" && t.parent.is_none())
    );
    for (i, request) in requests.iter().enumerate() {
        let t1 = request.t1.nanos_since_boot();
        let t6 = t1 + request.sojourn_ns.get();
        let name = format!("#{}: {}", i + 1, request.sojourn_ns);
        let own = on(&tracks, &slices, "Slowest requests", &name);
        let whole: Vec<_> = own.iter().filter(|slice| slice.depth == 0).collect();
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].from, whole[0].to), (t1, t6));
        let stages: Vec<_> = own.iter().filter(|slice| slice.depth == 1).collect();
        let names: Vec<&str> = stages.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "T1–T2 stack receive",
                "T2–T3 queueing and wake-up",
                "T3–T4 copy and return",
                "T4–T5 application",
                "T5–T6 transmit"
            ]
        );
        assert_eq!(stages[0].from, t1);
        assert!(stages.windows(2).all(|pair| pair[0].to == pair[1].from));
        assert_eq!(stages[4].to, t6);

        let why = on(&tracks, &slices, &name, "why");
        assert_eq!(why.len(), request.stretches.len());
        for (slice, stretch) in why.iter().zip(&request.stretches) {
            assert_eq!(slice.from, t1 + stretch.from_ns.get());
            assert_eq!(slice.to - slice.from, stretch.lasted_ns.get());
            assert!(slice.name.starts_with(stretch.cause.label()));
        }
    }
    let first = on(
        &tracks,
        &slices,
        &format!("#1: {}", requests[0].sojourn_ns),
        "why",
    );
    assert_eq!(
        first[1].name,
        "other threads on the core: kworker/0:1 (pid 12)"
    );
}

/// Requests that overlap share activities; each is in the trace once.
#[test]
fn cpus_have_each_activity_once() {
    let requests = requests();
    let (tracks, slices) = decode(&perfetto::trace("x", &requests));
    for cpu in ["CPU 0", "CPU 1"] {
        let mut own = on(&tracks, &slices, "CPUs during the slowest requests", cpu);
        own.sort_by_key(|slice| slice.from);
        assert!(
            own.iter()
                .all(|slice| slice.depth == 0 && slice.to > slice.from)
        );
        assert!(own.windows(2).all(|pair| pair[0].to <= pair[1].from));
    }
    // three requests share each idle stretch of CPU 1
    let idle = on(
        &tracks,
        &slices,
        "CPUs during the slowest requests",
        "CPU 1",
    );
    assert_eq!(idle.len(), 2);
    assert!(idle.iter().all(|slice| slice.name == "idle"));
    let worker = on(
        &tracks,
        &slices,
        "Workers",
        "worker memcached (thread 4713)",
    );
    let first = worker
        .iter()
        .find(|slice| slice.name == "#1: T3–T6")
        .unwrap();
    let joined: Vec<_> = (slices.iter())
        .filter(|slice| slice.flow == first.flow)
        .map(|slice| (tracks[&slice.track].name.clone(), slice.from))
        .collect();
    let request = format!("#1: {}", requests[0].sojourn_ns);
    assert_eq!(joined.len(), 2, "{joined:?}");
    assert!(joined.contains(&(request, requests[0].t1.nanos_since_boot())));
}

#[test]
fn a_missing_stamp_joins_two_stages() {
    let mut requests = requests();
    requests.truncate(1);
    requests[0].stamps_ns[1] = None;
    requests[0].worker = None;
    let (tracks, slices) = decode(&perfetto::trace("x", &requests));
    let name = format!("#1: {}", requests[0].sojourn_ns);
    let own = on(&tracks, &slices, "Slowest requests", &name);
    let names: Vec<&str> = own.iter().map(|slice| slice.name.as_str()).collect();
    assert!(names.contains(&"T2–T4 several stages"), "{names:?}");
    assert!(
        !tracks
            .values()
            .any(|track| track.name.starts_with("worker "))
    );
}

#[test]
fn stamps_that_contradict_each_other_still_nest() {
    let mut requests = requests();
    requests[0].stamps_ns = [
        Some(Nanos::from_secs(1)),
        Some(Nanos::ZERO),
        None,
        Some(Nanos::new(5)),
        Some(Nanos::new(1)),
    ];
    let (_, slices) = decode(&perfetto::trace("x", &requests));
    assert!(slices.iter().all(|slice| slice.to >= slice.from));
}
