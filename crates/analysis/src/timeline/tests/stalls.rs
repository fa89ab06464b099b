//! What shows that a CPU stood still, and what does not.

use taillab_model::ThreadName;

use super::*;

#[test]
fn an_idle_cpu_that_does_not_hear_another_one_stands_still_but_not_in_a_power_state() {
    let came = |us: u64, cpu, number| {
        let packet = PacketId(number);
        let key = RequestKey::default();
        event(us * 1_000, cpu, EventKind::PacketIn { packet, key })
    };
    let arrived = |us: u64, number| {
        let packet = PacketId(number);
        event(us * 1_000, 0, EventKind::Enqueued { packet })
    };
    let softirq = |us: u64| {
        let lasted = Nanos::new(2_000);
        event(us * 1_000, 0, EventKind::Softirq { vector: 3, lasted })
    };
    let left = |state| {
        let lasted = Nanos::new(1_880_000);
        event(2_010_000, 0, EventKind::IdleLeft { state, lasted })
    };
    let timeline = |idle: Option<Event>| {
        let mut events = vec![
            switch(100_000, SERVER, 0, Some(Some(232))),
            softirq(120),
            came(200, 1, 7),
            came(700, 1, 8),
            arrived(2_000, 7),
            arrived(2_001, 8),
            softirq(2_003),
            switch(2_020_000, 0, SERVER, None),
        ];
        events.extend(idle);
        events.sort_by_key(|event| event.at);
        line(&build(events))
    };
    let stall = |line: &[(u64, u64, Tid, Top)]| {
        let stall = line.iter().find(|segment| segment.3 == Top::Stall);
        stall.map(|&(from, to, ..)| (from / 1_000, to / 1_000))
    };
    assert_eq!(stall(&timeline(None)), Some((700, 2_000)));
    assert_eq!(stall(&timeline(Some(left(0)))), Some((700, 2_000)));
    assert_eq!(stall(&timeline(Some(left(1)))), None);
    // the packets came during another softirq, which is recorded when it ends
    let lasted = Nanos::new(1_900_000);
    let flood = event(2_005_000, 0, EventKind::Softirq { vector: 3, lasted });
    assert_eq!(stall(&timeline(Some(flood))), None);
    // a thread may compute, unless the interrupt had to wait
    let busy = switch(150_000, 0, SERVER, None);
    assert_eq!(stall(&timeline(Some(busy))), None);
}

#[test]
fn an_interrupt_that_waited_ends_a_stall_and_not_a_computation() {
    let key = RequestKey::default();
    let came = |us: u64, number| {
        let packet = PacketId(number);
        event(us * 1_000, 1, EventKind::PacketIn { packet, key })
    };
    // the silence ends at 2 ms, and the interrupt comes so many microseconds later
    let stands_still = |interrupt: Interrupt, after_us: u64| {
        let after = after_us * 1_000;
        let lasted = Nanos::new(3_000);
        let packet = PacketId(7);
        let timeline = build(vec![
            switch(100_000, 0, SERVER, None),
            read(110_000),
            came(200, 7),
            came(700, 8),
            read(2_000_000),
            event(
                2_003_000 + after,
                0,
                EventKind::Interrupt { interrupt, lasted },
            ),
            event(2_010_000 + after, 0, EventKind::Enqueued { packet }),
            switch(2_020_000 + after, SERVER, 0, Some(Some(232))),
        ]);
        line(&timeline).contains(&(700_000, 2_000_000, SERVER, Top::Stall))
    };
    assert!(stands_still(Interrupt::CallFunction, 0));
    assert!(!stands_still(Interrupt::LocalTimer, 0));
    // it came for something else
    assert!(!stands_still(Interrupt::CallFunction, 80));
}

#[test]
fn silence_shows_nothing_where_events_were_lost() {
    let lasted = Nanos::new(900_000);
    let stands_still = |then: &[Event]| {
        let canary = event(1_003_000, 7, EventKind::Stalled { lasted });
        let mut events = vec![switch(1_000, 0, 5, None), read(2_000)];
        events.extend_from_slice(then);
        events.extend([canary, switch(2_000_000, SERVER, 0, None)]);
        let line = line(&build(events));
        line.iter().any(|segment| segment.3 == Top::Stall)
    };
    assert!(stands_still(&[read(1_002_000)]));
    // nobody saw 6 come
    assert!(!stands_still(&[switch(1_002_000, 6, SERVER, None)]));
    let lost = event(1_000_000, 0, EventKind::Unreadable { lasted });
    assert!(!stands_still(&[lost, read(1_002_000)]));
}

#[test]
fn a_stall_with_evidence_cuts_the_segment() {
    let mut events = vec![
        switch(1_000, 0, 5, None),
        read(2_000),
        read(1_002_000),
        event(
            1_003_000,
            7,
            EventKind::Stalled {
                lasted: Nanos::new(900_000),
            },
        ),
        switch(2_000_000, SERVER, 0, None),
    ];
    events.sort_by_key(|event| event.at);
    let timeline = build(events);
    assert!(line(&timeline).contains(&(103_000, 1_002_000, SERVER, Top::Stall)));
}

/// A server that spins on CPU 0, and its client, which spins on CPU 1. Meanwhile a program computes on CPU 0,
/// or both CPUs stand still.
#[test]
fn a_client_that_spins_for_an_answer_is_no_evidence_of_a_stall() {
    const CLIENT: Tid = 8;
    const HOG: Tid = 5;
    let came = |us: u64, number| {
        let packet = PacketId(number);
        let key = RequestKey::default();
        event(us * 1_000, 1, EventKind::PacketIn { packet, key })
    };
    let on_1 = |mut event: Event| {
        event.cpu = 1;
        event
    };
    let stalls = |hog: bool| {
        let mut events = vec![
            switch(1_000, 0, SERVER, None),
            on_1(switch(1_000, 0, CLIENT, None)),
            came(10, 1),
            read(15_000),
            event(18_000, 0, EventKind::WriteCalled { tid: SERVER }),
            came(22, 2),
            read(2_030_000),
            event(2_033_000, 0, EventKind::WriteCalled { tid: SERVER }),
            came(2_040, 3),
        ];
        if hog {
            events.push(preempt(25_000, SERVER, HOG));
            events.push(preempt(2_025_000, HOG, SERVER));
        }
        events.sort_by_key(|event| event.at);
        let threads = [SERVER, CLIENT].map(|tid| ThreadName {
            tid,
            pid: SERVER,
            comm: "both".to_owned(),
            server: true,
            real_time: None,
        });
        let context = RecordingContext {
            threads: threads.to_vec(),
            ..RecordingContext::default()
        };
        let timeline = Timeline::build(events, &context);
        let of = |cpu| timeline.cpu(cpu).unwrap().stalls().len();
        (of(0), of(1))
    };
    assert_eq!(stalls(true), (0, 0));
    assert_eq!(stalls(false), (1, 1));
}

#[test]
fn a_computation_long_before_a_report_was_not_stolen() {
    let stolen = |ms: u64| {
        let lasted = Nanos::from_millis(10);
        event(ms * 1_000_000, 0, EventKind::Stolen { lasted })
    };
    let is_stolen = |reported_ms: u64| {
        let line = line(&build(vec![
            switch(1_000_000, 0, SERVER, None),
            stolen(2),
            read(100_000_000),
            read(112_000_000),
            switch(112_050_000, SERVER, 0, Some(Some(232))),
            stolen(reported_ms),
        ]));
        line.iter().any(|segment| segment.3 == Top::Stall)
    };
    assert!(is_stolen(120));
    assert!(is_stolen(900));
    assert!(!is_stolen(5_000));
}
