//! Which requests the only thread that reads datagrams has read and not answered.

use std::collections::VecDeque;

use taillab_model::{Asleep, Monotonic, Nanos, Tid};

use crate::matcher::parts::Slot;

/// If a thread falls asleep longer than this after the last datagram was queued, it has seen that
/// datagram: one that arrives while the thread checks for input keeps it awake.
const LOOKED: Nanos = Nanos::from_micros(50);

/// The system calls of x86-64 that wait for input: read, poll, select, recvfrom, recvmsg,
/// `epoll_wait`, pselect6, ppoll, `epoll_pwait`, recvmmsg, `epoll_pwait2`.
const WAITS: [u16; 11] = [0, 7, 23, 45, 47, 232, 270, 271, 281, 299, 441];

/// Reads after which a thread is taken for the only one that reads.
const ALONE: u32 = 128;

/// More datagrams than a socket holds.
const MOST_QUEUED: usize = 1 << 18;

/// The only thread that reads datagrams, and what it has in hand.
#[derive(Default)]
pub(super) struct SoleReader {
    reader: Option<Tid>,
    reads: u32,
    /// More than one thread reads.
    several: bool,
    /// Nothing has contradicted the order since the reader last slept.
    certain: bool,
    /// Queued and not read, in order of T2.
    queued: VecDeque<Slot>,
    /// The last T2.
    last_queued: Option<Monotonic>,
    /// Read and not answered, with their T4.
    read: Vec<(Slot, Monotonic)>,
}

impl SoleReader {
    /// T2: a datagram was queued.
    pub(super) fn enqueued(&mut self, at: Monotonic, slot: Slot) {
        self.last_queued = Some(at);
        if self.several {
            return;
        }
        if self.queued.len() >= MOST_QUEUED {
            // its reads are not seen
            self.queued.clear();
            self.certain = false;
        }
        self.queued.push_back(slot);
    }

    /// T4: a thread has read a datagram.
    pub(super) fn read_returned(&mut self, tid: Tid, at: Monotonic) {
        if *self.reader.get_or_insert(tid) != tid {
            *self = Self {
                reader: Some(tid),
                several: true,
                ..Self::default()
            };
        }
        if self.several {
            return;
        }
        self.reads = self.reads.saturating_add(1);
        match self.queued.pop_front() {
            Some(slot) => self.read.push((slot, at)),
            None => self.certain = false,
        }
    }

    /// A thread went to sleep: a reader that waits for input has read all there was.
    pub(super) fn slept(&mut self, tid: Tid, asleep: Option<Asleep>, at: Monotonic) {
        let waits = asleep.and_then(|asleep| asleep.call);
        let waits = waits.is_some_and(|call| WAITS.contains(&call));
        let looked = self.last_queued.is_none_or(|last| last + LOOKED < at);
        let alone = self.reader == Some(tid) && self.reads >= ALONE;
        if !self.certain && waits && looked && alone {
            self.queued.clear();
            self.read.clear();
            self.certain = true;
        }
    }

    /// A response left that the order does not explain.
    pub(super) fn contradicted(&mut self) {
        self.certain = false;
    }

    /// Forgets what was read of requests that are `gone`: nothing answers them any more.
    pub(super) fn forget(&mut self, gone: impl Fn(Slot) -> bool) {
        self.read.retain(|&(slot, _)| !gone(slot));
    }

    /// Which request `tid` answers, among those for which `is_clients` is true; `None` if that is
    /// not certain. `unseen` says for a T4 whether the client has an open request that came in
    /// earlier and was not seen to be queued.
    pub(super) fn answered(
        &mut self,
        tid: Tid,
        is_clients: impl Fn(Slot) -> bool,
        unseen: impl Fn(Monotonic) -> bool,
    ) -> Option<Slot> {
        if self.several || self.reader != Some(tid) {
            return None;
        }
        let mut of_client = (0..self.read.len()).filter(|&place| is_clients(self.read[place].0));
        match (of_client.next(), of_client.next()) {
            (Some(place), None) if !unseen(self.read[place].1) => {
                let (slot, _) = self.read.remove(place);
                self.certain.then_some(slot)
            }
            _ => {
                self.certain = false;
                None
            }
        }
    }
}
