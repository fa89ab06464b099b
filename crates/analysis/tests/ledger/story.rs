//! Small histories of a server, written by hand.

use std::num::NonZeroU32;

use taillab_analysis::AnalysisOptions;
use taillab_model::explanation::{Cause, CauseShare, Culprit};
use taillab_model::{
    Asleep, Event, EventKind, Monotonic, Nanos, PacketId, RecordingContext, RequestKey, ThreadName,
    Tid,
};

use super::{Found, explained_in};

pub(super) const FIRST: Tid = 10;
pub(super) const SECOND: Tid = 11;
pub(super) const VM: Tid = 20;
pub(super) const COLLECTOR: Tid = 21;
pub(super) const DISPATCHER: Tid = 22;
pub(super) const FUTEX: u16 = 202;
pub(super) const EPOLL: u16 = 232;

/// Where packets come in.
pub(super) const ELSEWHERE: u16 = 2;

/// Writes histories of the server, round by round.
pub(super) struct Story {
    events: Vec<Event>,
    begin_ns: u64,
    pub(super) round: u32,
}

impl Story {
    /// A story of so many rounds, which begin `apart_ns` apart.
    pub(super) fn of(rounds: u32, apart_ns: u64, round: impl Fn(&mut Self)) -> Found {
        let threads = [
            (FIRST, "worker"),
            (SECOND, "worker"),
            (VM, "VM Thread"),
            (COLLECTOR, "GC Thread#0"),
            (DISPATCHER, "dispatcher"),
        ];
        Self::of_threads(
            &threads.map(|(tid, comm)| (tid, comm, FIRST)),
            (rounds, apart_ns),
            round,
        )
    }

    /// The same with these threads: number, name and process. Those of other processes than that of [`FIRST`]
    /// are not the server's.
    pub(super) fn of_threads(
        threads: &[(Tid, &str, Tid)],
        (rounds, apart_ns): (u32, u64),
        round: impl Fn(&mut Self),
    ) -> Found {
        let context = RecordingContext {
            threads: (threads.iter())
                .map(|&(tid, comm, pid)| ThreadName {
                    tid,
                    pid,
                    comm: comm.to_owned(),
                    server: pid == FIRST,
                    real_time: Some(false),
                })
                .collect(),
            ..RecordingContext::default()
        };
        Self::told(context, (rounds, apart_ns), round)
    }

    /// The same in this context.
    pub(super) fn told(
        context: RecordingContext,
        (rounds, apart_ns): (u32, u64),
        round: impl Fn(&mut Self),
    ) -> Found {
        let mut story = Self {
            events: Vec::new(),
            begin_ns: 1_000_000,
            round: 0,
        };
        let own = (context.threads.iter()).filter(|thread| thread.server && thread.pid == FIRST);
        for thread in own {
            // each is seen once, and then sleeps
            let (tid, at_ns) = (thread.tid, u64::from(thread.tid) * 1_000);
            story.sleeps(0, at_ns, (0, tid), None);
            story.sleeps(0, at_ns + 500, (tid, 0), Some(EPOLL));
        }
        for number in 0..rounds {
            story.round = number;
            story.begin_ns += apart_ns;
            round(&mut story);
        }
        story.events.sort_by_key(|event| event.at);
        let workers = NonZeroU32::new(2).unwrap();
        let from = Monotonic::from_nanos_since_boot(0);
        let options = AnalysisOptions::new(Nanos::from_micros(40), workers, from);
        explained_in(&context, options, &story.events)
    }

    pub(super) fn emit(&mut self, cpu: u16, after_ns: u64, kind: EventKind) {
        let at = Monotonic::from_nanos_since_boot(self.begin_ns + after_ns);
        self.events.push(Event { at, cpu, kind });
    }

    pub(super) fn key(&self, worker: Tid) -> RequestKey {
        RequestKey::hashed(0, 40_000 + worker as u16, self.round as u16)
    }

    /// A packet for this worker reaches its socket on a CPU.
    pub(super) fn comes(&mut self, cpu: u16, after_ns: u64, worker: Tid) {
        self.comes_with(self.key(worker), cpu, after_ns, worker);
    }

    /// The same with this key.
    pub(super) fn comes_with(&mut self, key: RequestKey, cpu: u16, after_ns: u64, worker: Tid) {
        let packet = PacketId(worker << 20 | u32::from(key.id) << 10 | self.round);
        self.emit(ELSEWHERE, after_ns, EventKind::PacketIn { packet, key });
        self.emit(cpu, after_ns + 1_000, EventKind::Enqueued { packet });
    }

    pub(super) fn wakes(&mut self, cpu: u16, after_ns: u64, tid: Tid, by: Tid) {
        self.emit(cpu, after_ns, EventKind::Woken { tid, by });
    }

    /// One thread leaves a CPU, asleep in this call, or (`None`) preempted; another comes.
    pub(super) fn sleeps(
        &mut self,
        cpu: u16,
        after_ns: u64,
        (prev, next): (Tid, Tid),
        call: Option<u16>,
    ) {
        let asleep = call.map(|call| Asleep {
            call: Some(call),
            uninterruptible: false,
            stopped: false,
        });
        let kind = EventKind::Switched {
            prev,
            next,
            preempted: prev != 0 && asleep.is_none(),
            asleep,
        };
        self.emit(cpu, after_ns, kind);
    }

    /// A signal stops a thread, which has the CPU; another one comes.
    pub(super) fn is_stopped(&mut self, cpu: u16, after_ns: u64, (prev, next): (Tid, Tid)) {
        let asleep = Asleep {
            call: Some(EPOLL),
            uninterruptible: false,
            stopped: true,
        };
        let kind = EventKind::Switched {
            prev,
            next,
            preempted: false,
            asleep: Some(asleep),
        };
        self.emit(cpu, after_ns, kind);
    }

    pub(super) fn reads(&mut self, cpu: u16, after_ns: u64, tid: Tid) {
        self.emit(cpu, after_ns, EventKind::ReadReturned { tid, returned: 64 });
    }

    pub(super) fn writes(&mut self, cpu: u16, after_ns: u64, tid: Tid) {
        self.emit(cpu, after_ns, EventKind::WriteCalled { tid });
    }

    pub(super) fn leaves(&mut self, cpu: u16, after_ns: u64, tid: Tid) {
        self.leaves_with(self.key(tid), cpu, after_ns, tid);
    }

    /// The same with this key.
    pub(super) fn leaves_with(&mut self, key: RequestKey, cpu: u16, after_ns: u64, tid: Tid) {
        self.emit(cpu, after_ns, EventKind::PacketOut { tid, key });
    }
}

pub(super) fn of(found: &Found, cause: Cause) -> u64 {
    found.charged.causes.get(&cause).copied().unwrap_or(0)
}

pub(super) fn whole(found: &Found, cause: Cause) -> &CauseShare {
    let mut wholes = found.causes.iter();
    let share = wholes.find(|share| share.cause == cause && share.culprit.is_none());
    share.unwrap_or_else(|| panic!("{cause:?} in {:#?}", found.causes))
}

pub(super) fn culprits(found: &Found, cause: Cause) -> Vec<Culprit> {
    let shares = found.causes.iter().filter(|share| share.cause == cause);
    shares.filter_map(|share| share.culprit.clone()).collect()
}
