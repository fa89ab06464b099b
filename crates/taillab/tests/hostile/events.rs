//! Damage to what a recording says: its events are read, changed, and written again, so that the file itself is sound.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use taillab_model::{
    AddressPart, Event, EventKind, LostEvents, Monotonic, Nanos, Recording, RecordingContext,
    RecordingWriter, RequestKey,
};

/// The longest recording that is changed so: nothing else would be tried while larger ones are.
const MOST_EVENTS: usize = 60_000;

/// One to sixteen changes of the events; `None` if there are none, or too many.
pub(crate) fn rewritten(file: &[u8], rng: &mut Xoshiro256PlusPlus) -> Option<Vec<u8>> {
    let recording = Recording::read(file).ok()?;
    let (base, context) = (recording.base, recording.context.clone());
    let mut events: Vec<Event> = recording.events().collect();
    if events.is_empty() || events.len() > MOST_EVENTS {
        return None;
    }
    for _ in 0..1 << rng.random_range(0..5) {
        change(&mut events, rng);
    }
    events.sort_by_key(|event| event.at);
    Some(written(base, &context, &events))
}

fn change(events: &mut Vec<Event>, rng: &mut Xoshiro256PlusPlus) {
    if events.is_empty() {
        return;
    }
    let mut place = || rng.random_range(0..events.len());
    let (one, other) = (place(), place());
    let length = rng.random_range(1..=200);
    let part = one..(one + length).min(events.len());
    match rng.random_range(0..8) {
        0 => drop(events.drain(part)),
        1 => {
            let twice = events[part].to_vec();
            events.extend(twice);
        }
        // what happened, at each other's time
        2 => {
            let kind = events[one].kind;
            events[one].kind = std::mem::replace(&mut events[other].kind, kind);
        }
        3 => events[one].cpu = events[other].cpu,
        4 => {
            let later = Nanos::new(1 << rng.random_range(0..36));
            let moved = part.clone();
            (events[moved].iter_mut()).for_each(|event| event.at = event.at + later);
        }
        // one connection becomes another one, or a number that nobody has
        5 | 6 => {
            let number = match rng.random_bool(0.7) {
                true => connection(events[other].kind),
                false => Some(rng.random_range(0..1 << 24)),
            };
            if let Some(number) = number {
                (events[part].iter_mut()).for_each(|event| put_connection(&mut event.kind, number));
            }
        }
        _ => {
            let announced = AddressPart::of(address(rng.random_range(0..4)));
            let connection = connection(events[other].kind).unwrap_or(7);
            let (at, cpu) = (events[one].at, events[one].cpu);
            // perhaps not all of its parts
            let parts = announced.into_iter().filter(|_| rng.random_bool(0.8));
            let new: Vec<Event> = parts
                .map(|part| Event {
                    at,
                    cpu,
                    kind: EventKind::Announced { connection, part },
                })
                .collect();
            events.extend(new);
        }
    }
}

fn connection(kind: EventKind) -> Option<u32> {
    let mut kind = kind;
    match &mut kind {
        EventKind::Announced { connection, .. } => Some(*connection),
        kind => key(kind).map(|key| key.connection),
    }
}

fn put_connection(kind: &mut EventKind, number: u32) {
    match kind {
        EventKind::Announced { connection, .. } => *connection = number,
        kind => {
            if let Some(key) = key(kind) {
                key.connection = number;
            }
        }
    }
}

fn key(kind: &mut EventKind) -> Option<&mut RequestKey> {
    match kind {
        EventKind::PacketIn { key, .. }
        | EventKind::PacketOut { key, .. }
        | EventKind::SegmentIn { key, .. }
        | EventKind::SegmentQueued { key }
        | EventKind::SegmentRead { key, .. }
        | EventKind::SegmentWritten { key, .. }
        | EventKind::SegmentOut { key, .. } => Some(key),
        _ => None,
    }
}

fn written(base: Monotonic, context: &RecordingContext, events: &[Event]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), base, context).unwrap();
    for event in events {
        writer.insert(*event).unwrap();
    }
    writer.finish(context, LostEvents::default()).unwrap()
}

fn address(n: u16) -> std::net::SocketAddr {
    let ip = match n {
        0 => "10.0.0.9".parse().unwrap(),
        n => std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0xff, n, 1).into(),
    };
    std::net::SocketAddr::new(ip, 40_000 + n)
}

/// A recording in which clients of IPv6 are announced and served, one after the other.
pub(crate) fn of_ipv6() -> Vec<u8> {
    let at = |us: u64| Monotonic::from_nanos_since_boot(1_000_000_000 + 1_000 * us);
    let context = RecordingContext {
        server: "tcp [2001:db8::1]:7".to_owned(),
        ..RecordingContext::default()
    };
    let mut events = Vec::new();
    for round in 0..200_u64 {
        let client = (round % 4) as u16;
        let connection = u32::from(client) << 3 | 1;
        let begin = 500 * round;
        let mut add = |us, cpu, kind| {
            events.push(Event {
                at: at(begin + us),
                cpu,
                kind,
            });
        };
        if round < 4 {
            for part in AddressPart::of(address(client)) {
                add(0, 1, EventKind::Announced { connection, part });
            }
        }
        let key = RequestKey {
            connection,
            id: (100 * (round / 4 + 1)) as u16,
        };
        let (tid, push) = (70, true);
        let read = EventKind::SegmentRead {
            tid,
            key,
            bytes_mod_1024: 100,
        };
        add(
            1,
            1,
            EventKind::SegmentIn {
                key,
                bytes: 100,
                push,
            },
        );
        add(3, 1, EventKind::SegmentQueued { key });
        add(10, 0, read);
        add(50, 0, EventKind::SegmentWritten { tid, key });
        let (more, resent) = (false, false);
        add(
            55,
            0,
            EventKind::SegmentOut {
                tid,
                key,
                more,
                resent,
                limit: None,
            },
        );
    }
    written(at(0), &context, &events)
}
