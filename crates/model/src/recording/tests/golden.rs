//! A file of each version as the first taillab with that format version wrote it.
//!
//! The files must not change, and must still be readable. For a new version the test writes a new file, and fails so
//! that somebody looks at it.

use std::io;

use super::files::whole_context;
use super::*;

/// The last kind of event that existed then, by version.
const LAST: [u8; 2] = [kind::STORAGE_WAITED, kind::ANNOUNCED_3];

/// 40 of every kind of event that a recorder wrote then, of two CPUs, with values that vary widely.
fn written(last: u8) -> Vec<Event> {
    let mut state = 1_u64;
    let mut random = move || {
        // Knuth's MMIX generator; the high bits are the good ones
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let mut now = 5_000_000_000;
    let kinds = (1..=u64::from(last)).filter(|&number| number != u64::from(kind::UNREADABLE));
    let event = |number: u64| {
        now += random() % 3_000;
        // bits that every kind keeps: a payload of length 8, a sleep that is known
        let extra = if number == u64::from(kind::PAYLOAD) {
            8
        } else {
            1
        };
        let first = ((random() % 5) << 22) + random() % 100;
        let head = number << 56 | extra << 48 | now;
        let packed = PackedEvent::from_words([head, (random() % 70_000) << 32 | first]);
        packed.map(|event| event.on_cpu(at(7), (random() % 2) as u16))
    };
    // one of them is the reader's
    let events = 40 * (usize::from(last) - 1);
    kinds.cycle().take(events).filter_map(event).collect()
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), at(7), &whole_context()).unwrap();
    for &event in events {
        writer.insert(event).unwrap();
    }
    writer.finish(&whole_context(), losses()).unwrap()
}

#[test]
fn a_file_of_each_version_is_read_as_it_was_meant() {
    for (version, last) in (1..=VERSION).zip(LAST) {
        let events = written(last);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/recording/tests");
        let path = format!("{folder}/version_{version}.tlc");
        let Ok(file) = std::fs::read(&path) else {
            std::fs::write(&path, write(&events)).unwrap();
            panic!("there was no {path}: it is written now, commit it with the new version");
        };
        let expected = RecordingContext {
            // numbers of connections are hashes and ports there
            hashed_clients: version == 1,
            ..whole_context()
        };
        let mut reader = RecordingReader::open(file.as_slice()).unwrap();
        assert_eq!(reader.context().hashed_clients, version == 1);
        assert_eq!(reader.by_ref().collect::<Vec<_>>(), events);
        assert_eq!(reader.damage(), None);
        assert_eq!(reader.lost(), losses());
        assert_eq!(reader.context(), &expected);
        let whole = RecordingReader::open_whole(io::Cursor::new(file)).unwrap();
        assert_eq!(whole.context(), &expected);
    }
    assert_eq!(LAST.len(), VERSION as usize);
}

#[test]
fn a_kind_that_its_version_does_not_have_makes_a_block_unreadable() {
    let mut file = write(&written(kind::LAST));
    file[8] = 1;
    // the header's checksum no longer fits, but the version does not depend on it
    let mut reader = RecordingReader::open(file.as_slice()).unwrap();
    assert!(reader.by_ref().all(|event| is_of_reader(&event)));
    assert!(reader.damage().is_some());
}
