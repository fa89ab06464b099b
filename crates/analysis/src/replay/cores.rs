//! A [`Timeline`] as the replay reads it.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::iter::Peekable;

use taillab_model::explanation::{Cause, Culprit};
use taillab_model::{Interrupt, RecordingContext, Tid};

use super::track::{CoreTimeline, Leaves, Occupant, Segment, SourceId};
use crate::timeline::{self, Segments, Sleep, Timeline, Top, WorkerLine, WorkerSpan, WorkerState};

/// Distinct threads that are kept apart; further ones are taken together.
const MAX_SOURCES: usize = 30_000;

/// A thread that has been woken for so long, on a CPU that is idle, is not slow to come: it
/// is held back.
const HELD_BACK_NS: u64 = 100_000;

/// With more threads than this only long idle times are looked at for one that is held back.
const MANY_THREADS: usize = 64;

/// A CPU with less than one part in so many of the threads' time is none of the server's.
const NOTABLE_CPU: u64 = 1_000;

/// A timeline, with the names of what takes CPUs away from the server.
pub struct Cores<'a> {
    timeline: &'a Timeline,
    context: &'a RecordingContext,
    /// Found while the segments are read.
    sources: RefCell<Sources>,
}

#[derive(Default)]
struct Sources {
    named: Vec<(Cause, Option<Culprit>)>,
    of: HashMap<Key, SourceId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Thread(Tid),
    Interrupt(Interrupt),
    Softirq(u8),
    Only(Cause),
}

impl<'a> Cores<'a> {
    /// The CPUs of `timeline`; `context` has the names.
    pub fn new(timeline: &'a Timeline, context: &'a RecordingContext) -> Self {
        Self {
            timeline,
            context,
            sources: RefCell::default(),
        }
    }

    fn id(&self, key: Key) -> SourceId {
        let mut sources = self.sources.borrow_mut();
        if let Some(id) = sources.of.get(&key) {
            return *id;
        }
        let (cause, culprit) = self.named(key);
        // a program's threads of one name are one culprit
        let same = sources.named.iter().position(|known| {
            known.0 == cause && (known.1 == culprit || sources.named.len() >= MAX_SOURCES)
        });
        let place = same.unwrap_or_else(|| {
            sources.named.push((cause, culprit));
            sources.named.len() - 1
        });
        let id = SourceId(place as u16);
        sources.of.insert(key, id);
        id
    }

    fn named(&self, key: Key) -> (Cause, Option<Culprit>) {
        match key {
            Key::Thread(tid) => {
                let known = self.context.threads.iter().find(|thread| thread.tid == tid);
                let culprit = Culprit::Thread {
                    name: known.map_or_else(|| format!("thread {tid}"), |t| t.comm.clone()),
                    pid: known.map(|thread| thread.pid).filter(|pid| *pid != 0),
                    tid: known.is_none().then_some(tid),
                };
                (Cause::Background, Some(culprit))
            }
            Key::Interrupt(interrupt) => {
                let number = match interrupt {
                    Interrupt::Device(number) => Some(number),
                    _ => None,
                };
                let name = self.interrupt(interrupt);
                (Cause::Irq, Some(Culprit::Interrupt { name, number }))
            }
            Key::Softirq(vector) => {
                let name = softirq(vector);
                (Cause::Softirq, Some(Culprit::Softirq { name }))
            }
            Key::Only(cause) => (cause, None),
        }
    }

    fn interrupt(&self, interrupt: Interrupt) -> String {
        match interrupt {
            Interrupt::Device(number) => {
                let mut named = self.context.interrupts.iter();
                let known = named.find(|known| known.number == number);
                known.map_or_else(|| format!("irq {number}"), |known| known.name.clone())
            }
            Interrupt::LocalTimer => "local timer".to_owned(),
            Interrupt::Reschedule => "reschedule".to_owned(),
            Interrupt::CallFunction => "function call".to_owned(),
            Interrupt::IrqWork => "irq work".to_owned(),
            Interrupt::Other => "other interrupt".to_owned(),
        }
    }
}

/// The kernel's name of a softirq's vector (`softirq_to_name`, kernel/softirq.c).
fn softirq(vector: u8) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    let known = NAMES.get(usize::from(vector));
    known.map_or_else(|| format!("softirq {vector}"), |name| (*name).to_owned())
}

impl CoreTimeline for Cores<'_> {
    fn cpus(&self, threads: &[Tid]) -> Vec<u16> {
        let mut on_core: BTreeMap<u16, u64> = BTreeMap::new();
        for line in threads.iter().filter_map(|tid| self.timeline.worker(*tid)) {
            for time in line.on_core() {
                *on_core.entry(time.cpu).or_default() += time.to.saturating_since(time.from).get();
            }
        }
        let least = on_core.values().sum::<u64>() / NOTABLE_CPU;
        let notable = on_core.into_iter().filter(|(_, time)| *time > least);
        notable.map(|(cpu, _)| cpu).collect()
    }

    fn segments(&self, cpu: u16) -> impl Iterator<Item = Segment> + '_ {
        let line = self.timeline.cpu(cpu);
        let segments = line.map(timeline::CpuLine::segments);
        CoreSegments {
            cores: self,
            cpu,
            segments,
            states: HashMap::new(),
            current: None,
            owed: None,
        }
    }

    fn sources(&self) -> usize {
        self.sources.borrow().named.len()
    }

    fn source(&self, id: SourceId) -> (Cause, Option<Culprit>) {
        let sources = self.sources.borrow();
        let known = sources.named.get(usize::from(id.0));
        known.cloned().unwrap_or((Cause::Unexplained, None))
    }
}

/// The spans of one thread, read forwards.
struct States<'a> {
    spans: Peekable<Box<dyn Iterator<Item = WorkerSpan> + 'a>>,
    current: Option<WorkerSpan>,
}

impl<'a> States<'a> {
    fn of(line: &'a WorkerLine) -> Self {
        let spans: Box<dyn Iterator<Item = WorkerSpan> + 'a> = Box::new(line.spans());
        Self {
            spans: spans.peekable(),
            current: None,
        }
    }

    /// What the thread does from `at_ns` on, which never decreases.
    fn at(&mut self, at_ns: u64) -> Option<WorkerState> {
        let begun = |span: &WorkerSpan| span.from.nanos_since_boot() <= at_ns;
        while let Some(span) = self.spans.next_if(begun) {
            self.current = Some(span);
        }
        self.current.map(|span| span.state)
    }
}

struct CoreSegments<'a> {
    cores: &'a Cores<'a>,
    cpu: u16,
    segments: Option<Segments<'a>>,
    /// Of the server's threads that were on this CPU; `None`: it is not the server's.
    states: HashMap<Tid, Option<States<'a>>>,
    /// The server's thread that is current, and has not been said to leave.
    current: Option<Tid>,
    /// A stretch that comes after one without length.
    owed: Option<Segment>,
}

impl CoreSegments<'_> {
    fn is_server(&mut self, tid: Tid) -> bool {
        let timeline = self.cores.timeline;
        let states = self.states.entry(tid);
        let states = states.or_insert_with(|| timeline.worker(tid).map(States::of));
        states.is_some()
    }

    /// How a thread of the server that is no longer current at `at_ns` left.
    fn leaves(&mut self, tid: Tid, at_ns: u64) -> Leaves {
        let states = self.states.get_mut(&tid).and_then(Option::as_mut);
        match states.and_then(|states| states.at(at_ns)) {
            Some(WorkerState::Asleep(sleep)) => Leaves::Sleeps(blocked(sleep)),
            // woken in the same nanosecond
            Some(WorkerState::Woken { .. }) => Leaves::Sleeps(Cause::BlockedOther),
            _ => Leaves::Preempted,
        }
    }

    /// A thread of the server that was on this CPU could go on, and does not, though the CPU
    /// is idle from `at_ns` on.
    fn holds_back(&mut self, at_ns: u64, to_ns: u64) -> bool {
        let cpu = self.cpu;
        if self.states.len() > MANY_THREADS && to_ns - at_ns < HELD_BACK_NS {
            return false;
        }
        self.states.values_mut().flatten().any(|states| {
            states.at(at_ns);
            states.current.is_some_and(|span| match span.state {
                WorkerState::Preempted { cpu: of } => of == cpu,
                WorkerState::Woken { cpu: of, .. } => {
                    let woken_ns = span.from.nanos_since_boot();
                    of == cpu && at_ns.saturating_sub(woken_ns) >= HELD_BACK_NS
                }
                _ => false,
            })
        })
    }
}

/// What a sleep is when it falls into the middle of a request.
fn blocked(sleep: Sleep) -> Cause {
    match sleep {
        Sleep::Lock { .. } => Cause::BlockedLock,
        Sleep::Fault => Cause::BlockedFault,
        Sleep::Io { .. } => Cause::BlockedIo,
        Sleep::Work | Sleep::Other { .. } | Sleep::Unknown => Cause::BlockedOther,
    }
}

impl Iterator for CoreSegments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        if let Some(owed) = self.owed.take() {
            return Some(owed);
        }
        let segments = self.segments.as_mut()?;
        let segment = segments.next()?;
        let next_thread = segments.peek().map(|next| next.thread);
        let from_ns = segment.from.nanos_since_boot();
        let to_ns = segment.to.nanos_since_boot();
        let thread = segment.thread;
        let is_server = thread != 0 && self.is_server(thread);
        let who = match segment.top {
            Top::Nothing | Top::KernelLock if is_server => {
                let leaves = if next_thread == Some(thread) {
                    Leaves::Stays
                } else {
                    self.leaves(thread, to_ns)
                };
                self.current = (leaves == Leaves::Stays).then_some(thread);
                if segment.top == Top::Nothing || leaves != Leaves::Stays {
                    Occupant::Server {
                        tid: thread,
                        leaves,
                    }
                } else {
                    Occupant::Other(self.cores.id(Key::Only(Cause::BlockedLock)))
                }
            }
            Top::Nothing | Top::Idle { .. } if thread == 0 => {
                if self.holds_back(from_ns, to_ns) {
                    Occupant::Other(self.cores.id(Key::Only(Cause::Throttled)))
                } else {
                    let deep = matches!(segment.top, Top::Idle { state } if state > 0);
                    Occupant::Idle { deep }
                }
            }
            Top::Nothing | Top::KernelLock => Occupant::Other(self.cores.id(Key::Thread(thread))),
            Top::Idle { state } => Occupant::Idle { deep: state > 0 },
            Top::Softirq { vector } => Occupant::Other(self.cores.id(Key::Softirq(vector))),
            Top::Interrupt(interrupt) => Occupant::Other(self.cores.id(Key::Interrupt(interrupt))),
            Top::Blind => Occupant::Other(self.cores.id(Key::Only(Cause::Unobserved))),
            Top::Stall => Occupant::Other(self.cores.id(Key::Only(Cause::Hypervisor))),
        };
        let found = Segment {
            from_ns,
            to_ns,
            who,
        };
        // a thread that left while a handler was on top of it is said to leave here
        if let Some(tid) = self.current.filter(|tid| *tid != thread) {
            self.current = None;
            let leaves = self.leaves(tid, from_ns);
            self.owed = Some(found);
            return Some(Segment {
                from_ns,
                to_ns: from_ns,
                who: Occupant::Server { tid, leaves },
            });
        }
        Some(found)
    }
}
