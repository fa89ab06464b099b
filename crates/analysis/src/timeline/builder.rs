//! Builds the timeline from the events.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use taillab_model::{Asleep, Event, EventKind, Interrupt, Monotonic, Nanos, RecordingContext, Tid};

use super::codes::{pack_state, unpack_state};
use super::cpu::CpuBuilder;
use super::line::{CpuLine, RecordedKinds, ThrottleWindow, Timeline, at as instant, ns};
use super::missed_interrupts::{Inbound, PacketName};
use super::questions::Question;
use super::resent::Streams;
use super::sleep::Sleep;
use super::stalls::{self, Silence, Stall, StolenTime};
use super::state::{Top, WorkerState};
use super::unwatched::Unwatched;
use super::workers::{OpenWorker, OpenWorkers};

use crate::id_map::grow_to;
use crate::matcher::InOrder;
use crate::slices::Slices;
use crate::spans::earlier;

/// The minimum number of silences of a CPU that are kept for the next part of a recording.
const MANY_SILENCES: usize = 4_096;

/// The counters of stolen and of throttled time are read more often than this, and an event comes
/// only if one grew.
const READ_WITHIN: Nanos = Nanos::from_secs(1);

impl Timeline {
    /// The timeline of these events, which are in order of time to within a millisecond.
    pub fn build(events: impl IntoIterator<Item = Event>, context: &RecordingContext) -> Self {
        let mut builder = TimelineBuilder::new(context);
        for event in InOrder::new(events.into_iter(), Nanos::from_millis(1)) {
            builder.observe(&event);
        }
        builder.finish()
    }
}

/// Builds a [`Timeline`] from events that come one at a time, in order of time.
#[derive(Default)]
pub struct TimelineBuilder {
    /// By the number of the CPU.
    cpus: Vec<Option<Box<CpuBuilder>>>,
    workers: OpenWorkers,
    span: Option<(Monotonic, Monotonic)>,
    seen: RecordedKinds,
    canary: Vec<(u16, Monotonic, Monotonic)>,
    stolen: Vec<StolenTime>,
    throttled: Vec<ThrottleWindow>,
    last_throttled: Option<Monotonic>,
    retransmissions: Vec<(Monotonic, u32)>,
    streams: Streams,
    inbound: Inbound,
    unwatched: Unwatched,
    slices: Slices,
}

/// A CPU goes from one thread to another.
struct Switch {
    prev: Tid,
    next: Tid,
    preempted: bool,
    /// How `prev` sleeps, if it does.
    asleep: Option<Asleep>,
}

impl TimelineBuilder {
    /// A builder that knows the server's threads from `context`; it recognises others by their system calls.
    pub fn new(context: &RecordingContext) -> Self {
        let mut builder = Self {
            slices: Slices::of(context.stamps),
            ..Self::default()
        };
        for thread in context.threads.iter().filter(|thread| thread.server) {
            builder.worker(thread.tid, 0).named = true;
        }
        builder
    }

    /// Takes the next event.
    pub fn observe(&mut self, event: &Event) {
        if !self.slices.let_pass(event) {
            return;
        }
        let (at, cpu) = (event.at, event.cpu);
        let first = self.span.map_or(at, |(from, _)| from.min(at));
        let last = self.span.map_or(at, |(_, to)| to.max(at));
        self.span = Some((first, last));
        self.note_activity(event);
        match event.kind {
            EventKind::PacketIn { packet, .. } => {
                self.inbound.came(at, cpu, PacketName::of_buffer(packet));
            }
            EventKind::Enqueued { packet } => self.arrived(cpu, PacketName::of_buffer(packet)),
            EventKind::Slice { begins } => {
                // after a slice, it is not known who is on a CPU until a thread is seen there
                if !begins {
                    self.nothing_is_known(at);
                }
            }
            // belongs to the generator's CPU
            EventKind::CameOn { .. } => {}
            // nothing about the server's threads
            EventKind::DeviceQueue { .. } | EventKind::ReadByOther { .. } => {}
            EventKind::SegmentQueued { key } => self.arrived(cpu, PacketName::of_segment(key)),
            EventKind::Frequency { .. } | EventKind::Payload { .. } => {}
            EventKind::ReadReturned { tid, .. }
            | EventKind::WriteCalled { tid }
            | EventKind::SegmentRead { tid, .. }
            | EventKind::SegmentWritten { tid, .. } => {
                self.worker(tid, cpu);
                self.called(cpu, tid, at);
            }
            EventKind::PacketOut { tid, .. } | EventKind::SegmentOut { tid, .. } => {
                self.called(cpu, tid, at);
            }
            EventKind::Switched {
                prev,
                next,
                preempted,
                asleep,
            } => self.switched(
                cpu,
                at,
                Switch {
                    prev,
                    next,
                    preempted,
                    asleep,
                },
            ),
            EventKind::Woken { tid, by } => self.woken(cpu, tid, by, at),
            EventKind::Migrated { tid, to } => self.migrated(cpu, tid, to, at),
            EventKind::Interrupt { interrupt, lasted } => {
                self.seen.interrupts = true;
                if interrupt == Interrupt::CallFunction
                    && let Some(quiet) = &mut self.cpu(cpu).quiet
                    && earlier(at, lasted).saturating_since(quiet.to) <= stalls::RIGHT_AFTER
                {
                    quiet.interrupted = true;
                }
                self.cpu(cpu).ran(at, lasted, Top::Interrupt(interrupt));
            }
            EventKind::Softirq { vector, lasted } => {
                self.seen.softirqs = true;
                self.cpu(cpu).ran(at, lasted, Top::Softirq { vector });
            }
            EventKind::IdleLeft { state, lasted } => {
                self.seen.idle = true;
                self.cpu(cpu).ran(at, lasted, Top::Idle { state });
            }
            EventKind::PageFault { tid, .. }
            | EventKind::MajorFault { tid }
            | EventKind::StorageWaited { tid, .. }
            | EventKind::LockTaken { tid, .. } => self.waited(event, tid),
            EventKind::UpstreamAnswered {
                tid,
                server,
                waited,
            } => self.answered(tid, server, earlier(at, waited)..at),
            EventKind::Announced { connection, .. } => self.streams.forget(connection),
            EventKind::Unreadable { lasted } => self.unreadable(cpu, earlier(at, lasted), at),
            EventKind::SegmentIn { key, bytes, .. } => {
                self.inbound.came(at, cpu, PacketName::of_segment(key));
                if self.streams.again(key, bytes) {
                    self.retransmissions.push((at, key.connection));
                }
            }
            EventKind::Retransmitted { key } => self.retransmissions.push((at, key.connection)),
            EventKind::Stolen { .. } | EventKind::Stalled { .. } | EventKind::Throttled { .. } => {
                self.lost_time(event, first);
            }
        }
    }

    fn woken(&mut self, cpu: u16, tid: Tid, by: Tid, at: Monotonic) {
        self.seen.wakes = true;
        let is_own = self.workers.contains(by);
        let worker = self.worker(tid, cpu);
        if let WorkerState::Asleep(sleep) = worker.state {
            let by = match sleep {
                Sleep::Work if !is_own => 0,
                _ => by,
            };
            let cpu = worker.cpu;
            worker.set(at, WorkerState::Woken { cpu, by });
        } else if worker.state == WorkerState::Unknown {
            let cpu = worker.cpu;
            worker.set(at, WorkerState::Woken { cpu, by: 0 });
        }
    }

    /// Another server has answered a question of this thread.
    fn answered(&mut self, tid: Tid, server: u16, question: Range<Monotonic>) {
        if let Some(worker) = self.known(tid) {
            worker.questions.add(Question {
                from_ns: ns(question.start),
                to_ns: ns(question.end),
                server,
            });
        }
    }

    fn migrated(&mut self, cpu: u16, tid: Tid, to: u16, at: Monotonic) {
        let worker = self.worker(tid, cpu);
        worker.cpu = to;
        match worker.state {
            WorkerState::Woken { by, .. } => {
                worker.set(at, WorkerState::Woken { cpu: to, by });
            }
            WorkerState::Preempted { .. } => {
                worker.set(at, WorkerState::Preempted { cpu: to });
            }
            _ => {}
        }
    }

    /// A thread of the server handled a page fault, or waited for storage or a lock.
    fn waited(&mut self, event: &Event, tid: Tid) {
        let (at, cpu) = (event.at, event.cpu);
        self.worker(tid, cpu);
        self.called(cpu, tid, at);
        match event.kind {
            EventKind::PageFault { .. } => {
                self.seen.faults = true;
                let worker = self.worker(tid, cpu);
                worker.faults.push_event(ns(at));
                worker.fault_ns = Some(ns(at));
            }
            EventKind::MajorFault { .. } => {
                if let Some(from_ns) = self.worker(tid, cpu).fault_ns.take() {
                    self.waited_for_storage(tid, from_ns, at, None);
                }
            }
            EventKind::StorageWaited { call, waited, .. } => {
                self.waited_for_storage(tid, ns(earlier(at, waited)), at, Some(call));
            }
            EventKind::LockTaken { waited, .. } => {
                self.waited_for_lock(cpu, tid, at, waited);
            }
            _ => {}
        }
    }

    /// The hypervisor, a canary or the cgroup reports lost time; the recording began at `first`.
    fn lost_time(&mut self, event: &Event, first: Monotonic) {
        let (at, cpu) = (event.at, event.cpu);
        match event.kind {
            EventKind::Stolen { lasted } => {
                self.seen.stalls = true;
                // it grows when the CPU is back, and a silence twice as long shows nothing
                let longest = Nanos::new(lasted.get().saturating_mul(2));
                let earliest = earlier(earlier(at, longest), READ_WITHIN);
                let since = self.cpu(cpu).last_stolen.replace(at);
                self.stolen.push(StolenTime {
                    cpu,
                    from: since.map(|since| since.max(earliest)),
                    to: at,
                    lasted,
                });
            }
            EventKind::Stalled { lasted } => {
                self.seen.stalls = true;
                self.canary.push((cpu, earlier(at, lasted), at));
            }
            EventKind::Throttled { lasted } => {
                self.seen.throttling = true;
                let from = self.last_throttled.replace(at).unwrap_or(first);
                // it grows when the group may go on: that was since the last reading
                let from = from.max(earlier(earlier(at, lasted), READ_WITHIN));
                if lasted > Nanos::ZERO {
                    self.throttled.push(ThrottleWindow {
                        from: from.min(at),
                        to: at,
                        held_back: lasted,
                    });
                }
            }
            _ => {}
        }
    }

    /// From the end of a slice until the next one shows it, it is not known what CPUs and threads do.
    fn nothing_is_known(&mut self, at: Monotonic) {
        for line in self.cpus.iter_mut().flatten() {
            line.becomes_unknown(at);
        }
        for worker in self.workers.iter_mut() {
            worker.fault_ns = None;
            worker.set(at, WorkerState::Unknown);
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut CpuBuilder {
        let sliced = self.slices.are_used();
        grow_to(&mut self.cpus, cpu.into()).get_or_insert_with(|| {
            let mut line = Box::<CpuBuilder>::default();
            if sliced {
                line.forget_thread();
            }
            line
        })
    }

    fn known_cpu(&mut self, cpu: u16) -> Option<&mut CpuBuilder> {
        self.cpus.get_mut(usize::from(cpu))?.as_deref_mut()
    }

    /// Any event on a CPU shows that the CPU did not stand still then.
    #[inline]
    fn note_activity(&mut self, event: &Event) {
        let (lasted, timer) = match event.kind {
            EventKind::Interrupt { interrupt, lasted } => {
                (lasted, interrupt == Interrupt::LocalTimer)
            }
            EventKind::Softirq { lasted, .. } => (lasted, false),
            // these come from user space, or do not show that the CPU was active at that moment
            EventKind::Stolen { .. }
            | EventKind::Stalled { .. }
            | EventKind::Throttled { .. }
            | EventKind::Unreadable { .. }
            | EventKind::IdleLeft { .. } => return,
            _ => (Nanos::ZERO, false),
        };
        let line = self.cpus.get_mut(usize::from(event.cpu));
        if let Some(line) = line.and_then(Option::as_mut) {
            let own = |thread| self.workers.contains(thread);
            line.active(earlier(event.at, lasted)..event.at, timer, own);
        }
    }

    /// A packet has reached its socket. The first one after a silence of the CPU may show that interrupts
    /// had to wait for the end of the silence.
    #[inline]
    fn arrived(&mut self, cpu: u16, packet: PacketName) {
        let line = self.cpus.get_mut(usize::from(cpu));
        if let Some(line) = line.and_then(Option::as_mut)
            && let Some(quiet) = line.quiet.take()
            && let Some(from) = self.inbound.missed_interrupt(packet, cpu, &quiet)
        {
            let to = quiet.to;
            line.missed_interrupts.push(Stall { from, to });
        }
    }

    fn worker(&mut self, tid: Tid, cpu: u16) -> &mut OpenWorker {
        self.workers.get_or_add(tid, cpu)
    }

    fn known(&mut self, tid: Tid) -> Option<&mut OpenWorker> {
        self.workers.get(tid)
    }

    fn switched(&mut self, cpu: u16, at: Monotonic, switch: Switch) {
        let Switch {
            prev,
            next,
            preempted,
            asleep,
        } = switch;
        self.seen.switches = true;
        if asleep.is_some() {
            self.seen.sleeps = true;
            self.worker(prev, cpu);
        }
        let missed = self.cpu(cpu).current.filter(|&current| current != prev);
        if let Some(current) = missed {
            self.was_blind(cpu, current, at);
        }
        self.unwatched.left(prev);
        let line = self.cpu(cpu);
        let proven_ns = line.proven_ns;
        line.is_current(at, next);
        if let Some(missed) = missed
            && let Some(worker) = self.known(missed)
            && worker.state == (WorkerState::OnCore { cpu })
        {
            worker.lost(proven_ns, at);
        }
        if prev != 0
            && let Some(worker) = self.known(prev)
        {
            worker.cpu = cpu;
            let state = if preempted {
                WorkerState::Preempted { cpu }
            } else {
                WorkerState::Asleep(Sleep::of(asleep))
            };
            worker.set(at, state);
        }
        if next != 0
            && let Some(worker) = self.known(next)
        {
            worker.cpu = cpu;
            worker.set(at, WorkerState::OnCore { cpu });
        }
    }

    /// A system call, a fault or a lock proves that its thread is current.
    fn called(&mut self, cpu: u16, tid: Tid, at: Monotonic) {
        let Some(line) = self.known_cpu(cpu) else {
            return;
        };
        let current = line.current;
        let current = match current {
            Some(current) => current,
            // a thread that never sleeps would stay unknown for a whole slice
            None if self.slices.are_used() && self.slices.is_open() => {
                self.cpu(cpu).is_current(at, tid);
                tid
            }
            None => return,
        };
        let proven_ns = self.cpu(cpu).proven_ns;
        if current == tid {
            self.cpu(cpu).proven_ns = ns(at);
        } else {
            self.was_blind(cpu, current, at);
            self.cpu(cpu).is_current(at, tid);
            if let Some(missed) = self.known(current)
                && missed.state == (WorkerState::OnCore { cpu })
            {
                missed.lost(proven_ns, at);
            }
        }
        if let Some(worker) = self.known(tid)
            && worker.state != (WorkerState::OnCore { cpu })
        {
            worker.cpu = cpu;
            worker.set(at, WorkerState::OnCore { cpu });
        }
    }

    /// A switch from this thread was missed after the last event that proves that it was current.
    fn was_blind(&mut self, cpu: u16, current: Tid, at: Monotonic) {
        let of_server = self.workers.contains(current);
        let unwatched = !of_server && self.unwatched.missed(current);
        let line = self.cpu(cpu);
        let from = instant(line.proven_ns.min(ns(at)));
        if !unwatched {
            line.blind_between(from, at);
            // events were lost, so silence shows nothing
            line.was_not_silent(ns(from));
        }
    }

    /// The thread has waited for a lock until now: it spun, or it slept.
    fn waited_for_lock(&mut self, cpu: u16, tid: Tid, at: Monotonic, waited: Nanos) {
        let (from_ns, to_ns) = (ns(earlier(at, waited)), ns(at));
        self.cpu(cpu).relabel(from_ns, to_ns, |(thread, top)| {
            let spun = thread == tid && top == Top::Nothing;
            (thread, if spun { Top::KernelLock } else { top })
        });
        if let Some(worker) = self.known(tid) {
            let lock = pack_state(WorkerState::Asleep(Sleep::Lock { call: None }));
            worker.states.rewrite(from_ns, to_ns, |code| {
                let asleep = matches!(unpack_state(code), WorkerState::Asleep(_));
                if asleep { lock } else { code }
            });
        }
    }

    /// The thread has waited for storage until now, asleep or on its CPU, in a system call or in a page
    /// fault. If the CPU stood still meanwhile, that is a part of the wait.
    fn waited_for_storage(&mut self, tid: Tid, from_ns: u64, at: Monotonic, call: Option<u16>) {
        for line in self.cpus.iter_mut().flatten() {
            // it was on few of them
            if !line.had(tid, from_ns, ns(at)) {
                continue;
            }
            let mut was_there = false;
            line.relabel(from_ns, ns(at), |(thread, top)| {
                was_there |= thread == tid;
                let waits = thread == tid && top == Top::Nothing;
                (thread, if waits { Top::Storage { call } } else { top })
            });
            if was_there {
                line.was_not_silent(from_ns);
            }
        }
    }

    /// What happened on the CPU between these times is unknown, and so is the state of its threads.
    fn unreadable(&mut self, cpu: u16, from: Monotonic, at: Monotonic) {
        let Some(line) = self.known_cpu(cpu) else {
            return;
        };
        line.blind_between(from, at);
        // nor was it silent
        line.active_ns = line.active_ns.max(ns(at));
        for worker in self.workers.iter_mut() {
            if worker.cpu == cpu {
                worker.lost(ns(from), at);
            }
        }
    }

    /// How many threads of the server are remembered.
    pub fn remembered(&self) -> usize {
        self.workers.len()
    }

    /// The timeline after the last event.
    pub fn finish(mut self) -> Timeline {
        self.part(instant(u64::MAX))
    }

    /// The timeline so far. The builder drops almost everything before `keep_from`: the next part begins
    /// there, or a little earlier.
    ///
    /// Later corrections (for an interrupt or a blind window that has not ended) are only in the next part.
    pub fn part(&mut self, keep_from: Monotonic) -> Timeline {
        let end_ns = self.span.map_or(0, |(_, to)| ns(to));
        let mut silences: BTreeMap<u16, Vec<Silence>> = BTreeMap::new();
        let mut missed_interrupts: Vec<(u16, Stall)> = Vec::new();
        let mut cpus = Vec::with_capacity(self.cpus.len());
        for (cpu, line) in self.cpus.iter_mut().enumerate() {
            let Some(line) = line.as_mut().filter(|l| l.changes.last_ns().is_some()) else {
                continue;
            };
            let cpu = cpu as u16;
            silences.insert(cpu, line.silences.clone());
            missed_interrupts.extend(line.missed_interrupts.iter().map(|stall| (cpu, *stall)));
            line.missed_interrupts.retain(|stall| stall.to >= keep_from);
            cpus.push(CpuLine {
                cpu,
                changes: line.changes.part(ns(keep_from)),
                meanings: line.meanings.as_slice().into(),
                stalls: Vec::new(),
                end_ns,
            });
            // many silences are needed to learn the period of the ticks
            let ended = line.silences.partition_point(|s| s.to < keep_from);
            let spare = line.silences.len().saturating_sub(MANY_SILENCES);
            line.silences.drain(..ended.min(spare));
            line.forget_meanings();
        }
        for (cpu, found) in stalls::find(&silences, &self.canary, &self.stolen, &missed_interrupts)
        {
            if let Ok(place) = cpus.binary_search_by_key(&cpu, |line| line.cpu) {
                cpus[place].stalls = found;
            }
        }
        let workers = self.workers.part(keep_from, end_ns);
        let places = workers.iter().enumerate();
        let part = Timeline {
            span: self.span,
            cpus: cpus.into(),
            places: Arc::new(places.map(|(place, line)| (line.tid, place)).collect()),
            workers: workers.into(),
            throttled: self.throttled.as_slice().into(),
            retransmissions: self.retransmissions.as_slice().into(),
            seen: self.seen,
            forgotten: self.workers.take_forgotten(),
        };
        self.canary.retain(|(.., to)| *to >= keep_from);
        self.stolen.retain(|stolen| stolen.to >= keep_from);
        self.throttled.retain(|window| window.to >= keep_from);
        self.retransmissions.retain(|(at, _)| *at >= keep_from);
        part
    }
}
