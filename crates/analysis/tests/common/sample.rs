//! A recording of all requests made into what the probe records of a sample of them.

use std::collections::{HashMap, HashSet};

use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Event, EventKind, MiddleStamps, PacketId, RequestKey};

/// The events without T2, T4 and T5 of requests that are not asked for.
pub(crate) fn thinned(
    events: &[Event],
    options: &MatchOptions,
    stamps: MiddleStamps,
) -> Vec<Event> {
    let all = match_events(events.iter().copied(), options);
    let mut calls = HashSet::new();
    for (place, key) in all.keys.iter().enumerate() {
        if stamps.ask(*key) {
            let [_, _, t4, t5] = all.requests.stamps(place).middle();
            calls.extend([t4, t5].into_iter().flatten());
        }
    }
    let mut packets: HashMap<PacketId, RequestKey> = HashMap::new();
    let kept = events.iter().filter_map(|event| {
        let (keeps, kind) = match event.kind {
            EventKind::PacketIn { packet, key } => {
                packets.insert(packet, key);
                (true, event.kind)
            }
            EventKind::Enqueued { packet } => {
                let key = *packets.get(&packet)?;
                (stamps.ask(key), EventKind::DatagramQueued { key })
            }
            EventKind::ReadReturned { .. } | EventKind::WriteCalled { .. } => {
                (calls.contains(&event.at), event.kind)
            }
            EventKind::SegmentQueued { key }
            | EventKind::SegmentRead { key, .. }
            | EventKind::SegmentWritten { key, .. } => (stamps.ask(key), event.kind),
            _ => (true, event.kind),
        };
        keeps.then_some(Event { kind, ..*event })
    });
    kept.collect()
}
