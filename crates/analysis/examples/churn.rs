//! Writes a recording of a server that starts a thread for each connection, and never sees a client again:
//! `churn MILLIONS FILE`. What `taillab explain` needs for it must not depend on how many they are; scripts/churn.sh asks.

#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};

use taillab_model::{
    AddressPart, Asleep, Event, EventKind, LostEvents, Monotonic, Nanos, PLACE_BITS,
    RecordingContext, RecordingWriter, RequestKey, Tid,
};

/// From the T1 of one connection to that of the next one.
const GAP_NS: u64 = 100_000;
/// Threads have numbers below 2²².
const THREADS: u64 = 4_000_000;
const BEGIN: Monotonic = Monotonic::from_nanos_since_boot(1_000_000_000);

fn main() {
    let usage = "churn MILLIONS FILE, e.g. churn 10 /tmp/churn.tlc";
    let mut args = std::env::args().skip(1);
    let millions: u64 = args.next().and_then(|text| text.parse().ok()).expect(usage);
    let file = File::create(args.next().expect(usage)).unwrap();
    let context = RecordingContext {
        server: "tcp 10.0.0.1:7".to_owned(),
        workers: Some(1),
        ..RecordingContext::default()
    };
    let mut writer = RecordingWriter::new(file, BEGIN, &context).unwrap();
    for n in 0..millions * 1_000_000 {
        let from = BEGIN + Nanos::new((n + 1) * GAP_NS);
        for event in connection(n, from) {
            writer.insert(event).unwrap();
        }
        if n % 10_000 == 0 {
            let settled = Nanos::new(n * GAP_NS);
            taillab_model::EventSink::settle(&mut writer, settled).unwrap();
        }
    }
    writer.finish(&context, LostEvents::default()).unwrap();
}

/// The n-th connection: its announcement, one request, one response.
fn connection(n: u64, from: Monotonic) -> Vec<Event> {
    // the places of the probe's table in turn, and how often each was given away
    let (place, times) = (n % (1 << PLACE_BITS), n >> PLACE_BITS & 63);
    let connection = (times << PLACE_BITS | place) as u32;
    let tid = (1_000 + n % THREADS) as Tid;
    let key = |id| RequestKey { connection, id };
    let address = Ipv4Addr::from(0x0a01_0000 + (n / 30_000 % 60_000) as u32);
    let client = SocketAddr::new(address.into(), 30_000 + (n % 30_000) as u16);
    let announced = AddressPart::of(client).into_iter();
    let mut kinds: Vec<(u64, u16, EventKind)> = announced
        .map(|part| (0, 1, EventKind::Announced { connection, part }))
        .collect();
    let asleep = Asleep {
        call: None,
        uninterruptible: false,
        stopped: false,
    };
    let switched = |prev, next| EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: (prev != 0).then_some(asleep),
    };
    let begins = EventKind::SegmentIn {
        key: key(0),
        bytes: 0,
        push: false,
    };
    let request = EventKind::SegmentIn {
        key: key(100),
        bytes: 100,
        push: true,
    };
    let softirq = EventKind::Softirq {
        vector: 3,
        lasted: Nanos::from_micros(4),
    };
    let read = EventKind::SegmentRead {
        tid,
        key: key(100),
        bytes_mod_1024: 100,
    };
    let sent = EventKind::SegmentOut {
        tid,
        key: key(100),
        more: false,
        resent: false,
        limit: None,
    };
    kinds.extend([
        (1, 1, begins),
        (10, 1, request),
        (13, 1, EventKind::SegmentQueued { key: key(100) }),
        (14, 1, softirq),
        (20, 0, switched(0, tid)),
        (25, 0, read),
        // one in a hundred takes longer
        (
            35 + n % 100 / 99 * 20,
            0,
            EventKind::SegmentWritten { tid, key: key(100) },
        ),
        (37 + n % 100 / 99 * 20, 0, sent),
        (40 + n % 100 / 99 * 20, 0, switched(tid, 0)),
    ]);
    let event = |(us, cpu, kind)| Event {
        at: from + Nanos::new(1_000 * us),
        cpu,
        kind,
    };
    kinds.into_iter().map(event).collect()
}
