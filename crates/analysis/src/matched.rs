//! What the matcher found: requests with their stamps, and all that it could not match.

use taillab_model::summary::Matching;
use taillab_model::{Monotonic, Nanos, Request, RequestKey};

use crate::client::ClientJoin;

/// A request whose response was not seen, or not for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Whose.
    pub key: RequestKey,
    /// When it came in.
    pub t1: Monotonic,
    /// When it was queued at the socket, if that was seen.
    pub t2: Option<Monotonic>,
    /// A response that it may have caused was ambiguous; otherwise it is unanswered.
    pub ambiguous: bool,
}

/// A time in which the probe missed at least one switch of a CPU: an upper bound of the
/// time in which it was blind there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlindWindow {
    /// Which CPU.
    pub cpu: u16,
    /// The last event that proves which thread was current.
    pub from: Monotonic,
    /// The event that contradicts it.
    pub to: Monotonic,
}

/// Everything the matcher found in a stream of events.
#[derive(Clone, Debug, Default)]
pub struct Matched {
    /// The requests with T1 and T6, in order of T1; T6 is never before T1.
    pub requests: Vec<Request>,
    /// The key of each of [`Matched::requests`].
    pub keys: Vec<RequestKey>,
    /// The requests without a certain response, in order of T1.
    pub unmatched: Vec<Unmatched>,
    /// T6 of each response that more than one request could have caused.
    pub ambiguous: Vec<Monotonic>,
    /// T6 of each response whose request was not seen.
    pub without_request: Vec<Monotonic>,
    /// In order of their ends.
    pub blind: Vec<BlindWindow>,
    /// What the join with the client's records found, once it was done.
    pub client: Option<ClientJoin>,
    /// Events read.
    pub events: u64,
    /// Events that stood further out of the order of time than the matcher puts right.
    pub late_events: u64,
    /// Time of the last event.
    pub last: Option<Monotonic>,
}

/// When a request counts as arrived: when it was meant to be sent, or else T1.
fn due(request: &Request) -> Monotonic {
    request
        .client
        .map_or(request.server.t1, |client| client.intended)
}

impl Matched {
    /// The matched requests of the measurement, in order of T1: those that were due (the
    /// client's intended send; without a client, T1) at `measure_from` or later.
    pub fn measured(&self, measure_from: Monotonic) -> impl Iterator<Item = &Request> + Clone {
        self.requests
            .iter()
            .filter(move |request| due(request) >= measure_from)
    }

    /// The request at `place` belongs to the measurement (see [`Matched::measured`]).
    pub fn is_measured(&self, place: usize, measure_from: Monotonic) -> bool {
        due(&self.requests[place]) >= measure_from
    }

    /// The counts over the measurement, that is from `measure_from` on. Hooks and lost
    /// events are the probe's to say, and left empty.
    pub fn counts(&self, measure_from: Monotonic) -> Matching {
        let mut counts = Matching::default();
        let gaps = merged(&self.blind);
        for request in self.measured(measure_from) {
            let stamps = &request.server;
            counts.matched += 1;
            for (missing, stamp) in counts.missing_middle.iter_mut().zip(stamps.middle) {
                *missing += u64::from(stamp.is_none());
            }
            if stamps.is_complete() {
                counts.complete += 1;
            } else if !in_order(request) {
                counts.out_of_order += 1;
            }
            // the first window that has not ended before the request came in
            let next = gaps.partition_point(|gap| gap.to < stamps.t1);
            let overlaps = gaps.get(next).is_some_and(|gap| gap.from <= stamps.t6);
            counts.blind_requests += u64::from(overlaps);
        }
        let since = |times: &[Monotonic]| times.iter().filter(|&&at| at >= measure_from).count();
        counts.ambiguous = since(&self.ambiguous) as u64;
        counts.responses = counts.matched + counts.ambiguous + since(&self.without_request) as u64;
        let mut doubtful = 0_u64;
        for request in self.unmatched.iter().filter(|r| r.t1 >= measure_from) {
            doubtful += u64::from(request.ambiguous);
            counts.unanswered += u64::from(!request.ambiguous);
        }
        // Each ambiguous response answered one of the doubtful requests.
        counts.unanswered += doubtful.saturating_sub(counts.ambiguous);
        for window in self.blind.iter().filter(|window| window.to >= measure_from) {
            counts.blind_windows += 1;
            counts.blind_ns += window.to.saturating_since(window.from.max(measure_from));
        }
        if let Some(client) = self.client {
            counts.client_responses = client.responses;
            counts.client_matched = client.matched;
        }
        counts
    }

    /// T1 of every request that came in, matched or not, in order of time.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        let mut requests = self.requests.iter().enumerate().peekable();
        let mut unmatched = self.unmatched.iter().peekable();
        std::iter::from_fn(move || {
            let other = unmatched.next_if(|other| {
                requests
                    .peek()
                    .is_none_or(|(_, request)| other.t1 < request.server.t1)
            });
            match other {
                Some(other) => Some(Arrival {
                    t1: other.t1,
                    matched: None,
                }),
                None => requests.next().map(|(place, request)| Arrival {
                    t1: request.server.t1,
                    matched: Some(place),
                }),
            }
        })
    }

    /// Sorts by T1, which late events ([`Matched::late_events`]) can have disturbed.
    pub(crate) fn restore_order(&mut self) {
        self.unmatched.sort_by_key(|request| request.t1);
        if self.requests.is_sorted_by_key(|request| request.server.t1) {
            return;
        }
        let mut both: Vec<_> = std::mem::take(&mut self.requests)
            .into_iter()
            .zip(std::mem::take(&mut self.keys))
            .collect();
        both.sort_by_key(|(request, _)| request.server.t1);
        (self.requests, self.keys) = both.into_iter().unzip();
    }
}

/// A request that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub t1: Monotonic,
    /// Its place in [`Matched::requests`], if it is there.
    pub matched: Option<usize>,
}

/// The stamps that are there do not contradict each other.
fn in_order(request: &Request) -> bool {
    let stamps = &request.server;
    let middle = stamps.middle.iter().flatten();
    let mut last = stamps.t1;
    for &stamp in middle.chain([&stamps.t6]) {
        if stamp < last {
            return false;
        }
        last = stamp;
    }
    true
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

/// The sojourns T6 − T1 of some requests, in their order.
pub fn sojourns<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Vec<Nanos> {
    requests
        .into_iter()
        .map(|request| request.server.t6.saturating_since(request.server.t1))
        .collect()
}
