//! Short sequences of events whose account is known to the nanosecond.

use taillab_model::noise::NoiseKind;
use taillab_model::{
    Event, EventKind, Interrupt, Monotonic, Nanos, RecordingContext, ThreadName, Tid,
};

use super::*;

const METER: Tid = 100;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(1_000_000 + ns)
}

fn event(ns: u64, kind: EventKind) -> Event {
    Event {
        at: at(ns),
        cpu: 3,
        kind,
    }
}

fn interrupt(ns: u64, interrupt: Interrupt, lasted: u64) -> Event {
    let lasted = Nanos::new(lasted);
    event(ns, EventKind::Interrupt { interrupt, lasted })
}

fn switch(ns: u64, prev: Tid, next: Tid) -> Event {
    let preempted = prev == METER;
    event(
        ns,
        EventKind::Switched {
            prev,
            next,
            preempted,
            asleep: None,
        },
    )
}

fn softirq(ns: u64, vector: u8, lasted: u64) -> Event {
    let lasted = Nanos::new(lasted);
    event(ns, EventKind::Softirq { vector, lasted })
}

fn account(
    virtual_machine: bool,
    gaps: &[(u64, u64)],
    events: &[Event],
    sends: &[(u64, u16)],
) -> CpuSum {
    let options = GapOptions {
        virtual_machine,
        window: Nanos::from_micros(100),
    };
    let mut analysis = GapAnalysis::new(options, at(0), [(3, METER)]);
    for &(ns, from) in sends {
        analysis.ipi(IpiSent {
            at: at(ns),
            from,
            to: 3,
        });
    }
    events.iter().for_each(|event| analysis.event(*event));
    for &(from, to) in gaps {
        analysis.gap(Gap {
            cpu: 3,
            from: at(from),
            to: at(to),
        });
    }
    analysis.finish().remove(&3).unwrap()
}

fn stolen(sum: &CpuSum) -> Vec<(GapCause, u64)> {
    let causes = sum.causes.iter();
    causes
        .map(|(cause, sum)| (*cause, sum.stolen.get()))
        .collect()
}

#[test]
fn a_nanosecond_belongs_to_the_innermost_and_the_way_to_the_largest() {
    // a tick of 3 µs, then on its way out a softirq of 2 µs, in which a device interrupts for 500 ns
    let events = [
        interrupt(4_000, Interrupt::LocalTimer, 3_000),
        interrupt(5_500, Interrupt::Device(38), 500),
        softirq(6_500, 3, 2_000),
    ];
    let sum = account(true, &[(500, 7_000)], &events, &[]);
    let expected = [
        // 500 ns before, 500 ns between the two, 500 ns after
        (GapCause::Tick, 3_000 + 1_500),
        (GapCause::Interrupt(Interrupt::Device(38)), 500),
        (GapCause::Softirq(3), 1_500),
    ];
    assert_eq!(stolen(&sum), expected);
    assert_eq!(sum.stolen, Nanos::new(6_500));
    assert_eq!(sum.causes[&GapCause::Tick].gaps.count(), 1);
    assert_eq!(sum.causes[&GapCause::Softirq(3)].gaps.count(), 0);
}

#[test]
fn a_thread_has_what_interrupts_on_top_of_it_leave() {
    let events = [
        interrupt(2_000, Interrupt::Reschedule, 400),
        switch(2_500, METER, 7),
        interrupt(6_000, Interrupt::LocalTimer, 1_000),
        switch(9_000, 7, METER),
    ];
    let sum = account(true, &[(1_500, 9_200)], &events, &[(1_000, 0)]);
    let expected = [
        (GapCause::Tick, 1_000),
        // 100 + 500 + 200 ns around belong to the thread
        (GapCause::Thread(7), 5_500 + 800),
        (GapCause::Ipi(Interrupt::Reschedule, Some(0)), 400),
    ];
    assert_eq!(stolen(&sum), expected);
}

#[test]
fn a_thread_that_is_never_seen_to_leave_has_it_until_the_clock_is_read() {
    // the switch back from a thread of init is not seen; the next gap is not charged to that thread
    let events = [
        switch(1_000, METER, 1),
        interrupt(9_000, Interrupt::LocalTimer, 1_000),
    ];
    let sum = account(true, &[(900, 5_000), (7_900, 9_100)], &events, &[]);
    let expected = [(GapCause::Tick, 1_200), (GapCause::Thread(1), 4_100)];
    assert_eq!(stolen(&sum), expected);
}

#[test]
fn silence_is_the_hypervisors_only_where_there_is_one() {
    let silent = [(0, 50_000)];
    assert_eq!(
        stolen(&account(true, &silent, &[], &[])),
        [(GapCause::Hypervisor(true), 50_000)]
    );
    assert_eq!(
        stolen(&account(false, &silent, &[], &[])),
        [(GapCause::Unexplained(true), 50_000)]
    );
}

#[test]
fn a_rest_far_beyond_the_usual_way_is_not_the_ticks() {
    // forty ticks with a way of 1 µs, then one that took 100 µs longer
    let mut gaps = Vec::new();
    let mut events = Vec::new();
    for i in 0..40 {
        let from = i * 1_000_000;
        gaps.push((from, from + 3_000));
        events.push(interrupt(from + 2_500, Interrupt::LocalTimer, 2_000));
    }
    let from = 41_000_000;
    gaps.push((from, from + 103_000));
    events.push(interrupt(from + 2_500, Interrupt::LocalTimer, 2_000));
    let sum = account(true, &gaps, &events, &[]);
    let outside = sum.causes[&GapCause::Hypervisor(false)].stolen.get();
    // four times the way stays with the tick; a cell of the histogram is 0.1 % wide
    assert!(outside.abs_diff(101_000 - 4_000) < 50, "{outside}");
    assert_eq!(sum.causes[&GapCause::Tick].gaps.count(), 40);
    let all: u64 = stolen(&sum).iter().map(|(_, ns)| ns).sum();
    assert_eq!(all, sum.stolen.get());
}

#[test]
fn nobody_on_the_cpu_means_that_the_thread_was_held_back() {
    let events = [switch(1_000, METER, 0), switch(51_000_000, 0, METER)];
    let sum = account(false, &[(900, 51_000_100)], &events, &[]);
    assert_eq!(stolen(&sum), [(GapCause::HeldBack, 50_999_200)]);
    let names = RecordingContext::default();
    let kind = |real_time| GapCause::HeldBack.named(&names, 1, real_time).0;
    assert_eq!(kind(true), NoiseKind::RtThrottling);
    assert_eq!(kind(false), NoiseKind::Quota);
}

#[test]
fn an_ordinary_thread_before_a_real_time_one_is_throttling() {
    let thread = |tid, comm: &str, real_time| ThreadName {
        tid,
        pid: tid,
        comm: comm.into(),
        server: false,
        real_time: Some(real_time),
    };
    let names = RecordingContext {
        threads: vec![thread(7, "cron", false), thread(15, "migration/0", true)],
        ..RecordingContext::default()
    };
    let kind = |tid, real_time| GapCause::Thread(tid).named(&names, 1, real_time).0;
    assert_eq!(kind(7, true), NoiseKind::RtThrottling);
    assert_eq!(kind(7, false), NoiseKind::Thread);
    assert_eq!(kind(15, true), NoiseKind::Thread);
    let (_, who, own) = GapCause::Thread(7).named(&names, 7, false);
    assert!(own && who.unwrap().contains("cron 7"));
}

#[test]
fn a_page_fault_lasts_until_the_clock_is_read() {
    let fault = EventKind::PageFault {
        tid: METER,
        write: true,
    };
    let sum = account(true, &[(0, 5_000)], &[event(1_000, fault)], &[]);
    assert_eq!(stolen(&sum), [(GapCause::PageFault, 5_000)]);
}

#[test]
fn what_a_page_fault_waits_for_is_no_throttling() {
    let fault = EventKind::PageFault {
        tid: METER,
        write: true,
    };
    let events = [
        event(1_000, fault),
        switch(2_000, METER, 0),
        switch(40_000, 0, 7),
        switch(45_000, 7, METER),
    ];
    let sum = account(true, &[(0, 50_000)], &events, &[]);
    let (other, own) = (GapCause::Thread(7), GapCause::PageFault);
    assert_eq!(stolen(&sum), [(other, 5_000), (own, 45_000)]);
}

/// Settling as gaps and events come gives the same account as settling once at the end, and the
/// parts add up to the gaps.
#[test]
fn settling_as_they_come_changes_nothing() {
    let mut events = Vec::new();
    let mut gaps = Vec::new();
    for i in 0..500_u64 {
        let from = i * 100_000;
        gaps.push((from, from + 4_000 + i * 7));
        match i % 3 {
            0 => events.push(interrupt(from + 3_000, Interrupt::LocalTimer, 1_000 + i)),
            1 => {
                events.push(switch(from + 500, METER, 9));
                events.push(switch(from + 3_500, 9, METER));
            }
            _ => {}
        }
    }
    let at_end = account(true, &gaps, &events, &[]);
    let options = GapOptions {
        virtual_machine: true,
        window: Nanos::from_micros(100),
    };
    let mut analysis = GapAnalysis::new(options, at(0), [(3, METER)]);
    let mut waiting = events.iter().peekable();
    for &(from, to) in &gaps {
        analysis.gap(Gap {
            cpu: 3,
            from: at(from),
            to: at(to),
        });
        while let Some(event) = waiting.next_if(|event| event.at < at(to + 50_000)) {
            analysis.event(*event);
        }
        analysis.settle(at(from));
    }
    let as_they_come = analysis.finish().remove(&3).unwrap();
    assert_eq!(stolen(&as_they_come), stolen(&at_end));
    assert_eq!(as_they_come.over_time(), at_end.over_time());
    let all: u64 = stolen(&at_end).iter().map(|(_, ns)| ns).sum();
    assert_eq!(all, at_end.stolen.get());
    assert!(at_end.over_time().stolen_ns.len() <= 600);
    assert_eq!(at_end.longest.len(), 20);
}

#[test]
fn spells_are_windows_in_a_row_that_lost_much() {
    // 1 µs in each window of 100 µs, but 50 µs in the windows 10 to 12
    let gaps: Vec<(u64, u64)> = (0..30)
        .map(|i| {
            let length = if (10..13).contains(&i) { 50_000 } else { 1_000 };
            (i * 100_000 + 10, i * 100_000 + 10 + length)
        })
        .collect();
    let over_time = account(true, &gaps, &[], &[]).over_time();
    assert_eq!(over_time.spells, [(10, 12, 0.5)]);
}

#[test]
fn a_gap_longer_than_a_window_is_spread_over_those_that_it_lies_in() {
    let over_time = account(true, &[(1_050_000, 1_330_000)], &[], &[]).over_time();
    let width = over_time.window_ns;
    assert!(
        over_time.stolen_ns.iter().all(|stolen| *stolen <= width),
        "{over_time:?}"
    );
    let all: Nanos = over_time.stolen_ns.iter().copied().sum();
    assert_eq!(all, Nanos::new(280_000));
}

/// On a machine with many CPUs, their interrupts are more causes than there may be threads.
#[test]
fn a_thread_keeps_its_name_among_the_interrupts_of_many_cpus() {
    let (mut gaps, mut events, mut sends) = (Vec::new(), Vec::new(), Vec::new());
    for cpu in 0..300 {
        let from = 20_000_000 * u64::from(cpu);
        gaps.push((from, from + 3_000));
        sends.push((from + 100, cpu));
        events.push(interrupt(from + 2_500, Interrupt::Reschedule, 2_000));
    }
    for thread in [7, 8] {
        let from = 10_000_000_000 + u64::from(thread) * 1_000_000;
        gaps.push((from, from + 3_000));
        events.push(switch(from + 500, METER, thread));
        events.push(switch(from + 2_500, thread, METER));
    }
    let sum = account(true, &gaps, &events, &sends);
    assert_eq!(sum.causes.len(), 302);
    for thread in [7, 8] {
        assert_eq!(sum.causes[&GapCause::Thread(thread)].gaps.count(), 1);
    }
}

/// A day has some hundred million gaps, of threads that come and go.
#[test]
fn what_is_kept_does_not_grow_with_the_length_of_a_run() {
    const EACH: u64 = 50_000;
    const LATE: Tid = 77;
    // a day
    const PERIOD: u64 = 24 * 3_600_000_000_000 / (10 * EACH);
    let options = GapOptions {
        virtual_machine: true,
        window: Nanos::from_millis(100),
    };
    let mut analysis = GapAnalysis::new(options, at(0), [(3, METER)]);
    let mut round = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let from = number * PERIOD;
            // one thread appears late, and then again and again
            let thread = match number > EACH && number % 10 == 0 {
                true => LATE,
                false => 200 + (number % 5_000) as Tid,
            };
            analysis.ipi(IpiSent {
                at: at(from),
                from: 0,
                to: 3,
            });
            analysis.event(interrupt(from + 2_000, Interrupt::Reschedule, 500));
            analysis.event(switch(from + 3_000, METER, thread));
            analysis.event(switch(from + 9_000, thread, METER));
            // what happens between two gaps is not charged
            analysis.event(softirq(from + 50_000, 1, 100));
            let length = 10_000 + number % 1_000;
            analysis.gap(Gap {
                cpu: 3,
                from: at(from),
                to: at(from + length),
            });
            if number % 1_000 == 0 {
                analysis.settle(at(from));
            }
        }
        // everything that is kept, as text
        format!("{analysis:?}").len()
    };
    let early = round(0..EACH);
    let late = round(EACH..10 * EACH);
    assert!(late < early + early / 4, "{early} grew to {late}");
    let sum = analysis.finish().remove(&3).unwrap();
    assert!(sum.causes.len() <= 257 && sum.longest.len() <= 20);
    // a thread that took much has its name; the others count as further threads, not as unexplained
    let took = |cause| sum.causes[&cause].stolen.get();
    assert!(took(GapCause::Thread(LATE)) > 9 * EACH / 10 * 5_900);
    assert!(took(GapCause::MoreThreads) > 7 * EACH * 5_900);
    assert!(sum.over_time().stolen_ns.len() <= 600);
    let all: Nanos = sum.causes.values().map(|cause| cause.stolen).sum();
    assert_eq!(all, sum.stolen);
    let gaps: u64 = sum.causes.values().map(|cause| cause.gaps.count()).sum();
    assert_eq!(gaps, 10 * EACH);
}
