//! A server that polls instead of sleeping is not busy all the time.

use std::num::NonZeroU32;
use std::sync::Arc;

use taillab_analysis::matcher::{MatchOptions, match_events};
use taillab_analysis::service_time::busy_time;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{Analysed, Analysis, AnalysisOptions, Window};
use taillab_model::{
    Event, EventKind, Monotonic, Nanos, PacketId, RecordingContext, RequestKey, ThreadName,
};

const WORKER: u32 = 9;
const REQUESTS: u64 = 20_000;
const GAP_NS: u64 = 100_000;

/// A request every 100 µs that takes 10 µs; the worker `polls` or sleeps between them.
fn events(polls: bool) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |ns, kind| {
        events.push(Event {
            at: Monotonic::from_nanos_since_boot(ns),
            cpu: 0,
            kind,
        });
    };
    let switch = |prev, next| EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: None,
    };
    // limits are reported only if the recording shows what the CPUs did
    let (vector, lasted) = (1, Nanos::new(1_000));
    add(400_000, EventKind::Softirq { vector, lasted });
    add(500_000, switch(0, WORKER));
    for i in 0..REQUESTS {
        let came = 1_000_000 + i * GAP_NS;
        let key = RequestKey::hashed(0, 40_000 + (i % 8) as u16, (i / 8) as u16);
        let packet = PacketId(i as u32);
        add(came, EventKind::PacketIn { packet, key });
        add(came + 500, EventKind::Enqueued { packet });
        if !polls {
            add(came + 1_000, switch(0, WORKER));
        }
        let (tid, returned) = (WORKER, 72);
        add(came + 1_500, EventKind::ReadReturned { tid, returned });
        add(came + 9_000, EventKind::WriteCalled { tid });
        add(came + 10_000, EventKind::PacketOut { tid, key });
        if !polls {
            add(came + 10_500, switch(WORKER, 0));
        }
    }
    events
}

fn context() -> RecordingContext {
    RecordingContext {
        server_cpus: vec![0],
        threads: vec![ThreadName {
            tid: WORKER,
            pid: WORKER,
            comm: "server".into(),
            server: true,
            real_time: None,
        }],
        ..RecordingContext::default()
    }
}

/// t by the busy time, and the analysis.
fn analysed(polls: bool) -> (Nanos, Analysed) {
    let (events, context) = (events(polls), context());
    let matched = match_events(events.iter().copied(), &MatchOptions::default());
    assert_eq!(matched.requests.len() as u64, REQUESTS);
    let timeline = Timeline::build(events, &context);
    let from = Monotonic::from_nanos_since_boot(1_000_000);
    let found = busy_time::estimate(&matched, &timeline, from, NonZeroU32::MIN).unwrap();
    let options = AnalysisOptions::new(found.service_time, NonZeroU32::MIN, from);
    let mut analysis = Analysis::new(&context, options);
    let window = Window::whole(matched, timeline);
    analysis.push(&Arc::new(window), |_, _| {});
    (found.service_time, analysis.finish(0).unwrap().unjudged())
}

#[test]
fn polling_is_neither_work_nor_a_part_of_t() {
    for polls in [false, true] {
        let (t, found) = analysed(polls);
        let t = t.as_micros_f64();
        assert!((8.0..=10.5).contains(&t), "{t} µs, polls {polls}");
        let utilization = found.server.measured.utilization.unwrap();
        assert!(
            (0.08..=0.105).contains(&utilization),
            "{utilization}, polls {polls}"
        );
        let explanation = found.server.explanation;
        let limits = explanation.map_or_else(Vec::new, |explanation| explanation.limits);
        let said = limits.iter().any(|limit| limit.contains("it polls"));
        assert_eq!(said, polls, "{limits:?}");
    }
}
