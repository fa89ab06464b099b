//! What is known of the server's threads and of who is on which CPU.
//!
//! **T3.** It needs two facts: when the thread came onto its core, and when it was done
//! with what it did before. The first is known from the switch, or bounded from above
//! by the first call the thread was seen to make there; the second from its last T6, from
//! the switch with which it went to sleep, or, where it reads on without writing (an event
//! loop that reads several connections before it answers, a thread that hands requests to
//! others), from its last T4: that is the last event that shows it at something else. A thread
//! that has not been seen to do anything, and came onto its core when the recording had
//! gone on for a while, is new or was asleep. Where either is unknown (the switch fell
//! into a blind window; the last response was lost), T3 is known only if the other
//! facts decide the maximum; otherwise there is none.
//!
//! **Blind windows.** On some kernels no probe runs while certain threads are current. It
//! shows afterwards: a CPU changes from (or a system call comes from) a thread that is
//! not the one the CPU last changed to. Somewhere between the last event that proves
//! who was current and this contradiction, the probe missed a switch. The window is all
//! of that time: an upper bound of the blindness, never less than what is proven.
//! Events that do not say who was current (packets) do not shorten it, because the
//! missed switch may lie on either side of them. The first switch on a CPU contradicts
//! nothing.

use std::collections::VecDeque;

use taillab_model::{Asleep, Monotonic, Nanos, RequestKey, Tid};

use super::parts::Slot;
use crate::matched::BlindWindow;

/// The system calls of x86-64 that read from one connection: read, readv, recvfrom, recvmsg.
const READS: [u16; 4] = [0, 19, 45, 47];

/// As many as one call can read.
const MOST_UNANSWERED: usize = 1_024;

/// How long after a datagram can be read its T2 is stamped, at most: the hook comes right behind
/// the queueing, so a reader that is awake on another CPU can be faster.
pub(super) const STAMPED_LATE: Nanos = Nanos::from_micros(20);

/// Since when a thread has been on its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The switch was seen.
    Exactly(Monotonic),
    /// The switch was missed; by this time the thread was there.
    NotAfter(Monotonic),
}

/// A read of a thread, with what decides T3 except T2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// T4.
    pub(super) at: Monotonic,
    /// Who read.
    pub(super) tid: Tid,
    /// `None` when switches on that CPU are not recorded (yet).
    on_core: Option<Since>,
    /// When the thread was done with what it did before; `None` if that was not seen.
    free: Option<Monotonic>,
    /// What the call returned, modulo 1024, where the event says so.
    pub(super) bytes_mod_1024: Option<u16>,
    /// The thread slept in this read, after it had written something since its last one: if
    /// it is the one that answers here, it has answered all before.
    pub(super) waited: bool,
}

impl Read {
    /// T3: from when the thread could have served the request that this read returned.
    ///
    /// Without T2, T3 is known only when T2 was lost to a blind window that had ended by
    /// then: T2 was unseen, so it lies in a window, so it is not the latest of the three.
    pub(super) fn could_serve_from(
        &self,
        t1: Monotonic,
        t2: Option<Monotonic>,
        blind: &[BlindWindow],
    ) -> Option<Monotonic> {
        let free = self.free?;
        let busy_or_queued = t2.map_or(free, |t2| t2.max(free));
        let from = match self.on_core? {
            Since::Exactly(switched) => busy_or_queued.max(switched),
            // continuously on the core since before that
            Since::NotAfter(seen) if seen <= busy_or_queued => busy_or_queued,
            Since::NotAfter(_) => return None,
        };
        if t2.is_some() {
            return Some(from);
        }
        // windows are in the order of their ends
        let mut since_t1 = blind.iter().rev().take_while(|w| w.to >= t1);
        let last = since_t1.next()?;
        (last.to <= from).then_some(from)
    }
}

/// A thread of the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// A read that does not say of which connection it was.
    read: Option<Read>,
    /// Reads of datagrams that have not been answered, in their order.
    unanswered: VecDeque<Read>,
    /// What was read until then will not be answered any more.
    given_up: Option<Monotonic>,
    write: Option<Monotonic>,
    /// The last write since the last read.
    last_write: Option<Monotonic>,
    /// Writes called since its last read or packet.
    writes: u32,
    /// It has read or written requests or responses.
    pub(super) serves: bool,
    /// It has written since its last read.
    wrote: bool,
    /// It has slept in a read, and not written since.
    waited: bool,
    /// When the thread was last seen to be done with something; `None` from a write until
    /// its packet. See [`Read::free`].
    free: Option<Monotonic>,
    /// The client ([`RequestKey::client`]) of the connection on which it has answered since it last read or
    /// slept.
    pub(super) answered_client: Option<u32>,
    /// The latest T1 among the requests that it has answered.
    pub(super) answered_up_to: Option<Monotonic>,
    /// What it has answered since it last read or slept: its response may go on.
    pub(super) answered: Option<(RequestKey, Slot)>,
}

/// What led to a response: used up by it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) read: Option<Read>,
    /// T5.
    pub(super) write: Option<Monotonic>,
    /// Writes since the thread's last read or packet.
    pub(super) writes: u32,
}

impl Thread {
    /// One that has not been seen before it made a call; `on_core` since it came there, if
    /// that was long enough after the recording had begun.
    pub(super) fn unseen(on_core: Option<Monotonic>) -> Self {
        Self {
            free: on_core,
            ..Self::default()
        }
    }

    /// A slice begins. What it read, wrote or waited for was not seen to end; but its last response was
    /// seen.
    pub(super) fn begin_anew(&mut self) {
        *self = Self {
            serves: self.serves,
            free: self.free,
            answered_client: self.answered_client,
            answered_up_to: self.answered_up_to,
            answered: self.answered,
            ..Self::default()
        };
    }

    pub(super) fn read_returned(&mut self, tid: Tid, at: Monotonic, on_core: Option<Since>) {
        if self.write.is_some() || self.unanswered.len() == MOST_UNANSWERED {
            // it has been answered, by a packet that was not seen
            self.give_up_first();
        }
        let read = self.stream_read(tid, at, on_core, None);
        self.read = Some(read);
        self.unanswered.push_back(read);
    }

    /// What led to the response to a datagram that was queued at `queued`, if that is known.
    ///
    /// A thread that reads several datagrams before it answers reads them in the order in
    /// which they were queued, and may answer with one call (sendmmsg). So of its unanswered
    /// reads this one's comes after those of as many as `ahead` counts: unanswered ones that
    /// were queued before it and after the given time.
    pub(super) fn answered_datagram(
        &mut self,
        queued: Monotonic,
        sent: Sent,
        ahead: impl FnOnce(Option<Monotonic>, usize) -> usize,
    ) -> Sent {
        let too_early = |read: &Read| read.at + STAMPED_LATE < queued;
        while self.unanswered.front().is_some_and(too_early) {
            self.give_up_first();
        }
        let place = match self.unanswered.len() {
            0 | 1 => 0,
            several => ahead(self.given_up, several - 1),
        };
        let read = self.unanswered.remove(place);
        let in_batch = sent.read.is_none() && read.is_some();
        Sent {
            // one that the clocks of two CPUs put before T2 stays, and is counted as that
            read: read.or(sent.read),
            write: sent.write.or(self.last_write.filter(|_| in_batch)),
            ..sent
        }
    }

    fn give_up_first(&mut self) {
        self.given_up = self.unanswered.pop_front().map(|read| read.at);
    }

    /// A read of a connection that is known: the connection keeps it.
    pub(super) fn stream_read(
        &mut self,
        tid: Tid,
        at: Monotonic,
        on_core: Option<Since>,
        bytes_mod_1024: Option<u16>,
    ) -> Read {
        let read = Read {
            at,
            tid,
            on_core,
            free: self.free,
            bytes_mod_1024,
            waited: self.waited && self.wrote,
        };
        self.serves = true;
        self.read = None;
        self.write = None;
        self.last_write = None;
        self.writes = 0;
        self.wrote = false;
        self.waited = false;
        // a thread that reads more before it writes was at this one until now
        self.free = Some(at);
        self.answered = None;
        self.answered_client = None;
        read
    }

    /// That read returned only a part of a request: the thread has not begun to serve it.
    pub(super) fn goes_on_reading(&mut self, read: Read) {
        self.free = read.free;
    }

    /// A write of which the connection is not known.
    pub(super) fn write_called(&mut self, at: Monotonic) {
        self.write = Some(at);
        self.last_write = Some(at);
        self.writes += 1;
        self.stream_written();
    }

    /// A write of a connection that is known: the connection keeps it.
    pub(super) fn stream_written(&mut self) {
        self.serves = true;
        self.wrote = true;
        self.waited = false;
        self.free = None;
    }

    /// The thread's response has left: its last read and write are used up.
    pub(super) fn packet_out(&mut self, at: Monotonic) -> Sent {
        self.free = Some(at);
        Sent {
            read: self.read.take(),
            write: self.write.take(),
            writes: std::mem::take(&mut self.writes),
        }
    }

    /// The same, unless another thread has written what left.
    pub(super) fn packet_out_if(&mut self, is_own: bool, at: Monotonic) -> Sent {
        match is_own {
            true => self.packet_out(at),
            false => Sent::default(),
        }
    }

    /// More of the same response has left, unless the thread has gone on meanwhile.
    pub(super) fn still_sending(&mut self, at: Monotonic) {
        if self.free.is_some() {
            self.free = Some(at);
        }
    }

    /// The thread went to sleep: what it had to do (a response that was not seen, or
    /// none) is done. If it sleeps in the middle of a request, on a lock, its next call
    /// says so before it can read again.
    pub(super) fn slept(&mut self, at: Monotonic, asleep: Option<Asleep>) {
        let call = asleep.and_then(|asleep| asleep.call);
        self.waited = call.is_some_and(|call| READS.contains(&call));
        self.free = Some(at);
        self.answered = None;
        self.answered_client = None;
        self.last_write = None;
        if self.read.is_none() && !self.unanswered.is_empty() {
            // what it read before its last response it will not answer any more
            self.unanswered.clear();
            self.given_up = Some(at);
        }
    }
}

/// Who is current on one CPU.
#[derive(Clone, Copy)]
struct Core {
    current: Tid,
    since: Since,
    /// The last event that proves it.
    proven: Monotonic,
}

/// Who is current on each CPU whose switches are recorded.
#[derive(Default)]
pub(super) struct CurrentThreads {
    cores: Vec<Option<Core>>,
    /// CPUs whose switches are recorded for certain, from the first event on.
    watched: Vec<u16>,
}

impl CurrentThreads {
    /// Switches on these CPUs are recorded, from the first event on.
    pub(super) fn watch(&mut self, cpus: &[u16]) {
        self.watched = cpus.to_vec();
    }

    fn core(&mut self, cpu: u16) -> &mut Option<Core> {
        let place = usize::from(cpu);
        if place >= self.cores.len() {
            self.cores.resize(place + 1, None);
        }
        &mut self.cores[place]
    }

    /// A switch; it gives the blind window that it reveals.
    pub(super) fn switched(
        &mut self,
        cpu: u16,
        prev: Tid,
        next: Tid,
        at: Monotonic,
    ) -> Option<BlindWindow> {
        let before = self.core(cpu).replace(Core {
            current: next,
            since: Since::Exactly(at),
            proven: at,
        });
        before
            .filter(|core| core.current != prev)
            .map(|core| core.blind_until(cpu, at))
    }

    /// A system call of `tid`, so it is current; since when, and the blind window that
    /// this reveals. A CPU without a switch so far says nothing, unless it is watched: then the
    /// thread was there before the recording began, as one that spins is.
    pub(super) fn called(
        &mut self,
        cpu: u16,
        tid: Tid,
        at: Monotonic,
    ) -> (Option<Since>, Option<BlindWindow>) {
        let core = match self.cores.get_mut(usize::from(cpu)) {
            Some(Some(core)) => core,
            _ if self.watched.contains(&cpu) => self.core(cpu).insert(Core {
                current: tid,
                since: Since::NotAfter(at),
                proven: at,
            }),
            _ => return (None, None),
        };
        let mut blind = None;
        if core.current != tid {
            blind = Some(core.blind_until(cpu, at));
            core.current = tid;
            core.since = Since::NotAfter(at);
        }
        core.proven = at;
        (Some(core.since), blind)
    }
}

impl Core {
    fn blind_until(&self, cpu: u16, to: Monotonic) -> BlindWindow {
        BlindWindow {
            cpu,
            from: self.proven.min(to),
            to,
        }
    }
}
