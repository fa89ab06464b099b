//! The probe drained into a file while it records, on the running kernel.

use crate::testbed::{Testbed, live};
use taillab_model::{
    Event, EventKind, EventOrder, LostEvents, Recording, RecordingContext, RecordingReader,
    RecordingWriter,
};
use taillab_probe::Probe;

fn requests_and_responses(events: &[Event]) -> (usize, usize) {
    let count = |of: fn(&EventKind) -> bool| events.iter().filter(|e| of(&e.kind)).count();
    (
        count(|kind| matches!(kind, EventKind::PacketIn { .. })),
        count(|kind| matches!(kind, EventKind::PacketOut { .. })),
    )
}

#[test]
fn what_is_drained_into_a_file_is_what_happened() {
    let Some(_alone) = live("what_is_drained_into_a_file_is_what_happened") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = Probe::load(&testbed.spec).unwrap();
    let context = RecordingContext {
        server: "an echo server".into(),
        ..RecordingContext::default()
    };
    let writer = RecordingWriter::new(Vec::new(), probe.base(), &context).unwrap();
    let mut sink = (writer, EventOrder::new(probe.base()));
    probe.attach().unwrap();
    let mut watched = Vec::new();
    let mut drained = 0;
    for id in 0..5_000_u32 {
        testbed.round_trip(&id.to_be_bytes());
        if id % 100 == 0 {
            drained += probe.drain_into(&mut sink).unwrap();
            watched.extend(std::iter::from_fn(|| sink.1.next_settled()));
        }
    }
    assert!(drained > 0);
    probe.finish_into(&mut sink).unwrap();
    assert!(!probe.is_attached());
    let lost = probe.lost().unwrap();
    assert_eq!(lost, LostEvents::default());
    let (writer, mut order) = sink;
    watched.extend(std::iter::from_fn(|| order.next_settled()));
    assert!(watched.is_sorted_by_key(|event| event.at));
    assert_eq!(requests_and_responses(&watched), (5_000, 5_000));
    assert_eq!(writer.events(), watched.len() as u64);

    let file = writer.finish(&context, lost).unwrap();
    let read: Vec<Event> = RecordingReader::open(file.as_slice()).unwrap().collect();
    assert_eq!(read, watched);
    let recording = Recording::read(file.as_slice()).unwrap();
    assert_eq!(recording.context, context);
    assert_eq!(recording.into_events().collect::<Vec<_>>(), watched);
    // nothing was kept in memory
    assert!(probe.finish().unwrap().is_empty());
}
