//! The state shared by the matching of datagrams and of streams: the requests in the server, its
//! threads, and the result so far.

use taillab_model::{Event, MiddleStamps, Monotonic, Nanos, RequestKey, Tid};

use super::departures::{Departed, Departures};
use super::held::{Fate, HeldRequest, HeldRequests};
use super::options::MatchOptions;
use super::parts::Slot;
use super::threads::{CurrentThreads, SwitchTime, Thread};
use crate::bound::Bound;
use crate::clients::Announced;
use crate::id_map::IdMap;
use crate::matched::{BlindWindow, Matched, Unmatched};
use crate::slices::Slices;
use crate::spans::earlier;

/// After this many new requests, the decided ones move to the result.
const GIVE_OUT_EVERY: u32 = 4_096;

/// With more requests than this in the server, the oldest is set aside if it is undecided, so that
/// those behind it can move to the result.
const SET_ASIDE_BEYOND: usize = 65_536;

/// The most threads that are remembered. A thread never says that it ends.
const MOST_THREADS: usize = 1 << 17;

/// The state that the matching of datagrams and that of streams share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) options: MatchOptions,
    pub(super) held: HeldRequests,
    pub(super) threads: IdMap<Thread>,
    most_threads: Bound<MOST_THREADS>,
    pub(super) cores: CurrentThreads,
    pub(super) blind: Vec<BlindWindow>,
    pub(super) slices: Slices,
    /// CPUs whose switches are recorded from the first event on, or from the first of a slice.
    pub(super) watched: Vec<u16>,
    /// The result so far: everything that is decided.
    pub(super) found: Matched,
    since_given_out: u32,
    /// Threads of other processes, which share the server's port.
    pub(super) others: IdMap<()>,
    /// Responses that may wait in a device's queue.
    pub(super) departures: Departures,
    /// Whose the numbers of connections are.
    pub(super) announced: Announced,
    /// T2 of a stream was seen.
    saw_queued: bool,
    first: Option<Monotonic>,
    pub(super) last: Option<Monotonic>,
}

impl Shared {
    pub(super) fn new(options: MatchOptions) -> Self {
        Self {
            options,
            slices: Slices::of(options.stamps),
            announced: Announced::new(options.hashed_clients),
            found: Matched {
                stamps: options.stamps,
                ..Matched::default()
            },
            ..Self::default()
        }
    }

    /// Counts an event.
    pub(super) fn saw(&mut self, event: &Event) {
        self.found.events += 1;
        self.first.get_or_insert(event.at);
        self.last = self.last.max(Some(event.at));
        if self.most_threads.is_exceeded(self.threads.len()) {
            self.forget_threads();
        }
    }

    /// What has not been seen since then is idle: no request waits for it any more.
    pub(super) fn idle(&self) -> Monotonic {
        let last = self.last.unwrap_or(Monotonic::from_nanos_since_boot(0));
        earlier(last, self.options.stale_after)
    }

    /// Forgets threads that have ended or do nothing. One that comes back is like one that was asleep since
    /// the recording began.
    fn forget_threads(&mut self) {
        let idle = self.idle();
        let seen = self
            .threads
            .values()
            .map(|thread| thread.seen.unwrap_or(idle));
        let upto = self.most_threads.forget_upto(seen, idle);
        let found = &mut self.found;
        self.threads.retain(|_, thread| {
            let stays = thread.seen.is_some_and(|seen| seen > upto);
            let in_use = thread.seen.is_some_and(|seen| seen > idle);
            found.forgotten += u64::from(in_use && !stays);
            stays
        });
    }

    /// The first event; with slices, of the recording and not of the slice.
    pub(super) const fn first(&self) -> Option<Monotonic> {
        self.first
    }

    /// Whether the recording began no longer than this before `at`.
    pub(super) fn has_begun_within(&self, length: Nanos, at: Monotonic) -> bool {
        self.first
            .is_none_or(|first| at.saturating_since(first) <= length)
    }

    pub(super) fn thread(&mut self, tid: Tid) -> &mut Thread {
        self.threads.entry(tid).or_default()
    }

    /// The thread whose read has returned on this CPU, and since when it has been there.
    pub(super) fn reader(
        &mut self,
        cpu: u16,
        tid: Tid,
        at: Monotonic,
    ) -> (&mut Thread, Option<SwitchTime>) {
        let on_core = self.running(cpu, tid, at);
        let begun = self.first.map(|first| first + self.options.overtaken_after);
        let thread = self.threads.entry(tid).or_insert_with(|| {
            Thread::unseen(match on_core {
                Some(SwitchTime::Exactly(at)) if Some(at) > begun => Some(at),
                _ => None,
            })
        });
        (thread, on_core)
    }

    /// Notes that `tid` runs on `cpu`. Returns since when, if that is known.
    pub(super) fn running(&mut self, cpu: u16, tid: Tid, at: Monotonic) -> Option<SwitchTime> {
        let (since, blind) = self.cores.called(cpu, tid, at);
        self.blind.extend(blind);
        since
    }

    /// The CPU changed from the thread `prev` to `next`.
    pub(super) fn switched(&mut self, cpu: u16, prev: Tid, next: Tid, at: Monotonic) {
        self.blind.extend(self.cores.switched(cpu, prev, next, at));
    }

    /// The probe could not read memory on a CPU during the `lasted` before `to`.
    pub(super) fn unreadable(&mut self, to: Monotonic, lasted: Nanos) {
        let from = earlier(to, lasted);
        self.blind.push(BlindWindow { from, to });
    }

    /// A slice begins or ends, and what is known about the CPUs is dropped. When one begins, what
    /// is known about unfinished calls is dropped too.
    pub(super) fn slice(&mut self, begins: bool) {
        self.cores = CurrentThreads::default();
        if begins {
            self.cores.watch(&self.watched);
            self.threads.values_mut().for_each(Thread::begin_anew);
        }
    }

    /// Notes that a socket of the server has received a segment.
    pub(super) const fn saw_queued(&mut self) {
        self.saw_queued = true;
    }

    /// Whether a connection of a socket of the server would be seen to be one. With stamps at the ends alone, a
    /// response shows it.
    pub(super) const fn shows_sockets(&self) -> bool {
        match self.options.stamps {
            MiddleStamps::All => self.saw_queued,
            MiddleStamps::Ends => true,
            MiddleStamps::Sampled(_) => false,
        }
    }

    /// Whether reads and writes are recorded now.
    pub(super) fn sees_calls(&self) -> bool {
        self.options.stamps != MiddleStamps::Ends && self.slices.is_open()
    }

    /// [`unasked_worker`], for a thread of this recording.
    pub(super) fn unasked_worker(&self, tid: Tid) -> Tid {
        let serves = || self.threads.get(&tid).is_some_and(|thread| thread.serves);
        unasked_worker(self.options.stamps, tid, serves)
    }

    /// A packet of a response was handed down to a device's queue, or left it.
    pub(super) fn passed_queue(&mut self, key: RequestKey, number: u32, left: bool, at: Monotonic) {
        if !left {
            let idle = self.idle();
            return self.departures.handed_down(key, number, at, idle);
        }
        let held = &mut self.held;
        let leaves = |slot, handed_down| match held.get_mut(slot) {
            // unless more of it has been handed down since
            Some(request) if request.t6 == handed_down => {
                request.t6 = at;
                request.waits_in_queue = false;
            }
            _ => {}
        };
        self.departures.left(key, number, at, leaves);
    }

    /// The request in `slot` is answered by what left, or was handed down, at its T6.
    pub(super) fn leaves(&mut self, slot: Slot) {
        leaves(&mut self.held, &mut self.departures, slot);
    }

    pub(super) fn open_request(&mut self, at: Monotonic, key: RequestKey) -> Option<Slot> {
        self.opened();
        self.held.open(at, key)
    }

    /// Counts a new request. From time to time, moves what is decided to the result, so that not
    /// all requests are held.
    pub(super) fn opened(&mut self) {
        self.since_given_out += 1;
        if self.since_given_out >= GIVE_OUT_EVERY {
            self.give_out();
        }
    }

    /// Moves the oldest requests to the result, up to the first that is undecided.
    pub(super) fn give_out(&mut self) {
        self.since_given_out = 0;
        while let Some((slot, request)) = self.held.front() {
            if is_decided(&self.threads, slot, request) {
                if let Some(request) = self.held.pop_front() {
                    self.found.add(&request, &self.announced);
                }
            } else if self.held.len() > SET_ASIDE_BEYOND {
                self.held.set_front_aside();
            } else {
                break;
            }
        }
    }

    /// Moves the requests that were set aside to the result if they are decided or `stale`;
    /// returns when the oldest of the others came in.
    pub(super) fn settle_stragglers(
        &mut self,
        stale: impl Fn(&HeldRequest) -> bool,
    ) -> Option<Monotonic> {
        let (threads, found, announced) = (&self.threads, &mut self.found, &self.announced);
        self.held.settle_stragglers(
            |slot, request| stale(request) || is_decided(threads, slot, request),
            |request| found.add(request, announced),
        )
    }

    /// All that was found, when there are no more events.
    pub(super) fn finish(mut self) -> Matched {
        while let Some(request) = self.held.pop_front() {
            self.found.add(&request, &self.announced);
        }
        for request in self.held.stragglers() {
            self.found.add(&request, &self.announced);
        }
        if let Some(last) = self.last {
            self.slices.end(last);
        }
        self.found.slices = self.slices;
        self.found.blind = self.blind;
        self.found.last = self.last;
        self.found.restore_order();
        self.found
    }
}

/// The thread that served a request whose read and write were not meant to be recorded: the one
/// that ran when the response left, or 0 if reads and writes are recorded at other times and the
/// thread is not known to serve requests.
pub(super) fn unasked_worker(stamps: MiddleStamps, tid: Tid, serves: impl Fn() -> bool) -> Tid {
    match stamps == MiddleStamps::Ends || serves() {
        true => tid,
        false => 0,
    }
}

/// Puts T6 in the place of the time at which the response in `slot` was handed down, if it has left by now.
pub(super) fn leaves(held: &mut HeldRequests, departures: &mut Departures, slot: Slot) {
    if departures.is_empty() {
        return;
    }
    if let Some(request) = held.get_mut(slot) {
        match departures.of(request.key, request.t6, slot) {
            Departed::AtOnce => {}
            Departed::At(left) => request.t6 = left,
            Departed::NotYet => request.waits_in_queue = true,
        }
    }
}

/// Whether nothing that may still come can change the request.
fn is_decided(threads: &IdMap<Thread>, slot: Slot, request: &HeldRequest) -> bool {
    if request.waits_in_queue {
        return false;
    }
    match request.fate {
        Fate::Finished | Fate::Ambiguous | Fate::Early | Fate::Unanswered | Fate::Part => true,
        Fate::Answered => {
            let thread = threads.get(&request.responder);
            let still = thread.and_then(|thread| thread.answered);
            still.is_none_or(|(_, answered)| answered != slot)
        }
        Fate::Open | Fate::Begun | Fate::Doubtful => false,
    }
}

impl Matched {
    /// Adds a request whose fate is decided, or that is no longer waited for.
    fn add(&mut self, request: &HeldRequest, announced: &Announced) {
        let counts = !matches!(request.fate, Fate::Part | Fate::Begun);
        if counts {
            self.clients.keep(request.key.connection, announced);
        }
        match request.fate {
            Fate::Answered | Fate::Finished if !request.waits_in_queue => {
                self.requests.push_stamps(request.stamps());
                if request.command.is_some() {
                    self.requests.set_command(request.command);
                }
                self.keys.push(request.key);
                self.workers.push(request.worker);
            }
            Fate::Part | Fate::Begun => {}
            // a response that never left the queue answers nothing
            _ => {
                self.unmatched.push(Unmatched {
                    key: request.key,
                    t1: request.t1,
                    ambiguous: matches!(
                        request.fate,
                        Fate::Doubtful | Fate::Ambiguous | Fate::Early
                    ),
                    early: request.fate == Fate::Early,
                    queued: request.t2.is_some(),
                });
            }
        }
    }
}
