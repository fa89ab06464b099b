//! A file as the first taillab with this format version wrote it.
//!
//! While [`VERSION`] is the same, this file must not change, and must still be readable. For a new
//! version the test writes a new file, and fails so that somebody looks at it.

use super::files::whole_context;
use super::*;

/// The last kind of event that existed then.
const LAST: u8 = kind::STORAGE_WAITED;

/// 40 of every kind of event that a recorder wrote then.
const EVENTS: usize = 40 * 27;

/// Events of two CPUs, with values that vary widely.
fn written() -> Vec<Event> {
    let mut state = 1_u64;
    let mut random = move || {
        // Knuth's MMIX generator; the high bits are the good ones
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let mut now = 5_000_000_000;
    let kinds = (1..=u64::from(LAST)).filter(|&number| number != u64::from(kind::UNREADABLE));
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
    kinds.cycle().take(EVENTS).filter_map(event).collect()
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), at(7), &whole_context()).unwrap();
    for &event in events {
        writer.insert(event).unwrap();
    }
    writer.finish(&whole_context(), losses()).unwrap()
}

#[test]
fn a_file_of_this_version_is_read_as_it_was_meant() {
    let events = written();
    assert_eq!(events.len(), EVENTS);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/recording/tests");
    let path = format!("{folder}/version_{VERSION}.tlc");
    let Ok(file) = std::fs::read(&path) else {
        std::fs::write(&path, write(&events)).unwrap();
        panic!("there was no {path}: it is written now, commit it with the new version");
    };
    let mut reader = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(reader.by_ref().collect::<Vec<_>>(), events);
    assert_eq!(reader.damage(), None);
    assert_eq!(reader.lost(), losses());
    assert_eq!(reader.context(), &whole_context());
}
