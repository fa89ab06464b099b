use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taillab_model::{EventKind, Nanos};

use super::*;

const SLOTS: u32 = 256;
const MARGIN: u64 = 64;

/// What the eBPF programs do, on memory in place of the two maps.
struct Producer {
    rings: Rings,
    writable: Mapping<Slot>,
}

fn memory(bytes: usize) -> OwnedFd {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    file
}

fn event(n: u64) -> PackedEvent {
    let tid = n as u32;
    PackedEvent::new(Nanos::new(n), EventKind::WriteCalled { tid })
}

impl Producer {
    fn new(cpus: usize) -> Self {
        let positions = memory(cpus * size_of::<Positions>());
        let slots = memory(cpus * SLOTS as usize * size_of::<Slot>());
        let len = cpus * SLOTS as usize;
        Self {
            rings: Rings::map(&positions, &slots, cpus, SLOTS).unwrap(),
            writable: Mapping::new(&slots, len, ProtFlags::READ | ProtFlags::WRITE).unwrap(),
        }
    }

    /// Takes a position, or counts the event as lost.
    fn begin(&self, cpu: usize) -> Option<u64> {
        let ring = &self.rings.positions.items()[cpu];
        let tail = ring.tail.load(Ordering::Acquire);
        if ring.head.load(Ordering::Relaxed) - tail >= u64::from(SLOTS) - MARGIN {
            ring.no_room.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(ring.head.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes the event at its position.
    fn end(&self, cpu: usize, position: u64, event: PackedEvent) {
        let slots = u64::from(SLOTS);
        let index = cpu as u64 * slots + position % slots;
        let lap = if position & slots == 0 { LAP } else { 0 };
        let slot = &self.writable.items()[index as usize];
        let [head, values] = event.words();
        slot.values.store(values, Ordering::Relaxed);
        slot.head.store(head | lap, Ordering::Release);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64),
    /// Begin an event that ends only after this many others have been written.
    WriteLate(u64),
    Take(u64),
}

proptest! {
    #[test]
    fn every_event_comes_out_once_and_in_order(
        steps in prop::collection::vec(
            prop_oneof![
                (1_u64..100).prop_map(Step::Write),
                (1_u64..20).prop_map(Step::WriteLate),
                (1_u64..200).prop_map(Step::Take),
            ],
            1..200,
        )
    ) {
        let mut producer = Producer::new(2);
        let (mut next, mut lost) = (1, 0);
        let mut expected = VecDeque::new();
        let write = |producer: &Producer, next: &mut u64, lost: &mut u64, count| {
            let mut written = VecDeque::new();
            for _ in 0..count {
                match producer.begin(1) {
                    Some(position) => {
                        producer.end(1, position, event(*next));
                        written.push_back(event(*next));
                    }
                    None => *lost += 1,
                }
                *next += 1;
            }
            written
        };
        let take = |producer: &mut Producer, expected: &mut VecDeque<PackedEvent>, max| {
            let mut taken = Vec::new();
            let n = producer.rings.take(1, max, |event| taken.push(event));
            assert_eq!(n, taken.len() as u64);
            for event in taken {
                assert_eq!(Some(event), expected.pop_front());
            }
            n
        };
        for step in steps {
            match step {
                Step::Write(count) => {
                    expected.append(&mut write(&producer, &mut next, &mut lost, count));
                }
                Step::WriteLate(count) => {
                    let before = expected.len() as u64;
                    let late = (producer.begin(1), next);
                    next += 1;
                    let mut after = write(&producer, &mut next, &mut lost, count);
                    if let (Some(position), n) = late {
                        // nothing at or behind the unfinished event is taken
                        prop_assert_eq!(take(&mut producer, &mut expected, u64::MAX), before);
                        prop_assert!(!producer.rings.is_empty(1));
                        producer.end(1, position, event(n));
                        expected.push_back(event(n));
                    } else {
                        lost += 1;
                    }
                    expected.append(&mut after);
                }
                Step::Take(max) => {
                    let ready = expected.len() as u64;
                    prop_assert_eq!(producer.rings.has_batch(1), ready >= BATCH);
                    prop_assert_eq!(take(&mut producer, &mut expected, max), ready.min(max));
                }
            }
            prop_assert_eq!(producer.rings.pending(), expected.len() as u64);
        }
        prop_assert_eq!(producer.rings.losses().ring_full, lost);
        prop_assert!(producer.rings.is_empty(0));
    }
}

#[test]
fn what_the_programs_noted_for_themselves_is_forgotten_and_nothing_else() {
    let producer = Producer::new(2);
    for ring in producer.rings.positions.items() {
        for word in &ring.scratch {
            word.store(7, Ordering::Relaxed);
        }
        ring.unreadable.store(3, Ordering::Relaxed);
        ring.tail.store(1, Ordering::Relaxed);
    }
    producer.rings.clear_scratch();
    for ring in producer.rings.positions.items() {
        let mut words = ring.scratch.iter();
        assert!(words.all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!(ring.unreadable.load(Ordering::Relaxed), 3);
        assert_eq!(ring.tail.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn the_positions_are_laid_out_as_in_the_programs() {
    assert_eq!(size_of::<Positions>(), 256);
    assert_eq!(std::mem::offset_of!(Positions, scratch), 24);
    assert_eq!(std::mem::offset_of!(Positions, tail), 128);
    assert_eq!(size_of::<Slot>(), 16);
}
