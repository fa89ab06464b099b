//! Format versions 1 and 2.

use super::*;

/// What these versions could hold: no extra byte.
fn old_events() -> impl Strategy<Value = Vec<Event>> {
    let holds = |event: &Event| PackedEvent::new(Nanos::ZERO, event.kind).words()[0] << 8 == 0;
    events().prop_map(move |events| events.into_iter().filter(holds).collect())
}

/// As version 1 or 2 wrote it.
fn old_file(version: u32, events: &[Event]) -> Vec<u8> {
    let mut streams: BTreeMap<u16, Vec<&Event>> = BTreeMap::new();
    for event in events {
        streams.entry(event.cpu).or_default().push(event);
    }
    let mut words = vec![
        u64::from_le_bytes(*b"taillabE"),
        (streams.len() as u64) << 32 | u64::from(version),
        3,
        2,
        1,
    ];
    for (&cpu, events) in &streams {
        words.extend([u64::from(cpu), events.len() as u64]);
    }
    for events in streams.values_mut() {
        events.sort_by_key(|event| event.at);
        for event in events {
            words.extend(PackedEvent::new(event.at.saturating_since(at(0)), event.kind).words());
        }
    }
    let checksum = words.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x0100_0000_01b3)
    });
    words.push(checksum);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

proptest! {
    #[test]
    fn they_are_still_read(version in 1_u32..=2, events in old_events()) {
        let expected: Vec<Event> =
            Recording::from_events(events.clone(), losses()).into_events().collect();
        let file = old_file(version, &events);
        let read = Recording::read(file.as_slice()).unwrap();
        prop_assert_eq!(read.lost, losses());
        prop_assert_eq!(read.into_events().collect::<Vec<_>>(), expected.clone());
        let mut reader = RecordingReader::open(file.as_slice()).unwrap();
        prop_assert_eq!(reader.by_ref().collect::<Vec<_>>(), expected);
        prop_assert_eq!(reader.lost(), losses());
    }

    #[test]
    fn one_that_is_cut_off_is_never_taken_for_a_whole_one(
        events in old_events(), cut: prop::sample::Index
    ) {
        let file = old_file(2, &events);
        let cut = cut.index(file.len());
        match Recording::read(&file[..cut]) {
            Err(RecordingError::NotARecording) => prop_assert!(cut < 8),
            Err(RecordingError::Truncated { read, expected }) => prop_assert!(read <= expected),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_changed_byte_is_always_noticed(
        events in old_events(), byte: prop::sample::Index, change in 1_u8..
    ) {
        let mut file = old_file(2, &events);
        let byte = byte.index(file.len());
        file[byte] ^= change;
        prop_assert!(Recording::read(file.as_slice()).is_err());
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(rubbish: Vec<u8>) {
        let mut file = old_file(2, &[])[..16].to_vec();
        file.extend(rubbish);
        prop_assert!(Recording::read(file.as_slice()).is_err());
    }
}

#[test]
fn a_truncated_file_says_how_much_is_there() {
    let file = old_file(2, &simple(10));
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
    let mut file = old_file(2, &simple(10));
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
fn a_header_that_promises_too_much_costs_no_memory() {
    let mut file = old_file(2, &simple(1));
    // the number of events of the only stream
    file[48..56].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let error = Recording::read(file.as_slice()).unwrap_err();
    assert!(
        matches!(error, RecordingError::Truncated { read: 1, .. }),
        "{error}"
    );
}
