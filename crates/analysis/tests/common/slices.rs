//! Turns a recording of everything into what the probe records in slices.

use std::ops::Range;

use taillab_model::{Event, EventKind, Monotonic, Nanos};

/// Slices of this length, one in each `period`, from the first event on.
pub(crate) fn regular(events: &[Event], length: Nanos, period: Nanos) -> Vec<Range<Monotonic>> {
    let times = || events.iter().map(|event| event.at);
    let (Some(first), Some(last)) = (times().min(), times().max()) else {
        return Vec::new();
    };
    let begins = (0..).map(|number| first + period * number);
    let whole = begins.take_while(|begin| *begin + length < last);
    whole.map(|begin| begin..begin + length).collect()
}

/// The events that are always recorded, all events of the slices, and the marks where slices begin and end.
///
/// As with the probe, some programs are attached a little before a slice begins, and detached a
/// little after it has ended.
pub(crate) fn sliced(events: &[Event], slices: &[Range<Monotonic>]) -> Vec<Event> {
    const TRANSIENT: Nanos = Nanos::from_millis(3);
    let is_in = |event: &Event| {
        let of_programs_at_the_edges = matches!(
            event.kind,
            EventKind::Switched { .. } | EventKind::Woken { .. } | EventKind::ReadReturned { .. }
        );
        let next = slices.partition_point(|slice| slice.end + TRANSIENT < event.at);
        slices.get(next).is_some_and(|slice| {
            let earlier = slice.start.saturating_since(event.at);
            let later = event.at.saturating_since(slice.end);
            slice.contains(&event.at) || of_programs_at_the_edges && earlier.max(later) <= TRANSIENT
        })
    };
    let mut kept: Vec<Event> = events
        .iter()
        .filter(|event| event.kind.is_always_recorded() || is_in(event))
        .copied()
        .collect();
    for slice in slices {
        for (at, begins) in [(slice.start, true), (slice.end, false)] {
            kept.push(Event {
                at,
                cpu: 1,
                kind: EventKind::Slice { begins },
            });
        }
    }
    kept.sort_by_key(|event| event.at);
    kept
}
