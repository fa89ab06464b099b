use proptest::prelude::*;
use taillab_model::{Asleep, Event, EventKind, RecordingContext, ThreadName};

use super::*;

const WORKER: Tid = 10;
const HOLDER: Tid = 11;
const OTHER: Tid = 12;
/// Not the server's.
const FOREIGN: Tid = 100;
const FUTEX: u16 = 202;
const PREAD: u16 = 17;
const RECV: u16 = 45;
const NANOSLEEP: u16 = 230;

/// What happens, in order of time. Thread `10 + k` is on CPU `k`.
#[derive(Default)]
struct Happening {
    events: Vec<Event>,
}

impl Happening {
    fn push(&mut self, at_ns: u64, tid: Tid, kind: EventKind) {
        self.events.push(Event {
            at: Monotonic::from_nanos_since_boot(at_ns),
            cpu: cpu_of(tid),
            kind,
        });
    }

    fn switch(&mut self, at_ns: u64, tid: Tid, (prev, next): (Tid, Tid), call: Option<u16>) {
        let asleep = call.map(|call| Asleep {
            call: Some(call),
            uninterruptible: false,
            stopped: false,
        });
        let kind = EventKind::Switched {
            prev,
            next,
            preempted: prev != 0 && call.is_none(),
            asleep,
        };
        self.push(at_ns, tid, kind);
    }

    fn runs(&mut self, at_ns: u64, tid: Tid) {
        self.switch(at_ns, tid, (0, tid), None);
    }

    fn sleeps(&mut self, at_ns: u64, tid: Tid, call: u16) {
        self.switch(at_ns, tid, (tid, 0), Some(call));
    }

    /// It is woken, and is on its CPU 100 ns later.
    fn wakes(&mut self, at_ns: u64, tid: Tid, by: Tid) {
        self.push(at_ns, tid, EventKind::Woken { tid, by });
        self.runs(at_ns + 100, tid);
    }

    fn timeline(self) -> Timeline {
        let thread = |tid| ThreadName {
            tid,
            pid: WORKER,
            comm: format!("thread-{tid}"),
            server: true,
            real_time: Some(false),
        };
        let context = RecordingContext {
            threads: (WORKER..WORKER + 6).map(thread).collect(),
            ..RecordingContext::default()
        };
        Timeline::build(self.events, &context)
    }
}

fn cpu_of(tid: Tid) -> u16 {
    (tid % FOREIGN % WORKER) as u16
}

/// A worker waits from 2 µs to 9 µs for a holder; meanwhile this happens.
fn waits(meanwhile: impl FnOnce(&mut Happening)) -> Vec<(u64, ChainEnd)> {
    let mut happening = Happening::default();
    for tid in [WORKER, HOLDER, OTHER] {
        happening.runs(1_000, tid);
    }
    happening.sleeps(2_000, WORKER, FUTEX);
    meanwhile(&mut happening);
    happening.wakes(9_000, WORKER, HOLDER);
    happening.sleeps(9_500, WORKER, FUTEX);
    happening.events.sort_by_key(|event| event.at);
    let timeline = happening.timeline();
    let chains = Chains::new(&timeline, true);
    assert!(chains.runs_at(HOLDER, 9_000));
    let parts = chains.parts(2_000..9_000, HOLDER);
    parts
        .into_iter()
        .map(|part| (part.to_ns, part.end))
        .collect()
}

const HELD: ChainEnd = ChainEnd::Thread(HOLDER);

#[test]
fn a_holder_that_runs_is_the_end_of_the_chain() {
    assert_eq!(waits(|_| {}), [(9_000, HELD)]);
}

#[test]
fn a_holder_that_reads_from_a_disk_is_no_end_and_the_way_back_is_the_disks() {
    let found = waits(|now| {
        now.sleeps(3_000, HOLDER, PREAD);
        now.wakes(7_000, HOLDER, 0);
    });
    let disk = ChainEnd::Storage(PREAD);
    assert_eq!(found, [(3_000, HELD), (7_100, disk), (9_000, HELD)]);
}

#[test]
fn a_holder_that_a_packet_wakes_waited_for_another_server() {
    let found = waits(|now| {
        now.sleeps(3_000, HOLDER, RECV);
        now.wakes(7_000, HOLDER, 0);
    });
    assert_eq!(
        found,
        [
            (3_000, HELD),
            (7_100, ChainEnd::Upstream(None)),
            (9_000, HELD)
        ]
    );
}

#[test]
fn a_holder_that_another_thread_keeps_from_its_cpu_waits_for_that_one() {
    let found = waits(|now| {
        now.switch(3_000, HOLDER, (HOLDER, FOREIGN), None);
        now.switch(7_000, HOLDER, (FOREIGN, HOLDER), None);
    });
    let kept = ChainEnd::OnCpu(FOREIGN);
    assert_eq!(found, [(3_000, HELD), (7_000, kept), (9_000, HELD)]);
}

#[test]
fn a_chain_of_three_ends_at_the_one_that_runs() {
    let found = waits(|now| {
        now.sleeps(3_000, HOLDER, FUTEX);
        now.sleeps(4_000, OTHER, PREAD);
        now.wakes(5_000, OTHER, 0);
        now.wakes(7_000, HOLDER, OTHER);
    });
    let (other, disk) = (ChainEnd::Thread(OTHER), ChainEnd::Storage(PREAD));
    let wanted = [
        (3_000, HELD),
        (4_000, other),
        (5_100, disk),
        (7_100, other),
        (9_000, HELD),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_holder_that_sleeps_by_a_timer_is_to_blame_itself() {
    let by_timer = waits(|now| {
        now.sleeps(3_000, HOLDER, NANOSLEEP);
        now.wakes(7_000, HOLDER, 0);
    });
    assert_eq!(by_timer, [(9_000, HELD)]);
    // a futex with a timeout: the thread that the timer interrupted did not wake it
    let timeout = waits(|now| {
        now.sleeps(3_000, HOLDER, FUTEX);
        now.sleeps(6_000, OTHER, FUTEX);
        now.wakes(7_000, HOLDER, OTHER);
    });
    assert_eq!(timeout, [(9_000, HELD)]);
}

#[test]
fn a_long_chain_and_a_restless_holder_cost_no_more_than_their_bounds() {
    let found = waits(|now| {
        for at_ns in (3_000..8_000).step_by(8) {
            now.switch(at_ns, HOLDER, (HOLDER, FOREIGN), None);
            now.switch(at_ns + 4, HOLDER, (FOREIGN, HOLDER), None);
        }
    });
    assert!(found.len() <= MOST_STEPS as usize + 1, "{}", found.len());
    assert_eq!(found.last(), Some(&(9_000, HELD)));
}

/// A random history of six threads on a CPU each, of which some wait for others.
fn history(steps: &[(u8, u8, u8, u16)]) -> Timeline {
    #[derive(Clone, Copy, PartialEq)]
    enum Now {
        Runs,
        Sleeps,
        Kept,
    }
    let mut happening = Happening::default();
    let mut states = [Now::Runs; 6];
    let mut at_ns = 1_000;
    for k in 0..6 {
        happening.runs(at_ns, WORKER + k);
    }
    for &(who, what, other, later) in steps {
        at_ns += 200 + u64::from(later);
        let (k, other) = (usize::from(who) % 6, usize::from(other) % 6);
        let (tid, foreign) = (WORKER + k as Tid, FOREIGN + k as Tid);
        let others_run = (0..6).any(|at| at != k && states[at] == Now::Runs);
        match states[k] {
            Now::Runs if !others_run => continue,
            Now::Runs if what % 4 == 3 => {
                happening.switch(at_ns, tid, (tid, foreign), None);
                states[k] = Now::Kept;
            }
            Now::Runs => {
                let call = [FUTEX, FUTEX, PREAD][usize::from(what % 4)];
                happening.sleeps(at_ns, tid, call);
                states[k] = Now::Sleeps;
            }
            Now::Sleeps => {
                let by = match states[other] {
                    Now::Runs => WORKER + other as Tid,
                    _ => 0,
                };
                happening.wakes(at_ns, tid, by);
                states[k] = Now::Runs;
            }
            Now::Kept => {
                happening.switch(at_ns, tid, (foreign, tid), None);
                states[k] = Now::Runs;
            }
        }
    }
    happening.timeline()
}

/// The same for the moment at which this part of the chain ends, without regard to time.
fn end_at(chains: Chains<'_>, tid: Tid, part: Range<u64>, link: u32) -> ChainEnd {
    let (from_ns, at_ns) = (part.start, part.end);
    let own = ChainEnd::Thread(tid);
    let spans: Vec<WorkerSpan> = chains.timeline.worker(tid).unwrap().spans().collect();
    let Some(place) = spans
        .iter()
        .rposition(|span| since_boot_ns(span).start <= at_ns)
    else {
        return own;
    };
    let span = &spans[place];
    match span.state {
        WorkerState::OnCore { .. } | WorkerState::Unknown => own,
        WorkerState::Preempted { cpu } => ChainEnd::OnCpu(FOREIGN + Tid::from(cpu)),
        WorkerState::Woken { .. } => match since_boot_ns(span).start {
            woken_ns if woken_ns > from_ns => end_at(chains, tid, from_ns..woken_ns - 1, link),
            _ => own,
        },
        WorkerState::Asleep(Sleep::Io { call }) => ChainEnd::Storage(call),
        WorkerState::Asleep(_) => {
            let by = match spans.get(place + 1).map(|next| next.state) {
                Some(WorkerState::Woken { by, .. }) => by,
                _ => 0,
            };
            match by != 0 && link < MOST_LINKS && chains.runs_at(by, since_boot_ns(span).end) {
                true => {
                    let from_ns = from_ns.max(since_boot_ns(span).start);
                    end_at(chains, by, from_ns..at_ns, link + 1)
                }
                false => own,
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The parts cover each sleep without gap or overlap, and each ends where the chain of that moment ends.
    #[test]
    fn parts_are_those_of_each_moment(
        steps in prop::collection::vec(any::<(u8, u8, u8, u16)>(), 1..120),
    ) {
        let timeline = history(&steps);
        let chains = Chains::new(&timeline, false);
        for line in timeline.workers() {
            let spans: Vec<WorkerSpan> = line.spans().collect();
            for two in spans.windows(2) {
                let (WorkerState::Asleep(Sleep::Lock { .. }), WorkerState::Woken { by, .. }) =
                    (two[0].state, two[1].state)
                else {
                    continue;
                };
                let sleep = since_boot_ns(&two[0]);
                if by == 0 || !chains.runs_at(by, sleep.end) {
                    continue;
                }
                let parts = chains.parts(sleep.clone(), by);
                let mut begin_ns = sleep.start;
                for part in &parts {
                    prop_assert!(part.to_ns > begin_ns);
                    for at_ns in [begin_ns, part.to_ns.midpoint(begin_ns), part.to_ns - 1] {
                        let wanted = end_at(chains, by, sleep.start..at_ns, 1);
                        prop_assert_eq!(part.end, wanted, "{} in {:?}", at_ns, &parts);
                    }
                    begin_ns = part.to_ns;
                }
                prop_assert_eq!(begin_ns, sleep.end);
            }
        }
    }
}
