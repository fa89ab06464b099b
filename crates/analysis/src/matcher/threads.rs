//! What is known about the server's threads, and which thread is on which CPU.
//!
//! **T3.** It needs two facts: when the thread came onto its core, and when it was done with what
//! it did before. The first is known from the switch, or bounded from above by the first call the
//! thread was seen to make there; the second from its last T6 or from the switch with which it went
//! to sleep. If it reads on without writing (an event loop that reads several connections before it
//! answers, a thread that hands requests to others), the second is known from its last T4, the last
//! event that shows it busy with something else. A thread that has not been seen to do anything,
//! and came onto its core some time after the recording began, is new or was asleep. If either fact
//! is unknown (the switch fell into a blind window; the last response was lost), T3 is known only
//! if the other facts decide the maximum; otherwise it is left out.
//!
//! **Blind windows.** On some kernels no probe runs while certain threads are current. This shows
//! only afterwards: a CPU changes from (or a system call comes from) a thread that is not the one
//! the CPU last changed to. Somewhere between the last event that proves which thread was current
//! and this contradiction, the probe missed a switch. The window covers all of that time, so it is
//! an upper bound of the blind time. Events that do not say which thread was current (packets) do
//! not shorten it, because the missed switch may lie on either side of them. The first switch on a
//! CPU contradicts nothing.

use std::collections::VecDeque;

use taillab_model::{Asleep, Monotonic, Nanos, RequestKey, Tid};

use super::parts::Slot;
use crate::id_map::grow_to;
use crate::matched::BlindWindow;

/// The system calls of x86-64 that read from one connection: read, readv, recvfrom, recvmsg.
const READS: [u16; 4] = [0, 19, 45, 47];

/// The most unanswered reads that are kept for a thread: as many messages as one call can read.
const MOST_UNANSWERED: usize = 1_024;

/// The longest time from when a datagram can be read until its T2 is stamped. The hook comes right
/// after the queueing, so a reader that is awake on another CPU can be faster.
pub(super) const STAMPED_LATE: Nanos = Nanos::from_micros(20);

/// Since when a thread has been on its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchTime {
    /// The switch was seen.
    Exactly(Monotonic),
    /// The switch was missed, but by this time the thread was there.
    NotAfter(Monotonic),
}

/// A read by a thread, with everything that decides T3 except T2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// T4.
    pub(super) at: Monotonic,
    /// The thread that read.
    pub(super) tid: Tid,
    /// Since when the thread was on its core; `None` if switches on that CPU are not recorded
    /// (yet).
    on_core: Option<SwitchTime>,
    /// When the thread was done with what it did before; `None` if that was not seen.
    free: Option<Monotonic>,
    /// How many bytes the call returned, modulo 1024, if the event says so.
    pub(super) bytes_mod_1024: Option<u16>,
    /// The thread slept in this read, and had written something since its previous read. If it is
    /// the thread that answers on this connection, it has answered everything before.
    pub(super) waited: bool,
}

impl Read {
    /// T3: from when the thread could have served the request that this read returned.
    ///
    /// Without T2, T3 is known only if the blind window that hid T2 had ended by then: T2 lies in a
    /// window because it was not seen, so it is not the latest of the three.
    pub(super) fn could_serve_from(
        &self,
        t1: Monotonic,
        t2: Option<Monotonic>,
        blind: &[BlindWindow],
    ) -> Option<Monotonic> {
        let free = self.free?;
        let busy_or_queued = t2.map_or(free, |t2| t2.max(free));
        let from = match self.on_core? {
            SwitchTime::Exactly(switched) => busy_or_queued.max(switched),
            // continuously on the core since before that
            SwitchTime::NotAfter(seen) if seen <= busy_or_queued => busy_or_queued,
            SwitchTime::NotAfter(_) => return None,
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
    /// When it was last seen to do something.
    pub(super) seen: Option<Monotonic>,
    /// The last read that does not name its connection.
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

/// The read and the writes that led to a response, which uses them up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) read: Option<Read>,
    /// T5.
    pub(super) write: Option<Monotonic>,
    /// Writes since the thread's last read or packet.
    pub(super) writes: u32,
}

impl Thread {
    /// A thread that was not seen before it made a call. `on_core` is when it came onto its core,
    /// if that was long enough after the recording began.
    pub(super) fn unseen(on_core: Option<Monotonic>) -> Self {
        Self {
            free: on_core,
            ..Self::default()
        }
    }

    /// A slice begins. The end of what the thread read, wrote or waited for before was not seen,
    /// but its last response was.
    pub(super) fn begin_anew(&mut self) {
        *self = Self {
            seen: self.seen,
            serves: self.serves,
            free: self.free,
            answered_client: self.answered_client,
            answered_up_to: self.answered_up_to,
            answered: self.answered,
            ..Self::default()
        };
    }

    pub(super) fn read_returned(&mut self, tid: Tid, at: Monotonic, on_core: Option<SwitchTime>) {
        if self.write.is_some() || self.unanswered.len() == MOST_UNANSWERED {
            // it has been answered, by a packet that was not seen
            self.give_up_first();
        }
        let read = self.stream_read(tid, at, on_core, None);
        self.read = Some(read);
        self.unanswered.push_back(read);
    }

    /// Whether it matters which of its reads was that of a datagram.
    pub(super) fn has_read_several(&self) -> bool {
        self.unanswered.len() > 1
    }

    /// When it read the datagrams that it has not answered.
    pub(super) fn unanswered_reads(&self) -> impl Iterator<Item = Monotonic> {
        self.unanswered.iter().map(|read| read.at)
    }

    /// What led to the response to a datagram that was queued at `queued`, if that is known.
    ///
    /// A thread that reads several datagrams before it answers reads them in the order in which
    /// they were queued, and may answer with one call (sendmmsg). So among the unanswered reads,
    /// that of this datagram comes after as many others as `ahead` counts: unanswered datagrams
    /// that were queued before it and after the given time. Some of them are in the hands of the
    /// other threads that read: `others` are the times of their unanswered reads.
    pub(super) fn answered_datagram(
        &mut self,
        queued: Monotonic,
        sent: Sent,
        others: &[Monotonic],
        ahead: impl FnOnce(Option<Monotonic>, usize) -> usize,
    ) -> Sent {
        let too_early = |read: &Read| read.at + STAMPED_LATE < queued;
        while self.unanswered.front().is_some_and(too_early) {
            self.give_up_first();
        }
        let place = match self.unanswered.len() {
            0 | 1 => 0,
            several => {
                let since = self.given_up;
                let ahead = ahead(since, several - 1 + others.len());
                let before = |read: &Read| {
                    let earlier = |at: &&Monotonic| **at < read.at && Some(**at) > since;
                    others.iter().filter(earlier).count()
                };
                let mut reads = self.unanswered.iter().enumerate();
                let found = reads.position(|(own, read)| own + before(read) >= ahead);
                found.unwrap_or(several - 1)
            }
        };
        let read = self.unanswered.remove(place);
        let in_batch = sent.read.is_none() && read.is_some();
        Sent {
            // a read that lies before T2 because the clocks of two CPUs differ is kept, and counted
            // as such
            read: read.or(sent.read),
            write: sent.write.or(self.last_write.filter(|_| in_batch)),
            ..sent
        }
    }

    fn give_up_first(&mut self) {
        self.given_up = self.unanswered.pop_front().map(|read| read.at);
    }

    /// A read from a connection that is known: the connection keeps it.
    pub(super) fn stream_read(
        &mut self,
        tid: Tid,
        at: Monotonic,
        on_core: Option<SwitchTime>,
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
        self.seen = Some(at);
        self.serves = true;
        self.read = None;
        self.write = None;
        self.last_write = None;
        self.writes = 0;
        self.wrote = false;
        self.waited = false;
        // if the thread reads on before it writes, it counts as free from this read on
        self.free = Some(at);
        self.answered = None;
        self.answered_client = None;
        read
    }

    /// That read returned only a part of a request: the thread has not begun to serve it.
    pub(super) fn goes_on_reading(&mut self, read: Read) {
        self.free = read.free;
    }

    /// A write to a connection that is not known.
    pub(super) fn write_called(&mut self, at: Monotonic) {
        self.write = Some(at);
        self.last_write = Some(at);
        self.writes += 1;
        self.stream_written(at);
    }

    /// A write to a connection that is known: the connection keeps it.
    pub(super) fn stream_written(&mut self, at: Monotonic) {
        self.seen = Some(at);
        self.serves = true;
        self.wrote = true;
        self.waited = false;
        self.free = None;
    }

    /// The thread's response has left: its last read and write are used up.
    pub(super) fn packet_out(&mut self, at: Monotonic) -> Sent {
        self.seen = Some(at);
        self.free = Some(at);
        Sent {
            read: self.read.take(),
            write: self.write.take(),
            writes: std::mem::take(&mut self.writes),
        }
    }

    /// Like [`Self::packet_out`], unless another thread has written what left.
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

    /// The thread went to sleep: what it had to do (a response that was not seen, or none) is done.
    /// If it sleeps in the middle of a request, on a lock, its next call shows that before it can
    /// read again.
    pub(super) fn slept(&mut self, at: Monotonic, asleep: Option<Asleep>) {
        self.seen = Some(at);
        let call = asleep.and_then(|asleep| asleep.call);
        self.waited = call.is_some_and(|call| READS.contains(&call));
        self.free = Some(at);
        self.answered = None;
        self.answered_client = None;
        self.last_write = None;
        if self.read.is_none() && !self.unanswered.is_empty() {
            // it will not answer any more what it read before its last response
            self.unanswered.clear();
            self.given_up = Some(at);
        }
    }
}

/// The thread that runs on one CPU.
#[derive(Clone, Copy)]
struct Core {
    current: Tid,
    since: SwitchTime,
    /// When the last event showed that this thread was running.
    proven: Monotonic,
}

/// The thread that runs on each CPU whose switches are recorded.
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
        grow_to(&mut self.cores, cpu.into())
    }

    /// Notes a switch. Returns the blind window that it reveals.
    pub(super) fn switched(
        &mut self,
        cpu: u16,
        prev: Tid,
        next: Tid,
        at: Monotonic,
    ) -> Option<BlindWindow> {
        let before = self.core(cpu).replace(Core {
            current: next,
            since: SwitchTime::Exactly(at),
            proven: at,
        });
        before
            .filter(|core| core.current != prev)
            .map(|core| core.blind_until(at))
    }

    /// Notes a system call of `tid`, so this thread is current. Returns since when it has been on
    /// the core, and the blind window that this reveals. On a CPU without a switch so far nothing
    /// is known, unless it is watched: then the thread was there before the recording began, like
    /// one that spins.
    pub(super) fn called(
        &mut self,
        cpu: u16,
        tid: Tid,
        at: Monotonic,
    ) -> (Option<SwitchTime>, Option<BlindWindow>) {
        let core = match self.cores.get_mut(usize::from(cpu)) {
            Some(Some(core)) => core,
            _ if self.watched.contains(&cpu) => self.core(cpu).insert(Core {
                current: tid,
                since: SwitchTime::NotAfter(at),
                proven: at,
            }),
            _ => return (None, None),
        };
        let mut blind = None;
        if core.current != tid {
            blind = Some(core.blind_until(at));
            core.current = tid;
            core.since = SwitchTime::NotAfter(at);
        }
        core.proven = at;
        (Some(core.since), blind)
    }
}

impl Core {
    fn blind_until(&self, to: Monotonic) -> BlindWindow {
        BlindWindow {
            from: self.proven.min(to),
            to,
        }
    }
}
