use super::line::ns;
use super::*;
use proptest::prelude::*;
use taillab_model::{Asleep, EventKind, PacketId, RequestKey};
use taillab_model::{Event, Interrupt, Monotonic, Nanos, RecordingContext, ThreadName, Tid};

mod stalls;

pub(crate) const SERVER: Tid = 9;

fn event(at: u64, cpu: u16, kind: EventKind) -> Event {
    Event {
        at: Monotonic::from_nanos_since_boot(at),
        cpu,
        kind,
    }
}

pub(crate) fn switch(at: u64, prev: Tid, next: Tid, how: Option<Option<u16>>) -> Event {
    let asleep = how.map(|call| Asleep {
        call,
        uninterruptible: false,
        stopped: false,
    });
    let kind = EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: asleep.filter(|_| prev == SERVER),
    };
    event(at, 0, kind)
}

/// A recording whose server is the thread [`SERVER`].
pub(crate) fn of_server() -> RecordingContext {
    RecordingContext {
        threads: vec![ThreadName {
            tid: SERVER,
            pid: SERVER,
            comm: "server".to_owned(),
            server: true,
            real_time: None,
        }],
        ..RecordingContext::default()
    }
}

fn preempt(at: u64, prev: Tid, next: Tid) -> Event {
    let kind = EventKind::Switched {
        prev,
        next,
        preempted: true,
        asleep: None,
    };
    event(at, 0, kind)
}

fn softirq(at: u64, lasted: u64) -> Event {
    let lasted = Nanos::new(lasted);
    event(at, 0, EventKind::Softirq { vector: 3, lasted })
}

fn timer(at: u64, lasted: u64) -> Event {
    let interrupt = Interrupt::LocalTimer;
    let lasted = Nanos::new(lasted);
    event(at, 0, EventKind::Interrupt { interrupt, lasted })
}

fn read(at: u64) -> Event {
    let kind = EventKind::ReadReturned {
        tid: SERVER,
        returned: 1,
    };
    event(at, 0, kind)
}

fn build(events: Vec<Event>) -> Timeline {
    Timeline::build(events, &RecordingContext::default())
}

/// (from, to, thread, top) of CPU 0.
fn line(timeline: &Timeline) -> Vec<(u64, u64, Tid, Top)> {
    let segments = timeline.cpu(0).unwrap().segments();
    segments
        .map(|s| (ns(s.from), ns(s.to), s.thread, s.top))
        .collect()
}

fn states(timeline: &Timeline) -> Vec<(u64, WorkerState)> {
    let spans = timeline.worker(SERVER).unwrap().spans();
    spans.map(|s| (ns(s.from), s.state)).collect()
}

const RX: Top = Top::Softirq { vector: 3 };
const TIMER: Top = Top::Interrupt(Interrupt::LocalTimer);
const ON: WorkerState = WorkerState::OnCore { cpu: 0 };

#[test]
fn nested_interrupts_are_taken_apart() {
    let timeline = build(vec![
        switch(100, 0, 5, None),
        timer(240, 20),
        softirq(300, 100),
        switch(400, 5, 0, None),
    ]);
    assert_eq!(
        line(&timeline),
        [
            (100, 200, 5, Top::Nothing),
            (200, 220, 5, RX),
            (220, 240, 5, TIMER),
            (240, 300, 5, RX),
            (300, 400, 5, Top::Nothing),
            (400, 400, 0, Top::Nothing),
        ]
    );
}

#[test]
fn a_power_state_is_idle_time_only() {
    let lasted = Nanos::new(100);
    let timeline = build(vec![
        switch(100, 5, 0, None),
        softirq(190, 20),
        event(200, 0, EventKind::IdleLeft { state: 1, lasted }),
        switch(210, 0, 5, None),
        switch(300, 5, 0, None),
    ]);
    let idle = Top::Idle { state: 1 };
    assert_eq!(
        line(&timeline)[..4],
        [
            (100, 170, 0, idle),
            (170, 190, 0, RX),
            (190, 200, 0, idle),
            (200, 210, 0, Top::Nothing),
        ]
    );
}

#[test]
fn a_contradiction_makes_a_blind_window_since_the_last_proof() {
    let timeline = build(vec![
        switch(100, 0, SERVER, None),
        read(150),
        softirq(180, 10),
        // nobody saw 9 leave
        switch(200, 1, 0, None),
        switch(300, 0, 5, None),
    ]);
    assert_eq!(
        line(&timeline)[..5],
        [
            (100, 150, SERVER, Top::Nothing),
            (150, 170, SERVER, Top::Blind),
            (170, 180, SERVER, RX),
            (180, 200, SERVER, Top::Blind),
            (200, 300, 0, Top::Nothing),
        ]
    );
    assert_eq!(states(&timeline), [(150, WorkerState::Unknown)]);
}

#[test]
fn a_thread_that_is_never_seen_to_leave_had_the_cpu_until_another_one_shows_itself() {
    const INIT: Tid = 75;
    let comes = |at| [preempt(at, SERVER, INIT), read(at + 50)];
    let timeline = |more: Vec<Event>| {
        let mut events = vec![switch(50, 0, SERVER, None)];
        events.extend([100, 200, 300, 400].into_iter().flat_map(comes));
        events.extend(more);
        events.sort_by_key(|event| event.at);
        build(events)
    };
    let of_init = |timeline: &Timeline| -> Vec<(u64, u64, Top)> {
        let line = line(timeline).into_iter();
        line.filter(|segment| segment.2 == INIT)
            .map(|(from, to, _, top)| (from, to, top))
            .collect()
    };
    let unwatched = timeline(vec![]);
    assert_eq!(
        of_init(&unwatched),
        [
            (100, 150, Top::Blind),
            (200, 250, Top::Blind),
            // seen three times, it is certain
            (300, 350, Top::Nothing),
            (400, 450, Top::Nothing),
        ]
    );
    // the server's thread is preempted meanwhile, and its state is known
    let preempted = WorkerState::Preempted { cpu: 0 };
    assert!(states(&unwatched).ends_with(&[(400, preempted), (450, ON)]));
    // if it was seen to leave once, the other switches were lost
    let seen = timeline(vec![
        preempt(260, SERVER, INIT),
        switch(270, INIT, SERVER, None),
    ]);
    let found = of_init(&seen);
    assert_eq!(found[3..], [(300, 350, Top::Blind), (400, 450, Top::Blind)]);
    // the same if it was not seen to come that time
    let seen = timeline(vec![preempt(260, INIT, SERVER)]);
    let found = of_init(&seen);
    assert_eq!(found[2..], [(300, 350, Top::Blind), (400, 450, Top::Blind)]);
}

#[test]
fn what_cannot_be_read_of_a_damaged_file_is_blind() {
    let lasted = Nanos::new(100);
    let timeline = build(vec![
        switch(100, 0, SERVER, None),
        read(150),
        event(300, 0, EventKind::Unreadable { lasted }),
        switch(310, 5, SERVER, None),
        switch(400, SERVER, 0, None),
    ]);
    assert_eq!(
        line(&timeline)[..3],
        [
            (100, 150, SERVER, Top::Nothing),
            // since the last proof: the switch at 310 contradicts who was current
            (150, 310, SERVER, Top::Blind),
            (310, 400, SERVER, Top::Nothing),
        ]
    );
    assert_eq!(
        states(&timeline)[..3],
        [(150, ON), (200, WorkerState::Unknown), (310, ON)]
    );
}

#[test]
fn a_call_closes_a_blind_window() {
    let timeline = build(vec![
        switch(100, 0, 5, None),
        read(200),
        switch(300, SERVER, 0, Some(Some(232))),
        switch(310, 0, 5, None),
    ]);
    assert_eq!(
        line(&timeline)[..3],
        [
            (100, 200, 5, Top::Blind),
            (200, 300, SERVER, Top::Nothing),
            (300, 310, 0, Top::Nothing),
        ]
    );
    let asleep = WorkerState::Asleep(Sleep::Work);
    assert_eq!(states(&timeline), [(200, ON), (300, asleep)]);
}

#[test]
fn a_thread_sleeps_is_woken_moves_and_runs() {
    let woken = EventKind::Woken { tid: SERVER, by: 3 };
    let moved = EventKind::Migrated { tid: SERVER, to: 2 };
    let timeline = build(vec![
        switch(100, 0, SERVER, None),
        switch(200, SERVER, 0, Some(Some(202))),
        event(300, 1, woken),
        event(301, 1, moved),
        preempt(400, 5, SERVER),
        preempt(500, SERVER, 5),
    ]);
    assert_eq!(
        states(&timeline),
        [
            (200, WorkerState::Asleep(Sleep::Lock { call: Some(202) })),
            (300, WorkerState::Woken { cpu: 0, by: 3 }),
            (301, WorkerState::Woken { cpu: 2, by: 3 }),
            (400, ON),
            (500, WorkerState::Preempted { cpu: 0 }),
        ]
    );
}

#[test]
fn waiting_for_a_lock_of_the_kernel_is_spinning_or_sleeping() {
    let taken = |waited| EventKind::LockTaken {
        tid: SERVER,
        flags: 1,
        waited: Nanos::new(waited),
    };
    let timeline = build(vec![
        switch(100, 0, 5, None),
        read(101),
        event(200, 0, taken(50)),
        switch(300, SERVER, 0, Some(Some(9))),
        switch(400, 0, SERVER, None),
        event(410, 0, taken(120)),
        switch(500, SERVER, 0, None),
    ]);
    assert!(line(&timeline).contains(&(150, 200, SERVER, Top::KernelLock)));
    let asleep = WorkerState::Asleep(Sleep::Lock { call: None });
    assert!(states(&timeline).contains(&(300, asleep)));
}

#[test]
fn all_of_a_page_fault_that_waits_for_storage_is_the_faults() {
    const FAULT: Top = Top::Storage { call: None };
    let fault = EventKind::PageFault {
        tid: SERVER,
        write: false,
    };
    let mut events = vec![
        switch(1_000, 0, 5, None),
        read(2_000),
        event(3_000, 0, fault),
        // the disk is asked, and for a long time nothing happens
        switch(1_000_000, SERVER, 0, Some(None)),
        switch(1_100_000, 0, SERVER, None),
        event(1_103_000, 0, EventKind::MajorFault { tid: SERVER }),
        event(1_104_000, 0, fault),
        read(1_110_000),
        switch(2_000_000, SERVER, 0, None),
        event(
            1_001_000,
            7,
            EventKind::Stalled {
                lasted: Nanos::new(990_000),
            },
        ),
    ];
    // meanwhile it does not react to the other CPU either
    for (at, packet) in [(100_000, PacketId(7)), (500_000, PacketId(8))] {
        let key = RequestKey::default();
        events.push(event(at, 1, EventKind::PacketIn { packet, key }));
        events.push(event(900_000, 0, EventKind::Enqueued { packet }));
    }
    events.sort_by_key(|event| event.at);
    let timeline = build(events);
    let line = line(&timeline);
    assert!(
        line.contains(&(3_000, 1_000_000, SERVER, FAULT)),
        "{line:?}"
    );
    assert!(line.contains(&(1_100_000, 1_103_000, SERVER, FAULT)));
    // a fault that only maps a page is the thread's own work
    assert!(
        line.contains(&(1_103_000, 2_000_000, SERVER, Top::Nothing)),
        "{line:?}"
    );
    let asleep = WorkerState::Asleep(Sleep::Fault);
    assert!(states(&timeline).contains(&(1_000_000, asleep)));
}

#[test]
fn what_a_read_waits_for_is_the_storages_though_the_cpu_stood_still() {
    const READ: Top = Top::Storage { call: Some(17) };
    let waited = |at, waited| {
        let kind = EventKind::StorageWaited {
            tid: SERVER,
            call: 17,
            waited: Nanos::new(waited),
        };
        event(at, 0, kind)
    };
    let canary = |at, lasted| {
        let lasted = Nanos::new(lasted);
        event(at, 7, EventKind::Stalled { lasted })
    };
    let timeline = |ended: Option<Event>| {
        let mut events = vec![
            switch(1_000, 0, 5, None),
            read(2_000),
            // it computes, then asks, and sleeps for the rest
            switch(2_000_000, SERVER, 0, Some(Some(17))),
            switch(2_500_000, 0, SERVER, None),
            canary(900_000, 880_000),
            canary(1_999_000, 990_000),
            read(2_600_000),
            switch(3_000_000, SERVER, 0, None),
        ];
        events.extend(ended);
        events.sort_by_key(|event| event.at);
        build(events)
    };
    let known = timeline(Some(waited(2_550_000, 1_550_000)));
    let line_of = line(&known);
    assert!(
        line_of.contains(&(1_000_000, 2_000_000, SERVER, READ)),
        "{line_of:?}"
    );
    assert!(
        line_of.contains(&(2_500_000, 2_550_000, SERVER, READ)),
        "{line_of:?}"
    );
    assert!(
        line_of.contains(&(2_550_000, 3_000_000, SERVER, Top::Nothing)),
        "{line_of:?}"
    );
    // the silence before is judged as usual
    assert!(
        line_of.contains(&(20_000, 900_000, SERVER, Top::Stall)),
        "{line_of:?}"
    );
    let asleep = WorkerState::Asleep(Sleep::Io { call: 17 });
    assert!(states(&known).contains(&(2_000_000, asleep)));
    let unknown = line(&timeline(None));
    assert!(
        unknown.iter().all(|segment| segment.3 != READ),
        "{unknown:?}"
    );
}

#[test]
fn a_group_is_held_back_only_for_a_while_before_its_counter_grows() {
    let grew = |ms: u64| {
        let lasted = Nanos::from_millis(50);
        event(ms * 1_000_000, 0, EventKind::Throttled { lasted })
    };
    let first = switch(10_000_000, 0, 5, None);
    let timeline = build(vec![first, grew(200), grew(60_000), grew(60_100)]);
    let windows = timeline.throttled().iter();
    let windows: Vec<(u64, u64)> = windows
        .map(|window| (ns(window.from) / 1_000_000, ns(window.to) / 1_000_000))
        .collect();
    assert_eq!(windows, [(10, 200), (58_950, 60_000), (60_000, 60_100)]);
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let kind = prop_oneof![
        (0..4_u32, 0..4_u32, any::<bool>()).prop_map(|(prev, next, preempted)| {
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep: None,
            }
        }),
        (1..4_u32).prop_map(|tid| EventKind::WriteCalled { tid }),
        (0..900_u64).prop_map(|lasted| EventKind::Softirq {
            vector: 3,
            lasted: Nanos::new(lasted),
        }),
        (0..900_u64).prop_map(|lasted| EventKind::Interrupt {
            interrupt: Interrupt::LocalTimer,
            lasted: Nanos::new(lasted),
        }),
        (0..900_u64).prop_map(|lasted| EventKind::IdleLeft {
            state: 1,
            lasted: Nanos::new(lasted),
        }),
        (1..4_u32, 0..900_u64).prop_map(|(tid, waited)| EventKind::LockTaken {
            tid,
            flags: 1,
            waited: Nanos::new(waited),
        }),
        (1..4_u32, 0..900_000_u64).prop_map(|(tid, waited)| EventKind::StorageWaited {
            tid,
            call: 17,
            waited: Nanos::new(waited),
        }),
        (1..4_u32).prop_map(|tid| EventKind::Woken { tid, by: 0 }),
        (0..900_u64).prop_map(|lasted| EventKind::Stalled {
            lasted: Nanos::new(lasted * 1_000),
        }),
    ];
    prop::collection::vec((0..300_000_u64, 0..2_u16, kind), 1..200).prop_map(|list| {
        let mut now = 1_000_000;
        let step = |(gap, cpu, kind)| {
            now += gap;
            event(now, cpu, kind)
        };
        list.into_iter().map(step).collect()
    })
}

proptest! {
    #[test]
    fn lines_have_no_gap_and_no_overlap_whatever_happens(events in any_events(), from in 0..60_000_000_u64) {
        let timeline = build(events);
        for line in timeline.cpus() {
            let segments: Vec<Segment> = line.segments().collect();
            for pair in segments.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
                prop_assert!(pair[0].from <= pair[0].to);
            }
            if let Some(last) = segments.last() {
                prop_assert_eq!(last.to, timeline.to());
            }
            let from = Monotonic::from_nanos_since_boot(from);
            let later: Vec<Segment> = line.segments_from(from).collect();
            let expected: Vec<Segment> = segments.iter().filter(|s| s.to > from).copied().collect();
            prop_assert_eq!(later, expected);
        }
        for worker in timeline.workers() {
            let spans: Vec<WorkerSpan> = worker.spans().collect();
            for pair in spans.windows(2) {
                prop_assert_eq!(pair[0].to, pair[1].from);
            }
        }
    }
}
