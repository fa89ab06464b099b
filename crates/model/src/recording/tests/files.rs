//! What is written comes back, in order and in bounded memory.

use std::io::{Cursor, Read};

use super::*;
use crate::recording::format::BLOCK_EVENTS;
use crate::recording::writer::BLOCK_SPAN;
use crate::summary::ServiceTimeSource;

pub(super) fn context() -> RecordingContext {
    RecordingContext {
        server: "memcached over UDP".into(),
        transport: "udp".into(),
        port: 11_211,
        server_cpus: vec![1, 3],
        sequential: true,
        datagram_ids: true,
        ..RecordingContext::default()
    }
}

/// The context as it is known at the end.
pub(super) fn whole_context() -> RecordingContext {
    let thread = |tid| ThreadName {
        tid,
        pid: 7,
        comm: format!("worker {tid}"),
        server: true,
        real_time: None,
    };
    RecordingContext {
        threads: (1..50).map(thread).collect(),
        observer_cpu_share: Some(0.01),
        ..context()
    }
}

#[test]
fn where_t_comes_from_comes_back() {
    let known = RecordingContext {
        service_time_ns: Some(Nanos::from_micros(16)),
        service_time_source: Some(ServiceTimeSource::Given),
        ..context()
    };
    let writer = RecordingWriter::new(Vec::new(), at(1), &known).unwrap();
    let file = writer.finish(&known, losses()).unwrap();
    let reader = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(reader.context(), &known);
}

#[test]
fn the_servers_that_are_asked_come_back() {
    let known = RecordingContext {
        upstreams: vec![UpstreamServer {
            address: [127, 0, 0, 1].into(),
            port: 11_211,
            program: "memcached".into(),
            connections: 3,
            number: 2,
        }],
        ..context()
    };
    let writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    let file = writer.finish(&known, losses()).unwrap();
    let reader = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(reader.context(), &known);
    let told = known.upstreams[0].to_string();
    assert_eq!(told, "127.0.0.1:11211 (memcached)");
}

fn packed(event: &Event) -> PackedEvent {
    PackedEvent::new(event.at.saturating_since(at(1)), event.kind)
}

/// A file that is written while events come, part by part and CPU by CPU.
fn recorded(events: &[Event], part: usize) -> Vec<u8> {
    let mut by_time = events.to_vec();
    by_time.sort_by_key(|event| event.at);
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    for part in by_time.chunks(part) {
        for cpu in 0..4 {
            let of = |event: &&Event| event.cpu == cpu;
            let events: Vec<PackedEvent> = part.iter().filter(of).map(packed).collect();
            writer.take(cpu, &events).unwrap();
        }
        let last = part.last().unwrap().at;
        writer.settle(last.saturating_since(at(1))).unwrap();
    }
    assert_eq!(writer.events(), events.len() as u64);
    writer.finish(&whole_context(), losses()).unwrap()
}

/// Random events of four CPUs within some seconds.
fn long() -> impl Strategy<Value = Vec<Event>> {
    let event = (1_u64..3_000_000_000, 0_u16..4, kinds());
    let event = event.prop_map(|(n, cpu, kind)| Event {
        at: at(n),
        cpu,
        kind,
    });
    prop::collection::vec(event, 1..300)
}

/// Events that the writer holds in memory.
fn unwritten(writer: &RecordingWriter<Vec<u8>>) -> usize {
    writer.streams.iter().map(|cpu| cpu.events.len()).sum()
}

fn in_order(events: &[Event]) -> Vec<Event> {
    let mut sorted = events.to_vec();
    sorted.sort_by_key(|event| (event.at, event.cpu));
    sorted
}

proptest! {
    #[test]
    fn a_recording_comes_back_from_a_file(mut events in prop_oneof![events(), long()]) {
        // only the reader makes these
        events.retain(|event| !is_of_reader(event));
        let mut recording = of_events(events.clone(), losses());
        recording.context = whole_context();
        let mut file = Vec::new();
        recording.write(&mut file).unwrap();
        let read = Recording::read(file.as_slice()).unwrap();
        prop_assert_eq!(read.base, recording.base);
        prop_assert_eq!(read.lost, losses());
        prop_assert_eq!(&read.context, &whole_context());
        prop_assert_eq!(read.len(), events.len() as u64);
        prop_assert_eq!(read.into_events().collect::<Vec<_>>(), in_order(&events));
    }

    #[test]
    fn what_is_recorded_as_it_comes_is_read_in_order(events in long(), part in 1_usize..100) {
        let file = recorded(&events, part);
        let mut reader = RecordingReader::open(file.as_slice()).unwrap();
        prop_assert_eq!(reader.base(), at(1));
        prop_assert_eq!(reader.by_ref().collect::<Vec<_>>(), in_order(&events));
        prop_assert_eq!(reader.damage(), None);
        prop_assert!(reader.failure().is_none());
        prop_assert_eq!(reader.context(), &whole_context());
        prop_assert_eq!(reader.lost(), losses());
    }

    #[test]
    fn an_overtaken_event_is_put_in_order_across_blocks(
        gaps in prop::collection::vec(0_u64..20, 2..200),
        blocks in prop::collection::vec(1_usize..20, 1..10),
        back in prop::collection::vec(0_u64..60, 2..200),
    ) {
        let mut now = 100;
        let times = gaps.iter().zip(back.iter().cycle()).map(|(gap, back)| {
            now += gap;
            now - back
        });
        let event = |(tid, time)| {
            PackedEvent::new(Nanos::new(time), EventKind::WriteCalled { tid })
        };
        let events: Vec<PackedEvent> = (0..).zip(times).map(event).collect();
        let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
        let mut rest = events.as_slice();
        for &block in blocks.iter().cycle() {
            let (now, later) = rest.split_at(block.min(rest.len()));
            writer.take(0, now).unwrap();
            writer.flush().unwrap();
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let file = writer.finish(&context(), LostEvents::default()).unwrap();
        let mut expected = events;
        expected.sort_by_key(|event| event.since_base());
        let expected: Vec<Event> = expected.iter().map(|event| event.on_cpu(at(1), 0)).collect();
        let times: Vec<Monotonic> = expected.iter().map(|event| event.at).collect();
        let recording = Recording::read(file.as_slice()).unwrap();
        let read: Vec<Monotonic> = recording.events().map(|event| event.at).collect();
        prop_assert_eq!(&read, &times);
        let reader = RecordingReader::open(file.as_slice()).unwrap();
        prop_assert_eq!(reader.map(|event| event.at).collect::<Vec<_>>(), times);
    }
}

proptest! {
    /// Events that became known only when the file was written: those of the generator's own record.
    #[test]
    fn events_that_are_inserted_come_at_their_time(
        old in prop_oneof![events(), long()], new in prop_oneof![events(), long()], part in 1_usize..100
    ) {
        prop_assume!(!old.is_empty());
        let file = recorded(&old, part);
        let mut reader = RecordingReader::open(file.as_slice()).unwrap();
        let (one, other) = new.split_at(new.len() / 2);
        reader.insert(other.to_vec());
        reader.insert(one.to_vec());
        let mut expected = in_order(&old);
        expected.extend(in_order(&[other, one].concat()));
        expected.sort_by_key(|event| event.at);
        prop_assert_eq!(reader.by_ref().collect::<Vec<_>>(), expected.clone());
        prop_assert_eq!((reader.damage(), reader.lost()), (None, losses()));

        // a copy has them all
        let mut reader = RecordingReader::open_whole(Cursor::new(&file)).unwrap();
        reader.insert(other.iter().chain(one).copied());
        let mut copy = Vec::new();
        reader.write(&mut copy).unwrap();
        let mut copied = RecordingReader::open(copy.as_slice()).unwrap();
        prop_assert_eq!(copied.by_ref().collect::<Vec<_>>(), in_order(&expected));
        prop_assert_eq!(copied.damage(), None);
        prop_assert_eq!((copied.context(), copied.lost()), (&whole_context(), losses()));
    }
}

#[test]
fn an_empty_recording_is_a_file_too() {
    let mut file = Vec::new();
    Recording::default().write(&mut file).unwrap();
    assert!(Recording::read(file.as_slice()).unwrap().is_empty());
    let mut reader = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(reader.next(), None);
    assert_eq!(reader.damage(), None);
}

#[test]
fn the_end_can_be_read_first() {
    let events: Vec<Event> = simple(100);
    let mut file = b"something in front".to_vec();
    let start = file.len() as u64;
    file.extend(recorded(&events, 10));
    let mut file = Cursor::new(file);
    file.set_position(start);
    let reader = RecordingReader::open_whole(file).unwrap();
    assert_eq!(reader.context(), &whole_context());
    assert_eq!(reader.lost(), losses());
    assert_eq!(reader.collect::<Vec<_>>(), events);
}

#[test]
fn losses_that_the_end_knows_are_not_forgotten_in_the_middle() {
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    for (n, event) in (1..).zip(simple(4)) {
        writer.insert(event).unwrap();
        writer.settle(Nanos::new(n)).unwrap();
        writer.flush().unwrap();
        let so_far = LostEvents {
            ring_full: n / 2,
            ..LostEvents::default()
        };
        writer.note_lost(so_far).unwrap();
    }
    let file = writer.finish(&whole_context(), losses()).unwrap();
    let from_the_start = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(lost_after_each_event(from_the_start)[2].ring_full, 1);
    let from_the_end = RecordingReader::open_whole(Cursor::new(file)).unwrap();
    assert_eq!(lost_after_each_event(from_the_end), [losses(); 4]);
}

fn lost_after_each_event<R: Read>(mut reader: RecordingReader<R>) -> Vec<LostEvents> {
    let mut lost = Vec::new();
    while reader.next().is_some() {
        lost.push(reader.lost());
    }
    lost
}

#[test]
fn events_made_in_user_space_take_their_place() {
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    let events = simple(10);
    for event in events.iter().rev() {
        writer.insert(*event).unwrap();
    }
    let file = writer.finish(&context(), LostEvents::default()).unwrap();
    let read = Recording::read(file.as_slice()).unwrap();
    assert_eq!(read.into_events().collect::<Vec<_>>(), events);
}

#[test]
fn reading_and_writing_take_little_memory() {
    // 2 CPUs, 1 million events per second, drained every 10 ms, settled a second later
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    let step = Nanos::from_millis(10).get();
    for round in 0..300_u64 {
        for cpu in 0..2 {
            let event = |i: u64| {
                // multiplicative hashing: nothing repeats
                let some = (round * 5_000 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                let since_base = Nanos::new(round * step + i * 2_000 + some % 1_900);
                let tid = (some % 7) as u32;
                PackedEvent::new(since_base, EventKind::WriteCalled { tid })
            };
            let events: Vec<PackedEvent> = (0..step / 2_000).map(event).collect();
            writer.take(cpu, &events).unwrap();
        }
        let now = Nanos::new((round + 1) * step);
        writer
            .settle(now.saturating_sub(Nanos::from_secs(1)))
            .unwrap();
        assert!(unwritten(&writer) < 2 * 20_000, "{}", unwritten(&writer));
    }
    let written = writer.bytes();
    let file = writer.finish(&context(), LostEvents::default()).unwrap();
    assert!(written < file.len() as u64 && written > 9 * file.len() as u64 / 10);
    assert!(file.len() < 3_000_000 * 5, "{}", file.len());
    let mut reader = RecordingReader::open(file.as_slice()).unwrap();
    let mut most = 0;
    let mut before = at(0);
    let mut count = 0;
    while let Some(event) = reader.next() {
        assert!(event.at >= before);
        before = event.at;
        count += 1;
        // compressed and unpacked bytes of events that have not been returned
        let waiting = reader.merge.streams().iter();
        let held = waiting.map(|cpu| cpu.bytes + cpu.events.len() * size_of::<PackedEvent>());
        most = most.max(held.sum());
    }
    assert_eq!(count, 300 * 2 * (step / 2_000));
    // a block or two of each CPU, unpacked, and the bytes of one second and of a block's time
    let unpacked = 2 * 2 * BLOCK_EVENTS * size_of::<PackedEvent>();
    assert!(most > unpacked / 4, "{most}");
    assert!(most < unpacked + file.len() / 2, "{most} of {}", file.len());
}

#[test]
fn blocks_are_written_when_their_time_has_come() {
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    let empty = writer.bytes();
    writer.insert(simple(1)[0]).unwrap();
    writer.settle(BLOCK_SPAN).unwrap();
    assert_eq!(writer.bytes(), empty);
    writer.settle(Nanos::new(BLOCK_SPAN.get() + 1)).unwrap();
    assert!(writer.bytes() > empty);
    assert_eq!(unwritten(&writer), 0);
}
