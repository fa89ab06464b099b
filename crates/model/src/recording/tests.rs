mod damaged;
mod files;
mod golden;
mod hostile;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::packed::kind;
use super::*;
use crate::Nanos;
use crate::{AddressPart, Asleep, EventKind, Interrupt, PacketId, RequestKey, SendLimit};

fn at(n: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(n)
}

/// Whether the reader of a damaged file inserted it.
fn is_of_reader(event: &Event) -> bool {
    matches!(event.kind, EventKind::Unreadable { .. })
}

/// A recording of these events.
fn of_events(events: impl IntoIterator<Item = Event>, lost: LostEvents) -> Recording {
    let events: Vec<Event> = events.into_iter().collect();
    let base = events.iter().map(|event| event.at).min();
    let mut recording = Recording {
        base: base.unwrap_or(at(0)),
        lost,
        ..Recording::default()
    };
    recording.insert(events);
    recording
}

/// Preempted; asleep, and not known how; or asleep, and known how.
fn sleeps() -> impl Strategy<Value = (bool, Option<Asleep>)> {
    prop_oneof![
        Just((true, None)),
        Just((false, None)),
        (prop::option::of(0_u16..1023), any::<[bool; 2]>()).prop_map(
            |(call, [uninterruptible, stopped])| {
                let asleep = Asleep {
                    call,
                    uninterruptible,
                    stopped,
                };
                (false, Some(asleep))
            }
        ),
    ]
}

fn disturbances() -> impl Strategy<Value = EventKind> {
    let lasted = || any::<u32>().prop_map(|ns| Nanos::new(ns.into()));
    let interrupt = prop_oneof![
        (0_u32..1 << 31).prop_map(Interrupt::Device),
        Just(Interrupt::LocalTimer),
        Just(Interrupt::Reschedule),
        Just(Interrupt::CallFunction),
        Just(Interrupt::IrqWork),
        Just(Interrupt::Other),
    ];
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(tid, by)| EventKind::Woken { tid, by }),
        any::<(u32, u16)>().prop_map(|(tid, to)| EventKind::Migrated { tid, to }),
        (interrupt, lasted())
            .prop_map(|(interrupt, lasted)| EventKind::Interrupt { interrupt, lasted }),
        (any::<u8>(), lasted()).prop_map(|(vector, lasted)| EventKind::Softirq { vector, lasted }),
        (any::<u8>(), lasted()).prop_map(|(state, lasted)| EventKind::IdleLeft { state, lasted }),
        any::<(u32, bool)>().prop_map(|(tid, write)| EventKind::PageFault { tid, write }),
        any::<u32>().prop_map(|tid| EventKind::MajorFault { tid }),
        (0_u32..1 << 22, 0_u16..1_023, lasted())
            .prop_map(|(tid, call, waited)| EventKind::StorageWaited { tid, call, waited }),
        (0_u32..1 << 22, 0_u16..1_024, lasted()).prop_map(|(tid, server, waited)| {
            EventKind::UpstreamAnswered {
                tid,
                server,
                waited,
            }
        }),
        (any::<(u32, u8)>(), lasted()).prop_map(|((tid, flags), waited)| EventKind::LockTaken {
            tid,
            flags,
            waited
        }),
        any::<u32>().prop_map(|khz| EventKind::Frequency { khz }),
        (0_u32..1 << 24).prop_map(|connection| EventKind::Retransmitted {
            key: RequestKey { connection, id: 0 }
        }),
        announcements(),
        lasted().prop_map(|lasted| EventKind::Stolen { lasted }),
        lasted().prop_map(|lasted| EventKind::Stalled { lasted }),
        lasted().prop_map(|lasted| EventKind::Throttled { lasted }),
        lasted().prop_map(|lasted| EventKind::Unreadable { lasted }),
        (any::<[u8; 8]>(), 1_u8..=8, any::<bool>()).prop_map(|(mut bytes, len, response)| {
            bytes[usize::from(len)..].fill(0);
            EventKind::Payload {
                bytes,
                len,
                response,
            }
        }),
    ]
}

fn announcements() -> impl Strategy<Value = EventKind> {
    let parts = prop_oneof![
        any::<([u8; 4], u16)>().prop_map(|(address, port)| {
            AddressPart::V4(std::net::SocketAddrV4::new(address.into(), port))
        }),
        (0_u8..3, any::<[u8; 6]>()).prop_map(|(part, bytes)| AddressPart::V6(part, bytes)),
    ];
    (0_u32..1 << 24, parts).prop_map(|(connection, part)| EventKind::Announced { connection, part })
}

fn kinds() -> impl Strategy<Value = EventKind> {
    let key = || {
        (0_u32..1 << 24, any::<u16>()).prop_map(|(connection, id)| RequestKey { connection, id })
    };
    prop_oneof![
        (any::<u32>(), key()).prop_map(|(p, key)| EventKind::PacketIn {
            packet: PacketId(p),
            key
        }),
        any::<u32>().prop_map(|p| EventKind::Enqueued {
            packet: PacketId(p)
        }),
        any::<bool>().prop_map(|begins| EventKind::Slice { begins }),
        any::<u32>().prop_map(|tid| EventKind::CameOn { tid }),
        any::<(u32, u32)>().prop_map(|(tid, returned)| EventKind::ReadReturned { tid, returned }),
        (0_u32..1 << 31).prop_map(|tid| EventKind::WriteCalled { tid }),
        (0_u32..1 << 22, key()).prop_map(|(tid, key)| EventKind::ReadByOther { tid, key }),
        (any::<u32>(), key()).prop_map(|(tid, key)| EventKind::SegmentWritten { tid, key }),
        (any::<u32>(), key()).prop_map(|(tid, key)| EventKind::PacketOut { tid, key }),
        (0_u32..1 << 22, any::<u32>(), sleeps()).prop_map(|(prev, next, (preempted, asleep))| {
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep,
            }
        }),
        disturbances(),
        (key(), 0_u32..1 << 31, any::<bool>())
            .prop_map(|(key, bytes, push)| EventKind::SegmentIn { key, bytes, push }),
        key().prop_map(|key| EventKind::SegmentQueued { key }),
        (key(), 0_u32..1 << 31, any::<bool>())
            .prop_map(|(key, number, left)| EventKind::DeviceQueue { key, number, left }),
        (0_u32..1 << 22, key(), 0_u16..1024).prop_map(|(tid, key, bytes_mod_1024)| {
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            }
        }),
        segments_out(key()),
    ]
}

fn segments_out(key: impl Strategy<Value = RequestKey>) -> impl Strategy<Value = EventKind> {
    let limit = prop_oneof![
        Just(None),
        Just(Some(SendLimit::ClientWindow)),
        Just(Some(SendLimit::CongestionWindow)),
    ];
    (0_u32..1 << 22, key, any::<(bool, bool)>(), limit).prop_map(
        |(tid, key, (more, resent), limit)| EventKind::SegmentOut {
            tid,
            key,
            more,
            resent,
            limit,
        },
    )
}

/// Few different times and CPUs, so that ties occur.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (1_u64..40, 0_u16..4, kinds());
    let event = event.prop_map(|(n, cpu, kind)| Event {
        at: at(n),
        cpu,
        kind,
    });
    prop::collection::vec(event, 0..200)
}

fn losses() -> LostEvents {
    LostEvents {
        ring_full: 3,
        recursion: 2,
        unreadable: 1,
        damaged: 0,
    }
}

/// `n` events of one CPU.
fn simple(n: u64) -> Vec<Event> {
    let event = |i| Event {
        at: at(1 + i),
        cpu: 1,
        kind: EventKind::WriteCalled { tid: i as u32 },
    };
    (0..n).map(event).collect()
}

/// The eBPF programs use the numbers of the packed events, and the tests below try every kind.
#[test]
fn every_kind_has_one_number_and_is_drawn() {
    const PROGRAMS: &str = include_str!("../../../probe/src/bpf/common.bpf.h");
    const PACKED: &str = include_str!("packed.rs");
    let (_, kinds_of_programs) = PROGRAMS.split_once("enum kind {").unwrap();
    let (kinds_of_programs, _) = kinds_of_programs.split_once('}').unwrap();
    for kind in kinds_of_programs
        .split(',')
        .map(str::trim)
        .filter(|kind| !kind.is_empty())
    {
        let (name, number) = kind.split_once(" = ").unwrap();
        let constant = format!("const {name}: u8 = {number};");
        assert!(PACKED.contains(&constant), "packed.rs has no `{constant}`");
    }
    let constants = PACKED
        .lines()
        .take_while(|line| !line.contains("const LAST"));
    let constants = constants.filter(|line| line.contains(": u8 = ")).count();
    assert_eq!(
        constants,
        usize::from(kind::LAST),
        "`LAST` is not the last kind"
    );
    let mut runner = TestRunner::deterministic();
    let mut drawn = |_| {
        let kind = kinds().new_tree(&mut runner).unwrap().current();
        PackedEvent::new(Nanos::ZERO, kind).words()[0] >> 56
    };
    let drawn: BTreeSet<u64> = (0..20_000).map(&mut drawn).collect();
    let missing: Vec<_> = (1..=u64::from(kind::LAST))
        .filter(|n| !drawn.contains(n))
        .collect();
    assert!(
        missing.is_empty(),
        "no strategy above draws the kinds {missing:?}"
    );
}

proptest! {
    #[test]
    fn packing_loses_nothing(n in 0_u64..1 << 48, kind in kinds()) {
        let packed = PackedEvent::new(Nanos::new(n), kind);
        prop_assert_eq!(packed.since_base(), Nanos::new(n));
        prop_assert_eq!(packed.kind(), kind);
        prop_assert_eq!(PackedEvent::from_words(packed.words()), Some(packed));
    }

    #[test]
    fn words_of_unknown_kind_are_no_event(head: u64, values: u64) {
        let known = (1..=u64::from(kind::LAST)).contains(&(head >> 56));
        prop_assert_eq!(PackedEvent::from_words([head, values]).is_some(), known);
    }

    #[test]
    fn merging_is_a_stable_sort_by_time_then_cpu(events in events()) {
        let mut expected = events.clone();
        expected.sort_by_key(|e| (e.at, e.cpu));
        let merged = of_events(events, LostEvents::default()).into_events();
        prop_assert_eq!(merged.size_hint(), (expected.len(), Some(expected.len())));
        prop_assert_eq!(merged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn looking_at_the_events_is_taking_them(events in events()) {
        let recording = of_events(events, LostEvents::default());
        let looked_at: Vec<Event> = recording.events().collect();
        prop_assert_eq!(looked_at, recording.into_events().collect::<Vec<_>>());
    }

    #[test]
    fn events_are_inserted_where_their_time_belongs(old in events(), new in events()) {
        let mut recording = of_events(old.clone(), LostEvents::default());
        let base = recording.base;
        recording.insert(new.clone());
        let new = new.into_iter().map(|event| Event { at: event.at.max(base), ..event });
        let mut expected: Vec<Event> = old.into_iter().chain(new).collect();
        expected.sort_by_key(|event| (event.at, event.cpu));
        prop_assert_eq!(recording.events().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn events_that_come_from_several_cpus_are_put_in_order(
        events in events(), parts in prop::collection::vec(1_usize..30, 1..20)
    ) {
        let base = at(0);
        let mut sorted = events.clone();
        sorted.sort_by_key(|event| (event.at, event.cpu));
        let mut order = EventOrder::new(base);
        let mut out = Vec::new();
        let mut by_time = events;
        by_time.sort_by_key(|event| event.at);
        let mut rest = by_time.as_slice();
        for part in parts.iter().cycle() {
            let (now, later) = rest.split_at((*part).min(rest.len()));
            // CPU by CPU, as a probe's rings are drained
            for cpu in 0..4 {
                let of = |event: &&Event| event.cpu == cpu;
                let packed = |event: &Event| PackedEvent::new(event.at.saturating_since(base), event.kind);
                let events: Vec<PackedEvent> = now.iter().filter(of).map(packed).collect();
                order.take(cpu, &events).unwrap();
            }
            let Some(next) = later.first() else { break };
            order.settle(next.at.saturating_since(base)).unwrap();
            while let Some(event) = order.next_settled() {
                prop_assert!(event.at < next.at);
                out.push(event);
            }
            rest = later;
        }
        order.settle(Nanos::MAX).unwrap();
        out.extend(std::iter::from_fn(|| order.next_settled()));
        prop_assert_eq!(out, sorted);
    }
}

#[test]
fn the_wire_format_is_what_the_programs_write() {
    let packed = PackedEvent::new(
        Nanos::new(0x3456_789a_bcde),
        EventKind::PacketIn {
            packet: PacketId(0xdead_beef),
            key: RequestKey {
                connection: 0x12_1234,
                id: 0x5678,
            },
        },
    );
    assert_eq!(
        packed.words(),
        [0x0112_3456_789a_bcde, 0x1234_5678_dead_beef]
    );
    let announced = |address: &str| {
        let parts = AddressPart::of(address.parse().unwrap());
        let kinds = parts.into_iter().map(|part| EventKind::Announced {
            connection: 0x12_3456,
            part,
        });
        let words = kinds.map(|kind| PackedEvent::new(Nanos::new(7), kind).words());
        words.collect::<Vec<_>>()
    };
    assert_eq!(
        announced("10.1.2.3:8000"),
        [[0x2012_0000_0000_0007, 0x3456_1f40_0a01_0203]]
    );
    assert_eq!(
        announced("[1:203:405:607:809:a0b:c0d:e0f]:8000"),
        [
            [0x2112_0000_0000_0007, 0x3456_1f40_0001_0203],
            [0x2212_0000_0000_0007, 0x3456_0405_0607_0809],
            [0x2312_0000_0000_0007, 0x3456_0a0b_0c0d_0e0f],
        ]
    );
    assert_eq!(size_of::<PackedEvent>(), 16);
}

#[test]
fn an_empty_stream_is_no_obstacle() {
    let event = PackedEvent::new(Nanos::new(5), EventKind::WriteCalled { tid: 7 });
    let recording = Recording {
        streams: vec![
            CpuStream::new(0, Vec::new()),
            CpuStream::new(1, vec![event]),
        ],
        ..Recording::default()
    };
    let events: Vec<Event> = recording.into_events().collect();
    assert_eq!(events, [event.on_cpu(at(0), 1)]);
    assert_eq!(Recording::default().into_events().next(), None);
}

/// A recording as a sink: an interrupt's event came too late, and CPUs come in any order.
#[test]
fn what_is_recorded_in_memory_is_in_order() {
    let mut recording = Recording::default();
    let packed = |n| PackedEvent::new(Nanos::new(n), EventKind::WriteCalled { tid: n as u32 });
    recording.take(2, &[packed(3), packed(9)]).unwrap();
    recording.take(0, &[packed(5)]).unwrap();
    recording.take(2, &[packed(7), packed(11)]).unwrap();
    let times: Vec<(u64, u16)> = (recording.events())
        .map(|event| (event.at.nanos_since_boot(), event.cpu))
        .collect();
    assert_eq!(times, [(3, 2), (5, 0), (7, 2), (9, 2), (11, 2)]);
}
