//! What a file claims is believed only as far as it can be used in calculations.

use super::files::context;
use super::*;
use crate::recording::format::{BLOCK_HEADER_BYTES, BlockHeader, FIXED_HEADER_BYTES};

/// A file with three blocks of one event each, and the length of its header.
fn without_end() -> (Vec<u8>, usize) {
    let mut writer = RecordingWriter::new(Vec::new(), at(1_000), &context()).unwrap();
    let header_end = writer.bytes() as usize;
    for tid in 0..3 {
        let kind = EventKind::WriteCalled { tid };
        writer
            .insert(Event {
                at: at(1_001),
                cpu: 1,
                kind,
            })
            .unwrap();
        writer.flush().unwrap();
    }
    (
        writer.finish(&context(), LostEvents::default()).unwrap(),
        header_end,
    )
}

/// The file with a changed header of its second block (with a new checksum), cut off after this block.
fn with_second_block(change: impl FnOnce(&mut BlockHeader)) -> Vec<u8> {
    let (mut bytes, header_end) = without_end();
    let header_at = |bytes: &[u8], at: usize| {
        BlockHeader::from_bytes(bytes[at..].first_chunk().unwrap()).unwrap()
    };
    let first = header_at(&bytes, header_end);
    let second_at = header_end + BLOCK_HEADER_BYTES + first.packed_len as usize;
    let mut second = header_at(&bytes, second_at);
    let end = second_at + BLOCK_HEADER_BYTES + second.packed_len as usize;
    change(&mut second);
    bytes[second_at..second_at + BLOCK_HEADER_BYTES].copy_from_slice(&second.to_bytes());
    bytes.truncate(end);
    bytes
}

#[test]
fn losses_are_known_without_the_end() {
    let mut bytes = Vec::new();
    let mut writer = RecordingWriter::new(&mut bytes, at(1_000), &context()).unwrap();
    let few = LostEvents {
        ring_full: 2,
        ..LostEvents::default()
    };
    writer.note_lost(few).unwrap();
    writer.note_lost(losses()).unwrap();
    let written = writer.bytes();
    writer.note_lost(losses()).unwrap();
    assert_eq!(
        writer.bytes(),
        written,
        "what has not changed is not written again"
    );
    writer.flush().unwrap();
    drop(writer);
    let (recording, damage) = Recording::recover(bytes.as_slice()).unwrap();
    assert_eq!(recording.lost, losses());
    assert!(damage.unwrap().cut_off);
}

#[test]
fn lost_events_beyond_64_bits_are_not_none() {
    let bytes = with_second_block(|header| header.events_before = u64::MAX);
    let (recording, damage) = Recording::recover(bytes.as_slice()).unwrap();
    assert_eq!(damage.unwrap().lost(), u64::MAX - 1);
    assert_eq!(recording.lost.damaged, u64::MAX - 1);
    let lost = LostEvents {
        ring_full: u64::MAX,
        damaged: 5,
        ..LostEvents::default()
    };
    assert_eq!(lost.total(), u64::MAX);
}

/// The events of this block are unpacked after the end of the file was read.
#[test]
fn a_block_that_claims_too_many_events_is_lost_and_counted() {
    let bytes = with_second_block(|header| header.events = 2);
    let (recording, damage) = Recording::recover(bytes.as_slice()).unwrap();
    assert_eq!(recording.events().count(), 1);
    assert_eq!(damage.unwrap().lost(), 2);
    assert_eq!(recording.lost.damaged, 2);
}

#[test]
fn a_cpu_that_no_machine_has_is_no_block() {
    let bytes = with_second_block(|header| header.cpu = 1_024);
    let (recording, damage) = Recording::recover(bytes.as_slice()).unwrap();
    assert_eq!(damage.unwrap().what, "the header of a block");
    assert_eq!(recording.events().count(), 1);
}

#[test]
fn a_context_that_cannot_be_calculated_with_is_damage() {
    type Change = fn(&mut RecordingContext);
    let changes: [Change; 7] = [
        |context| context.workers = Some(u32::MAX),
        |context| context.workers = Some(0),
        |context| context.timeout_ns = Some(Nanos::new(1 << 62)),
        |context| context.service_time_ns = Some(Nanos::new(1 << 48)),
        |context| context.service_time_ns = Some(Nanos::ZERO),
        |context| context.measure_from_ns = Some(u64::MAX),
        |context| context.observer_cpu_share = Some(-1.0),
    ];
    for change in changes {
        let mut claimed = context();
        change(&mut claimed);
        assert!(claimed.check().is_err(), "{claimed:?}");
        let writer = RecordingWriter::new(Vec::new(), at(1), &claimed).unwrap();
        let file = writer.finish(&claimed, LostEvents::default()).unwrap();
        assert!(file.len() > FIXED_HEADER_BYTES);
        let reader = RecordingReader::open(file.as_slice()).unwrap();
        assert_eq!(reader.context(), &RecordingContext::default());
        let what = reader.damage().unwrap().what;
        assert_eq!(what, "what its header says about the server");
    }
    assert_eq!(context().check(), Ok(()));
}

/// A file with a block for each of these times, in this order, and nothing that says when they may be returned.
fn one_event_blocks(times: impl Iterator<Item = u64>) -> Vec<u8> {
    let (bytes, header_end) = without_end();
    let payload_at = header_end + BLOCK_HEADER_BYTES;
    let first = BlockHeader::from_bytes(bytes[header_end..].first_chunk().unwrap()).unwrap();
    let payload = &bytes[payload_at..payload_at + first.packed_len as usize];
    let mut file = bytes[..header_end].to_vec();
    for (number, time) in (0..).zip(times) {
        let header = BlockHeader {
            first: time,
            last: time,
            events_before: number,
            settled: 0,
            ..first
        };
        file.extend_from_slice(&header.to_bytes());
        file.extend_from_slice(payload);
    }
    file
}

/// Whichever way its blocks overlap, a file is read in order, and sixteen times as many take about sixteen times as
/// long: where each block was compared with all before it, they took 256 times as long.
#[test]
fn blocks_that_overlap_are_read_in_order_and_do_not_make_the_reader_spin() {
    const FEW: u64 = 16_000;
    type Order = fn(u64, u64) -> u64;
    let orders: [Order; 4] = [
        |number, _| number,
        |number, count| count - number,
        // pairs that change places, and two halves that take turns
        |number, _| number ^ 1,
        |number, count| number / 2 + number % 2 * count / 2,
    ];
    for (index, order) in orders.into_iter().enumerate() {
        let file = |count: u64| one_event_blocks((0..count).map(|number| order(number, count)));
        let (small, large) = (file(FEW), file(16 * FEW));
        let read = |file: &[u8], count: u64| {
            let mut reader = RecordingReader::open(file).unwrap();
            let mut before = at(0);
            let mut events = 0;
            for event in reader.by_ref() {
                assert!(event.at >= before, "{index}");
                before = event.at;
                events += 1;
            }
            assert_eq!(events, count, "{index}");
        };
        let took = |read: &dyn Fn()| {
            let began = std::time::Instant::now();
            read();
            began.elapsed()
        };
        // as much of either, in turns: what slows the machine slows both
        let rounds = [(); 2].map(|()| {
            let few = took(&|| (0..16).for_each(|_| read(&small, FEW)));
            (few, took(&|| read(&large, 16 * FEW)))
        });
        let few = rounds.iter().map(|(few, _)| *few).min();
        let many = rounds.iter().map(|(_, many)| *many).min();
        assert!(
            many < few.map(|few| 4 * few),
            "{index}: {many:?} for as much in sixteen files, {few:?}"
        );
    }
}
