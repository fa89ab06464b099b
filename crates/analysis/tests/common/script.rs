//! Events written by hand, one on each line: time, CPU, what.
//!
//! ```text
//! 100 1 in p1 k7          T1: packet 1 with key 7
//! 110 0 queued p1         T2
//! 115 0 switch 0>9        from idle to thread 9
//! 120 0 read 9            T4 of thread 9
//! 150 0 write 9           T5
//! 155 0 out 9 k7          T6
//! 160 0 preempt 9>3       a switch from a thread that could have gone on
//! ```

use taillab_model::{Event, EventKind, Monotonic, PacketId, RequestKey};

pub(crate) fn key(id: u16) -> RequestKey {
    RequestKey::hashed(0, 40_000, id)
}

pub(crate) fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

pub(crate) fn events(script: &str) -> Vec<Event> {
    let lines = script.lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(event).collect()
}

fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| -> u32 {
        let digits = word.trim_start_matches(['p', 'k']);
        digits.parse().unwrap_or_else(|_| panic!("{line}: {word}"))
    };
    let packet = |word| PacketId(number(word));
    let key = |word| key(number(word) as u16);
    let switch = |pair: &str, preempted| {
        let (prev, next) = pair.split_once('>').unwrap();
        EventKind::Switched {
            prev: number(prev),
            next: number(next),
            preempted,
            asleep: None,
        }
    };
    let kind = match words[2..] {
        ["in", p, k] => EventKind::PacketIn {
            packet: packet(p),
            key: key(k),
        },
        ["queued", p] => EventKind::Enqueued { packet: packet(p) },
        ["read", tid] => EventKind::ReadReturned {
            tid: number(tid),
            returned: 72,
        },
        ["write", tid] => EventKind::WriteCalled { tid: number(tid) },
        ["out", tid, k] => EventKind::PacketOut {
            tid: number(tid),
            key: key(k),
        },
        ["switch", pair] => switch(pair, false),
        ["preempt", pair] => switch(pair, true),
        _ => panic!("no event: {line}"),
    };
    Event {
        at: at(words[0].parse().unwrap()),
        cpu: words[1].parse().unwrap(),
        kind,
    }
}
