//! A file as the first taillab with format version 3 wrote it.
//!
//! When the format changes this file stays as it is, and is still read.

use super::files::whole_context;
use super::*;

/// Two CPUs, 40 times every kind of event that there was, with values that jump about.
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
    let kinds = (1..=u64::from(kind::PAYLOAD)).cycle().take(960);
    let event = |number: u64| {
        now += random() % 3_000;
        // bits that no kind leaves out: a payload of length 8, a sleep that is known
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
    kinds.filter_map(event).collect()
}

#[test]
fn a_file_of_version_3_is_read_as_it_was_meant() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/recording/tests/version_3.tlc"
    );
    let events = written();
    assert_eq!(events.len(), 960);
    if std::env::var_os("TAILLAB_BLESS").is_some() {
        let mut writer = RecordingWriter::new(Vec::new(), at(7), &whole_context()).unwrap();
        for &event in &events {
            writer.insert(event).unwrap();
        }
        let file = writer.finish(&whole_context(), losses()).unwrap();
        std::fs::write(path, file).unwrap();
    }
    let file = std::fs::read(path).unwrap();
    let mut reader = RecordingReader::open(file.as_slice()).unwrap();
    assert_eq!(reader.by_ref().collect::<Vec<_>>(), events);
    assert_eq!(reader.damage(), None);
    assert_eq!(reader.lost(), losses());
    // it did not say whether datagrams have ids
    let context = RecordingContext {
        datagram_ids: false,
        ..whole_context()
    };
    assert_eq!(reader.context(), &context);
}
