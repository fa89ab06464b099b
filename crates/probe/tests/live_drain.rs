//! The probe drained into a file while it records, on the running kernel.
//!
//! Needs root and a kernel with BTF. Where they are missing the test fails, unless
//! `TAILLAB_SKIP_LIVE=1` says that this is known.

mod testbed;

use std::io::Write;
use std::path::Path;

use taillab_model::{
    Event, EventKind, EventOrder, LostEvents, Recording, RecordingContext, RecordingReader,
    RecordingWriter,
};
use taillab_probe::Probe;
use testbed::Testbed;

/// Whether it can run live, or that was declined in so many words.
fn live(test: &str) -> bool {
    let lacks = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "a kernel with BTF"
    } else {
        return true;
    };
    assert!(
        std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|v| v == "1"),
        "{test} needs {lacks}; set TAILLAB_SKIP_LIVE=1 to do without the live tests"
    );
    // not print: that is shown for failed tests only
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it needs {lacks}");
    false
}

fn requests_and_responses(events: &[Event]) -> (usize, usize) {
    let count = |of: fn(&EventKind) -> bool| events.iter().filter(|e| of(&e.kind)).count();
    (
        count(|kind| matches!(kind, EventKind::PacketIn { .. })),
        count(|kind| matches!(kind, EventKind::PacketOut { .. })),
    )
}

#[test]
fn what_is_drained_into_a_file_is_what_happened() {
    if !live("what_is_drained_into_a_file_is_what_happened") {
        return;
    }
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
