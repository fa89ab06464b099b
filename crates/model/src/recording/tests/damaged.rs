//! Whatever happens to a file, what is intact in it is read, and nothing else.

use super::files::{context, whole_context};
use super::*;
use crate::recording::format::{BLOCK_HEADER_BYTES, FIXED_HEADER_BYTES, TRAILER_BYTES};

/// A file and where its blocks are.
#[derive(Debug)]
struct File {
    bytes: Vec<u8>,
    /// The end of each block of events, and the events in it; the first entry is the end of the header.
    blocks: Vec<(usize, Vec<Event>)>,
}

impl File {
    /// A block for each part, on CPUs in turn.
    fn new(parts: &[usize]) -> Self {
        let mut writer = RecordingWriter::new(Vec::new(), at(1_000), &context()).unwrap();
        let mut blocks = vec![(writer.bytes() as usize, Vec::new())];
        let mut now = 1_000;
        for (cpu, &part) in (0_u16..).zip(parts) {
            let mut events = Vec::new();
            for tid in 0..part as u32 {
                now += u64::from(tid % 13);
                let kind = EventKind::Woken {
                    tid: tid * 77,
                    by: tid ^ 5,
                };
                let event = Event {
                    at: at(now),
                    cpu: cpu % 3,
                    kind,
                };
                writer.insert(event).unwrap();
                events.push(event);
            }
            writer.flush().unwrap();
            blocks.push((writer.bytes() as usize, events));
        }
        Self {
            bytes: writer.finish(&whole_context(), losses()).unwrap(),
            blocks,
        }
    }

    fn header_end(&self) -> usize {
        self.blocks[0].0
    }

    /// The events of the blocks that are completely outside these bytes.
    fn outside(&self, from: usize, to: usize) -> Vec<Event> {
        let starts = self.blocks.iter().map(|&(end, _)| end);
        let blocks = starts.zip(&self.blocks[1..]);
        let sound = blocks.filter(|&(start, &(end, _))| end <= from || start >= to);
        sound.flat_map(|(_, (_, events))| events).copied().collect()
    }

    fn events(&self) -> Vec<Event> {
        self.outside(0, 0)
    }
}

/// What is read from these bytes, in both ways, which must agree.
fn recover(bytes: &[u8]) -> Result<(Vec<Event>, Option<Damage>, LostEvents), RecordingError> {
    let mut reader = RecordingReader::open(bytes)?;
    let streamed = reader.by_ref();
    let (unreadable, mut streamed): (Vec<Event>, Vec<Event>) = streamed.partition(is_of_reader);
    let (recording, damage) = Recording::recover(bytes)?;
    assert_unreadable(&unreadable, damage.as_ref());
    assert_eq!(reader.damage(), damage);
    assert_eq!(reader.lost(), recording.lost);
    assert_eq!(reader.context(), &recording.context);
    let events: Vec<Event> = recording.into_events().collect();
    streamed.sort_by_key(|event| (event.at, event.cpu));
    assert_eq!(streamed, events);
    if let Some(damage) = &damage {
        assert_eq!(damage.read, events.len() as u64);
    }
    Ok((events, damage, reader.lost()))
}

/// Each gap that is followed by an event has an `Unreadable` event where it ends.
fn assert_unreadable(unreadable: &[Event], damage: Option<&Damage>) {
    let gaps = damage.iter().flat_map(|damage| &damage.gaps);
    let ended = gaps.filter_map(|gap| {
        let until = gap.until?;
        let lasted = until.saturating_since(gap.after);
        Some((until, gap.cpu, EventKind::Unreadable { lasted }))
    });
    let mut ended: Vec<_> = ended.collect();
    let mut found: Vec<_> = (unreadable.iter())
        .map(|event| (event.at, event.cpu, event.kind))
        .collect();
    ended.sort_by_key(|&(at, cpu, _)| (at, cpu));
    found.sort_by_key(|&(at, cpu, _)| (at, cpu));
    assert_eq!(found, ended);
}

fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| (event.at, event.cpu));
    events
}

fn parts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..60, 1..12)
}

proptest! {
    #[test]
    fn of_a_file_that_is_cut_off_all_whole_blocks_are_read(parts in parts(), cut: prop::sample::Index) {
        let file = File::new(&parts);
        let cut = cut.index(file.bytes.len());
        match recover(&file.bytes[..cut]) {
            Err(RecordingError::NotARecording) => prop_assert!(cut < 8),
            Err(RecordingError::Truncated) => prop_assert!((8..12).contains(&cut)),
            Err(other) => prop_assert!(false, "{other:?}"),
            Ok((events, damage, _)) => {
                prop_assert_eq!(events, sorted(file.outside(cut, usize::MAX)));
                let footer_is_whole = cut >= file.bytes.len() - TRAILER_BYTES;
                let damage = damage.expect("the end is missing");
                prop_assert_eq!(damage.cut_off, !footer_is_whole, "{}", damage);
            }
        }
        prop_assert!(Recording::read(&file.bytes[..cut]).is_err());
    }

    #[test]
    fn a_changed_byte_costs_no_more_than_its_block(
        parts in parts(), at: prop::sample::Index, change in 1_u8..
    ) {
        let mut file = File::new(&parts);
        let at = at.index(file.bytes.len());
        file.bytes[at] ^= change;
        match recover(&file.bytes) {
            Ok((events, damage, lost)) => {
                let sound = sorted(file.outside(at, at + 1));
                let gone = file.events().len() - sound.len();
                prop_assert_eq!(events, sound);
                let damage = damage.expect("it is noticed");
                let known = if damage.cut_off { 0 } else { losses().total() };
                // only the footer knows of a lost block that no other block of its CPU follows
                if !damage.cut_off {
                    prop_assert_eq!(damage.lost(), gone as u64);
                }
                prop_assert_eq!(lost.total(), known + damage.lost());
            }
            Err(_) => prop_assert!(at < 12, "{}", at),
        }
        prop_assert!(Recording::read(file.bytes.as_slice()).is_err());
    }

    #[test]
    fn bytes_that_are_gone_or_came_in_cost_no_more_than_the_blocks_they_hit(
        parts in parts(), from: prop::sample::Index, len in 1_usize..400, rubbish: Vec<u8>
    ) {
        let file = File::new(&parts);
        let from = FIXED_HEADER_BYTES + from.index(file.bytes.len() - FIXED_HEADER_BYTES);
        let to = (from + len).min(file.bytes.len());
        let bytes = [&file.bytes[..from], &rubbish, &file.bytes[to..]].concat();
        let (events, damage, _) = recover(&bytes).unwrap();
        if bytes != file.bytes {
            prop_assert!(damage.is_some());
            prop_assert!(Recording::read(bytes.as_slice()).is_err());
        }
        let written = file.events();
        prop_assert!(events.iter().all(|event| written.contains(event)));
        for event in file.outside(from, to) {
            prop_assert!(events.contains(&event), "{:?}", event);
        }
    }

    #[test]
    fn rubbish_is_refused_without_a_panic(rubbish: Vec<u8>, headed in 0..3) {
        let file = File::new(&[3]);
        let head = match headed {
            0 => 0,
            1 => 12,
            _ => file.header_end(),
        };
        let bytes = [&file.bytes[..head], &rubbish].concat();
        match recover(&bytes) {
            Ok((events, damage, _)) => prop_assert!(events.is_empty() && damage.is_some()),
            Err(_) => prop_assert!(head == 0),
        }
    }

    #[test]
    fn columns_of_rubbish_are_refused_without_a_panic(
        columns: Vec<u8>, first in 0_u64..1 << 48, events in 0_usize..300
    ) {
        let mut out = Vec::new();
        let _ = columns::decode(&columns, events, first, kind::LAST, &mut out);
        prop_assert!(out.len() <= events);
    }
}

#[test]
fn damage_is_described_with_what_is_left_and_what_to_do() {
    let file = File::new(&[10, 20, 30, 10]);
    let second = file.blocks[1].0;
    let mut bytes = file.bytes.clone();
    bytes[second + BLOCK_HEADER_BYTES + 3] ^= 1;
    let error = Recording::read(bytes.as_slice()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the recorded stream is damaged at byte {second} (the contents of a block): 50 events \
             could be read, 20 are lost; copy it again, or record again"
        )
    );
    let mut bytes = file.bytes.clone();
    bytes[file.header_end() + 2] ^= 1;
    let (_, damage) = Recording::recover(bytes.as_slice()).unwrap();
    let damage = damage.unwrap();
    let (first, next) = (&file.blocks[1].1, &file.blocks[4].1);
    assert_eq!(
        damage.gaps,
        [Gap {
            cpu: 0,
            after: at(1_000),
            until: Some(next[0].at),
            events: first.len() as u64,
        }]
    );
    assert!(
        damage.to_string().contains("the longest gap is"),
        "{damage}"
    );

    let cut = &file.bytes[..second + 7];
    assert_eq!(
        Recording::read(cut).unwrap_err().to_string(),
        "the recorded stream is cut off: 10 events could be read; copy it again, or record again"
    );
}

#[test]
fn a_file_that_ends_within_its_first_bytes_is_cut_off() {
    let error = Recording::read(&File::new(&[1]).bytes[..10]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the recorded stream is cut off: no event could be read; copy it again, or record again"
    );
}

#[test]
fn a_recording_that_was_never_finished_is_read_as_cut_off() {
    let mut writer = RecordingWriter::new(Vec::new(), at(1), &context()).unwrap();
    for event in simple(5) {
        writer.insert(event).unwrap();
    }
    writer.flush().unwrap();
    let file = writer.out.get_ref().clone();
    let (events, damage, lost) = recover(&file).unwrap();
    assert_eq!(events, simple(5));
    assert!(damage.unwrap().cut_off);
    assert_eq!(lost, LostEvents::default());
}

#[test]
fn a_block_of_another_recording_is_not_taken_in() {
    let (one, mut other) = (File::new(&[5, 6]), Vec::new());
    let events = simple(4).into_iter();
    of_events(events, losses()).write(&mut other).unwrap();
    let end = one.blocks[1].0;
    let bytes = [&one.bytes[..end], &other, &one.bytes[end..]].concat();
    let (events, damage, _) = recover(&bytes).unwrap();
    assert_eq!(events, sorted(one.events()));
    assert!(damage.is_some());
}

#[test]
fn a_block_that_comes_twice_counts_once() {
    let file = File::new(&[5, 6, 7, 8]);
    let end = file.blocks[2].0;
    let bytes = [
        &file.bytes[..end],
        &file.bytes[file.blocks[1].0..end],
        &file.bytes[end..],
    ]
    .concat();
    let (events, damage, _) = recover(&bytes).unwrap();
    assert_eq!(events, sorted(file.events()));
    assert_eq!(damage.unwrap().lost(), 0);
}

#[test]
fn another_version_or_kind_is_refused_by_name() {
    let mut file = File::new(&[1]).bytes;
    file[8] = 77;
    let error = Recording::read(file.as_slice()).unwrap_err();
    assert!(matches!(error, RecordingError::OtherVersion { found: 77 }));
    assert_eq!(
        error.to_string(),
        "the recorded stream has format version 77, this taillab reads versions up to \
         2: use the taillab that recorded it, or record again"
    );
    let error = Recording::read(&b"PAR1 and so on"[..]).unwrap_err();
    assert!(matches!(error, RecordingError::NotARecording));
}
