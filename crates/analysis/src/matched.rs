//! The matcher's result: requests with their stamps, and everything that could not be matched.

use taillab_model::summary::Matching;
use taillab_model::{
    MiddleStamps, Monotonic, Nanos, Request, RequestKey, SendLimit, SentKey, Stamps, Tid,
};

use crate::clients::Clients;
use crate::requests::{Requests, reordered};
use crate::slices::Slices;
use crate::spans::Span;
use crate::spoken::Beginnings;

/// How the client's records and the matched requests joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientJoin {
    /// Responses that the client received to requests due in the measurement.
    pub responses: u64,
    /// How many of them have T1 and T6. This shows the probe's coverage independently of the probe.
    pub matched: u64,
    /// Matched requests that no record of the client explains. If there are any, something else sends
    /// requests, or records are missing.
    pub unexplained: u64,
}

/// A request whose response was not seen, or not for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Its connection, and the request's id.
    pub key: RequestKey,
    /// When it came in.
    pub t1: Monotonic,
    /// One of the ambiguous responses may be its own; otherwise it is unanswered.
    pub ambiguous: bool,
    /// It is ambiguous only since it was not yet known what its connection owed, which was open before the recording.
    pub early: bool,
    /// T2 is known: a socket of the server took it.
    pub queued: bool,
}

/// A response that was sent again after all of it had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAgain {
    /// When its last segment left for the first time.
    pub left: Monotonic,
    /// When a segment of it left for the last time.
    pub last: Monotonic,
    /// How many segments were sent again.
    pub segments: u32,
}

/// A time in which nothing of a connection left, since TCP had reached a limit: what the server had written waited for
/// the client or for the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendPause {
    /// The number of the connection.
    pub connection: u32,
    /// When the segment before it left.
    pub from: Monotonic,
    /// When the segment after it left.
    pub to: Monotonic,
    /// What it waited for at last.
    pub limit: SendLimit,
}

impl SendPause {
    /// A shorter one is a round trip of the fastest networks.
    pub(crate) const SHORTEST: Nanos = Nanos::from_micros(200);
}

/// How the response to a datagram is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramIds {
    /// By its first two bytes, which are also those of its request.
    Ids,
    /// By the order of the client's requests: the datagrams have no id.
    Order,
}

/// A time in which the probe missed at least one switch on a CPU. The probe was blind for no longer
/// than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlindWindow {
    /// The last event that proves which thread was current.
    pub from: Monotonic,
    /// The event that contradicts it.
    pub to: Monotonic,
}

/// Everything the matcher found in a stream of events.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// The requests with T1 and T6, in order of T1; T6 is never before T1.
    pub requests: Requests,
    /// The key of each of [`Matched::requests`].
    pub keys: Vec<RequestKey>,
    /// Who is at the other end of the connections of these requests.
    pub clients: Clients,
    /// The thread that served each of [`Matched::requests`]: the one that wrote its response
    /// or, where its write was not seen, the one that read it; 0 where neither is known.
    pub workers: Vec<Tid>,
    /// When T2 to T5 were recorded.
    pub stamps: MiddleStamps,
    /// The slices, if T2 to T5 were recorded in slices.
    pub slices: Slices,
    /// The requests without a certain response, in order of T1.
    pub unmatched: Vec<Unmatched>,
    /// T6 of each response that more than one request could have caused.
    pub ambiguous: Vec<Monotonic>,
    /// Those of them that would be certain had it been known what their connection owed when the recording began. They do
    /// not count as ambiguous: which they are does not depend on how long they took.
    pub early: Vec<Monotonic>,
    /// T6 of each response whose request was not seen.
    pub without_request: Vec<Monotonic>,
    /// The number of responses to requests from before the recording. They are not in the other lists.
    pub from_before: u64,
    /// The number of requests over TCP that no socket of the server received, as far as can be seen: they pass
    /// through this machine, or nobody accepts them. They are not in the other lists.
    pub elsewhere: u64,
    /// The number of packets that looked like a request and were taken for parts of the request that ended after
    /// them. They are not in the other lists.
    pub parts: u64,
    /// The number of requests that another process received, which shares the server's port. They are not in the
    /// other lists.
    pub other_processes: u64,
    /// Responses that were sent again after all of them had left.
    pub sent_again: Vec<SentAgain>,
    /// When TCP could not send on, in order of their ends.
    pub send_pauses: Vec<SendPause>,
    /// The client's port (0 if it is not known) of each connection that was set aside, since the server sends there without being
    /// asked (subscribers, replicas, streams of events), or goes on for longer than is waited for. What
    /// happened there from then on is not in the other lists.
    pub unasked: Vec<u16>,
    /// Connections and threads that were forgotten while they were in use, since there were too many.
    pub forgotten: u64,
    /// The number of requests to which no response is due. They are not in the other lists.
    pub silent: u64,
    /// What the connections began with whose content was read.
    pub beginnings: Beginnings,
    /// The blind windows of all CPUs, in order of their ends.
    pub blind: Vec<BlindWindow>,
    /// What the join with the client's records found, once it was done.
    pub client: Option<ClientJoin>,
    /// The number of events read.
    pub events: u64,
    /// Events that were further out of order in time than the matcher can correct.
    pub late_events: u64,
    /// Time of the last event.
    pub last: Option<Monotonic>,
}

impl Matched {
    /// The matched requests of the measurement, in order of T1: those that were due (the
    /// client's intended send; without a client, T1) at `measure_from` or later.
    pub fn measured(&self, measure_from: Monotonic) -> impl Iterator<Item = Request> + Clone {
        self.measured_places(measure_from)
            .map(|place| self.requests.get(place))
    }

    /// The places of the requests of [`Matched::measured`].
    pub fn measured_places(
        &self,
        measure_from: Monotonic,
    ) -> impl Iterator<Item = usize> + Clone + use<'_> {
        (0..self.requests.len()).filter(move |&place| self.is_measured(place, measure_from))
    }

    /// The request at `place` belongs to the measurement (see [`Matched::measured`]).
    pub fn is_measured(&self, place: usize, measure_from: Monotonic) -> bool {
        self.requests.due(place) >= measure_from
    }

    /// T2 to T5 of the request at `place` were to be recorded; in slices: it belongs to the sample.
    pub fn is_asked(&self, place: usize) -> bool {
        match self.stamps {
            MiddleStamps::All => true,
            MiddleStamps::Sampled(_) => self.sampling(place).is_some(),
            MiddleStamps::Ends => false,
        }
    }

    /// What happened at an instant counts: with slices, it lies within the sampled time.
    pub(crate) fn sees(&self, at: Monotonic) -> bool {
        !self.slices.are_used() || self.slices.sampling(at).is_some()
    }

    /// The number and the end of the slice whose sample has the request at `place`.
    pub(crate) fn sampling(&self, place: usize) -> Option<(u32, Span)> {
        self.slices.sampling(self.requests.t1(place))
    }

    /// What its client knows a request with this key as, if the recording says who that is.
    pub fn sent_as(&self, key: RequestKey) -> Option<SentKey> {
        let port = self.clients.of(key.connection)?.port();
        Some(SentKey { port, id: key.id })
    }

    /// The counts over the measurement, that is from `measure_from` on. Hooks and lost events are not
    /// known here and are left empty.
    pub fn counts(&self, measure_from: Monotonic) -> Matching {
        let mut counts = MatchCounts::default();
        let all = Monotonic::from_nanos_since_boot(0)..Monotonic::MAX;
        counts.add(self, measure_from, all);
        counts.finish()
    }

    /// T1 of every request that came in, matched or not, in order of time.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        let mut places = (0..self.requests.len()).peekable();
        let mut unmatched = self.unmatched.iter().peekable();
        std::iter::from_fn(move || {
            let other = unmatched.next_if(|other| {
                let place = places.peek();
                place.is_none_or(|&place| other.t1 < self.requests.t1(place))
            });
            match other {
                Some(other) => Some(Arrival {
                    t1: other.t1,
                    matched: None,
                    ambiguous: other.ambiguous,
                    queued: other.queued,
                }),
                None => places.next().map(|place| Arrival {
                    t1: self.requests.t1(place),
                    matched: Some(place),
                    ambiguous: false,
                    queued: true,
                }),
            }
        })
    }

    /// Adds the matched request at `place` in `others`.
    pub(crate) fn push_from(&mut self, others: &Self, place: usize) {
        self.requests.push(others.requests.get(place));
        if let command @ Some(_) = others.requests.command(place) {
            self.requests.set_command(command);
        }
        self.keys.push(others.keys[place]);
        (self.clients).copy(others.keys[place].connection, &others.clients);
        self.workers.push(others.workers[place]);
    }

    /// Removes and returns the requests that came in at `from` or later; all are in order of T1.
    pub(crate) fn split_off(&mut self, from: Monotonic) -> Self {
        let place = self.requests.first_from(from);
        let unmatched = self.unmatched.partition_point(|request| request.t1 < from);
        let mut clients = Clients::default();
        let keys = self.keys[place..].iter();
        for key in keys.chain(self.unmatched[unmatched..].iter().map(|one| &one.key)) {
            clients.copy(key.connection, &self.clients);
        }
        Self {
            clients,
            requests: self.requests.split_off(place),
            keys: self.keys.split_off(place),
            workers: self.workers.split_off(place),
            unmatched: self.unmatched.split_off(unmatched),
            stamps: self.stamps,
            ..Self::default()
        }
    }

    /// Sorts by T1. Requests that were open for long are added late, and so are those of late events
    /// ([`Matched::late_events`]).
    pub(crate) fn restore_order(&mut self) {
        self.unmatched.sort_by_key(|request| request.t1);
        if let Some(order) = self.requests.order() {
            self.requests.reorder(&order);
            self.keys = reordered(&self.keys, &order);
            self.workers = reordered(&self.workers, &order);
        }
    }
}

/// [`Matched::counts`] over the parts of a recording.
#[derive(Clone, Debug, Default)]
pub struct MatchCounts {
    counts: Matching,
    /// Requests that may have been answered.
    doubtful: u64,
    /// The last slice with a request.
    slice: Option<u32>,
}

impl MatchCounts {
    /// Adds what was matched in a part of the recording.
    pub fn add(
        &mut self,
        matched: &Matched,
        measure_from: Monotonic,
        part: std::ops::Range<Monotonic>,
    ) {
        let counts = &mut self.counts;
        counts.stamps = matched.stamps;
        let gaps = merged(&matched.blind);
        for place in matched.measured_places(measure_from) {
            let stamps = matched.requests.stamps(place);
            counts.matched += 1;
            if let Some((number, slice)) = matched.sampling(place) {
                counts.slices += u64::from(Some(number) > self.slice);
                self.slice = self.slice.max(Some(number));
                counts.left_late += u64::from(stamps.t6 > slice.to);
            }
            if !matched.is_asked(place) {
                counts.unasked += 1;
            } else if stamps.is_complete() {
                counts.complete += 1;
            } else {
                for (missing, stamp) in counts.missing_middle.iter_mut().zip(stamps.middle()) {
                    *missing += u64::from(stamp.is_none());
                }
                counts.out_of_order += u64::from(!in_order(&stamps));
            }
            // the first window that has not ended before the request came in
            let next = gaps.partition_point(|gap| gap.to < stamps.t1);
            let overlaps = gaps.get(next).is_some_and(|gap| gap.from <= stamps.t6);
            counts.blind_requests += u64::from(overlaps);
        }
        let since =
            |times: &[Monotonic]| times.iter().filter(|&&at| at >= measure_from).count() as u64;
        counts.ambiguous += since(&matched.ambiguous) - since(&matched.early);
        counts.responses += since(&matched.without_request);
        let of_measurement = |request: &&Unmatched| request.t1 >= measure_from;
        for request in matched.unmatched.iter().filter(of_measurement) {
            self.doubtful += u64::from(request.ambiguous && !request.early);
            counts.unanswered += u64::from(!request.ambiguous);
        }
        let new = |window: &&BlindWindow| part.contains(&window.to);
        let windows = matched.blind.iter().filter(new);
        for window in windows.filter(|window| window.to >= measure_from) {
            counts.blind_windows += 1;
            counts.blind_ns += window.to.saturating_since(window.from.max(measure_from));
        }
        if let Some(client) = matched.client {
            counts.client_responses = client.responses;
            counts.client_matched = client.matched;
        }
    }

    /// The counts over all parts.
    pub fn finish(self) -> Matching {
        let mut counts = self.counts;
        counts.responses += counts.matched + counts.ambiguous;
        // each ambiguous response answered one of the doubtful requests
        counts.unanswered += self.doubtful.saturating_sub(counts.ambiguous);
        counts
    }
}

/// A request that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it came in.
    pub t1: Monotonic,
    /// Its place in [`Matched::requests`], if it is there.
    pub matched: Option<usize>,
    /// It is not there, and one of the ambiguous responses may be its own.
    pub ambiguous: bool,
    /// It is there, or a socket of the server took it.
    pub queued: bool,
}

/// The known stamps do not contradict each other.
fn in_order(stamps: &Stamps) -> bool {
    let [t2, t3, t4, t5] = stamps.middle();
    let all = [Some(stamps.t1), t2, t3, t4, t5, Some(stamps.t6)];
    all.into_iter().flatten().is_sorted()
}

/// The union of the windows of all CPUs, as disjoint stretches in order of time.
fn merged(windows: &[BlindWindow]) -> Vec<BlindWindow> {
    let mut sorted = windows.to_vec();
    sorted.sort_by_key(|window| window.from);
    let mut union: Vec<BlindWindow> = Vec::new();
    for window in sorted {
        match union.last_mut() {
            Some(last) if window.from <= last.to => last.to = last.to.max(window.to),
            _ => union.push(window),
        }
    }
    union
}
