use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::packed::kind;
use super::*;
use crate::{Asleep, EventKind, Interrupt, PacketId, RequestKey};

fn at(n: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(n)
}

/// Preempted, or asleep and known how or not.
fn sleeps() -> impl Strategy<Value = (bool, Option<Asleep>)> {
    prop_oneof![
        Just((true, None)),
        Just((false, None)),
        (prop::option::of(0_u16..1023), any::<bool>()).prop_map(|(call, uninterruptible)| {
            let asleep = Asleep {
                call,
                uninterruptible,
            };
            (false, Some(asleep))
        }),
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
        (any::<(u32, u8)>(), lasted()).prop_map(|((tid, flags), waited)| EventKind::LockTaken {
            tid,
            flags,
            waited
        }),
        any::<u32>().prop_map(|khz| EventKind::Frequency { khz }),
        any::<(u8, u16)>().prop_map(|(address, port)| EventKind::Retransmitted {
            key: RequestKey {
                address,
                port,
                id: 0
            }
        }),
        lasted().prop_map(|lasted| EventKind::Stolen { lasted }),
        lasted().prop_map(|lasted| EventKind::Stalled { lasted }),
        lasted().prop_map(|lasted| EventKind::Throttled { lasted }),
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

fn kinds() -> impl Strategy<Value = EventKind> {
    let key =
        || any::<(u8, u16, u16)>().prop_map(|(address, port, id)| RequestKey { address, port, id });
    prop_oneof![
        (any::<u32>(), key()).prop_map(|(p, key)| EventKind::PacketIn {
            packet: PacketId(p),
            key
        }),
        any::<u32>().prop_map(|p| EventKind::Enqueued {
            packet: PacketId(p)
        }),
        any::<(u32, u32)>().prop_map(|(tid, returned)| EventKind::ReadReturned { tid, returned }),
        any::<u32>().prop_map(|tid| EventKind::WriteCalled { tid }),
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
        (0_u32..1 << 22, key(), 0_u16..1024).prop_map(|(tid, key, bytes_mod_1024)| {
            EventKind::SegmentRead {
                tid,
                key,
                bytes_mod_1024,
            }
        }),
        (0_u32..1 << 22, key(), any::<(bool, bool)>()).prop_map(|(tid, key, (more, resent))| {
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
            }
        }),
    ]
}

/// Few different times and CPUs, so that there are ties.
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
    }
}

fn file_of(events: Vec<Event>) -> Vec<u8> {
    let mut file = Vec::new();
    let recording = Recording::from_events(events, losses());
    recording.write(&mut file).unwrap();
    file
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
        let merged = Recording::from_events(events, LostEvents::default()).into_events();
        prop_assert_eq!(merged.size_hint(), (expected.len(), Some(expected.len())));
        prop_assert_eq!(merged.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_gives_back_what_was_written(events in events()) {
        let expected: Vec<Event> =
            Recording::from_events(events.clone(), losses()).into_events().collect();
        let read = Recording::read(file_of(events).as_slice()).unwrap();
        prop_assert_eq!(read.lost, losses());
        prop_assert_eq!(read.into_events().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_cut_off_file_is_never_taken_for_a_whole_one(events in events(), cut in 0_usize..10_000) {
        let file = file_of(events);
        let cut = cut % file.len();
        match Recording::read(&file[..cut]) {
            Err(RecordingError::NotARecording) => prop_assert!(cut < 8),
            Err(RecordingError::Truncated { read, expected }) => prop_assert!(read <= expected),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_changed_byte_is_always_noticed(events in events(), byte in 0_usize..10_000, bit in 0_u8..8) {
        let mut file = file_of(events);
        let byte = byte % file.len();
        file[byte] ^= 1_u8 << bit;
        prop_assert!(Recording::read(file.as_slice()).is_err());
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(rubbish: Vec<u8>, headed: bool) {
        let mut file = if headed { file_of(Vec::new())[..16].to_vec() } else { Vec::new() };
        file.extend(rubbish);
        prop_assert!(Recording::read(file.as_slice()).is_err());
    }
}

#[test]
fn the_wire_format_is_what_the_programs_write() {
    let packed = PackedEvent::new(
        Nanos::new(0x3456_789a_bcde),
        EventKind::PacketIn {
            packet: PacketId(0xdead_beef),
            key: RequestKey {
                address: 0x12,
                port: 0x1234,
                id: 0x5678,
            },
        },
    );
    assert_eq!(
        packed.words(),
        [0x0112_3456_789a_bcde, 0x1234_5678_dead_beef]
    );
    assert_eq!(size_of::<PackedEvent>(), 16);
}

#[test]
fn a_truncated_file_says_how_much_is_there() {
    let file = file_of(simple(10));
    // the checksum and half of the last event are missing
    let error = Recording::read(&file[..file.len() - 16]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the recorded stream is cut off: 9 of 10 events could be read; copy it again, or \
         record again"
    );
}

#[test]
fn a_damaged_file_says_what_is_wrong_and_where() {
    let mut file = file_of(simple(10));
    let third_event = file.len() - 8 - 8 * 16;
    file[third_event + 7] = 99;
    let error = Recording::read(file.as_slice()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the recorded stream is damaged after 2 of 10 events: an event of unknown kind; copy \
         it again, or record again"
    );
}

#[test]
fn a_file_of_another_version_or_kind_is_refused_by_name() {
    let mut file = file_of(simple(1));
    file[8] = 77;
    let error = Recording::read(file.as_slice()).unwrap_err();
    assert!(matches!(
        error,
        RecordingError::UnsupportedVersion { found: 77 }
    ));
    assert!(error.to_string().contains("version 77"), "{error}");
    let error = Recording::read(&b"PAR1 and so on"[..]).unwrap_err();
    assert!(matches!(error, RecordingError::NotARecording));
}

#[test]
fn the_first_version_is_still_read() {
    let mut file = file_of(Vec::new());
    file[8] = 1;
    // it has no base
    file.drain(16..24);
    // the checksum of a header that says 1: as version 1 wrote it
    let mut checksum = 0xcbf2_9ce4_8422_2325_u64;
    let end = file.len() - 8;
    for word in file[..end].chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        checksum = (checksum ^ word).wrapping_mul(0x0100_0000_01b3);
    }
    file[end..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(Recording::read(file.as_slice()).unwrap().lost, losses());
}

#[test]
fn a_header_that_promises_too_much_costs_no_memory() {
    let mut file = file_of(simple(1));
    // the number of events of the only stream
    file[56..64].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let error = Recording::read(file.as_slice()).unwrap_err();
    assert!(
        matches!(error, RecordingError::Truncated { read: 1, .. }),
        "{error}"
    );
}

/// A chunk that counts how many of its kind are alive.
struct Counted(Vec<PackedEvent>, Arc<AtomicUsize>);

impl AsRef<[PackedEvent]> for Counted {
    fn as_ref(&self) -> &[PackedEvent] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn chunks_are_given_back_while_reading() {
    let alive = Arc::new(AtomicUsize::new(20));
    let chunk = |first: u64| -> Chunk {
        let event = |n| PackedEvent::new(Nanos::new(n), EventKind::WriteCalled { tid: 7 });
        let events = (first..first + 10).map(event).collect();
        Box::new(Counted(events, Arc::clone(&alive)))
    };
    let stream = |cpu| CpuStream::new(cpu, (0..10).map(|i| chunk(1 + i * 10)).collect());
    let recording = Recording {
        streams: vec![stream(0), stream(1)],
        ..Recording::default()
    };
    assert_eq!(recording.len(), 200);
    let mut events = recording.into_events();
    for seen in 1..=200_usize {
        assert!(events.next().is_some());
        // of each stream at most one chunk is held that has been read to its end
        let unread = 20 - seen / 10;
        assert!(
            alive.load(Ordering::Relaxed) <= unread + 2,
            "{seen} events seen"
        );
    }
    assert_eq!(events.next(), None);
    drop(events);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn empty_streams_and_chunks_are_no_obstacle() {
    let event = PackedEvent::new(Nanos::new(5), EventKind::WriteCalled { tid: 7 });
    let recording = Recording {
        streams: vec![
            CpuStream::new(0, Vec::new()),
            CpuStream::new(
                1,
                vec![
                    Box::new(Vec::new()),
                    Box::new(vec![event]),
                    Box::new(Vec::new()),
                ],
            ),
        ],
        lost: LostEvents::default(),
        ..Recording::default()
    };
    let events: Vec<Event> = recording.into_events().collect();
    assert_eq!(events, [event.on_cpu(at(0), 1)]);
    assert_eq!(Recording::default().into_events().next(), None);
}
