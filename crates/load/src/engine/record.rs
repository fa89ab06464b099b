//! The record: one row for each request, in columns that are allocated before the run.

use std::ops::Range;

use taillab_model::summary::{Closing, LoadErrors};
use taillab_model::{
    ClientTimes, ConnectEnd, Connecting, Monotonic, Nanos, Operation, Outcome, SentKey, WireTimes,
};

use super::kernel_times::KernelTimes;
use crate::client::{Draw, Habits, Keys, Traits};
use crate::protocol::Planned;
use crate::transport::NotSent;

/// State of a request during the run; the values of [`Outcome`] are states too.
mod state {
    pub(super) const UNSENT: u32 = 0;
    pub(super) const WAITING: u32 = 7;
    /// Waiting, while an earlier request with the same id could still be answered: an answer
    /// could belong to either.
    pub(super) const CONTENDED: u32 = 8;
    /// Not sent, because the server's host refused the connection. No [`Outcome`] has this value.
    pub(super) const REFUSED: u32 = 15;
    pub(super) const MASK: u32 = 0xf;
    pub(super) const BITS: u32 = 4;
}

/// "No such time" in the columns.
const NONE: u64 = u64::MAX;

/// One request of a [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Intended, sent, received. A late answer's time is kept although its request
    /// counts as timed out.
    pub times: ClientTimes,
    /// The kernel's stamps of the request and of its answer, if they are turned on.
    pub wire: WireTimes,
    /// How long it waited in its client for its connection; zero if that was free. It was sent after that or, if it
    /// waited for as long as an answer may take, given up.
    pub waited: Nanos,
    /// How the connection of its own was opened, between that wait and the send; `None` where connections are kept,
    /// and for a request for which none was begun.
    pub connecting: Option<Connecting>,
    /// What it asked for.
    pub operation: Operation,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of its connection; `None` on streams if it was not sent.
    pub connection: Option<usize>,
    /// The client's port; `None` over Unix sockets, and on streams if it was not sent.
    pub port: Option<u16>,
    /// What its packets carried, if that is known.
    pub key: Option<SentKey>,
    /// It belongs to the warm-up.
    pub warm_up: bool,
}

impl Entry {
    /// When the generator came to it: its send, if its connection was free.
    pub fn turn(&self) -> Monotonic {
        let sent_ns = self.times.sent.nanos_since_boot();
        let before = self.waited + self.connecting_took();
        Monotonic::from_nanos_since_boot(sent_ns.saturating_sub(before.get()))
    }

    /// How long its connection took to open; zero where that was open before.
    pub fn connecting_took(&self) -> Nanos {
        self.connecting.map_or(Nanos::ZERO, |of| of.took)
    }

    /// From the actual send to the answer.
    pub fn service_time(&self) -> Option<Nanos> {
        self.times
            .received
            .map(|r| r.saturating_since(self.times.sent))
    }
}

/// Every request that was sent, in order of the schedule: 28 bytes each, 8 more over streams for its connection and
/// key, 8 more where it may wait for that connection, and 8 more where it has one of its own.
///
/// A request that was due and not yet sent when a run ended early has no row.
#[derive(Clone, Debug)]
pub struct Record {
    keys: Keys,
    key_period: usize,
    draw: Option<Draw>,
    habits: Habits,
    connections: usize,
    closing: Option<Closing>,
    kernel: KernelTimes,
    start: Monotonic,
    timeout: Nanos,
    measure_from: usize,
    len: usize,
    schedule: Vec<Nanos>,
    sent_ns: Vec<u64>,
    /// When the generator came to those that waited for their connections; empty where none may wait.
    turn_ns: Vec<u64>,
    /// When the connection of each began to be opened; empty where connections are kept.
    dialed_ns: Vec<u64>,
    received_ns: Vec<u64>,
    /// The planned request, with its [`state`] in the lowest bits.
    asked: Vec<u32>,
}

impl Record {
    /// Allocates and touches all memory, so that the run has no page fault.
    pub(crate) fn new(
        key_period: usize,
        schedule: Vec<Nanos>,
        plan: &[Planned],
        measure_from: usize,
        timeout: Nanos,
    ) -> Self {
        debug_assert_eq!(schedule.len(), plan.len());
        let n = schedule.len();
        Self {
            keys: Keys::none(),
            key_period,
            draw: None,
            habits: Habits::POOL,
            connections: 0,
            closing: None,
            kernel: KernelTimes::default(),
            start: Monotonic::from_nanos_since_boot(0),
            timeout,
            measure_from,
            len: 0,
            schedule,
            // not zero: zeroed pages would stay untouched
            sent_ns: vec![NONE; n],
            turn_ns: Vec::new(),
            dialed_ns: Vec::new(),
            received_ns: vec![NONE; n],
            asked: plan
                .iter()
                .map(|p| p.to_bits() << state::BITS | state::UNSENT)
                .collect(),
        }
    }

    /// With the columns that the requests of such a client need.
    pub(super) fn of_client(self, traits: &Traits) -> Self {
        let n = self.schedule.len();
        Self {
            kernel: KernelTimes::new(traits.stamps, n),
            turn_ns: vec![NONE; if traits.may_wait { n } else { 0 }],
            dialed_ns: vec![NONE; if traits.closing.is_some() { n } else { 0 }],
            closing: traits.closing,
            draw: traits.draw,
            habits: traits.habits,
            connections: traits.connections,
            ..self
        }
    }

    /// How the clients used their connections, and how many those were.
    pub fn clients(&self) -> (Habits, usize) {
        (self.habits, self.connections)
    }

    /// Who closes the connections, where each request has one of its own.
    pub fn closing(&self) -> Option<Closing> {
        self.closing
    }

    pub(super) fn timeout(&self) -> Nanos {
        self.timeout
    }

    /// The measurement begins with request `k`.
    pub(super) fn measure_from(&mut self, k: usize) {
        self.measure_from = k;
    }

    /// When request `k` is due, counted from the start.
    #[inline]
    pub(super) fn planned(&self, k: usize) -> Nanos {
        self.schedule[k]
    }

    /// Sets when request `k` is due, counted from the start.
    #[inline]
    pub(super) fn set_planned(&mut self, k: usize, at: Nanos) {
        self.schedule[k] = at;
    }

    /// Since when request `k` has been over: answered or given up. If its send failed or its
    /// connection ended, since its send. `None` while its answer can still come in time.
    pub(super) fn over_since(&self, k: usize, now: Monotonic) -> Option<Monotonic> {
        let sent = Monotonic::from_nanos_since_boot(self.sent_ns[k]);
        if self.could_still_answer(k, now) {
            return None;
        }
        let received = self.received_ns[k];
        Some(if outcome_of(self.asked[k]) == Outcome::TimedOut {
            sent + self.timeout
        } else if received == NONE {
            sent
        } else {
            Monotonic::from_nanos_since_boot(received)
        })
    }

    /// Whether request `k`, which is over, had no answer in time.
    pub(super) fn is_given_up(&self, k: usize) -> bool {
        outcome_of(self.asked[k]) == Outcome::TimedOut
    }

    /// Notes the kernel's stamp of the answer to request `k`; the generator got it `after`.
    #[inline]
    pub(super) fn received_by_kernel(&mut self, k: usize, at: Monotonic, after: Monotonic) {
        let sent = Monotonic::from_nanos_since_boot(self.sent_ns[k]);
        self.kernel.received(k, at, sent, after);
    }

    /// Notes the kernel's stamp of the send of request `k`.
    #[inline]
    pub(super) fn sent_by_kernel(&mut self, k: usize, at: Monotonic) {
        let sent = Monotonic::from_nanos_since_boot(self.sent_ns[k]);
        self.kernel.sent(k, at, sent);
    }

    pub(crate) fn begin(&mut self, start: Monotonic) {
        self.start = start;
    }

    /// When request `k` is due.
    #[inline]
    pub(crate) fn due(&self, k: usize) -> Monotonic {
        self.start + self.schedule[k]
    }

    #[inline]
    pub(crate) fn planned_len(&self) -> usize {
        self.schedule.len()
    }

    /// Notes that the next request is about to be sent, and returns what it asks for.
    #[inline]
    pub(crate) fn send(&mut self, k: usize, at: Monotonic) -> Planned {
        debug_assert_eq!(k, self.len);
        self.sent_ns[k] = at.nanos_since_boot();
        let state = if self.is_contended(k, at) {
            state::CONTENDED
        } else {
            state::WAITING
        };
        self.asked[k] = self.asked[k] & !state::MASK | state;
        self.len = k + 1;
        Planned::from_bits(self.asked[k] >> state::BITS)
    }

    /// Whether an earlier request with the key of request `k` could still be answered.
    #[inline]
    fn is_contended(&self, k: usize, now: Monotonic) -> bool {
        let mut other = k;
        while let Some(earlier) = other.checked_sub(self.key_period) {
            other = earlier;
            let sent = Monotonic::from_nanos_since_boot(self.sent_ns[earlier]);
            if now.saturating_since(sent) > self.timeout {
                return false;
            }
            let is_same = self.draw.is_none_or(|draw| draw.of(earlier) == draw.of(k));
            if is_same && self.could_still_answer(earlier, now) {
                return true;
            }
        }
        false
    }

    /// Request `k`, which is not sent yet, waits for its connection.
    #[cold]
    pub(super) fn waits(&mut self, k: usize) {
        if let Some(turn) = self.turn_ns.get_mut(k) {
            *turn = self.sent_ns[k];
        }
    }

    /// Whether request `k`, if it leaves at `at`, has not waited for its connection for as long as an answer may take.
    pub(super) fn is_in_time(&self, k: usize, at: Monotonic) -> bool {
        let turn = Monotonic::from_nanos_since_boot(self.sent_ns[k]);
        at.saturating_since(turn) <= self.timeout
    }

    /// The connection of request `k` begins to be opened at `at`; the request leaves when it is up.
    #[inline]
    pub(super) fn dials(&mut self, k: usize, at: Monotonic) {
        if let Some(turn_ns) = self.turn_ns.get_mut(k)
            && *turn_ns == NONE
        {
            *turn_ns = self.sent_ns[k];
        }
        if let Some(dialed_ns) = self.dialed_ns.get_mut(k) {
            *dialed_ns = at.nanos_since_boot();
        }
    }

    /// Request `k`, which waited for its connection, leaves at `at`.
    pub(super) fn left(&mut self, k: usize, at: Monotonic) {
        // later than its turn, by which those that never left are known
        self.sent_ns[k] = at.nanos_since_boot().max(self.sent_ns[k] + 1);
    }

    /// Request `k` is given up: it has waited too long for its connection.
    pub(super) fn gave_up(&mut self, k: usize) {
        self.asked[k] = self.asked[k] & !state::MASK | Outcome::TimedOut as u32;
    }

    /// Whether request `k` waits, and not longer than the time-out.
    fn could_still_answer(&self, k: usize, now: Monotonic) -> bool {
        let waits = matches!(
            self.asked[k] & state::MASK,
            state::WAITING | state::CONTENDED
        );
        let sent = Monotonic::from_nanos_since_boot(self.sent_ns[k]);
        waits && now.saturating_since(sent) <= self.timeout
    }

    #[inline]
    pub(crate) fn send_failed(&mut self, k: usize, why: NotSent) {
        let state = match why {
            NotSent::Refused => state::REFUSED,
            NotSent::Failed => Outcome::SendFailed as u32,
        };
        self.asked[k] = self.asked[k] & !state::MASK | state;
    }

    /// What request `k` asked for, if it can still take an answer.
    #[inline]
    pub(crate) fn outstanding(&self, k: usize) -> Option<Planned> {
        let asked = self.asked[k];
        (asked & state::MASK == state::WAITING).then(|| Planned::from_bits(asked >> state::BITS))
    }

    #[inline]
    pub(crate) fn answered(&mut self, k: usize, outcome: Outcome, at: Monotonic) {
        self.received_ns[k] = at.nanos_since_boot();
        self.ended(k, outcome, at);
    }

    /// Notes how request `k` ended: with an answer, or because none can come any more.
    #[inline]
    pub(crate) fn ended(&mut self, k: usize, outcome: Outcome, at: Monotonic) {
        let late = at.nanos_since_boot() - self.sent_ns[k] > self.timeout.get();
        let outcome = if late { Outcome::TimedOut } else { outcome };
        self.asked[k] = self.asked[k] & !state::MASK | outcome as u32;
    }

    /// Closes the record: requests that still wait have timed out.
    pub(crate) fn finish(&mut self, keys: Keys) {
        self.keys = keys;
        for asked in &mut self.asked[..self.len] {
            if matches!(*asked & state::MASK, state::WAITING | state::CONTENDED) {
                *asked = *asked & !state::MASK | Outcome::TimedOut as u32;
            }
        }
        self.measure_from = self.measure_from.min(self.len);
    }

    /// When the schedule began.
    pub fn start(&self) -> Monotonic {
        self.start
    }

    /// The numbers of the requests that belong to the measurement.
    pub fn measured(&self) -> Range<usize> {
        self.measure_from..self.len
    }

    /// How many requests later the same key comes again; `usize::MAX` if it does not follow from
    /// the number.
    pub fn key_period(&self) -> usize {
        self.key_period
    }

    /// Request `k`, or `None` if it was not sent.
    pub fn get(&self, k: usize) -> Option<Entry> {
        if k >= self.len {
            return None;
        }
        let time = |ns: u64| (ns != NONE).then(|| Monotonic::from_nanos_since_boot(ns));
        let planned = Planned::from_bits(self.asked[k] >> state::BITS);
        let received = time(self.received_ns[k]);
        Some(Entry {
            times: ClientTimes {
                intended: self.due(k),
                sent: self.sent(k),
                received,
            },
            wire: self.kernel.get(k),
            waited: self.waited(k),
            connecting: self.connecting(k),
            operation: planned.operation(),
            outcome: outcome_of(self.asked[k]),
            connection: self.keys.connection_of(k),
            port: self.keys.port_of(k),
            key: self.keys.key_of(k),
            warm_up: k < self.measure_from,
        })
    }

    /// When the generator came to request `k`.
    fn turn(&self, k: usize) -> Monotonic {
        let turn_ns = self.turn_ns.get(k).filter(|ns| **ns != NONE);
        Monotonic::from_nanos_since_boot(*turn_ns.unwrap_or(&self.sent_ns[k]))
    }

    /// How long request `k` waited for its connection; one that never left, for as long as an answer may take.
    fn waited(&self, k: usize) -> Nanos {
        match (self.turn_ns.get(k), self.dialed_ns.get(k)) {
            (None | Some(&NONE), _) => Nanos::ZERO,
            (Some(&turn_ns), Some(&dialed_ns)) if dialed_ns != NONE => {
                Nanos::new(dialed_ns - turn_ns)
            }
            (Some(&turn_ns), _) if turn_ns == self.sent_ns[k] => self.timeout,
            (Some(&turn_ns), _) => Nanos::new(self.sent_ns[k] - turn_ns),
        }
    }

    /// How the connection of request `k` was opened, if it has one of its own.
    fn connecting(&self, k: usize) -> Option<Connecting> {
        let dialed_ns = *self.dialed_ns.get(k)?;
        let state = self.asked[k] & state::MASK;
        let is_unsent = outcome_of(self.asked[k]) == Outcome::SendFailed;
        let never_left = self.turn_ns.get(k) == Some(&self.sent_ns[k]);
        let end = match dialed_ns {
            _ if state == state::REFUSED => ConnectEnd::Refused,
            _ if is_unsent => ConnectEnd::Failed,
            // it waited in vain until another was closed
            NONE => return None,
            _ if never_left => ConnectEnd::TimedOut,
            _ => ConnectEnd::Connected,
        };
        let took = match end {
            ConnectEnd::TimedOut => self.timeout,
            _ if dialed_ns == NONE => Nanos::ZERO,
            _ => Nanos::new(self.sent_ns[k].saturating_sub(dialed_ns)),
        };
        Some(Connecting { took, end })
    }

    /// When request `k` was sent or given up.
    fn sent(&self, k: usize) -> Monotonic {
        let took = self.connecting(k).map_or(Nanos::ZERO, |of| of.took);
        self.turn(k) + self.waited(k) + took
    }

    /// All requests in order of their sends: those that waited for their connections were sent after others that
    /// were due later.
    pub fn iter_as_sent(&self) -> impl Iterator<Item = Entry> {
        let sent = |k: &usize| self.sent(*k);
        let mut order: Vec<usize> = Vec::new();
        if !self.turn_ns.is_empty() {
            order.extend(0..self.len);
            order.sort_by_key(sent);
        }
        (0..self.len).map(move |at| {
            let k = order.get(at).copied().unwrap_or(at);
            self.get(k).expect("below the length")
        })
    }

    /// All requests, warm-up first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry> {
        (0..self.len).map(|k| self.get(k).expect("below the length"))
    }

    /// The requests of the measurement.
    pub fn iter_measured(&self) -> impl ExactSizeIterator<Item = Entry> {
        self.measured()
            .map(|k| self.get(k).expect("below the length"))
    }

    /// When the generator came to the requests of the measurement, including those that the kernel refused
    /// ([`Outcome::SendFailed`]). That is when they were sent, except that some waited for their connections: so
    /// long the client waits, and not the generator.
    pub fn measured_turns(&self) -> impl ExactSizeIterator<Item = Monotonic> {
        self.measured().map(|k| self.turn(k))
    }

    /// Makes the warm-up a part of the measurement; returns its failed requests.
    pub(crate) fn count_warm_up(&mut self) -> LoadErrors {
        let warm_up = 0..self.measure_from.min(self.len);
        self.measure_from = 0;
        self.errors_of(warm_up)
    }

    /// The measurement's failed requests. Answers that belong to no request are not counted here:
    /// see [`super::LoadRun`].
    pub(crate) fn request_errors(&self) -> LoadErrors {
        self.errors_of(self.measured())
    }

    fn errors_of(&self, requests: Range<usize>) -> LoadErrors {
        let mut errors = LoadErrors::default();
        for asked in &self.asked[requests] {
            match outcome_of(*asked) {
                Outcome::TimedOut => errors.timeouts += 1,
                Outcome::SendFailed => errors.send_errors += 1,
                Outcome::ServerError => errors.server_errors += 1,
                Outcome::Miss => errors.misses += 1,
                Outcome::ConnectionLost => errors.lost_with_connection += 1,
                Outcome::Malformed => errors.malformed_responses += 1,
                Outcome::Hit | Outcome::Stored | Outcome::Done => {}
            }
        }
        errors
    }
}

fn outcome_of(asked: u32) -> Outcome {
    const ENDED: [Outcome; 8] = [
        Outcome::SendFailed,
        Outcome::Hit,
        Outcome::Miss,
        Outcome::Stored,
        Outcome::ServerError,
        Outcome::Done,
        Outcome::ConnectionLost,
        Outcome::Malformed,
    ];
    let state = asked & state::MASK;
    if state == state::REFUSED {
        return Outcome::SendFailed;
    }
    let ended = ENDED.into_iter().find(|outcome| *outcome as u32 == state);
    // waiting: an answer that has not come yet
    ended.unwrap_or(Outcome::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Nanos = Nanos::from_secs(1);

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(ms * 1_000_000)
    }

    /// Requests 0 and 65,536 have the same id; only they matter.
    fn wrapped(second_sent: Monotonic) -> (Record, usize) {
        let n = (1 << 16) + 1;
        let plan = vec![Planned::new(Operation::Get, 0); n];
        let mut record = Record::new(1 << 16, vec![Nanos::ZERO; n], &plan, 0, TIMEOUT);
        for k in 0..n - 1 {
            record.send(k, at(10));
        }
        record.send(n - 1, second_sent);
        (record, n - 1)
    }

    #[test]
    fn an_answer_that_two_requests_could_have_is_nobodys() {
        let (mut record, second) = wrapped(at(1000));
        assert_eq!(record.outstanding(second), None);
        record.finish(Keys::none());
        assert_eq!(record.get(second).unwrap().outcome, Outcome::TimedOut);
        assert_eq!(record.get(0).unwrap().outcome, Outcome::TimedOut);
    }

    #[test]
    fn an_id_is_free_again_after_the_time_out() {
        let (mut record, second) = wrapped(at(1011));
        assert!(record.outstanding(second).is_some());
        record.answered(second, Outcome::Hit, at(1012));
        record.finish(Keys::none());
        assert_eq!(record.get(second).unwrap().outcome, Outcome::Hit);
        assert_eq!(record.get(0).unwrap().outcome, Outcome::TimedOut);
    }

    #[test]
    fn a_late_answer_counts_as_none_and_keeps_its_time() {
        let plan = [Planned::new(Operation::Get, 0); 2];
        let schedule = vec![Nanos::ZERO; 2];
        let mut record = Record::new(1 << 16, schedule, &plan, 0, TIMEOUT);
        record.send(0, at(10));
        record.send(1, at(10));
        record.answered(0, Outcome::Hit, at(1010));
        record.answered(1, Outcome::Hit, at(1011));
        let outcome = |k| record.get(k).unwrap().outcome;
        assert_eq!((outcome(0), outcome(1)), (Outcome::Hit, Outcome::TimedOut));
        assert_eq!(record.get(1).unwrap().times.received, Some(at(1011)));
        assert_eq!(record.outstanding(1), None);
    }

    /// The same on two connections that the requests draw: only one on the same connection could have the answer.
    #[test]
    fn an_id_on_another_connection_is_another_key() {
        let draw = Draw::new(3, 2);
        let first = (0..100).find(|k| draw.of(*k) != draw.of(k + (1 << 16)));
        let other = first.unwrap();
        let (mut record, _) = wrapped(at(10));
        record.draw = Some(draw);
        let same = (0..100).find(|k| draw.of(*k) == draw.of(k + (1 << 16)));
        assert!(!record.is_contended(other + (1 << 16), at(11)));
        assert!(record.is_contended(same.unwrap() + (1 << 16), at(11)));
    }

    /// Four requests, due at 1 to 4 ms, on one connection: the second and the third wait for it, the third in vain.
    #[test]
    fn what_a_request_waits_for_its_connection_is_not_the_generators_delay() {
        let plan = [Planned::new(Operation::Get, 0); 4];
        let schedule = (1..=4).map(Nanos::from_millis).collect();
        let mut record = Record::new(usize::MAX, schedule, &plan, 0, TIMEOUT);
        record.turn_ns = vec![NONE; 4];
        record.begin(at(0));
        for k in 0..4 {
            record.send(k, at(1 + k as u64));
        }
        record.waits(1);
        record.waits(2);
        assert!(record.is_in_time(1, at(1_002)) && !record.is_in_time(1, at(1_003)));
        record.left(1, at(502));
        record.answered(1, Outcome::Hit, at(505));
        record.gave_up(2);
        record.finish(Keys::none());
        let [first, second, third, _] = [0, 1, 2, 3].map(|k| record.get(k).unwrap());
        assert_eq!((first.waited, first.turn()), (Nanos::ZERO, at(1)));
        assert_eq!(second.waited, Nanos::from_millis(500));
        assert_eq!((second.turn(), second.times.sent), (at(2), at(502)));
        assert_eq!(second.service_time(), Some(Nanos::from_millis(3)));
        assert_eq!((third.waited, third.turn()), (TIMEOUT, at(3)));
        assert_eq!(third.outcome, Outcome::TimedOut);
        let turns: Vec<_> = record.measured_turns().collect();
        assert_eq!(turns, [at(1), at(2), at(3), at(4)]);
        let sent: Vec<_> = record
            .iter_as_sent()
            .map(|entry| entry.times.sent)
            .collect();
        assert_eq!(sent, [at(1), at(4), at(502), at(1_003)]);
    }

    /// Seven requests, due at 1 to 7 ms, each with a connection of its own. The last two find no connection free.
    #[test]
    fn connecting_is_told_from_the_wait_before_it_and_from_the_service_after_it() {
        let plan = [Planned::new(Operation::Get, 0); 7];
        let schedule = (1..=7).map(Nanos::from_millis).collect();
        let mut record = Record::new(usize::MAX, schedule, &plan, 0, TIMEOUT);
        (record.turn_ns, record.dialed_ns) = (vec![NONE; 7], vec![NONE; 7]);
        record.begin(at(0));
        for k in 0..7 {
            record.send(k, at(1 + k as u64));
        }
        let ms = Nanos::from_millis;
        // 0 is answered, 1 refused, 2 refused at once, 3 has no port, 4 is never up
        record.dials(0, at(1));
        record.left(0, at(3));
        record.answered(0, Outcome::Done, at(8));
        record.dials(1, at(2));
        record.left(1, at(4));
        record.send_failed(1, NotSent::Refused);
        record.send_failed(2, NotSent::Refused);
        record.send_failed(3, NotSent::Failed);
        record.dials(4, at(5));
        record.ended(4, Outcome::TimedOut, at(1_005));
        // 5 waits until 0 is closed, 6 in vain
        record.waits(5);
        record.waits(6);
        record.dials(5, at(9));
        record.left(5, at(12));
        record.answered(5, Outcome::Hit, at(20));
        record.gave_up(6);
        record.finish(Keys::none());
        let entries: Vec<_> = record.iter().collect();
        let of = |k: usize| entries[k].connecting.map(|of| (of.end, of.took));
        assert_eq!(of(0), Some((ConnectEnd::Connected, ms(2))));
        assert_eq!(entries[0].outcome, Outcome::Done);
        assert_eq!(entries[0].service_time(), Some(ms(5)));
        assert_eq!(of(1), Some((ConnectEnd::Refused, ms(2))));
        assert_eq!(of(2), Some((ConnectEnd::Refused, Nanos::ZERO)));
        assert_eq!(of(3), Some((ConnectEnd::Failed, Nanos::ZERO)));
        assert_eq!(of(4), Some((ConnectEnd::TimedOut, TIMEOUT)));
        assert_eq!(of(5), Some((ConnectEnd::Connected, ms(3))));
        assert_eq!(of(6), None);
        let waited: Vec<_> = entries.iter().map(|one| one.waited).collect();
        let nothing = Nanos::ZERO;
        let waits = [nothing, nothing, nothing, nothing, nothing, ms(3), TIMEOUT];
        assert_eq!(waited, waits);
        // lateness is that of the generator, which was on time
        assert!(entries.iter().all(|one| one.turn() == one.times.intended));
        let errors = record.request_errors();
        assert_eq!((errors.send_errors, errors.timeouts), (3, 2));
    }

    #[test]
    fn a_request_takes_28_bytes() {
        let n = 1000;
        let plan = vec![Planned::new(Operation::Get, 0); n];
        let record = Record::new(1 << 16, vec![Nanos::ZERO; n], &plan, 0, Nanos::ZERO);
        let bytes = record.schedule.capacity() * size_of::<Nanos>()
            + record.sent_ns.capacity() * size_of::<u64>()
            + record.received_ns.capacity() * size_of::<u64>()
            + record.asked.capacity() * size_of::<u32>();
        assert_eq!(bytes, 28 * n);
    }
}
